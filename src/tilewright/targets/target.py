"""`Target`: what code is generated for, with the limits that legality masks and models need.

In: TVM-style strings such as ``"cuda -arch=sm_90"`` or ``"llvm -mcpu=native -num-cores=2"``.
Out: a frozen, hashable value.  It opens no device; `runtime.Device` measures real ones.
"""

from __future__ import annotations

import os
import shlex
from dataclasses import dataclass, fields, replace

from tilewright.base import context
from tilewright.base.dtype import FLOAT32, FLOAT64, INT32, INT64, DType
from tilewright.base.errors import TargetError


@dataclass(frozen=True)
class Limits:
    """Hardware limits and rates.  Rates are per second; 0 means "does not apply"."""

    max_threads_per_block: int = 0
    max_block: tuple[int, int, int] = (0, 0, 0)  # x, y, z
    max_grid: tuple[int, int, int] = (0, 0, 0)
    shared_bytes_per_block: int = 0
    shared_bytes_per_core: int = 0
    registers_per_block: int = 0
    registers_per_thread: int = 0
    warp_size: int = 1
    max_threads_per_core: int = 0
    max_blocks_per_core: int = 0
    cores: int = 1  # multiprocessors of a GPU, cores of a CPU
    vector_bytes: int = 16
    vector_registers: int = 16
    l1_bytes: int = 32 << 10
    l2_bytes: int = 1 << 20
    rates: tuple[tuple[DType, float], ...] = ()  # operations of arithmetic; a multiply-add is two
    memory_bandwidth: float = 0.0
    l2_bandwidth: float = 0.0
    launch_seconds: float = 0.0
    max_unrolled_body: int = 4096  # innermost operations of straight-line code: bounds compile time
    max_stack_bytes: int = 64 << 10  # local buffers of one CPU thread

    @property
    def register_bytes(self) -> int:
        """What the registers of a thread hold: the largest local buffer that is no memory."""
        return max(self.registers_per_thread * 4, self.vector_registers * self.vector_bytes)

    def rate(self, dtype: DType) -> float:
        """Peak operations of arithmetic in `dtype` per second.

        A type without a rate has that of its compute type, and then that of float32; 1.0 where not
        even that is known.
        """
        known = dict(self.rates)
        found = (known[t] for t in (dtype, dtype.compute, FLOAT32) if t in known)
        return next(found, 1.0)


def _rates(float32: float, **per_float32: float) -> tuple[tuple[DType, float], ...]:
    """`Limits.rates` from that of float32 and, for other types, multiples of it."""
    others = ((DType(name), float32 * share) for name, share in per_float32.items())
    return (FLOAT32, float32), *others


_SM90 = Limits(
    max_threads_per_block=1024,
    max_block=(1024, 1024, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    shared_bytes_per_block=232448,
    shared_bytes_per_core=233472,
    registers_per_block=65536,
    registers_per_thread=255,
    warp_size=32,
    max_threads_per_core=2048,
    max_blocks_per_core=32,
    cores=132,
    vector_bytes=16,
    l1_bytes=256 << 10,
    l2_bytes=60 << 20,
    rates=_rates(65.2e12, float64=1 / 2, float16=2, int32=1 / 2),
    memory_bandwidth=4.3e12,
    l2_bandwidth=9.1e12,
    launch_seconds=0.55e-6,
)

# Arch -> limits.  Sources: the CUDA programming guide's table of compute capabilities; for the rate
# of float32 and of memory, the vendor's data sheets (sm_90: measured on an H200); for other types,
# the guide's table of arithmetic throughput (float16: two at once, in a half2).
_CUDA_ARCHS = {
    "sm_61": replace(
        _SM90, shared_bytes_per_block=49152, shared_bytes_per_core=98304, cores=28,
        l2_bytes=2816 << 10, rates=_rates(11.3e12, float64=1 / 32, float16=1 / 64, int32=1 / 4),
        memory_bandwidth=484e9, l2_bandwidth=1.2e12,
        launch_seconds=2e-6,
    ),
    "sm_70": replace(
        _SM90, shared_bytes_per_block=98304, shared_bytes_per_core=98304, cores=80,
        l2_bytes=6 << 20, rates=_rates(15.7e12, float64=1 / 2, float16=2, int32=1),
        memory_bandwidth=900e9, l2_bandwidth=2.5e12,
    ),
    "sm_75": replace(
        _SM90, shared_bytes_per_block=65536, shared_bytes_per_core=65536, cores=40,
        max_threads_per_core=1024, max_blocks_per_core=16, l2_bytes=4 << 20,
        rates=_rates(8.1e12, float64=1 / 32, float16=2, int32=1),
        memory_bandwidth=320e9, l2_bandwidth=1.3e12,
    ),
    "sm_80": replace(
        _SM90, shared_bytes_per_block=166912, shared_bytes_per_core=167936, cores=108,
        l2_bytes=40 << 20, rates=_rates(19.5e12, float64=1 / 2, float16=4, int32=1),
        memory_bandwidth=1555e9, l2_bandwidth=4.5e12,
    ),
    "sm_86": replace(
        _SM90, shared_bytes_per_block=101376, shared_bytes_per_core=102400, cores=46,
        max_threads_per_core=1536, max_blocks_per_core=16, l2_bytes=4 << 20,
        rates=_rates(20.3e12, float64=1 / 64, float16=1, int32=1 / 2),
        memory_bandwidth=448e9, l2_bandwidth=2e12,
    ),
    "sm_89": replace(
        _SM90, shared_bytes_per_block=101376, shared_bytes_per_core=102400, cores=128,
        max_threads_per_core=1536, max_blocks_per_core=24, l2_bytes=72 << 20,
        rates=_rates(82e12, float64=1 / 64, float16=1, int32=1 / 2),
        memory_bandwidth=1008e9, l2_bandwidth=5e12,
    ),
    "sm_90": _SM90,
}  # fmt: skip

# The portable floor of OpenCL GPUs: what NVIDIA's and Mali-class drivers both grant.
_OPENCL = Limits(
    max_threads_per_block=256,
    max_block=(256, 256, 64),
    max_grid=(2**31 - 1, 65535, 65535),
    shared_bytes_per_block=32768,
    shared_bytes_per_core=32768,
    registers_per_block=65536,
    registers_per_thread=128,
    warp_size=32,
    max_threads_per_core=1024,
    max_blocks_per_core=16,
    cores=2,
    rates=_rates(100e9, float64=1 / 16, float16=1, int32=1),
    memory_bandwidth=20e9,
    l2_bandwidth=100e9,
    launch_seconds=5e-6,
)

KINDS = ("llvm", "cuda", "opencl")
_OTHER_OPTIONS = ("arch", "mcpu", "mattr", "mtriple", "num-cores", "device", "libs", "model")
_LIMIT_NAMES = {f.name for f in fields(Limits) if f.type == "int"}  # annotations are text


def _cpu_limits(cores: int, vector_bytes: int) -> Limits:
    per_byte = 3.5e9 * cores * vector_bytes * 2 * 2  # two FMA pipes at a typical clock
    rates = tuple((t, per_byte / t.bytes) for t in (FLOAT32, FLOAT64, INT32, INT64))
    return Limits(
        cores=cores, vector_bytes=vector_bytes, vector_registers=32 if vector_bytes >= 64 else 16,
        rates=rates, memory_bandwidth=20e9, l2_bandwidth=100e9 * cores,
        launch_seconds=1e-6,
    )  # fmt: skip


def _host_vector_bytes() -> int:
    try:
        with open("/proc/cpuinfo", encoding="ascii", errors="replace") as f:
            text = f.read()
    except OSError:
        return 16
    if "avx512f" in text:
        return 64
    return 32 if "avx2" in text else 16


@dataclass(frozen=True)
class Target:
    """`Target("cuda -arch=sm_90")`: kind ("llvm", "cuda", "opencl"), its options, its limits.

    Options: ``-arch=sm_XX`` (cuda), ``-mcpu=NAME -mattr=+a,+b -mtriple=T`` (llvm),
    ``-num-cores=N``, and any integer field of `Limits` with dashes, for example
    ``-max-threads-per-block=512``.  TVM's `host` changes nothing: the host is this process.
    """

    kind: str
    options: tuple[tuple[str, str], ...]
    limits: Limits

    def __new__(cls, text: str | Target, host: str | Target | None = None) -> Target:
        return text if isinstance(text, Target) else super().__new__(cls)

    def __init__(self, text: str | Target, host: str | Target | None = None) -> None:
        if text is self:
            return
        assert isinstance(text, str)
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise TargetError(f"Target({text!r})", f"{error}", "Close the quotation.") from None
        if not words or words[0] not in KINDS:
            raise TargetError(
                f"Target({text!r})", f"unknown kind {words[0] if words else ''!r}",
                f"Use one of {', '.join(KINDS)}, for example Target('cuda -arch=sm_90').",
            )  # fmt: skip
        options = {}
        for word in words[1:]:
            name, eq, value = word.lstrip("-").partition("=")
            if not word.startswith("-") or not eq:
                raise TargetError(
                    f"Target({text!r})", f"cannot read {word!r}", "Write options as -name=value."
                )
            options[name] = value
        object.__setattr__(self, "kind", words[0])
        object.__setattr__(self, "options", tuple(sorted(options.items())))
        object.__setattr__(self, "limits", self._limits(text, options))

    def _limits(self, text: str, options: dict[str, str]) -> Limits:
        if self.kind == "cuda":
            arch = options.get("arch", "sm_90")
            known = max(
                (a for a in _CUDA_ARCHS if _number(a) <= _number(arch)), key=_number, default=""
            )
            if not known:
                raise TargetError(
                    f"Target({text!r})", f"arch {arch!r} is not supported",
                    f"Use one of {', '.join(_CUDA_ARCHS)}.",
                )  # fmt: skip
            limits = _CUDA_ARCHS[known]
        elif self.kind == "opencl":
            limits = _OPENCL
        else:
            cores = _positive(text, options, "num-cores") or len(os.sched_getaffinity(0))
            vector_bytes = _positive(text, options, "vector-bytes") or _host_vector_bytes()
            limits = _cpu_limits(cores, vector_bytes)
        changes: dict[str, int] = {}
        for name in options:
            if name.replace("-", "_") in _LIMIT_NAMES:
                changes[name.replace("-", "_")] = _positive(text, options, name)
            elif name not in _OTHER_OPTIONS:
                known = " ".join(f"-{option}" for option in _OTHER_OPTIONS)
                raise TargetError(
                    f"Target({text!r})", f"unknown option -{name}",
                    f"Known: {known} and the integers of Limits, such as -max-threads-per-block.",
                )  # fmt: skip
        return replace(limits, **changes)  # type: ignore[arg-type]

    def option(self, name: str, default: str = "") -> str:
        return dict(self.options).get(name, default)

    @property
    def is_gpu(self) -> bool:
        return self.kind != "llvm"

    @property
    def arch(self) -> str:
        """The cuda architecture, `sm_90` where none was named."""
        return self.option("arch", "sm_90")

    def with_limits(self, **limits: int | float | tuple[int, ...]) -> Target:
        """The same target with some limits replaced, for example by what a real device reports."""
        new = object.__new__(Target)
        for name, value in (("kind", self.kind), ("options", self.options)):
            object.__setattr__(new, name, value)
        object.__setattr__(new, "limits", replace(self.limits, **limits))  # type: ignore[arg-type]
        return new

    def __str__(self) -> str:
        return " ".join([self.kind, *(f"-{k}={v}" for k, v in self.options)])

    def __repr__(self) -> str:
        return f"Target({str(self)!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _restore, (str(self), self.limits)

    def __enter__(self) -> Target:
        context.push("target", self)
        return self

    def __exit__(self, *_: object) -> None:
        context.pop("target")

    @staticmethod
    def current() -> Target | None:
        """The target of the innermost `with target:`, or None."""
        return context.current("target")  # type: ignore[no-any-return]


def _positive(text: str, options: dict[str, str], name: str) -> int:
    """The option as a whole number from 1; 0 where it was not given."""
    value = options.get(name)
    if value is None:
        return 0
    if not (value.isascii() and value.isdigit() and int(value) > 0):
        raise TargetError(
            f"Target({text!r})", f"-{name} must be a whole number from 1, not {value!r}",
            f"For example -{name}=16.",
        )  # fmt: skip
    return int(value)


def _number(arch: str) -> int:
    digits = "".join(c for c in arch if c.isdigit())
    return int(digits) if digits else 0


def _restore(text: str, limits: Limits) -> Target:
    target = Target(text)
    return target.with_limits(**{f.name: getattr(limits, f.name) for f in fields(Limits)})


def create(text: str | Target) -> Target:
    """The spelling TVM users know: `target.create("cuda")`."""
    return Target(text)


def cuda(arch: str = "") -> Target:
    return Target(f"cuda -arch={arch}" if arch else "cuda")
