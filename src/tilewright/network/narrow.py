"""Networks with narrow weights: asking for them, and what they cost.

In: a module and its weights, "int4".  Out: the module that asks for it, which every build and
search of it then packs; how far its outputs are from those with float weights.
Read next: `graph/passes/narrow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np

from tilewright.graph.evaluate import Value, evaluate
from tilewright.graph.expr import Array, Function, IRModule, post_order
from tilewright.graph.narrow import NarrowWeights
from tilewright.graph.op.work import work
from tilewright.graph.pass_options import Instrument, PassInfo
from tilewright.graph.passes import PASSES, fuse, narrow_weights, optimize
from tilewright.graph.passes.narrow import ASKED, packings
from tilewright.graph.samples import sample_inputs
from tilewright.graph.traversal import each_function
from tilewright.runtime.network.report import Accuracy

SAMPLES = 2
LARGE = 1 << 28  # weights; of more, one sample is enough to wait for
MOST_WORK = 1 << 38  # operations of numpy, for one sample


def asking(mod: IRModule, weights: str) -> IRModule:
    """Give the module whose functions ask for these weights; "": for those that they have.

    Raises ModelError for weights that there are not.
    """
    told = str(NarrowWeights.parsed(weights)) if weights else ""

    def ask(function: Function) -> Function:
        attrs = {k: v for k, v in function.attrs.items() if k != ASKED}
        return Function(function.params, function.body, attrs | ({ASKED: told} if told else {}))

    return each_function(mod, ask)


class Watch:
    """An instrument of passes: keeps a network as it is before its weights are packed and behind
    that, of several the one with the least work."""

    def __init__(self) -> None:
        self._before: Function | None = None
        self._found: tuple[int, Function, Function] | None = None

    def run_before_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name == narrow_weights.__name__:
            self._before = mod["main"]

    def run_after_pass(self, mod: IRModule, info: PassInfo) -> None:
        if info.name != narrow_weights.__name__ or self._before is None:
            return
        total = sum(map(work, post_order(self._before.body)))
        if self._found is None or total < self._found[0]:
            self._found = total, self._before, mod["main"]

    def accuracy(self) -> Accuracy | None:
        """Measure what the weights of the network cost; None where it asks for none."""
        if self._found is None or not (weights := self._found[1].attrs.get(ASKED)):
            return None
        total, plain, narrow = self._found
        layers = packings(narrow.body)
        worst = max(layers, key=lambda packing: packing.error, default=None)
        off = None
        if layers and total <= MOST_WORK:
            large = sum(prod(packing.shape) for packing in layers) > LARGE
            samples = range(1 if large else SAMPLES)
            off = float(np.max([_deviation(plain, narrow, seed) for seed in samples]))
        name = "" if worst is None else ", ".join(worst.layers) or "x".join(map(str, worst.shape))
        error = 0.0 if worst is None else worst.error
        return Accuracy(str(weights), len(layers), off, error, name)


def accuracy(mod: IRModule, params: Mapping[str, Any]) -> Accuracy | None:
    """Measure what the weights that `mod` asks for cost; None where it asks for none."""
    watch = Watch()
    if mod["main"].attrs.get(ASKED):
        _packed(mod, params, (watch,))
    return watch.accuracy()


def packed_outputs(
    mod: IRModule, params: Mapping[str, Any], inputs: Mapping[str, Array]
) -> tuple[Array, ...]:
    """Compute with numpy, in float32, what `mod` computes with the weights that it asks for."""
    found = evaluate(_packed(mod, params), inputs, "float32")
    return found if isinstance(found, tuple) else (found,)


def _packed(
    mod: IRModule, params: Mapping[str, Any], instruments: Sequence[Instrument] = ()
) -> IRModule:
    passes = [p for p in PASSES if p is not fuse]
    return optimize(mod, params, passes, instruments=instruments)


def _deviation(plain: Function, narrow: Function, seed: int) -> float:
    given = sample_inputs(IRModule.from_expr(plain), seed=seed)
    exact, found = (_floats(evaluate(f, given, "float32")) for f in (plain, narrow))
    with np.errstate(invalid="ignore"):  # infinite ones
        sizes = [
            (float(np.linalg.norm(f - e)), float(np.linalg.norm(e)))
            for f, e in zip(found, exact, strict=True)
        ]
    shares = [off / size if size else np.inf for off, size in sizes if off != 0]
    return float(np.max(shares, initial=0.0))  # NaN where one is


def _floats(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [array for part in value for array in _floats(part)]
    array = np.asarray(value)
    return [array.astype(np.float64)] if array.dtype.kind == "f" else []
