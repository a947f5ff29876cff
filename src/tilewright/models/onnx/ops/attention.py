"""Attention, its position embedding, and the gates beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.attention import (
    Mask,
    between,
    biased,
    both,
    masked,
    probabilities,
    scores,
    weighted,
)
from tilewright.graph.functions.indexing import split, strided_slice, take
from tilewright.graph.functions.linear import einsum
from tilewright.graph.functions.nn import softmax
from tilewright.graph.functions.recurrent import States, unrolled
from tilewright.graph.leaves import const
from tilewright.models.onnx.checks import element_type
from tilewright.models.onnx.node import Converter, Node

MODES = (0, 1, 2, 3)  # of qk_matmul_output: 0 and 1 before the mask, 2 with it, 3 the probabilities


def _attention(n: Node) -> Sequence[Expr]:
    flat = len(n[0].shape) == 3
    query, key, value = (
        in_heads(n, n[k], n.attr("q_num_heads" if k == 0 else "kv_num_heads")) for k in range(3)
    )
    past = 0
    if n.has(4):
        n.require(n.has(5), "it has past keys without past values", "Give both, or none.")
        past = n.of_rank(4, 4).shape[2]
        key, value = (tensor.concatenate([n[k], x], axis=2) for k, x in ((4, key), (5, value)))
    mask = _mask(n, query.shape[2], key.shape[2], past)
    score = scores(query, key, n.attr("scale"), float(n.attr("softcap", 0.0)))
    precise = n.attr("softmax_precision")
    wide = score if precise is None else tensor.cast(score, element_type(precise))
    probability = tensor.cast(probabilities(wide, mask), query.dtype)
    result = weighted(probability, value)
    if flat:
        result = tensor.transpose(result, (0, 2, 1, 3))
        result = tensor.as_shape(result, (*result.shape[:2], -1))
    mode = n.attr("qk_matmul_output_mode", 0)
    n.require(mode in MODES, f"qk_matmul_output_mode={mode} is not known", "Use 0 to 3.")
    shown = (score, score, biased(score, mask, -math.inf), probability)[mode]
    return [result, key, value, shown]


def _flex_attention(n: Node) -> Expr:
    """Graphs inside it change the scores and the probabilities."""
    query, key, value = (n[k] for k in range(3))
    n.require(len(query.shape) == 4, f"its query has shape {query.shape}", "Give four axes.")
    asked = n.attr("softmax_precision")
    usual = "float64" if query.dtype == "float64" else "float32"
    precision = element_type(asked) if asked else usual

    def changed(values: Expr, name: str) -> Expr:
        body = n.attr(name)
        if body is None:
            return values
        made = [n.as_expr(v) for v in n.inline(body, [values])]
        n.require(
            len(made) == 1 and made[0].checked_type == values.checked_type,
            f"{name} does not keep {values.checked_type}", "The model is damaged; export it again.",
        )  # fmt: skip
        return made[0]

    score = tensor.cast(scores(query, key, n.attr("scale")), precision)
    probability: Expr = softmax(changed(score, "score_mod"), axis=-1)
    probability = changed(probability, "prob_mod")
    return weighted(tensor.cast(probability, value.dtype), value)


def in_heads(n: Node, x: Expr, heads: int | None) -> Expr:
    """[B, H, S, D] of [B, S, H * D]."""
    if len(x.shape) == 4:
        return x
    n.require(
        len(x.shape) == 3 and heads is not None and heads >= 1 and x.shape[2] % heads == 0,
        f"{heads} heads do not divide the shape {x.shape}",
        "Give q_num_heads and kv_num_heads that divide the last axis.",
    )
    made = tensor.as_shape(x, (*x.shape[:2], heads or 1, -1))
    return tensor.transpose(made, (0, 2, 1, 3))


def _mask(n: Node, queries: int, keys: int, past: int) -> Mask:
    allowed: Expr | None = None
    certain = True
    offset: int | Expr = past
    if n.has(6):
        lengths = tensor.cast(n[6], "int32")
        places = const(np.arange(keys, dtype="int32").reshape(1, 1, 1, -1))
        allowed = tensor.less(places, tensor.as_shape(lengths, (-1, 1, 1, 1)))
        certain = False
        if not n.has(4):
            offset = tensor.subtract(lengths, const(queries, "int32"))
    if n.flag("is_causal"):
        allowed = both(allowed, between(queries, keys, None, 0, offset))
    left, right = n.attr("left_window_size", -1), n.attr("right_window_size", -1)
    n.require(min(left, right) >= -1, f"a window of {min(left, right)}", "Use -1 or more.")
    if left >= 0 or right >= 0:
        window = between(
            queries, keys, left if left >= 0 else None, right if right >= 0 else None, offset
        )
        allowed, certain = both(allowed, window), False
    return masked(n[3] if n.has(3) else None, allowed, keys, certain)


def rotated(n: Node, cosines: Expr, sines: Expr, positions: Expr | None) -> Expr:
    """Pairs of elements of input 0 are turned by an angle that grows with the position.

    The tables hold a row for each position, or, without `positions`, one for each place.
    """
    x = n[0]
    flat = len(x.shape) == 3
    x = in_heads(n, x, n.attr("num_heads"))
    batch, _, length, size = x.shape
    turned = n.attr("rotary_embedding_dim", 0) or size
    half: int = turned // 2
    n.require(
        half > 0 and turned <= size and turned % 2 == 0,
        f"rotary_embedding_dim={turned} of heads of {size}", "Use an even number up to it.",
    )  # fmt: skip
    cosine, sine = (_angles(n, t, positions, batch, length, half) for t in (cosines, sines))
    interleaved = n.flag("interleaved")
    part: Expr = strided_slice(x, [0], [turned], axes=[3]) if turned < size else x
    pairs = tensor.as_shape(part, (*x.shape[:3], half, 2)) if interleaved else part
    a, b = (
        tensor.as_shape(half_of, (*x.shape[:3], half)) for half_of in split(pairs, 2, -1).fields
    )
    real = tensor.subtract(tensor.multiply(a, cosine), tensor.multiply(b, sine))
    imaginary = tensor.add(tensor.multiply(a, sine), tensor.multiply(b, cosine))
    if interleaved:
        parts = [tensor.expand_dims(v, -1) for v in (real, imaginary)]
        made: Expr = tensor.as_shape(tensor.concatenate(parts, axis=-1), part.shape)
    else:
        made = tensor.concatenate([real, imaginary], axis=-1)
    if turned < size:
        rest = strided_slice(x, [turned], [size], axes=[3])
        made = tensor.concatenate([made, rest], axis=-1)
    if flat:
        made = tensor.as_shape(tensor.transpose(made, (0, 2, 1, 3)), (batch, length, -1))
    return made


def _angles(
    n: Node, table: Expr, positions: Expr | None, batch: int, length: int, half: int
) -> Expr:
    """[B, 1, S, half] of a table [positions, half], or of one that has it laid out already."""
    if positions is not None:
        table = take(table, positions, axis=0)
    n.require(
        table.shape in ((batch, length, half), (1, length, half)),
        f"its tables have shape {table.shape}", f"{(batch, length, half)} is needed.",
    )  # fmt: skip
    return tensor.expand_dims(table, 1)


GATED, CORRECTED = ("gated", "gated_delta"), ("delta", "gated_delta")  # rules of linear attention


def _linear_attention(n: Node) -> Sequence[Expr]:
    """A state of [B, G, D, E] numbers takes each key and value in, and answers each query."""
    rule, heads, groups = n.attr("update_rule", "gated_delta"), n.attr("q_num_heads"), n.attr(
        "kv_num_heads"
    )  # fmt: skip
    n.attr("chunk_size")  # how others compute it
    n.require(
        rule in ("linear", *GATED, *CORRECTED) and n.has(4) == (rule in GATED)
        and n.has(5) == (rule in CORRECTED),
        f"update_rule={rule} does not go with its inputs", "Decay and beta belong to some rules.",
    )  # fmt: skip
    n.require(
        groups >= 1 and heads % groups == 0, f"{groups} heads do not serve {heads}",
        "Use a divisor.",
    )  # fmt: skip
    query, key, value = (
        tensor.cast(in_heads(n, n[k], heads if k == 0 else groups), "float32") for k in range(3)
    )
    batch, _, steps, inner = query.shape
    size = value.shape[3]
    n.require(inner >= 1, "its heads are empty", "Use a size of at least 1.")
    scale = n.attr("scale", 0.0) or 1 / math.sqrt(inner)
    decay = tensor.exp(tensor.cast(in_heads(n, n[4], groups), "float32")) if n.has(4) else None
    beta = None
    if n.has(5):
        given = n.of_rank(5, 3, 4)
        beta = tensor.cast(in_heads(n, given, given.shape[2]), "float32")

    def at(x: Expr, t: int) -> Expr:
        picked = strided_slice(x, [t], [t + 1], axes=[2])
        return tensor.as_shape(picked, (*x.shape[:2], x.shape[3]))

    def step(t: int, states: States) -> States:
        state, added = states[-1], at(value, t)
        if decay is not None:
            state = tensor.multiply(state, tensor.expand_dims(at(decay, t), 3))
        if beta is not None:
            known = einsum([state, at(key, t)], "bhdm,bhd->bhm")
            added = tensor.multiply(at(beta, t), tensor.subtract(added, known))
        state = tensor.add(state, einsum([at(key, t), added], "bhd,bhm->bhdm"))
        asked = tensor.as_shape(at(query, t), (batch, groups, heads // groups, inner))
        answer = einsum([asked * scale, state], "bhgd,bhdm->bhgm")
        return tensor.as_shape(answer, (batch, 1, heads * size)), state

    dtype = n[3].dtype if n.has(3) else n[0].dtype
    zeros = const(np.zeros((batch, groups, inner, size)), "float32")
    state = tensor.cast(n[3], "float32") if n.has(3) else zeros
    answers, last = unrolled(step, (state, state), steps)
    result = tensor.concatenate(answers, axis=1) if steps > 1 else answers[0]
    return [tensor.cast(result, n[0].dtype), tensor.cast(last[-1], dtype)]


def _swiglu(n: Node) -> Expr:
    a, b = n[0], n[1]
    n.require(a.shape == b.shape, f"it reads {a.shape} and {b.shape}", "They must be equal.")
    gate = tensor.sigmoid(a * float(n.attr("alpha", 1.0)))
    return tensor.multiply(tensor.multiply(a, gate), b)


CONVERTERS: dict[str, Converter] = {
    "Attention": _attention,
    "LinearAttention": _linear_attention,
    "RotaryEmbedding": lambda n: rotated(n, n[1], n[2], n[3] if n.has(3) else None),
    "SwiGLU": _swiglu,
}
PREVIEW: dict[str, Converter] = {"FlexAttention": _flex_attention}
