"""Inputs that are given: who gets them, which values are refused, and what they are used for."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.tvm.auto_scheduler.workloads import CPU
from tilewright import te
from tilewright.base.errors import RecordError, SpaceError
from tilewright.measure import reference
from tilewright.search.jobs import References
from tilewright.te.tensor import Tensor
from tilewright_tvm import auto_scheduler, nd, topi
from tilewright_tvm.topi.testing import random_bsr_matrix

MATRIX = random_bsr_matrix(12, 8, 4, 2, 0.5, seed=3)
SIZES = "sparse_dense_bsr_12_8_4_2_6_4_"
VALUES = {"W_data": MATRIX.data, "W_indices": MATRIX.indices, "W_indptr": MATRIX.indptr}


@auto_scheduler.register_workload("tests/sparse_product")
def sparse_product(rows: int) -> list[Tensor]:
    x = te.placeholder((rows, 8), name="x")
    parts = [te.placeholder(v.shape, v.dtype.name, name=n.lower()) for n, v in VALUES.items()]
    return [x, *parts, topi.nn.relu(topi.nn.sparse_dense(x, *parts))]


def task_of(inputs: Any, rows: int = 4, target: Any = CPU, **more: Any) -> Any:
    return auto_scheduler.SearchTask(
        func=sparse_product, args=(rows,), target=target, task_inputs=inputs, **more
    )


def named(prefix: str = SIZES) -> dict[str, Any]:
    return {prefix + name: nd.array(value) for name, value in VALUES.items()}


@pytest.fixture(autouse=True)
def here(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def cases_of(task: Any) -> list[Any]:
    references = References()
    try:
        found = reference.load(references.get(task.task))
        return [found, *found.also]
    finally:
        references.close()


def test_candidates_are_verified_and_timed_with_them() -> None:
    task = task_of(named())
    assert task.task_input_names == list(named())
    timed, whole = cases_of(task)
    for case in (timed, whole):  # in the second one floats are whole numbers
        assert (case.inputs[2] == MATRIX.indices).all() and (case.inputs[3] == MATRIX.indptr).all()
    assert (timed.inputs[1] == MATRIX.data).all() and (whole.inputs[1] != MATRIX.data).any()
    expected = np.maximum(timed.inputs[0] @ MATRIX.todense().T, 0)
    assert np.allclose(timed.expected[0], expected, atol=1e-4)


@pytest.mark.long
def test_a_search_uses_them_and_the_best_kernel_is_right(tmp_path: Path) -> None:
    task, log = task_of(named(), target="llvm"), tmp_path / "log.json"
    option = auto_scheduler.TuningOptions(
        4, runner=auto_scheduler.LocalRunner(min_repeat_ms=1), verbose=0,
        measure_callbacks=[auto_scheduler.RecordToFile(log)],
    )  # fmt: skip
    assert task.tune(option).tasks[0].best is not None
    assert auto_scheduler.load_best_record(log, task.workload_key)[1].error_no == 0


def test_two_tasks_of_one_computation_have_references_of_their_own() -> None:
    """What is right for one matrix need not be for another: neither arrays nor statements meet."""
    other = {**VALUES, "W_indptr": np.array([0, 0, 1, 6], np.int32)}
    tasks = [task_of(None, 5), task_of(named(), 5)]
    changed = {f"{SIZES}{n}": v for n, v in other.items()}
    tasks.append(task_of(changed, 5, task_inputs_overwrite=True))
    references = References()
    try:
        found = [references.get(task.task) for task in tasks]
    finally:
        references.close()
    assert len({r.directory for r in found}) == len({r.given for r in found}) == 3
    assert found[0].given == ""


def test_inputs_by_their_own_names_and_by_names_of_the_users_own() -> None:
    assert set(task_of({"w_indptr": MATRIX.indptr}).task.inputs) == {"w_indptr"}

    @auto_scheduler.register_task_input_check_func("tests/first", override=True)
    def first(args: Any) -> dict[Tensor, str]:
        return {t: "the first" for t in args[:1] if t.shape == (6, 8)}

    x = np.ones((6, 8), np.float32)
    task = task_of({"the first": x}, 6)
    assert (cases_of(task)[0].inputs[0] == x).all()
    assert "the first" in auto_scheduler.prepare_input_map(task.compute_dag.tensors).values()
    with pytest.raises(SpaceError, match="another function has that name"):
        auto_scheduler.register_task_input_check_func("tests/first", lambda args: {})


@pytest.mark.parametrize("columns", [2, None])
def test_names_of_a_sparse_product(columns: int | None) -> None:
    """Whatever sizes are equal: here rows + 1 is the number of elements."""
    data = (3,) if columns is None else (3, 5, columns)
    x, w = te.placeholder((4, 6), name="x"), te.placeholder(data, name="w")
    i, p = (te.placeholder((3,), "int32", name=n) for n in "ip")
    out = topi.nn.sparse_dense(x, w, i, p)
    found = auto_scheduler.prepare_input_map([x, w, i, p, out])
    prefix = "sparse_dense_csr_2_6_3_3_" if columns is None else "sparse_dense_bsr_10_6_5_2_3_3_"
    names = {t.name: name for t, name in found.items()}
    assert names == {"w": f"{prefix}W_data", "i": f"{prefix}W_indices", "p": f"{prefix}W_indptr"}


def test_buffers_are_kept_in_files(tmp_path: Path) -> None:
    register, get = auto_scheduler.register_task_input_buffer, auto_scheduler.get_task_input_buffer
    register('["tests/a"]', "kept", MATRIX.data, save_to_file=True)
    assert [p.name for p in tmp_path.iterdir()] == ["kept.6_4_2_float32.npy"]
    assert (get('["tests/b"]', "kept") == MATRIX.data).all()  # as another process would find it
    (tmp_path / "text.2_3_int32.npy").write_text("0 1 2 3 4 5")  # as TVM writes it
    assert get('["tests/a"]', "text").tolist() == [[0, 1, 2], [3, 4, 5]]
    (tmp_path / "cut.2_3_int32.npy").write_bytes((tmp_path / "kept.6_4_2_float32.npy").read_bytes())
    with pytest.raises(RecordError, match="no buffer of that shape and type"):
        get('["tests/a"]', "cut")
    (tmp_path / "short.2_3_int32.npy").write_text("0 1")
    with pytest.raises(RecordError, match="no buffer of that shape and type"):
        get('["tests/a"]', "short")
    with pytest.raises(SpaceError, match="no file's"):
        register('["tests/a"]', "../up", MATRIX.data, save_to_file=True)


def test_a_buffer_is_replaced_only_where_that_is_asked_for() -> None:
    register, get = auto_scheduler.register_task_input_buffer, auto_scheduler.get_task_input_buffer
    one, two = np.zeros(3, np.int32), np.ones(3, np.int32)
    register("default", "shared", one)
    register("default", "shared", one.copy())  # the same
    with pytest.raises(SpaceError, match="pass overwrite=True"):
        register("default", "shared", two)
    register("default", "shared", two, overwrite=True)
    assert (get('["tests/any"]', "shared") == two).all()
    two[:] = 7  # what is registered is a copy
    assert get('["tests/any"]', "shared").tolist() == [1, 1, 1]
    with pytest.raises(SpaceError, match="no file has it"):
        get('["tests/any"]', "nowhere")


WRONG = {
    "name": ({"w_nothing": MATRIX.indptr}, "no input is called 'w_nothing'"),
    "shape": ({"w_indptr": MATRIX.indptr[:3]}, re.escape("is int32[3], the computation takes")),
    "type": ({"w_indptr": MATRIX.indptr.astype(np.float32)}, re.escape("is float32[4]")),
    "kind": (7, "is no dict"),
    "array": ({"w_indptr": [0, 1, 2, 3]}, "list is no array"),
    "beyond": ({"w_indices": MATRIX.indices + 9, "w_indptr": MATRIX.indptr}, "leaves the dim"),
}


@pytest.mark.parametrize("case", WRONG)
def test_refusals(case: str) -> None:
    given, text = WRONG[case]
    with pytest.raises(SpaceError, match=text):
        task_of(given, task_inputs_overwrite=True)
