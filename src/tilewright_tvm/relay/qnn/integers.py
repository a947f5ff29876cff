"""`relay.transform.FakeQuantizationToInteger`: what is computed on the real numbers that integers
stand for is computed on the integers.

In: a module in which operators stand between `qnn.dequantize` and `qnn.quantize`.  Out: one where
they read and write integers.  Products and sums are exact in int32, moves and comparisons take the
integers as they are; what cannot be written in steps of its own is written in those that are wanted
in the end.  An operator without a rule here leaves its region as it was.
Read next: `graph/functions/quantized.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule, Tuple
from tilewright.graph.functions import nn, tensor
from tilewright.graph.functions.quantized import NARROW, centred, narrowed, placed
from tilewright.graph.leaves import const
from tilewright.graph.op.conv import CONVOLUTIONS
from tilewright.graph.passes.constants import computed_of_constants
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, with_body

DEEPEST = 200  # operators between integers and integers
MOST_PRODUCTS = 1 << 15  # in a sum of int32: differences of bytes have 9 bits
ZERO = const(0, "int32")


@dataclass(frozen=True)
class Steps:
    """Real numbers as integers: each of `scales` times (value - zero).

    scales, zero: single numbers, or of a shape that stretches to that of `value`
    """

    value: Expr
    scales: tuple[Expr, ...]
    zero: Expr = ZERO

    @property
    def is_single(self) -> bool:
        return all(e.tensor_type.size == 1 for e in (*self.scales, self.zero))

    def whole(self) -> Expr:
        """Without the zero point, in int32."""
        return centred(self.value, self.zero)

    def real(self) -> Expr:
        made: Expr = tensor.cast(self.whole(), "float32")
        for scale in self.scales:
            made = made * scale
        return made


@dataclass(frozen=True)
class Goal:
    """Integers that are wanted: of this scale, zero point and type."""

    scale: Expr
    zero: Expr
    kind: str


def to_integers(mod: IRModule, hard_fail: bool = False) -> IRModule:
    """Regions between dequantize and quantize on integers.

    hard_fail: raise ModelError for a region that has an operator without a rule
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visitor(hard_fail))))


def _visitor(hard_fail: bool) -> Callable[[Expr, Expr], Expr]:
    def visit(old: Expr, node: Expr) -> Expr:
        found = _quantized(node)
        if found is None:
            return node
        real, goal = found
        region = _Region()
        made = region.steps(real, goal)
        if made is not None:
            return _brought(made, goal)
        if hard_fail and region.refused:
            raise ModelError(
                "FakeQuantizationToInteger", f"there is no rule for {region.refused}",
                "Leave hard_fail out: such regions stay as they are.",
            )  # fmt: skip
        return node

    return visit


def _brought(made: Steps, goal: Goal) -> Expr:
    if _alike(made.scales, (goal.scale,)):
        if made.value.dtype == goal.kind and _same(made.zero, goal.zero):
            return made.value
        moved = made.whole() + tensor.cast(goal.zero, "int32")
        least, greatest = np.iinfo(goal.kind).min, np.iinfo(goal.kind).max
        return tensor.cast(tensor.clip(moved, float(least), float(greatest)), goal.kind)
    return narrowed(made.real() / goal.scale, goal.zero, DType(goal.kind))


class _Region:
    """What is between integers and integers.

    refused: the operator that has no rule, "" where the region reads no integers
    """

    def __init__(self) -> None:
        self.known: dict[tuple[Expr, bool], Steps | None] = {}
        self.refused = ""
        self.depth = 0

    def steps(self, real: Expr, goal: Goal | None = None) -> Steps | None:
        """`real` in steps; goal: what is wanted of its integers in the end, for sums."""
        real = _plain(real)
        key = real, goal is None
        if key in self.known:
            return self.known[key]
        found = _dequantized(real)
        rule = RULES.get(op_name(real))
        if found is None and rule is not None and self.depth < DEEPEST:
            self.depth += 1
            found = rule(real, self, goal)  # type: ignore[arg-type]
            self.depth -= 1
        elif found is None and op_name(real):
            self.refused = self.refused or op_name(real)
        self.known[key] = found
        return found


# -- what steps are in a graph
def _plain(node: Expr) -> Expr:
    """Without casts to its own type."""
    while isinstance(node, Call) and is_call(node, "cast") and node.args[0].dtype == node.dtype:
        node = node.args[0]
    return node


def _args(node: Expr, name: str) -> tuple[Expr, ...] | None:
    node = _plain(node)
    return node.args if isinstance(node, Call) and is_call(node, name) else None


def _uncast(node: Expr) -> Expr:
    node = _plain(node)
    return _plain(node.args[0]) if isinstance(node, Call) and is_call(node, "cast") else node


def _dequantized(real: Expr) -> Steps | None:
    """cast(cast(x) - zero) * scale."""
    product = _args(real, "multiply")
    if product is None or not real.dtype.is_float or not is_call(_plain(product[0]), "cast"):
        return None
    moved = _args(_uncast(product[0]), "subtract")
    if moved is None or not moved[0].dtype.is_int:
        return None
    value, scale = _uncast(moved[0]), _plain(product[1])
    if not value.dtype.is_int or value.shape != real.shape or scale.dtype != "float32":
        return None
    return Steps(value, (scale,), _plain(moved[1]))


def _quantized(node: Expr) -> tuple[Expr, Goal] | None:
    """cast(clip(round(real / scale) + zero))."""
    if not isinstance(node, Call) or not is_call(node, "cast") or node.dtype not in NARROW:
        return None
    limits, limited = np.iinfo(str(node.dtype)), _plain(node.args[0])
    if not isinstance(limited, Call) or not is_call(limited, "clip"):
        return None
    whole = limited.attrs.a_min == limits.min and limited.attrs.a_max == limits.max
    total = _args(limited.args[0], "add") if whole else None
    rounded = _args(total[0], "round") if total else None
    ratio = _args(rounded[0], "divide") if rounded else None
    if total is None or ratio is None:
        return None
    scale, zero = _plain(ratio[1]), _uncast(total[1])
    if scale.dtype != "float32" or ratio[0].shape != node.shape:
        return None
    return _plain(ratio[0]), Goal(scale, zero, str(node.dtype))


def _known(value: Expr) -> Array | None:
    made = computed_of_constants(value)
    return made.data if isinstance(made, Constant) else None


def _numbers(scales: tuple[Expr, ...]) -> Array | None:
    """The product of constants."""
    product: Array = np.ones((), "float64")
    for scale in scales:
        data = _known(scale)
        if data is None:
            return None
        product = product * data.astype("float64")
    return product


def _alike(a: tuple[Expr, ...], b: tuple[Expr, ...]) -> bool:
    one, other = _numbers(a), _numbers(b)
    if one is None or other is None:
        return False
    return bool(one.size == other.size and np.array_equal(one.reshape(-1), other.reshape(-1)))


def _finest(parts: Sequence[Steps]) -> tuple[Expr, ...] | None:
    """The least of scales that are single constants."""
    found = [(_numbers(p.scales), p.scales) for p in parts]
    known = [(n.item(), scales) for n, scales in found if n is not None and n.size == 1]
    return min(known, key=lambda pair: pair[0])[1] if len(known) == len(parts) else None


def _on_steps(real: float, x: Steps) -> bool:
    """Whether a number is one of those that integers stand for."""
    numbers = _numbers(x.scales)
    if numbers is None:
        return False
    counts = real / numbers
    return bool(np.all(np.abs(counts - np.round(counts)) < 1e-3))


def _same(a: Expr, b: Expr) -> bool:
    one, other = _known(a), _known(b)
    return one is not None and other is not None and bool(np.array_equal(one, other))


# -- rules: (operator, region, goal) -> its result in steps
def _moved(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    """The same elements in other places, or the greatest of some."""
    x = region.steps(node.args[0], goal)
    if x is None or not x.is_single:
        return None
    return replace(x, value=Call(node.op, (x.value, *node.args[1:]), node.attrs))


def _relu(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    x = region.steps(node.args[0], goal)
    if x is None:
        return None
    return replace(x, value=tensor.maximum(x.value, tensor.cast(x.zero, x.value.dtype)))


def _clip(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    """Limits are numbers of the steps, or of those that are wanted, which round alike."""
    x = region.steps(node.args[0], goal)
    if x is None:
        return None
    limits = ((node.attrs.a_min, tensor.maximum), (node.attrs.a_max, tensor.minimum))
    finite = [(limit, choose) for limit, choose in limits if np.isfinite(limit)]
    if not all(_on_steps(limit, x) for limit, _ in finite):
        if goal is None:
            return None
        x = Steps(_whole_of(x, (goal.scale,)), (goal.scale,))
    value = x.whole()
    for limit, choose in finite:
        value = choose(value, _whole_of(const(float(limit), "float32"), x.scales))
    return Steps(value, x.scales)


def _contraction(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    data, weight = (region.steps(a) for a in node.args)
    if data is None or weight is None or not data.is_single or not _fits(node, data, weight):
        return None
    attrs = dict(node.attrs)
    if "out_dtype" in attrs:
        attrs["out_dtype"] = "int32"
    value = Call(node.op, (data.whole(), weight.whole()), attrs)
    scales = tuple(_of_channels(node, s) for s in weight.scales)
    if any(s is None for s in scales):
        return None
    return Steps(value, (*data.scales, *(s for s in scales if s is not None)))


def _fits(node: Call, data: Steps, weight: Steps) -> bool:
    """Whether sums of products of bytes cannot leave int32."""
    if op_name(node) in CONVOLUTIONS:
        layout = [c for c in str(node.attrs.kernel_layout) if c.isalpha()]
        out = dict(zip(layout, node.args[1].shape, strict=True))
        count = node.args[1].tensor_type.size // (out["O"] * out.get("o", 1))
    else:
        count = max(node.args[0].shape[-2:])
    return count <= MOST_PRODUCTS and all(s.value.dtype.bits == 8 for s in (data, weight))


def _of_channels(node: Call, scale: Expr) -> Expr | None:
    """A weight's scale for the result: one number, or one for each output channel."""
    if scale.tensor_type.size == 1:
        return scale
    weight = node.args[1].shape
    if op_name(node) in CONVOLUTIONS:
        at, axis = str(node.attrs.kernel_layout).find("O"), str(node.attrs.data_layout).find("C")
    else:
        at, axis = (0, 1) if is_call(node, "nn.dense") else (-1, -1)
    full = (1,) * (len(weight) - len(scale.shape)) + tuple(scale.shape)
    if at < 0 or full != tuple(n if k == at else 1 for k, n in enumerate(weight)):
        return None
    return placed(tensor.reshape(scale, (weight[at],)), node, axis)


def _bias_add(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    x, bias = region.steps(node.args[0]), region.steps(node.args[1])
    if x is None or bias is None:
        return None
    flat = tuple(s if s.tensor_type.size == 1 else tensor.reshape(s, (-1,)) for s in x.scales)
    added = _whole_of(bias, flat)
    return Steps(nn.bias_add(x.whole(), added, node.attrs.axis), x.scales)


def _whole_of(x: Steps | Constant, scales: tuple[Expr, ...]) -> Expr:
    """In int32, as steps of other scales, without a zero point; rounded."""
    if isinstance(x, Steps) and _alike(scales, x.scales):
        return x.whole()
    real = x.real() if isinstance(x, Steps) else tensor.cast(x, "float32")
    for scale in scales:
        real = real / scale
    made = tensor.cast(tensor.round(real), "int32")
    return computed_of_constants(made) if isinstance(x, Constant) else made


def _both(node: Call, region: _Region) -> list[Steps | Constant] | None:
    found = [a if isinstance(a, Constant) else region.steps(a) for a in map(_plain, node.args)]
    if all(isinstance(f, Constant) for f in found):
        return None
    kept = [f for f in found if f is not None]
    return kept if len(kept) == len(found) else None


def _sum(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    """Each operand in steps of what is wanted, or of the finest."""
    both = _both(node, region)
    if both is None:
        return None
    steps = [f for f in both if isinstance(f, Steps)]
    scales = _finest(steps) if goal is None else (goal.scale,)
    if scales is None or any(s.tensor_type.size > 1 for s in scales):
        return None
    return Steps(Call(node.op, [_whole_of(f, scales) for f in both], node.attrs), scales)


def _product(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    """Exact in int32; a positive constant is one more scale."""
    both = _both(node, region)
    if both is None:
        return None
    steps = [f for f in both if isinstance(f, Steps)]
    if len(steps) == 1:
        constant = next(f for f in both if isinstance(f, Constant))
        fits = constant.data.size == 1 and constant.data.item() > 0
        same = steps[0].value.shape == node.shape
        factor = tensor.reshape(constant, ()) if constant.shape else constant
        return replace(steps[0], scales=(*steps[0].scales, factor)) if fits and same else None
    if any(s.value.dtype.bits > 8 for s in steps):
        return None
    a, b = steps
    if not a.is_single or not b.is_single:
        return None
    return Steps(a.whole() * b.whole(), (*a.scales, *b.scales))


def _concatenated(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    fields = node.args[0]
    parts = [region.steps(f) for f in fields.fields] if isinstance(fields, Tuple) else []
    known = [p for p in parts if p is not None]
    if not known or len(known) < len(parts):
        return None
    scales = _finest(known) if goal is None else (goal.scale,)
    if scales is None or any(s.tensor_type.size > 1 for s in scales):
        return None
    whole = Tuple([_whole_of(p, scales) for p in known])
    return Steps(Call(node.op, (whole,), node.attrs), scales)


def _padded(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    x = region.steps(node.args[0], goal)
    if x is None or not x.is_single:
        return None
    around = _known(_whole_of(const(float(node.attrs.pad_value), "float32"), x.scales))
    zero = _known(x.zero)
    if around is None or zero is None or not _on_steps(node.attrs.pad_value, x):
        return None
    number, limits = int(around.item() + zero.item()), np.iinfo(str(x.value.dtype))
    if not limits.min <= number <= limits.max:
        return None
    return replace(x, value=Call(node.op, (x.value,), {**node.attrs, "pad_value": float(number)}))


def _mean(node: Call, region: _Region, goal: Goal | None) -> Steps | None:
    """Averaged in float32, and rounded to steps of what is wanted."""
    x = region.steps(node.args[0])
    if x is None or not x.is_single or goal is None or goal.scale.tensor_type.size > 1:
        return None
    made: Expr = Call(node.op, (tensor.cast(x.whole(), "float32"),), node.attrs)
    for scale in x.scales:
        made = made * scale
    return Steps(tensor.cast(tensor.round(made / goal.scale), "int32"), (goal.scale,))


Rule = Callable[[Call, _Region, "Goal | None"], "Steps | None"]
RULES: Mapping[str, Rule] = {
    **dict.fromkeys(
        (
            "transpose", "reshape", "expand_dims", "squeeze", "strided_slice", "nn.batch_flatten",
            "layout_transform", "broadcast_to", "nn.max_pool1d", "nn.max_pool2d", "nn.max_pool3d",
            "nn.global_max_pool2d", "nn.depth_to_space", "nn.space_to_depth", "take", "reverse",
        ),
        _moved,
    ),
    **dict.fromkeys((*CONVOLUTIONS, "nn.dense", "nn.batch_matmul"), _contraction),
    **dict.fromkeys(("add", "subtract", "minimum", "maximum"), _sum),
    **dict.fromkeys(
        ("nn.avg_pool1d", "nn.avg_pool2d", "nn.avg_pool3d", "nn.global_avg_pool2d",
         "nn.adaptive_avg_pool2d", "mean"),
        _mean,
    ),
    "nn.relu": _relu, "clip": _clip, "nn.bias_add": _bias_add, "multiply": _product,
    "concatenate": _concatenated, "nn.pad": _padded,
}  # fmt: skip
