"""Functions of relay, and numpy.

In: `Draw`s.  Out: calls with random attributes; what numpy refuses, relay has to refuse.
Read next: `case.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from drills.differential.built import both_ways
from drills.differential.case import Case, Refused
from drills.differential.draw import FLOATS, INTEGERS, Array, Draw
from drills.differential.sides import Side
from tilewright.base.dtype import DType
from tilewright_tvm import relay


@dataclass(frozen=True)
class Call:
    """
    text: attributes; arrays: of the arguments; ours: of expressions; peer: of arrays
    jumps: the arguments are exact, and moving them by a rounding would excuse a wrong step
    """

    text: str
    arrays: list[Array]
    ours: Callable[..., Any]
    peer: Callable[..., Any]
    strict: bool = True
    jumps: bool = False


OPERATORS: dict[str, Callable[[str, Draw], Call]] = {}


def operator(*names: str) -> Callable[[Callable[[str, Draw], Call]], Any]:
    def register(make: Callable[[str, Draw], Call]) -> Any:
        OPERATORS.update(dict.fromkeys(names, make))
        return make

    return register


def _any(d: Draw, low: int = 0, high: int = 4, least: int = 0) -> Array:
    return d.array(d.shape(low, high, least), d.pick([*FLOATS, *INTEGERS, "bool"]))


def _erf(x: Array) -> Array:
    from scipy.special import erf

    return np.asarray(erf(x))


_UNARY: dict[str, Any] = {
    "exp": np.exp, "log": np.log, "log2": np.log2, "log10": np.log10, "sqrt": np.sqrt,
    "tanh": np.tanh, "sin": np.sin, "cos": np.cos, "tan": np.tan, "asin": np.arcsin,
    "acos": np.arccos, "atan": np.arctan, "sinh": np.sinh, "cosh": np.cosh, "asinh": np.arcsinh,
    "acosh": np.arccosh, "atanh": np.arctanh, "floor": np.floor, "ceil": np.ceil, "round": np.rint,
    "trunc": np.trunc, "sign": np.sign, "abs": np.abs, "negative": np.negative,
    "isnan": np.isnan, "isinf": np.isinf, "isfinite": np.isfinite,
    "rsqrt": lambda x: (1 / np.sqrt(x)).astype(x.dtype),
    "sigmoid": lambda x: (1 / (1 + np.exp(-x))).astype(x.dtype),
}  # fmt: skip


@operator(*_UNARY)
def _unary(name: str, d: Draw) -> Call:
    x = d.array(d.shape(), d.pick(("float32", "float64")))
    return Call("", [x], getattr(relay, name), _UNARY[name])


_BINARY: dict[str, Any] = {
    "add": np.add, "subtract": np.subtract, "multiply": np.multiply, "divide": np.divide,
    "power": np.power, "mod": np.fmod, "floor_mod": np.mod, "floor_divide": np.floor_divide,
    "maximum": np.maximum, "minimum": np.minimum, "equal": np.equal, "not_equal": np.not_equal,
    "less": np.less, "less_equal": np.less_equal, "greater": np.greater,
    "greater_equal": np.greater_equal,
}  # fmt: skip


@operator(*_BINARY)
def _binary(name: str, d: Draw) -> Call:
    shape = d.shape()
    whole = name not in ("divide", "power") and d.chance(0.3)
    dtype = d.pick(("int32", "int64", "uint8") if whole else ("float32", "float64"))
    arrays = [d.array(shape, dtype), d.array(d.broadcast(shape), dtype)]
    jumps = name in ("mod", "floor_mod", "floor_divide")
    if whole and jumps:
        arrays[1] = np.where(arrays[1] == 0, 3, arrays[1]).astype(dtype)
    elif jumps and d.chance(0.5):  # near multiples: 5 by 0.1, which no binary number is
        arrays = [np.round(arrays[0]), np.asarray(np.round(arrays[1]) / 10, dtype)]
    return Call("", arrays, getattr(relay, name), _BINARY[name], jumps=jumps)


_REDUCED: dict[str, Any] = {
    "sum": np.sum, "prod": np.prod, "max": np.max, "min": np.min, "mean": np.mean, "std": np.std,
    "variance": np.var,
}  # fmt: skip


@operator(*_REDUCED)
def _reduction(name: str, d: Draw) -> Call:
    x = d.array(d.shape(1), d.pick(("float32", "float64")))
    axis: Any = None if d.chance(0.2) else d.axis(x.ndim) if d.chance(0.4) else d.axes(x.ndim, 1)
    keep = d.chance(0.5)
    at = tuple(axis) if isinstance(axis, list) else axis
    return Call(
        f"axis={axis}, keepdims={keep}", [x],
        lambda v: getattr(relay, name)(v, axis, keep),
        lambda a: _REDUCED[name](a, axis=at, keepdims=keep),
        strict=name not in ("max", "min"),  # numpy has no greatest of nothing
    )  # fmt: skip


@operator("argmax", "argmin")
def _arg(name: str, d: Draw) -> Call:
    x = np.nan_to_num(d.array(d.shape(1), d.pick(("float32", "int32"))), nan=1)
    axis, keep = d.axis(x.ndim), d.chance(0.5)
    return Call(
        f"axis={axis}, keepdims={keep}", [x], lambda v: getattr(relay, name)(v, axis, keep),
        lambda a: getattr(np, name)(a, axis, keepdims=keep).astype("int32"),
    )  # fmt: skip


@operator("squeeze", "expand_dims", "transpose", "reshape", "reverse", "repeat", "tile", "stack",
          "concatenate", "split", "broadcast_to", "cast")  # fmt: skip
def _moved(name: str, d: Draw) -> Call:
    x = _any(d, 1)
    axis = d.axis(x.ndim)
    if name == "squeeze":
        ones = [k for k, n in enumerate(x.shape) if n == 1]
        at = None if d.chance(0.3) else d.axes(x.ndim) if d.chance(0.2) else ones[: d.integer(0, 4)]
        return Call(f"axis={at}", [x], lambda v: relay.squeeze(v, at),
                    lambda a: np.squeeze(a, None if at is None else tuple(at)))  # fmt: skip
    if name == "expand_dims":
        axis = d.axis(x.ndim + 1)
        return Call(f"axis={axis}", [x], lambda v: relay.expand_dims(v, axis),
                    lambda a: np.expand_dims(a, axis))  # fmt: skip
    if name == "transpose":
        order = None if d.chance(0.3) else [int(k) for k in d.rng.permutation(x.ndim)]
        if order and d.chance(0.3):
            order[0] -= x.ndim
        if order and d.chance(0.05):
            order[0] = order[-1]
        return Call(f"axes={order}", [x], lambda v: relay.transpose(v, order),
                    lambda a: np.transpose(a, order))  # fmt: skip
    if name == "reshape":
        shape = [int(k) for k in d.rng.permutation(x.shape)]
        shape = [n if n else 1 for n in shape] if x.size else [-1]
        if shape and d.chance(0.4):
            shape[0] = -1
        return Call(f"newshape={shape}", [x], lambda v: relay.reshape(v, shape),
                    lambda a: np.reshape(a, shape))  # fmt: skip
    if name == "reverse":
        return Call(f"axis={axis}", [x], lambda v: relay.reverse(v, axis),
                    lambda a: np.flip(a, axis))  # fmt: skip
    if name == "repeat":
        n = d.integer(0, 3)
        return Call(f"repeats={n}, axis={axis}", [x], lambda v: relay.repeat(v, n, axis),
                    lambda a: np.repeat(a, n, axis))  # fmt: skip
    if name == "tile":
        reps = [d.integer(0, 2) for _ in range(d.integer(1, 4))]
        return Call(f"reps={reps}", [x], lambda v: relay.tile(v, reps), lambda a: np.tile(a, reps))
    if name == "cast":
        to = d.pick(["float32", "float64", "int32", "int64", "bool"])
        if x.dtype.kind == "f":
            x = np.nan_to_num(x, nan=1, posinf=2, neginf=3)
        return Call(f"dtype={to}", [x], lambda v: relay.cast(v, to), lambda a: a.astype(to))
    if name == "broadcast_to":
        small = d.array(d.broadcast(x.shape), str(x.dtype))
        return Call(f"shape={x.shape}", [small], lambda v: relay.broadcast_to(v, x.shape),
                    lambda a: np.broadcast_to(a, x.shape))  # fmt: skip
    if name == "split":
        cuts: Any = d.integer(1, 3) if d.chance(0.5) else sorted(
            d.integer(0, 5) for _ in range(d.integer(1, 2))
        )  # fmt: skip
        return Call(f"{cuts}, axis={axis}", [x],
                    lambda v: relay.split(v, cuts, axis).astuple(),
                    lambda a: np.split(a, cuts, axis), strict=isinstance(cuts, int))  # fmt: skip
    others = [d.array(x.shape, str(x.dtype)) for _ in range(d.integer(0, 2))]
    if name == "stack":
        axis = d.axis(x.ndim + 1)
    return Call(f"axis={axis}", [x, *others],
                lambda *v: getattr(relay, name)(list(v), axis),
                lambda *a: getattr(np, name)(a, axis))  # fmt: skip


@operator("strided_slice")
def _slice(name: str, d: Draw) -> Call:
    x = _any(d, 1)
    count = d.integer(1, x.ndim)
    begin, end = ([d.integer(-8, 8) for _ in range(count)] for _ in range(2))
    steps = [d.pick([1, 1, 2, 3, -1, -2]) for _ in range(count)]
    return Call(
        f"begin={begin}, end={end}, strides={steps}", [x],
        lambda v: relay.strided_slice(v, begin, end, steps),
        lambda a: a[tuple(map(slice, begin, end, steps))],
    )  # fmt: skip


@operator("nn.pad", "take", "gather", "cumsum", "cumprod", "clip", "where", "arange", "full",
          "one_hot", "topk", "argsort", "sort", "trilu", "meshgrid", "sequence_mask")  # fmt: skip
def _others(name: str, d: Draw) -> Call:
    x = np.nan_to_num(d.array(d.shape(1), d.pick(("float32", "float64", "int32", "int64"))), nan=1)
    axis = d.axis(x.ndim)
    whole = axis % x.ndim if -x.ndim <= axis < x.ndim else 0
    extent = x.shape[whole]
    if name == "nn.pad":
        width = [(d.integer(0, 2), d.integer(0, 2)) for _ in x.shape]
        value = d.integer(-3, 3)
        return Call(f"{width}, {value}", [x], lambda v: relay.nn.pad(v, width, value),
                    lambda a: np.pad(a, width, constant_values=value))  # fmt: skip
    if name == "take":
        mode = d.pick(["clip", "wrap"])
        at = d.integers(d.shape(0, 2), "int32", -9, 9)
        return Call(f"axis={axis}, mode={mode}", [x, at],
                    lambda v, i: relay.take(v, i, axis, mode=mode),
                    lambda a, i: np.take(a, i, axis, mode=mode))  # fmt: skip
    if name == "gather":
        shape = [n if k != whole else d.extent() for k, n in enumerate(x.shape)]
        at = d.integers(shape, "int32", 0, max(extent - 1, 0))
        return Call(f"axis={axis}", [x, at], lambda v, i: relay.gather(v, axis, i),
                    lambda a, i: np.take_along_axis(a, i, axis))  # fmt: skip
    if name in ("cumsum", "cumprod"):
        return Call(f"axis={axis}", [x], lambda v: getattr(relay, name)(v, axis),
                    lambda a: getattr(np, name)(a, axis, dtype=a.dtype))  # fmt: skip
    if name == "clip":
        low, high = d.integer(-4, 0), d.integer(0, 4)
        return Call(f"{low}, {high}", [x], lambda v: relay.clip(v, low, high),
                    lambda a: np.clip(a, low, high))  # fmt: skip
    if name == "where":
        held = d.array(d.broadcast(x.shape), "bool")
        other = d.array(d.broadcast(x.shape), str(x.dtype))
        return Call("", [held, x, other], relay.where, np.where)
    if name == "arange":
        start, stop, step = d.integer(-5, 5), d.integer(-5, 9), d.pick([1, 2, -1, -3, 0])
        kind = d.pick(["int32", "float32"])
        return Call(f"{start}, {stop}, {step}, {kind}", [np.zeros((), kind)],
                    lambda v: relay.arange(relay.const(start), relay.const(stop), relay.const(step),
                                           kind) + v,
                    lambda a: np.arange(start, stop, step, kind) + a)  # fmt: skip
    if name == "full":
        return Call(f"{x.shape}", [np.asarray(2.5, "float32")],
                    lambda v: relay.full(v, x.shape, "float32"),
                    lambda a: np.full(x.shape, a, "float32"))  # fmt: skip
    if name == "one_hot":
        depth, at = d.integer(0, 5), d.integers(d.shape(0, 3), "int32", -2, 6)
        return Call(f"depth={depth}", [at],
                    lambda i: relay.one_hot(i, relay.const(2.0), relay.const(-1.0), depth, -1,
                                            "float32"),
                    lambda i: np.where(i[..., None] == np.arange(depth), 2, -1).astype("float32"),
                    )  # fmt: skip
    if name in ("topk", "argsort", "sort"):
        up = d.chance(0.5)
        if name == "sort":
            return Call(
                f"axis={axis}, {up}",
                [x],
                lambda v: relay.sort(v, axis, up),
                lambda a: np.sort(a, axis) if up else np.flip(np.sort(a, axis), axis),
            )
        x = np.argsort(d.rng.random(x.shape), axis=whole).astype(x.dtype)
        if name == "argsort":
            return Call(f"axis={axis}, {up}", [x], lambda v: relay.argsort(v, axis, up),
                        lambda a: np.argsort(a if up else -a, axis).astype("int32"))  # fmt: skip
        k = d.integer(1, max(extent, 1))

        def most(a: Array) -> Array:
            order = np.sort(a, axis)
            order = order if up else np.flip(order, axis)
            if k > a.shape[axis]:
                raise ValueError("k")
            return np.take(order, np.arange(k), axis)

        return Call(f"k={k}, axis={axis}, {up}", [x],
                    lambda v: relay.topk(v, k, axis, "values", up), most)  # fmt: skip
    if name == "trilu":
        k, upper = d.integer(-5, 5), d.chance(0.5)
        x = d.array(d.shape(2, 4), "float32")
        return Call(f"k={k}, upper={upper}", [x], lambda v: relay.trilu(v, k, upper),
                    lambda a: (np.triu if upper else np.tril)(a, k))  # fmt: skip
    if name == "meshgrid":
        parts = [d.array((d.extent(),), "float32") for _ in range(d.integer(1, 3))]
        way = d.pick(["ij", "xy"])
        return Call(way, parts, lambda *v: relay.meshgrid(list(v), way).astuple(),
                    lambda *a: np.meshgrid(*a, indexing=way))  # fmt: skip
    x = d.array(d.shape(2, 4), "float32")
    lengths = d.integers((x.shape[1],), "int32", 0, 6)

    def masked(a: Array, n: Array) -> Array:
        inside = np.arange(a.shape[0])[:, None] < n
        return np.where(inside.reshape(inside.shape + (1,) * (a.ndim - 2)), a, np.float32(7))

    return Call("", [x, lengths], lambda v, n: relay.sequence_mask(v, n, 7.0), masked)


@operator("nn.dense", "nn.batch_matmul", "nn.softmax", "nn.log_softmax", "nn.relu", "einsum",
          "nn.leaky_relu", "matmul")  # fmt: skip
def _products(name: str, d: Draw) -> Call:
    m, k, n = (d.extent() for _ in range(3))
    dtype = d.pick(("float32", "float64"))
    if name in ("nn.relu", "nn.leaky_relu"):
        x = d.floats(d.shape(), dtype)
        if name == "nn.relu":
            return Call("", [x], relay.nn.relu, lambda a: np.maximum(a, a.dtype.type(0)))
        return Call("", [x], lambda v: relay.nn.leaky_relu(v, 0.1),
                    lambda a: np.where(a > 0, a, a * a.dtype.type(0.1)))  # fmt: skip
    if name in ("nn.softmax", "nn.log_softmax"):
        x = d.floats(d.shape(1), dtype)
        axis = d.axis(x.ndim)

        def soft(a: Array) -> Array:
            if not a.shape[axis]:
                return a
            away = a - a.max(axis, keepdims=True)
            total = np.exp(away).sum(axis, keepdims=True)
            return away - np.log(total) if "log" in name else np.exp(away) / total

        made = relay.nn.softmax if name == "nn.softmax" else relay.nn.log_softmax
        return Call(f"axis={axis}", [x], lambda v: made(v, axis), soft)
    if name == "nn.batch_matmul":
        b = d.extent()
        arrays = [d.floats((b, m, k), dtype), d.floats((b, n, k), dtype)]
        return Call("", arrays, relay.nn.batch_matmul, lambda a, w: a @ w.transpose(0, 2, 1))
    if name == "einsum":
        arrays = [d.floats((m, k), dtype), d.floats((k, n), dtype)]
        return Call("", arrays, lambda a, b: relay.einsum([a, b], "ij,jk->ki"),
                    lambda a, b: np.einsum("ij,jk->ki", a, b))  # fmt: skip
    arrays = [d.floats((m, k), dtype), d.floats((n, k), dtype)]
    if name == "matmul":
        return Call("", arrays, lambda a, b: relay.nn.matmul(a, b, transpose_b=True),
                    lambda a, b: a @ b.T)  # fmt: skip
    return Call("", arrays, relay.nn.dense, lambda a, w: a @ w.T)


def make(name: str, d: Draw) -> Case:
    call = OPERATORS[name](name, d)

    def peer(data: Sequence[Array]) -> list[Array]:
        try:
            found = call.peer(*data)
        except Exception as error:
            raise Refused(f"{type(error).__name__}: {error}") from None
        return [np.asarray(v) for v in (found if isinstance(found, (list, tuple)) else [found])]

    def imported() -> Any:
        params = [
            relay.var(f"x{k}", shape=a.shape, dtype=str(DType(a.dtype)))
            for k, a in enumerate(call.arrays)
        ]
        return relay.IRModule.from_expr(relay.Function(params, call.ours(*params)))

    feeds = {f"x{k}": a for k, a in enumerate(call.arrays)}
    shown = ", ".join(f"{a.dtype}{list(a.shape)}" for a in call.arrays)
    smooth = [] if call.jumps else call.arrays
    return Case(f"relay.{name}({shown}) {call.text}", smooth,
                lambda data: peer(data or call.arrays),
                both_ways(imported, feeds, d), call.strict)  # fmt: skip


SIDE = Side(dict.fromkeys(OPERATORS, 1), make)
