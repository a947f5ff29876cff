"""The front door: what is loaded, tuned and compiled by `tw.` names, and what refuses."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright import front, te
from tilewright.base.errors import DeviceError, ModelError, TilewrightError
from tilewright.cli.tune import DEFAULT_MINUTES
from tilewright.graph.evaluate import evaluate
from tilewright.measure.database import Database
from tilewright.runtime.load import load_module
from tilewright.runtime.network import compiled as compiled_module
from tilewright_tvm import autotvm, relay

ROOT = Path(__file__).parents[1]
SHAPE = (2, 3, 8, 8)


def small(shape: tuple[int, ...] = SHAPE) -> tuple[Any, dict[str, np.ndarray]]:
    """A convolution, and which channel is greatest: two outputs, of two types."""
    x, w = relay.var("x", shape=shape), relay.var("w", shape=(4, 3, 3, 3))
    made = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    weights = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32")
    return relay.IRModule.from_expr(relay.Tuple([made, relay.argmax(made, axis=1)])), {"w": weights}


def product(n: int, m: int, k: int) -> list[Any]:
    a, b = te.placeholder((n, k), name="A"), te.placeholder((k, m), name="B")
    r = te.reduce_axis((0, k), name="r")
    return [a, b, te.compute((n, m), lambda i, j: te.sum(a[i, r] * b[r, j], axis=r), name="C")]


@pytest.fixture(scope="module")
def net() -> tw.Network:
    mod, params = small()
    return tw.load(mod, params=params)


@pytest.fixture(scope="module")
def run(net: tw.Network) -> tw.Compiled:
    return tw.compile(net, "llvm")


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)


def data(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def expected(x: np.ndarray) -> list[np.ndarray]:
    mod, params = small(x.shape)
    return [np.asarray(v) for v in evaluate(mod, {**params, "x": x}, "float64")]


def right(found: Any, x: np.ndarray) -> bool:
    values, places = expected(x)
    return np.allclose(found[0], values, 1e-4, 1e-5) and np.array_equal(found[1], places)


# -- load ------------------------------------------------------------------------------------------


def test_a_network_tells_of_weights_that_are_no_arrays() -> None:
    x, w = relay.var("x", shape=(3,)), relay.var("w", shape=())
    function = relay.Function([x, w], x * w)
    for given in (2, [1.0], "none"):  # the last is refused when it is compiled
        assert "1 (0.0 MiB)" in str(tw.load(function, params={"w": given}))


def test_a_network_tells_what_it_is(net: tw.Network) -> None:
    assert [str(spec) for spec in net.inputs] == ["x: float32[2, 3, 8, 8]"]
    assert [str(spec) for spec in net.outputs] == [
        "output0: float32[2, 4, 8, 8]", "output1: int32[2, 8, 8]"
    ]  # fmt: skip
    assert net.operators == {"nn.conv2d": 1, "nn.relu": 1, "argmax": 1}
    lines = str(net).splitlines()
    assert [line.split()[0] for line in lines] == [
        "network", "input", "output", "output", "parameters", "operators"
    ]  # fmt: skip
    assert lines[4].split(maxsplit=1)[1] == "108 (0.0 MiB)"


def test_an_onnx_model_from_a_file_from_bytes_and_from_memory(run: tw.Compiled) -> None:
    proto = relay.to_onnx(*small())
    Path("a net.onnx").write_bytes(proto.SerializeToString())
    for model in ("a net.onnx", Path("a net.onnx"), proto, proto.SerializeToString()):
        found = tw.load(model)
        assert [(s.name, s.shape) for s in found.inputs] == [("x", SHAPE)]
        assert len(found.outputs) == 2
    assert right(tw.compile(tw.load("a net.onnx"), "llvm")(data()), data())


def test_several_sizes_are_one_network() -> None:
    mod, params = small()
    sizes = tw.load(mod, params=params, batch=(1, 4))
    assert len(sizes.modules) == 2 and "and for 1 more sets of shapes" in str(sizes)
    assert [one.name for one in sizes.each()] == ["IRModule, x:[1,3,8,8]", "IRModule, x:[4,3,8,8]"]
    several = tw.compile(sizes, "llvm")
    for n in (4, 1):
        x = data(n, (n, *SHAPE[1:]))
        assert right(several(x), x)


def test_a_network_in_another_type_and_layout() -> None:
    mod, params = small()
    narrow = tw.load(mod, params=params, dtype="float16", layout="NHWC")
    assert narrow.operators["cast"] and narrow.operators["transpose"] == 2
    found = tw.compile(narrow, "llvm")(data())
    assert np.allclose(found[0], expected(data())[0], atol=2e-2)


@pytest.mark.parametrize("name, cut", [("net.pt2", 0.5), ("net.pt2", 0.996), ("net.pt", 0.5)])
def test_a_damaged_file_of_pytorch_says_that_it_is_and_how_to_write_it(
    name: str, cut: float
) -> None:
    torch = pytest.importorskip("torch")
    module, example = torch.nn.Linear(4, 3), torch.ones(2, 4)
    if name.endswith("2"):
        torch.export.save(torch.export.export(module, (example,)), name)
    else:
        torch.jit.save(torch.jit.trace(module, example), name)
    whole = Path(name).read_bytes()
    Path(name).write_bytes(whole[: int(len(whole) * cut)])
    with pytest.raises(ModelError, match="a damaged .* of PyTorch") as caught:
        tw.load(name)
    assert "write it again" in str(caught.value) and "ONNX first" not in str(caught.value)
    if name.endswith("2"):
        assert "torch.export.save(" in str(caught.value)


def test_a_module_of_pytorch_by_examples_and_by_shapes() -> None:
    torch = pytest.importorskip("torch")

    class Pair(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.linear = torch.nn.Linear(6, 3)

        def forward(self, left: Any, right: Any) -> Any:
            return self.linear(left) + right, right * 2

    module = Pair()
    x, y = torch.randn(2, 6), torch.randn(2, 3)
    ways = [(x, y), {"right": y, "left": x}, ((2, 6), (2, 3)), [x.numpy(), (2, 3)]]
    loaded = [tw.load(module, inputs) for inputs in ways]
    program = torch.export.export(module, (x, y))
    torch.export.save(program, "pair.pt2")
    loaded += [tw.load(program), tw.load("pair.pt2")]
    for net in loaded:
        assert {s.name: s.shape for s in net.inputs} == {"left": (2, 6), "right": (2, 3)}
    assert module.training  # as it was
    run = tw.compile(loaded[0], "llvm")
    for found, want in zip(run(x, y), module(x, y), strict=True):
        assert torch.allclose(found, want, atol=1e-5)
    single = tw.load(torch.nn.Linear(6, 3), (2, 6))
    assert [s.shape for s in single.inputs] == [(2, 6)]
    traced = torch.jit.trace(module.eval(), (x, y))
    traced.save("pair.pt")
    assert len(tw.load("pair.pt", (x, y)).inputs) == 2
    with pytest.raises(TilewrightError, match=r"shapes of its inputs.*inputs=\(1, 3"):
        tw.load(module)


REFUSED = [
    (lambda: tw.load("resnet-19"), "resnet-19: there is no such network. Did you mean resnet-18"),
    (lambda: tw.load("no.onnx"), "no.onnx: there is no such file"),
    (lambda: tw.load("https://x.org/a.onnx"), "nothing is fetched"),
    (lambda: tw.load(b"\1\2"), "are no ONNX model"),
    (lambda: tw.load("mlp", (1, 2)), "the model tells its inputs. Leave inputs out"),
    (lambda: tw.load("mlp", shape={"data": (1,)}), "its shapes are fixed"),
    (lambda: tw.load("mlp", params={}), "the model has its weights"),
    (lambda: tw.load(small()[0], shape={"x": (1,)}), "its shapes are fixed, they are those of"),
    (lambda: tw.load(3), "it is no model. Give .*a module of PyTorch"),
    (lambda: tw.load(print, (1, 2)), "it is no model. Give .*a module of PyTorch"),
    (lambda: tw.load({"weight": 1}, (1, 2)), "it is no model. Give .*a module of PyTorch"),
    (lambda: tw.load(tw.Network, (1, 2)), "it is no model .a class: call it to make a module"),
    (lambda: tw.load("mlp", layout="CWHN8"), "^mlp: layout 'CWHN8': not a string of axis letters"),
    (lambda: tw.load("dqn", layout="NCHW48c"), "^dqn: the channels of no convolution"),
    (lambda: tw.load("mlp", layout="NCDHW"), "^mlp: layout NCDHW: they are not the axes of NCHW"),
    (lambda: tw.load("mlp", batch=(1, 1)), "not different whole numbers of at least 1"),
    (lambda: tw.load("mlp", dtype="int8"), "Use float32, float16, bfloat16"),
    (lambda: tw.tune(tw.load("mlp"), "llvm", trials=0), "trials=0.*not more than zero"),
    (lambda: tw.tune(tw.load("mlp"), "llvm", trials=1, early_stopping=0), "not more than zero"),
    (lambda: tw.tune([]), "there is no task"),
    (lambda: tw.tune(3), "what is a int"),
    (lambda: tw.compile(3), "what is a int"),
    (lambda: tw.compile(tw.load("mlp"), "llvm", log="no.jsonl"), "there is no such file"),
    (lambda: tw.compile(tw.load("mlp"), "tpu"), "unknown kind 'tpu'"),
    (lambda: tw.tune(tw.task(product, (4, 4, 4), "llvm"), "llvm"), "a task has its target"),
    (lambda: tw.compile(tw.task(product, (4, 4, 4), "llvm"), "llvm"), "a task has its target"),
    (lambda: tw.task(product, (4,), "llvm"), "missing a required argument: 'm'"),
    (lambda: tw.task(lambda: 3, (), "llvm"), "Return the list of its input and output tensors"),
    (lambda: tw.task("no/such", (), "llvm"), "no template of that name"),
    (lambda: tw.open("no.so"), "there is no such file. Check the path"),
]


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_what_cannot_be_is_said_in_one_sentence(call: Any, words: str) -> None:
    with pytest.raises(TilewrightError) as refused:
        call()
    assert re.search(words, str(refused.value)), str(refused.value)
    assert not list(Path().iterdir())  # and no file is left


@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        (
            "net.tflite",
            b"\0\0\0\x1cTFL3",
            "not a model that can be read. Export it to ONNX",
        ),
        ("log.jsonl", b'{"kind":"run"}\n', "tilewright.compile takes it as log='log.jsonl'"),
        ("net.onnx", b"", "an empty file"),
    ],
)
def test_a_file_of_another_kind_is_named(name: str, content: bytes, words: str) -> None:
    Path(name).write_bytes(content)
    with pytest.raises(TilewrightError, match=re.escape(words)):
        tw.load(name)


# -- run -------------------------------------------------------------------------------------------


def test_arrays_and_lists_come_back_as_arrays(run: tw.Compiled) -> None:
    x = data()
    for found in (run(x), run(x=x), run({"x": x}), run(x.tolist()), run(x.astype("float64"))):
        assert isinstance(found, tuple) and all(type(v) is np.ndarray for v in found)
        assert right(found, x)
    first = run(x)
    run(data(1))
    assert right(first, x)  # it is not overwritten


def test_arrays_of_ours_come_back_as_such(run: tw.Compiled) -> None:
    x = tw.nd.array(data())
    found = run(x)
    run(data(1))
    assert all(isinstance(v, tw.nd.NDArray) for v in found)
    assert right([v.numpy() for v in found], data())


def test_tensors_come_back_as_tensors(run: tw.Compiled) -> None:
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(data())
    turned = x.transpose(2, 3).contiguous().transpose(2, 3)  # the same numbers, strided
    within = torch.zeros(x.numel() + 1)[1:].view(SHAPE).copy_(x)  # at no aligned address
    for value in (x, turned, within, x.double(), torch.nn.Parameter(x.clone())):
        found = run(value)
        assert all(type(v) is torch.Tensor for v in found) and found[1].dtype == torch.int32
        assert right([v.numpy() for v in found], data())
    first = run(x)
    run(torch.from_numpy(data(1)))
    assert right([v.numpy() for v in first], data())
    sizes = tw.compile(tw.load(small()[0], params=small()[1], batch=(1, 4)), "llvm")
    for n in (1, 4, 1):
        value = data(n, (n, *SHAPE[1:]))
        assert right([v.numpy() for v in sizes(torch.from_numpy(value))], value)


def test_tensors_are_read_and_written_where_they_are(
    run: tw.Compiled, monkeypatch: pytest.MonkeyPatch
) -> None:
    torch = pytest.importorskip("torch")
    run(torch.from_numpy(data()))
    for name in ("from_dlpack", "GraphModule"):
        monkeypatch.setattr(compiled_module, name, lambda *_: pytest.fail("it was copied"))
    assert right([v.numpy() for v in run(torch.from_numpy(data(2)))], data(2))


def test_arrays_of_others_come_back_by_dlpack(run: tw.Compiled) -> None:
    class Theirs:
        def __init__(self, held: np.ndarray) -> None:
            self.held = held
            self.__dlpack__, self.__dlpack_device__ = held.__dlpack__, held.__dlpack_device__

        def __array_namespace__(self) -> Any:
            return SimpleNamespace(from_dlpack=lambda other: Theirs(np.from_dlpack(other)))

    found = run(Theirs(data()))
    assert all(isinstance(v, Theirs) for v in found) and right([v.held for v in found], data())


def test_threads_take_turns(run: tw.Compiled) -> None:
    results: dict[int, bool] = {}

    def work(seed: int) -> None:
        results[seed] = all(right(run(data(seed)), data(seed)) for _ in range(4))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)


@pytest.mark.parametrize(
    ("args", "by_name", "words"),
    [
        ((), {}, r"input x: float32\[2, 3, 8, 8\] is not given"),
        ((1, 2), {}, "2 inputs are given, the network has 1. It takes x: float32"),
        ((), {"y": 1}, "input 'y' is none of the network"),
        ((data(),), {"x": data()}, "input 'x' is given twice"),
        ((data()[:1],), {}, r"input 'x': the value is float32\[1, 3, 8, 8\], the input float32"),
        ((data().astype("complex64"),), {}, "input 'x': "),
        (("a word",), {}, "input 'x': the value is no array"),
    ],
)
def test_a_call_that_does_not_fit_names_the_input(
    run: tw.Compiled, args: Any, by_name: Any, words: str
) -> None:
    with pytest.raises(TilewrightError, match=words):
        run(*args, **by_name)
    assert right(run(data()), data())  # it goes on working


def test_a_call_of_tensors_that_does_not_fit_names_the_input(run: tw.Compiled) -> None:
    torch = pytest.importorskip("torch")
    with pytest.raises(TilewrightError, match="input 'x': the value is float32"):
        run(torch.zeros(2, 3, 8, 9))


@pytest.mark.parametrize("make, words", [
    (lambda x: x.to("meta"), "device type meta"),
    (lambda x: x.to_sparse(), "not one after another"),
    (lambda x: x[0, 0].to_sparse_csr(), "not one after another"),
    (lambda x: x.to_mkldnn(), "not one after another"),
])  # fmt: skip
def test_a_tensor_without_dense_memory_names_the_input(
    run: tw.Compiled, make: Any, words: str
) -> None:
    torch = pytest.importorskip("torch")
    tensor = make(torch.zeros(SHAPE))
    for call in (run, run.time):
        with pytest.raises(DeviceError, match=f"input 'x': .*{words}.*to_dense"):
            call(tensor)


def test_a_tensor_that_was_only_traced_has_no_memory(run: tw.Compiled) -> None:
    fake = pytest.importorskip("torch._subclasses").FakeTensorMode()
    with fake:
        tensor = pytest.importorskip("torch").empty(SHAPE)
    with pytest.raises(DeviceError, match="input 'x': the tensor has no memory"):
        run(tensor)


@pytest.mark.parametrize("log", [5, [5], ["a.jsonl", object()]])
def test_a_log_that_is_none_names_the_argument_of_compile(net: tw.Network, log: Any) -> None:
    Path("a.jsonl").touch()
    with pytest.raises(ModelError, match=r"^compile\(log=\): it has no lookup"):
        tw.compile(net, "llvm", log=log)


NUL = "a\0b"


@pytest.mark.parametrize("call", [
    lambda net, run: tw.open(NUL), lambda net, run: run.save(NUL),
    lambda net, run: run.save("a.so", cc=NUL), lambda net, run: tw.tune(net, log=NUL, trials=1),
    lambda net, run: tw.tune(net, log="a.jsonl", history=[NUL], trials=1),
    lambda net, run: tw.compile(net, log=NUL), lambda net, run: tw.load(NUL),
    lambda net, run: load_module(Path(NUL)), lambda net, run: Database(NUL),
    lambda net, run: Database.load(NUL), lambda net, run: autotvm.apply_history_best(NUL),
])  # fmt: skip
def test_a_path_with_a_nul_is_an_error_of_ours(
    net: tw.Network, run: tw.Compiled, call: Any
) -> None:
    with pytest.raises(TilewrightError):
        call(net, run)


def test_it_is_timed_and_profiled(run: tw.Compiled) -> None:
    assert 0 < run.time() < 1 and 0 < run.time(data()) < 1
    assert len(run.benchmark(data(), number=1, repeat=3).results) == 3
    assert "conv2d" in str(run.profile(x=data(), number=1)) and "kernels for llvm" in str(
        run.report
    )
    assert str(run.target) == "llvm" and repr(run).startswith("Compiled(x: float32[2, 3, 8, 8])")


OPENED = """
import sys
import numpy as np
import tilewright as tw
before = set(sys.modules)
run = tw.open(sys.argv[1])
x = np.load("x.npy")
np.savez("out.npz", *run(x))
rooms = {name.split(".")[1] for name in sys.modules if name.startswith("tilewright.")}
print(*sorted(rooms))
"""


@pytest.mark.parametrize("name", ["net.tar", "net.so"])
def test_a_file_is_opened_without_the_compiler(run: tw.Compiled, name: str) -> None:
    if name.endswith(".so"):
        pytest.importorskip("ziglang")
    run.save(name)
    np.save("x.npy", data())
    command = [sys.executable, "-c", OPENED, name]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert set(done.stdout.split()) == {"base", "runtime", "targets"}
    with np.load("out.npz") as found:
        assert right([found["arr_0"], found["arr_1"]], data())
    with pytest.raises(TilewrightError, match=r"It runs as it is: tilewright.open\('net"):
        tw.load(name)


def test_what_is_there_is_not_written_over(run: tw.Compiled) -> None:
    Path("net.so").write_text("what took a night")
    with pytest.raises(TilewrightError, match=r"save\('net.so'\).*is not replaced"):
        run.save("net.so")
    Path("net.onnx").write_bytes(relay.to_onnx(*small()).SerializeToString())
    with pytest.raises(TilewrightError, match=r"open\('net.onnx'\): it is an ONNX model"):
        tw.open("net.onnx")


# -- tune ------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_file_in_the_place_of_one_that_is_open_is_another(tmp_path: Path) -> None:
    x = relay.var("x", shape=(3,))
    values = np.float32([-1, 0, 2])
    first, second = (
        tw.compile(tw.load(relay.Function([x], of(x))), "llvm") for of in (relay.nn.relu, relay.exp)
    )
    file = tmp_path / "n.so"
    first.save(file)
    opened = tw.open(file)
    second.save(file)
    np.testing.assert_allclose(tw.open(file)(values), np.exp(values), rtol=1e-6)
    first.save(file)
    np.testing.assert_array_equal(tw.open(file)(values), opened(values))


def test_tensors_that_are_negative_views_are_read_as_they_are() -> None:
    torch = pytest.importorskip("torch")
    run = tw.compile(tw.load(torch.nn.ReLU(), (1,)), "llvm")
    for sign in (1.0, -1.0):
        x = torch.complex(torch.tensor([1.0]), torch.tensor([sign])).conj().imag
        assert x.is_neg() and torch.equal(run(x), torch.relu(x))


def test_examples_by_name_are_in_the_order_of_the_call() -> None:
    torch = pytest.importorskip("torch")

    class Difference(torch.nn.Module):
        def forward(self, b: Any, a: Any) -> Any:
            return b - a

    example = torch.zeros(2)
    run = tw.compile(tw.load(Difference(), {"a": example, "b": example}), "llvm")
    assert torch.equal(run(example + 3, example + 1), example + 2)


def test_a_network_is_tuned_and_the_next_call_goes_on(
    net: tw.Network, capsys: pytest.CaptureFixture[str]
) -> None:
    tuned = tw.tune(net, "llvm", trials=3, log="log.jsonl")
    assert "tuning IRModule for llvm, results in log.jsonl (0 so far)" in capsys.readouterr().out
    assert tuned.trials == 3 and len(Database.load("log.jsonl").query(final=False)) == 3
    assert "3 trials in" in str(tuned) and "untuned" in str(tuned).splitlines()[-1]
    assert tuned.networks[0].seconds <= tuned.networks[0].untuned_seconds
    again = tw.tune(net, "llvm", trials=2, log="log.jsonl", progress=False)
    assert sum(told.known for told in again.report.tasks) >= 3
    assert capsys.readouterr().out == ""
    run = tw.compile(net, "llvm", log="log.jsonl")
    assert run.report.sources["record"] >= 1 and right(run(data()), data())
    with pytest.raises(TilewrightError, match="it holds records for llvm"):
        tw.compile(net, "opencl", log="log.jsonl")


@pytest.mark.slow
def test_one_operator_is_tuned_and_compiled() -> None:
    task = tw.task(product, (16, 8, 12), "llvm")
    assert isinstance(task, tw.Task) and task.name == "product"
    assert "rules" in {s.origin.partition(":")[0] for s in task.sketches}
    dense = [te.placeholder((8, 16), name="x"), te.placeholder((4, 16), name="w")]
    known = tw.task([*dense, tw.topi.nn.dense(*dense)], target="llvm")
    assert {"rules", "template"} <= {s.origin.partition(":")[0] for s in known.sketches}
    tuned = tw.tune(task, trials=4, progress=False)
    assert tuned.log == Path("product.llvm.jsonl") and tuned.best_seconds[0]
    run = tw.compile(task, log=tuned.log)
    assert run.report.sources == {"record": 1} and run.report.kernels[0].verified
    a, b = data(0, (16, 12)), data(1, (12, 8))
    assert np.allclose(run(a, b), a @ b, atol=1e-4) and np.allclose(run(B=b, A=a), a @ b, atol=1e-4)
    schedule = tuned.schedule()
    assert "s[C]" in schedule.to_python()
    kernel, c = tw.build(schedule, target="llvm"), tw.nd.empty((16, 8))
    kernel(tw.nd.array(a), tw.nd.array(b), c)
    assert np.allclose(c.numpy(), a @ b, atol=1e-4)
    run.save("kernel.tar")
    assert np.allclose(tw.open("kernel.tar")(a, b), a @ b, atol=1e-4)
    assert tw.compile(task).report.sources == {"default": 1}


@pytest.mark.slow
def test_a_template_of_ones_own() -> None:
    @tw.template("tests/front_door")
    def rows(n: int) -> Any:
        a, b, c = product(n, n, n)
        s, config = te.create_schedule(c.op), tw.get_config()
        config.define_split("rows", s[c].op.axis[0], num_outputs=2)
        config["rows"].apply(s, c, s[c].op.axis[0])
        return s, [a, b, c]

    task = tw.task("tests/front_door", (8,), "llvm")
    tuned = tw.tune([task], trials=3, log="log.jsonl", progress=False)
    assert tuned.report.tasks[0].best.origin == "template:tests/front_door"
    assert tw.compile(task, log="log.jsonl").report.sources == {"record": 1}


def test_ctrl_c_keeps_the_log(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    tell = front.Progress.record

    def stopped(self: Any, index: int, record: Any) -> None:
        tell(self, index, record)
        raise KeyboardInterrupt

    monkeypatch.setattr(front.Progress, "record", stopped)
    with pytest.raises(KeyboardInterrupt):
        tw.tune(tw.task(product, (8, 8, 8), "llvm"), trials=50, log="log.jsonl")
    kept = len(Database.load("log.jsonl"))
    assert kept >= 1
    assert f"Stopped.  {kept} results are in log.jsonl; the same call goes on." in (
        capsys.readouterr().out
    )


def test_the_target_is_that_of_with_or_of_what_is_here(
    net: tw.Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    for there, kind in ((True, "cuda"), (False, "llvm")):
        monkeypatch.setattr(front, "cuda", lambda there=there: SimpleNamespace(exist=there))
        assert str(front._target(None)) == kind
        with tw.Target("opencl"):
            assert str(front._target(None)) == "opencl"
    board = tw.compile(net, "llvm -mtriple=aarch64-linux-gnu", verify=False)
    with pytest.raises(TilewrightError, match="aarch64"):
        board(data())


# -- names and pages -------------------------------------------------------------------------------


def test_the_names_are_there_and_cost_nothing_before_they_are_used() -> None:
    tree = ast.parse((ROOT / "src/tilewright/__init__.py").read_text())
    typed = {a.asname for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    for name in ("load", "tune", "compile", "open", "task", "Network", "Tuned", "Compiled", "Task",
                 "template", "get_config", "build", "lower", "device", "cpu", "cuda", "opencl",
                 "Target", "te", "topi"):  # fmt: skip
        assert getattr(tw, name).__doc__, name
        assert name in typed, name
    assert front.MINUTES == DEFAULT_MINUTES  # which the command says before it imports so much
    code = "import sys, tilewright; print(*[m for m in sys.modules if m.startswith('tilewright.')])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert "tilewright.front" not in done.stdout and "tilewright.runtime" not in done.stdout
