"""Operators of ONNX with random attributes, as nodes.

In: a `Draw`.  Out: `OPERATORS`: name -> (how often, what makes a node).  Read next: `onnx_side.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drills.differential.draw import FLOATS, INTEGERS, Array, Draw


@dataclass(frozen=True)
class Given:
    """An input: constant ones are in the model; fixed ones have no last bits that may differ."""

    value: Array
    constant: bool = False
    fixed: bool = False


@dataclass(frozen=True)
class Node:
    op: str
    inputs: list[Given | None]
    attrs: dict[str, Any] = field(default_factory=dict)
    outputs: int = 1
    opset: int = 18
    strict: bool = True
    absolute: float = 0.0  # see `Case`


Make = Callable[[Draw], Node]
OPERATORS: dict[str, tuple[int, Make]] = {}
KINDS = {"float32": 1, "uint8": 2, "int8": 3, "int32": 6, "int64": 7, "bool": 9, "float16": 10,
         "float64": 11}  # fmt: skip


def operator(*names: str, weight: int = 1) -> Callable[[Callable[..., Node]], Any]:
    """Registers what takes the name of the operator and a Draw."""

    def register(make: Callable[..., Node]) -> Any:
        for name in names:
            OPERATORS[name] = weight, lambda d, name=name: make(name, d)
        return make

    return register


def ints(values: Any, dtype: str = "int64") -> Given:
    return Given(np.asarray(values, dtype), constant=True, fixed=True)


def some(d: Draw, value: Array) -> Given:
    """An input, or a constant of the model."""
    return Given(value, constant=d.chance(0.3))


def number(d: Draw, low: float = -2, high: float = 2) -> float:
    return round(float(d.rng.uniform(low, high)), 3)


# -- element by element ----------------------------------------------------------------------------

_PLAIN = [
    "Abs", "Neg", "Ceil", "Floor", "Round", "Sqrt", "Exp", "Log", "Sigmoid", "Tanh", "Sin", "Cos",
    "Tan", "Asin", "Acos", "Atan", "Sinh", "Cosh", "Asinh", "Acosh", "Atanh", "Erf", "Reciprocal",
    "Sign", "Relu", "Softplus", "Softsign", "IsNaN", "Identity", "Selu", "HardSwish", "Mish",
]  # fmt: skip


@operator(*_PLAIN)
def _unary(name: str, d: Draw) -> Node:
    dtype = d.pick(FLOATS)
    if name in ("Abs", "Neg", "Sign", "Relu", "Identity") and d.chance(0.3):
        dtype = d.pick(INTEGERS)
    near = {"Selu": 2e-6, "Mish": 2e-6}.get(name, 0.0)
    return Node(name, [Given(d.array(d.shape(), dtype))], absolute=near)


@operator("Elu", "LeakyRelu", "Celu", "ThresholdedRelu", "HardSigmoid", "Gelu", "IsInf", "Not",
          "BitwiseNot", "Swish")  # fmt: skip
def _with_attributes(name: str, d: Draw) -> Node:
    attrs: dict[str, Any] = {}
    opset = 18
    if name == "Gelu":
        attrs, opset = {"approximate": d.pick(["none", "tanh"])}, 20
    elif name == "IsInf":
        attrs = {"detect_negative": d.integer(0, 1), "detect_positive": d.integer(0, 1)}
    elif name in ("Not", "BitwiseNot"):
        kind = "bool" if name == "Not" else d.pick(INTEGERS)
        return Node(name, [Given(d.array(d.shape(), kind))])
    elif name == "Swish":
        opset = 24
    elif d.chance(0.7):
        attrs["alpha"] = number(d)
        if name == "HardSigmoid":
            attrs["beta"] = number(d)
    near = 2e-6 if name in ("Elu", "Celu", "Gelu") else 0.0  # of exp(x) - 1, which is near 0
    return Node(name, [Given(d.floats(d.shape()))], attrs, opset=opset, absolute=near)


_ARITHMETIC = [
    "Add", "Sub", "Mul", "Div", "Pow", "Equal", "Less", "Greater", "LessOrEqual",
    "GreaterOrEqual",
]  # fmt: skip


@operator(*_ARITHMETIC, "Max", "Min", "Mean", "Sum", "PRelu")
def _binary(name: str, d: Draw) -> Node:
    shape = d.shape()
    whole = d.chance(0.3) and name not in ("Mean", "Sum", "PRelu")
    dtype = d.pick(("int32", "int64")) if whole else d.pick(FLOATS)
    a, b = d.array(shape, dtype), d.array(d.broadcast(shape), dtype)
    if whole and name in ("Div", "Pow"):
        b = np.where(b <= 0, 1, b).astype(dtype)
    if d.chance(0.3) and name not in ("PRelu", "Pow", "Div"):
        a, b = b, a
    inputs = [Given(a), some(d, b)]
    if name in ("Max", "Min", "Mean", "Sum"):
        inputs += [Given(d.array(shape, dtype))] * d.integer(0, 1)
        inputs = inputs[: d.integer(1, len(inputs))]
    return Node(name, list(inputs))


@operator("And", "Or", "Xor", "BitwiseAnd", "BitwiseOr", "BitwiseXor", "BitShift", "Mod", "Where")
def _of_kinds(name: str, d: Draw) -> Node:
    shape = d.shape()
    other = d.broadcast(shape)
    if name in ("And", "Or", "Xor"):
        return Node(name, [Given(d.array(s, "bool")) for s in (shape, other)])
    if name == "BitShift":
        pair = [Given(d.integers(s, "uint8", 0, 9)) for s in (shape, other)]
        return Node(name, list(pair), {"direction": d.pick(["LEFT", "RIGHT"])})
    if name == "Where":
        dtype = d.pick([*FLOATS, *INTEGERS])
        values = [Given(d.array(s, dtype)) for s in (shape, other)]
        return Node(name, [Given(d.array(d.broadcast(shape), "bool")), *values])
    if name == "Mod":
        dtype = d.pick([*INTEGERS, "float32"])
        b = d.array(other, dtype)
        b = np.where(b == 0, 3, b).astype(dtype) if dtype != "float32" else b
        fmod = 1 if dtype == "float32" else d.integer(0, 1)
        return Node(name, [Given(d.array(shape, dtype)), Given(b)], {"fmod": fmod})
    dtype = d.pick(INTEGERS)
    return Node(name, [Given(d.array(s, dtype)) for s in (shape, other)])


@operator("Clip")
def _clip(name: str, d: Draw) -> Node:
    dtype = d.pick([*FLOATS, "int32", "int64"])
    low, high = (np.asarray(d.integer(*r), dtype) for r in ((-4, 0), (-1, 4)))
    limits = [None if d.chance(0.2) else Given(v, d.chance(0.7), True) for v in (low, high)]
    while limits and limits[-1] is None:
        limits.pop()
    return Node(name, [Given(d.array(d.shape(), dtype)), *limits])


@operator("Cast")
def _cast(name: str, d: Draw) -> Node:
    start, to = d.pick(list(KINDS)), d.pick(list(KINDS))
    x = d.array(d.shape(), start)
    if start.startswith("float") and not to.startswith("float"):
        x = np.nan_to_num(x, nan=1, posinf=2, neginf=3)
        x = (np.abs(x) % 100).astype(start) if to != "bool" else x
    return Node(name, [Given(np.asarray(x))], {"to": KINDS[to]})


# -- reductions ------------------------------------------------------------------------------------


@operator("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceProd", "ReduceL1",
          "ReduceL2", "ReduceLogSum", "ReduceLogSumExp", "ReduceSumSquare", weight=2)  # fmt: skip
def _reduce(name: str, d: Draw) -> Node:
    whole = d.chance(0.2) and name in ("ReduceSum", "ReduceMax", "ReduceMin", "ReduceProd")
    x = d.array(d.shape(0), d.pick(("int32", "int64")) if whole else d.pick(FLOATS))
    attrs: dict[str, Any] = {"keepdims": d.integer(0, 1)} if d.chance(0.8) else {}
    if d.chance(0.3) and name != "ReduceSum":
        if d.chance(0.8):
            attrs["axes"] = d.axes(x.ndim, 1) or [0]
        return Node(name, [Given(x)], attrs, opset=11)
    if d.chance(0.4):
        attrs["noop_with_empty_axes"] = d.integer(0, 1)
    axes = [ints(d.axes(x.ndim))] if d.chance(0.8) else []
    return Node(name, [Given(x), *axes], attrs)


@operator("ArgMax", "ArgMin")
def _arg(name: str, d: Draw) -> Node:
    x = d.array(d.shape(1), d.pick(("float32", "float64", "int32")))
    x = np.nan_to_num(x, nan=1)
    attrs = {"axis": d.axis(x.ndim), "keepdims": d.integer(0, 1)}
    return Node(name, [Given(x, fixed=True)], {**attrs, "select_last_index": d.integer(0, 1)})


@operator("CumSum", weight=2)
def _cumsum(name: str, d: Draw) -> Node:
    x = d.array(d.shape(1), d.pick(("float32", "float64", "int32", "int64")))
    attrs = {"exclusive": d.integer(0, 1), "reverse": d.integer(0, 1)}
    return Node(name, [Given(x), ints(d.axis(x.ndim))], attrs)


@operator("TopK", weight=2)
def _topk(name: str, d: Draw) -> Node:
    x = d.array(d.shape(1), d.pick(("float32", "float64", "int32", "int64")))
    x = np.nan_to_num(x, nan=1)
    axis = d.axis(x.ndim)
    count = x.shape[axis] if -x.ndim <= axis < x.ndim else 2
    k = count + 1 if d.chance(0.05) else d.integer(0, count)
    attrs = {"axis": axis, "largest": d.integer(0, 1), "sorted": 1}
    return Node(name, [Given(x, fixed=True), ints([k])], attrs, outputs=2)


@operator("Softmax", "LogSoftmax", "Hardmax", "LpNormalization")
def _along(name: str, d: Draw) -> Node:
    x = d.floats(d.shape(1), d.pick(("float32", "float32", "float64")))
    attrs: dict[str, Any] = {"axis": d.axis(x.ndim)} if d.chance(0.8) else {}
    if name == "LpNormalization":
        attrs["p"] = d.pick([1, 2])
    opset = 18 if name == "LpNormalization" else d.pick([11, 18])
    return Node(name, [Given(x, fixed=name == "Hardmax")], attrs, opset=opset)


# -- elements that move ----------------------------------------------------------------------------


def _any(d: Draw, low: int = 1, high: int = 4, least: int = 0) -> Array:
    return d.array(d.shape(low, high, least), d.pick(("float32", "float64", "int32", "int64",
                                                      "uint8", "bool", "float16")))  # fmt: skip


@operator("Slice", weight=4)
def _slice(name: str, d: Draw) -> Node:
    x = _any(d)
    axes = d.axes(x.ndim, 1)
    far = [-(2**63) + 1, 2**63 - 1, -100, 100]

    def place() -> int:
        return int(d.pick(far)) if d.chance(0.1) else d.integer(-8, 8)

    starts, ends = ([place() for _ in axes] for _ in range(2))
    steps = [d.pick([1, 1, 1, 2, 3, -1, -1, -2, -7]) for _ in axes]
    if d.chance(0.03) and steps:
        steps[0] = 0
    if d.chance(0.15):
        attrs = {"starts": starts, "ends": ends, "axes": axes}
        return Node(name, [Given(x)], attrs, opset=9)
    return Node(name, [Given(x), ints(starts), ints(ends), ints(axes), ints(steps)])


@operator("Pad", weight=2)
def _pad(name: str, d: Draw) -> Node:
    x, mode = _any(d), d.pick(["constant", "constant", "reflect", "edge", "wrap"])
    axes = d.axes(x.ndim, 1) if d.chance(0.4) else list(range(x.ndim))
    pads = [d.integer(-1, 3) if d.chance(0.7) else 0 for _ in range(2 * len(axes))]
    inputs: list[Given | None] = [Given(x), ints(pads)]
    if mode == "constant" and d.chance(0.6):
        inputs.append(Given(np.asarray(d.array((), str(x.dtype))), True, True))
    if len(axes) != x.ndim or d.chance(0.2):
        inputs += [None] * (3 - len(inputs)) + [ints(axes)]
    # numpy mirrors as often as it takes, onnxruntime not
    opset = 19 if mode == "wrap" else 18
    return Node(name, inputs, {"mode": mode}, opset=opset, strict=mode != "reflect")


@operator("Concat")
def _concat(name: str, d: Draw) -> Node:
    x = _any(d)
    axis = d.axis(x.ndim)
    parts = [Given(x)]
    for _ in range(d.integer(0, 2)):
        shape = list(x.shape)
        if -x.ndim <= axis < x.ndim:
            shape[axis] = d.extent()
        parts.append(some(d, d.array(shape, str(x.dtype))))
    return Node(name, list(parts), {"axis": axis})


@operator("Split", weight=2)
def _split(name: str, d: Draw) -> Node:
    x = _any(d)
    axis = d.axis(x.ndim)
    extent = x.shape[axis] if -x.ndim <= axis < x.ndim else 4
    count = d.integer(1, 3)
    if d.chance(0.5):
        return Node(name, [Given(x)], {"axis": axis, "num_outputs": count}, count)
    cuts = np.sort(d.rng.integers(0, extent + 1, count - 1))
    sizes = np.diff([0, *cuts, extent])
    if d.chance(0.05):
        sizes[0] += 1
    return Node(name, [Given(x), ints(sizes)], {"axis": axis}, count)


@operator("Squeeze", "Unsqueeze")
def _squeeze(name: str, d: Draw) -> Node:
    x = _any(d, 0)
    if name == "Unsqueeze":
        new = d.integer(0, 2)
        return Node(name, [Given(x), ints(d.axes(x.ndim + new)[:new])])
    ones = [k - x.ndim * d.integer(0, 1) for k, n in enumerate(x.shape) if n == 1]
    axes = ones[: d.integer(1, 4)] or d.axes(x.ndim)
    return Node(name, [Given(x)] + ([ints(axes)] if d.chance(0.7) else []))


@operator("Reshape", "Flatten", "Transpose", "Tile", "Expand", "Shape", "Size", weight=2)
def _shapes(name: str, d: Draw) -> Node:
    x = _any(d, 0)
    if name == "Flatten":
        return Node(name, [Given(x)], {"axis": d.axis(x.ndim + 1)} if d.chance(0.8) else {})
    if name == "Transpose":
        perm = [int(k) for k in d.rng.permutation(x.ndim)]
        return Node(name, [Given(x)], {"perm": perm} if d.chance(0.8) and perm else {})
    if name == "Tile":
        return Node(name, [Given(x), ints([d.integer(0, 3) for _ in x.shape])])
    if name == "Expand":
        return Node(name, [Given(x), ints([d.extent() if d.chance(0.3) else e for e in x.shape])]
                    if d.chance(0.5) else [Given(np.ones((), x.dtype)), ints(x.shape)])  # fmt: skip
    if name == "Size":
        return Node(name, [Given(x)])
    if name == "Shape":
        attrs = {k: d.integer(-6, 6) for k in ("start", "end") if d.chance(0.5)}
        return Node(name, [Given(x)], attrs)
    shape = list(x.shape)
    if len(shape) > 1 and d.chance(0.5):
        k = d.integer(0, len(shape) - 2)
        shape[k : k + 2] = [shape[k] * shape[k + 1]]
    if shape and d.chance(0.4):
        shape[d.integer(0, len(shape) - 1)] = d.pick([-1, 0])
    attrs = {"allowzero": d.integer(0, 1)} if d.chance(0.4) else {}
    return Node(name, [Given(x), ints(shape)], attrs)


@operator("Gather", "GatherElements", weight=2)
def _gather(name: str, d: Draw) -> Node:
    x = _any(d)
    axis = d.axis(x.ndim)
    extent = x.shape[axis] if -x.ndim <= axis < x.ndim else 2
    shape = d.shape(0, 2)
    if name == "GatherElements":
        shape = tuple(d.integer(min(n, 1), n) for n in x.shape)
    outside = d.chance(0.05)  # only what the model holds can be refused
    top = extent if outside else max(extent - 1, 0)
    at = d.integers(shape, d.pick(("int32", "int64")), -extent, top)
    if extent == 0:
        at = at[..., :0] if at.ndim else at
    return Node(name, [Given(x), Given(at, outside or d.chance(0.5), True)], {"axis": axis})


@operator("GatherND", "ScatterND", "ScatterElements", weight=2)
def _points(name: str, d: Draw) -> Node:
    x = d.array(d.shape(1, 4, least=0 if d.chance(0.1) else 1), d.pick(("float32", "int64")))
    if name == "ScatterElements":
        axis = d.axis(x.ndim)
        extent = x.shape[axis] if -x.ndim <= axis < x.ndim else 2
        shape = tuple(d.integer(min(n, 1), n) for n in x.shape)
        at = d.integers(shape, "int64", -extent, max(extent - 1, 0))
        reduction = d.pick(["none", "add", "mul", "max", "min"])
        if reduction == "none" and -x.ndim <= axis < x.ndim:  # order is nobody's: no index twice
            at = np.argsort(d.rng.random(x.shape), axis)[tuple(map(slice, shape))]
        updates = Given(d.array(shape, str(x.dtype)))
        return Node(name, [Given(x), Given(at, d.chance(0.5), True), updates],
                    {"axis": axis, "reduction": reduction})  # fmt: skip
    batch = d.integer(0, 1) if name == "GatherND" and x.ndim > 1 else 0
    depth = d.integer(1, x.ndim - batch)
    points = (*x.shape[:batch], *d.shape(0, 2))
    limits = [max(n, 1) for n in x.shape[batch : batch + depth]]
    spread = d.rng.integers([-n for n in limits], limits, (*points, depth))
    if name == "GatherND":
        return Node(name, [Given(x), Given(spread, d.chance(0.5), True)], {"batch_dims": batch})
    flat = d.rng.permutation(int(np.prod(limits)))[: d.extent()]
    spread = np.stack(np.unravel_index(flat, limits), -1).astype("int64")
    updates = Given(d.array((*spread.shape[:-1], *x.shape[depth:]), str(x.dtype)))
    reduction = d.pick(["none", "add", "mul", "max", "min"])
    return Node(name, [Given(x), Given(spread, d.chance(0.5), True), updates],
                {"reduction": reduction})  # fmt: skip


@operator("OneHot")
def _one_hot(name: str, d: Draw) -> Node:
    at = d.array(d.shape(0, 3), d.pick(("int64", "int32", "float32")))
    kind = str(at.dtype)
    at = np.asarray(np.nan_to_num(np.round(at), nan=1, posinf=2, neginf=1).clip(-9, 9), kind)
    values = d.array((2,), d.pick(("float32", "int64")))
    return Node(name, [Given(at, fixed=True), ints(d.integer(0, 6)), Given(values)],
                {"axis": d.axis(at.ndim + 1)}, strict=at.ndim > 0)  # fmt: skip


@operator("Range", "ConstantOfShape", "EyeLike", "Trilu", "NonZero", "Compress", "Unique")
def _made(name: str, d: Draw) -> Node:
    if name == "Range":
        kind = d.pick(("int64", "int32", "float32"))
        step = d.pick([1, 2, -1, -3])
        values = [np.asarray(v, kind) for v in (d.integer(-5, 5), d.integer(-5, 9), step)]
        return Node(name, [Given(v, True, True) for v in values])
    if name == "ConstantOfShape":
        return Node(name, [ints(d.shape(0, 3))])
    if name == "EyeLike":
        return Node(name, [Given(d.array(d.shape(2, 2), "float32"))], {"k": d.integer(-6, 6)})
    if name == "Trilu":
        x = d.array(d.shape(2, 4), d.pick(("float32", "int64")))
        return Node(name, [Given(x), ints(d.integer(-7, 7))], {"upper": d.integer(0, 1)})
    x = d.integers(d.shape(1, 3, 1), "int64", 0, 3)  # onnxruntime dies of Unique of nothing
    if name == "NonZero":
        return Node(name, [Given(x, fixed=True)])
    if name == "Unique":
        attrs = {"axis": d.axis(x.ndim)} if d.chance(0.5) else {}
        return Node(name, [Given(x, fixed=True)], {**attrs, "sorted": 1}, 4)
    axis = d.axis(x.ndim)
    attrs = {"axis": axis} if d.chance(0.7) else {}
    count = x.shape[axis] if attrs and -x.ndim <= axis < x.ndim else x.size
    held = d.array((d.integer(0, count),), "bool")
    return Node(name, [Given(x), Given(held, True, True)], attrs)


@operator("DepthToSpace", "SpaceToDepth", "ReverseSequence", "CenterCropPad")
def _rearranged(name: str, d: Draw) -> Node:
    b = d.integer(1, 3)
    n, c, h, w = (d.extent() for _ in range(4))
    if name == "DepthToSpace":
        x = d.floats((n, c * b * b, h, w))
        return Node(name, [Given(x)], {"blocksize": b, "mode": d.pick(["DCR", "CRD"])})
    if name == "SpaceToDepth":
        return Node(name, [Given(d.floats((n, c, h * b, w * b)))], {"blocksize": b})
    if name == "CenterCropPad":
        x = d.floats(d.shape(1, 3))
        return Node(name, [Given(x), ints([d.extent() for _ in x.shape])])
    time = d.integer(0, 1)
    x = d.floats((h, w, c))
    lengths = d.integers((x.shape[1 - time],), "int64", 0, x.shape[time])
    return Node(name, [Given(x), Given(lengths, d.chance(0.5), True)],
                {"time_axis": time, "batch_axis": 1 - time})  # fmt: skip
