"""Keys and values that several heads share are not repeated: the same values, one kernel less."""

import numpy as np
import pytest

from graph.case import function, tensor
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule, post_order
from tilewright.graph.passes import canonicalize, group_heads
from tilewright.graph.passes.attention import attentions, has_attention
from tilewright.graph.passes.grouped_heads import spread_heads
from tilewright.graph.traversal import op_name
from tilewright.network.extract import ungrouped
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

SHARED, TIMES, KEYS, SIZE = 2, 4, 5, 8
HEADS = SHARED * TIMES


def repeated(name: str, batch: int = 1) -> Expr:
    cache = tensor(name, batch, SHARED, KEYS, SIZE)
    one = relay.reshape(cache, (batch, SHARED, 1, KEYS, SIZE))
    wide = relay.broadcast_to(one, (batch, SHARED, TIMES, KEYS, SIZE))
    return relay.reshape(wide, (batch, HEADS, KEYS, SIZE))


def product(rows: int = 1, batch: int = 1, transposed: bool = False) -> Expr:
    keys = repeated("k", batch)
    shape = (batch * HEADS, KEYS, SIZE)
    if transposed:
        keys, shape = relay.transpose(keys, (0, 1, 3, 2)), (batch * HEADS, SIZE, KEYS)
    queries = tensor("q", batch * HEADS, rows, SIZE)
    return nn.batch_matmul(queries, relay.reshape(keys, shape), transpose_b=not transposed)


def attention() -> Expr:
    """One position that meets a cache, of which a mask says what counts."""
    mask = tensor("m", 1, 1, 1, KEYS, dtype="bool")
    scores = relay.reshape(product(), (1, HEADS, 1, KEYS))
    lowest, zero = relay.const(np.float32(-6e4)), relay.const(np.float32(0))
    share = relay.where(mask, nn.softmax(relay.where(mask, scores, lowest)), zero)
    share = relay.reshape(share, (HEADS, 1, KEYS))
    values = relay.reshape(repeated("v"), (HEADS, KEYS, SIZE))
    return nn.batch_matmul(share, values, transpose_b=False)


def along(axis: int) -> Expr:
    """Repeated otherwise than one matrix behind the other."""
    shape = [SHARED, KEYS, SIZE]
    shape[axis] = 1
    wide = relay.broadcast_to(tensor("k", *shape), (SHARED, KEYS, SIZE))
    return nn.batch_matmul(tensor("q", SHARED, 1, SIZE), wide, transpose_b=True)


def interleaved() -> Expr:
    """Neighbours in the batch meet different matrices."""
    wide = relay.broadcast_to(tensor("k", 1, SHARED, KEYS, SIZE), (TIMES, SHARED, KEYS, SIZE))
    keys = relay.reshape(wide, (HEADS, KEYS, SIZE))
    return nn.batch_matmul(tensor("q", HEADS, 1, SIZE), keys, transpose_b=True)


def repeats(mod: IRModule) -> int:
    return [op_name(n) for n in post_order(mod["main"].body)].count("broadcast_to")


def computes_the_same(mod: IRModule, made: IRModule) -> None:
    rng = np.random.default_rng(0)
    given = {
        p.name_hint: (rng.random(p.shape) > 0.3) if p.dtype == "bool"
        else rng.standard_normal(p.shape).astype(str(p.dtype))
        for p in mod["main"].params
    }  # fmt: skip
    np.testing.assert_allclose(evaluate(made, given), evaluate(mod, given), rtol=1e-5, atol=1e-5)


GROUPED = {
    "keys": product,
    "a batch": lambda: product(batch=3),
    "keys in columns": lambda: product(transposed=True),
    "one matrix for all heads": lambda: along(0),
    "attention": attention,
}


@pytest.mark.parametrize("make", GROUPED.values(), ids=GROUPED)
def test_shared_heads_are_read_where_they_are(make) -> None:
    mod = canonicalize(IRModule.from_expr(function(make())))
    made = group_heads(mod)
    assert repeats(mod) and not repeats(made)
    computes_the_same(mod, made)


OTHERS = {
    "several rows": lambda: product(rows=3),
    "rows of a matrix": lambda: along(1),
    "columns of a matrix": lambda: along(2),
    "not neighbours": interleaved,
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_what_is_repeated_otherwise_computes_the_same(make) -> None:
    mod = canonicalize(IRModule.from_expr(function(make())))
    made = group_heads(mod)
    assert repeats(made) == repeats(mod) == 1
    computes_the_same(mod, made)


@pytest.mark.parametrize("masked", [True, False])
def test_a_prompt_whose_heads_share_keys_is_one_attention(masked: bool) -> None:
    """Rows of several heads are one product each, but of a softmax for each head."""
    rows = 3
    q, k, v = (tensor(n, 1, h, s, SIZE) for n, h, s in
               (("q", HEADS, rows), ("k", SHARED, KEYS), ("v", SHARED, KEYS)))  # fmt: skip
    mask = tensor("m", 1, 1, rows, KEYS, dtype="bool") if masked else None
    mod = canonicalize(IRModule.from_expr(function(nn.attention(q, k, v, mask))))
    made = spread_heads(mod)
    assert repeats(mod) == 0 and repeats(made) == 2 and has_attention(mod)
    assert len(attentions(made["main"].body)) == 1
    computes_the_same(mod, made)


def test_a_step_over_a_cache_is_one_attention() -> None:
    """Scores have the rows of the product in all that follows, the softmax included."""
    made = ungrouped(IRModule.from_expr(function(attention())), None, target=Target("cuda"))[0]
    (steps,) = attentions(made["main"].body)
    names = [op_name(step) for step in steps]
    assert names.count("nn.batch_matmul") == 2 and names.count("where") == 2
    assert "broadcast_to" not in names
