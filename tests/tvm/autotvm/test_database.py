"""`autotvm.database`: results by input."""

from __future__ import annotations

import copy

import pytest

from tilewright.base.errors import RecordError, SpaceError
from tilewright_tvm import autotvm, relay
from tilewright_tvm.autotvm.database import DummyDatabase
from tilewright_tvm.autotvm.measure import MeasureResult
from tilewright_tvm.testing.autotvm import get_sample_records


def test_a_database_in_memory() -> None:
    records, database = get_sample_records(5), DummyDatabase()
    for given, result in records[:4]:
        database.save(given, result)
    assert database.load(records[1][0]) == records[1][1] and database.load(records[4][0]) is None
    slow = database.filter(lambda given, results: results[-1].costs[0] > 2)
    assert [result.costs[0] for _, result in slow] == [3, 4]
    later = MeasureResult((9.0,), 0, 0.0, 1.0)
    database.save(records[0][0], later, extend=True)
    assert database.load(records[0][0]) == later
    assert database.load(records[0][0], get_all=True) == [records[0][1], later]
    database.save(records[0][0], later)
    assert database.load(records[0][0], get_all=True) == [later]
    other = copy.deepcopy(records[0][0])
    other.config.code_hash = "of other code"
    assert database.load(other) is None
    database.flush()
    assert database.load(records[1][0]) is None
    with pytest.raises(SpaceError, match="not a MeasureInput"):
        database.load("x")  # type: ignore[arg-type]
    with pytest.raises(AttributeError, match=r"Use log_to_file"):
        autotvm.database.RedisDatabase()


@pytest.mark.parametrize("costs", [(0,), (1.0, -1.0), (float("nan"),), ("fast",)])
def test_costs_that_no_reader_would_take_are_not_written(costs: tuple[float]) -> None:
    ((given, _),) = get_sample_records(1)
    with pytest.raises(RecordError, match="Give positive seconds"):
        autotvm.record.encode(given, MeasureResult(costs, 0, 0.1, 1.0))
    assert autotvm.record.encode(given, MeasureResult(costs, 4, 0.1, 1.0))  # of a failure


def test_a_log_of_tasks_of_a_network_is_read_in_pairs(tmp_path) -> None:
    """Their templates are found by what they compute, not by name."""
    x, w = (relay.var(n, shape=s) for n, s in (("x", (4, 16)), ("w", (8, 16))))
    main = relay.Function([x, w], relay.nn.relu(relay.nn.dense(x, w)))
    (task,) = autotvm.task.extract_from_program(main, target="llvm", params={})
    log = tmp_path / "log.json"
    tuner = autotvm.tuner.RandomTuner(task)
    runner = autotvm.LocalRunner(number=1, repeat=1)
    tuner.tune(
        n_trial=3, measure_option=autotvm.measure_option(autotvm.LocalBuilder(), runner),
        callbacks=[autotvm.callback.log_to_file(str(log))],
    )  # fmt: skip
    pairs = list(autotvm.record.load_from_file(log))
    assert len(pairs) == 3
    configs = []
    for inp, result in pairs:
        assert inp.task.name == task.name and inp.task.key == task.key
        assert result.error_no == 0 and min(result.costs) > 0
        configs.append(str(inp.config))
    assert len(set(configs)) == 3 and all(c in map(str, _all(task.config_space)) for c in configs)
    assert pairs[0][1] == pairs[0][1] and pairs[0].task.name == task.name
    with open(log) as lines:
        assert [inp.task.key for inp, _ in autotvm.record.load_from_buffer(lines)] == [task.key] * 3


def _all(space):
    return [space.get(k) for k in range(len(space))]
