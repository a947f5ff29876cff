"""Networks with narrow weights: asking for them, and what they cost.

In: a module and its weights, "int4".  Out: the module that asks for it, which every build and
search of it then packs; how far its outputs are from those with float weights.
Read next: `graph/passes/narrow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.graph.evaluate import Value, evaluate
from tilewright.graph.expr import Array, Function, IRModule, post_order
from tilewright.graph.narrow import NarrowWeights
from tilewright.graph.op.work import work
from tilewright.graph.passes import PASSES, fuse, narrow_weights, optimize
from tilewright.graph.passes.narrow import ASKED, narrowed
from tilewright.graph.samples import sample_inputs
from tilewright.graph.traversal import each_function
from tilewright.runtime.network.report import Accuracy

SAMPLES = 2
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


def packed_outputs(
    mod: IRModule, params: Mapping[str, Any], inputs: Mapping[str, Array]
) -> tuple[Array, ...]:
    """Compute with numpy, in float32, what `mod` computes with the weights that it asks for."""
    found = evaluate(narrowed(_before(mod, params))[0], inputs, "float32")
    return found if isinstance(found, tuple) else (found,)


def _before(mod: IRModule, params: Mapping[str, Any]) -> Function:
    """The network as it is where its weights are packed."""
    passes = [p for p in PASSES if p not in (fuse, narrow_weights)]
    return optimize(mod, params, passes)["main"]


def accuracy(mod: IRModule, params: Mapping[str, Any]) -> Accuracy | None:
    """Measure what the weights that `mod` asks for cost; None where it asks for none."""
    weights = mod["main"].attrs.get(ASKED)
    if not weights:
        return None
    plain = _before(mod, params)
    narrow, layers = narrowed(plain)
    worst = max(layers, key=lambda packing: packing.error, default=None)
    off = None
    if layers and sum(map(work, post_order(plain.body))) <= MOST_WORK:
        samples = [sample_inputs(mod, params, seed) for seed in range(SAMPLES)]
        off = max(_deviation(plain, narrow, given) for given in samples)
    name = "" if worst is None else ", ".join(worst.layers) or "x".join(map(str, worst.shape))
    return Accuracy(str(weights), len(layers), off, 0.0 if worst is None else worst.error, name)


def _deviation(plain: Function, narrow: Function, given: Mapping[str, Array]) -> float:
    exact, found = (_floats(evaluate(f, given, "float32")) for f in (plain, narrow))
    sizes = [(np.linalg.norm(f - e), np.linalg.norm(e)) for f, e in zip(found, exact, strict=True)]
    return max((float(off / size) for off, size in sizes if size), default=0.0)


def _floats(value: Value) -> list[Array]:
    if isinstance(value, tuple):
        return [array for part in value for array in _floats(part)]
    array = np.asarray(value)
    return [array.astype(np.float64)] if array.dtype.kind == "f" else []
