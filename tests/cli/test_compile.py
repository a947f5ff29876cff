"""`tilewright compile`: a file that runs without the compiler, for one batch size or several."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from graph.small import database_of
from tilewright import cpu
from tilewright.base.errors import ModelError
from tilewright.models.networks import load_batches
from tilewright.network.tune import tasks_of
from tilewright.runtime import load_module
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target
from tilewright_tvm import relay

onnx = pytest.importorskip("onnx")


def command(*args: object, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "tilewright", *map(str, args)], cwd=cwd, capture_output=True,
        text=True, timeout=120,
    )  # fmt: skip


def flatten_model(first: str | int) -> bytes:
    """A product behind a reshape whose batch is computed from the input's shape."""
    helper, tensor = onnx.helper, onnx.TensorProto
    weights = np.random.default_rng(0).standard_normal((12, 5)).astype("float32")
    nodes = [
        helper.make_node("Shape", ["x"], ["s"]),
        helper.make_node("Gather", ["s", "zero"], ["n"]),
        helper.make_node("Concat", ["n", "rest"], ["to"], axis=0),
        helper.make_node("Reshape", ["x", "to"], ["flat"]),
        helper.make_node("MatMul", ["flat", "w"], ["y"]),
    ]
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", tensor.FLOAT, [first, 3, 4])],
        [helper.make_tensor_value_info("y", tensor.FLOAT, None)],
        [
            onnx.numpy_helper.from_array(np.array([0]), "zero"),
            onnx.numpy_helper.from_array(np.array([-1]), "rest"),
            onnx.numpy_helper.from_array(weights, "w"),
        ],
    )  # fmt: skip
    opset = helper.make_opsetid("", 17)
    made = helper.make_model(graph, opset_imports=[opset], ir_version=8)
    return bytes(made.SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize("first", ["batch", 2])
def test_an_onnx_model_for_several_batch_sizes(tmp_path, first):
    path = tmp_path / "net.onnx"
    path.write_bytes(flatten_model(first))
    mods, params = load_batches(path, [1, 3])
    library = relay.build(mods, "llvm", params)
    module = GraphModule(library["default"](cpu()))
    x = np.random.default_rng(1).standard_normal((3, 3, 4)).astype("float32")
    w = onnx.numpy_helper.to_array(onnx.load(path).graph.initializer[2])
    for size in (1, 3):
        module.run(x=x[:size])
        np.testing.assert_allclose(
            module.get_output(0).numpy(), x[:size].reshape(size, 12) @ w, rtol=1e-5, atol=1e-5
        )


@pytest.mark.long
def test_compile_writes_a_library_for_the_sizes(tmp_path):
    done = command("compile", "mlp", "--batch", "1,4", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "there is no log" in done.stderr.lower() and "mlp.llvm.tar" in done.stdout
    module = GraphModule(load_module(tmp_path / "mlp.llvm.tar")["default"](cpu()))
    mod, params = relay.testing.mlp.get_workload(batch_size=4)
    data = np.random.default_rng(0).standard_normal((4, 1, 28, 28)).astype("float32")
    module.run(data=data)
    wanted = relay.evaluate(mod, {**params, "data": data})
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)
    wrong = command("compile", "mlp", "--batch", "1,x", cwd=tmp_path)
    assert wrong.returncode == 2 and "no list such as 1,8,32" in wrong.stderr


@pytest.mark.slow
def test_tasks_of_several_sizes_are_tuned_together(tmp_path):
    mods, params = load_batches("mlp", [1, 4])
    assert [m["main"].params[0].shape[0] for m in mods] == [1, 4]
    tasks = tasks_of([*mods, mods[0]], params, Target("llvm"), rules=False)
    assert sorted({t.weight for t in tasks}) == [1, 2] and len(tasks) == 6
    assert len(tasks_of([*mods, mods[0]], params, Target("llvm"))) == 8


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["net.onnx", "log.jsonl", "weights.pt", "own.py", "x.tar", "x.so"])
def test_compile_writes_over_no_model_no_log_and_no_source(tmp_path, name):
    model = flatten_model(2)
    (tmp_path / "net.onnx").write_bytes(model)
    there = tmp_path / name
    if not there.exists():
        there.write_bytes(b"what took a night")
    before = there.read_bytes()
    done = command("compile", "net.onnx", "-o", name, cwd=tmp_path)
    assert done.returncode == 1 and "error: compile -o" in done.stderr
    assert "built in" not in done.stdout  # it is said before the work
    assert there.read_bytes() == before
    assert {p.name for p in tmp_path.iterdir()} == {"net.onnx", name}


@pytest.mark.long
def test_tune_and_distill_write_into_no_model(tmp_path):
    model = flatten_model(2)
    (tmp_path / "net.onnx").write_bytes(model)
    (tmp_path / "log.jsonl").write_text('{"kind":"run","v":1,"options":{}}\n')
    for words in (
        ("tune", "net.onnx", "--trials", 1, "-o", "net.onnx"),
        ("records", "distill", "log.jsonl", "-o", "net.onnx"),
        ("records", "show", "log.jsonl", "--pick-best", "net.onnx"),
        ("runtime-archive", "net.onnx"),
    ):
        done = command(*words, cwd=tmp_path)
        assert done.returncode == 1 and "is not replaced" in done.stderr, done.stderr
        assert (tmp_path / "net.onnx").read_bytes() == model


def test_an_unknown_network():
    with pytest.raises(ModelError, match="there is no such network"):
        load_batches("no-network", [1])


BOARD = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72"


@pytest.mark.long
@pytest.mark.parametrize("name", ["net.so", "net.tar"])
def test_a_network_for_a_board_that_is_not_here(tmp_path, name):
    """With what was measured on such a board; a log of this machine's kernels is not used."""
    if name.endswith(".so"):
        pytest.importorskip("ziglang")
    mod, params = relay.testing.mlp.get_workload()
    tasks = tasks_of([mod], params, Target(BOARD), rules=False)
    database_of(tasks).save(tmp_path / "board.jsonl")
    done = command("compile", "mlp", "--target", BOARD, "--log", "board.jsonl", "-o", name,
                   cwd=tmp_path)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert f"({len(tasks)} record, 1 default), 0 verified" in done.stdout
    assert "no kernel was run" in done.stdout
    library = load_module(tmp_path / name)
    assert Target(library.target).triple == "aarch64-linux-gnu"
    ran = command("run", name, cwd=tmp_path)
    assert ran.returncode == 1 and "it was compiled for aarch64" in ran.stderr
    other = command("compile", "mlp", "--log", "board.jsonl", cwd=tmp_path)
    assert other.returncode == 1 and "it holds records for llvm -mcpu=cortex-a72" in other.stderr
    (tmp_path / "board.jsonl").rename(tmp_path / "mlp.llvm.jsonl")
    other = command("compile", "mlp", cwd=tmp_path)
    assert other.returncode == 0 and "The kernels are untuned." in other.stderr


@pytest.mark.slow
def test_a_gpu_that_is_not_here(tmp_path):
    pytest.importorskip("cuda.bindings.nvrtc")
    done = command("compile", "mlp", "--target", "cuda -arch=sm_75", "-o", "net.tar", cwd=tmp_path)
    if "NVRTC is not installed" in done.stderr:
        pytest.skip("there is no NVRTC")
    assert done.returncode == 0, done.stderr
    assert load_module(tmp_path / "net.tar").target == "cuda -arch=sm_75"


@pytest.mark.long
def test_shapes_of_the_inputs_of_a_file(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(flatten_model("batch"))
    for given in ("x:[2,3,4]", "batch:2"):
        done = command("compile", path, "--shape", given, "-o", "made.tar", cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        module = GraphModule(load_module(tmp_path / "made.tar")["default"](cpu()))
        module.run(x=np.ones((2, 3, 4), "float32"))
        assert module.get_output(0).shape == (2, 5)
    open_ = command("compile", path, cwd=tmp_path)
    assert open_.returncode == 1 and "extent batch is open" in open_.stderr
    wrong = command("tune", path, "--shape", "x=2,3", cwd=tmp_path)
    assert wrong.returncode == 2 and "no shape such as data:[1,3,224,224]" in wrong.stderr
    named = command("compile", "mlp", "--shape", "data:[1]", cwd=tmp_path)
    assert named.returncode == 1 and "its shapes are fixed" in named.stderr


_DENSE = """
import numpy as np
from tilewright_tvm import relay

def net():
    rng, x = np.random.default_rng(0), relay.var("x", shape=(1, 256))
    weights = (rng.standard_normal(shape).astype("float32") for shape in ((128, 256), (256, 128)))
    first, second = map(relay.const, weights)
    return relay.Function([x], relay.nn.dense(relay.nn.relu(relay.nn.dense(x, first)), second))
"""


@pytest.mark.slow
def test_narrow_weights_of_a_network(tmp_path):
    (tmp_path / "dense.py").write_text(_DENSE)
    done = command("compile", "dense.py:net", "--weights", "int8", "-o", "n.tar", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "note: weights int8:128:head=int8 in 2 layers: outputs " in done.stdout
    assert load_module(tmp_path / "n.tar").report.accuracy.layers == 2
    wrong = command("compile", "dense.py:net", "--weights", "int3", cwd=tmp_path)
    assert wrong.returncode == 2 and "there are no such weights" in wrong.stderr
