"""`diagnose`: which devices and compilers work on this machine, why not, and what to do about it.

In: nothing.  Out: a list of `Finding`, which `tilewright doctor` prints.  Each compiler is tried on
a small kernel and each device runs it.  Read next: `compilers.py`, `runtime/device.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import TilewrightError
from tilewright.driver import nvrtc
from tilewright.driver.cache import Cache, default_cache
from tilewright.driver.compilers import COMPILERS, compile_source
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import cpu as cpu_driver
from tilewright.runtime.trial import trial
from tilewright.targets.target import Target

_REPORT = "Update the device's driver; if that does not help, please report it with this output."
_SIZE = 256
_SMALL = {
    "llvm": """
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
}""",
    "cuda": """
extern "C" __global__ void __launch_bounds__(64)
twice(const float* __restrict__ a, float* __restrict__ b) {
  int i = blockIdx.x * 64 + threadIdx.x;
  b[i] = a[i] + a[i];
}""",
    "opencl": """
__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void twice(__global const float* restrict a, __global float* restrict b) {
  int i = get_global_id(0);
  b[i] = a[i] + a[i];
}""",
}


@dataclass(frozen=True)
class Finding:
    """One line of the report.  way_out: what to do where `works` is false."""

    what: str
    works: bool
    detail: str
    way_out: str = ""

    def __str__(self) -> str:
        head = f"{'ok ' if self.works else 'NO '} {self.what}: {self.detail}"
        return f"{head}\n    {self.way_out}" if self.way_out and not self.works else head


def diagnose() -> list[Finding]:
    """Try every compiler and every kind of device; takes about a second."""
    findings = [_cache()]
    for kind in COMPILERS:
        compiled, artifact = _compiler(kind)
        findings += [compiled, *_devices(kind, artifact)]
    return findings


def _compiler(kind: str) -> tuple[Finding, Artifact | None]:
    what = f"compile for {kind}"
    try:
        artifact = compile_source(_source(kind), Target(kind), Cache(None))
    except TilewrightError as error:
        return Finding(what, False, error.reason, error.way_out), None
    about = " ".join(
        str(artifact.meta[name]) for name in ("compiler", "cpu") if name in artifact.meta
    )
    if kind == "opencl" and not artifact.binary:
        finding = Finding(what, False, "no OpenCL device to compile on", "See the device below.")
        return finding, artifact
    if kind == "cuda":
        archs = nvrtc.supported_archs()
        about += f", {archs[0]} to {archs[-1]}"
    seconds = artifact.meta["compile_seconds"]
    return Finding(what, True, f"{about}, {seconds * 1e3:.0f} ms for a small kernel"), artifact


def _devices(kind: str, artifact: Artifact | None) -> list[Finding]:
    """All devices of a kind, or one finding that says why there is none."""
    findings = []
    for index in range(64):
        dev = device(kind, index)
        exists = dev.exist
        if index and not exists:
            break
        findings.append(_device(dev, artifact))
        if not exists:
            break
    return findings


def _device(dev: Device, artifact: Artifact | None) -> Finding:
    what = f"device {dev}"
    try:
        return _tried(dev, artifact, what)
    except TilewrightError as error:
        return Finding(what, False, error.reason, error.way_out)


def _tried(dev: Device, artifact: Artifact | None, what: str) -> Finding:
    """Raises what keeps the device from being opened, or compiled for."""
    about = f"{dev.name} {dev.arch}".strip() + f", {dev.limits.get('cores', 1)} cores"
    if dev.kind == "cpu":
        about += f", {cpu_driver.default_threads()} threads"
    if artifact is None:
        return Finding(what, False, about + ", not tried", "Install its compiler (see above).")
    if dev.arch:  # compile for this very device
        artifact = compile_source(artifact.source, dev.target, Cache(None))
    x = np.arange(_SIZE, dtype=np.float32)
    result = trial(artifact, dev, [x], [x + x])
    if result.error:
        return Finding(what, False, f"{about}; a small kernel failed: {result.message}", _REPORT)
    return Finding(what, True, f"{about}; a small kernel is right, {result.costs[0] * 1e6:.1f} us")


def _cache() -> Finding:
    what, directory = "kernel cache", default_cache().directory
    if directory is None:
        return Finding(what, True, "off (by TILEWRIGHT_CACHE, or without a home directory)")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except OSError:
        writable = False
    way_out = "Kernels are compiled anew each time: name a folder of yours in TILEWRIGHT_CACHE."
    return Finding(what, writable, str(directory) + ("" if writable else ", not writable"), way_out)


def _source(kind: str) -> Source:
    roles = (("a", "input"), ("b", "output"))
    specs = tuple(BufferSpec(name, FLOAT32, (_SIZE,), role) for name, role in roles)
    grid, block = ((1, 1, 1),) * 2 if kind == "llvm" else ((_SIZE // 64, 1, 1), (64, 1, 1))
    return Source(kind, _SMALL[kind], "twice", specs, (KernelInfo("twice", (0, 1), grid, block),))
