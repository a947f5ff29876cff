"""`GraphModule`: inputs, outputs, memory, timing, and what it says to wrong arguments."""

from __future__ import annotations

import gc
import threading
import weakref
from concurrent.futures import ThreadPoolExecutor, wait

import numpy as np
import pytest

from graph.small import image, residual, wanted
from tilewright import cpu
from tilewright.base.errors import DeviceError
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import nd, relay
from tilewright_tvm.contrib import graph_executor


@pytest.fixture(scope="module")
def library() -> relay.Library:
    mod, params = residual()
    return relay.build(mod, "llvm", params, verify=False)


@pytest.fixture
def module(library) -> GraphModule:
    return graph_executor.GraphModule(library["default"](cpu()))


def total() -> GraphModule:
    """x + 2 y, and x - y."""
    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    mod = relay.Function([x, y], relay.Tuple([x + y * 2.0, x - y]))
    return GraphModule(relay.build(mod, "llvm")["default"](cpu()))


@pytest.mark.slow
def test_inputs_by_name_position_and_keyword(module):
    mod, params = residual()
    data = image()
    want = wanted(mod, params, data)
    for feed in (
        lambda: module.set_input("data", data), lambda: module.set_input(0, nd.array(data)),
        lambda: module.set_input(data=data.tolist()), lambda: None,
    ):  # fmt: skip
        feed()
        module.run()
        np.testing.assert_allclose(module.get_output(0).numpy(), want, rtol=1e-4, atol=1e-6)
        np.testing.assert_array_equal(module.get_input("data").numpy(), data)


@pytest.mark.slow
def test_several_inputs_and_outputs():
    module = total()
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.ones((2, 3), "float32")
    module.set_input("x", x, y=y)
    module.run()
    assert module.get_num_inputs() == module.get_num_outputs() == 2
    assert (module.get_input_index("y"), module.get_input_index("z")) == (1, -1)
    np.testing.assert_array_equal(module.get_output(0).numpy(), x + 2)
    kept = nd.empty((2, 3))
    assert module.get_output(1, kept) is kept
    module.run(x=x * 0)
    np.testing.assert_array_equal(kept.numpy(), x - 1)
    np.testing.assert_array_equal(module.get_output(1).numpy(), -y)


def test_numbers_of_another_type_are_converted():
    module = total()
    x = np.arange(6, dtype="float64").reshape(2, 3) / 4
    for given in (x, nd.array(x), x.astype("float16")):
        module.run(x=given, y=np.ones((2, 3), "int64"))
        np.testing.assert_array_equal(module.get_output(0).numpy(), x.astype("float32") + 2)
    held = nd.empty((2,), "int8")
    np.testing.assert_array_equal(held.copyfrom(np.int64([-3, 127])).numpy(), [-3, 127])
    for wrong in (np.int64([0, 128]), np.float32([0, 1])):
        with pytest.raises(DeviceError, match=r'int8 does not hold.*astype\("int8"\)'):
            held.copyfrom(wrong)


def test_an_input_may_be_an_array_of_the_user():
    module = total()
    x, y = np.float32([[1, 2, 3], [4, 5, 6]]), np.ones((2, 3), "float32")
    own, other = nd.array(x), nd.array(x * 2)
    module.set_input_zero_copy("x", own)
    module.run(y=y)
    np.testing.assert_array_equal(module.get_output(0).numpy(), x + 2)
    own.copyfrom(x * 3)  # the next run reads it
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), x * 3 + 2)
    module.set_input_zero_copy(x=other)
    module.run()
    np.testing.assert_array_equal(module.get_output(1).numpy(), x * 2 - 1)
    module.set_input("x", x)  # copies into the array that is there
    np.testing.assert_array_equal(other.numpy(), x)


def test_a_network_that_hands_an_input_on_reads_the_new_array():
    x = relay.var("x", shape=(3,))
    library = relay.build(relay.Function([x], relay.Tuple([x, x + 1.0])), "llvm", verify=False)
    module = GraphModule(library["default"](cpu()))
    module.set_input_zero_copy("x", nd.array(np.float32([1, 2, 3])))
    module.run()
    np.testing.assert_array_equal(module.get_output(0).numpy(), [1, 2, 3])
    np.testing.assert_array_equal(module.get_output(1).numpy(), [2, 3, 4])


def test_the_spelling_of_older_scripts(library):
    mod, params = residual()
    data = image()
    want = wanted(mod, params, data)
    graph, lib, weights = library
    module = graph_executor.create(graph, lib, cpu())
    module.set_input("data", data)
    module.set_input(**weights)  # they are in the library: equal ones may be given again
    module.run()
    opened = lib["default"](cpu())
    opened["set_input"]("data", data)
    opened["load_params"](relay.save_param_dict(weights))
    opened["run"]()
    for found in (module.get_output(0), opened["get_output"](0)):
        np.testing.assert_allclose(found.numpy(), want, rtol=1e-4, atol=1e-6)
    other = GraphModule(library["default"](cpu()))
    other.share_params(module, relay.save_param_dict(weights))
    assert module.get_input_info() == ({"data": (1, 3, 12, 12)}, {"data": "float32"})


def test_a_big_endian_array_is_converted():
    module = total()
    x = np.arange(6, dtype=">f4").reshape(2, 3)
    module.run(x=x, y=x[::-1])
    np.testing.assert_array_equal(module.get_output(0).numpy(), x + 2 * x[::-1])


def test_weights_of_another_byte_order(tmp_path):
    x = relay.var("x", shape=(2, 3))
    weights = np.arange(12, dtype=">f4").reshape(4, 3)
    want = np.ones((2, 3), "float32") @ weights.T.astype("float32")
    path = str(tmp_path / "net")
    relay.build(relay.Function([x], relay.nn.dense(x, relay.const(weights))), "llvm").save(path)
    module = GraphModule(relay.load(path)["default"](cpu()))
    module.run(x=np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), want)


def test_a_network_belongs_to_the_thread_that_uses_it():
    module = total()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(module.run).result()
        for refused in (
            module.run, lambda: module.get_output(0), lambda: module.set_input("x", 0),
            lambda: module.get_input("x"), lambda: module.benchmark(cpu()), module.profile,
        ):  # fmt: skip
            with pytest.raises(DeviceError, match=r"belongs to thread .*GraphModule\(lib\["):
                refused()
        with module:  # takes it over, and the other thread is refused from then on
            module.run()
        with pytest.raises(DeviceError, match="belongs to thread MainThread"):
            pool.submit(module.run).result()
    made = total()
    with ThreadPoolExecutor(1) as pool:
        pool.submit(made.run).result()
    made.run()  # that thread has ended


def test_threads_take_turns():
    module, inside = total(), threading.Event()
    x = np.ones((2, 3), "float32")

    def other():
        inside.wait(10)
        with module:
            module.run(x=5 * x)

    with ThreadPoolExecutor(1) as pool:
        with module:
            module.set_input("x", x)
            waiting = pool.submit(other)
            inside.set()
            assert not wait([waiting], 0.05).done
            module.run()
            np.testing.assert_array_equal(module.get_output(0).numpy(), x)
        waiting.result(10)


def test_inputs_start_as_zeros():
    module = total()
    module.run(y=np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.full((2, 3), 2.0))


def test_memory_is_shared(module, library):
    report = library.report
    assert module.planned_bytes == report.planned_bytes < report.unshared_bytes
    sizes = [np.prod(k.shape) * 4 for k, _ in library.plan.outputs]
    assert module.planned_bytes >= max(sizes)


def test_benchmark(module):
    timed = module.benchmark(cpu(), repeat=3, number=2)
    assert len(timed.results) == 3 and 0 < timed.min <= timed.median <= timed.max
    assert "mean" in str(timed) and "std" in str(timed)
    whole = module.benchmark(cpu(), repeat=2, number=1, end_to_end=True, data=image(3))
    assert len(whole.results) == 2 and whole.min > 0
    np.testing.assert_array_equal(module.get_input(0).numpy(), image(3))
    slow = module.benchmark(cpu(), repeat=1, number=1, min_repeat_ms=5, end_to_end=True)
    assert len(slow.results) == 1


def test_below_a_module_are_functions_by_name_and_their_time(module, library):
    """As TVM's tutorials time a network, of the module and of what it runs."""
    opened = library["default"](cpu())
    for below in (module.module, opened):
        timed = below.time_evaluator("run", cpu(), number=2, repeat=3)()
        assert len(timed.results) == 3 and timed.min > 0
        assert below.library is library and below.device == cpu()
        with pytest.raises(DeviceError, match="only run can be timed"):
            below.time_evaluator("get_output", cpu())()
        with pytest.raises(DeviceError, match="there is no such function"):
            below["nothing"]
    data = image()
    module.module["set_input"]("data", data)
    np.testing.assert_array_equal(module.get_input("data").numpy(), data)
    assert module.module.get_function("get_num_outputs")() == 1
    assert GraphModule(module.module).loaded is module.loaded


def test_what_a_library_gave_ends_with_the_last_that_refers_to_it(library):
    """With its memory on the device, which Python's search for circles does not know of."""
    gc.disable()
    try:
        opened = library["default"](cpu())
        opened["run"]()
        ended = weakref.ref(opened)
        del opened
        assert ended() is None
    finally:
        gc.enable()


def test_profile_has_a_row_per_launch(module, library):
    rows = module.profile(1)
    assert len(rows) == len(library.plan.launches)
    assert {r.name for r in rows} == {k.name for k in library.report.kernels}
    assert all(r.seconds > 0 for r in rows)


def test_a_network_without_kernels():
    x = relay.var("x", shape=(2, 3))
    lib = relay.build(relay.Function([x], relay.reshape(x, (6,))), "llvm")
    module = GraphModule(lib["default"](cpu()))
    module.run(x=np.ones((2, 3), "float32"))
    np.testing.assert_array_equal(module.get_output(0).numpy(), np.ones(6))
    with pytest.raises(DeviceError, match="no kernel"):
        module.benchmark(cpu())


@pytest.mark.parametrize(
    ("call", "parts"),
    [
        (lambda m: m.set_input("dat", image()), ("set_input('dat')", "data: float32[1, 3, 12,")),
        (lambda m: m.set_input("conv0_weight", 0.0), ("became a constant", "its params when")),
        (lambda m: m.set_input(1, image()), ("set_input(1)", "has 1 inputs")),
        (lambda m: m.set_input(-1, image()), ("set_input(-1)", "has 1 inputs")),
        (lambda m: m.run(data=image()[:, :2]), ("'data'", "float32[1, 2, 12, 12]", "Reshape")),
        (lambda m: m.run(data=image().astype("complex64")), ("complex64", "astype")),
        (lambda m: m.set_input("p0", image()), ("a weight", "has another value")),
        (lambda m: m.set_input_zero_copy("data", image()), ("no array on cpu(0)", "nd.array")),
        (lambda m: m.set_input_zero_copy(0, nd.empty((3,))), ("float32[3]", "set_input")),
        (lambda m: m["sum"], ("'sum'", "set_input")),
        (lambda m: m.load_params(b"text"), ("load_param_dict", "too early")),
        (lambda m: m.share_params(total(), b""), ("another library",)),
        (lambda m: m.run(data="text"), ("'data'", "no array")),
        (lambda m: m.run(data=[[1.0], [2.0, 3.0]]), ("'data'", "no array")),
        (lambda m: m.set_input("data"), ("'data'", "no value", "float32[1, 3, 12, 12]")),
        (lambda m: m.get_output(1), ("get_output(1)", "has 1 outputs")),
        (lambda m: m.get_output("probabilities"), ("has 1 outputs", "Use 0 to 0")),
        (lambda m: m.get_output(0, nd.empty((3,))), ("float32[3]",)),
        (lambda m: m.benchmark(cpu(), "infer"), ("infer", "only run")),
        (lambda m: m.benchmark(cpu(1)), ("loaded on cpu(0)",)),
        (lambda m: m.benchmark(cpu(), repeat=0), ("at least 1",)),
        (lambda m: m.benchmark(cpu(), repeat=0, end_to_end=True), ("at least 1",)),
    ],
)  # fmt: skip
def test_refusals(module, call, parts):
    with pytest.raises(DeviceError) as caught:
        call(module)
    assert all(part in str(caught.value) for part in parts), str(caught.value)


def test_a_library_must_be_on_a_device(library):
    with pytest.raises(DeviceError, match='lib."default"..dev'):
        GraphModule(library)
    with pytest.raises(DeviceError, match="no compiled network"):
        GraphModule("net.tar")
