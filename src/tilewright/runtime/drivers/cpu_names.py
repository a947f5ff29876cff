"""Whether LLVM knows the processor and the features that a target names.

In: the options of a target.  Out: nothing, or a TargetError.  LLVM itself goes on with less than
was asked for, and says so on the terminal, many times.  Read next: `cpu_features.py`.
"""

from __future__ import annotations

import difflib
import os
import re
import tempfile
from collections.abc import Callable, Mapping

from tilewright.base.concurrency import lock, once
from tilewright.base.errors import TargetError
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.targets import processors

_UNKNOWN = re.compile(rb"'([^'\n]*)' is not a recognized (processor|feature) for this target.*\n")
_MODE = {"x86_64": "+64bit"}  # without it LLVM ends the process where it does not know the name
_MOST = 1 << 20
_lock = lock()  # of the file descriptor


def check_known(options: Mapping[str, str]) -> None:
    """options: of a target.  Raises TargetError for a name that LLVM does not know."""
    cpu, features = options.get("mcpu", "native"), options.get("mattr", "")
    triple = processors.whole(options.get("mtriple") or llvm_library().get_process_triple())
    if (cpu, features) != ("native", ""):
        _check(triple, "" if cpu == "native" else cpu, features)


@once
def _check(triple: str, cpu: str, features: str) -> None:
    llvm = llvm_library()
    try:
        known = llvm.Target.from_triple(triple)
    except RuntimeError:
        return  # who compiles says so
    arch = processors.architecture(triple)
    asked = ",".join(filter(None, (features, _MODE.get(arch))))
    said = _said_of(lambda: known.create_target_machine(cpu=cpu, features=asked))
    for name, what in _UNKNOWN.findall(said):
        word = name.decode(errors="replace")
        if what == b"feature":
            raise TargetError(
                f"llvm -mattr={features}", f"LLVM knows no feature {word[1:]!r} of {arch}",
                "Leave it out, or name one that it knows.",
            )  # fmt: skip
        near = difflib.get_close_matches(word, processors.names(arch), 1)
        hint = f"Did you mean {near[0]}?  " if near else ""
        raise TargetError(
            f"llvm -mcpu={word}", f"LLVM knows no processor {word!r} of {arch}",
            f"{hint}Leave -mcpu out for {'this one' if not processors.elsewhere(triple) else 'any'}"
            ", or name one that it knows.",
        )  # fmt: skip


def _said_of(call: Callable[[], object]) -> bytes:
    """What LLVM writes to standard error of what it does not know; all else goes there."""
    with _lock, tempfile.TemporaryFile() as kept:
        try:
            before = os.dup(2)
        except OSError:  # it is closed
            call()
            return b""
        os.dup2(kept.fileno(), 2)
        try:
            call()
        finally:
            os.dup2(before, 2)
            kept.seek(0)
            said = kept.read(_MOST)
            os.write(before, _UNKNOWN.sub(b"", said))
            os.close(before)
        return said
