"""The progress display: lines without a terminal, a table with one, estimates."""

import io

import pytest
from rich.console import Console

from tilewright.measure import Result, TaskId
from tilewright.measure.record import make_record
from tilewright.search.progress import Progress, TaskRow, duration

TASK = TaskId("t", [], "d", "llvm")


class Clock:
    now = 0.0

    def __call__(self):
        return self.now


class Terminal(io.StringIO):
    def isatty(self):
        return True


def ok(seconds, verified=True):
    return make_record(TASK, Result(costs=(seconds,), verified=verified))


def bad():
    return make_record(TASK, Result(error="run", message="x"))


def rows():
    return [TaskRow("conv 1x64x56x56", 4, 2e9), TaskRow("dense", 1, 1e6)]


def test_lines_are_written_now_and_then_and_at_the_end():
    clock, out = Clock(), io.StringIO()
    with Progress(trials=10, seconds=300, stream=out, clock=clock) as progress:
        progress.start(rows())
        for n in range(3):
            clock.now += 6
            progress.record(0, ok(1e-3 * (3 - n)))
        clock.now += 6
        progress.record(1, bad())
    assert out.getvalue().splitlines() == [
        "0:12  trials 2/10  failed 0  all tasks 8 ms + 1 task without a result  left 0:48",
        "0:24  trials 4/10  failed 1  all tasks 4 ms + 1 task without a result  left 0:36",
        "0:24  trials 4/10  failed 1  all tasks 4 ms + 1 task without a result  left 0:36",
    ]


def test_rows_keep_the_best_verified_time():
    progress = Progress(stream=io.StringIO())
    progress.start(rows())
    for record in (ok(2e-3), ok(1e-3, verified=False), bad(), ok(3e-3)):
        progress.record(0, record)
    row = progress.rows[0]
    assert (row.trials, row.failed, row.best_seconds) == (4, 1, 2e-3)
    assert row.gflops == pytest.approx(1000.0)
    assert progress.network_seconds() == (8e-3, 1)


def test_the_network_runs_the_fastest_implementation_of_each():
    progress = Progress(stream=io.StringIO())
    both = [TaskRow(n, 2, 1e9, family="conv") for n in ("direct", "winograd")]
    progress.start([*both, TaskRow("dense", 1, 1e6)])
    progress.record(0, ok(3e-3))
    assert progress.network_seconds() == (6e-3, 1)
    progress.record(1, ok(1e-3))
    assert progress.network_seconds() == (2e-3, 1)
    progress.record(2, ok(2e-3))
    out = io.StringIO()
    Console(file=out, width=120).print(progress.table())
    shares = {line.split()[1]: line.split()[-2] for line in out.getvalue().splitlines()
              if "GFLOP" not in line and line.startswith("│")}  # fmt: skip
    assert shares == {"direct": "-", "winograd": "50%", "dense": "50%"}


def test_the_remaining_time_is_that_of_the_budget_that_ends_first():
    clock = Clock()
    progress = Progress(trials=4, seconds=100, stream=io.StringIO(), clock=clock)
    progress.start(rows())
    clock.now = 10
    assert progress.remaining == 90
    progress.record(0, bad())
    assert progress.remaining == 30
    assert Progress(stream=io.StringIO()).remaining is None
    clock.now = 1000
    assert progress.remaining == 0


def test_an_earlier_run_counts():
    out = io.StringIO()
    with Progress(stream=out) as progress:
        progress.start([TaskRow("conv", 2, 1e9, trials=50, failed=3, best_seconds=5e-4)])
        assert (progress.rows[0].trials, progress.rows[0].failed) == (50, 3)
    assert "trials 0  failed 0  all tasks 1 ms  left -" in out.getvalue()  # of this run


def test_leaders_that_are_timed_again_are_no_trials():
    clock, out = Clock(), io.StringIO()
    with Progress(trials=10, stream=out, clock=clock) as progress:
        progress.start(rows())
        progress.record(0, ok(1e-3))
        clock.now = 12
        progress.again()
        progress.settle([2e-3, None])
        assert progress.rows[0].trials == 1
    assert [line.partition("  left")[0] for line in out.getvalue().splitlines()] == [
        "0:12  trials 1/10  failed 0  timed again 1  all tasks 4 ms + 1 task without a result",
        "0:12  trials 1/10  failed 0  timed again 1  all tasks 8 ms + 1 task without a result",
    ]


def test_a_narrow_terminal_shortens_names_not_numbers():
    progress = Progress(stream=io.StringIO())
    row = TaskRow("depthwise_conv2d_nchw+add+relu 1x128x56x56 128x1x3x3", 4, 2e9, 120, 3, 1.23e-3)
    progress.start([row])
    out = io.StringIO()
    Console(file=out, width=80).print(progress.table())
    text = out.getvalue()
    for words in ("best", "GFLOP/s", "share", "120", "1.23 ms", "1626.0", "100%", "depthwise"):
        assert words in text
    assert text.count("depthwise") == 1 and "128x1x3x3" not in text  # one line


def test_what_is_estimated_is_told_with_the_gain_over_the_untuned_network():
    clock, out = Clock(), io.StringIO()
    with Progress(trials=10, stream=out, clock=clock) as progress:
        progress.untuned = 3e-3
        progress.estimate = lambda best: (1e-3 + 2 * best["k"], {"k": 2 * best["k"]})
        progress.start([TaskRow("conv", 2, 1e9, key="k", layers=("layer1.0.conv1", "b"))])
        clock.now = 12
        progress.record(0, ok(2.5e-4))
        console = io.StringIO()
        Console(file=console, width=120).print(progress.table())
        progress.confirmed(1.6e-3, 3.2e-3)
    assert "layer1.0.conv1 +1" in console.getvalue()
    assert [line.partition("failed 0  ")[2] for line in out.getvalue().splitlines()] == [
        "network 1.5 ms, 2.00x as fast as untuned  left 1:48",
        "network 1.6 ms, 2.00x as fast as untuned  left 1:48",
    ]


def test_a_terminal_gets_a_table():
    out = Terminal()
    with Progress(trials=3, stream=out) as progress:
        progress.start(rows())
        progress.record(0, ok(1e-3))
        progress.note("a line [that] stays")
    text = out.getvalue()
    assert "a line [that] stays" in text
    assert "conv 1x64x56x56" in text and "1 ms" in text and "2000.0" in text


def test_a_search_that_began_with_some_tasks_only_settles_those():
    progress = Progress(stream=io.StringIO())
    progress.start([TaskRow("a", 1, 1.0, best_seconds=2e-3), TaskRow("b", 1, 1.0)])
    progress.settle([1e-3])  # Ctrl-C while tasks were prepared
    assert [row.best_seconds for row in progress.rows] == [1e-3, None]


def test_interrupted_drawing_gives_the_terminal_back():
    out = Terminal()
    with pytest.raises(KeyboardInterrupt):
        with Progress(stream=out) as progress:
            progress.start(rows())
            raise KeyboardInterrupt
    assert "\x1b[?25h" in out.getvalue()  # the cursor is shown again


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (245, "4:05"), (3723, "1:02:03")]
)
def test_durations(seconds, text):
    assert duration(seconds) == text
