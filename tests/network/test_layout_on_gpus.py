"""Layouts of networks in halves on GPUs: channels last where nothing speaks against it."""

from __future__ import annotations

import numpy as np
import pytest

from graph.small import database_of
from tilewright.graph.passes import fuse
from tilewright.measure.database import Database
from tilewright.network import decide
from tilewright.network import layouts as L
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_groups, ungrouped
from tilewright.network.tune import tasks_of, with_layouts
from tilewright.schedule.task import task_of_dag
from tilewright.search.report import Options
from tilewright.search.rules.derive import with_default
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

GPU = Target("cuda -arch=sm_90")
OLDER = Target("cuda -arch=sm_75")


def weight(*shape: int) -> relay.Constant:
    rng = np.random.default_rng(shape)
    return relay.const(rng.integers(-1, 2, shape).astype("float16"))


def network() -> relay.IRModule:
    """Half precision: a first layer, a residual, a depthwise and a grouped convolution, poolings,
    a dense layer; small whole numbers, so that it is exact."""
    x = relay.var("x", shape=(1, 3, 16, 16), dtype="float32")
    y = nn.relu(nn.conv2d(relay.cast(x, "float16"), weight(16, 3, 3, 3), strides=2, padding=1))
    y = nn.max_pool2d(y, 3, 2, padding=1)
    z = nn.relu(nn.conv2d(y, weight(16, 16, 1, 1)) + y)
    z = nn.conv2d(z, weight(16, 1, 3, 3), padding=1, groups=16)
    z = nn.relu(nn.conv2d(z, weight(32, 8, 3, 3), padding=1, groups=2, strides=2))
    z = nn.batch_flatten(nn.global_max_pool2d(z))
    return relay.IRModule.from_expr(nn.dense(z, weight(4, 32)))


def of_bytes() -> relay.IRModule:
    """Two quantised convolutions, zero points and all."""
    rng, data = np.random.default_rng(0), relay.var("x", shape=(1, 32, 8, 8), dtype="uint8")
    for zero in (120, 7):
        steps = relay.cast(data, "int32") - relay.const(np.int32(zero))
        kernel = relay.const(rng.integers(-128, 128, (32, 32, 3, 3)).astype("int32"))
        made = relay.cast(nn.conv2d(steps, kernel, padding=1), "float32") * relay.const(0.001)
        data = relay.cast(relay.clip(relay.round(made) + relay.const(100.0), 0, 255), "uint8")
    return relay.IRModule.from_expr(data)


def plain(target: Target = GPU) -> relay.IRModule:
    return ungrouped(network(), None, target=target)[0]


def nothing_known() -> Evidence:
    return Evidence((), (str(GPU),))


def layouts_of(mod: relay.IRModule) -> list[str]:
    return [n.attrs.data_layout for n in L.convolutions(mod)]


def test_bytes_have_channels_last_as_well() -> None:
    mod = ungrouped(of_bytes(), None, target=GPU)[0]
    choice = decide.known_layouts(mod, nothing_known(), GPU)
    assert choice == ("NHWC",) * 2
    made = L.in_layouts(mod, choice)
    kernels = fused_groups(fuse(made)["main"])
    products = [g for g in kernels if "conv2d_nhwc" in g.name]
    assert sum(len(g.calls) for g in products) == 2
    assert sum(len(g.calls) for g in kernels) <= 4
    for group in products:
        assert {str(t.dtype) for t in group.dag.args[:2]} == {"uint8", "int8"}
    x = np.random.default_rng(1).integers(0, 256, (1, 32, 8, 8)).astype("uint8")
    want = relay.evaluate(of_bytes(), {"x": x})
    np.testing.assert_array_equal(relay.evaluate(made, {"x": x}), want)
    assert decide.known_layouts(ungrouped(of_bytes(), None)[0], nothing_known(), OLDER) == ()


def test_without_records_channels_are_last_and_nothing_is_moved_between() -> None:
    mod = plain()
    choice = decide.known_layouts(mod, nothing_known(), GPU)
    assert choice == ("NHWC",) * 4
    made = L.in_layouts(mod, choice)
    assert layouts_of(made) == ["NHWC"] * 4
    groups = fused_groups(decide.decide(network(), None, nothing_known(), GPU).main)
    moved = [g.name for g in groups if "transpose" in g.name]
    assert moved == ["cast+transpose"]  # of the image, which is converted anyway
    image = np.random.default_rng(0).integers(-2, 3, (1, 3, 16, 16)).astype("float32")
    wanted = relay.evaluate(network(), {"x": image})
    np.testing.assert_array_equal(relay.evaluate(made, {"x": image}), wanted)


@pytest.mark.parametrize("target", [OLDER, Target("llvm"), Target("opencl")], ids=str)
def test_without_matrix_units_a_network_stays_as_it_is(target: Target) -> None:
    mod = plain(target)
    evidence = Evidence((), (str(target),))
    assert decide.known_layouts(mod, evidence, target) == ()
    assert next(n.args[0].shape for n in L.convolutions(mod)) == (1, 3, 16, 16)


def test_a_network_in_floats_stays_as_it_is() -> None:
    x = relay.var("x", shape=(1, 16, 8, 8))
    kernel = relay.const(np.ones((16, 16, 3, 3), "float32"))
    mod = ungrouped(relay.IRModule.from_expr(nn.conv2d(x, kernel, padding=1)), target=GPU)[0]
    assert L.usual_layouts(mod, GPU) == ("",) and not L.can_choose(mod, GPU)
    assert L.usual_layouts(mod, Target("cuda -arch=sm_90 -precision=tf32")) == ("NHWC",)


def records(mod: relay.IRModule, seconds: float) -> Database:
    groups = fused_groups(decide.fuse(mod)["main"])
    tasks = [with_default(task_of_dag(g.dag, GPU, g.name, g.args, len(g.calls))) for g in groups]
    found = Database()
    for record, task in zip(database_of(tasks, seconds), tasks, strict=True):
        found.append(record, task.dag.to_json())
    return found


@pytest.mark.slow
@pytest.mark.parametrize(("first", "last", "wanted"), [
    (1e-5, None, "NCHW"), (1e-5, 1e-4, "NCHW"), (1e-4, 1e-5, "NHWC"), (None, 1e-4, "NHWC"),
])  # fmt: skip
def test_records_decide(monkeypatch, tmp_path, first, last, wanted) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    mod = plain()
    known = []
    if first is not None:
        known.append(records(mod, first))
    if last is not None:
        known.append(records(L.in_layouts(mod, ("NHWC",) * 4), last))
    choice = decide.known_layouts(mod, Evidence(known, (str(GPU),)), GPU)
    assert set(layouts_of(L.in_layouts(mod, choice))) == {wanted}


@pytest.mark.slow
def test_a_short_search_is_of_the_network_as_it_is_built() -> None:
    """And a long one measures both."""
    tasks = tasks_of([network()], None, GPU, False)
    short = with_layouts(tasks, [network()], None, GPU, Options(seconds=5))
    convolutions = [t.name for t in short if "conv" in t.name]
    assert convolutions and all("nhwc" in name for name in convolutions)
    every = [t.name for t in with_layouts(tasks, [network()], None, GPU, Options(trials=5000))]
    assert any("nhwc" in n for n in every) and any("nchw" in n for n in every)


def test_what_is_behind_a_global_pooling_is_dense() -> None:
    """Convolutions of one pixel, with what follows them; the mean reads halves."""
    x = relay.var("x", shape=(1, 16, 8, 8), dtype="float16")
    mean = relay.mean(relay.cast(x, "float32"), axis=(2, 3), keepdims=True)
    y = nn.relu(nn.conv2d(relay.cast(mean, "float16"), weight(8, 16, 1, 1)) + weight(1, 8, 1, 1))
    y = relay.sigmoid(nn.conv2d(y, weight(16, 8, 1, 1)))
    mod = relay.IRModule.from_expr(nn.conv2d(x * y, weight(16, 16, 1, 1)))
    groups = [g.name for g in fused_groups(decide.decide(mod, None, nothing_known(), GPU).main)]
    own = [name for name in groups if "dense" in name or "mean" in name]
    assert own == ["cast+mean+cast", "dense+add+relu", "dense+sigmoid"]
    assert sum("conv2d" in name for name in groups) == 1
    made = ungrouped(mod, target=GPU)[0]
    image = np.random.default_rng(1).integers(-2, 3, (1, 16, 8, 8)).astype("float16")
    found, wanted = (relay.evaluate(m, {"x": image}) for m in (made, mod))
    np.testing.assert_array_equal(found, wanted)
    assert next(n.shape for n in L.convolutions(ungrouped(mod, target=OLDER)[0])) == (1, 8, 1, 1)


def test_residuals_of_rows_of_channels_join_products_and_nothing_is_moved() -> None:
    """As in ConvNeXt: a block works on rows of channels between its convolutions, its residual has
    channels first, and that of the first block was moved there."""
    x = relay.var("x", shape=(1, 16, 4, 4), dtype="float16")
    y = relay.transpose(nn.conv2d(x, weight(32, 16, 1, 1)), (0, 2, 3, 1))
    y = relay.transpose(nn.softmax(y), (0, 3, 1, 2))
    for _ in range(2):
        depthwise = nn.conv2d(y, weight(32, 1, 3, 3), padding=1, groups=32)
        rows = relay.transpose(depthwise, (0, 2, 3, 1))
        rows = nn.dense(relay.reshape(rows, (16, 32)), weight(32, 32)) + weight(32)
        y = relay.transpose(relay.reshape(rows, (1, 4, 4, 32)), (0, 3, 1, 2)) + y
    mod = relay.IRModule.from_expr(nn.conv2d(y, weight(16, 32, 1, 1)))
    groups = fused_groups(decide.decide(mod, None, nothing_known(), GPU).main)
    assert [g.name for g in groups if "conv" not in g.name] == [
        "transpose", "softmax", "dense+add+add", "transpose"
    ]  # of the input and of the result: the network's own stay as they are  # fmt: skip
    plain = ungrouped(mod, target=GPU)[0]
    made = L.in_layouts(plain, ("NHWC",) * 4)
    image = np.random.default_rng(2).integers(-2, 3, (1, 16, 4, 4)).astype("float16")
    found, wanted = (relay.evaluate(m, {"x": image}) for m in (made, mod))
    np.testing.assert_array_equal(found, wanted)


def test_pixels_of_patches_are_rows_of_channels() -> None:
    """As in ViT: an image is cut into patches, each of which is a row; only the image is moved."""
    x = relay.var("x", shape=(1, 3, 16, 24), dtype="float32")
    y = nn.conv2d(relay.cast(x, "float16"), weight(32, 3, 8, 8), strides=8)
    y = relay.transpose(relay.reshape(y, (1, 32, 6)), (0, 2, 1))
    mod = relay.IRModule.from_expr(nn.softmax(y) + nn.relu(y))
    main = decide.decide(mod, None, nothing_known(), GPU).main
    groups = [g.name for g in fused_groups(main)]
    assert groups == ["cast+transpose", "conv2d_nhwc", "softmax", "relu+add"]
    image = np.random.default_rng(3).integers(-2, 3, (1, 3, 16, 24)).astype("float32")
    plain = ungrouped(mod, target=GPU)[0]
    found = relay.evaluate(L.in_layouts(plain, ("NHWC",)), {"x": image})
    np.testing.assert_array_equal(found, relay.evaluate(mod, {"x": image}))
