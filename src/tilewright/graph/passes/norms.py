"""Norms and softmax that an exporter took apart become one operator again.

In: a canonical module.  Out: an equal one, with `nn.standardize` and `nn.softmax` for what computes
the same from means, roots and exponentials: each is then one kernel.  What is recognised is the
flow of values, in any of the spellings below; names do not matter.  Read next: `moves.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from tilewright.graph.expr import Call, Constant, Expr, IRModule
from tilewright.graph.op import call
from tilewright.graph.op.reduction import reduced_axes
from tilewright.graph.passes.dead_code import is_view
from tilewright.graph.traversal import each_function, is_call, rewrite, users, with_body

Axes = tuple[int, ...]
Readers = Mapping[Expr, Sequence[Expr]]


def join_norms(mod: IRModule) -> IRModule:
    """Rewrite, with m and the sums along the same axes, which stay with one element:

    c / sqrt(mean(c * c) + e), c = x - m, m = mean(x)  ->  standardize(x, epsilon=e)
    x / sqrt(mean(x * x) + e)                          ->  standardize(x, epsilon=e, center=False)
    exp(x - max(x)) / sum(exp(x - max(x)))             ->  softmax(x)

    mean: also sum(..) times one by the number of elements; c * c: also c to the power of 2
    .. / sqrt(v): also .. * rsqrt(v), .. * (1 / sqrt(v)), and v to the power of 0.5 or -0.5
    A step that something else reads as well is computed anyway, and the rest stays as it is.
    """
    return each_function(mod, lambda f: with_body(f, _rewritten(f.body)))


def widen_inside(mod: IRModule) -> IRModule:
    """standardize(view(cast(x)))  ->  standardize(cast(view(x))), where nothing else reads the cast
    of halves: `fuse` has both in one kernel then."""

    def change(body: Expr) -> Expr:
        readers = users(body)

        def visit(old: Expr, node: Expr) -> Expr:
            if not is_call(node, "nn.standardize"):
                return node
            assert isinstance(old, Call) and isinstance(node, Call)
            view, own = node.args[0], old.args[0]
            if not is_view(view) or not isinstance(view, Call) or not isinstance(own, Call):
                return node
            cast = view.args[0]
            if not widens(cast) or len(readers[own]) > 1 or len(readers[own.args[0]]) > 1:
                return node
            assert isinstance(cast, Call)
            seen = call("reshape", cast.args[0], newshape=view.shape)
            return Call(node.op, (Call(cast.op, (seen,), cast.attrs),), node.attrs)

        return rewrite(body, visit)

    return each_function(mod, lambda f: with_body(f, change(f.body)))


def widens(node: Expr) -> bool:
    """Whether `node` is a cast of floats to a type that has them all."""
    if not is_call(node, "cast") or not isinstance(node, Call):
        return False
    source = node.args[0].dtype
    return source.is_float and node.dtype.is_float and source.bits < node.dtype.bits


def _rewritten(body: Expr) -> Expr:
    readers, new = users(body), dict[Expr, Expr]()

    def visit(old: Expr, node: Expr) -> Expr:
        found = None
        if isinstance(old, Call) and is_call(old, "multiply", "divide"):
            found = _standardized(old, readers) or _softmax(old, readers)
        if found is not None:
            kept, make = found
            node = make(new[kept])
        new[old] = node
        return node

    return rewrite(body, visit)


Found = tuple[Expr, Callable[[Expr], Expr]]  # what is normalised, and how


def _standardized(node: Call, readers: Readers) -> Found | None:
    for data, root in _by_root(node):
        variance = _under_root(root, readers)
        if variance is None or data.shape != node.shape:
            continue
        squares, axes, epsilon = variance
        if not _is_square(squares, data):
            continue
        whole = _centered(data)
        if whole is not None and whole[1] == axes:
            return whole[0], _standardize(axes, epsilon, center=True)
        return data, _standardize(axes, epsilon, center=False)
    return None


def _standardize(axes: Axes, epsilon: float, center: bool) -> Callable[[Expr], Expr]:
    return lambda x: call("nn.standardize", x, axis=axes, epsilon=epsilon, center=center)


def _softmax(node: Call, readers: Readers) -> Found | None:
    if not is_call(node, "divide"):
        return None
    above, total = node.args
    summed = _reduced(total, "sum")
    if summed is None or not is_call(above, "exp") or not isinstance(above, Call):
        return None
    if not _same(summed[0], above) or len(readers[total]) != 1 or len(summed[1]) != 1:
        return None
    shifted = above.args[0]
    if not is_call(shifted, "subtract") or not isinstance(shifted, Call):
        return None
    data, largest = shifted.args
    found = _reduced(largest, "max")
    if found is None or found[0] is not data or found[1] != summed[1]:
        return None
    (axis,) = found[1]
    return data, lambda x: call("nn.softmax", x, axis=axis)


def _by_root(node: Call) -> list[tuple[Expr, tuple[Expr, bool]]]:
    """Ways to read `node` as a value divided by a root: (value, (what gives the root or its
    inverse, whether it is the inverse))."""
    if is_call(node, "divide"):
        return [(node.args[0], (node.args[1], False))]
    if is_call(node, "multiply"):
        a, b = node.args
        return [(a, (b, True)), (b, (a, True))]
    return []


def _under_root(given: tuple[Expr, bool], readers: Readers) -> tuple[Expr, Axes, float] | None:
    """Squares, axes and epsilon of a root of their mean (or of its inverse), which is read once."""
    root, inverse = given
    if not isinstance(root, Call) or len(readers[root]) != 1:
        return None
    if inverse and is_call(root, "divide") and _number(root.args[0]) == 1:
        return _under_root((root.args[1], False), readers)
    power = _number(root.args[1]) if is_call(root, "power") else None
    if not (is_call(root, "rsqrt" if inverse else "sqrt") or power == (-0.5 if inverse else 0.5)):
        return None
    shifted = root.args[0]
    if not is_call(shifted, "add") or not isinstance(shifted, Call) or len(readers[shifted]) != 1:
        return None
    epsilon, mean = _number(shifted.args[1]), _mean(shifted.args[0])
    if epsilon is None or epsilon < 0 or mean is None or len(readers[shifted.args[0]]) != 1:
        return None
    return *mean, epsilon


def _is_square(node: Expr, of: Expr) -> bool:
    if not isinstance(node, Call):
        return False
    if is_call(node, "multiply"):
        return all(_same(a, of) for a in node.args)
    return is_call(node, "power") and _number(node.args[1]) == 2 and _same(node.args[0], of)


def _centered(node: Expr) -> tuple[Expr, Axes] | None:
    """x and the axes where `node` is x - mean(x)."""
    if not isinstance(node, Call):
        return None
    if is_call(node, "subtract"):
        data, mean = node.args
    elif is_call(node, "add") and is_call(node.args[1], "negative"):
        data, mean = node.args[0], node.args[1].args[0]  # type: ignore[attr-defined]
    else:
        return None
    found = _mean(mean)
    return (data, found[1]) if found is not None and found[0] is data else None


def _mean(node: Expr) -> tuple[Expr, Axes] | None:
    """What `node` is the mean of, and along which axes."""
    if (found := _reduced(node, "mean")) is not None:
        return found
    if not is_call(node, "multiply") or not isinstance(node, Call):
        return None
    found, share = _reduced(node.args[0], "sum"), _number(node.args[1])
    if found is None or share is None:
        return None
    count = found[0].tensor_type.size // node.args[0].tensor_type.size
    return found if abs(share * count - 1) < node.dtype.eps else None


def _reduced(node: Expr, name: str) -> tuple[Expr, Axes] | None:
    """Argument and axes of a reduction that keeps its axes."""
    if not is_call(node, name) or not isinstance(node, Call) or not node.attrs.keepdims:
        return None
    data = node.args[0]
    return data, tuple(sorted(reduced_axes(node.attrs.axis, node.attrs.exclude, len(data.shape))))


def _same(a: Expr, b: Expr) -> bool:
    """Whether both are one value, or the same difference or exponential of one."""
    if a is b:
        return True
    if not isinstance(a, Call) or not isinstance(b, Call) or len(a.args) != len(b.args):
        return False
    if is_call(a, "subtract", "exp") and a.op is b.op:
        return all(_same(x, y) for x, y in zip(a.args, b.args, strict=True))
    pairs = ((_mean(a), _mean(b)), (_reduced(a, "max"), _reduced(b, "max")))
    return any(x is not None and x == y for x, y in pairs)


def _number(node: Expr) -> float | None:
    """The value of a constant of one element."""
    if isinstance(node, Constant) and node.data.size == 1:
        return float(node.data.reshape(-1)[0])
    return None
