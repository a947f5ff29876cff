"""Where threads meet, for `interpreter.py`: blocks without gates, barriers that not all reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from tilewright.ir.interpreter_memory import InterpreterError
from tilewright.ir.stmt import Barrier, Join, Kernel, statements
from tilewright.ir.warps import Wide, run_warp, unit_of


def diverged(kernel: Kernel) -> Callable[[Sequence[Any]], InterpreterError]:
    """The error for threads that stand at different barriers."""
    barriers = [s for s in statements(kernel.body) if isinstance(s, (Barrier, Join))]

    def told(waiting: Sequence[Any]) -> InterpreterError:
        where = (
            f"thread {waiting.index(stop)} "
            + (
                "has ended"
                if stop is None
                else f"waits at barrier {barriers.index(_site(stop)) + 1}"
            )
            for stop in dict.fromkeys(waiting)
        )
        return InterpreterError(
            kernel.name, f"barrier divergence: {', '.join(where)}",
            "Move the barrier out of the condition, or give all threads the same trip counts.",
        )  # fmt: skip

    return told


def _site(stop: Any) -> Any:
    return stop.barrier if isinstance(stop, Wide) else stop


def run_alone(
    kernel: Kernel, count: int, go_on: Callable[[int, Any], Any], met: Callable[[Any], bool | None]
) -> None:
    """Run the threads of a block without gates."""
    unit = unit_of(kernel)
    last: bool | None = None
    while True:
        waiting: list[Any] = []
        for first in range(0, count, unit):
            waiting += run_warp(kernel, first, min(unit, count - first), go_on, last)
        if len(set(waiting)) > 1:
            raise diverged(kernel)(waiting)
        if waiting[0] is None:
            return
        last = met(waiting[0])
