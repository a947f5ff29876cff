"""Kernels of networks for CUDA wait themselves; built without a device."""

from __future__ import annotations

import re

import numpy as np
import pytest

from graph.small import residual
from tilewright.base.artifact import AWAIT_ONLY
from tilewright.models.decoders.read import load
from tilewright.network.build import build
from tilewright.network.chains import as_they_run, chained, chained_each, reading_inputs
from tilewright.network.extract import FusedGroup, fused_groups, groupings, prepare
from tilewright.runtime.network.library import Library
from tilewright.schedule.task import task_of_dag
from tilewright.search.jobs import make_job
from tilewright.search.propose.proposers import Candidate
from tilewright.targets.target import Target
from tilewright_tvm import relay

SM90 = "cuda -arch=sm_90"
SWITCH = "TILEWRIGHT_DEPENDENT_LAUNCH"


def network(switch: str = "") -> Library:
    mod, params = residual()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, switch)
        return build(mod, SM90, params, verify=False, use_knowledge=False)


@pytest.fixture(scope="module")
def built() -> Library:
    pytest.importorskip("cuda.bindings.nvrtc")
    return network()


@pytest.mark.slow
def test_every_kernel_waits_and_reads_no_other_argument_as_before(built: Library) -> None:
    """Constants in the text are constants of the plan, and nothing else is."""
    for launch in built.plan.launches:
        source = built.kernels[launch.kernel].source
        assert source.waits
        assert source.text.count(f"{AWAIT_ONLY}();") == len(source.kernels)
        fresh = set(re.findall(r"(\w+) = tw_fresh\(\1\);", source.text))
        for spec, operand in zip(source.buffers, launch.operands, strict=True):
            if spec.role == "input":
                assert (spec.name in fresh) == (operand.kind != "constant"), spec.name
            if operand.kind == "constant":
                assert spec.role == "input" and f"const {spec.dtype.spelling.cuda}*" in source.text


def products(rows: int) -> list[FusedGroup]:
    x = relay.var("x", shape=(rows, 256), dtype="float16")
    for _ in range(2):
        weight = np.ones((256, 256), "float16")
        x = relay.nn.relu(relay.nn.dense(x, relay.const(weight)))
    return fused_groups(prepare(relay.Function(relay.analysis.free_vars(x), x))["main"])


@pytest.mark.parametrize(
    "switch, rows, early",
    [("", 1, "early"), ("", 64, "on"), ("off", 1, ""), ("on", 1, "on"), ("early", 64, "early")],
)
def test_chains_of_few_rows_begin_early_where_nobody_says(
    monkeypatch: pytest.MonkeyPatch, switch: str, rows: int, early: str
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    assert chained(products(rows)) == early


@pytest.mark.parametrize("switch, usual", [("", "on"), ("off", "")])
def test_a_step_begins_early_beside_the_network_for_a_prompt(
    monkeypatch: pytest.MonkeyPatch, switch: str, usual: str
) -> None:
    monkeypatch.setenv(SWITCH, switch)
    each = [products(1), products(64)]
    groups = [g for own in each for g in own]
    begun = chained_each(each, groups)
    assert {begun[g.key] for g in each[0]} == {"early" if usual else ""}
    assert {begun[g.key] for g in each[1]} == {usual}


@pytest.mark.slow
def test_a_step_reads_its_caches_and_position_before_it_waits() -> None:
    """No kernel that writes to a cache in place does, and none what another kernel has made."""
    read = load("llama-tiny", (), {"tokens": [1], "cache": 64}, "bfloat16")
    main = groupings(read.modules[0], read.params, target=Target(SM90))[-1]["main"]
    groups = fused_groups(main)
    begun = reading_inputs({g.key: "early" for g in groups}, [main], [groups])
    names = {g.name.partition("+")[0]: begun[g.key].split()[1:] for g in groups}
    attention = next(g for g in groups if g.name == "attention")
    shapes = {t.name: t.shape for t in attention.dag.args}
    assert sorted(shapes[n] for n in names["attention"]) == [
        (1, 1, 1), (1, 1, 1, 1), (1, 2, 64, 32), (1, 2, 64, 32),
    ]  # fmt: skip
    assert len(names["take"]) == 1 and names["equal"] == names["dense"] == []
    assert set(reading_inputs(dict.fromkeys(begun, "on"), [main], [groups]).values()) == {"on"}


@pytest.mark.parametrize("rows, early", [(1, "early"), (64, "")])
def test_searches_measure_kernels_as_the_network_launches_them(
    monkeypatch: pytest.MonkeyPatch, rows: int, early: str
) -> None:
    monkeypatch.setenv(SWITCH, "")
    target = Target(SM90)
    tasks = [task_of_dag(g.dag, target, g.name, g.args, 1) for g in products(rows)]
    as_they_run(tasks)
    (sketch, *_) = tasks[0].sketches
    (index,) = sketch.space.sample(1, np.random.default_rng(0))
    job = make_job(tasks[0], Candidate(sketch, int(index)), None, 0, 0)
    assert job.payload.get("chained", "") == early


def test_one_large_layer_behind_many_others_is_no_chain(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWITCH, "")
    x = relay.var("x", shape=(1, 4, 16, 16), dtype="float16")
    for _ in range(4):
        weight = relay.const(np.ones((4, 4, 3, 3), "float16"))
        x = relay.nn.relu(relay.nn.conv2d(x, weight, padding=1))
    x = relay.nn.dense(relay.nn.batch_flatten(x), relay.const(np.ones((512, 1024), "float16")))
    function = relay.Function(relay.analysis.free_vars(x), x)
    assert chained(fused_groups(prepare(function)["main"])) == "on"


@pytest.mark.slow
def test_it_can_be_switched_off(built: Library) -> None:
    """And what was built before does not come back from the cache of builds."""
    plain = network("off")
    assert not any(kernel.source.waits for kernel in plain.kernels)
    again = network()
    assert [k.source for k in again.kernels] == [k.source for k in built.kernels]
    assert len(plain.kernels) == len(again.kernels)
