"""Other implementations of a convolution: offered as tasks, chosen by records, verified."""

import numpy as np
import pytest

from graph.small import database_of
from tilewright import cpu, topi
from tilewright.measure.database import Database
from tilewright.network.decide import KernelChoices, all_implemented, uncompared
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_groups, fused_tasks, implementations, prepare
from tilewright.network.tune import cold_bytes, tasks_of
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.task import Task
from tilewright.schedule.template import anchor_templates
from tilewright.search.predictions import Predicted, Predictions
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.autotvm.contractions import extract_from_program

FAST, SLOW = 1e-3, 2e-3


@pytest.fixture(autouse=True)
def own_cache(monkeypatch, tmp_path):
    """Nothing was verified before."""
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))


def network(layout="NCHW", batch=1, **options) -> relay.IRModule:
    """relu(conv2d + residual): one kernel."""
    shape = (batch, 8, 10, 10) if layout == "NCHW" else (batch, 10, 10, 8)
    kernel = (8, 8, 3, 3) if layout == "NCHW" else (3, 3, 8, 8)
    x = relay.var("x", shape=shape)
    w = relay.const(np.random.default_rng(0).standard_normal(kernel).astype("float32"))
    names = {"data_layout": layout, "kernel_layout": "OIHW" if layout == "NCHW" else "HWIO"}
    made = relay.nn.conv2d(x, w, padding=1, **names, **options)
    return relay.IRModule.from_expr(relay.Function([x], relay.nn.relu(relay.add(made, x))))


def every_task(mod: relay.IRModule, target: str = "llvm") -> list[Task]:
    return fused_tasks(mod, {}, target, every_implementation=True)


def error_of(lib: relay.Library, mod: relay.IRModule) -> float:
    data = np.random.default_rng(1).standard_normal(mod["main"].params[0].shape).astype("float32")
    module = GraphModule(lib["default"](cpu()))
    module.run(x=data)
    want = relay.evaluate(mod, {"x": data}, "float64")
    return float(np.abs(module.get_output(0).numpy() - want).max() / np.abs(want).max())


def measured(tasks, **seconds) -> Database:
    """direct, small, large: of the direct convolution, F(2x2) and F(4x4)"""
    names = dict(zip(("direct", "small", "large"), tasks, strict=True))
    database = Database()
    for name, cost in seconds.items():
        for kind, record in _lines(database_of([names[name]], cost)):
            database.append(record, kind)
    return database


def _lines(database: Database):
    for task in database.tasks():
        for record in database.query(task):
            yield database.computation(task.dag).to_json(), record


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
def test_a_convolution_is_offered_in_every_implementation(layout, target):
    direct, *others = every_task(network(layout), target)
    assert [t.instead_of for t in others] == [direct.key] * 2 and not direct.instead_of
    assert {t.family for t in (direct, *others)} == {direct.key}
    name = f"conv2d_{layout.lower()}_winograd_without_weight_transform+add+relu"
    assert [t.name for t in others] == [name] * 2
    assert [t.args[1][1][0] for t in others] == [4, 6]
    assert all(t.sketches and t.sketches[0].fallback() is not None for t in others)
    assert len(fused_tasks(network(layout), {}, target)) == 1
    assert len(tasks_of([network(layout)], {}, Target(target))) == 3


@pytest.mark.parametrize(
    "options",
    [{"strides": 2, "padding": 1}, {"dilation": 2, "padding": 2}, {"groups": 2}],
    ids=lambda o: next(iter(o)),
)
def test_convolutions_that_have_no_other(options):
    x = relay.var("x", shape=(1, 16, 10, 10))
    w = relay.const(np.ones((16, 16 // options.get("groups", 1), 3, 3), "float32"))
    mod = relay.IRModule.from_expr(relay.nn.conv2d(x, w, **options))
    assert len(every_task(mod)) == 1


@pytest.mark.parametrize("shape", [(1, 3, 10, 10), (1, 16, 10, 10)])
def test_narrow_channels_and_kernels_that_are_inputs_have_no_other(shape):
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(16, shape[1], 3, 3))
    mod = relay.IRModule.from_expr(relay.nn.conv2d(x, w))
    assert len(every_task(mod)) == 1
    halves = relay.nn.conv2d(
        relay.var("x", shape=(1, 16, 8, 8), dtype="float16"),
        relay.const(np.ones((16, 16, 3, 3), "float16")),
    )
    assert len(every_task(relay.IRModule.from_expr(halves))) == 1


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(
    ("layout", "seconds", "alpha"),
    [
        ("NCHW", {}, 0),
        ("NCHW", {"direct": FAST, "small": SLOW, "large": SLOW}, 0),
        ("NCHW", {"direct": SLOW, "small": FAST, "large": SLOW}, 4),
        ("NHWC", {"direct": SLOW, "large": FAST}, 6),
        ("NCHW", {"large": SLOW}, 6),
    ],
    ids=["nothing", "direct", "small", "large", "only one"],
)
def test_a_build_takes_the_fastest_that_was_measured(layout, seconds, alpha):
    mod = network(layout)
    lib = relay.build(mod, "llvm", schedules=measured(every_task(mod), **seconds))
    (kernel,) = lib.report.kernels
    assert kernel.verified and error_of(lib, mod) < 1e-5
    assert (f"{alpha}x{alpha}x8x8" in kernel.label) == bool(alpha)
    assert kernel.source == ("record" if seconds else "default")
    alone = [n for n in lib.report.notes if "of the direct ones" in n]
    assert len(alone) == (bool(seconds) and "direct" not in seconds)


@pytest.mark.slow
def test_anchors_choose_where_the_kernel_itself_was_not_measured():
    """As with AutoTVM's tasks, which are contractions alone."""
    mod = network()
    (task,) = extract_from_program(mod, {}, "llvm")
    alone = relay.IRModule.from_expr(relay.Function(
        mod["main"].params, mod["main"].body.args[0].args[0]
    ))  # fmt: skip
    _, _, large = every_task(alone)
    database = database_of([task, *task.others], SLOW)
    for kind, record in _lines(database_of([large], FAST)):
        database.append(record, kind)
    lib = relay.build(mod, "llvm", schedules=database)
    (kernel,) = lib.report.kernels
    assert kernel.source == "re-instantiated" and "6x6x8x8" in kernel.label
    assert error_of(lib, mod) < 1e-5


class Said(Predictions):
    """Predictions that are given: seconds by how many numbers a tile of Winograd's reads."""

    def __init__(self, seconds):
        super().__init__(Target("llvm"), trees=object())
        self.seconds = seconds

    def get(self, dag):
        shapes = [a.shape for a in dag.args if len(a.shape) == 4 and a.shape[0] == a.shape[1]]
        tile = min((s[0] for s in shapes if s[0] in (4, 6)), default=0)
        known = self.seconds.get(tile)
        return None if known is None else Predicted("template:none", {}, known)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("seconds", "tile"),
    [
        ({0: FAST, 4: SLOW, 6: SLOW}, 0),
        ({0: SLOW, 4: FAST, 6: SLOW}, 4),
        ({0: SLOW, 6: FAST}, 6),
        ({4: FAST, 6: SLOW}, 0),  # with nothing to compare with, the usual one
        ({}, 0),
    ],
)
@pytest.mark.parametrize("known", [False, True])
def test_what_is_predicted_decides_where_nothing_was_measured(seconds, tile, known):
    mod = network()
    database = measured(every_task(mod), direct=SLOW) if known else Database()
    evidence = Evidence([database], ("llvm",), predictions=Said(seconds))
    groups = fused_groups(prepare(mod)["main"])
    (taken,) = all_implemented(groups, evidence, Target("llvm"))
    assert str(taken.args).count(f"[{tile}, {tile}, 8, 8]") == bool(tile and not known)
    assert (taken is groups[0]) == (known or not tile)
    assert not uncompared(groups, [taken], evidence)


@pytest.mark.slow
def test_what_is_thought_fast_but_has_no_schedule_is_not_built():
    class Unusable(Said):
        def get(self, dag):
            found = super().get(dag)
            origin = anchor_templates(dag, self.target)[0].origin
            return found and Predicted(origin, {}, found.seconds)

    mod = network()
    groups = fused_groups(prepare(mod)["main"])
    for database, kept in ((Database(), False), (measured(every_task(mod), large=FAST), True)):
        evidence = Evidence([database], ("llvm",), predictions=Unusable({0: SLOW, 4: FAST}))
        choices = KernelChoices([], [], evidence, Target("llvm"))
        taken = choices.implemented(groups)
        assert taken[0].instead_of
        assert choices.with_schedules(groups, taken) == (taken if kept else groups)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize(("of_anchor", "source"), [(FAST, "re-instantiated"), (SLOW, "record")])
def test_a_record_of_one_is_compared_with_the_anchor_of_another(of_anchor, source):
    """As after a short search, which has not come to all of them."""
    mod = network()
    alone = relay.IRModule.from_expr(relay.Function(
        mod["main"].params, mod["main"].body.args[0].args[0]
    ))  # fmt: skip
    database = measured(every_task(mod), direct=(FAST + SLOW) / 2)
    for kind, record in _lines(database_of([every_task(alone)[2]], of_anchor)):
        database.append(record, kind)
    (kernel,) = relay.build(mod, "llvm", schedules=database).report.kernels
    assert kernel.source == source
    assert ("6x6x8x8" in kernel.label) == (source == "re-instantiated")


@pytest.mark.long
def test_a_kernel_whose_records_are_refused_gives_way_to_the_direct_one(tmp_path):
    mod = network()
    _, _, large = every_task(mod)
    database = measured(every_task(mod), direct=SLOW, large=FAST)
    path = tmp_path / "log.jsonl"
    database.save(path)
    lines = [
        line.replace('["pack"', '["bind"') if large.key in line else line
        for line in path.read_text().splitlines()
    ]
    path.write_text("\n".join(lines) + "\n")
    lib = relay.build(mod, "llvm", schedules=str(path))
    (kernel,) = lib.report.kernels
    assert kernel.source == "record" and "winograd" not in kernel.label
    assert error_of(lib, mod) < 1e-5


@pytest.mark.slow
def test_weights_are_transformed_once_when_the_network_is_built():
    mod = network()
    (group,) = fused_groups(prepare(mod)["main"])
    _, large = implementations(group, Target("llvm"))
    lib = relay.build(mod, "llvm", schedules=measured(every_task(mod), large=FAST))
    shapes = [p.shape for p in lib.get_params().values()]
    assert sum(int(np.prod(s)) == 36 * 64 for s in shapes) == 1
    (how,) = large.transformed.values()
    weight = np.random.default_rng(0).standard_normal((8, 8, 3, 3)).astype("float32")
    assert how.apply(weight).shape == how.shape(weight.shape) == (6, 6, 8, 8)
    middle = np.zeros((8, 8, 3, 3), "float32")
    middle[..., 1, 1] = 1  # which the points zero and infinity do not see
    found = how.apply(middle)[:, :, 0, 0]
    assert not found[[0, 5]].any() and not found[:, [0, 5]].any() and found[1:5, 1:5].all()


def test_weights_are_timed_cold_where_they_do_not_stay_in_the_caches():
    mod = network()  # 2,304 bytes of weights, direct

    def asked(target: Target) -> int:
        return cold_bytes([t for t in every_task(mod, target) if t.sketches])

    small = Target("llvm").with_limits(l2_bytes=1 << 10)
    assert asked(small.with_limits(l3_bytes=1 << 11)) == 1 << 12
    assert asked(small.with_limits(l3_bytes=1 << 22)) == 0  # they stay
    large = Target("cuda").with_limits(l2_bytes=1 << 10)
    assert asked(large) == 1 << 11  # as the weights of a language model on a GPU
    assert asked(large.with_limits(l2_bytes=1 << 22)) == 0


@pytest.mark.long
def test_partial_batches_keep_the_direct_kernel():
    """Tiles of all samples lie side by side, so samples cannot be shown to stay apart."""
    mod = network(batch=2)
    database = measured(every_task(mod), direct=SLOW, large=FAST)
    lib = relay.build(mod, "llvm", schedules=database, partial_batches=True)
    assert all("winograd" not in k.label for k in lib.report.kernels)
    whole = relay.build(mod, "llvm", schedules=database)
    assert any("winograd" in k.label for k in whole.report.kernels)
    assert error_of(whole, mod) < 1e-5


@pytest.mark.parametrize(
    ("room", "name", "words"),
    [
        (relay.nn, "contrib_conv2d_winograd_nnpack_weight_transform", "Use relay.nn.conv2d"),
        (relay.nn, "contrib_conv2d_gemm_without_weight_transform", "Use relay.nn.conv2d"),
        (topi.nn, "conv2d_winograd_nnpack_weight_transform", "conv2d_winograd_nchw"),
        (topi.nn, "conv3d_winograd_weight_transform", "Use topi.nn.conv3d"),
    ],
)
def test_names_of_transforms_that_builds_make_themselves(room, name, words):
    with pytest.raises(AttributeError, match=words):
        getattr(room, name)
    with pytest.raises(AttributeError, match="has no attribute 'conv2e'"):
        room.conv2e  # noqa: B018
