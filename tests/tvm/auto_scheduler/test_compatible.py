"""`include_compatible`: records of the same computation of other sizes, where their steps apply."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graph.small import database_of
from tests.tvm.auto_scheduler.workloads import CPU, product
from tilewright import build, cpu
from tilewright.base.errors import RecordError
from tilewright.network.extract import fused_tasks
from tilewright_tvm import auto_scheduler, nd, relay
from tilewright_tvm.contrib import graph_executor


def sized(*sizes: int) -> auto_scheduler.SearchTask:
    return auto_scheduler.SearchTask(func=product, args=sizes, target=CPU)


@pytest.fixture
def tuned(options: Any, tmp_path: Path) -> str:
    """A log of the product of [12, 8] and [8, 16]."""
    path = tmp_path / "log.json"
    sized(12, 16, 8).tune(options(6, auto_scheduler.RecordToFile(path)))
    return str(path)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(24, 16, 8), (12, 48, 8), (36, 32, 24)])
def test_steps_serve_multiples_of_their_sizes(tuned: str, sizes: tuple[int, int, int]) -> None:
    task = sized(*sizes)
    with pytest.raises(RecordError):
        task.apply_best(tuned)
    schedule, args = task.apply_best(tuned, include_compatible=True)
    assert [s.to_json() for s in schedule.steps] != []
    n, m, k = sizes
    rng = np.random.default_rng(0)
    a, b = (rng.standard_normal(shape).astype("float32") for shape in ((n, k), (k, m)))
    out = nd.empty((n, m))
    build(schedule, args, "llvm")(nd.array(a), nd.array(b), out)
    np.testing.assert_allclose(out.numpy(), np.maximum(a @ b, 0), rtol=1e-5, atol=1e-5)
    known = auto_scheduler.ApplyHistoryBest(tuned, include_compatible=True)
    found = known.query(CPU, task.workload_key)
    assert found.to_json() == schedule.to_json()
    assert auto_scheduler.ApplyHistoryBest(tuned).query(CPU, task.workload_key) is None
    best = auto_scheduler.load_best_record(tuned, task.workload_key, CPU, include_compatible=True)
    assert best[1].costs == auto_scheduler.load_best_record(tuned)[1].costs


@pytest.mark.slow
@pytest.mark.parametrize("sizes", [(18, 16, 8), (6, 16, 8), (12, 16, 12)])
def test_others_have_no_record(tuned: str, sizes: tuple[int, int, int]) -> None:
    """Neither what is no multiple nor what is smaller."""
    task = sized(*sizes)
    with pytest.raises(RecordError):
        task.apply_best(tuned, include_compatible=True)
    with pytest.raises(RecordError):
        auto_scheduler.load_best_record(tuned, task.workload_key, CPU, include_compatible=True)
    known = auto_scheduler.ApplyHistoryBest(tuned, include_compatible=True)
    assert known.query(CPU, task.workload_key) is None


@pytest.mark.slow
def test_a_record_of_its_own_counts_more(tuned: str, options: Any) -> None:
    larger = sized(24, 32, 16)
    larger.tune(options(6, auto_scheduler.RecordToFile(tuned)))
    own = larger.apply_best(tuned)[0].to_json()
    assert larger.apply_best(tuned, include_compatible=True)[0].to_json() == own


@pytest.mark.slow
def test_a_network_takes_them() -> None:
    def network(rows: int) -> Any:
        data = relay.var("data", shape=(rows, 64))
        weight = relay.const(np.random.default_rng(0).standard_normal((32, 64)).astype("float32"))
        return relay.Function([data], relay.nn.relu(relay.nn.dense(data, weight)))

    tasks = [t for t in fused_tasks(network(8), {}, "llvm") if t.sketches]
    records = database_of(tasks)
    for include, source in ((False, "default"), (True, "re-instantiated")):
        with auto_scheduler.ApplyHistoryBest(records, include_compatible=include):
            library = relay.build(network(16), "llvm")
        assert {k.source for k in library.report.kernels} == {source}
    module = graph_executor.GraphModule(library["default"](cpu()))
    data = np.random.default_rng(1).standard_normal((16, 64)).astype("float32")
    module.run(data=data)
    want = relay.evaluate(network(16), {"data": data})
    np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-4)
