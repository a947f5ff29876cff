"""The float64 reference: any `ComputeDAG` by vectorised numpy, with an error bound per element.

In: a DAG and its inputs.  Out: its outputs (types of `rounding.kept_as`) and how far a correct
kernel of the types of the DAG may be off.  It shares no code with lowering.  Read next:
`numeric.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir.expr import Expr, walk
from tilewright.ir.tuples import parts
from tilewright.targets.precision import FLOAT32, PRECISIONS, Precision
from tilewright.te import symbolic
from tilewright.te.chains import is_in
from tilewright.te.combining import combined, overflow_of_sum, sum_rounding
from tilewright.te.contraction import Affine, Contraction, affine, contraction
from tilewright.te.dag import ComputeDAG
from tilewright.te.numeric import DOMAINS, apply, constant
from tilewright.te.opaque import OpaqueOp
from tilewright.te.positions import Position, positions
from tilewright.te.recurrence import ScanOp
from tilewright.te.reference_inputs import Values, repeated
from tilewright.te.rounding import (
    Approx,
    Array,
    blocks,
    cast_value,
    exactly,
    fits,
    grid_of,
    kept_as,
    no_nan,
    stored,
    taken,
)
from tilewright.te.tensor import ComputeOp, PlaceholderOp, Tensor

BLOCK = 1 << 18  # points evaluated at once: 2 MB per temporary array
DRAW_LIMIT = 8  # integer inputs are below this

Inputs = Mapping[Any, Any] | Sequence[Any]
Draw = Callable[[Tensor, np.random.Generator], Array | None]


def evaluate(dag: ComputeDAG, inputs: Inputs) -> list[Array]:
    """The outputs of `dag`, in the order of `dag.outputs`.

    inputs: by tensor or by name, or in the order of `dag.args` without the outputs.  They are first
    rounded to the types of their placeholders.  Raises ExpressionError for missing or misshapen
    inputs and for a read outside a tensor that no if_then_else guards.
    """
    return [v.value for v in _outputs(dag, inputs, track=False)]


def tolerance(dag: ComputeDAG, inputs: Inputs, precision: str = FLOAT32) -> list[Array]:
    """Per output element, the largest distance from `evaluate` that rounding alone can explain.

    A running error bound in the types of the DAG.  A sum of K terms t adds 8 sqrt(K) eps sum|t|
    with the eps of its accumulator (for a sum of products this is the whole bound; the products'
    own rounding is within it), and one rounding to the type of the stage if that is narrower.
    Where K is more than an accumulator may take in turn, the bound is that of blocks so long and of
    the chain of their sums (`chains.depth`).  Where a precision of fewer digits than float32 is
    allowed, a sum of products of float32 may be off by the rounding of each operand besides:
    2^-10 sum|t| of "tf32" (`chains.is_in`).  A product of K terms adds K eps
    of itself; max and min, nothing; any other combiner, K roundings of
    each of its operations, spread over the levels of a balanced tree (supposing that no order of
    combining has much larger partial results than this one).

    Nothing where sums, products and casts need no rounding in whatever order they are done: numbers
    that are multiples of one power of two and stay small; see `rounding.Approx` and `cases.py`.

    Operations on float16 and bfloat16 may keep the digits of float32 or round after each of them:
    the bound admits both.  A stage beyond the greatest number of such a type is infinite; within
    the bound of that threshold it may be either.

    Elementwise operations add the units in `numeric.RELATIVE`, and carry the errors of their
    operands through: a product by |a| eb + |b| ea + ea eb, a monotone function by its change over
    [x - e, x + e], a choice whose condition rounding may flip by the distance of its sides.
    Infinite where no promise is possible; see `agrees`.
    """
    return evaluate_with_tolerance(dag, inputs, precision)[1]


def evaluate_with_tolerance(
    dag: ComputeDAG, inputs: Inputs, precision: str = FLOAT32
) -> tuple[list[Array], list[Array]]:
    """`evaluate` and `tolerance` in one walk."""
    results = approximations(dag, inputs, precision)
    return [r.value for r in results], [np.asarray(r.error) for r in results]


def approximations(dag: ComputeDAG, inputs: Inputs, precision: str = FLOAT32) -> list[Approx]:
    """`evaluate` and `tolerance`, and of what numbers the outputs are multiples."""
    results = []
    found = _outputs(dag, inputs, track=True, precision=PRECISIONS[precision])
    for tensor, result in zip(dag.outputs, found, strict=True):
        error = np.zeros(tensor.shape) if result.error is None else result.error
        unknown = np.isnan(result.value) if tensor.dtype.is_float else np.False_
        results.append(result._replace(error=np.where(unknown, np.inf, error)))
    return results


def agrees(actual: Array, reference: Array, bound: Array) -> Array:
    """Elementwise: is `actual` within `bound` of `reference`?  Anything is, if that is infinite."""
    with np.errstate(all="ignore"):
        close = np.abs(actual.astype(np.float64) - reference.astype(np.float64)) <= bound
    return np.asarray(close | (actual == reference) | np.isinf(bound))


def random_inputs(
    dag: ComputeDAG, seed: int, draw: Draw | None = None,
    given: Mapping[Tensor, Array] = MappingProxyType({}),
) -> list[Array]:  # fmt: skip
    """One array per input, in the order of `dag.args`, the same for the same seed.

    draw: other numbers for an input that is no index, or None for those described here
    given: values of inputs that are not drawn

    Floats are standard normal, about one in a hundred 100 times larger (float16: 10 times), and
    in the domain of the functions that the DAG takes of them (`numeric.DOMAINS`).  int32 and
    int64, whose arithmetic must not leave their range, are small; other integers take their whole
    range, with its ends; divisors are not 0.  Integers that the DAG uses as indices, or compares
    with positions, are valid ones, of either sign and some beyond the ends where the DAG limits
    them itself.
    """
    symbolic.refuse(dag.symbols, "te.random_inputs")
    tensors = _input_tensors(dag)
    divisors = _read_below(dag, lambda n: n.op in ("floordiv", "floormod"), lambda n: n.args[1:])
    kinds = dict.fromkeys(divisors, "divisor")
    for name in DOMAINS:
        kinds.update(dict.fromkeys(_read_below(dag, partial(_calls, name)), name))
    indices = {t: place for t, place in positions(dag).items() if t not in given}
    limit = min((p.size for p in indices.values()), default=DRAW_LIMIT)
    while True:
        rng = np.random.default_rng(seed)
        drawn = [
            repeated(
                t, partial(_draw, rng=rng, place=indices.get(t), kind=kinds.get(t, ""), draw=draw)
            )
            for t in tensors
        ]
        arrays = [given.get(t, value) for t, value in zip(tensors, drawn, strict=True)]
        if not indices or limit <= 1:  # 0: nothing can be read
            return arrays
        try:
            evaluate(dag, arrays)
            return arrays
        except ExpressionError:  # computed indices: shrink until they are valid
            limit //= 2
            indices = {t: p.meet(Position(limit, limited=False)) for t, p in indices.items()}


def _calls(name: str, node: Expr) -> bool:
    return node.op == "call" and bool(node.attr == name)


def _draw(
    tensor: Tensor, rng: np.random.Generator, place: Position | None, kind: str, draw: Draw | None
) -> Array:
    """place: of an index; kind: "divisor", a function in DOMAINS, or ""."""
    dtype = tensor.dtype
    own = draw(tensor, rng) if draw is not None and place is None else None
    if own is not None:
        return np.asarray(DOMAINS.get(kind, np.abs)(own) if kind else own)
    if dtype.is_float:
        return normal(tensor, rng, DOMAINS.get(kind, np.abs) if kind else np.asarray)
    if dtype == "bool":
        return rng.integers(0, 2, tensor.shape).astype(bool)
    if place is not None and place.limited and not kind:
        size = place.size
        inside = rng.integers(-size, size, tensor.shape)
        beyond = np.where(rng.random(tensor.shape) < 0.06, 3 * inside, inside)
        most = min(int(dtype.greatest), np.iinfo(np.int64).max)
        return np.clip(beyond, int(dtype.least), most).astype(dtype.storage)
    if place is not None:
        least = int(kind == "divisor" and place.size > 1)
        return rng.integers(least, max(place.size, 1), tensor.shape).astype(dtype.storage)
    whole = rng.integers(*_integer_range(dtype), tensor.shape, kept_as(dtype), endpoint=True)
    if not dtype.is_index:
        extremes = np.array([dtype.least, dtype.greatest], kept_as(dtype))[
            rng.integers(0, 2, tensor.shape)
        ]
        whole = np.where(rng.random(tensor.shape) < 0.01, extremes, whole)
    if kind:
        whole = np.where(whole == 0, 1, whole)
        if kind != "divisor":
            whole = np.clip(np.abs(whole), 1, dtype.greatest)
    return whole.astype(dtype.storage)


def normal(
    tensor: Tensor, rng: np.random.Generator, within: Callable[[Array], Array] = np.asarray
) -> Array:
    """The floats of `random_inputs`; within: takes them to the domain of a function."""
    dtype = tensor.dtype
    large = 100.0 if dtype.greatest > 1e9 else 10.0  # so that sums of float16 stay finite
    drawn = np.empty(tensor.shape, dtype.storage)
    flat = drawn.reshape(-1)
    for at in blocks(flat.size):
        values = rng.standard_normal(flat[at].size)
        values[rng.random(values.size) < 0.01] *= large
        flat[at] = np.asarray(within(values)).astype(dtype.storage)
    return drawn


def _integer_range(dtype: DType) -> tuple[int, int]:
    """All of a type that wraps around; of one that may not, numbers whose products are small."""
    if dtype.is_index:
        return -DRAW_LIMIT, DRAW_LIMIT
    return int(dtype.least), int(dtype.greatest)


def _read_below(
    dag: ComputeDAG,
    test: Callable[[Expr], bool],
    operands: Callable[[Expr], Sequence[Expr]] = lambda n: n.args,
) -> set[Tensor]:
    """Tensors that are read somewhere in the `operands` of a node for which `test` holds."""
    users = (n for op in dag.compute_ops for n in walk(op.body) if test(n))
    return {n.attr for user in users for n in walk(*operands(user)) if n.op == "read"}


# -- stages ----------------------------------------------------------------------------------------


def _input_tensors(dag: ComputeDAG) -> list[Tensor]:
    return [t for t in dag.args if isinstance(t.op, PlaceholderOp)]


def _bind(dag: ComputeDAG, inputs: Inputs, track: bool, precision: Precision) -> Values:
    tensors = _input_tensors(dag)
    if isinstance(inputs, Mapping):
        given = {getattr(key, "name", key): value for key, value in inputs.items()}
        arrays = [given.get(t.name) for t in tensors]
    else:
        arrays = list(inputs)
        if len(arrays) != len(tensors):
            raise ExpressionError(
                "evaluate", f"{len(arrays)} inputs for {len(tensors)} placeholders",
                f"Give {', '.join(t.name for t in tensors)}, in this order.",
            )  # fmt: skip
    bound: dict[Tensor, Array] = {}
    for tensor, array in zip(tensors, arrays, strict=True):
        if array is None:
            raise ExpressionError("evaluate", f"no value for the placeholder {tensor.name!r}")
        value = np.asarray(array)
        if value.shape != tensor.shape:
            raise ExpressionError(
                f"evaluate({tensor.name})", f"an array of shape {list(value.shape)}",
                f"The placeholder has shape {list(tensor.shape)}.",
            )  # fmt: skip
        bound[tensor] = value.astype(tensor.dtype.storage, copy=False)
    return Values(bound, track, precision)


def _outputs(
    dag: ComputeDAG, inputs: Inputs, track: bool, precision: Precision = PRECISIONS[FLOAT32]
) -> list[Approx]:
    symbolic.refuse(dag.symbols, "te.evaluate")
    values = _bind(dag, inputs, track, precision)
    with np.errstate(all="ignore"):
        inside = {op for steps in dag.steps.values() for op in steps}
        for op in dag.compute_ops:
            if op in inside:
                continue
            if isinstance(op, ScanOp):
                values.update(_steps(op, dag.steps[op], values, track))
                continue
            if isinstance(op, OpaqueOp):
                values.update(op.evaluate(values, track))
                continue
            product = contraction(op) if op not in dag.late else None
            if op in dag.late:
                results = _late(op, dag.late[op], values, track)
            elif product is not None and (product.mask is None or _finite(product, values)):
                results = [_contract(op, product, values, track)]
            else:
                results = _Stage(op, values, track).run()
            values.update(_finished(op, results, track))
    return [values[t] for t in dag.outputs]


def _finite(product: Contraction, values: Mapping[Tensor, Approx]) -> bool:
    """Whether nothing that is multiplied by a zero of the mask makes a NaN."""
    return all(bool(np.isfinite(values[w.tensor].value).all()) for w in product.windows)


def _finished(op: ComputeOp, results: list[Approx], track: bool) -> dict[Tensor, Approx]:
    """What a stage stores of what it computed."""
    if op.reduction is not None and op.reduction is not op.body:
        results = [apply(op.body, results, track)]
    held: dict[Tensor, Approx] = {}
    for tensor, found in zip(op.outputs, results, strict=True):
        result = stored(found, tensor.dtype)
        rounded = result.error is not None and bool(result.error.any())
        held[tensor] = result if rounded else result._replace(error=None)
    return held


def _late(op: ComputeOp, first: int, values: Values, track: bool) -> list[Approx]:
    """A stage of which nobody reads what lies before the index `first`; that is 0."""
    if first >= op.shape[0]:
        return [Approx(np.zeros(op.shape, kept_as(kind))) for kind in op.accumulators]

    def padded(array: Array) -> Array:
        return np.concatenate([np.zeros((first, *op.shape[1:]), array.dtype), array])

    found = _Stage(op, values, track).run(range(first, op.shape[0]))
    return [result.map(padded) for result in found]


def _steps(
    scan: ScanOp, inside: Sequence[ComputeOp], values: Values, track: bool
) -> dict[Tensor, Approx]:
    """A scan and what its steps compute, one step after the other."""
    ops = (*inside, scan)
    known = values.copy()
    for tensor in (t for op in ops for t in op.outputs):
        errors = np.zeros(tensor.shape) if track else None
        known[tensor] = Approx(np.zeros(tensor.shape, kept_as(tensor.dtype)), errors, math.inf)
    for step in range(scan.shape[0]):
        for op in ops if step >= scan.first else (scan,):
            known.update(zip(scan.states, (known[t] for t in scan.outputs), strict=True))
            results = _Stage(op, known, track).run(range(step, step + 1))
            for tensor, result in _finished(op, results, track).items():
                whole = known[tensor]
                whole.value[step] = result.value[0]
                if whole.error is not None and result.error is not None:
                    whole.error[step] = result.error[0]
                known[tensor] = whole._replace(grid=min(whole.grid, result.grid))
    for tensor in scan.outputs:
        error = known[tensor].error
        if error is not None and not error.any():
            known[tensor] = known[tensor]._replace(error=None)
    return known


def _contract(op: ComputeOp, product: Contraction, values: Values, track: bool) -> Approx:
    operands = values.operands(product)
    kind = op.accumulator
    value = cast_value(product.run([o.value for o in operands]), kind)
    whole = True
    if track and is_in(op, values.precision):
        operands, whole = taken(operands, values.precision)
    rounded = any(o.error is not None for o in operands)
    if not (track and kind.is_float):
        return Approx(value, np.full(op.shape, np.inf) if track and rounded else None)
    sizes = [np.abs(o.value) for o in operands]
    total = largest = abs(product.run(sizes))
    if rounded:
        pairs = zip(sizes, operands, strict=True)
        largest = abs(product.run([s if o.error is None else s + o.error for s, o in pairs]))
    lost = 0.0 if whole else values.precision.term
    error = (largest - total) + sum_rounding(largest, kind, product.terms) + lost * largest
    error = overflow_of_sum(value, largest, no_nan(error), kind)
    grid = math.prod(o.grid for o in operands) * grid_of(np.asarray(float(product.scale)))
    exact = fits(total, grid, kind) if whole and not rounded else None
    return Approx(value, exactly(error, exact), grid)


class _Scope:
    """Values of nodes, under a condition that holds for the points in `guard` (None: for all)."""

    __slots__ = ("guard", "memo", "parent")

    def __init__(self, guard: Array | None = None, parent: _Scope | None = None) -> None:
        self.guard, self.parent = guard, parent
        self.memo: dict[Expr, Approx] = {}

    def find(self, node: Expr) -> Approx | None:
        scope: _Scope | None = self
        while scope is not None:
            if node in scope.memo:
                return scope.memo[node]
            scope = scope.parent
        return None

    def under(self, condition: Array) -> _Scope:
        guard = condition if self.guard is None else self.guard & condition
        return _Scope(None if self.guard is None and bool(np.all(condition)) else guard, self)


class _Stage:
    """One operation, evaluated in blocks of about BLOCK points of its (spatial, reduce) grid.

    Every array has one dimension per axis, of length 1 where it does not depend on the axis.
    """

    def __init__(self, op: ComputeOp, values: Values, track: bool) -> None:
        self.op, self.values, self.track = op, values, track
        self.axes = [ax.var for ax in (*op.axis, *op.reduce_axis)]
        self.extents = [ax.size for ax in (*op.axis, *op.reduce_axis)]
        self.points = math.prod(self.extents)
        self.spatial = len(op.axis)
        self.first = 0  # where the first axis begins
        self.block: list[range] = []
        self.forms: dict[Expr, Affine | None] = {}

    def run(self, steps: range | None = None) -> list[Approx]:
        """One for each tensor of the stage.  steps: of its first axis, all unless given."""
        shape, kinds = self.op.shape, self.op.accumulators
        if steps is not None:
            self.first, self.extents[0], shape = steps.start, len(steps), (len(steps), *shape[1:])
        whole = [Approx(np.empty(shape, kept_as(kind)), None, math.inf) for kind in kinds]
        for place, results in self._blocks():
            for k, result in enumerate(results):
                errors = whole[k].error
                whole[k].value[place] = result.value
                if result.error is not None:
                    errors = np.zeros(shape) if errors is None else errors
                    errors[place] = result.error
                grid = min(whole[k].grid, result.grid)
                whole[k] = whole[k]._replace(error=errors, grid=grid)
        return whole

    def _blocks(self) -> Iterator[tuple[tuple[slice, ...], list[Approx]]]:
        tile = list(self.extents)
        for k in (*range(self.spatial, len(tile)), *range(self.spatial)):
            if math.prod(tile) > BLOCK:
                tile[k] = max(1, tile[k] * BLOCK // math.prod(tile))
        ranges = [
            [range(s, min(s + t, e)) for s in range(0, e, max(t, 1))]
            for e, t in zip(self.extents, tile, strict=True)
        ]
        for spatial in itertools.product(*ranges[: self.spatial]):
            place = tuple(slice(r.start, r.stop) for r in spatial)
            parts = (
                self._terms([*spatial, *reduced])
                for reduced in itertools.product(*ranges[self.spatial :])
            )
            if self.op.combiner is None:
                yield place, next(parts)
            else:
                terms = math.prod(self.extents[self.spatial :])
                yield place, combined(self.op.combiner, parts, self.spatial, terms, self.track)

    def _terms(self, block: list[range]) -> list[Approx]:
        """The body (the reduced values of a reduction) at every point of `block`."""
        if self.first:
            block = [range(block[0].start + self.first, block[0].stop + self.first), *block[1:]]
        self.block = block
        scope = _Scope()
        for k, (var, r) in enumerate(zip(self.axes, block, strict=True)):
            shape = [len(r) if j == k else 1 for j in range(len(block))]
            scope.memo[var] = Approx(np.arange(r.start, r.stop).reshape(shape))
        body, combiner = self.op.body, self.op.combiner
        if combiner is None:
            results = [self.visit(value, scope) for value in parts(body)]
        elif combiner.result.op == "add" and self.op.reduced.op == "mul":
            # the rounding of the terms of a sum is part of the bound of the sum
            term = self.op.reduced
            args, whole = [self.visit(a, scope) for a in term.args], True
            if self.track and is_in(self.op, self.values.precision):
                args, whole = taken(args, self.values.precision)
            results = [apply(term, args, self.track, scale=0.0)]
            if not whole:
                known = 0.0 if results[0].error is None else results[0].error
                off = self.values.precision.term * np.abs(results[0].value)
                results = [results[0]._replace(error=known + off, grid=0.0)]
        else:
            results = [self.visit(value, scope) for value in parts(self.op.reduced)]
        shape = [len(r) for r in block]
        return [r.map(lambda array: np.broadcast_to(array, shape)) for r in results]

    def visit(self, node: Expr, scope: _Scope) -> Approx:
        known = scope.find(node)
        if known is not None:
            return known
        if node.op == "const":
            result = constant(node)
        elif node.op == "if_then_else":
            result = self._choose(node, scope)
        elif node.op == "select":
            result = self._select(node, scope)
        elif node.op == "read":
            result = self._read(node, scope)
        else:
            args = [self.visit(a, scope) for a in node.args]
            if node.op in ("floordiv", "floormod") and not node.dtype.is_float:
                args[1] = self._divisor(node, args[1], scope)
            result = apply(node, args, self.track)
        scope.memo[node] = result
        return result

    def _choose(self, node: Expr, scope: _Scope) -> Approx:
        condition = self.visit(node.args[0], scope)
        if condition.error is None:
            if np.all(condition.value):
                return self.visit(node.args[1], scope)
            if not np.any(condition.value):
                return self.visit(node.args[2], scope)
        then = self.visit(node.args[1], scope.under(condition.value))
        other = self.visit(node.args[2], scope.under(~condition.value))
        return apply(node, [condition, then, other], self.track)

    def _select(self, node: Expr, scope: _Scope) -> Approx:
        """Both values are computed; here only the one that is taken, where all points of the block
        take it and the other one cannot fail."""
        condition = self.visit(node.args[0], scope)
        always, never = condition.value.all(), not condition.value.any()
        taken, other = node.args[1:] if always else reversed(node.args[1:])
        if condition.error is None and (always or never) and self._cannot_fail(other):
            return self.visit(taken, scope)
        return apply(node, [self.visit(a, scope) for a in node.args], self.track)

    def _cannot_fail(self, node: Expr) -> bool:
        """Whether its reads are seen to stay inside, and it divides no integers."""
        if node.op == "read":
            return self._slices(node) is not None
        divides = node.op in ("floordiv", "floormod") and not node.dtype.is_float
        return not divides and all(map(self._cannot_fail, node.args))

    def _divisor(self, node: Expr, divisor: Approx, scope: _Scope) -> Approx:
        zero = divisor.value == 0
        if not np.any(zero):
            return divisor
        if np.any(zero if scope.guard is None else zero & scope.guard):
            raise ExpressionError(f"evaluate({self.op.name})", f"division by zero in {node}")
        return Approx(np.where(zero, 1, divisor.value), divisor.error)

    def _read(self, node: Expr, scope: _Scope) -> Approx:
        view = self._slices(node)
        if view is not None:
            return self._picked(node, lambda array: self._grid(array[view[0]], view[1]))
        indices: list[Array] = []
        unsure: Array | None = None
        for k, (index, size) in enumerate(zip(node.args, node.attr.shape, strict=True)):
            position = self.visit(index, scope)
            outside = (position.value < 0) | (position.value >= size)
            if np.any(outside):
                if np.any(outside if scope.guard is None else outside & scope.guard):
                    raise ExpressionError(
                        f"evaluate({self.op.name})",
                        f"index {k} of {node} leaves the dimension of {size} elements",
                        "Guard the read with te.if_then_else.",
                    )
                position = Approx(np.clip(position.value, 0, size - 1), position.error)
            indices.append(position.value)
            if position.error is not None:
                moved = np.where(position.error > 0, np.inf, 0.0)
                unsure = moved if unsure is None else unsure + moved
        found = self._picked(node, lambda array: array[tuple(indices)])
        if unsure is None:
            return found
        unsure = unsure if found.error is None else found.error + unsure
        return found._replace(error=unsure)

    def _picked(self, node: Expr, pick: Callable[[Array], Array]) -> Approx:
        return self.values.picked(node.attr, pick, self.points)

    def _slices(self, node: Expr) -> tuple[tuple[slice | int, ...], list[int]] | None:
        """The read of the block as basic slices, and the axis that each slice follows; or None.

        Possible where every index is a constant or a multiple of one axis, plus a constant, in
        range.
        """
        places: list[slice | int] = []
        order: list[int] = []
        for index, size in zip(node.args, node.attr.shape, strict=True):
            form = self._affine(index)
            if form is None or len(form[0]) > 1:
                return None
            offset = form[1]
            if not form[0]:
                if not 0 <= offset < size:
                    return None
                places.append(offset)
                continue
            ((axis, step),) = form[0].items()
            first, last = (step * p + offset for p in (self.block[axis][0], self.block[axis][-1]))
            if step <= 0 or axis in order or first < 0 or last >= size:
                return None
            places.append(slice(first, last + 1, step))
            order.append(axis)
        return tuple(places), order

    def _affine(self, index: Expr) -> Affine | None:
        if index not in self.forms:
            self.forms[index] = affine(
                index, lambda n: ({self.axes.index(n): 1}, 0) if n.op == "var" else None
            )
        return self.forms[index]

    def _grid(self, view: Array, order: list[int]) -> Array:
        """`view`, whose dimensions follow the axes in `order`, with one dimension per axis."""
        view = np.asarray(view).transpose(sorted(range(len(order)), key=order.__getitem__))
        length = dict(zip(sorted(order), view.shape, strict=True))
        return view.reshape([length.get(k, 1) for k in range(len(self.block))])
