"""Training-time operators in their inference form.

In: any module.  Out: one without batch_norm and dropout.  Read next: `canonicalize.py`.
"""

from __future__ import annotations

from tilewright.relay.graph.expr import Call, Expr, IRModule, Tuple, const
from tilewright.relay.graph.traversal import each_function, is_call, rewrite, with_body
from tilewright.relay.op import call


def simplify_inference(mod: IRModule) -> IRModule:
    """Replace by arithmetic what only training needs as an operator.

    batch_norm(x, gamma, beta, mean, var)  ->  x * s + (beta - mean * s)
                                               where s = gamma / sqrt(var + epsilon)
    dropout(x)                             ->  x
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    if is_call(node, "nn.dropout"):
        assert isinstance(node, Call)
        return node.args[0]
    if is_call(node, "nn.batch_norm"):
        assert isinstance(node, Call)
        return _normalise(node)
    return node


def _normalise(node: Call) -> Expr:
    data, gamma, beta, mean, var = node.args
    a, rank = node.attrs, len(node.args[0].shape)
    one, epsilon = const(1, data.dtype), const(a.epsilon, data.dtype)
    scale: Expr = call("divide", one, call("sqrt", call("add", var, epsilon)))
    if a.scale:
        scale = call("multiply", scale, gamma)
    shift: Expr = call("negative", call("multiply", mean, scale))
    if a.center:
        shift = call("add", shift, beta)
    scaled = call("multiply", data, along(scale, a.axis, rank))
    return Tuple([call("add", scaled, along(shift, a.axis, rank)), mean, var])


def along(vector: Expr, axis: int, rank: int) -> Expr:
    """A vector as a tensor of `rank` dimensions that varies along `axis` only."""
    shape = tuple(vector.shape[0] if k == axis % rank else 1 for k in range(rank))
    return vector if shape == vector.shape else call("reshape", vector, newshape=shape)
