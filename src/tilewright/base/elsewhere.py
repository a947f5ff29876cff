"""Imports of TVM's names that are not here say what to use instead.

`from tilewright import micro` and `import tilewright.micro` ask for a module; Python's own words
for one that is missing name nothing else.  In: the `_ELSEWHERE` table of the package that lacks it,
from which `errors.absent` makes the text for attributes.  Out: an ImportError with that text.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType

ROOT = "tilewright"


class _Elsewhere(MetaPathFinder):
    """Asked after all others have found nothing."""

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        owner, _, name = fullname.rpartition(".")
        if owner.partition(".")[0] != ROOT:
            return None
        words = getattr(sys.modules.get(owner), "_ELSEWHERE", {}).get(name)
        if words is None:
            return None
        place = owner.removeprefix(f"{ROOT}.")
        raise ImportError(f"{place}.{name} does not exist here. {words}", name=fullname)


def explain_imports() -> None:
    """From now on; called once, when the package is imported."""
    if not any(isinstance(finder, _Elsewhere) for finder in sys.meta_path):
        sys.meta_path.append(_Elsewhere())
