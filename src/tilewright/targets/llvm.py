"""The kind `llvm`: CPUs, by LLVM IR with explicit vectors.  Read next: `kind.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilewright.base.dtype import FLOAT32, FLOAT64, INT32, INT64
from tilewright.targets import processors
from tilewright.targets.kind import DeviceKind, LimitValue, Options
from tilewright.targets.limits import Limits

# Where neither the target nor a device says more: what each 64-bit processor has.
PORTABLE_CORES = 4
PORTABLE_VECTOR_BYTES = 16

_TWICE = """
define void @twice(ptr noalias %a, ptr noalias %b) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
  %from = getelementptr float, ptr %a, i64 %i
  %to = getelementptr float, ptr %b, i64 %i
  %x = load float, ptr %from
  %y = fadd float %x, %x
  store float %y, ptr %to
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, 256
  br i1 %more, label %loop, label %done
done:
  ret void
}"""


def limits(options: Options, device: Mapping[str, LimitValue]) -> Limits:
    """Of the processor that the options name; else of the device; else what each one has."""
    known = processors.named(options)
    assumed = known or processors.Processor(vector_bytes=PORTABLE_VECTOR_BYTES)
    found = Limits(
        cores=PORTABLE_CORES, vector_bytes=assumed.vector_bytes, l1_bytes=assumed.l1_bytes,
        l2_bytes=assumed.l2_bytes, memory_bandwidth=20e9, launch_seconds=1e-6,
    ).reported(device)  # fmt: skip
    vector_bytes = found.vector_bytes if known is None else known.vector_bytes
    vector_bytes = int(options.get("vector-bytes") or vector_bytes)
    cores = int(options.get("num-cores") or found.cores)
    many = assumed.vector_registers if known is not None else found.vector_registers
    per_byte = assumed.flops * cores * vector_bytes
    return replace(
        found, cores=cores, vector_bytes=vector_bytes,
        vector_registers=32 if vector_bytes >= 64 else many,
        rates=tuple((t, per_byte / t.bytes) for t in (FLOAT32, FLOAT64, INT32, INT64)),
        l2_bandwidth=100e9 * cores,
    )  # fmt: skip


KIND = DeviceKind(
    name="llvm",
    limits=limits,
    printer="tilewright.codegen.llvm:generate",
    compiler="tilewright.driver.llvm",
    driver="tilewright.runtime.drivers.cpu:open_device",
    atoms="tilewright.runtime.drivers.cpu_features:atoms",
    has="tilewright.runtime.drivers.cpu_features:has",
    sanity=_TWICE,
    device="cpu",
    options=("mcpu", "mattr", "mtriple", "num-cores"),
    dlpack=1,
    warm_up=("llvmlite.binding",),
    host_limits="tilewright.runtime.drivers.cpu_host:limits",
    host_lacks="tilewright.runtime.drivers.cpu_features:lacks",
    linker="tilewright.driver.c_interface:cpu_library",
    loader="tilewright.runtime.drivers.cpu_shared:open_shared",
    shares_host=True,
    kernels_per_process=24,
)
