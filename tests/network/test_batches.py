"""Libraries for several batch sizes: which network runs, what is shared, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu
from tilewright.base.errors import DeviceError, ModelError
from tilewright.graph.passes.batch import with_batch
from tilewright.network.batching import sample_dependence
from tilewright.network.extract import fused_groups, prepare
from tilewright.runtime import load_module
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import nd, relay

SIZES = (1, 3, 8)


def network(batch: int) -> relay.Function:
    """A convolution, a reshape that moves the batch, one that merges it, a dense layer."""
    x = relay.var("x", shape=(batch, 3, 8, 8))
    y = relay.nn.relu(relay.nn.conv2d(x, relay.var("w", shape=(4, 3, 3, 3)), 1, 1))
    y = relay.reshape(y, (batch, 4, 64))
    y = relay.transpose(y, (1, 0, 2))  # the batch is in the middle
    y = relay.reshape(y, (4 * batch, 64))
    y = relay.nn.dense(y, relay.var("d", shape=(5, 64)))
    y = relay.transpose(relay.reshape(y, (4, batch, 5)), (1, 0, 2))
    y = relay.nn.softmax(relay.reshape(y, (batch, 20)))
    return relay.Function(relay.free_vars(y), y)


PARAMS = {
    "w": np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype("float32"),
    "d": np.random.default_rng(1).standard_normal((5, 64)).astype("float32"),
}


def data(batch: int) -> np.ndarray:
    return np.random.default_rng(batch).standard_normal((batch, 3, 8, 8)).astype("float32")


@pytest.fixture(scope="module")
def library():
    return relay.build(network(2), "llvm", PARAMS, batch_sizes=SIZES)


@pytest.mark.parametrize("base", [2, 5])
@pytest.mark.parametrize("size", [1, 4])
def test_the_network_for_another_batch_is_the_network(base, size):
    """Even where every shape of it is a number."""
    made = with_batch(network(base), size, tuple(PARAMS))
    wanted = relay.evaluate(network(size), {**PARAMS, "x": data(size)})
    np.testing.assert_array_equal(relay.evaluate(made, {**PARAMS, "x": data(size)}), wanted)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "mobilenet_v2", "squeezenet-1.1"])
def test_test_networks_take_any_batch(name):
    mod, params = relay.testing.get_network(name, image_shape=(3, 64, 64))
    other, _ = relay.testing.get_network(name, image_shape=(3, 64, 64), batch_size=3)
    made = with_batch(mod["main"], 3, tuple(params))
    assert str(made) == str(other["main"])


@pytest.mark.slow
def test_the_shape_of_the_input_chooses(library):
    module = GraphModule(library["default"](cpu()))
    for size in (*SIZES, *reversed(SIZES)):
        module.run(x=data(size))
        wanted = relay.evaluate(network(size), {**PARAMS, "x": data(size)})
        np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert module.planned_bytes == library.report.planned_bytes


@pytest.mark.slow
def test_another_size_is_an_error_that_lists_the_sizes(library):
    module = GraphModule(library["default"](cpu()))
    with pytest.raises(DeviceError, match=r"\[1, 3, 8, 8\] or \[3, 3, 8, 8\] or \[8, 3, 8, 8\]"):
        module.run(x=data(2))


def test_weights_are_shared(library):
    """Those that kernels of several sizes read in one layout."""
    alone = relay.build(network(1), "llvm", PARAMS)
    layouts = {(c.shape, c.tobytes()) for c in library.constants}
    assert len(layouts) == len(library.constants) < len(SIZES) * len(alone.constants)
    assert len(library.plans) == 3 and "2 more shapes" in repr(library)
    assert any("3 shapes" in note for note in library.report.notes)


@pytest.mark.parametrize("name", ["net.tar", "net.tw"])
def test_a_file_holds_them_all(library, tmp_path, name):
    library.export_library(tmp_path / name)
    module = GraphModule(load_module(tmp_path / name)["default"](cpu()))
    for size in SIZES:
        module.run(x=data(size))
        wanted = relay.evaluate(network(size), {**PARAMS, "x": data(size)})
        np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)


def total(size: int) -> relay.Function:
    x, y = relay.var("x", shape=(size, 4)), relay.var("y", shape=(size, 4))
    s = relay.var("s", shape=(4,))
    return relay.Function([x, y, s], relay.add(relay.multiply(x, s), y))


@pytest.mark.slow
def test_modules_for_several_shapes_and_inputs_that_belong_together():
    lib = relay.build([total(2), total(5)], "llvm")
    module = GraphModule(lib["default"](cpu()))
    ones, scale = np.ones((5, 4), "float32"), np.full(4, 3, "float32")
    module.set_input(x=ones[:2], y=ones[:2], s=scale)
    module.set_input("x", ones)
    for refused in (module.run, module.profile, lambda: module.benchmark(cpu())):
        with pytest.raises(DeviceError, match=r"y: float32\[5, 4\]"):  # s keeps its value
            refused()
    module.run(y=ones)
    np.testing.assert_array_equal(module.get_output(0).numpy(), 4 * ones)
    assert len(module.profile(1)) == 1


def across() -> relay.Function:
    x = relay.var("x", shape=(2, 4))
    return relay.Function([x], relay.sum(x, axis=0))


def fixed() -> relay.Function:
    x = relay.var("x", shape=(2, 4))
    return relay.Function([x], relay.add(x, relay.const(np.ones((2, 4), "float32"))))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.build(fixed(), "llvm", batch_sizes=[2, 4]), "batch size 4"),
        (lambda: with_batch(network(1), 4, tuple(PARAMS)), "batch of 1 cannot be seen"),
        (lambda: relay.build(across(), "llvm", batch_sizes=[2, 4]), "computes across samples"),
        (lambda: relay.build(total(2), "llvm", batch_sizes=[2]), "no batch in common"),
        (lambda: relay.build(across(), "llvm", batch_sizes=[2, 2]), "different whole numbers"),
        (lambda: relay.build(across(), "llvm", batch_sizes=[]), "different whole numbers"),
        (lambda: relay.build(across(), "llvm", batch_sizes=[0]), "at least 1"),
        (lambda: relay.build([], "llvm"), "no module"),
        (lambda: relay.build([across()], "llvm", batch_sizes=[1]), "several modules and"),
        (lambda: relay.build([total(2), total(2)], "llvm"), "same inputs in different shapes"),
        (lambda: relay.build([total(2), across()], "llvm"), "same inputs in different shapes"),
    ],
)  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(ModelError, match=words):
        make()


# -- batches between two sizes ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def partial():
    return relay.build(network(2), "llvm", PARAMS, batch_sizes=SIZES, partial_batches=True)


def test_a_batch_between_two_sizes_runs_in_the_greater(partial, tmp_path):
    partial.export_library(tmp_path / "net.tar")
    for lib in (partial, load_module(tmp_path / "net.tar")):
        module = GraphModule(lib["default"](cpu()))
        for size in (5, 8, 2, 1, 7, 3, 6):
            given = data(size) if size % 2 else nd.array(data(size))
            module.run(x=given)
            wanted = relay.evaluate(network(size), {**PARAMS, "x": data(size)})
            found = module.get_output(0)
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-5, atol=1e-6)
    with pytest.raises(DeviceError, match=r"9, 3, 8, 8.*or \[8, 3, 8, 8\]"):
        module.run(x=data(9))
    with pytest.raises(DeviceError, match="5, 3, 9, 8"):
        module.run(x=np.zeros((5, 3, 9, 8), "float32"))


@pytest.mark.slow
def test_several_inputs_have_as_many_samples():
    def both(n: int) -> relay.Function:
        x, y = relay.var("x", shape=(n, 4)), relay.var("y", shape=(n, 4))
        return relay.Function([x, y], relay.Tuple([relay.add(x, y), relay.nn.softmax(y)]))

    library = relay.build([both(4), both(8)], "llvm", partial_batches=True)
    module = GraphModule(library["default"](cpu()))
    ones = np.ones((8, 4), "float32")
    module.run(x=ones[:6], y=ones[:6])
    assert [module.get_output(k).shape for k in (0, 1)] == [(6, 4), (6, 4)]
    with pytest.raises(DeviceError, match="6 and 7 samples"):
        module.run(x=ones[:7])
    with pytest.raises(DeviceError, match="6 and 8 samples"):
        module.run(x=ones)
    module.run(y=ones)
    assert module.get_output(0).shape == (8, 4)
    module.run(x=ones[:3], y=ones[:3])
    assert module.get_output(1).shape == (3, 4)


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", ["resnet-18", "mobilenet_v2", "densenet-121", "unet"])
def test_samples_of_networks_are_apart(name):
    options = {"image_shape": (3, 64, 64)} if name != "densenet-121" else {}
    mod, params = relay.testing.get_network(name, batch_size=3, **options)
    main = prepare(mod, params)["main"]
    assert sample_dependence(main, fused_groups(main)) == ""


def mixed(kind: str) -> relay.Function:
    x = relay.var("x", shape=(4, 6))
    y = {
        "sum": lambda: relay.subtract(x, relay.mean(x, axis=0, keepdims=True)),
        "softmax": lambda: relay.nn.softmax(x, axis=0),
        "reverse": lambda: relay.reverse(x, 0),
        "running": lambda: relay.cumsum(x, axis=0),
        "product": lambda: relay.nn.dense(x, x),
        "transpose": lambda: relay.transpose(x),
        "pairs": lambda: relay.reshape(x, (2, 12)),
        "gather": lambda: relay.take(x, relay.const(np.array([0, 0, 1, 1])), axis=0),
        "shift": lambda: relay.nn.pad(relay.strided_slice(x, [0], [3], axes=[0]), ((1, 0), (0, 0))),
        "constant": lambda: relay.Tuple([x, relay.const(np.ones((4, 2), "float32"))]),
        "join": lambda: relay.concatenate((x, x), 0),
        "split": lambda: relay.strided_slice(x, [0], [2], axes=[0]),
    }[kind]()
    return relay.Function([x], y)


@pytest.mark.parametrize(
    "kind",
    ["sum", "softmax", "reverse", "running", "product", "transpose", "pairs", "gather", "shift",
     "constant", "join", "split"],
)  # fmt: skip
def test_samples_that_meet_are_refused(kind):
    with pytest.raises(ModelError, match=r"partial_batches=True.*every size"):
        relay.build(mixed(kind), "llvm", partial_batches=True)
