"""`autotvm.tophub.context`: where scripts of TVM load schedules that others have tuned.

In: a target.  Out: a context.  What is known of it ships with the package, and is used wherever
nothing better is.  Read next: `tilewright/knowledge/__init__.py`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import SpaceError, absent
from tilewright.targets.target import Target, TargetLike

__all__ = ["context"]


@door(SpaceError, "autotvm.tophub.context")
def context(
    target: TargetLike | list[TargetLike], extra_files: list[str] | None = None
) -> AbstractContextManager[None]:
    """A context in which nothing changes: knowledge is used without it.

    Raises SpaceError for extra_files, which autotvm.apply_history_best reads.
    """
    for one in target if isinstance(target, list) else [target]:
        Target(one)
    if extra_files:
        raise SpaceError(
            f"autotvm.tophub.context(extra_files={extra_files})", "logs are read elsewhere",
            "Use autotvm.apply_history_best(file).",
        )  # fmt: skip
    return nullcontext()


def __getattr__(name: str) -> Any:
    raise absent("autotvm.tophub", name, {"download_package": "Nothing is downloaded."})
