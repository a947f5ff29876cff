"""The kind `cuda`: NVIDIA's GPUs, by CUDA C, NVRTC and the driver API.  Read next: `kind.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from tilewright.base.dtype import FLOAT32, INT32
from tilewright.base.errors import TargetError
from tilewright.targets.kind import DeviceKind, LimitValue, Options
from tilewright.targets.limits import AtomRate, Limits, rates

if TYPE_CHECKING:
    from tilewright.targets.target import Target

ARCH = "sm_90"  # where a target names none and no device is there to ask


def _mma(float32: float, halves: float, tf32: float, latency: float) -> tuple[AtomRate, ...]:
    """The instructions mma.sync of sm_80 and later; halves, tf32: multiples of float32's rate.

    Integers go twice as fast as halves.  3xtf32 is three instructions, one after the other."""
    shares = {
        "m16n8k16.float16": halves, "m16n8k16.bfloat16": halves, "m16n8k8.tf32": tf32,
        "m16n8k8.3xtf32": tf32 / 3, "m16n8k32.int8": 2 * halves, "m16n8k32.uint8": 2 * halves,
        "m16n8k32.int8.uint8": 2 * halves, "m16n8k32.uint8.int8": 2 * halves,
    }  # fmt: skip
    waits = {name: latency * (3 if name.endswith(".3xtf32") else 1) for name in shares}
    return tuple(AtomRate(name, float32 * shares[name], waits[name]) for name in shares)


def _wgmma(float32: float, halves: float, tf32: float, latency: float) -> tuple[AtomRate, ...]:
    """The instructions wgmma, which sm_90 alone has."""
    shares = {
        "m64nNk16.float16": halves, "m64nNk16.bfloat16": halves, "m64nNk8.tf32": tf32,
        "m64nNk8.3xtf32": tf32 / 3,
    }  # fmt: skip
    return tuple(AtomRate(name, float32 * share, latency) for name, share in shares.items())


_BY_GROUP = 90  # the architecture that has them
_DOTS, _DOTS_OF_INTEGERS = 61, 70  # the first with dp4a; where units of integers run it
_DOT_LATENCY = 5
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
    rates=rates(65.2e12, float64=1 / 2, float16=2, int32=1 / 2),
    memory_bandwidth=4.3e12,
    l2_bandwidth=9.1e12,
    launch_seconds=0.55e-6,
)

# Arch -> limits.  Sources: the CUDA programming guide's table of compute capabilities; for the rate
# of float32 and of memory, the vendor's data sheets (sm_90: measured on an H200).  Shares of other
# types follow the guide's table of arithmetic throughput (float16: in a half2); those of sm_61, 70
# and 75 were compared with its text, the later ones were written down from memory.  mma.sync, with
# sums in float32: sm_90 measured (1.68 cycles of a core each, 60% of what other instructions reach
# and the data sheet has), else the data sheets' dense rates (of sm_86 and 89 those of GeForce).
_ARCHS = {
    "sm_53": replace(
        _SM90, shared_bytes_per_block=49152, shared_bytes_per_core=65536, registers_per_block=32768,
        cores=1, l2_bytes=256 << 10, rates=rates(235e9, float64=1 / 32, float16=2, int32=1 / 4),
        memory_bandwidth=25.6e9, l2_bandwidth=60e9, launch_seconds=8e-6,
    ),
    "sm_61": replace(
        _SM90, shared_bytes_per_block=49152, shared_bytes_per_core=98304, cores=28,
        l2_bytes=2816 << 10,
        rates=rates(11.3e12, float64=1 / 32, float16=1 / 64, int32=1 / 4),
        memory_bandwidth=484e9, l2_bandwidth=1.2e12,
        launch_seconds=2e-6,
    ),
    "sm_70": replace(
        _SM90, shared_bytes_per_block=98304, shared_bytes_per_core=98304, cores=80,
        l2_bytes=6 << 20, rates=rates(15.7e12, float64=1 / 2, float16=2, int32=1),
        memory_bandwidth=900e9, l2_bandwidth=2.5e12,
    ),
    "sm_75": replace(
        _SM90, shared_bytes_per_block=65536, shared_bytes_per_core=65536, cores=40,
        max_threads_per_core=1024, max_blocks_per_core=16, l2_bytes=4 << 20,
        rates=rates(8.1e12, float64=1 / 32, float16=2, int32=1),
        memory_bandwidth=320e9, l2_bandwidth=1.3e12,
    ),
    "sm_80": replace(
        _SM90, shared_bytes_per_block=166912, shared_bytes_per_core=167936, cores=108,
        l2_bytes=40 << 20, rates=rates(19.5e12, float64=1 / 2, float16=4, int32=1),
        atoms=_mma(19.5e12, 16, 8, 33),
        memory_bandwidth=1555e9, l2_bandwidth=4.5e12,
    ),
    "sm_86": replace(
        _SM90, shared_bytes_per_block=101376, shared_bytes_per_core=102400, cores=46,
        max_threads_per_core=1536, max_blocks_per_core=16, l2_bytes=4 << 20,
        rates=rates(20.3e12, float64=1 / 64, float16=1, int32=1 / 2),
        atoms=_mma(20.3e12, 2, 1, 33),
        memory_bandwidth=448e9, l2_bandwidth=2e12,
    ),
    "sm_89": replace(
        _SM90, shared_bytes_per_block=101376, shared_bytes_per_core=102400, cores=128,
        max_threads_per_core=1536, max_blocks_per_core=24, l2_bytes=72 << 20,
        rates=rates(82e12, float64=1 / 64, float16=1, int32=1 / 2), atoms=_mma(82e12, 2, 1, 33),
        memory_bandwidth=1008e9, l2_bandwidth=5e12,
    ),
    "sm_90": replace(
        _SM90,
        atoms=_mma(65.2e12, 16 / 1.68, 8 / 1.68, 27.5)
        + _wgmma(65.2e12, 16 / 1.2, 8 / 1.12, 16),
    ),
}  # fmt: skip

_TWICE = """
extern "C" __global__ void __launch_bounds__(64)
twice(const float* __restrict__ a, float* __restrict__ b) {
  int i = blockIdx.x * 64 + threadIdx.x;
  b[i] = a[i] + a[i];
}"""


def limits(options: Options, device: Mapping[str, LimitValue]) -> Limits:
    """Those of the architecture, or of the newest known one before it, where no device tells."""
    arch = options.get("arch", ARCH)
    older = [known for known in _ARCHS if _number(known) <= _number(arch)]
    if not older:
        text = f"cuda -arch={arch}"
        raise TargetError(
            f"Target({text!r})", f"arch {arch!r} is not supported",
            f"Use one of {', '.join(_ARCHS)}.",
        )  # fmt: skip
    found = _ARCHS[max(older, key=_number)]
    if _number(arch) > _BY_GROUP:
        found = replace(found, atoms=tuple(rate for rate in found.atoms if "nN" not in rate.name))
    return found.reported(device)


def atoms(target: Target) -> tuple[AtomRate, ...]:
    """`dp4a`, of which sm_61 begins as many as multiply-adds of float32, later ones as many as of
    int32."""
    number, limits = _number(target.arch), target.limits
    if number < _DOTS:
        return ()
    rate = 4 * limits.rate(FLOAT32 if number < _DOTS_OF_INTEGERS else INT32)
    kinds = ("int8", "uint8", "int8.uint8", "uint8.int8")
    return tuple(AtomRate(f"m1n1k4.{kind}", rate, _DOT_LATENCY) for kind in kinds)


def has(target: Target, arch: str) -> bool:
    return _number(target.arch) >= _number(arch)


def _number(arch: str) -> int:
    digits = "".join(c for c in arch if c.isdigit())
    return int(digits) if digits else 0


KIND = DeviceKind(
    name="cuda",
    limits=limits,
    printer="tilewright.codegen.cuda:generate",
    compiler="tilewright.driver.nvrtc",
    driver="tilewright.runtime.drivers.cuda:open_device",
    atoms=atoms,
    has=has,
    linker="tilewright.driver.c_interface:cuda_library",
    sanity=_TWICE,
    options=("arch",),
    default_arch=ARCH,
    dlpack=2,
    has_threads=True,
    copies_alone=lambda arch: _number(arch) >= 80,
    waits=lambda arch: _number(arch) >= 90,
    copies_boxes=lambda arch: _number(arch) >= 90,
    counts_blocks=True,
    alignment=256,  # what an allocation has
    vectors_are_aligned=True,
    bounded=("build",),
    precisions=("3xtf32", "tf32"),
)
