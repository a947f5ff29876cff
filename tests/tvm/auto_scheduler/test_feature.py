"""Features of stores: numbers that can be worked out by hand, and the layout they come in."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tvm.auto_scheduler.workloads import CPU
from tilewright import te
from tilewright.base.errors import RecordError, SpaceError
from tilewright.targets.target import Target
from tilewright_tvm import auto_scheduler
from tilewright_tvm.auto_scheduler import feature
from tilewright_tvm.logs.ansor_steps import replay_ansor

SIZE = 32


def near(x: float) -> Any:
    return pytest.approx(x, rel=1e-3)


def matmul(n: int = SIZE) -> list[te.Tensor]:
    a, b = te.placeholder((n, n), name="A"), te.placeholder((n, n), name="B")
    k = te.reduce_axis((0, n), name="k")
    return [a, b, te.compute((n, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k), name="C")]


def task_of(tensors: list[te.Tensor], target: Any = CPU) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(compute_dag=tensors, target=target)


def rows_of(task: auto_scheduler.SearchTask, state: Any) -> list[dict[str, float]]:
    """Columns by name, before their logarithm was taken."""
    columns = feature.get_per_store_feature_names()
    (rows,) = feature.get_per_store_features_from_states([state], task)
    assert rows.shape[1] == len(columns) == 164 and rows.dtype == np.float32
    found = [dict(zip(columns, row.tolist(), strict=True)) for row in rows]
    for row in found:
        for name, x in row.items():
            if "type." not in name and name != "is_gpu":
                row[name] = float(f"{2**x - 1:.4g}") if x > 1e-6 else 0.0
    return found


def tiled(task: auto_scheduler.SearchTask) -> Any:
    s = task.compute_dag.get_init_state()
    i, j, k = s[2 if len(s.stages) == 3 else 0].iters
    io, ii = s.split(2, i, [16])
    jo, ji = s.split(2, j, [8])
    s.reorder(2, [io, jo, k, ji, ii])
    s.vectorize(2, ji)
    s.parallel(2, io)
    s.parallel(2, jo)
    s.unroll(2, k)
    return s


def test_a_tiled_product_on_a_cpu() -> None:
    task = task_of(matmul())
    (row,) = rows_of(task, tiled(task))
    buffers = {}
    for b in ("B0", "B1", "B2"):
        if row[f"{b}.acc_type.kReadWrite"]:
            buffers["C"] = b
        else:
            assert row[f"{b}.acc_type.kRead"]
            buffers["B" if row[f"{b}.stride"] == 0 else "A"] = b
    a, b, c = (buffers[name] for name in "ABC")
    assert row[f"{c}.bytes"] == near(SIZE**3 * 4) and row[f"{b}.unique_bytes"] == near(SIZE**2 * 4)
    assert row[f"{c}.reuse_type.kLoopMultipleRead"] == 1 and row[f"{c}.reuse_ct"] == SIZE
    assert row[f"{c}.reuse_dis_iter"] == 8 * 16
    assert row[f"{c}.reuse_dis_bytes"] == (8 * 16 + 8 + 16) * 4
    assert row[f"{a}.stride"] == SIZE and row[f"{c}.stride"] == SIZE
    assert row[f"{b}.reuse_dis_bytes"] == 12 and row[f"{b}.reuse_ct"] == 16
    assert row[f"{c}.bytes_d_reuse_ct"] == near(SIZE**2 * 4)
    assert (row["unroll_num"], row["vec_num"], row["parallel_num"]) == (1, 1, 2)
    assert row["vec_len"] == 8 and row["parallel_prod"] == near(SIZE * SIZE / 16 / 8)
    assert row["unroll_type.kPosMixed"] == 1 and row["vec_type.kPosNone"] == 0
    assert row["float_mul"] == row["float_addsub"] == row["outer_prod"] == near(SIZE**3)
    assert row["num_loops"] == 5 and row["is_gpu"] == 0 and row["blockIdx_x_len"] == 1
    whole = 2 * SIZE**3 / (3 * SIZE**2 * 4)
    assert row["arith_intensity_curve_9"] == near(whole)


def test_a_stage_inside_a_loop_is_used_at_once() -> None:
    a = te.placeholder((64, 32), name="A")
    b = te.compute((64, 32), lambda i, j: a[i, j] + 1.0, name="B")
    task = task_of([a, te.compute((64, 32), lambda i, j: b[i, j] * 2.0, name="C")])
    s = task.compute_dag.get_init_state()
    s.compute_at(1, 2, s.stages[2].iters[1])
    inner, outer = rows_of(task, s)
    assert inner["alloc_size"] == 4 and inner["alloc_outer_prod"] == near(64 * 32)
    assert outer["alloc_size"] == 0
    (at,) = (k for k in range(2) if outer[f"B{k}.reuse_type.kSerialMultipleReadWrite"])
    assert outer[f"B{at}.reuse_dis_iter"] == 1 and outer[f"B{at}.reuse_dis_bytes"] == 16


def test_blocks_and_threads() -> None:
    tensors = matmul(16)
    steps = [
        ["SP", 2, 0, 16, [2, 4], 1], ["RE", 2, [0, 1, 2, 3, 4]], ["AN", 2, 0, 5], ["AN", 2, 1, 4],
        ["AN", 2, 2, 6], ["PR", 2, 3, "auto_unroll_max_step$64"],
    ]  # fmt: skip
    task = task_of(tensors, Target("cuda"))
    (row,) = rows_of(task, replay_ansor(task.compute_dag, steps))
    assert (row["blockIdx_x_len"], row["vthread_len"], row["threadIdx_x_len"]) == (2, 2, 4)
    assert row["is_gpu"] == 1 and row["threadIdx_y_len"] == 1
    assert row["auto_unroll_max_step"] == 64


def test_threads_that_share_a_copy_are_counted_once() -> None:
    """Of 16 threads each copies 4 of the 64 elements that they read together."""
    *_, c = tensors = matmul(16)
    task = task_of(tensors, Target("cuda"))
    s = task.compute_dag.get_init_state()
    outer, _ = s.split(c, s[c].iters[0], [8])
    s.bind(c, outer, "blockIdx.x")
    s.bind(c, s[c].iters[1], "vthread")
    s.bind(c, s[c].iters[2], "threadIdx.x")
    k_outer, _ = s.split(c, s[c].iters[3], [4])
    shared = s.cache_read(tensors[1], "shared", [c])
    s.compute_at(shared, c, k_outer)
    fused = s.fuse(shared, s[shared].iters)
    _, thread = s.split(shared, fused, [8])
    s.bind(shared, thread, "threadIdx.x")
    copy, row = rows_of(task, s)
    for found in (copy, row):
        assert (found["blockIdx_x_len"], found["threadIdx_x_len"]) == (2, 16)
    # a block, for each of 8 virtual threads and 4 steps, copies 4 x 16 elements with 8 threads
    assert copy["outer_prod"] == near(2 * 8 * 4 * 64) and copy["num_loops"] == 5
    assert copy["alloc_outer_prod"] == near(2 * 8 * 4) and copy["alloc_inner_prod"] == near(64)
    assert row["outer_prod"] == near(16 * 16 * 16)


def test_pairs_and_files(tmp_path: Path) -> None:
    log, task, other = tmp_path / "log.json", task_of(matmul(8)), task_of(matmul(4))
    inputs = [
        auto_scheduler.MeasureInput(t, t.compute_dag.init_state) for t in (task, task, other, task)
    ]
    results = [auto_scheduler.MeasureResult([s], 0, "", 0.1, 1) for s in (0.2, 0.1, 0.5)]
    results.append(auto_scheduler.MeasureResult([1e10], 4, "lost", 0.1, 1))
    rows, speeds, tasks = feature.get_per_store_features_from_measure_pairs(inputs, results, 1)
    assert speeds.tolist() == [0.5, 1.0, 1.0, 0.0] and tasks.tolist() == [0, 0, 1, 0]
    assert not rows[0].any() and rows[1].any() and rows[1].shape == (1, 164)
    auto_scheduler.save_records(log, inputs, results)
    same, also, _ = feature.get_per_store_features_from_file(log, 3)
    assert len(same) == 3 and also.tolist() == [0.5, 1.0, 1.0] and (same[1] == rows[1]).all()
    assert len(feature.get_per_store_feature_names(2)) == 164 - 3 * 18


def test_what_has_no_features() -> None:
    task = task_of(matmul(8))
    s = task.compute_dag.init_state
    s.cache_write(2, "local")  # it is not where its reader is
    (rows,) = feature.get_per_store_features_from_states([s], task)
    assert rows.shape == (1, 164) and not rows.any()
    with pytest.raises(SpaceError, match="not a number from 1 to 100"):
        feature.get_per_store_feature_names(0)
    with pytest.raises(SpaceError, match="1 inputs and 0 results"):
        feature.get_per_store_features_from_measure_pairs(
            [auto_scheduler.MeasureInput(task, s)], []
        )
    with pytest.raises(RecordError):
        feature.get_per_store_features_from_file("no such log", 1)
    with pytest.raises(AttributeError, match=r"Use get_per_store_features_from_states\."):
        feature.features_from_primfunc  # noqa: B018


class Taste(auto_scheduler.PythonBasedModel):
    """Likes one tile of the reduction."""

    def update(self, inputs: Any, results: Any) -> None: ...

    def predict(self, task: Any, states: Any) -> Any:
        return [float(self.likes(state)) for state in states]

    @staticmethod
    def likes(state: Any) -> bool:
        return any(
            it.name.startswith("k.") and it.range.extent == 2
            for stage in state.stages for it in stage.iters
        )  # fmt: skip


@pytest.mark.slow
def test_evolution_finds_what_the_model_likes() -> None:
    task, model = task_of(matmul(8)), Taste()
    policy = auto_scheduler.SketchPolicy(task, model, verbose=0, templates=False)
    drawn = policy.sample_initial_population(30)
    bad = [state for state in drawn if not model.likes(state)]
    found = policy.evolutionary_search(bad, 20)
    assert len(found) == 20 and bad and model.likes(found[0])
    with pytest.raises(SpaceError, match="not one that this policy drew"):
        policy.evolutionary_search([task.compute_dag.init_state], 1)
