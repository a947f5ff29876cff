"""Open extents: `relay.Any()` in graphs made by hand, in ONNX models, in modules of PyTorch."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu
from tilewright.base.errors import ModelError
from tilewright.models.networks import load_sizes
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import auto_scheduler, relay

nn = relay.nn  # by TVM's names: what cannot be made yet waits

helper = pytest.importorskip("onnx").helper

WEIGHTS = {"w": np.random.default_rng(0).standard_normal((16, 8)).astype("float32")}


def attention() -> relay.Function:
    """Two heads over a sequence: shapes are written out, two axes of the scores are the sequence's,
    batch and heads are one axis for a while."""
    x = relay.var("x", shape=(relay.Any(), relay.Any("seq"), 8))
    b, s, _ = x.shape
    q = nn.dense(relay.reshape(x, (-1, 8)), relay.var("w", shape=(16, 8)))
    q = relay.transpose(relay.reshape(q, (b, s, 2, 8)), (0, 2, 1, 3))
    q = relay.reshape(q, (2 * b, s, 8))
    scores = nn.softmax(nn.batch_matmul(q, q))
    y = nn.batch_matmul(scores, relay.transpose(q, (0, 2, 1)))
    y = relay.transpose(relay.reshape(y, (b, 2, s, 8)), (0, 2, 1, 3))
    y = relay.reshape(y, (b, s, 16))
    return relay.Function(relay.free_vars(y), y)


def same_with_numbers(b: int, s: int, x: np.ndarray) -> np.ndarray:
    q = (x @ WEIGHTS["w"].T).reshape(b, s, 2, 8).transpose(0, 2, 1, 3)
    scores = np.exp(q @ q.transpose(0, 1, 3, 2))
    y = scores / scores.sum(-1, keepdims=True) @ q
    return y.transpose(0, 2, 1, 3).reshape(b, s, 16)


@pytest.mark.slow
def test_several_extents_of_a_graph_made_by_hand():
    sizes = [{"batch": 1, "seq": 4}, {"batch": 3, "seq": 5}]
    library = relay.build(attention(), "llvm", WEIGHTS, sizes=sizes)
    module = GraphModule(library["default"](cpu()))
    for b, s in ((1, 4), (3, 5), (1, 4)):
        x = 0.3 * np.random.default_rng(s).standard_normal((b, s, 8)).astype("float32")
        module.run(x=x)
        np.testing.assert_allclose(
            module.get_output(0).numpy(), same_with_numbers(b, s, x), rtol=1e-4, atol=1e-5
        )
    assert sum(np.array_equal(c, WEIGHTS["w"]) for c in library.constants) <= 1  # held once


@pytest.mark.parametrize("size", [1, 2, 1009, 1013 * 2])
def test_an_extent_may_be_any_number(size):
    """Also one that stands for open extents."""
    x = relay.var("x", shape=(relay.Any(), 6))
    y = relay.reshape(relay.tile(x, (2, 1)), (2, x.shape[0], 3, 2))
    made = relay.with_sizes(relay.Function([x], y), {"batch": size})["main"]
    assert made.params[0].shape == (size, 6) and made.ret_type.shape == (2, size, 3, 2)


def test_a_module_holds_the_graph_too():
    mod = relay.with_sizes(relay.IRModule.from_expr(attention()), {"batch": 2, "seq": 3})
    x = np.full((2, 3, 8), 0.1, "float32")
    found = relay.evaluate(mod, {**WEIGHTS, "x": x})
    np.testing.assert_allclose(found, same_with_numbers(2, 3, x), rtol=1e-4)
    tasks, _ = auto_scheduler.extract_tasks(mod["main"], WEIGHTS, "llvm")
    assert len(tasks) >= 3


def model(*shape: int | str) -> bytes:
    """exp(x) summed over the last axis, then divided by the number of elements of x's second."""
    tensor = __import__("onnx").TensorProto
    nodes = [
        helper.make_node("Shape", ["x"], ["s"], start=1, end=2),
        helper.make_node("Cast", ["s"], ["n"], to=tensor.FLOAT),
        helper.make_node("ReduceSum", ["x", "last"], ["sum"], keepdims=1),
        helper.make_node("Div", ["sum", "n"], ["y"]),
    ]
    last = helper.make_tensor("last", tensor.INT64, [1], [-1])
    graph = helper.make_graph(
        nodes, "g", [helper.make_tensor_value_info("x", tensor.FLOAT, shape)],
        [helper.make_tensor_value_info("y", tensor.FLOAT, None)], [last],
    )  # fmt: skip
    opset = helper.make_opsetid("", 17)
    return bytes(helper.make_model(graph, opset_imports=[opset], ir_version=8).SerializeToString())


@pytest.mark.slow
@pytest.mark.parametrize(
    "shape",
    [
        {"N": relay.Any(), "T": relay.Any()},
        {"x": (relay.Any("N"), relay.Any("T"), 4)},
        {"N": relay.Any("N"), "T": relay.Any("T")},
    ],
)
def test_extents_of_an_onnx_model(shape):
    """Each size is an import of its own, so what the model computes of them is right."""
    mod, params = relay.frontend.from_onnx(model("N", "T", 4), shape)
    sizes = [{"N": n, "T": t} for n in (1, 3) for t in (2, 7)]
    module = GraphModule(relay.build(mod, "llvm", params, sizes=sizes)["default"](cpu()))
    for each in sizes:
        x = np.random.default_rng(0).standard_normal((each["N"], each["T"], 4)).astype("float32")
        module.run(x=x)
        np.testing.assert_allclose(
            module.get_output(0).numpy(), x.sum(-1, keepdims=True) / each["T"], rtol=1e-5, atol=1e-6
        )


def test_what_a_file_computes_of_its_shapes_is_no_weight_that_sizes_share(tmp_path):
    path = tmp_path / "net.onnx"
    path.write_bytes(model("N", "T", 4))
    mods, params = load_sizes(path, (), {"N": 1, "T": [2, 7]})
    module = GraphModule(relay.build(mods, "llvm", params)["default"](cpu()))
    for t in (2, 7):
        module.run(x=np.ones((1, t, 4), "float32"))
        np.testing.assert_allclose(module.get_output(0).numpy(), 4 / t, rtol=1e-6)


def test_the_batch_of_an_onnx_model():
    mod, params = relay.frontend.from_onnx(model("N", 2, 4), {"x": (relay.Any(), 2, 4)})
    library = relay.build(mod, "llvm", params, batch_sizes=[1, 5])
    assert [p.inputs[0].shape[0] for p in library.plans] == [1, 5] and "batch" in str(mod)


@pytest.mark.slow
def test_a_module_of_pytorch():
    torch = pytest.importorskip("torch")
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(6, 3), torch.nn.ReLU())
    mod, params = relay.frontend.from_pytorch(net, [("x", (relay.Any(), 2, 3))])
    module = GraphModule(relay.build(mod, "llvm", params, batch_sizes=[1, 4])["default"](cpu()))
    for n in (1, 4):
        x = torch.randn(n, 2, 3)
        module.run(x=x.numpy())
        np.testing.assert_allclose(
            module.get_output(0).numpy(), net(x).detach().numpy(), rtol=1e-5, atol=1e-6
        )


def of_constant() -> relay.Function:
    x = relay.var("x", shape=(relay.Any(), 4))
    return relay.Function([x], relay.add(x, relay.const(np.ones((x.shape[0], 1), "float32"))))


def of_number() -> relay.Function:
    x = relay.var("x", shape=(relay.Any(), 4))
    return relay.Function([x], relay.multiply(x, relay.const(1 / x.shape[0])))


def of_weight() -> relay.Function:
    x = relay.var("x", shape=(1, relay.Any()))
    y = nn.dense(x, relay.var("w"), units=3)
    return relay.Function(relay.free_vars(y), y)


def of_arithmetic() -> relay.Function:
    x = relay.var("x", shape=(relay.Any(), 4))
    y = relay.reshape(relay.strided_slice(x, [1], [x.shape[0]], axes=[0]), (x.shape[0] - 1, 2, 2))
    return relay.Function([x], y)


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: relay.build(attention(), "llvm", WEIGHTS), "open: batch, seq.*sizes="),
        (lambda: relay.build(attention(), "llvm", WEIGHTS, batch_sizes=[1]), "open: batch, seq"),
        (lambda: relay.build(attention(), "llvm", sizes=[]), "no set"),
        (lambda: relay.build(attention(), "llvm", sizes=[{"batch": 1}]), "extents are batch, seq"),
        (lambda: relay.build(of_constant(), "llvm", sizes=[{}], batch_sizes=[1]), "both"),
        (lambda: relay.build(relay.testing.mlp.get_workload()[0], "llvm", sizes=[{}]),
         "no open extent"),
        (lambda: relay.with_sizes(attention(), {"batch": 0, "seq": 1}), "batch is no whole number"),
        (lambda: relay.with_sizes(attention(), {"batch": 1, "n": 2}), "extents are batch, seq"),
        (lambda: relay.optimize(attention()), "open: batch, seq"),
        (lambda: auto_scheduler.extract_tasks(attention(), {}, "llvm"), "open: batch, seq"),
        (lambda: relay.with_sizes(of_constant(), {"batch": 2}), "it was made of an open extent"),
        (lambda: relay.with_sizes(of_number(), {"batch": 2}), "it was made of an open extent"),
        (lambda: relay.with_sizes(of_weight(), {"axis1": 2}), "follows from an open extent"),
        (lambda: relay.with_sizes(of_arithmetic(), {"batch": 3}), "Make the network anew for each"),
        (lambda: relay.frontend.from_onnx(model("N", 2, 4), {"N": relay.Any()})[0]["main"],
         "open: N.*batch_sizes"),
        (lambda: relay.frontend.from_onnx(model("N", 2, 4), {"M": relay.Any()}), "no such input"),
        (lambda: relay.frontend.from_onnx(model("N", 2, 4)), "extent N is open"),
    ],
)  # fmt: skip
def test_refusals(make, words):
    with pytest.raises(ModelError, match=words):
        make()


@pytest.mark.parametrize("size", [(3, 4), (1, 1009)])
def test_what_reads_an_open_shape_reads_the_one_it_becomes(size):
    """Constants would hold the primes that stand for the extents."""
    x = relay.var("x", shape=(relay.Any(), relay.Any(), 5))
    made = [
        relay.shape_of(x), relay.ndarray_size(x), relay.zeros_like(x),
        relay.full_like(x, 2), relay.ones((x.shape[1], 2), "int8"),
    ]  # fmt: skip
    mod = relay.with_sizes(
        relay.Function([x], relay.Tuple(made)), dict(batch=size[0], axis1=size[1])
    )
    value = np.zeros((*size, 5), "float32")
    shape, count, zeros, twos, ones = relay.evaluate(mod["main"], {"x": value})
    np.testing.assert_array_equal(shape, value.shape)
    assert shape.dtype == "int32" and count == value.size
    np.testing.assert_array_equal(zeros, value)
    np.testing.assert_array_equal(twos, np.full_like(value, 2))
    np.testing.assert_array_equal(ones, np.ones((size[1], 2), "int8"))


@pytest.mark.parametrize("kind", ["vm", "debug"])
@pytest.mark.parametrize("shape", [(4, 3), (4,), (4, 2, 1)])
def test_extents_that_are_no_open_ones_are_those_of_the_call(kind, shape):
    x, y = relay.var("x", shape=(relay.Any(), 2)), relay.var("y", shape=(1, 2))
    run = relay.create_executor(kind, relay.IRModule.from_expr(x + y)).evaluate()
    with pytest.raises(ModelError, match=r"input x: .* the network \[\?, 2\]"):
        run(np.zeros(shape, "float32"), np.zeros((1, 2), "float32"))
    a = np.ones((4, 2), "float32")
    np.testing.assert_array_equal(run(a, a[:1]).numpy(), a + 1)


def test_a_constant_of_open_extents_is_refused():
    x = relay.var("x", shape=(relay.Any(), relay.Any()))
    pair = relay.Tuple([x, relay.const(np.array(x.shape, "int64"))])
    with pytest.raises(ModelError, match="was made of an open extent"):
        relay.with_sizes(relay.Function([x], pair), {"batch": 3, "axis1": 4})


def _inlined(y: relay.Var, f: relay.Function) -> relay.Function:
    marked = f.with_attr("Inline", 1)
    mod = relay.IRModule.from_expr(relay.Function([y], marked(y)))
    return relay.transform.Inline()(mod)["main"]


def _let(y: relay.Var, f: relay.Function) -> relay.Function:
    bound = relay.Var("bound", y.checked_type)
    return relay.Function([y], relay.Let(bound, y + 0.0, _of(bound)))


def _of(x: relay.Var) -> relay.Expr:
    """A share and zeros of the extent, where they are numbers."""
    return relay.variance(x) + relay.sum(relay.zeros_like(x)) + relay.mean(relay.ones_like(x))


@pytest.mark.slow
@pytest.mark.parametrize(
    "put",
    [_inlined, _let, lambda y, f: relay.bind(f, {f.params[0]: y + 0.0})],
    ids=["inlined", "let", "bound"],
)
def test_what_was_made_of_an_open_shape_is_made_of_another_where_it_is_put(put):
    x, y = (relay.var(n, shape=(relay.Any(), 4)) for n in "xy")
    f = put(y, relay.Function([x], _of(x)))
    for rows in (2, 3):
        value = np.arange(4 * rows, dtype="float32").reshape(rows, 4)
        for kind in ("vm", "debug"):
            found = relay.create_executor(kind, target="llvm").evaluate(f)(value)
            np.testing.assert_allclose(found.numpy(), value.var() + 1, 1e-6)
