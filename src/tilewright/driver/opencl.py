"""OpenCL C to a device binary, by the OpenCL device of this machine; without one, to text only.

In: kernels in OpenCL C.  Out: the binary of device 0 (or `-device=N`), or b"": then the device that
loads the artefact compiles the text.  Read next: `compilers.py`, `runtime/drivers/opencl.py`.
"""

from __future__ import annotations

from typing import cast

from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import TilewrightError
from tilewright.runtime import drivers
from tilewright.runtime.drivers.opencl import OpenclDriver
from tilewright.targets import processors
from tilewright.targets.target import Target


def identity(target: Target) -> dict[str, str]:
    """The device and its driver, or "none"."""
    device = _device(target)
    return {"compiler": "OpenCL", "device": device.identity if device else "none"}


def about() -> str:
    return ""


def build(source: Source, target: Target) -> Artifact:
    device = _device(target)
    if device is None:
        return Artifact(source, b"")
    program = device.build(source.text, f"compile {source.entry_name} for {target}")
    return Artifact(source, program.binaries[0])


def _device(target: Target) -> OpenclDriver | None:
    if processors.elsewhere(target.triple):
        return None
    index = target.option("device", "0")
    try:
        found = drivers.driver("opencl", int(index) if index.isdigit() else 0)
    except TilewrightError:
        return None
    return cast(OpenclDriver, found)
