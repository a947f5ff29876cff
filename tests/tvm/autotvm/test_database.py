"""`autotvm.database`: results by input."""

from __future__ import annotations

import copy

import pytest

from tilewright.base.errors import RecordError, SpaceError
from tilewright_tvm import autotvm
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
