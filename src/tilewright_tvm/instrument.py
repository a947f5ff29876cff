"""What watches passes: `with PassContext(instruments=[instrument.PrintAfterAll()]):`.

In: the module and the pass, before and after it.  Out: prints, times.  Any object with these two
methods will do.  Read next: `transform.py`.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tilewright.graph.expr import IRModule
    from tilewright.graph.pass_options import PassInfo


class PassInstrument:
    """Does nothing; a class for one's own."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with what `info` is about to change."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        """Called with what `info` has made."""


def pass_instrument(cls: type) -> type:
    """A class of one's own as an instrument; methods that it leaves out do nothing.

    Beside run_before_pass and run_after_pass: should_run(mod, info), False where a pass is left
    out; enter_pass_ctx() and exit_pass_ctx(), where a `with PassContext(...)` begins and ends.
    """
    return type(cls.__name__, (cls, PassInstrument), {"__doc__": cls.__doc__})


class PrintBeforeAll(PassInstrument):
    """Prints each module that a pass is given."""

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        print(f"Before {info.name}:\n{mod}")


class PrintAfterAll(PassInstrument):
    """Prints each module that a pass has made."""

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        print(f"After {info.name}:\n{mod}")


class PassTimingInstrument(PassInstrument):
    """Seconds of each pass; a `Sequential` has its own line, with all its passes."""

    def __init__(self) -> None:
        self._began: list[float] = []
        self._lines: list[str] = []

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        self._began.append(time.perf_counter())

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        seconds = time.perf_counter() - self._began.pop()
        self._lines.append(f"{'  ' * len(self._began)}{info.name}: {seconds * 1e6:.0f} us")

    def render(self) -> str:
        """One line for each pass, in the order in which they ended."""
        return "\n".join(self._lines)
