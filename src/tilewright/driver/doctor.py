"""`diagnose`: which devices and compilers work on this machine, why not, and what to do about it.

In: nothing.  Out: a list of `Finding`, which `tilewright doctor` prints.  Each compiler is tried on
a small kernel and each device runs it.  Read next: `compilers.py`, `runtime/device.py`.
"""

from __future__ import annotations

import os
from dataclasses import dataclass

import numpy as np

from tilewright.base import environment
from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import TilewrightError
from tilewright.driver.cache import Cache, default_cache
from tilewright.driver.compilers import compile_source, compiler
from tilewright.runtime.device import Device, device
from tilewright.runtime.trial import TrialResult, trial
from tilewright.targets.kind import DeviceKind, kinds
from tilewright.targets.target import Target

_REPORT = "Update the device's driver; if that does not help, please report it with this output."
_SIZE = 256


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
    for kind in kinds():
        if kind.sanity:
            compiled, artifact = _compiler(kind)
            findings += [compiled, *_devices(kind.name, artifact)]
    return findings


def _compiler(kind: DeviceKind) -> tuple[Finding, Artifact | None]:
    what, target = f"compile for {kind.name}", Target(kind.name)
    try:
        artifact = compile_source(small_source(kind), target, Cache(None))
    except TilewrightError as error:
        return Finding(what, False, error.reason, error.way_out), None
    about = " ".join(
        str(artifact.meta[name]) for name in ("compiler", "cpu") if name in artifact.meta
    )
    if not artifact.binary:
        return Finding(what, False, "no device to compile on", "See the device below."), artifact
    about = ", ".join(part for part in (about, compiler(target).about()) if part)
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
    if artifact is None:
        return Finding(what, False, about + ", not tried", "Install its compiler (see above).")
    if dev.arch:  # compile for this very device
        artifact = compile_source(artifact.source, dev.target, Cache(None))
    result = run_small(artifact, dev)
    if result.error:
        return Finding(what, False, f"{about}; a small kernel failed: {result.message}", _REPORT)
    return Finding(what, True, f"{about}; a small kernel is right, {result.costs[0] * 1e6:.1f} us")


def _cache() -> Finding:
    what, directory = "kernel cache", default_cache().directory
    if directory is None:
        return Finding(what, True, f"off (by {environment.CACHE}, or without a home directory)")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        writable = os.access(directory, os.W_OK)
    except OSError:
        writable = False
    way_out = f"Kernels are compiled anew each time: name a folder of yours in {environment.CACHE}."
    return Finding(what, writable, str(directory) + ("" if writable else ", not writable"), way_out)


def run_small(artifact: Artifact, dev: Device) -> TrialResult:
    """Run what was compiled of `small_source`."""
    x = np.arange(_SIZE, dtype=np.float32)
    return trial(artifact, dev, [x], [x + x])


def small_source(kind: DeviceKind) -> Source:
    """The kernel `sanity` of a kind that has one."""
    roles = (("a", "input"), ("b", "output"))
    specs = tuple(BufferSpec(name, FLOAT32, (_SIZE,), role) for name, role in roles)
    grid, block = (1, 1, 1), (1, 1, 1)
    if kind.has_threads:
        grid, block = (_SIZE // 64, 1, 1), (64, 1, 1)
    kernel = KernelInfo("twice", (0, 1), grid, block)
    return Source(kind.name, kind.sanity, "twice", specs, (kernel,))
