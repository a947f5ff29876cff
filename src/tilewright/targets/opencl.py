"""The kind `opencl`: GPUs (and CPUs) of all makers, by OpenCL C.  Read next: `kind.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tilewright.targets.kind import DeviceKind, LimitValue, Options
from tilewright.targets.limits import Limits, rates

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
    rates=rates(100e9, float64=1 / 16, float16=1, int32=1),
    memory_bandwidth=20e9,
    l2_bandwidth=100e9,
    launch_seconds=5e-6,
)

# The least of Midgard and Bifrost.  Threads run one by one, each on vectors of 16 bytes; local
# memory is memory like any other, so staging in it gains nothing (`Target.is_mali`).
_MALI = replace(
    _OPENCL, warp_size=1, registers_per_thread=64, registers_per_block=16384,
    max_threads_per_core=256, max_blocks_per_core=4, cores=4, l1_bytes=16 << 10, l2_bytes=256 << 10,
    rates=rates(100e9, float64=1 / 8, float16=2, int32=1), memory_bandwidth=10e9,
    l2_bandwidth=40e9, launch_seconds=50e-6,
)  # fmt: skip

_TWICE = """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void twice(__global const float* restrict a, __global float* restrict b) {
  int i = get_global_id(0);
  b[i] = a[i] + a[i];
}"""


def limits(options: Options, device: Mapping[str, LimitValue]) -> Limits:
    """The portable floor, or what a device reports instead.

    `-device=mali` is a promise that every Mali can run the code, whatever device is asked: of
    another one counts what it has less of.
    """
    if options.get("device") != "mali":
        return _OPENCL.reported(device)
    return _MALI.reported({name: _less(name, value) for name, value in device.items()})


def _less(name: str, value: LimitValue) -> Any:
    own: Any = getattr(_MALI, name)
    return tuple(map(min, own, value)) if isinstance(value, tuple) else min(own, value)


KIND = DeviceKind(
    name="opencl",
    limits=limits,
    printer="tilewright.codegen.opencl:generate",
    compiler="tilewright.driver.opencl",
    driver="tilewright.runtime.drivers.opencl:open_device",
    sanity=_TWICE,
    aliases=("cl",),
    options=("device",),
    has_threads=True,
    alignment=512,  # of the devices in use, none asks for more
    vectors_are_aligned=True,
    bounded=(),
)
