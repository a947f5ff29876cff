"""Attention of few rows reads caches as they were; what is new is written when all is read."""

from __future__ import annotations

import numpy as np
import pytest

from graph.case import function, tensor
from strategies import assert_computes
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Call, Expr, IRModule
from tilewright.lowering.pipeline import lower_schedule
from tilewright.network.extract import fused_groups, groupings
from tilewright.network.in_place import in_place
from tilewright.network.memory import steps
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

CUDA = Target("cuda -arch=sm_90")
HEADS, ROWS, KEYS, SIZE = 2, 3, 16, 8
PLACES = np.arange(KEYS, dtype="int64").reshape(1, KEYS, 1)


def written(name: str, new: Expr, position: Expr) -> Expr:
    here = relay.equal(relay.const(PLACES), position)
    return relay.where(here, new, tensor(name, HEADS, KEYS, new.shape[-1]))


def step(layers: int = 2, rows: int = ROWS) -> Expr:
    """A position of each layer's caches is new, made of what the layer before gave."""
    x, results = tensor("x", HEADS, rows, SIZE), []
    for k in range(layers):
        position = tensor(f"i{k}", 1, 1, 1, dtype="int64")
        new = relay.tanh(relay.sum(x, axis=1, keepdims=True))
        keys = written(f"k{k}", new * relay.const(np.float32(2)), position)
        values = written(f"v{k}", new, position)
        share = nn.softmax(nn.batch_matmul(x, keys))
        x = nn.batch_matmul(share, values, transpose_b=False) + x
        results += [keys, values]
    return relay.Tuple([*results, x])


def grouped(body: Expr) -> IRModule:
    return groupings(function(body), target=CUDA)[1]


def writes(mod: IRModule) -> list[Call]:
    names = ("where", "batch_matmul")
    counts = [[c.op.attrs["name"].count(n) for n in names] for c in steps(mod["main"].body)]
    return [c for c, n in zip(steps(mod["main"].body), counts, strict=True) if n[0] and not n[1]]


def test_all_caches_are_written_by_one_kernel_when_all_are_read_and_in_place() -> None:
    body = step()
    mod = grouped(body)
    (write,) = writes(mod)
    order = steps(mod["main"].body)
    before, behind = order[: order.index(write)], order[order.index(write) + 1 :]
    caches = {p for p in mod["main"].params if p.name_hint[0] in "kv"}
    assert caches & set(before[-1].args) and len(write.checked_type.fields) == 4
    assert not any(caches & set(call.args) for call in behind)
    params = [p.name_hint for p in mod["main"].params]
    pairs = {pair.output: params[pair.input] for pair in in_place(mod["main"])}
    assert pairs == {0: "k0", 1: "v0", 2: "k1", 3: "v1"}
    rng = np.random.default_rng(0)
    given = {p.name_hint: rng.random(p.shape, "float32") for p in mod["main"].params}
    given |= {f"i{k}": np.full((1, 1, 1), 5 + k) for k in range(2)}
    plain = IRModule({"main": function(body)})
    for mine, its in zip(evaluate(mod, given), evaluate(plain, given), strict=True):
        np.testing.assert_allclose(mine, its, rtol=1e-5)


def test_more_caches_than_a_kernel_writes_are_written_by_several(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """More than 16 layers, as they are."""
    monkeypatch.setattr("tilewright.graph.passes.writes.MOST", 4)
    mod = grouped(step(3))
    assert sorted(len(w.checked_type.fields) for w in writes(mod)) == [2, 4]
    pairs = in_place(mod["main"])
    assert sorted(pair.output for pair in pairs) == [*range(6)]


def test_many_rows_read_what_was_written() -> None:
    mod = grouped(step(1, 17))
    (write,) = writes(mod)
    assert steps(mod["main"].body)[-1] is not write


def test_attention_without_a_template_reads_what_was_written() -> None:
    """Values are narrower than keys, so the first product is the larger one."""
    x, position = tensor("x", HEADS, ROWS, SIZE), tensor("i", 1, 1, 1, dtype="int64")
    keys = written("k", tensor("a", HEADS, 1, SIZE), position)
    values = written("v", tensor("b", HEADS, 1, SIZE // 2), position)
    share = nn.softmax(nn.batch_matmul(x, keys))
    mod = grouped(relay.Tuple([keys, values, nn.batch_matmul(share, values, transpose_b=False)]))
    assert "batch_matmul" in steps(mod["main"].body)[-1].op.attrs["name"]


@pytest.mark.parametrize("pieces", [1, 2])
def test_a_kernel_has_old_elements_and_new_ones(
    pieces: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tilewright.topi.templates.attention_rows.SHORTEST", KEYS // 2)
    group = next(g for g in fused_groups(grouped(step(1))["main"]) if g.name == "attention")
    (registered,) = (t for t in anchor_templates(group.dag, CUDA) if t.name == "attention.rows")
    sketch = sketch_of_anchor(registered, group.dag, CUDA)
    index = next(k for k in range(len(sketch.space)) if sketch.space.get(k)["pieces"].val == pieces)
    program = lower_schedule(sketch.close(index), CUDA)
    assert len(program.kernels) == 1 and "async" in str(program)
    assert_computes(program, group.dag, 0)
