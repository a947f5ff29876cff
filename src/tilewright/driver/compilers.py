"""`compile_source`: generated text to machine code, by the compiler of its target, through a cache.

In: `Source` and `Target`.  Out: `Artifact` with the binary, what the compiler said of registers and
spills, and how long it took.  LLVM may abort the whole process on text it cannot digest, so tuning
calls this in worker processes.  Read next: `cache.py`, `llvm.py`, `nvrtc.py`, `opencl.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Protocol

from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import CompileError
from tilewright.driver.cache import Cache, default_cache
from tilewright.targets.kind import resolve
from tilewright.targets.target import Target


class Compiler(Protocol):
    """What `llvm.py`, `nvrtc.py` and `opencl.py` provide; `DeviceKind.compiler` names it."""

    def identity(self, target: Target) -> dict[str, str]:
        """Everything besides the text that the binary depends on.  Raises TargetError."""

    def build(self, source: Source, target: Target) -> Artifact:
        """Raises CompileError with the compiler's log, TargetError when it is not installed."""

    def about(self) -> str:
        """Tell what else people should know of it, as `doctor` prints it; ""."""


def compiler(target: Target) -> Compiler:
    """The compiler of a target's kind."""
    found: Compiler = resolve(target.device_kind.compiler)
    return found


def compile_source(source: Source, target: Target | str, cache: Cache | None = None) -> Artifact:
    """Compile `source` for `target`, or take it from the cache.

    `meta` tells "compiler", "compile_seconds" (of the real compilation) and "cached".
    """
    target = Target(target)
    if source.target.partition(" ")[0] != target.kind:
        raise CompileError(
            f"compile_source({source.entry_name})",
            f"the text was generated for {source.target!r}, not for {target.kind!r}",
            "Generate it again for this target.",
        )
    cache = cache or default_cache()
    chosen = compiler(target)
    identity = chosen.identity(target)
    key = cache.key(source, identity)
    found = cache.get(key)
    if found is not None:
        return replace(found, meta={**found.meta, "cached": True})
    began = time.perf_counter()
    made = chosen.build(source, target)
    seconds = time.perf_counter() - began
    meta = {**made.meta, **identity, "compile_seconds": seconds, "cached": False}
    made = replace(made, meta=meta)
    cache.put(key, made)
    return made
