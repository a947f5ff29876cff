"""States: transform steps by hand give the schedules that the same steps of a log give."""

import json
import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import tilewright
from tilewright import te
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright_tvm import auto_scheduler, nd, topi
from tilewright_tvm.auto_scheduler import _ffi_api
from tilewright_tvm.auto_scheduler.loop_state import Stage, State
from tilewright_tvm.logs.ansor_steps import replay_ansor
from tilewright_tvm.topi.sparse.utils import random_bsr_matrix

MARKS = State.ANNOTATION_TRANS_TABLE


def matmul(n: int, m: int, k: int) -> list[te.Tensor]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="k")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


def begun(tensors: list[te.Tensor]) -> State:
    return auto_scheduler.ComputeDAG(tensors).get_init_state()


def extents(state: State, stage: Any) -> list[int]:
    return [it.range.extent for it in state[stage].iters if it.range is not None]


def test_loops_are_split_reordered_fused_and_marked() -> None:
    *_, c = tensors = matmul(64, 32, 16)
    s = begun(tensors)
    i, j, k = s[c].iters
    io, ii = s.split(c, i, [16])
    assert s[c].iters[:2] == (io, ii) and (io.range.extent, ii.range.extent) == (4, 16)
    jo, ji = s.split(c, j, [8], inner_to_outer=False)
    assert (jo.range.extent, ji.range.extent) == (8, 4)
    s.reorder(c, [io, jo, k, ii, ji])
    assert extents(s, c) == [4, 8, 16, 16, 4]
    fused = s.fuse(c, [io, jo])
    assert fused.range.extent == 32 and s.parallel(c, fused).annotation == MARKS["parallel"]
    assert s.vectorize(c, ji).annotation == MARKS["vectorize"]
    assert s.unroll(c, ii, max_unroll=8).annotation == MARKS["none"]
    assert s.unroll(c, ii, max_unroll=16).annotation == MARKS["unroll"]
    assert [it.iter_kind for it in s[c].iters] == [0, 1, 0, 0]
    again = begun(tensors)
    again.split(c, again[c].iters[0], [8, 2])
    assert extents(again, c) == [4, 8, 2, 32, 16]
    for it, tag in zip(again[c].iters, ("blockIdx.x", "vthread", "threadIdx.y"), strict=False):
        assert again.bind(c, it, tag).annotation == MARKS[tag]


def test_places_and_stages() -> None:
    data, weight = te.placeholder((1, 4, 8, 8)), te.placeholder((6, 4, 3, 3), name="w")
    conv = topi.nn.conv2d_nchw(data, weight, 1, 1)
    s = begun([data, weight, topi.nn.relu(conv)])
    assert [op.name for op in s.stage_ops] == [
        "placeholder",
        "pad_temp",
        "w",
        conv.op.name,
        "compute",
    ]
    relu = s.stage_ops[-1]
    s.compute_inline(1)
    s.compute_at(conv, relu, s[relu].iters[2])
    assert [st.compute_at for st in s.stages] == [0, 1, 0, 2, 0]
    assert Stage.COMPUTE_AT_TRANS_TABLE["iter"] == 2
    assert extents(s, conv) == [1, 1, 1, 8, 4, 3, 3]
    s.compute_root(conv)
    assert extents(s, conv) == [1, 6, 8, 8, 4, 3, 3]
    made = s.cache_write(conv, "global")
    s.compute_at(made, conv, s[conv].iters[3])
    copy = s.cache_read(weight, "global", [made])
    s.compute_at(copy, made, s[made].iters[4])
    inferred = s.compute_dag.infer_bound_from_state(s)
    assert extents(inferred, copy) == [1, 1, 3, 3] and extents(inferred, made)[:4] == [1, 1, 1, 1]
    assert inferred == s and inferred != begun([data, weight, topi.nn.relu(conv)])


def test_partial_results_of_copies() -> None:
    *_, c = tensors = matmul(8, 8, 64)
    s = begun(tensors)
    outer, inner = s.split(c, s[c].iters[2], [16])
    for loop, lengths in ((outer, [4, 16]), (inner, [16, 4])):
        own = s.copy()
        partial = own.rfactor(c, loop, 2)
        assert extents(own, partial) == [8, 8, *lengths] and extents(own, c) == [8, 8, lengths[0]]
    assert len(s.stages) == 3  # copies leave it as it is


def test_a_reader_of_several_results_of_one_stage_is_a_stage() -> None:
    a = te.placeholder((8, 4), name="a")
    more, less = te.compute((8, 4), lambda i, j: (a[i, j] + 1.0, a[i, j] / 2.0), name="both")
    c = te.compute((8, 4), lambda i, j: more[i, j] * less[i, j], name="c")
    s = begun([a, topi.nn.relu(c)])
    assert [op.name for op in s.stage_ops][:3] == ["a", "both", "c"] and len(s.stages) == 4
    s.compute_inline(c)
    assert s[c].compute_at == Stage.COMPUTE_AT_TRANS_TABLE["inlined"]


# As the auto-scheduler's log has them, and by hand.
STEPS = [
    ["CHW", 2, "local"], ["SA", 2, 0, 8, 4], ["SP", 3, 0, 64, [2, 4, 2], 1],
    ["SP", 3, 4, 64, [1, 8, 4], 1],
    ["FSP", 2, 0, 2, 3], ["FFSP", 2, 4, [2, 3], 1, 1], ["PR", 3, 0, "auto_unroll_max_step$64"],
    ["AN", 3, 7, 2], ["RE", 3, [0, 4, 1, 5, 2, 6, 3, 7]], ["FU", 3, [0, 1]], ["AN", 3, 0, 3],
    ["CA", 2, 3, 2],
]  # fmt: skip


def by_hand(s: State, c: te.Tensor) -> None:
    local = s.cache_write(c, "local")
    s.storage_align(local, s[local].iters[0], 8, 4)
    s.split(c, s[c].iters[0], [2, 4, 2])
    first = len(s.transform_steps) - 1
    s.split(c, s[c].iters[4], [1, 8, 4])
    assert len(s.follow_split(local, s[local].iters[0], first, 3)) == 4
    outer, inner = s.follow_fused_split(local, s[local].iters[4], [first, first + 1], 1, True)
    assert inner.range.extent == 32 and s[local].iters[4:6] == (outer, inner)
    s.pragma(c, s[c].iters[0], "auto_unroll_max_step$64")
    s.vectorize(c, s[c].iters[7])
    s.reorder(c, [s[c].iters[k] for k in (0, 4, 1, 5, 2, 6, 3, 7)])
    s.fuse(c, s[c].iters[:2])
    s.parallel(c, s[c].iters[0])
    s.compute_at(local, c, s[c].iters[2])


@pytest.mark.slow
def test_steps_by_hand_are_those_of_a_log() -> None:
    *_, c = tensors = matmul(64, 64, 32)
    dag = auto_scheduler.ComputeDAG(tensors)
    s = dag.get_init_state()
    by_hand(s, c)
    assert s.to_json() == replay_ansor(dag, STEPS).to_json()
    assert len(s.transform_steps) == len(STEPS)
    assert [step for call in s.transform_steps for step in call] == s.steps
    schedule, args = dag.apply_steps_from_state(s)
    func = tilewright.build(schedule, args, "llvm")
    rng = np.random.default_rng(0)
    a, b = rng.random((64, 32), np.float32), rng.random((32, 64), np.float32)
    out = nd.empty((64, 64))
    func(nd.array(a), nd.array(b), out)
    assert np.allclose(out.numpy(), a @ b, atol=1e-4)
    scope: dict[str, Any] = {"te": te, "tensors": tensors}
    exec(dag.print_python_code_from_state(s), scope)
    assert scope["s"].to_json() == s.to_json()


def test_a_state_of_a_schedule_goes_on_with_its_steps() -> None:
    *_, c = tensors = matmul(16, 16, 16)
    s = begun(tensors)
    s.cache_write(c, "local")
    s.cache_read(tensors[0], "shared", [2])
    again = State(s.compute_dag.apply_steps_from_state(s)[0])
    assert [op.name for op in again.stage_ops] == [op.name for op in s.stage_ops]
    assert again == s and len(again.transform_steps) == 2
    assert pickle.loads(pickle.dumps(s.compute_dag)).get_init_state().steps == []


@pytest.mark.parametrize(("call", "told"), [
    (lambda s, c: s.split(c, s[c].iters[0], [0]), "a length is open|at least 1"),
    (lambda s, c: s.split(c, s[c].iters[0], [None, None]), "a length is open.*Give a number"),
    (lambda s, c: s.split(c, s[c].iters[0], []), "there is no length"),
    (lambda s, c: s.split(c, "i", [2]), "iterator is a str, not a Iterator"),
    (lambda s, c: s.split(0, s[c].iters[0], [2]), r"no loop of A\. state\[...\]\.iters are none"),
    (lambda s, c: s.fuse(c, []), "there is no loop"),
    (lambda s, c: s.fuse(c, [s[c].iters[0], s[c].iters[2]]), "not neighbours"),
    (lambda s, c: s.reorder(c, s[c].iters[:2]), "no order of the 3 iterators"),
    (lambda s, c: s.bind(c, s[c].iters[0], "threadIdx"), "it is no thread index"),
    (lambda s, c: s.follow_split(c, s[c].iters[0], 7, 2), "step 7 is no split"),
    (lambda s, c: s.pragma(c, s[c].iters[0], "debug_skip_region"), r"Only auto_unroll_max_step\$N"),
    (lambda s, c: s.tensorize(c, s[c].iters[0], "wmma"), "matrix instructions are not there yet"),
    (lambda s, c: s.compute_at(9, c, s[c].iters[0]), "no stage of this state.*0: A, 1: B, 2: C"),
    (lambda s, c: s[te.placeholder((2,), name="x")], "no stage of this state"),
])  # fmt: skip
def test_what_is_refused_leaves_the_state(call: Callable[[State, Any], Any], told: str) -> None:
    *_, c = tensors = matmul(8, 8, 8)
    s = begun(tensors)
    with pytest.raises(ScheduleError, match=told):
        call(s, c)
    assert s == begun(tensors) and not s.transform_steps


def test_states_of_nothing_and_of_others_are_refused() -> None:
    s = begun(matmul(8, 8, 8))
    for wrong, told in (
        ((object(),), "state is a object, not"),
        ((s, begun(matmul(4, 4, 4)).compute_dag), "of another"),
    ):
        with pytest.raises(SpaceError, match=told):
            State(*wrong)
    unfinished = begun(matmul(8, 8, 8))
    unfinished.cache_write(2, "local")
    with pytest.raises(ScheduleError, match="a local buffer ends with its kernel"):
        unfinished.compute_dag.infer_bound_from_state(unfinished)


def test_a_rule_calls_steps_and_leaves_lengths_open() -> None:
    task = auto_scheduler.SearchTask(compute_dag=matmul(12, 16, 8), target="llvm")
    rule = auto_scheduler.PreloadCustomSketchRule

    def apply(policy: Any, state: Any, stage_id: int) -> Any:
        s = State(state, policy.search_task.compute_dag)
        stage = s.stage_ops[stage_id]
        i, j, _ = s[stage].iters
        assert len(s.split(stage, i, [None, None])) == 3
        s.follow_split(stage, j, len(s.transform_steps) - 1, 2)
        return [[s.state_object, -1]]

    custom = rule(lambda policy, state, k: rule.APPLY_AND_SKIP_REST if k == 2 else rule.PASS, apply)
    policy = auto_scheduler.SketchPolicy(task, init_search_callbacks=[custom], verbose=0)
    (sketch,) = policy.generate_sketches()
    steps = sketch.close(sketch.space.index_of({"C:i": [2, 3, 2], "C:unroll": 0})).to_json()
    assert steps[:4] == [
        ["split", "C", "i", 2, None], ["split", "C", "i.outer", 3, None],
        ["split", "C", "j", 2, None], ["split", "C", "j.outer", 3, None],
    ]  # fmt: skip


def test_flops_that_a_stage_states_count() -> None:
    a, b, c = matmul(8, 8, 8)
    d = te.compute((8, 8), lambda i, j: c[i, j], attrs={"FLOP": 1234})
    assert auto_scheduler.ComputeDAG([a, b, d]).flop_ct == 2 * 8**3 + 1234
    dag = auto_scheduler.ComputeDAG([a, b, c])
    assert dag.hash_key() == json.loads(dag.workload_key())[0]
    assert dag.print_dag(simple_mode=True).startswith("A = PLACEHOLDER \n")


def sparse_layer(m: int, n: int, k: int, size: int) -> list[te.Tensor]:
    """relu(x @ w.T + b), w [n, k] in blocks of `size` rows."""
    w = random_bsr_matrix(n, k, size, 1, density=0.5, seed=3)
    x, b = te.placeholder((m, k), name="X"), te.placeholder((m, n), name="B")
    parts = [te.placeholder(p.shape, p.dtype.name) for p in (w.data, w.indices, w.indptr)]
    out = topi.nn.relu(topi.nn.sparse_dense(x, *parts) + b)
    return [x, *parts, b, out]


def tiled_together(policy: Any, state: Any, stage_id: int) -> Any:
    """Tiles of the last stage with the blocks computed in them; nothing is marked."""
    task = policy.search_task
    s = State(state, task.compute_dag)
    product, block = s.stage_ops[stage_id], s.stage_ops[stage_id - 1]
    (reader,) = _ffi_api.SearchPolicyUtilsGetConsumers(task, s.state_object, stage_id)
    assert _ffi_api.SearchPolicyUtilsIsElementwiseMatch(task, state, stage_id, reader)
    last = s.stage_ops[reader]
    s.compute_inline(product)
    i, nb_j, j, row_offset, c = s[block].iters
    m, n = s[last].iters
    i0, i1 = s.split(block, i, [None])
    m0, m1 = s.follow_split(last, m, len(s.transform_steps) - 1, 1)
    j0, j1 = s.split(block, nb_j, [None])
    n0, n1 = s.follow_split(last, n, len(s.transform_steps) - 1, 1)
    s.reorder(block, [i0, j0, j1, row_offset, i1, j, c])
    s.reorder(last, [m0, n0, m1, n1])
    s.compute_at(block, last, n0)
    return [[s.state_object, stage_id - 2]]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "opencl"])
def test_a_rule_may_leave_marks_to_the_search(target: str) -> None:
    """Where the rule computed a stage stays; what lies outside is spread over the cores."""
    tensors = sparse_layer(8, 16, 12, 4)
    task = auto_scheduler.SearchTask(compute_dag=tensors, target=target)
    rule = auto_scheduler.PreloadCustomSketchRule
    tags = [op.tag for op in begun(tensors).stage_ops]
    meets = lambda policy, state, k: (  # noqa: E731
        rule.APPLY_AND_SKIP_REST if tags[k] == "sparse_dense_sp_rhs_bsrmm" else rule.PASS
    )
    policy = auto_scheduler.SketchPolicy(
        task, init_search_callbacks=[rule(meets, tiled_together, "own")], verbose=0
    )
    (sketch,) = policy.generate_sketches()
    assert sketch.origin == "rules:own"
    inside = [s for s in sketch.close(0).stages if s.attach_kind == "scope"]
    assert "sparse_dense_block" in [s.name for s in inside]
    rng = np.random.default_rng(0)
    w = random_bsr_matrix(16, 12, 4, 1, density=0.5, seed=3)
    x, b = (rng.standard_normal(shape).astype("float32") for shape in ((8, 12), (8, 16)))
    for index in (0, len(sketch.space) // 2, len(sketch.space) - 1):
        schedule = sketch.close(index)
        func = tilewright.build(schedule, tensors, target)
        dev = tilewright.device(target, 0)
        out = nd.empty((8, 16), device=dev)
        func(*(nd.array(v, dev) for v in (x, w.data, w.indices, w.indptr, b)), out)
        wanted = np.maximum(x @ w.todense().T + b, 0)
        np.testing.assert_allclose(out.numpy(), wanted, rtol=1e-4, atol=1e-5)


def test_whom_a_rule_asks_about_readers() -> None:
    a, b, c = matmul(4, 4, 4)
    twice = [te.compute((4, 4), lambda i, j, k=k: c[i, j] * k, name=f"d{k}") for k in (2, 3)]
    task = auto_scheduler.SearchTask(compute_dag=[a, b, *twice], target="llvm")
    s = task.compute_dag.get_init_state()
    readers = _ffi_api.SearchPolicyUtilsGetConsumers(task, s, 2)
    assert readers.items() == [(3, [(3, 2)]), (4, [(4, 2)])]
    assert not _ffi_api.SearchPolicyUtilsIsElementwiseMatch(task, s, 2, 3)
    assert _ffi_api.SearchPolicyUtilsGetConsumers(task, s, 4) == {}
    for number in (5, -1):
        with pytest.raises(SpaceError, match="the state has 5 stages"):
            _ffi_api.SearchPolicyUtilsGetConsumers(task, s, number)
