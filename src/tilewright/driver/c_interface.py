"""A network's library with functions for C: `tilewright.h`, and what stands behind it.

In: what a library is made of.  Out: a shared object with the kernels of a CPU, or the means to load
those of a GPU, and the functions of `include/tilewright.h`; its plans are tables of C, its runtime
is the C of `native/`, and both are compiled by whatever links it.  Weights, and code of GPUs, stay
in the archive behind it.  Read next: `native/network.c`, `linking.py`.
"""

from __future__ import annotations

import hashlib
import string
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import output
from tilewright.base.artifact import Artifact, KernelInfo, TensorMap
from tilewright.base.errors import ModelError
from tilewright.driver import linking
from tilewright.runtime.drivers import cpu_features
from tilewright.runtime.network.library_file import Code, Contents
from tilewright.runtime.network.plan import Operand, Plan, TensorSpec
from tilewright.targets.target import Target

HEADER = Path(__file__).parents[1] / "include" / "tilewright.h"
_NATIVE = Path(__file__).with_name("native")
_VERSION = str(sys.modules["tilewright"].__version__)  # importing that would load every room
_PLAIN = frozenset(f"{string.ascii_letters}{string.digits} _-.:,/=+()[]".encode())
_FLAGS = (
    "-std=gnu11", "-O2", "-fPIC", "-fvisibility=hidden", "-fno-asynchronous-unwind-tables",
    "-fno-unwind-tables", "-fno-stack-protector", "-D_GNU_SOURCE", "-D_FILE_OFFSET_BITS=64",
    f"-I{_NATIVE}", f"-I{HEADER.parent}",
)  # fmt: skip
_AT = {
    "input": "AT_INPUT", "constant": "AT_CONSTANT", "slot": "AT_SLOT", "counters": "AT_COUNTERS",
    "copy": "AT_COPY",
}  # fmt: skip
_MEMORY = {"input": "in", "constant": "weights", "slot": "slots"}
# Of cuda.h: CUtensorMapDataType and CUtensorMapSwizzle.
MAP_TYPES = {
    "uint8": 0, "int8": 0, "bool": 0, "uint16": 1, "int16": 1, "uint32": 2, "int32": 3,
    "uint64": 4, "int64": 5, "float16": 6, "float32": 7, "float64": 8, "bfloat16": 9,
}  # fmt: skip
MAP_ROUNDED = 11
_ALIGNED = 256  # as ALIGNMENT of native/network.c
MAP_SWIZZLES = {0: 0, 32: 1, 64: 2, 128: 3}


def cpu_library(contents: Contents, place: str, cc: str | None) -> Code:
    """A shared object with the kernels of a CPU.

    cc: a C compiler for the target
    Raises ModelError without a linker, or where it refuses.
    """
    triple = linking.triple_of(contents.kernels)
    if "linux" not in triple:  # the interface finds its own file as Linux tells it
        return Code(linking.link_bytes(contents.kernels, triple, place, cc))
    text, digest = source(contents)
    made = _compiled(text, triple, place, cc)
    return Code(linking.link_bytes(contents.kernels, triple, place, cc, [made]), digest)


def cuda_library(contents: Contents, place: str, cc: str | None) -> Code:
    """A shared object that loads the kernels of a GPU; nothing, where no compiler makes one: Python
    needs none of it.

    cc: a C compiler for the processor beside the GPU
    Raises ModelError where the compiler refuses.
    """
    triple = linking.triple_of((), Target(contents.plans[0].target).triple)
    if cc is None and not linking.has_toolchain(triple):
        return Code(b"")
    text, digest = source(contents)
    made = _compiled(text, triple, place, cc)
    return Code(linking.link_bytes((), triple, place, cc, [made]), digest)


def check_target(target: Target, place: str) -> None:
    """Raises ModelError where a library for this target would have no functions for C."""
    own = target.device_kind.linker
    if not own or "linux" not in linking.triple_of((), target.triple):
        raise ModelError(
            place, f"libraries for {target} have no functions for C",
            "Compile for llvm or cuda on Linux, or leave --header out.",
        )  # fmt: skip
    if not linking.has_toolchain(linking.triple_of((), target.triple)):
        raise ModelError(
            place, "functions for C need a compiler, and there is none", f"Try {linking.INSTALL}."
        )


def write_header(path: Path) -> None:
    """Write `tilewright.h`, over whatever version of it is there.

    Raises ModelError where a file of another kind is there, or none can be written.
    """
    text = HEADER.read_bytes()
    kind = output.FileKind("tilewright.h", output.beginning(text.partition(b"\n")[0]))
    output.write(path, text, kind, f"--header {path}", ModelError)


def _compiled(text: str, triple: str, place: str, cc: str | None) -> bytes:
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        file, made = Path(folder, "plans.c"), Path(folder, "plans.o")
        file.write_text(text)
        command = linking.compiler(triple, cc, place, folder)
        whole = [*command, *_FLAGS, "-c", str(file), "-o", str(made)]
        done = linking.run(whole, place)
        if not done.returncode:
            return made.read_bytes()
    said = done.stderr.strip()[:1000]
    raise ModelError(
        place, f"{command[0]} could not compile the network's functions for C: {said}",
        f"Try {linking.INSTALL}, name a C compiler with cc=, or a file that ends in .tar.",
        command=f"Try {linking.INSTALL}, or name a file that ends in .tar.",
    )  # fmt: skip


# -- the text --------------------------------------------------------------------------------------


def source(contents: Contents) -> tuple[str, bytes]:
    """The C text of a library's interface, and 16 bytes that tell it from others."""
    is_cuda = Target(contents.plans[0].target).kind == "cuda"
    tables = _Tables(contents, is_cuda)
    body = "\n".join(tables.lines())
    held = hashlib.sha256(body.encode())
    for kernel in contents.kernels:
        held.update(kernel.binary)
    for constant in contents.constants:
        held.update(constant.tobytes())
    digest = held.digest()[:16]
    head = [
        "/* Written by Tilewright: the plans of a network. */",
        f"#define TILEWRIGHT_CUDA {int(is_cuda)}", '#include "network.h"', "",
        f"static const unsigned char ID[16] = {{{', '.join(map(str, digest))}}};",
    ]  # fmt: skip
    return "\n".join([*head, body, '#include "network.c"', ""]), digest


@dataclass(frozen=True)
class _Call:
    """A launch of one kernel.  kernel: its number among all kernels of all artefacts."""

    kernel: int
    args: tuple[Operand, ...]


@dataclass(frozen=True)
class _Kept:
    """What is copied behind the kernels, before states go on: from where, to which byte, how many.

    places: where each result is then; nbytes: of all copies
    """

    copied: tuple[tuple[Operand, int, int], ...]
    places: tuple[Operand, ...]
    nbytes: int

    @classmethod
    def of(cls, plan: Plan) -> _Kept:
        copied, places, end = [], [], 0
        for k, (spec, where) in enumerate(plan.outputs):
            if k in plan.taken_before:
                copied.append((where, end, spec.nbytes))
                where = Operand("copy", 0, end)
                end += -(-spec.nbytes // _ALIGNED) * _ALIGNED
            places.append(where)
        return cls(tuple(copied), tuple(places), end)


class _Tables:
    def __init__(self, contents: Contents, is_cuda: bool) -> None:
        self._contents, self._is_cuda = contents, is_cuda
        self._kernels: list[tuple[int, KernelInfo]] = []
        self._first: list[int] = []  # of each artefact the number of its first kernel
        for k, artifact in enumerate(contents.kernels):
            self._first.append(len(self._kernels))
            self._kernels += [(k, info) for info in artifact.source.kernels]

    def lines(self) -> list[str]:
        plans = self._contents.plans
        found = self._sizes()
        found += self._cuda_kernels() if self._is_cuda else self._cpu_kernels()
        for k, plan in enumerate(plans):
            found += self._plan(k, plan)
        rows = [self._row(k, p) for k, p in enumerate(plans)]
        return [*found, _table("struct plan", "PLANS", rows)]

    def _sizes(self) -> list[str]:
        held = self._contents
        slots = max(len(p.slot_bytes) for p in held.plans)
        sizes = [0] * slots
        for p in held.plans:
            for k, nbytes in enumerate(p.slot_bytes):
                sizes[k] = max(sizes[k], 0 if k in p.written_over else nbytes)
        counters = [
            b.nbytes for a in held.kernels for b in a.source.buffers if b.role == "counters"
        ]
        codes = [len(a.binary) for a in held.kernels] if self._is_cuda else []
        counts = {
            "N_CONSTANTS": len(held.constants), "N_SLOTS": slots, "N_CODES": len(codes),
            "N_PLACES": len(held.constants) + len(codes), "N_KERNELS": len(self._kernels),
            "COUNTER_BYTES": max(counters, default=0), "MOST_STATES": len(held.plans[0].states),
        }  # fmt: skip
        return [
            *(f"#define {name} {value}" for name, value in counts.items()),
            f"#define VERSION {_text(_VERSION)}",
            f"#define TARGET {_text(held.plans[0].target)}",
            _table("uint64_t", "CONSTANT_BYTES", [_big(c.nbytes) for c in held.constants]),
            _table("uint64_t", "SLOT_BYTES", map(_big, sizes)),
            _table("uint64_t", "CODE_BYTES", map(_big, codes)),
        ]

    def _row(self, k: int, plan: Plan) -> str:
        kept = _Kept.of(plan)
        counts = (
            len(plan.inputs), len(plan.given), len(plan.returned), len(plan.states),
            len(kept.copied), len(plan.written_over), len(plan.bounds),
        )  # fmt: skip
        names = ("INPUTS", "GIVEN", "OUTPUTS", "STATES", "COPIED", "OVER", "BOUNDS")
        tables = ", ".join(f"{name}_{k}" for name in names)
        runs = f"0, {len(self._calls(plan))}, LAUNCHES_{k}" if self._is_cuda else f"run_{k}, 0, 0"
        return f"{{{_listed(counts)}, {tables}, {_big(kept.nbytes)}, {runs}}}"

    def _plan(self, k: int, plan: Plan) -> list[str]:
        lines = []
        kept = _Kept.of(plan)
        results = [plan.outputs[i][0] for i in plan.returned]
        for what, specs in (("INPUT", plan.inputs), ("OUTPUT", results)):
            for i, spec in enumerate(specs):
                lines.append(_table("int64_t", f"{what}_{k}_{i}", map(_big, spec.shape)))
        inputs = [_spec(s, f"INPUT_{k}_{i}") for i, s in enumerate(plan.inputs)]
        outputs = [
            f"{{{_spec(s, f'OUTPUT_{k}_{i}')}, {_operand(kept.places[n])}}}"
            for i, (s, n) in enumerate(zip(results, plan.returned, strict=True))
        ]
        states = [
            f"{{{s.input}, {-1 if s.initial is None else s.initial}, "
            f"{int(s.input in plan.written_over.values())}, {_operand(kept.places[s.output])}}}"
            for s in plan.states
        ]
        copied = [f"{{{_operand(at)}, {_big(to)}, {_big(n)}}}" for at, to, n in kept.copied]
        bounds = [f"{{{b.input}, {_big(b.least)}, {_big(b.most)}}}" for b in plan.bounds]
        lines += [
            _table("struct spec", f"INPUTS_{k}", inputs),
            _table("int", f"GIVEN_{k}", map(str, plan.given)),
            _table("struct result", f"OUTPUTS_{k}", outputs),
            _table("struct state", f"STATES_{k}", states),
            _table("struct copied", f"COPIED_{k}", copied),
            _table("struct over", f"OVER_{k}", (f"{{{s}, {i}}}" for s, i in
                                                plan.written_over.items())),
            _table("struct bound", f"BOUNDS_{k}", bounds),
        ]  # fmt: skip
        return lines + (self._launches(k, plan) if self._is_cuda else self._run(k, plan))

    def _calls(self, plan: Plan) -> list[_Call]:
        found = []
        for launch in plan.launches:
            infos = self._contents.kernels[launch.kernel].source.kernels
            for n, info in enumerate(infos):
                args = tuple(launch.operands[i] for i in info.args)
                found.append(_Call(self._first[launch.kernel] + n, args))
        return found

    # -- a CPU's ---------------------------------------------------------------------------------

    def _cpu_kernels(self) -> list[str]:
        lines = []
        for k, (_, info) in enumerate(self._kernels):
            types = ", ".join(["Address"] * len(info.args)) or "void"
            lines.append(f"extern void kernel_{k}({types}) __asm__({_text(info.name)});")
        needs = [
            f"{{{_text(name)}, {-1 if bit is None else bit}, {_text(' '.join(flags))}}}"
            for name, bit, flags in _needs(self._contents.kernels)
        ]
        return [*lines, f"#define N_NEEDS {len(needs)}", _table("struct need", "NEEDS", needs)]

    def _run(self, k: int, plan: Plan) -> list[str]:
        """A function that calls the kernels in order."""
        lines = [
            f"static void run_{k}(Address const *in, Address const *weights, "
            "Address const *slots, Address counters) {",
            "  (void)in, (void)weights, (void)slots, (void)counters;",
        ]
        for call in self._calls(plan):
            args = ", ".join(map(_place, call.args))
            lines.append(f"  kernel_{call.kernel}({args});")
        return [*lines, "}"]

    # -- a GPU's ---------------------------------------------------------------------------------

    def _cuda_kernels(self) -> list[str]:
        lines, rows = [], []
        for k, (code, info) in enumerate(self._kernels):
            maps = "0"
            if info.maps:
                maps = f"MAPS_{k}"
                lines.append(_table("struct tensor_map", maps, map(_map, info.maps)))
            sizes = f"{{{_listed(info.grid)}}}, {{{_listed(info.block)}}}, {info.shared_bytes}"
            rows.append(f"{{{code}, {_text(info.name)}, {sizes}, {len(info.maps)}, {maps}}}")
        infos = [info for _, info in self._kernels]
        return [
            *lines,
            _table("struct kernel", "KERNELS", rows),
            f"#define MAX_ARGS {max((len(i.args) for i in infos), default=0)}",
            f"#define MAX_MAPS {max((len(i.maps) for i in infos), default=0)}",
        ]

    def _launches(self, k: int, plan: Plan) -> list[str]:
        lines, rows = [], []
        for n, call in enumerate(self._calls(plan)):
            lines.append(_table("struct operand", f"ARGS_{k}_{n}", map(_operand, call.args)))
            rows.append(f"{{{call.kernel}, {len(call.args)}, ARGS_{k}_{n}}}")
        return [*lines, _table("struct launch", f"LAUNCHES_{k}", rows)]


def _needs(artifacts: Sequence[Artifact]) -> list[tuple[str, int | None, tuple[str, ...]]]:
    """What the code needs of the processor, as it is told there: see `cpu_features.told_as`."""
    triple = linking.triple_of(artifacts)
    names = sorted({name for a in artifacts for name in a.meta.get("needs") or ()})
    told = [(name, *cpu_features.told_as(triple, name)) for name in names]
    return [(name, bit, flags) for name, bit, flags in told if bit is not None or flags]


def _table(kind: str, name: str, rows: Iterable[str]) -> str:
    """A constant array; where it is empty, of one element that nothing reads."""
    listed = list(rows) or ["0" if kind == "int" or kind.endswith("_t") else "{0}"]
    return f"static const {kind} {name}[] = {{{', '.join(listed)}}};"


def _spec(spec: TensorSpec, shape: str) -> str:
    kind = f"TILEWRIGHT_{spec.dtype.upper()}"
    return f"{{{_text(spec.name)}, {kind}, {len(spec.shape)}, {shape}, {_big(spec.nbytes)}}}"


def _operand(at: Operand) -> str:
    return f"{{{_AT[at.kind]}, {at.index}, {_big(at.offset)}}}"


def _place(at: Operand) -> str:
    if at.kind == "counters":
        return "counters"
    offset = f" + {at.offset}" if at.offset else ""
    return f"{_MEMORY[at.kind]}[{at.index}]{offset}"


def _map(view: TensorMap) -> str:
    strides = [n * view.dtype.bytes for n in reversed(view.strides[:-1])]
    kind = MAP_ROUNDED if view.rounded else MAP_TYPES[view.dtype]
    lists = (view.shape[::-1], strides or [0], view.box[::-1], view.steps[::-1])
    numbers = ", ".join(f"{{{_listed(n)}}}" for n in lists)
    swizzle = MAP_SWIZZLES[view.swizzle]
    return f"{{{view.argument}, {kind}, {len(view.shape)}, {swizzle}, {numbers}}}"


def _listed(numbers: Iterable[int]) -> str:
    return ", ".join(map(str, numbers))


def _big(number: int) -> str:
    return f"{int(number)}LL" if number > -(1 << 63) else f"(-{(1 << 63) - 1}LL - 1)"


def _text(text: str) -> str:
    """A literal of C with the same bytes of UTF-8; what is not plain is octal, so that neither
    trigraphs nor escapes are read in it."""
    data = text.encode("utf-8", "replace")
    return '"' + "".join(chr(b) if b in _PLAIN else f"\\{b:03o}" for b in data) + '"'
