"""Networks with narrow weights: asking for them, and what they cost.

In: a module and its weights, "int4".  Out: the module that asks for it, which every build and
search of it then packs; how far its outputs are from those with float weights.
Read next: `graph/passes/narrow.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from math import prod
from typing import Any
from weakref import WeakKeyDictionary, finalize

import numpy as np

from tilewright.graph.evaluate import Value, evaluate
from tilewright.graph.expr import Array, Attrs, Call, Expr, Function, IRModule, post_order
from tilewright.graph.floats import product, widened
from tilewright.graph.narrow import NarrowWeights
from tilewright.graph.op import Op
from tilewright.graph.op.work import work
from tilewright.graph.pass_options import USUAL
from tilewright.graph.passes.narrow import ASKED, Packing, packings
from tilewright.graph.samples import sample_inputs
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, with_body
from tilewright.network.extract import Groupings, ungrouped
from tilewright.runtime.network.report import Accuracy
from tilewright.targets.target import Target

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


class Cost:
    """What the weights of a network cost: made before they are packed, measured when it is asked.
    Of a network for several shapes, of the one with the least work.

    known: what is worked out of the network, for builds, too
    Until it is measured, or nobody has it any more, the floats of that one stay beside the bytes.
    """

    def __init__(
        self, mods: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target | None,
        known: Groupings,
    ) -> None:  # fmt: skip
        every = [known.ungrouped(mod, params, USUAL, target)[0]["main"] for mod in mods]
        self._work, at = min((sum(map(work, post_order(f.body))), k) for k, f in enumerate(every))
        self._known = self._main = every[at]
        kept: list[Packing] | None = []
        if self._known not in _MEASURED and (kept := _kept(self._main)) is None:
            self._main = ungrouped(mods[at], params, USUAL, target)[0]["main"]  # with floats anew
            kept = _kept(self._main)
        self._release = finalize(self, _release, kept or [])

    def measure(self) -> Accuracy:
        """Measure it, if nobody did."""
        if self._known not in _MEASURED:
            _MEASURED[self._known] = self._measured(str(self._known.attrs[ASKED]))
        self._release()
        return _MEASURED[self._known]

    def _measured(self, weights: str) -> Accuracy:
        layers = list(packings(self._main.body).values())
        off = None
        if layers and self._work <= MOST_WORK:
            large = sum(prod(layer.shape) for layer in layers) > LARGE
            plain = with_floats(self._main)
            samples = range(1 if large else SAMPLES)
            off = float(np.max([_deviation(plain, self._main, seed) for seed in samples]))
        worst = max(layers, key=lambda layer: layer.packed.error, default=None)
        name = "" if worst is None else ", ".join(worst.layers) or "x".join(map(str, worst.shape))
        error = 0.0 if worst is None else worst.packed.error
        return Accuracy(weights, len(layers), off, error, name)


def _kept(main: Function) -> list[Packing] | None:
    """The layers of a function, whose floats are kept now; None where a build dropped some."""
    layers = list(packings(main.body).values())
    kept = [layer for layer in layers if layer.keep_floats()]
    if len(kept) == len(layers):
        return kept
    _release(kept)
    return None


def _release(layers: Sequence[Packing]) -> None:
    for layer in layers:
        layer.release_floats()


# What was measured, as long as somebody has the function.
_MEASURED: WeakKeyDictionary[Function, Accuracy] = WeakKeyDictionary()


def cost_of(
    mods: Sequence[IRModule], params: Mapping[str, Any] | None, target: Target | None,
    known: Groupings,
) -> Cost | None:  # fmt: skip
    """Give the `Cost` of a network; None where it asks for no other weights."""
    asked = [mod for mod in mods if mod["main"].attrs.get(ASKED)]
    return Cost(asked, params, target, known) if asked else None


def accuracy(mod: IRModule, params: Mapping[str, Any]) -> Accuracy | None:
    """Measure what the weights that `mod` asks for cost; None where it asks for none."""
    cost = cost_of([mod], params, None, Groupings())
    return None if cost is None else cost.measure()


def begin_packing(functions: Sequence[Function]) -> None:
    """Have the weights packed that functions read, while the caller does other things."""
    if layers := [layer for f in functions for layer in packings(f.body).values()]:
        beside = ThreadPoolExecutor(1, thread_name_prefix="packing")
        beside.submit(lambda: [layer.packed for layer in layers])
        beside.shutdown(wait=False)


def with_floats(function: Function) -> Function:
    """Give a function whose weights were packed, and are kept, for the evaluator: what it computes
    of bytes it computes of the floats that they stand for."""
    layers = packings(function.body)

    def visit(old: Expr, node: Expr) -> Expr:
        if not isinstance(node, Call) or not is_call(node, "nn.dense_narrow", "nn.unpack_narrow"):
            return node
        layer = next((layers[arg] for arg in node.args if arg in layers), None)
        if layer is None:
            return node
        assert isinstance(node.op, Op) and layer.floats is not None
        rule = partial(_RULES[op_name(node)], layer.floats)
        return Call(replace(node.op, numpy=rule), node.args, node.attrs)

    return with_body(function, rewrite(function.body, visit))


def _product(floats: Array, arrays: Sequence[Any], attrs: Attrs) -> Array:
    """nn.dense_narrow, with these weights instead."""
    data = arrays[0]

    def rows(part: slice) -> Array:
        return widened(np.ascontiguousarray(floats[part])).astype(data.dtype, copy=False)

    return product(data, len(floats), rows)


def _as_unpacked(floats: Array, arrays: Sequence[Any], attrs: Attrs) -> Array:
    """nn.unpack_narrow, likewise."""
    units, lines, line = arrays[0].shape
    return widened(np.ascontiguousarray(floats)).reshape(units, lines, -1, line)


_RULES = {"nn.dense_narrow": _product, "nn.unpack_narrow": _as_unpacked}


def packed_outputs(
    mod: IRModule, params: Mapping[str, Any], inputs: Mapping[str, Array],
    target: Target | None = None, known: Groupings | None = None,
) -> tuple[Array, ...]:  # fmt: skip
    """Compute with numpy, in float32, what `mod` computes with the weights that it asks for.

    target, known: of builds of it, which then share what is packed
    """
    packed, _ = (known or Groupings()).ungrouped(mod, params, USUAL, target)
    found = evaluate(packed, inputs, "float32")
    return found if isinstance(found, tuple) else (found,)


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
