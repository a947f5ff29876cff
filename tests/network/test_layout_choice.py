"""Layouts by measurement: the cheapest mixture, found again from the log, never a slower one."""

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.small import database_of
from graph.test_passes import inputs_of
from tests.tiers import examples
from tilewright import cpu
from tilewright.driver.build import resolve_target
from tilewright.measure.database import Database
from tilewright.measure.record import make_record
from tilewright.network import decide
from tilewright.network import layouts as L
from tilewright.network import tune as tuning
from tilewright.network.assignment import cheapest, total
from tilewright.network.evidence import Evidence
from tilewright.network.extract import ungrouped
from tilewright.network.tune import tasks_of, with_layouts
from tilewright.schedule.task import Task
from tilewright.search.report import Options
from tilewright.te.dag import ComputeDAG
from tilewright_tvm import relay, transform
from tilewright_tvm.contrib.graph_executor import GraphModule
from tilewright_tvm.relay import nn

RNG = np.random.default_rng(0)
TARGET = resolve_target("llvm")
BLOCKS = L.candidate_layouts(TARGET)[0]


# -- assignments -----------------------------------------------------------------------------------


@st.composite
def problems(draw):
    count = draw(st.integers(1, 6))
    number = st.integers(0, 20)
    sizes = [draw(st.integers(1, 3)) for _ in range(count)]
    costs = [[draw(number) for _ in range(n)] for n in sizes]
    pairs = {
        (i, j): [[draw(number) for _ in range(sizes[j])] for _ in range(sizes[i])]
        for i, j in itertools.combinations(range(count), 2) if draw(st.booleans())
    }  # fmt: skip
    return costs, pairs


@pytest.mark.slow
@given(problems(), st.sampled_from((None, 1, 3, 10**6)))
@examples(40)
def test_the_cheapest_assignment_is_found(problem, most):
    costs, pairs = problem
    every = itertools.product(*(range(len(c)) for c in costs))
    best = min(total(chosen, costs, pairs) for chosen in every)
    chosen, exact = cheapest(costs, pairs, most)
    assert total(chosen, costs, pairs) == best if exact else total(chosen, costs, pairs) >= best
    assert exact or most != 10**6


def test_what_cannot_be_chosen_is_not():
    inf = float("inf")
    assert cheapest([[inf, 3.0], [1.0, inf]], {(0, 1): [[0, 0], [50, 0]]}) == ([1, 0], True)


# -- choices ---------------------------------------------------------------------------------------


def weight(*shape: int) -> relay.Constant:
    return relay.const(RNG.uniform(-0.3, 0.4, shape).astype("float32"))


def network(dtype: str = "float32") -> relay.IRModule:
    x = relay.var("x", shape=(1, 16, 10, 10), dtype=dtype)
    y = nn.relu(nn.conv2d(x, weight(32, 16, 3, 3), padding=1))
    y = nn.max_pool2d(y, 2, 2)
    z = nn.conv2d(y, weight(32, 32, 1, 1)) + y
    z = nn.relu(nn.conv2d(z, weight(32, 1, 3, 3), padding=1, groups=32))
    return relay.IRModule.from_expr(nn.dense(nn.batch_flatten(z), weight(4, 800)))


def layouts_of(mod: relay.IRModule) -> list[str]:
    return [
        n.attrs.data_layout for n in relay.analysis.post_order(mod["main"].body)
        if isinstance(n, relay.Call) and n.op.name == "nn.conv2d"
    ]  # fmt: skip


def chosen(cost_of, move: float = 1e-6) -> list[str]:
    """The layouts by what a convolution costs: of its tag and its window."""
    mod = ungrouped(network(), None)[0]

    def seconds(group):
        ops = [op for op in group.dag.compute_ops if "conv" in (op.tag or "")]
        if not ops:
            return move
        return cost_of(ops[0].tag, len(ops[0].reduce_axis), ops[0].attrs["workload"][2][1])

    choice = decide.chosen_layouts(mod, TARGET, seconds)
    made = L.in_layouts(mod, choice)
    if made is mod:
        return []
    inputs = inputs_of(mod["main"])
    np.testing.assert_allclose(
        relay.evaluate(made, inputs), relay.evaluate(mod, inputs), rtol=1e-4, atol=1e-4
    )
    return layouts_of(made)


@pytest.mark.slow
def test_all_in_the_layout_that_is_faster():
    assert chosen(lambda tag, *_: 1e-5 if "NCHWc" in tag else 1e-4) == [BLOCKS] * 3
    assert chosen(lambda tag, *_: 1e-5 if "nhwc" in tag else 1e-4) == ["NHWC"] * 3
    assert chosen(lambda tag, *_: 1e-5 if "nchw" in tag else 1e-4) == []


def test_a_mixture_where_moving_costs_less_than_it_gains():
    def cost(tag, *_):
        deep = "depthwise" in tag
        return 1e-5 if deep == ("NCHWc" in tag) else 1e-4

    assert chosen(cost) == ["NCHW", "NCHW", BLOCKS]
    assert chosen(cost, move=1e-3) == []


def test_what_is_only_a_little_faster_or_was_not_measured_is_not_taken():
    assert chosen(lambda tag, *_: 0.99e-4 if "NCHWc" in tag else 1e-4) == []
    missing = {"conv2d_NCHWc": None}
    assert chosen(lambda tag, *_: missing.get(tag, 1e-5 if "NCHWc" in tag else 1e-4)) in (
        [], ["NCHW", "NCHW", BLOCKS],
    )  # fmt: skip


def blocks_are_faster(self: Evidence, dag: ComputeDAG) -> float:
    tags = [op.tag or "" for op in dag.compute_ops]
    return 1e-6 if any("NCHWc" in t for t in tags) or not any("conv" in t for t in tags) else 1


@pytest.mark.long
def test_a_build_finds_the_choice_again_from_its_records(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    mod = network()
    data = RNG.standard_normal((1, 16, 10, 10)).astype("float32")
    usual = [k.name for k in relay.build(mod, "llvm").report.kernels]
    monkeypatch.setattr(Evidence, "seconds", blocks_are_faster)
    assert [k.name for k in relay.build(mod, "llvm").report.kernels] == usual  # no log, no choice
    monkeypatch.setattr(Evidence, "task_names", lambda self: {"conv2d_NCHWc+relu"})
    library = relay.build(mod, "llvm")
    assert sum("conv2d_NCHWc" in k.name for k in library.report.kernels) == 3
    run = GraphModule(library["default"](cpu()))
    run.set_input("x", data)
    run.run()
    wanted = relay.evaluate(mod, {"x": data})
    np.testing.assert_allclose(run.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-5)
    for options in ({"disabled_pass": ["AlterOpLayout"]}, {"opt_level": 1}):
        with transform.PassContext(**options):
            names = [k.name for k in relay.build(mod, "llvm").report.kernels]
        assert not any("NCHWc" in name for name in names)


@pytest.mark.slow
def test_a_choice_is_made_once_for_a_network_and_its_records(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    monkeypatch.setattr(Evidence, "seconds", blocks_are_faster)
    monkeypatch.setattr(Evidence, "task_names", lambda self: {"conv2d_NCHWc"})
    # A template that another test has registered would keep choices out of the cache.
    monkeypatch.setattr(decide, "registered_computations", lambda target: [])
    records, made = [("some computation", 1e-6)], []
    monkeypatch.setattr(Evidence, "bests", lambda self: records)
    monkeypatch.setattr(Evidence, "has_records", True)
    real = decide.chosen_layouts
    monkeypatch.setattr(decide, "chosen_layouts", lambda *args: made.append(1) or real(*args))

    def kernels(mod: relay.IRModule) -> list[str]:
        return [k.name for k in relay.build(mod, "llvm").report.kernels]

    first = kernels(network())
    assert kernels(network()) == first and len(made) == 1
    assert sum("conv2d_NCHWc" in name for name in first) == 3
    kernels(relay.IRModule.from_expr(nn.relu(network()["main"].body)))
    assert len(made) == 2
    records.append(("another", 1e-6))
    kernels(network())
    assert len(made) == 3


# -- a log, and what is known of the class of device -----------------------------------------------


def blocks_known() -> tuple[list[Task], Database]:
    """The network's tasks, and records by which blocks are ten times faster than they are."""
    plain = tasks_of([network()], None, TARGET, False)
    every = with_layouts(plain, [network()], None, TARGET, Options(trials=2000))
    known = Database()
    for task in every:
        slow = task in plain or "nhwc" in task.name
        for record in database_of([task], 1e-4 if slow else 1e-5):
            known.append(record, task.dag.to_json())
    return plain, known


def layouts_known(mod: relay.IRModule, evidence: Evidence) -> list[str]:
    return layouts_of(L.in_layouts(mod, decide.known_layouts(mod, evidence, TARGET)))


def known_and_own(pace: float, seed: int) -> tuple[list[Task], Evidence]:
    """What is known, and of the network's first task a record of this device, of the same
    schedule (seed 0) or of another one."""
    plain, known = blocks_known()
    own = database_of(plain[:1], pace * 1e-4, seed=seed)
    return plain, Evidence([own], (str(TARGET),), "", [[known]])


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("pace", (0.5, 3.0))
def test_what_a_log_lacks_counts_at_the_pace_of_this_device(monkeypatch, tmp_path, pace):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    plain, evidence = known_and_own(pace, seed=0)
    assert evidence.seconds(plain[0].dag) == pytest.approx(pace * 1e-4)
    assert evidence.seconds(plain[1].dag) == pytest.approx(pace * 1e-4)
    mod = ungrouped(network(), None)[0]
    assert layouts_known(mod, evidence) == [BLOCKS] * 3


@pytest.mark.slow
def test_the_same_decisions_tell_the_pace_where_vectors_are_wider():
    plain, known = blocks_known()
    own, steps = Database(), [["fuse", "compute", ["ax0", "ax1"]]]
    for r in database_of(plain[:1], 5e-5):
        made = make_record(r.task, r.result, origin=r.origin, decisions=r.decisions, steps=steps)
        assert made.decisions and made.candidate != r.candidate
        own.append(made, plain[0].dag.to_json())
    evidence = Evidence([own], (str(TARGET),), "", [[known]])
    assert evidence.seconds(plain[1].dag) == pytest.approx(5e-5)


@pytest.mark.slow
def test_without_a_schedule_that_both_timed_figures_are_not_compared(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    plain, evidence = known_and_own(1.0, seed=1)
    assert evidence.seconds(plain[0].dag) == pytest.approx(1e-4)
    assert evidence.seconds(plain[1].dag) is None
    mod = ungrouped(network(), None)[0]
    assert layouts_known(mod, evidence) == ["NCHW"] * 3


# -- tuning ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_other_layouts_are_tuned_where_the_budget_allows():
    mod = network()
    tasks = tasks_of([mod], None, TARGET, False)
    assert with_layouts(tasks, [mod], None, TARGET, Options(trials=64)) == tasks
    assert with_layouts(tasks, [mod], None, TARGET, Options(seconds=5)) == tasks
    more = with_layouts(tasks, [mod], None, TARGET, Options(trials=2000))[len(tasks) :]
    keys = {t.key for t in tasks}
    rivals = [t for t in more if t.instead_of]
    assert {t.name.partition("+")[0] for t in rivals} == {
        "conv2d_NCHWc", "depthwise_conv2d_NCHWc", "conv2d_nhwc", "depthwise_conv2d_nhwc",
    }  # fmt: skip
    assert all(t.instead_of in keys for t in rivals)
    assert {t.name.partition("+")[0] for t in more if not t.instead_of} == {"pool2d", "transpose"}
    gpu = resolve_target("cuda -arch=sm_90")
    assert with_layouts([], [mod], None, gpu, Options()) == []


@pytest.mark.slow
def test_a_short_budget_goes_to_the_layouts_that_are_known_to_be_fastest(monkeypatch, tmp_path):
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    mod = network()
    tasks, known = blocks_known()
    monkeypatch.setattr(tuning, "records", lambda target: [[known]])
    short = with_layouts(tasks, [mod], None, TARGET, Options(seconds=5))
    names = {t.name.partition("+")[0] for t in short if "conv2d" in t.name}
    assert names == {"conv2d_NCHWc", "depthwise_conv2d_NCHWc"}
