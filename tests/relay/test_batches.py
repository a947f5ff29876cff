"""Libraries for several batch sizes: which network runs, what is shared, what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu, relay
from tilewright.base.errors import DeviceError, ModelError
from tilewright.relay.passes.batch import with_batch
from tilewright.runtime import load_module
from tilewright.runtime.network.graph_executor import GraphModule

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


@pytest.mark.parametrize("name", ["resnet-18", "mobilenet_v2", "squeezenet-1.1"])
def test_test_networks_take_any_batch(name):
    mod, params = relay.testing.get_network(name, image_shape=(3, 64, 64))
    other, _ = relay.testing.get_network(name, image_shape=(3, 64, 64), batch_size=3)
    made = with_batch(mod["main"], 3, tuple(params))
    assert str(made) == str(other["main"])


def test_the_shape_of_the_input_chooses(library):
    module = GraphModule(library["default"](cpu()))
    for size in (*SIZES, *reversed(SIZES)):
        module.run(x=data(size))
        wanted = relay.evaluate(network(size), {**PARAMS, "x": data(size)})
        np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-5, atol=1e-6)
    assert module.planned_bytes == library.report.planned_bytes


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
