"""Narrow weights of networks: how they are packed, which layers have them, what they cost."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilewright as tw
from tilewright import front
from tilewright.base.errors import ModelError
from tilewright.front import Network, load
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    post_order,
)
from tilewright.graph.narrow import NarrowWeights, Packed, _eighths, packed, unpacked
from tilewright.graph.op import call
from tilewright.graph.pass_options import USUAL
from tilewright.graph.passes import narrow as passes_narrow
from tilewright.graph.passes import narrow_weights, optimize
from tilewright.graph.passes.narrow import narrowed, packings
from tilewright.graph.traversal import is_call, op_name
from tilewright.network.extract import Groupings
from tilewright.network.narrow import accuracy, asking, cost_of, with_floats
from tilewright.runtime.device import local_target
from tilewright.targets.target import Target
from tilewright.topi.nn.narrow import KINDS

RNG = np.random.default_rng(0)


def matrix(n: int, k: int, dtype: str = "float32") -> np.ndarray:
    return (RNG.standard_normal((n, k)) / 8).astype("float32").astype(ml_dtypes.bfloat16 if
        dtype == "bfloat16" else dtype)  # fmt: skip


def layers(rows: int = 1, dtype: str = "float32") -> IRModule:
    """Three dense layers; the second one is too small."""
    x = Var("x", TensorType((rows, 256), dtype))
    first = call("nn.relu", call("nn.dense", x, Constant(matrix(128, 256, dtype))))
    small = call("nn.dense", first, Constant(matrix(32, 128, dtype)))
    wide = call("nn.dense", small, Constant(matrix(512, 32, dtype)))
    return IRModule.from_expr(Function([x], wide))


def products(body: Expr) -> list[tuple[str, str]]:
    """Names and kinds of the products and the weights that are unpacked."""
    names = ("nn.dense", "nn.dense_narrow", "nn.unpack_narrow")
    found = [n for n in post_order(body) if isinstance(n, Call) and is_call(n, *names)]
    return [(op_name(n).removeprefix("nn."), str(n.attrs.get("kind", ""))) for n in found]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_what_is_packed_is_the_nearest_of_its_group(kind: str, dtype: str) -> None:
    floats = matrix(40, 192, dtype)
    floats[3] = 0
    floats[5, :64] = -floats[5, :64].astype("float32").max()  # only negative ones
    made = packed(floats, kind, 64)
    again = unpacked(made.weight, made.scale, kind)
    exact = floats.astype("float64")
    groups = np.abs(exact.reshape(40, 3, 64))
    # half of a step, of int4 a whole one beyond 7, and what rounding the scale leaves
    step = {"int8": 1 / 254, "int4": 1 / 8, "float8": 1 / 26}[kind] + 2.0**-8
    off = np.abs(again - exact).reshape(groups.shape)
    assert (off <= step * groups.max(-1, keepdims=True)).all()
    assert not again[3].any()
    assert made.error == pytest.approx(np.linalg.norm(again - exact) / np.linalg.norm(exact), 1e-4)
    assert 0 < made.error < {"int8": 0.01, "int4": 0.12, "float8": 0.04}[kind]


def test_the_nearest_floats_of_eight_bits_are_those_of_ml_dtypes() -> None:
    """Also right between two of them, and beside."""
    every = np.arange(256, dtype="uint8").view(ml_dtypes.float8_e4m3fn).astype("float32")
    every = np.unique(every[np.isfinite(every)])
    middle = (every[1:] + every[:-1]) / 2
    beside = [np.nextafter(middle, np.float32(end)) for end in (-1e9, 1e9)]
    numbers = np.concatenate([every, middle, *beside, RNG.standard_normal(1000).astype("float32")])
    wanted = numbers.astype(ml_dtypes.float8_e4m3fn).view("uint8")
    np.testing.assert_array_equal(_eighths(numbers), wanted)


def test_packing_what_was_unpacked_changes_nothing() -> None:
    """So weights that a file has in groups of as many bits stay what they are."""
    for kind in KINDS:
        made = packed(matrix(64, 128), kind, 32)
        floats = unpacked(made.weight, made.scale, kind)
        again = packed(floats, kind, 32)
        np.testing.assert_array_equal(unpacked(again.weight, again.scale, kind), floats)
        assert again.error == 0


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-30, 1e-37, 1e-42, 1e19, 1e30, 1e37])
def test_the_error_is_told_of_weights_of_any_size(kind: str, size: float) -> None:
    floats = matrix(32, 128) * np.float32(size)
    made = packed(floats, kind, 32)
    off = unpacked(made.weight, made.scale, kind).astype("float64") - floats
    true = np.linalg.norm(off) / np.linalg.norm(floats.astype("float64"))
    assert made.error == pytest.approx(true, rel=1e-3)
    assert made.error < (0.2 if size > 1e-36 else 1.001)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("value", [np.inf, np.nan, 1e-43])
def test_weights_that_bytes_cannot_hold_stay_floats(kind: str, value: float) -> None:
    floats = [matrix(128, 256), matrix(128, 128)]
    if value < 1:
        floats[0] *= np.float32(value)
    floats[0][3, 5] = value
    x = Var("x", TensorType((1, 256), "float32"))
    first = call("nn.dense", x, Constant(floats[0]))
    function = Function([x], call("nn.dense", first, Constant(floats[1])), {"weights": kind})
    made = narrowed(function).body
    assert products(made) == [("dense", ""), ("dense_narrow", "int8" if kind == "int4" else kind)]
    assert [p.shape for p in packings(made).values()] == [(128, 128)]


def test_outputs_that_are_not_finite_are_not_told_to_be_near() -> None:
    x = Var("x", TensorType((1, 256), "float32"))
    large = call("nn.dense", x, Constant(matrix(128, 256) * np.float32(1e30)))
    body = call("exp", call("nn.dense", large, Constant(matrix(128, 128))))
    cost = accuracy(asking(IRModule.from_expr(Function([x], body)), "int8"), {})
    assert cost is not None and cost.outputs is not None and np.isnan(cost.outputs)
    assert "not finite on random inputs" in str(cost)


def test_which_layers_are_narrow() -> None:
    mod = layers()

    def kinds(weights: str) -> list[tuple[str, str]]:
        return products(narrow_weights(asking(mod, weights))["main"].body)

    small, dense = ("dense", ""), "dense_narrow"
    assert kinds("") == [small] * 3
    assert kinds("int8") == [(dense, "int8"), small, (dense, "int8")]
    assert kinds("int4") == [(dense, "int4"), small, (dense, "int8")]
    assert kinds("int4:head=int4") == [(dense, "int4"), small, (dense, "int4")]
    assert kinds("int4:head=none") == [(dense, "int4"), small, small]
    x = Var("x", TensorType((1, 256), "float32"))
    alone = IRModule.from_expr(Function([x], call("nn.dense", x, Constant(matrix(128, 256)))))
    assert products(narrow_weights(asking(alone, "int4"))["main"].body) == [(dense, "int4")]


def test_many_rows_unpack_the_same_weights() -> None:
    few, many = (narrowed(asking(layers(rows), "int8")["main"]) for rows in (16, 17))
    assert ("unpack_narrow", "int8") in products(many.body)
    assert ("unpack_narrow", "int8") not in products(few.body)


@pytest.mark.parametrize("rows", [1, 17])
def test_the_pass_computes_what_its_weights_stand_for(rows: int) -> None:
    mod = asking(layers(rows), "int4:64")
    main = narrowed(mod["main"])
    assert [(t.kind, t.group) for t in packings(main.body).values()] == [("int4", 64), ("int8", 32)]
    inputs = {"x": RNG.standard_normal((rows, 256)).astype("float32")}
    exact, found = evaluate(mod, inputs, "float64"), evaluate(main, inputs, "float64")
    off = np.linalg.norm(found - exact) / np.linalg.norm(exact)
    assert 0.01 < off < 0.3


@pytest.mark.parametrize(
    "text", ["int3", "int4:7", "int4:head=x", "", "int8:", "int4 ", "int4:32:64"]
)
def test_unknown_weights_are_refused(text: str) -> None:
    with pytest.raises(ModelError, match=r"there are no such weights\. Use int8, int4, float8"):
        NarrowWeights.parsed(text)


def test_a_spelling_is_read_again() -> None:
    for text in ("int8", "int4:64", "float8:32:head=none", "int4:head=float8"):
        made = NarrowWeights.parsed(text)
        assert NarrowWeights.parsed(str(made)) == made


def test_attributes_reach_the_pass_through_all_others() -> None:
    main = optimize(asking(layers(), "float8"))["main"]
    names = [n for node in post_order(main.body) if isinstance(node, Call)
             for n in [str(getattr(node.op, "attrs", {}).get("name", ""))]]  # fmt: skip
    assert sum("dense_narrow" in name for name in names) == 2


@pytest.mark.slow
@pytest.mark.parametrize("rows", [1, 20])
def test_a_network_is_built_with_them_and_says_what_they_cost(rows: int) -> None:
    net = load(layers(rows))
    x = RNG.standard_normal((rows, 256)).astype("float32")
    exact = evaluate(net.modules[0], {"x": x}, "float64")
    for weights, most in (("int8", 0.03), ("int4", 0.3), ("float8", 0.08)):
        run = tw.compile(net, "llvm", weights=weights)
        narrow = narrowed(asking(net.modules[0], weights)["main"])
        np.testing.assert_allclose(run(x), evaluate(narrow, {"x": x}, "float64"), atol=1e-5)
        told = run.report.accuracy
        assert told is not None and told.layers == 2
        off = np.linalg.norm(run(x) - exact) / np.linalg.norm(exact)
        assert told.outputs is not None and told.outputs / 3 < off < 3 * told.outputs < 3 * most
        assert f"weights {told.weights} in 2 layers: outputs " in str(run.report)
    assert tw.compile(net, "llvm").report.accuracy is None


@pytest.fixture
def packs(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The kinds of what is packed from here on."""
    found: list[str] = []

    def seen(floats: np.ndarray, kind: str, group: int) -> Packed:
        found.append(kind)
        return packed(floats, kind, group)

    monkeypatch.setattr(passes_narrow, "packed", seen)
    return found


@pytest.mark.slow
def test_a_network_packs_its_weights_once(packs: list[str], tmp_path: Path) -> None:
    """For tasks, which need none of the bytes, a search, what it costs and every build."""
    net, log = load(layers()), tmp_path / "log.jsonl"
    narrow = net.with_weights("int8")
    assert net.with_weights("int8") is narrow
    target = local_target(Target("llvm"))[0]
    assert front.tasks_of(narrow, target, "xgb", known=narrow.groupings) and not packs
    tw.tune(net, "llvm", trials=2, weights="int8", log=log, progress=False)
    assert packs == ["int8"] * 2
    run = tw.compile(net, "llvm", log, weights="int8")
    cost = accuracy(asking(net.modules[0], "int8"), {})
    assert run.report.accuracy == cost
    assert packs == ["int8"] * 4  # those of a module that is no network's
    tw.compile(net, "llvm", weights="int4")
    assert packs == ["int8"] * 4 + ["int4", "int8"]


def test_networks_for_several_shapes_pack_equal_weights_once(packs: list[str]) -> None:
    weights = [matrix(128, 256), matrix(64, 256)]
    mods, known = [], Groupings()
    for rows in (1, 4, 20):
        x = Var("x", TensorType((rows, 256)))
        both = Tuple([call("nn.dense", x, Constant(w.copy())) for w in weights])
        mods.append(asking(IRModule.from_expr(Function([x], both)), "int8"))
    cost = cost_of(mods, {}, None, known)
    assert cost is not None and cost.measure().layers == 2
    made = [known.ungrouped(mod, {}, USUAL, None)[0]["main"] for mod in mods]
    bytes_of = [[layer.packed.weight for layer in packings(m.body).values()] for m in made]
    assert packs == ["int8"] * 2
    assert all(
        one is first for each in bytes_of for one, first in zip(each, bytes_of[0], strict=True)
    )


def test_floats_are_there_until_the_cost_is_measured() -> None:
    mod, known = asking(layers(), "int8"), Groupings()
    main = known.ungrouped(mod, {}, USUAL, None)[0]["main"]
    found = list(packings(main.body).values())
    first, second = (cost_of([mod], {}, None, known) for _ in range(2))
    assert first is not None and second is not None
    kept = [layer.packed.weight for layer in found]
    told = first.measure()
    assert all(layer.floats is not None for layer in found)  # the other one was not asked yet
    assert second.measure() is told and all(layer.floats is None for layer in found)
    # who asks later gets what was measured; of what was dropped before, it is packed again
    again = cost_of([mod], {}, None, known)
    assert again is not None and again.measure() is told
    other = Groupings()
    late = other.ungrouped(mod, {}, USUAL, None)[0]["main"]
    assert [layer.packed.weight.tobytes() for layer in packings(late.body).values()] == [
        weight.tobytes() for weight in kept
    ]
    cost = cost_of([mod], {}, None, other)
    assert cost is not None and cost.measure() == told


def test_floats_of_a_cost_that_nobody_asks_for_are_gone() -> None:
    mod, known = asking(layers(), "int8"), Groupings()
    cost = cost_of([mod], {}, None, known)
    main = known.ungrouped(mod, {}, USUAL, None)[0]["main"]
    found = list(packings(main.body).values())
    assert cost is not None and all(layer.packed and layer.floats is not None for layer in found)
    del cost
    assert len(found) == 2 and all(layer.floats is None for layer in found)


@pytest.mark.parametrize("rows", [1, 20])
def test_the_floats_of_a_packed_network_are_computed_with(rows: int) -> None:
    """What is compared with: the network as it was before the pass."""
    mod, known = asking(layers(rows, "bfloat16"), "int4"), Groupings()
    cost = cost_of([mod], {}, None, known)
    assert cost is not None
    main = known.ungrouped(mod, {}, USUAL, None)[0]["main"]
    inputs = {"x": RNG.standard_normal((rows, 256)).astype("float32")}
    exact, found = (evaluate(f, inputs, "float32") for f in (mod, with_floats(main)))
    assert np.abs(found - exact).max() < 1e-5 * np.abs(exact).max()


def test_what_is_not_verified_is_not_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr("tilewright.network.narrow._deviation")
    run = tw.compile(load(layers()), "cuda -arch=sm_90", weights="int8", verify=False)
    assert run.report.accuracy is None


def test_halves_and_narrow_weights_go_together() -> None:
    net = load(layers()).with_weights("int8")
    half = net.in_type("bfloat16")
    assert half.weights == "int8" and net.with_weights("").weights == ""
    main = narrow_weights(half.modules[0])["main"]
    narrow = [n for n in post_order(main.body) if is_call(n, "nn.dense_narrow")]
    assert [str(n.dtype) for n in narrow] == ["bfloat16", "bfloat16"]
    assert accuracy(half.modules[0], half.params) is not None


def test_what_has_no_large_layer_says_so() -> None:
    x = Var("x", TensorType((1, 32), "float32"))
    small = Function([x], call("nn.dense", x, Constant(matrix(8, 32))))
    told = accuracy(asking(IRModule.from_expr(small), "int8"), {})
    assert told is not None and "no layer is large enough" in str(told)


def test_a_task_has_no_weights_to_change() -> None:
    from tilewright import te

    x = te.placeholder((4,), "float32", "x")
    task = tw.task([x, te.compute((4,), lambda i: x[i] + 1)], target="llvm")
    with pytest.raises(ModelError, match=r"compile\(weights=\): a task has its weights"):
        tw.compile(task, weights="int8")
    with pytest.raises(ModelError, match=r"tune\(weights=\): a task has its weights"):
        tw.tune(task, weights="int8")
    assert isinstance(load(layers()), Network)


@pytest.mark.long
@pytest.mark.slow
def test_a_decoder_says_the_same_with_them() -> None:
    """Its steps and its prefill, which has weights unpacked, read the same ones."""
    net = load("llama-tiny", shape={"tokens": [1, 24], "cache": 32}, batch=(1,))
    said = []
    for chosen in (net, net.with_weights("int8")):
        decoder = tw.Decoder(tw.compile(chosen, "llvm"))
        said.append([int(step[0]) for step in decoder.generate([list(range(2, 26))], 6)])
    assert said[0] == said[1]


def test_a_head_of_another_kind_has_the_groups_of_its_kind() -> None:
    weights = NarrowWeights.parsed("int4:64")
    assert [weights.group_of(2048, kind) for kind in ("int4", "int8")] == [64, 128]
    assert weights.group_of(96, "int8") == 32 and weights.group_of(40, "int8") == 0
    assert NarrowWeights.parsed(str(weights)) == weights
