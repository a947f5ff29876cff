"""Weights of a compiled graph that change after all: it is made again, but not for ever.

In: a compiled graph, which weights are constants of it, and how to make it again.  Out: a function
that looks at them in each call.  Read next: `weights.py`, `compile.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import Any

from tilewright.base.concurrency import lock
from tilewright.models.torch.told import warn
from tilewright.models.torch.weights import Question, unchanged
from tilewright.runtime.network.torch_calls import Run, is_capturing

Again = Callable[[Sequence[Any], frozenset[int]], Run]  # of arguments, and what is no constant now


@dataclass(frozen=True)
class _State:
    """run: for the weights as they are while `same` holds of what `weights` picks"""

    run: Run
    weights: Callable[[Sequence[Any]], tuple[Any, ...]]
    same: Question


class Watched:
    """`run`, made again when a weight is not what it was: another tensor, or written to.

    args:     of the graph, at first
    static:   positions among them of weights
    held:     weights that the graph holds itself, by their positions, behind the arguments
    again:    makes the function anew; positions that it is told are read in each call from then on
    at_first: ask before a run, as it cannot be repeated.  Else after it, so that a GPU computes
              meanwhile, and in the rare case it runs again
    eager:    the graph in PyTorch

    Weights that change once become constants again; those that change a second time are read in
    each call, and after a third time all are: no graph is made more than three times.
    """

    def __init__(
        self, torch: Any, run: Run, args: Sequence[Any], static: Sequence[int],
        held: dict[int, Any], again: Again, at_first: bool, eager: Run,
    ) -> None:  # fmt: skip
        self._torch, self._again, self._at_first, self._eager = torch, again, at_first, eager
        self._static, self._held, self._times = tuple(static), dict(held), 0
        self._read: frozenset[int] = frozenset()
        self._each: dict[int, Question] = {}
        self._turn = lock()
        self._state = self._watching(run, args)

    def __call__(self, args: Sequence[Any]) -> Any:
        state = self._state
        made = None if self._at_first else state.run(args)
        if state.same(state.weights(args)):
            return state.run(args) if self._at_first else made
        if is_capturing(self._torch):
            warn("weights have changed within torch.cuda.graph, which records the graph as PyTorch"
                 " runs it; call it once before")  # fmt: skip
            return self._eager(args)
        with self._turn:
            if self._state is state:
                self._make_again(args)
        return self._state.run(args)

    def _make_again(self, args: Sequence[Any]) -> None:
        self._times += 1
        now = self._places(args)
        if self._times == 1:
            warn("weights have changed, so the graph is compiled again")
        else:
            several = self._times > 2
            self._read |= {k for k, t in now.items() if several or not self._each[k]([t])}
            warn("weights keep changing, so they are read in each call and are no constants of the "
                 "graph any more")  # fmt: skip
        if self._times < 3:
            self._each = {k: unchanged(self._torch, [t]) for k, t in now.items()}
        self._state = self._watching(self._again(args, self._read), args)

    def _places(self, args: Sequence[Any]) -> dict[int, Any]:
        return {**{k: args[k] for k in self._static}, **self._held}

    def _watching(self, run: Run, args: Sequence[Any]) -> _State:
        places = [k for k in self._static if k not in self._read]
        held_on = tuple(t for k, t in self._held.items() if k not in self._read)
        quick = itemgetter(*places) if len(places) > 1 else None

        def weights(given: Sequence[Any]) -> tuple[Any, ...]:
            picked = quick(given) if quick else tuple(given[k] for k in places)
            return picked + held_on if held_on else picked

        watched = weights(args)
        same = unchanged(self._torch, watched) if watched else _always
        return _State(run, weights, same)


def _always(_: Sequence[Any]) -> bool:
    return True


__all__ = ["Watched"]
