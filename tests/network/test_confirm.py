"""A build with a log is no slower than one without it: what wins in the whole network is built."""

from contextlib import contextmanager

import numpy as np
import pytest

from graph.small import close_to_reference, database_of, residual
from tests.network.test_attention_kernel import by_hand, function
from tilewright.measure.database import Database, pick_best
from tilewright.measure.record import NetworkLine
from tilewright.network import build as network_build
from tilewright.network import confirm
from tilewright.network.confirm import Trials, kernel_seconds
from tilewright.network.decide import decide, network_key
from tilewright.network.estimate import Estimate
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_groups, groupings, ungrouped
from tilewright.network.helpers import Helpers
from tilewright.network.layouts import candidate_layouts, convolutions
from tilewright.network.tune import as_described, tasks_of, with_layouts
from tilewright.runtime.timing import BenchmarkResult
from tilewright.search.report import Options
from tilewright.targets.target import Target
from tilewright_tvm import relay


@pytest.fixture(scope="module")
def target():
    return as_described(Target("llvm"))


@pytest.fixture(scope="module")
def log(target):
    """Legal, random candidates of the kernels of `residual`, said to be fast."""
    mod, params = residual()
    tasks = tasks_of([mod], params, target, rules=False)
    return database_of(tasks, seconds=1e-7)


class Timed:
    """A network whose kernels take what `cost` says, by their reports, and in a run with records
    `apart` more."""

    def __init__(self, library, cost, apart=0.0):
        self.library, self.cost = library, cost
        self.apart = apart if "record" in library.report.sources else 0.0

    def run(self, **inputs):
        pass

    def _launches(self):
        kernels = self.library.report.kernels
        return [self.cost(kernels[launch.kernel]) for launch in self.library.plan.launches]

    def benchmark(self, device, **options):
        return BenchmarkResult((sum(self._launches()) + self.apart,))

    def launch_seconds(self, rounds):
        return [[seconds] * rounds for seconds in self._launches()]


def confirmed(log, target, cost, apart=0.0):
    """What is confirmed where kernels take `cost`, and the library that is then built."""
    mod, params = residual()
    database = Database()
    for record in log.records:
        database.append(record, log.dag(record.task.dag))
    trials = Trials(mod, params, target, lambda lib: (Timed(lib, cost, apart), None), 0.0)
    line = trials.confirm(database)
    assert database.networks == [line]
    return line, relay.build(mod, target, params, schedules=database)


def is_first_convolution(kernel):
    return "1x3x12x12" in kernel.label


@pytest.mark.slow
def test_records_that_are_faster_in_the_network_are_used(log, target):
    line, lib = confirmed(log, target, lambda k: 1.0 if k.source == "record" else 2.0)
    assert line.untuned == [] and line.seconds < line.untuned_seconds
    assert lib.report.sources["record"] > 1
    assert any("as confirmed in the whole network" in note for note in lib.report.notes)


@pytest.mark.slow
def test_a_kernel_that_loses_among_its_neighbours_stays_as_without_the_log(log, target):
    def cost(kernel):
        if is_first_convolution(kernel):
            return 9.0 if kernel.source == "record" else 3.0
        return 1.0 if kernel.source == "record" else 2.0

    line, lib = confirmed(log, target, cost)
    (first,) = [k for k in lib.report.kernels if is_first_convolution(k)]
    assert line.untuned == [first.group] and first.source != "record"
    assert lib.report.sources["record"] > 1
    close_to_reference(lib)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(("each", "apart"), [(5.0, 0.0), (1.0, 1.0)])
def test_records_that_are_slower_together_are_not_used(log, target, each, apart):
    mod, params = residual()
    plain = relay.build(mod, target, params, schedules=[])
    line, lib = confirmed(log, target, lambda k: each if k.source == "record" else 1.0, apart)
    assert line.seconds == line.untuned_seconds
    assert [k.source for k in lib.report.kernels] == [k.source for k in plain.report.kernels]


@pytest.mark.slow
def test_kernels_of_no_record_are_not_said_to_lose(target):
    """Times of the same code differ by chance, here by what the device did in turn."""
    taken = iter(range(1, 10**6))

    def cost(kernel):
        return 1.0 / next(taken)

    line, _ = confirmed(Database(), target, cost)
    assert line.seconds == line.untuned_seconds and line.untuned == []
    rising = iter(range(1, 10**6))
    line, _ = confirmed(Database(), target, lambda kernel: float(next(rising)))
    assert line.seconds == line.untuned_seconds and line.untuned == []


@pytest.mark.slow
def test_a_line_that_does_not_fit_changes_nothing(log, target):
    mod, params = residual()
    usual = relay.build(mod, target, params, schedules=log)
    key = network_key(ungrouped(mod, params)[0])
    about = {"network": key, "target": str(target), "fingerprint": target.fingerprint}
    for line in (
        NetworkLine(**about, layouts=["NHWC"], grouping=7, untuned=["no such kernel"]),
        NetworkLine(**about, layouts=["NCHW3c"] * 9),
        NetworkLine(**about | {"network": "another"}, untuned=[k.group for k in
                    usual.report.kernels]),
        NetworkLine(**about | {"fingerprint": "another"}, untuned=[k.group for k in
                    usual.report.kernels]),
    ):  # fmt: skip
        told = Database()
        told.note(line)
        lib = relay.build(mod, target, params, schedules=[told, log])
        assert lib.report.sources == usual.report.sources


@pytest.mark.slow
def test_layouts_and_grouping_are_as_confirmed(target):
    f = function(by_hand())
    key = network_key(ungrouped(f)[0])
    told = Database()
    for grouping, names in ((1, 1), (0, 0)):
        told.note(NetworkLine(network=key, target=str(target), fingerprint=target.fingerprint,
                              grouping=grouping))  # fmt: skip
        lib = relay.build(f, target, schedules=told)  # the last line counts
        assert sum(k.label.startswith("attention") for k in lib.report.kernels) == names
    mod, params = residual()
    plain, _ = ungrouped(mod, params)
    blocks = candidate_layouts(target)[0]
    count = sum(
        isinstance(n, relay.Call) and getattr(n.op, "name", "") == "nn.conv2d"
        for n in relay.analysis.post_order(plain["main"].body)
    )
    told.note(NetworkLine(network=network_key(plain), target=str(target),
                          fingerprint=target.fingerprint, layouts=[blocks] * count))  # fmt: skip
    lib = relay.build(mod, target, params, schedules=told)
    assert any("NCHWc" in k.label for k in lib.report.kernels)
    close_to_reference(lib)


def test_lines_of_networks_stay_in_files(tmp_path):
    path = tmp_path / "log.jsonl"
    lines = [NetworkLine(network=n, target="llvm", grouping=k) for k, n in enumerate("aba")]
    with Database(path) as database:
        for line in lines:
            database.note(line)
    assert Database.load(path).networks == lines and not Database.load(path).skipped
    pick_best(path, tmp_path / "best.jsonl")
    assert Database.load(tmp_path / "best.jsonl").networks == [lines[2], lines[1]]
    Database.load(path).save(tmp_path / "copy.jsonl")
    assert Database.load(tmp_path / "copy.jsonl").networks == lines


@pytest.mark.slow
def test_what_ways_to_group_differ_in_is_measured(target):
    """A softmax has no template: without its default an attention would win unseen."""
    f = function(by_hand())
    tasks = tasks_of([f], None, target, rules=False)
    assert "softmax" not in [t.name for t in tasks]
    every = with_layouts(tasks, [f], None, target, Options(trials=4))
    differing = {
        g.key for m in groupings(f) for g in fused_groups(m["main"])
    }  # of so small a network, all
    assert {t.key for t in every} == differing and all(t.sketches for t in every)


# -- the estimate ----------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_estimate_begins_at_the_untuned_network_and_follows_what_is_measured(target):
    mod, params = residual()
    cost = {"conv2d": 4.0}
    trials = Trials(
        mod, params, target, seconds=0.0,
        load=lambda lib: (Timed(lib, lambda k: cost.get(k.label[:6], 1.0)), None),
    )  # fmt: skip
    estimate = Estimate(trials)
    seconds, parts = estimate({})
    assert seconds == pytest.approx(trials.untuned_seconds) and parts == {}
    inside, kernels = kernel_seconds(trials.untuned), trials.untuned.library.report.kernels
    slow = max(kernels, key=lambda k: inside[k.group])
    halved, parts = estimate({slow.group: inside[slow.group] / slow.count / 2})
    assert halved == pytest.approx(seconds - inside[slow.group] / 2)
    assert parts == {slow.group: pytest.approx(inside[slow.group] / 2)}
    # What is slower than the untuned kernel would not be built.
    assert estimate({slow.group: inside[slow.group]})[0] == pytest.approx(seconds)


@pytest.mark.slow
def test_what_it_costs_to_time_kernels_in_a_run_is_no_part_of_it(target):
    mod, params = residual()
    module = {"more": 0.0}
    trials = Trials(
        mod, params, target, seconds=0.0,
        load=lambda lib: (Timed(lib, lambda k: 1.0 + module["more"]), None),
    )  # fmt: skip
    exact = Estimate(trials)
    module["more"] = 5.0  # as an event before and after each launch
    costly = Estimate(trials)
    group = trials.untuned.library.report.kernels[0].group
    for best in ({}, {group: 0.5}):
        assert costly(best)[0] == pytest.approx(exact(best)[0])


@pytest.mark.slow
def test_transformations_of_layouts_count_only_where_they_are_built(target):
    mod, params = residual()
    trials = Trials(mod, params, target, lambda lib: (Timed(lib, lambda k: 1.0), None), 0.0)
    estimate = Estimate(trials)
    tasks = tasks_of([mod], params, target, rules=False)
    every = with_layouts(tasks, [mod], params, target, Options(trials=10**6))
    own = {k.group for k in trials.untuned.library.report.kernels}
    others = {t.key: 1e3 for t in every if t.key not in own}
    assert len(others) > 5
    assert estimate(others)[0] == pytest.approx(trials.untuned_seconds)
    fast, parts = estimate(dict.fromkeys(others, 0.0))
    assert fast < trials.untuned_seconds and set(parts) - own
    assert np.isfinite(fast)


@pytest.mark.slow
def test_the_estimate_begins_at_layouts_that_are_known_to_be_fastest(target, monkeypatch):
    """Knowledge may have the untuned network in layouts that no way has throughout."""
    mod, params = residual()
    plain, _ = ungrouped(mod, params)
    count = len(convolutions(plain))
    told = Database()
    told.note(NetworkLine(
        network=network_key(plain), target=str(target), fingerprint=target.fingerprint,
        layouts=[candidate_layouts(target)[0]] * (count - 1) + [""],
    ))  # fmt: skip
    evidence = Evidence((told,), (str(target),), target.fingerprint)
    decided = decide(mod, params, evidence, target)
    monkeypatch.setattr(Trials, "_decided", lambda self: decided)
    trials = Trials(mod, params, target, lambda lib: (Timed(lib, lambda k: 1.0), None), 0.0)
    assert any("NCHWc" in k.label for k in trials.untuned.library.report.kernels)
    assert Estimate(trials)({}) == (pytest.approx(trials.untuned_seconds), {})


@pytest.mark.slow
def test_what_ran_untuned_before_a_search_is_loaded_again_and_not_built_again(
    log, target, monkeypatch
):
    built, loaded, free = [], [], []

    @contextmanager
    def device_free():
        free.append(len(loaded))
        yield

    def load(library):
        loaded.append(library)
        return Timed(library, lambda k: 1.0), None

    def build(*args, **options):
        built.append(options["helpers"])
        return network_build.build(*args, **options)

    monkeypatch.setattr(confirm, "build", build)
    trials = Trials(
        *residual()[:1], residual()[1], target, load, 0.0, helpers=Helpers(device_free=device_free)
    )
    assert len(loaded) == 1 and free == [0]  # nobody else has the device while it is loaded and run
    trials.set_aside()
    assert trials.untuned.module is None
    trials.search_ended()
    trials.confirm(Database())
    assert loaded[1] is loaded[0] and free == [0]
    assert len(built) == 2 and built[1].references is None  # the second with the log
