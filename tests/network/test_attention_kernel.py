"""Attention as one kernel: what is one, that it computes the same, when a build takes it."""

import re

import numpy as np
import pytest

from graph.case import function, tensor
from strategies import assert_computes
from tilewright.graph.passes import fuse_attention
from tilewright.graph.passes.attention import attentions
from tilewright.lowering.pipeline import lower_schedule
from tilewright.network.decide import decide
from tilewright.network.extract import fused_groups, fused_tasks, groupings
from tilewright.schedule.default import default_schedule
from tilewright.schedule.template import anchor_sketches
from tilewright.targets.target import Target
from tilewright.te.tensor import ComputeOp
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

CPU, GPU = Target("llvm -num-cores=2"), Target("cuda")
SHAPES = {"q": (1, 2, 5, 8), "k": (1, 2, 7, 8), "v": (1, 2, 7, 8)}


def attention(shapes=SHAPES, mask=None, **options) -> relay.Expr:
    given = [tensor(n, *s) for n, s in shapes.items()]
    if mask is not None:
        given.append(tensor("m", *mask))
    return nn.attention(*given, **options)


def by_hand(transposed: bool = False, axis: int = -1, twice: bool = False) -> relay.Expr:
    """As networks have it: products of batches, the second operand stored either way."""
    q, v = tensor("q", 3, 5, 8), tensor("v", 3, 5, 8)
    k = tensor("k", 3, 8, 5) if transposed else tensor("k", 3, 5, 8)
    scores = nn.batch_matmul(q, k, transpose_b=not transposed) * 0.3
    share = nn.softmax(scores, axis)
    made = nn.batch_matmul(share, v, transpose_b=False)
    return relay.Tuple([made, share]) if twice else made


WHOLE = {
    "plain": attention,
    "causal": lambda: attention(is_causal=True),
    "mask": lambda: attention(mask=(1, 1, 1, 7)),
    "softcap": lambda: attention(softcap=2.0),
    "by hand": by_hand,
    "keys in columns": lambda: by_hand(transposed=True),
    "heads in groups": lambda: attention({**SHAPES, "k": (1, 1, 7, 8), "v": (1, 1, 7, 8)}),
}


def one_head() -> relay.Expr:
    """As in a network for one sequence, without batches or heads."""
    x = matrix("x", 5, 8)
    q, k, v = (nn.dense(x, matrix(n, 8, 8)) for n in "abc")
    return nn.matmul(nn.softmax(nn.matmul(q, k, transpose_b=True) * 0.3), v)


MOVED = {
    "one head": lambda: one_head(),
    "heads of three products": lambda: heads(*(matrix(n, 6, 8) for n in "qkv")),
    "heads of one product": lambda: heads(*relay.split(matrix("x", 5, 24), 3, axis=1)),
    "keys and values for several heads": lambda: shared_heads(),
    "rows without a key": lambda: safe(),
    "queries that are scaled": lambda: scaled("queries"),
    "positions added along two axes of keys": lambda: decomposed(),
}  # fmt: skip


SCALED = {
    where: lambda where=where: scaled(where)
    for where in ("keys", "both", "keys in columns", "scores", "divided scores")
}


def matrix(name: str, *shape: int) -> relay.Expr:
    """What a product computes, so that nothing in front of it can move into the weights."""
    rng = np.random.default_rng(len(name))
    weight = relay.const(rng.standard_normal((shape[1], 3)).astype("float32"))
    return nn.dense(tensor(name, shape[0], 3), weight)


def side_by_side(x: relay.Expr) -> relay.Expr:
    """[rows, heads * 4] as [heads, rows, 4]."""
    rows, width = x.shape
    split = relay.transpose(relay.reshape(x, (1, rows, width // 4, 4)), (0, 2, 1, 3))
    return relay.reshape(split, (width // 4, rows, 4))


def heads(q: relay.Expr, k: relay.Expr, v: relay.Expr) -> relay.Expr:
    q, k, v = map(side_by_side, (q, k, v))
    share = nn.softmax(nn.batch_matmul(q, k) * 0.5)
    made = nn.batch_matmul(share, v, transpose_b=False)
    back = relay.transpose(relay.reshape(made, (1, *made.shape)), (0, 2, 1, 3))
    return relay.reshape(back, (made.shape[1], made.shape[0] * made.shape[2]))


def scaled(where: str) -> relay.Expr:
    """Heads of one product, as vision transformers have them, scaled in the usual places."""
    x = relay.transpose(relay.reshape(matrix("x", 5, 24), (5, 3, 2, 4)), (1, 2, 0, 3))
    q, k, v = (relay.reshape(part, (2, 5, 4)) for part in relay.split(x, 3, axis=0))
    if where in ("queries", "both"):
        q = q * 0.7
    if where in ("keys", "both"):
        k = k * 0.7
    if where == "keys in columns":
        columns = relay.transpose(k, (0, 2, 1)) * 0.7
        scores = nn.batch_matmul(q, columns, transpose_b=False)
    else:
        scores = nn.batch_matmul(q, k)
    if where == "scores":
        scores = scores * 0.5
    if where == "divided scores":
        scores = scores / relay.const(2.0)
    return side_by_side_again(nn.batch_matmul(nn.softmax(scores), v, transpose_b=False))


def decomposed() -> relay.Expr:
    """Scores have axes of their own for rows and columns of an image while positions are added."""
    q, k, v = (tensor(n, 2, 6, 4) for n in "qkv")
    scores = relay.reshape(nn.batch_matmul(q, k), (2, 2, 3, 2, 3))
    scores = scores + tensor("rows", 2, 2, 3, 2, 1) + tensor("columns", 2, 2, 3, 1, 3)
    share = nn.softmax(relay.reshape(scores, (2, 6, 6)))
    return nn.batch_matmul(share, v, transpose_b=False)


def side_by_side_again(x: relay.Expr) -> relay.Expr:
    """[heads, rows, columns] as [rows, heads * columns]."""
    heads, rows, columns = x.shape
    return relay.reshape(relay.transpose(x, (1, 0, 2)), (rows, heads * columns))


def shared_heads() -> relay.Expr:
    q, k, v = (tensor(n, 4 if n == "q" else 2, 5, 4) for n in "qkv")

    def repeated(x: relay.Expr) -> relay.Expr:
        return relay.reshape(
            relay.broadcast_to(relay.reshape(x, (2, 1, 5, 4)), (2, 2, 5, 4)), (4, 5, 4)
        )

    share = nn.softmax(nn.batch_matmul(q, repeated(k)))
    return nn.batch_matmul(share, repeated(v), transpose_b=False)


def safe() -> relay.Expr:
    """The probabilities are read twice, and meet again."""
    q, k, v = (tensor(n, 2, 5, 4) for n in "qkv")
    share = nn.softmax(nn.batch_matmul(q, k))
    share = relay.where(relay.isnan(share), relay.const(0.0), share)
    return nn.batch_matmul(share, v, transpose_b=False)


def turned() -> relay.Expr:
    """Queries and a part of a product that holds others, too, turned by their position."""
    every, k, v = tensor("q", 1, 6, 1, 4), tensor("k", 2, 5, 4), tensor("v", 2, 5, 4)
    q = relay.strided_slice(every, [0, 1, 0, 0], [1, 5, 1, 4])
    first, second = (relay.strided_slice(q, [0, 0, 0, n], [1, 4, 1, n + 2]) for n in (0, 2))
    aside = relay.concatenate([relay.negative(second), first], 3)
    q = q * tensor("cos", 1, 1, 1, 4) + aside * tensor("sin", 1, 1, 1, 4)
    share = nn.softmax(nn.batch_matmul(relay.reshape(q, (2, 2, 4)), k))
    return nn.batch_matmul(share, v, transpose_b=False)


def parts_of_rows() -> relay.Expr:
    q, k, v = (tensor(n, 2, 6, 4) for n in "qkv")
    share = nn.softmax(relay.reshape(nn.batch_matmul(q, k), (2, 6, 2, 3)))
    return nn.batch_matmul(relay.reshape(share, (2, 6, 6)), v, transpose_b=False)


WHOLE |= MOVED | {"turned queries": turned}
NOT_WHOLE = {
    "products with weights": lambda: nn.dense(
        nn.softmax(nn.dense(matrix("x", 5, 8), tensor("a", 8, 8))),
        relay.transpose(tensor("b", 8, 8)),
    ),
    "softmax over parts of rows": lambda: parts_of_rows(),
    "probabilities are read": lambda: by_hand(twice=True),
    "softmax over queries": lambda: by_hand(axis=1),
}


def kernel(build) -> relay.Function:
    """The attention's group, checked to keep the meaning of the network."""
    f = function(build())
    rng = np.random.default_rng(0)
    inputs = {p.name_hint: rng.standard_normal(p.shape).astype(p.dtype) for p in f.params}
    _, whole = groupings(f)
    found = relay.evaluate(whole, inputs)
    np.testing.assert_allclose(found, relay.evaluate(f, inputs), rtol=1e-5, atol=1e-6)
    (group,) = [g for g in fused_groups(whole["main"]) if g.name == "attention"]
    return group


@pytest.mark.slow
@pytest.mark.parametrize("name", WHOLE | SCALED)
def test_attention_is_recognised_and_keeps_its_meaning(name):
    assert kernel((WHOLE | SCALED)[name]).args


@pytest.mark.parametrize("name", NOT_WHOLE)
def test_what_cannot_be_one_kernel_is_left_alone(name):
    body = NOT_WHOLE[name]()
    assert attentions(body) == []
    assert len(groupings(function(body))) == 1


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, GPU], ids=str)
@pytest.mark.parametrize("name", WHOLE)
def test_its_template_is_right_and_stores_no_scores(name, target):
    dag = kernel(WHOLE[name]).dag
    sketch = anchor_sketches(dag, target)[0]
    assert sketch.origin.startswith("template:attention")
    count = len(sketch.space)
    for index in {0, count - 1, *np.random.default_rng(0).integers(0, count, 3).tolist()}:
        schedule = sketch.close(index)
        assert_computes(lower_schedule(schedule, target), dag)
        roots = [
            s for s in schedule.stages if s.attach_kind == "root" and isinstance(s.op, ComputeOp)
        ]
        assert [s.is_output for s in roots] == [True]


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, GPU], ids=str)
def test_turned_queries_are_part_of_it(target):
    """They are made once for a block, not for each key that they meet."""
    _, whole = groupings(function(turned()))
    assert [g.name for g in fused_groups(whole["main"])] == ["attention"]
    dag = kernel(turned).dag
    assert nests(dag, target) == 1
    text = str(default_schedule(dag, target))
    assert re.search(r"T_reshape: float32\[[12], [12], 4\]", text)


def nests(dag, target: Target) -> int:
    stages = default_schedule(dag, target).stages
    return sum(s.attach_kind == "root" and isinstance(s.op, ComputeOp) for s in stages)


@pytest.mark.slow
@pytest.mark.parametrize("target", [CPU, GPU], ids=str)
def test_untuned_it_is_one_nest_unless_a_row_of_scores_has_no_room(target):
    assert nests(kernel(WHOLE["mask"]).dag, target) == 1
    shapes = {"q": (1, 1, 2, 4), "k": (1, 1, 30011, 4), "v": (1, 1, 30011, 4)}
    assert nests(kernel(lambda: attention(shapes)).dag, target) > 1


@pytest.mark.parametrize("name", MOVED | SCALED)
def test_moving_the_operands_and_the_result_is_part_of_it(name):
    """What is left beside it are the products in front, and slices of them where there is one."""
    f = function((MOVED | SCALED)[name]())
    _, whole = groupings(f)
    found = [g.name for g in fused_groups(whole["main"])]
    assert found.count("attention") == 1
    assert set(found) <= {"attention", "dense"}


def test_it_is_offered_as_a_task_beside_its_parts():
    names = [t.name for t in fused_tasks(function(attention()), target=CPU)]
    assert names == ["batch_matmul", "softmax", "batch_matmul", "attention"]


class Records:
    """Evidence: seconds of a kernel, by the first word of its name."""

    has_records = False  # of other implementations
    sources = ("log",)

    def __init__(
        self, function: relay.Function, seconds: dict[str, float], knowledge: object = ()
    ) -> None:
        self.without_log = None if knowledge is None else Records(function, dict(knowledge), None)
        groups = [g for m in groupings(function) for g in fused_groups(m["main"])]
        first = {g.key: g.name.split("+")[0] for g in groups}
        self.known = {key: seconds[name] for key, name in first.items() if name in seconds}

    def seconds(self, dag) -> float | None:
        return self.known.get(dag.hash)

    def task_names(self) -> set[str]:
        return set()

    def confirmed(self, network: str) -> None:
        return None


@pytest.mark.parametrize(
    ("seconds", "knowledge", "whole"),
    [
        ({}, {}, False),
        ({"attention": 1.0}, {}, False),
        ({"attention": 1.0}, {"attention": 1.0}, True),
        ({"attention": 3.5, "batch_matmul": 1.0, "softmax": 1.0}, {}, False),
        ({"attention": 2.5, "batch_matmul": 1.0, "softmax": 1.0}, {}, True),
        ({"batch_matmul": 1.0, "softmax": 1.0}, {}, False),
        ({"attention": 9.0, "batch_matmul": 1.0}, {}, False),
    ],
)
def test_a_build_takes_what_was_measured_to_be_faster(seconds, knowledge, whole):
    """Where a log lacks kernels of one way, the way is that of a build without the log."""
    f = function(by_hand())
    main = decide(f, None, Records(f, seconds, knowledge), CPU).main
    assert ("attention" in [g.name for g in fused_groups(main)]) == whole


@pytest.mark.parametrize(
    ("dtype", "rows", "target", "whole"),
    [("float16", 128, "cuda -arch=sm_90", True), ("float32", 128, "cuda -arch=sm_90", False),
     ("float16", 128, "cuda -arch=sm_70", False), ("float16", 128, "llvm", False),
     ("float32", 1, "cuda -arch=sm_90", True)],
)  # fmt: skip
def test_unmeasured_it_is_taken_where_it_is_predicted_to_gain(dtype, rows, target, whole):
    q, k, v = (tensor(n, 4, 128 if n != "q" else rows, 64, dtype=dtype) for n in "qkv")
    share = nn.softmax(nn.batch_matmul(q, k))
    f = function(nn.batch_matmul(share, v, transpose_b=False))
    main = decide(f, None, Records(f, {}, {}), Target(target)).main
    assert ("attention" in [g.name for g in fused_groups(main)]) == whole
    parts = Records(f, {"batch_matmul": 1e-9, "softmax": 1e-9}, {})
    main = decide(f, None, parts, Target(target)).main
    assert "attention" not in [g.name for g in fused_groups(main)]


def test_several_attentions_are_each_a_kernel():
    x = tensor("x", 2, 5, 8)
    for k in range(2):
        share = nn.softmax(nn.batch_matmul(x, tensor(f"k{k}", 2, 5, 8)))
        x = nn.batch_matmul(share, tensor(f"v{k}", 2, 5, 8), transpose_b=False)
    whole = fuse_attention(relay.IRModule.from_expr(function(x)))
    (group,) = fused_groups(whole["main"])
    assert len(group.calls) == 2 and group.name == "attention"
