"""A device kind in one file: C text, compiled by the system's compiler, called through ctypes.

Importing this module registers it; nothing in the package knows of it.  It is slow and plain: no
threads, no vectors.  Read next: `test_device_kinds.py`.
"""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from tilewright.base.artifact import Artifact, KernelInfo, Source
from tilewright.base.errors import CompileError, DeviceError, InternalError, TargetError
from tilewright.codegen.signature import arguments_of, source_of
from tilewright.ir.expr import BINARY, Expr
from tilewright.ir.stmt import Allocate, Buffer, For, If, Kernel, Program, Seq, Stmt, Store, lane
from tilewright.runtime.drivers import Fenced, Launch
from tilewright.runtime.drivers import Kernel as LoadedKernel
from tilewright.runtime.drivers.cpu import CpuMemory
from tilewright.targets.kind import DeviceKind, LimitValue, Options, register
from tilewright.targets.limits import Limits, rates
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

COMPILER = shutil.which("cc") or ""
FLAGS = ("-O1", "-ffp-contract=off", "-shared", "-fPIC", "-x", "c", "-lm")

_HELPERS = """#include <math.h>
#include <stdbool.h>
#define rsqrt(x) (1 / sqrt(x))
static long floordiv(long a, long b) { return a / b - ((a % b != 0) & ((a < 0) != (b < 0))); }
static long floormod(long a, long b) { return a - floordiv(a, b) * b; }
static double least(double a, double b) { return a != a || a < b ? a : b; }
static double most(double a, double b) { return a != a || a > b ? a : b; }
"""
_TWICE = """
void twice(float* a, float* b) {
  for (int i = 0; i < 256; ++i) b[i] = a[i] + a[i];
}"""
_CALLS = {"floordiv": "floordiv", "floormod": "floormod", "min": "least", "max": "most"}
_FUNCTIONS = {"abs": "fabs", "round": "rint"}


# -- text ------------------------------------------------------------------------------------------


def generate(program: Program, target: Target) -> Source:
    """What `DeviceKind.printer` names."""
    texts = [_Printer().kernel(k) for k in program.kernels]
    infos = [KernelInfo(k.name, arguments_of(k, program)) for k in program.kernels]
    return source_of(program, target, "\n".join([_HELPERS, *texts]), infos)


class _Printer:
    """One kernel as C.  `names`: what loops and buffers are called."""

    def __init__(self) -> None:
        self.names: dict[object, str] = {}

    def kernel(self, kernel: Kernel) -> str:
        params = ", ".join(f"{p.dtype.spelling.c}* restrict {self.name(p)}" for p in kernel.params)
        return f"void {kernel.name}({params}) {{\n{self.text(kernel.body)}}}\n"

    def name(self, of: Expr | Buffer) -> str:
        wanted = of.name if isinstance(of, Buffer) else str(of.attr)
        return self.names.setdefault(of, re.sub(r"\W", "_", f"{wanted}_{len(self.names)}"))

    def text(self, stmt: Stmt) -> str:
        if isinstance(stmt, Seq):
            return "".join(map(self.text, stmt.body))
        if isinstance(stmt, For):
            i = self.name(stmt.var)
            return f"for (int {i} = 0; {i} < {stmt.extent}; ++{i}) {{\n{self.text(stmt.body)}}}\n"
        if isinstance(stmt, If):
            other = "" if stmt.orelse is None else f" else {{\n{self.text(stmt.orelse)}}}"
            return f"if ({self.value(stmt.condition)}) {{\n{self.text(stmt.then)}}}{other}\n"
        if isinstance(stmt, Allocate):
            b = stmt.buffer
            declared = f"{b.dtype.spelling.c} {self.name(b)}[{b.size}]"
            return f"{{ {declared};\n{self.text(stmt.body)}}}\n"
        if isinstance(stmt, Store):
            return self.store(stmt)
        raise InternalError("generate", f"a {type(stmt).__name__} statement has no C text")

    def store(self, stmt: Store) -> str:
        """All lanes are read before the first is written."""
        kind, to, lanes = stmt.buffer.dtype.spelling.c, self.name(stmt.buffer), stmt.index.lanes
        read = [f"const {kind} l{k} = {self.value(lane(stmt.value, k))};\n" for k in range(lanes)]
        write = [f"{to}[{self.value(lane(stmt.index, k))}] = l{k};\n" for k in range(lanes)]
        return f"{{ {''.join(read + write)}}}\n"

    def value(self, node: Expr) -> str:
        op, kind, args = node.op, node.dtype.spelling.c, [self.value(a) for a in node.args]
        if op == "var":
            return self.name(node)
        if op == "const":
            return _number(node)
        if op == "load":
            return f"{self.name(node.attr)}[{args[0]}]"
        if op in _CALLS:
            return f"({kind}){_CALLS[op]}({', '.join(args)})"
        if op in BINARY:
            return f"({args[0]} {BINARY[op][0]} {args[1]})"
        if op == "call":
            return f"({kind}){_FUNCTIONS.get(node.attr, node.attr)}({', '.join(args)})"
        if op == "cast":
            return f"(({kind}){args[0]})"
        if op == "not":
            return f"!{args[0]}"
        if op in ("select", "if_then_else"):
            return f"({args[0]} ? {args[1]} : {args[2]})"
        raise InternalError("generate", f"a {op} expression has no C text")


def _number(node: Expr) -> str:
    if not node.dtype.is_float:
        return str(int(node.attr))
    if not np.isfinite(node.attr):
        return "NAN" if np.isnan(node.attr) else "(INFINITY)" if node.attr > 0 else "(-INFINITY)"
    return f"({node.dtype.spelling.c}){float(node.attr)!r}"


# -- compiler --------------------------------------------------------------------------------------


class Compiler:
    """See `driver.compilers.Compiler`."""

    def identity(self, target: Target) -> dict[str, str]:
        if not COMPILER:
            raise TargetError("compile for ctext", "there is no C compiler", "Install one.")
        said = subprocess.run([COMPILER, "--version"], capture_output=True, text=True, check=True)
        return {"compiler": said.stdout.splitlines()[0], "flags": " ".join(FLAGS)}

    def build(self, source: Source, target: Target) -> Artifact:
        with tempfile.TemporaryDirectory() as folder:
            text, out = Path(folder, "kernel.c"), Path(folder, "kernel.so")
            text.write_text(source.text)
            command = [COMPILER, *FLAGS[:-1], str(text), "-o", str(out), FLAGS[-1]]
            said = subprocess.run(command, capture_output=True, text=True)
            if said.returncode:
                raise CompileError(f"compile {source.entry_name}", said.stderr, CompileError.REPORT)
            return Artifact(source, out.read_bytes())

    def about(self) -> str:
        return "by the system's compiler"


# -- device ----------------------------------------------------------------------------------------


class Plan:
    """See `runtime.drivers.Plan`."""

    def __init__(self, launches: tuple[Launch, ...]) -> None:
        self.launches = launches

    def run(self) -> None:
        for launch in self.launches:
            launch.kernel.handle(*(ctypes.c_void_p(m.pointer) for m in launch.buffers))

    def run_apart(self, written: Sequence[CpuMemory], seconds: float) -> bool:
        return False

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        began = time.perf_counter()
        for _ in range(number):
            self.run()
        return (time.perf_counter() - began) / number


class Driver:
    """See `runtime.drivers.Driver`."""

    name, arch = "whatever runs C", ""

    def describe(self) -> DeviceSpec:
        limits = (("l2_bytes", 1 << 19),)
        return DeviceSpec(KIND.name, self.name, "c-machine", "", limits, shares_host=True)

    def sync(self) -> None:
        """Calls return when they are done."""

    def allocate(self, nbytes: int) -> CpuMemory:
        return CpuMemory.empty(nbytes)

    def fenced(self, nbytes: int) -> Fenced:
        return CpuMemory.fenced(nbytes)

    def part(self, memory: CpuMemory, offset: int, nbytes: int) -> CpuMemory:
        return memory.part(offset, nbytes)

    def borrow(self, pointer: int, nbytes: int, owner: object) -> CpuMemory:
        raise DeviceError("ctext.borrow", "memory cannot be shared", "Copy it.")

    def write(self, memory: CpuMemory, data: np.ndarray, offset: int = 0) -> None:
        memory.view[offset : offset + data.nbytes] = data

    def read(self, memory: CpuMemory, out: np.ndarray, offset: int = 0) -> None:
        out[:] = memory.view[offset : offset + out.nbytes]

    def copy(self, source: CpuMemory, target: CpuMemory, nbytes: int) -> None:
        target.view[:nbytes] = source.view[:nbytes]

    def load(self, artifact: Artifact) -> tuple[LoadedKernel, ...]:
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            file.write(artifact.binary)
            file.flush()
            library = ctypes.CDLL(file.name)
        source = artifact.source
        return tuple(
            LoadedKernel(k, getattr(library, k.name), library, source) for k in source.kernels
        )

    def plan(self, launches: tuple[Launch, ...], capture: bool = False) -> Plan:
        return Plan(launches)


def open_device(index: int) -> Driver:
    if index:
        raise TargetError(f"ctext({index})", "there is one", "Use index 0.")
    return Driver()


def limits(options: Options, device: Mapping[str, LimitValue]) -> Limits:
    return Limits(
        cores=1, vector_bytes=16, rates=rates(2e9), memory_bandwidth=5e9, l2_bandwidth=1e10
    ).reported(device)  # fmt: skip


KIND = register(
    DeviceKind(
        name="ctext",
        limits=limits,
        printer=generate,
        compiler=Compiler(),
        driver=open_device,
        sanity=_TWICE,
        templates=("llvm",),
        types=("bool", "int32", "int64", "float32", "float64"),
        shares_host=True,
        vectors_are_aligned=True,
    )
)
