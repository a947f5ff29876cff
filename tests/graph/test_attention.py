"""Attention against numpy: masks, groups of heads, windows, rows without keys."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.base.errors import ModelError
from tilewright.graph.functions.attention import between
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)
B, H, S, T, D, E = 2, 4, 3, 5, 6, 7


def arrays(groups: int = H) -> dict[str, np.ndarray]:
    shapes = {"q": (B, H, S, D), "k": (B, groups, T, D), "v": (B, groups, T, E)}
    return {n: RNG.standard_normal(s) for n, s in shapes.items()}


def run(inputs, mask=None, **options) -> np.ndarray:
    given = dict(inputs) if mask is None else {**inputs, "m": mask}
    variables = [tensor(n, *x.shape, dtype=x.dtype.name) for n, x in given.items()]
    return relay.evaluate(function(nn.attention(*variables, **options)), given)


def wanted(inputs, mask=None, scale=None, is_causal=False, softcap=0.0) -> np.ndarray:
    """One query after the other."""
    q, k, v = inputs.values()
    out = np.zeros((B, H, S, E))
    shape = (B, H, S, T)
    allowed = np.ones(shape, bool)
    bias = np.zeros(shape)
    if mask is not None and mask.dtype == bool:
        allowed &= mask
    elif mask is not None:
        bias = bias + mask
        allowed &= bias > -np.inf
    for b, h, i in np.ndindex(B, H, S):
        g = h // (H // k.shape[1])
        score = k[b, g] @ q[b, h, i] * (D**-0.5 if scale is None else scale)
        score = softcap * np.tanh(score / softcap) if softcap else score
        meets = [j for j in range(T) if allowed[b, h, i, j] and (j <= i or not is_causal)]
        weight = np.exp([score[j] + bias[b, h, i, j] for j in meets])
        if meets:
            out[b, h, i] = weight / weight.sum() @ v[b, g][meets]
    return out


MASKS = {
    "none": None,
    "bool": RNG.random((B, 1, S, T)) > 0.4,
    "keys": RNG.random((T,)) > 0.4,
    "added": RNG.standard_normal((H, S, T)),
    "added and forbidden": np.where(RNG.random((B, H, S, T)) > 0.4, 0.5, -np.inf),
    "rows without keys": np.arange(S)[:, None] > np.zeros(T),
}
OPTIONS = ({}, {"scale": 0.3}, {"is_causal": True}, {"softcap": 2.0, "is_causal": True})


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("mask", MASKS)
def test_attention_means_what_numpy_says(mask, options):
    inputs = arrays()
    found = run(inputs, MASKS[mask], **options)
    np.testing.assert_allclose(found, wanted(inputs, MASKS[mask], **options), atol=1e-12)


@pytest.mark.parametrize("groups", [1, 2])
def test_groups_of_heads_share_keys_that_are_not_copied(groups):
    inputs = arrays(groups)
    np.testing.assert_allclose(run(inputs), wanted(inputs), atol=1e-12)
    body = nn.attention(*(tensor(n, *x.shape) for n, x in inputs.items()))
    assert "broadcast_to" not in str(body) and "concatenate" not in str(body)


@pytest.mark.parametrize("offset", [0, 2, -1])
@pytest.mark.parametrize(("left", "right"), [(None, 0), (1, None), (1, 1), (None, None)])
def test_a_window_is_the_same_for_offsets_that_are_numbers_and_data(left, right, offset):
    apart = np.arange(T) - (np.arange(S)[:, None] + offset)
    allowed = (apart <= (right if right is not None else T)) & (apart >= -(left or T))
    fixed = relay.evaluate(between(S, T, left, right, offset))
    np.testing.assert_array_equal(fixed[0, 0], allowed)
    data = between(S, T, left, right, relay.var("o", shape=(2,), dtype="int64"))
    found = relay.evaluate(data, {"o": np.array([offset, 0])})
    np.testing.assert_array_equal(found[0, 0], allowed)


@pytest.mark.parametrize(
    ("shapes", "reason"),
    [
        ([(S, D), (T, D), (T, E)], "no axes"),
        ([(B, 3, S, D), (B, 2, T, D), (B, 2, T, E)], "do not serve"),
        ([(B, H, S, D), (1, H, T, D), (1, H, T, E)], "do not serve"),
        ([(B, H, S, D), (B, H, T, E), (B, H, T, E)], "must be equal"),
        ([(B, H, S, D), (B, H, T, D), (B, H, S, E)], "keys"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(shapes, reason):
    with pytest.raises(ModelError, match=reason):
        nn.attention(*(tensor(n, *s) for n, s in zip("qkv", shapes, strict=True)))
