"""What reports work out: rooflines, comparisons, decisions that matter, time of searches."""

import math

import pytest

import tilewright as tw
from reporting.made_logs import DEVICE, TARGET, tasks_of, write_log
from search.spaces import Instant, cpu_task
from tilewright import te
from tilewright.cost.ceilings import (
    ARITHMETIC,
    CACHE,
    LAUNCH,
    MATRIX,
    MEMORY,
    Ceilings,
    Work,
    ceilings_of,
    from_json,
    work_of,
)
from tilewright.measure.database import Database
from tilewright.reporting.charts import rank_correlation
from tilewright.reporting.compare import FASTER, FEW, SAME, SLOWER, interval_of, verdict_of
from tilewright.reporting.knobs import knobs_of, shown
from tilewright.reporting.lanes import _apart
from tilewright.reporting.model import Span
from tilewright.reporting.svg import Axis, thinned
from tilewright.reporting.trials import _Clock
from tilewright.search.loop import Options, tune
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.topi import nn

KNOWN = Ceilings({"float32": 1e12}, {"float16": 1e13}, 1e11, 1e12, 1 << 20, 1e-6)


# -- roofline --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("work", "seconds", "side"),
    [
        (Work(1e9, 1 << 24, "float32", False), 1e-6 + 1e-3, ARITHMETIC),
        (Work(1e9, 1 << 24, "float16", True), 1e-6 + (1 << 24) / 1e11, MEMORY),
        (Work(1e11, 1 << 24, "float16", True), 1e-6 + 1e-2, MATRIX),
        (Work(1e11, 1 << 24, "float16", False), 1e-6 + 1e-1, ARITHMETIC),
        (Work(1e6, 1 << 20, "float32", False), 1e-6 + (1 << 20) / 1e12, CACHE),
        (Work(0, 64, "float32", False), 1e-6 + 64e-12, LAUNCH),
    ],
)
def test_the_slowest_side_limits_a_kernel(work, seconds, side):
    bound = KNOWN.bound(work)
    assert bound.seconds == pytest.approx(seconds) and bound.side == side


def test_of_an_unknown_device_there_is_no_bound():
    assert Ceilings().bound(Work(1.0, 1, "float32", True)) is None
    assert ceilings_of(Target("cuda -arch=sm_90")).matrix.keys() >= {"float16", "int8"}
    assert "float32" not in ceilings_of(Target("cuda -arch=sm_90")).matrix
    assert "float32" in ceilings_of(Target("cuda -arch=sm_90 -precision=tf32")).matrix


def test_a_function_of_the_processor_starts_in_no_time():
    assert ceilings_of(Target("llvm")).launch == 0 < ceilings_of(Target(TARGET)).launch


def test_ceilings_of_a_log_are_read_or_refused():
    assert from_json(KNOWN.to_json()) == KNOWN
    for told in (None, [], {}, {"rates": []}, {"rates": {"float32": "fast"}}, {"memory": True},
                 {"memory": math.inf}, {"memory": -1}, {"cache_bytes": math.nan}):  # fmt: skip
        assert from_json(told) is None


def test_a_product_of_matrices_is_told_from_other_sums():
    x, w = (te.placeholder(s, "float16", n) for s, n in (((64, 32), "x"), ((16, 32), "w")))
    product = work_of(ComputeDAG([x, w, nn.dense(x, w)]))
    assert product.multiplies and product.dtype == "float16"
    assert product.nbytes == 2 * (64 * 32 + 16 * 32 + 64 * 16) and product.flop == 2 * 64 * 32 * 16
    image, each = (te.placeholder(s, "float32", n)
                   for s, n in (((1, 8, 9, 9), "d"), ((8, 1, 3, 3), "k")))  # fmt: skip
    depthwise = nn.depthwise_conv2d_nchw(image, each, 1, 1, 1)
    assert not work_of(ComputeDAG([image, each, depthwise])).multiplies


def test_of_a_table_what_is_read_counts():
    table, at = te.placeholder((1000, 8), "float32", "t"), te.placeholder((3,), "int32", "i")
    rows = te.compute((3, 8), lambda i, j: table[at[i], j], "rows")
    assert work_of(ComputeDAG([table, at, rows])).nbytes == 4 * (24 + 3 + 24)


# -- comparison ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("here", "there", "verdict"),
    [
        ((1.0, 1.001, 0.999), (2.0, 2.01, 1.99), FASTER),
        ((2.0, 2.01, 1.99), (1.0, 1.001, 0.999), SLOWER),
        ((1.0, 1.001, 0.999), (1.02, 1.021, 1.019), SAME),  # certain, and below the noise of runs
        ((1.0, 1.6, 0.7), (1.2, 0.7, 2.0), SAME),  # far apart, and not certain
        ((1.0,), (2.0, 2.01), FEW),
        ((1.0,), (1.01,), SAME),
        ((1.0, 1.0), (1.0, 1.0), SAME),
        ((1.0, 1.0), (2.0, 2.0), FASTER),
    ],
)
def test_a_difference_is_one_that_repeats_make_certain(here, there, verdict):
    ratio = sorted(here)[len(here) // 2] / sorted(there)[len(there) // 2]
    assert verdict_of(ratio, interval_of(here, there)) == verdict


def test_two_logs_of_one_network_are_compared(tmp_path):
    tasks = tasks_of(2)
    logs = [tmp_path / "a.jsonl", tmp_path / "b.jsonl"]
    for log, faster in zip(logs, (1.0, 0.5), strict=True):
        write_log(log, tasks, 40, faster=faster)
    found = tw.report(logs[0], against=logs[1]).report.comparison
    assert {row.verdict for row in found.rows} == {FASTER}
    assert all(row.ratio == pytest.approx(0.5, rel=0.02) for row in found.rows)
    again = tw.report(logs[0], against=logs[0]).report.comparison
    assert {row.verdict for row in again.rows} == {SAME}


def test_two_logs_of_different_networks_have_nothing_in_common(tmp_path):
    first, second = tasks_of(2)
    write_log(tmp_path / "a.jsonl", [first], 10)
    write_log(tmp_path / "b.jsonl", [second], 10)
    found = tw.report(tmp_path / "a.jsonl", against=tmp_path / "b.jsonl").report.comparison
    assert "no computation in common" in found.told
    assert [row.verdict for row in found.rows] == ["only here", "only there"]


# -- decisions, charts -----------------------------------------------------------------------------


def test_the_decision_that_explains_the_times_comes_first():
    trials = [
        (1.0 + (k % 2) + 0.01 * (k % 5), b'{"tile":[%d,2],"free":%d}' % (k % 2, k % 5))
        for k in range(40)
    ]
    knobs = knobs_of(trials, {"free": 1, "tile": [0, 2], "other": 1}, 6)
    assert [k.name for k in knobs] == ["tile", "free"]
    assert knobs[0].importance > 0.98 and knobs[1].importance < 0.05
    assert [(v.text, v.every, v.leading) for v in knobs[0].values] == [
        ("0·2", 20, 3),
        ("1·2", 20, 0),
    ]


def test_many_values_are_gathered():
    trials = [(1.0 + k, b'{"a":%d}' % k) for k in range(40)]
    (knob,) = knobs_of(trials, {"a": 0}, 6)
    assert knob.values[-1].text == "others" and sum(v.every for v in knob.values) == 40
    assert knob.importance == 0.0  # as many values as trials explain nothing
    assert [shown(v) for v in (True, None, [1, 2], "x", {"b": 1})] == [
        "yes",
        "-",
        "1·2",
        "x",
        '{"b": 1}',
    ]


def test_ranks_are_those_of_equal_values_too():
    assert rank_correlation([1, 2, 3], [10, 20, 30]) == pytest.approx(1)
    assert rank_correlation([1, 2, 3], [3, 2, 1]) == pytest.approx(-1)
    assert rank_correlation([1, 1, 1], [3, 2, 1]) is None
    assert rank_correlation([1, 1, 2], [1, 2, 3]) == pytest.approx(0.866, abs=1e-3)


@pytest.mark.parametrize("log", [False, True])
@pytest.mark.parametrize(
    ("low", "high"), [(1e-6, 1.1e-6), (1e-9, 1.0), (3, 3.01), (0.5, 80), (1, 1), (1, 1e12)]
)
def test_axes_have_ticks_inside(low, high, log):
    axis = Axis(low, high, 0, 100, log)
    assert 1 <= len(axis.ticks) <= 8
    slack = (high - low) * 1e-6
    assert all(low - slack <= tick <= high + slack for tick in axis.ticks)
    assert 0 <= axis.at(low) <= axis.at(high) <= 100 >= axis.at(high * 10)


def test_thinning_keeps_both_ends():
    assert thinned(range(100), 5) == [0, 25, 50, 74, 99] and thinned("abc", 5) == ["a", "b", "c"]


# -- time ------------------------------------------------------------------------------------------


def test_time_between_searches_does_not_count():
    clock = _Clock([100.0, 5000.0])
    told = [clock.elapsed(at, 1.0) for at in (101, 103, 110, 5002, 5003)]
    assert told == [1, 3, 10, 12, 13]
    unknown = _Clock([])
    assert [unknown.elapsed(at, 2.0) for at in (100, 150, 9000)] == [2, 52, 54]


def test_as_many_lanes_as_devices():
    spans = [Span(0, 2, 0, 0, ""), Span(1, 3, 0, 1, ""), Span(2.5, 4, 0, 2, "")]
    assert [[s.number for s in lane] for lane in _apart(spans, 2)] == [[0, 2], [1]]
    (lane,) = _apart(spans, 1)
    assert [(s.begin, s.end) for s in lane] == [(0, 2), (2, 3), (3, 4)]


# -- what searches write ---------------------------------------------------------------------------


@pytest.mark.slow
def test_a_search_writes_down_what_a_report_needs():
    task = cpu_task()
    database = Database()
    measurer = Instant([task])
    tune([task], measurer, database, Options(trials=24, batch=8), verify=False)
    (run,) = database.runs
    assert run.options["calls"] == [task.weight] and run.options["devices"] == 1
    assert from_json(run.options["ceilings"]) is not None
    assert DEVICE.name not in str(run.options)
    assert sum(job.predicted > 0 for job in measurer.jobs) > 8
