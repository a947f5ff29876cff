"""Names that TVM's own tests use most, and what is theirs to find behind them."""

from __future__ import annotations

import argparse
import pickle
from pathlib import Path

import numpy as np
import pytest
from tilewright_tvm.driver.tvmc import composite_target
from tilewright_tvm.driver.tvmc import target as targets

import tilewright_tvm as tvm
from tilewright.base.errors import ModelError, TargetError, TilewrightError
from tilewright_tvm import relay, te
from tilewright_tvm.driver import tvmc
from tilewright_tvm.plugin import NAMED_KINDS
from tilewright_tvm.relay.testing import run_infer_type
from tilewright_tvm.relay.testing.temp_op_attr import TempOpAttr


# -- files
def test_a_file_that_is_there_is_not_downloaded(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    download = tvm.contrib.download
    path = tmp_path / "model" / "net.onnx"
    with pytest.raises(ModelError, match=r"Nothing is downloaded: fetch it yourself"):
        download.download("https://example.org/net.onnx", path)
    path.parent.mkdir()
    path.write_bytes(b"a model")
    download.download("https://example.org/net.onnx", str(path), overwrite=True)
    monkeypatch.setenv("TEST_DATA_ROOT_PATH", str(tmp_path))
    for module in ("model", ["model"]):
        assert download.download_testdata("https://example.org/n", "net.onnx", module) == path
    with pytest.raises(ModelError, match=r"no file '.*net\.onnx'"):
        download.download_testdata("https://example.org/n", "net.onnx")
    assert path.read_bytes() == b"a model"


# -- relay
def two_convolutions() -> relay.Function:
    x, u, v = (relay.var(n, shape=(1, 4, 8, 8) if n == "x" else (4, 4, 3, 3)) for n in "xuv")
    made = relay.nn.conv2d(relay.nn.conv2d(x, u, padding=(1, 1)), v, padding=(1, 1))
    return relay.Function([x, u, v], made)


@pytest.mark.parametrize(("skipped", "kept"), [([], ""), ([0], "0"), ([-1], "1"), ([0, 1], "01")])
def test_recast_leaves_layers_out(skipped: list[int], kept: str) -> None:
    made = relay.transform.recast(two_convolutions(), "int8", "int32", skip_layers=skipped)
    nodes = relay.analysis.post_order(made.body)
    calls = [n for n in nodes if isinstance(n, relay.Call) and n.op.name == "nn.conv2d"]
    types = [(str(c.args[0].checked_type.dtype), str(c.checked_type.dtype)) for c in calls]
    assert types == [("float32",) * 2 if str(k) in kept else ("int8", "int32") for k in range(2)]
    assert str(made.body.checked_type.dtype) == "float32"


def test_recast_cuts_values_off() -> None:
    before, centre = tvm.IRModule.from_expr(two_convolutions()), np.zeros((4, 4, 3, 3), "float32")
    centre[range(4), range(4), 1, 1] = 1
    after = relay.transform.recast(before, "int8", "int32")
    plain, cut = (
        relay.create_executor("graph", mod=m, target="llvm").evaluate() for m in (before, after)
    )
    rng = np.random.default_rng(0)
    x, w = (rng.integers(-3, 4, s).astype("float32") for s in ((1, 4, 8, 8), (4, 4, 3, 3)))
    x[0, 0, 0, 0], fraction = 1, 0.5 * (x > 0)
    expected = plain(x, w, centre).numpy()
    assert np.array_equal(cut(x + fraction, w, centre).numpy(), (expected + 128) % 256 - 128)
    assert not np.array_equal(plain(x + fraction, w, centre).numpy(), expected)


def test_calls_with_five_arguments() -> None:
    x = relay.var("x", shape=(2, 3))
    call = relay.nn.relu(x)
    again = relay.Call(call.op, call.args, call.attrs, call.type_args, call.span)
    assert tvm.ir.structural_equal(run_infer_type(again), run_infer_type(call))


def test_functions_are_added_once() -> None:
    x = relay.var("x", shape=(2,))
    mod, function = tvm.IRModule(), relay.Function([x], relay.exp(x))
    mod._add(relay.GlobalVar("f"), function)
    assert tvm.ir.structural_equal(mod["f"], function)
    with pytest.raises(ModelError, match=r"mod._add\(f\): there is one of that name"):
        mod._add(relay.GlobalVar("f"), relay.Function([x], relay.log(x)))
    mod._add(relay.GlobalVar("f"), relay.Function([x], relay.log(x)), True)
    assert not tvm.ir.structural_equal(mod["f"], function)


def test_nodes_by_the_names_of_their_types() -> None:
    number = tvm.ir.make_node("IntImm", dtype="int32", value=10, span=None)
    assert isinstance(number, tvm.tir.IntImm) and number.value == 10
    attrs = tvm.ir.make_node("relay.attrs.Conv2DAttrs", padding=(1, 1), groups=2)
    assert attrs.groups == 2 and attrs["padding"] == (1, 1)
    with pytest.raises(ModelError, match="it makes numbers and attributes"):
        tvm.ir.make_node("Tensor")


def test_a_legalisation_may_give_the_same_operator() -> None:
    x = relay.var("x", shape=(2, 3))
    function = relay.Function([x], relay.nn.relu(x))
    mod, passes = tvm.IRModule.from_expr(function), relay.transform.Legalize()
    with TempOpAttr("nn.relu", "FTVMLegalize", lambda attrs, inputs, types: relay.nn.relu(*inputs)):
        assert tvm.ir.structural_equal(passes(mod)["main"], function)
    with TempOpAttr(
        "nn.relu", "FTVMLegalize", lambda attrs, inputs, types: relay.nn.relu(inputs[0] * inputs[0])
    ):
        assert tvm.ir.structural_equal(
            passes(mod)["main"], relay.Function([x], relay.nn.relu(x * x))
        )


# -- arrays
def test_arrays_are_the_same_by_identity() -> None:
    a = tvm.nd.array(np.zeros(3, "float32"))
    assert a.same_as(a) and not a.same_as(tvm.nd.array(a.numpy()))


# -- targets
@pytest.mark.parametrize("name", NAMED_KINDS)
def test_kinds_with_a_name_only(name: str) -> None:
    target = tvm.target.Target(f"{name} -mcpu=some")
    assert target.kind.name == name and target.attrs["mcpu"] == "some" and target.keys
    assert pickle.loads(pickle.dumps(target)) == target
    a = te.placeholder((8,), name="a")
    b = te.compute((8,), lambda i: a[i] + 1.0, name="b")
    for text in (name, f"{name} -mtriple=some"):
        with pytest.raises(TargetError, match=f"target {name}: .* no code is made for it"):
            tvm.build(te.create_schedule(b.op), [a, b], text)


def test_functions_for_targets_with_a_name_only() -> None:
    assert tvm.target.rocm().keys == ("rocm", "gpu") and "vta" in tvm.target.vta().keys
    assert tvm.target.hexagon("v66").mcpu == "hexagonv66"
    assert tvm.target.Target("c -mcpu=cortex-m55").keys == ("cpu",)
    assert not {*tvm.target.Target.list_kinds()} & {*NAMED_KINDS}


def test_targets_as_tvm_prints_them() -> None:
    for text in (
        "llvm -keys=arm_cpu,cpu -device=arm_cpu -link-params=0 -mtriple=aarch64-linux-gnu",
        "cuda -keys=cuda,gpu -arch=sm_80 -max_num_threads=1024 -model=unknown -thread_warp_size=32",
        "vulkan -keys=vulkan,gpu -max_num_threads=256 -supports_float32=1 -thread_warp_size=1",
    ):
        read = tvm.target.Target(text)
        keys = text.split(" -keys=")[1].split()[0]
        assert ",".join(read.keys) == keys and tvm.target.Target(str(read)) == read
        assert targets.target_from_cli(text)[0] == read
    with pytest.raises(TargetError, match="unknown option -link-params"):
        tvm.target.Target("llvm -link-params=1")


def test_features() -> None:
    a64 = tvm.target.Target("llvm -mtriple=aarch64-linux-gnu -mattr=+v8.2a,+dotprod").features
    assert (a64.is_aarch64, a64.has_asimd, a64.has_dotprod, a64.has_sve) == (
        True,
        True,
        True,
        False,
    )
    assert tvm.target.Target("c -mcpu=cortex-m55").features.has_mve
    small = tvm.target.Target("c -mcpu=cortex-m3").features
    assert small.has_dsp is False and small.is_aarch64 is False
    assert tvm.target.Target("llvm -mcpu=skylake").features.has_asimd is None


# -- options of tvmc
@pytest.mark.parametrize(
    ("text", "tokens"),
    [
        ("foo -o=+v --flag, bar -p=t,+v", ["foo", "-o=+v", "--flag", ",", "bar", "-p=t,+v"]),
        ("foo -o='v, a', bar", ["foo", "-o='v, a'", ",", "bar"]),
        ("a-b -o-1=t-e, baz", ["a-b", "-o-1=t-e", ",", "baz"]),
        ("opencl -device=mali,llvm", ["opencl", "-device=mali", ",", "llvm"]),
        ("llvm -keys=arm_cpu,cpu", ["llvm", "-keys=arm_cpu,cpu"]),
    ],
)
def test_tokens_of_targets(text: str, tokens: list[str]) -> None:
    assert targets.tokenize_target(text) == tokens


def test_options_of_a_command_become_those_of_targets() -> None:
    parser = argparse.ArgumentParser()
    targets.generate_target_args(parser)
    given = ["--target=cmsis-nn, c", "--target-c-mcpu=cortex-m55", "--target-cmsis-nn-mcpu=x",
             "--target-opencl-max_num_threads=404"]  # fmt: skip
    parsed, left = parser.parse_known_args(given)
    assert parsed.target == "cmsis-nn, c" and left == ["--target-cmsis-nn-mcpu=x"]
    options = targets.reconstruct_target_args(parsed)
    assert options == {"opencl": {"max_num_threads": 404}, "c": {"mcpu": "cortex-m55"}}
    with pytest.raises(
        TilewrightError, match="--target-opencl-max_num_threads but did not specify"
    ):
        targets.target_from_cli("llvm", options)


def test_compilers_of_others_are_read_and_not_called(tmp_path: Path) -> None:
    target, others = targets.target_from_cli("cmsis-nn -a='1', c", {"cmsis-nn": {"mcpu": "x"}})
    assert str(target) == "c"
    assert [(o["name"], o["opts"]) for o in others] == [("cmsis-nn", {"a": "1", "mcpu": "x"})]
    x = relay.var("x", shape=(2,))
    model = tvmc.TVMCModel(tvm.IRModule.from_expr(relay.exp(x)), {})
    with pytest.raises(TargetError, match="cmsis-nn: compilers of others are not called"):
        tvmc.compile(model, "cmsis-nn, llvm", package_path=str(tmp_path / "x.tar"))
    for name in composite_target.get_codegen_names():
        with pytest.raises(TargetError, match=f"target {name}: compilers of others"):
            composite_target.get_codegen_by_target(name)["pass_pipeline"](None)
    with pytest.raises(TargetError, match="it is not defined"):
        composite_target.get_codegen_by_target("none")


def test_targets_of_files_and_of_json(tmp_path: Path) -> None:
    path = tmp_path / "target"
    path.write_text('{"kind": "llvm", "mcpu": "skylake"}\n')
    for given in (str(path), path.read_text()):
        assert targets.target_from_cli(given)[0].mcpu == "skylake"
