"""What a build may do to a network: which passes run, and who watches them.

In: levels and names.  Out: a value that
builds, task extraction and searches hand down.
Read next: `graph/passes/__init__.py`, which has the passes.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from tilewright.graph.expr import IRModule


@dataclass(frozen=True)
class PassInfo:
    """Names a pass.

    opt_level: from which on a sequence of passes runs it
    required: names of passes that run in front of it
    """

    name: str
    opt_level: int = 0
    required: tuple[str, ...] = ()


class Instrument(Protocol):
    """Watches passes.  It may have `should_run(mod, info)`, too: False leaves the pass out."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with what the pass is about to change."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with what the pass has made."""


@dataclass(frozen=True)
class PassOptions:
    """Says which passes run.

    opt_level: below 2 operators are not fused, below 3 nothing is folded into weights
    required: names of passes that run at any level; disabled: of those that do not run
    layouts: whether convolutions get the layouts that are known to be fastest
    instruments: told before and after each pass
    """

    opt_level: int = 3
    required: tuple[str, ...] = ()
    disabled: tuple[str, ...] = ()
    layouts: bool = True
    instruments: tuple[Instrument, ...] = ()


USUAL = PassOptions()


def watched(
    info: PassInfo,
    change: Callable[[IRModule], IRModule],
    mod: IRModule,
    instruments: Sequence[Instrument],
) -> IRModule:
    """Give `change(mod)`, with the instruments told before and after; `mod` itself where one of
    them says that the pass should not run."""
    if not all(each.should_run(mod, info) for each in instruments if hasattr(each, "should_run")):
        return mod
    for each in instruments:
        each.run_before_pass(mod, info)
    made = change(mod)
    for each in instruments:
        each.run_after_pass(made, info)
    return made
