"""Targets as users of tvmc write them: with the host behind a comma, with options by kind.

In: text or a target.  Out: a `Target`.  Read next: `targets/target.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import TargetError
from tilewright.targets.target import Target


@door(TargetError)
def target_from_cli(
    target: str, additional_target_options: Mapping[str, Mapping[str, Any]] | None = None
) -> tuple[Target, list[Any]]:
    """`"cuda"`, or `"opencl -device=mali, llvm -mtriple=aarch64-linux-gnu"` with the host.

    The list is empty: compilers of others are not called.  Raises TargetError for what is none.
    """
    parts = [part.strip() for part in re.split(r",\s+|,(?=[a-z]+(?:\s|$|,))", target)]
    made = [Target(part) for part in parts]
    kinds = [str(each.kind) for each in made]
    if len(made) > 2 or len({*kinds}) < len(kinds):
        raise TargetError(
            f"target {target!r}", "these are no device and its host",
            'Write one target, or two: "cuda, llvm -mcpu=skylake".',
        )  # fmt: skip
    more = additional_target_options or {}
    made = [_with(each, more.get(str(each.kind), {})) for each in made]
    unused = [kind for kind in more if kind not in kinds]
    if unused:
        raise TargetError(
            f"additional_target_options for {unused[0]!r}", f"the target is {target!r}",
            f"Give options of {' or '.join(kinds)}.",
        )  # fmt: skip
    return Target(made[0], made[1]) if len(made) == 2 else made[0], []


def chosen_target(
    target: Target | str, target_host: Target | str | None = None,
    additional_target_options: Mapping[str, Mapping[str, Any]] | None = None,
) -> Target:  # fmt: skip
    """The target of `tune` and `compile`.  Raises TargetError."""
    made, _ = target_from_cli(str(target), additional_target_options)
    if isinstance(target, Target) and not additional_target_options:
        made = target  # with limits, which its text does not tell
    return made if target_host is None else Target(made, target_host)


def _with(target: Target, options: Mapping[str, Any]) -> Target:
    return Target({**target.export(), **options}) if options else target
