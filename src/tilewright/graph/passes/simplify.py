"""Training-time operators in their inference form.

In: any module.  Out: one without batch_norm, dropout and checkpoints.
Read next: `canonicalize.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.graph.expr import Attrs, Call, Expr, IRModule, Tuple
from tilewright.graph.leaves import const
from tilewright.graph.op import call
from tilewright.graph.traversal import each_function, is_call, rewrite, unpacked, with_body


def simplify_inference(mod: IRModule) -> IRModule:
    """Replace by arithmetic what only training needs as an operator.

    batch_norm(x, gamma, beta, mean, var)  ->  x * s + (-mean * s + beta)
                                               where s = gamma / sqrt(var + epsilon)
    dropout(x), checkpoint(x)              ->  x
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    if is_call(node, "nn.dropout", "annotation.checkpoint"):
        assert isinstance(node, Call)
        return node.args[0]
    if is_call(node, "nn.batch_norm"):
        assert isinstance(node, Call)
        return _normalise(node)
    return unpacked(node)


def _normalise(node: Call) -> Expr:
    data, _, _, mean, var = node.args
    scale, shift = scale_and_shift(node.args[1:], node.attrs)
    axis, rank = node.attrs.axis, len(data.shape)
    behind = rank - 1 - axis % rank
    if behind:
        scale, shift = (call("expand_dims", v, axis=1, num_newaxis=behind) for v in (scale, shift))
    return Tuple([call("add", call("multiply", data, scale), shift), mean, var])


def scale_and_shift(vectors: Sequence[Expr], attrs: Attrs) -> tuple[Expr, Expr]:
    """Give what a batch norm multiplies by and adds; vectors: gamma, beta, mean, variance."""
    gamma, beta, mean, var = vectors
    one, epsilon = const(1, var.dtype), const(attrs.epsilon, var.dtype)
    scale: Expr = call("divide", one, call("sqrt", call("add", var, epsilon)))
    if attrs.scale:
        scale = call("multiply", scale, gamma)
    shift: Expr = call("multiply", call("negative", mean), scale)
    return scale, call("add", shift, beta) if attrs.center else shift


def along(vector: Expr, axis: int, rank: int) -> Expr:
    """Give a vector as a tensor of `rank` dimensions that varies along `axis` only."""
    shape = tuple(vector.shape[0] if k == axis % rank else 1 for k in range(rank))
    return vector if shape == vector.shape else call("reshape", vector, newshape=shape)
