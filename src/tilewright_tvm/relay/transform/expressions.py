"""Chains of cheap operators become shorter ones, in the spelling that they have.

In: any module.  Out: an equal one (to rounding) with fewer casts, limits, moves and constants.  It
is `relay.transform.SimplifyExpr`; builds have their own spelling of everything
(`graph/passes/canonicalize.py`) and join shifts and scales where that removes work
(`graph/passes/shift.py`).  Read next: `graph/passes/dead_code.py`, `permutation.py`.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Call, Constant, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.passes.dead_code import simpler
from tilewright.graph.passes.shift import JOIN
from tilewright.graph.traversal import each_function, is_call, op_name, rewrite, with_body
from tilewright_tvm.relay.transform.permutation import joined_moves

WIDEST_COUNT = 16  # bits of integers of which a float32 keeps every step of a scale apart


def simplify_expressions(mod: IRModule) -> IRModule:
    """What `eliminate_dead_code` drops, and besides (c: constants)

    x * full of one number      ->  x * the number
    0 + x, 1 * x, x - 0, x / 1  ->  x
    x + x                       ->  x * 2
    (x + c1) + c2, (x * c1) * c2 ->  x + c, x * c
    (x + c1) * c2               ->  x * c2 + c
    c / sqrt(x)                 ->  c * rsqrt(x)
    cast(cast(x))               ->  cast(x), where the inner one loses nothing
    clip(cast(clip(x)))         ->  cast(clip(x)); clip(x) -> x, where all numbers are inside
    transpose(reshape(transpose(x))) -> as few of them as there can be
    argmax(c * cast(x))         ->  argmax(x), argmin and topk alike, where c > 0 and x is narrow
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def numbers_for_tensors(mod: IRModule) -> IRModule:
    """Tensors of one number, as the zeros and ones that gradients begin with, where they are
    operands: they disappear, or become the number.

    x + zeros, x * ones, x - zeros, x / ones  ->  x
    x * full of one number                    ->  x * the number
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _without_tensors)))


def _without_tensors(old: Expr, node: Expr) -> Expr:
    if not isinstance(node, Call) or op_name(node) not in NEUTRAL_SIDES:
        return node
    made = _neutral(node)
    return _single(node) if made is node else made


def _visit(old: Expr, node: Expr) -> Expr:
    """`node` by the rules until none applies; all that it reads is simple already."""
    while True:
        made = simpler(node)
        if made is node and isinstance(node, Call):
            rules = RULES.get(op_name(node), ())
            made = next((m for r in rules if (m := r(node)) is not node), node)
        if made is node or made.checked_type != node.checked_type:
            return node
        node = made


def _number(value: Expr) -> float | None:
    """The number of a constant that holds one number only, or of one stretched to a shape."""
    if isinstance(value, Call) and is_call(value, "broadcast_to"):
        value = value.args[0]
    if not isinstance(value, Constant) or not value.data.size:
        return None
    first = value.data.reshape(-1)[0]
    exact = first.dtype.kind != "i" or abs(int(first)) <= 2**53
    return float(first) if exact and np.all(value.data == first) else None


def _single(node: Call) -> Expr:
    """An operand that is one number everywhere, and stretches nothing, as that number."""
    args = list(node.args)
    for k, arg in enumerate(args):
        number, other = _number(arg), args[1 - k]
        if number is not None and arg.shape and other.checked_type == node.checked_type:
            args[k] = Constant(np.asarray(number, arg.dtype.storage))
            return Call(node.op, args, node.attrs)
    return node


def _neutral(node: Call) -> Expr:
    left, right = node.args
    first, second = NEUTRAL_SIDES[op_name(node)]
    if second is not None and _number(right) == second and left.checked_type == node.checked_type:
        return left
    if first is not None and _number(left) == first and right.checked_type == node.checked_type:
        return right
    return node


def _twice(node: Call) -> Expr:
    a, b = node.args
    two = np.asarray(2, node.dtype.storage)
    return call("multiply", a, Constant(two)) if a is b else node


def _parts(node: Expr, name: str) -> tuple[Expr, Array] | None:
    """(x, c) of `x op c` or `c op x`."""
    if not isinstance(node, Call) or not is_call(node, name):
        return None
    x, c = node.args
    if isinstance(x, Constant):
        x, c = c, x
    return (x, c.data) if isinstance(c, Constant) and not isinstance(x, Constant) else None


def _joined(node: Call) -> Expr:
    """(x op c1) op c2."""
    name = op_name(node)
    outer = _parts(node, name)
    inner = None if outer is None else _parts(outer[0], name)
    if outer is None or inner is None:
        return node
    together = _computed(JOIN[name], inner[1], outer[1])
    return node if together is None else call(name, inner[0], together)


def _distributed(node: Call) -> Expr:
    """(x + c1) * c2."""
    outer = _parts(node, "multiply")
    inner = None if outer is None else _parts(outer[0], "add")
    if outer is None or inner is None:
        return node
    shift = _computed(np.multiply, inner[1], outer[1])
    if shift is None:
        return node
    scaled = _visit(node, call("multiply", inner[0], Constant(outer[1])))
    return call("add", scaled, shift)


def _computed(function: Callable[[Array, Array], Array], a: Array, b: Array) -> Constant | None:
    with np.errstate(over="ignore", under="ignore"):
        made = np.asarray(function(a, b), a.dtype)
    finite = made.dtype.kind in "iu" or np.all(np.isfinite(made))
    return Constant(made) if finite else None


def _root(node: Call) -> Expr:
    c, root = node.args
    if not isinstance(c, Constant) or not isinstance(root, Call) or not is_call(root, "sqrt"):
        return node
    inverse = call("rsqrt", root.args[0])
    return inverse if _number(c) == 1 and not c.shape else call("multiply", c, inverse)


def _cast(node: Call) -> Expr:
    (inner,) = node.args
    if isinstance(inner, Constant) and not inner.shape:
        with np.errstate(over="ignore", invalid="ignore"):
            return Constant(np.asarray(inner.data.astype(node.dtype.storage)))
    if not isinstance(inner, Call) or not is_call(inner, "cast"):
        return node
    (x,) = inner.args
    middle = inner.dtype
    whole = middle.is_int and node.dtype.is_int and x.dtype.is_float  # both drop the fraction
    if _holds(middle, x.dtype) or (_inside(x, middle) and (x.dtype.is_int or whole)):
        return call("cast", x, dtype=node.dtype)
    return node


def _holds(wide: DType, narrow: DType) -> bool:
    """Whether every number of the type `narrow` is one of `wide`."""
    if narrow.kind == "bool" or wide.kind == "bool":
        return wide == narrow or narrow.kind == "bool"
    if narrow.is_float:
        inside = wide.greatest >= narrow.greatest and wide.smallest <= narrow.smallest
        return wide.is_float and wide.digits >= narrow.digits and inside
    if wide.is_float:
        return bool(2**wide.digits >= max(narrow.greatest, -narrow.least) <= wide.greatest)
    return bool(wide.least <= narrow.least and narrow.greatest <= wide.greatest)


def _inside(x: Expr, kind: DType) -> bool:
    """Whether `x` is limited to what an integer type holds."""
    if not isinstance(x, Call) or not is_call(x, "clip") or not kind.is_int:
        return False
    return bool(kind.least <= x.attrs.a_min and x.attrs.a_max <= kind.greatest)


def _clip(node: Call) -> Expr:
    (inner,) = node.args
    kind, low, high = node.dtype, node.attrs.a_min, node.attrs.a_max
    if kind.is_int and low <= kind.least and high >= kind.greatest:
        return inner
    if not isinstance(inner, Call) or not is_call(inner, "cast") or not kind.is_int:
        return node
    (x,) = inner.args
    whole = float(low).is_integer() and float(high).is_integer()
    if not _inside(x, kind) or not whole or not isinstance(x, Call):
        return node
    low, high = max(low, x.attrs.a_min), min(high, x.attrs.a_max)
    if low > high:
        return node
    return call("cast", call("clip", x.args[0], a_min=low, a_max=high), dtype=kind)


def _ordered(node: Call) -> Expr:
    """What finds places of the least or greatest, of a value that rises with another."""
    source = value = node.args[0]
    while (below := _rising(value)) is not None:
        value = below
        if value.dtype.is_int and value.dtype.bits <= WIDEST_COUNT:
            source = value
    return node if source is node.args[0] else Call(node.op, (source,), node.attrs)


def _rising(value: Expr) -> Expr | None:
    """x, where `value` is x in a type that holds it, plus a number or times a positive one."""
    if not isinstance(value, Call):
        return None
    if is_call(value, "cast") and _holds(value.dtype, value.args[0].dtype):
        return value.args[0]
    if is_call(value, "cast") and value.dtype == "float32" and value.args[0].dtype == "int32":
        return value.args[0]  # of a narrow integer and a number, as the chain's end must be one
    if not is_call(value, "add", "subtract", "multiply"):
        return None
    x, c = value.args
    number = _number(c)
    if number is None or x.checked_type != value.checked_type:
        return None
    if is_call(value, "multiply"):
        return x if x.dtype == "float32" and 1e-20 < number < 1e20 else None
    return x if x.dtype == "int32" and abs(number) <= 2**WIDEST_COUNT else None


NEUTRAL_SIDES: dict[str, tuple[float | None, float | None]] = {
    "add": (0, 0), "subtract": (None, 0), "multiply": (1, 1), "divide": (None, 1),
}  # fmt: skip
Rule = Callable[[Call], Expr]
RULES: dict[str, tuple[Rule, ...]] = {
    "add": (_neutral, _single, _twice, _joined),
    "multiply": (_neutral, _single, _joined, _distributed),
    "subtract": (_neutral, _single),
    "divide": (_neutral, _single, _root),
    "cast": (_cast,),
    "clip": (_clip,),
    "transpose": (joined_moves,),
    "reshape": (joined_moves,),
    **dict.fromkeys(("argmax", "argmin", "topk"), (_ordered,)),
}
