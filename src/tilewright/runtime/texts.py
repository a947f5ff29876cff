"""The generated text of a kernel, and the instructions that it became.

In: an artefact.  Out: LLVM IR, CUDA C or OpenCL C; of a CPU also assembly.  Read next: `module.py`.
"""

from __future__ import annotations

from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError
from tilewright.targets.kind import resolve
from tilewright.targets.target import Target

_TEXTS = {"llvm": "ll", "cuda": "cu", "opencl": "cl"}


def source_text(artifact: Artifact, fmt: str = "") -> str:
    """fmt: default: that text, "ll" of LLVM, "cu" of CUDA, "cl" of OpenCL; "asm" or "s" gives the
    instructions of a CPU.  Raises DeviceError for another one."""
    source = artifact.source
    target = Target(source.target)
    kind = target.device_kind
    own = _TEXTS.get(kind.name, kind.name)
    if fmt in ("", own):
        return source.text
    if fmt in ("asm", "s") and kind.shares_host:
        text: str = resolve(kind.compiler).assembly(source, target)
        return text
    raise DeviceError(
        f"get_source({fmt!r})", f"there is no such text of a kernel for {kind.name}",
        f"Use {own!r} or 'asm'." if kind.shares_host else f"Use {own!r}.",
    )  # fmt: skip
