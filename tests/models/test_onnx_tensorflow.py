"""ONNX as the converter of TensorFlow models writes it, for several opsets: images with channels
last, a Transpose around each convolution, open batches, shapes that are computed from shapes."""

import numpy as np
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import tilewright
from models.test_onnx import random
from tilewright.graph.expr import post_order
from tilewright.graph.traversal import op_name
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor

FIRST, LAST = [0, 3, 1, 2], [0, 2, 3, 1]  # NHWC to NCHW, and back
OPSETS = (9, 11, 13, 15)


class Graph:
    """A model that grows node by node, in the spelling of `opset`."""

    def __init__(self, opset):
        self.opset, self.nodes, self.weights = opset, [], {}

    def __call__(self, op, *inputs, **attrs):
        """The result of one more node; inputs: names, or arrays."""
        names = [i if isinstance(i, str) else self.array(i) for i in inputs]
        result = f"{op}__{len(self.nodes)}:0"
        self.nodes.append(helper.make_node(op, names, [result], result[:-2], **attrs))
        return result

    def array(self, value):
        name = f"const__{len(self.weights)}"
        self.weights[name] = np.asarray(value)
        return name

    def axes(self, op, data, axes, **attrs):
        """Squeeze, Unsqueeze, ReduceSum: axes became an input in opset 13."""
        if self.opset < 13:
            return self(op, data, axes=axes, **attrs)
        return self(op, data, np.array(axes, "int64"), **attrs)

    def slice(self, data, begin, end, axis=0):
        if self.opset < 10:
            return self("Slice", data, axes=[axis], starts=[begin], ends=[end])
        return self("Slice", data, *(np.array([v], "int64") for v in (begin, end, axis)))

    def strided_slice(self, data, index):
        """shape[index] as TensorFlow computes it, in int32."""
        found = self("Cast", self("Shape", data), to=TensorProto.INT32)
        return self.axes("Squeeze", self.slice(found, index, index + 1), [0])

    def pack(self, *parts):
        """tf.stack of numbers, and back to what Reshape takes."""
        made = [self.axes("Unsqueeze", p, [0]) if isinstance(p, str) else np.array([p], "int32")
                for p in parts]  # fmt: skip
        return self("Cast", self("Concat", *made, axis=0), to=TensorProto.INT64)

    def conv(self, data, weight, bias=None, **attrs):
        made = self("Conv", self("Transpose", data, perm=FIRST), weight, **attrs)
        made = self("Transpose", made, perm=LAST)
        return made if bias is None else self("Add", made, bias)

    def model(self, result, shape, kind=TensorProto.FLOAT):
        """shape: of the only input, with a name for an open extent."""
        info = helper.make_tensor_value_info
        graph = helper.make_graph(
            self.nodes, "tf2onnx", [info("x:0", kind, shape)],
            [info(result, TensorProto.FLOAT, None)],
            [numpy_helper.from_array(w, n) for n, w in self.weights.items()],
        )  # fmt: skip
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])
        made.ir_version = 8
        return made


def check(proto, data):
    """Built, it computes what onnxruntime does; the names of its operators."""
    (wanted,) = onnxruntime.InferenceSession(proto.SerializeToString()).run(None, {"x:0": data})
    mod, params = relay.frontend.from_onnx(proto, shape={"x:0": data.shape})
    lib = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
    module.run(**{"x:0": data})
    np.testing.assert_allclose(module.get_output(0).numpy(), wanted, rtol=1e-4, atol=1e-5)
    return [op_name(e) for e in post_order(mod["main"].body)]


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("opset", OPSETS)
def test_a_convolutional_network(opset):
    """Padding like TensorFlow's, depthwise weights that are reshaped, ReLU6, flatten, softmax."""
    g = Graph(opset)
    y = g.conv("x:0", random(8, 3, 3, 3), random(8), auto_pad="SAME_UPPER", strides=[2, 2])
    y = g("Min", g("Relu", y), np.float32(6))
    weight = g("Reshape", g("Transpose", random(3, 3, 8, 1), perm=[3, 2, 0, 1]),
               np.array([8, 1, 3, 3], "int64"))  # fmt: skip
    y = g.conv(y, weight, group=8, pads=[0, 0, 1, 1], strides=[2, 2])
    y = g("Mul", y, g("Min", g("Relu", g("Add", y, np.float32(3))), np.float32(6)))
    y = g("MaxPool", g("Transpose", y, perm=FIRST), kernel_shape=[2, 2], auto_pad="SAME_UPPER")
    y = g("Transpose", y, perm=LAST)
    y = g("Reshape", y, g.pack(g.strided_slice(y, 0), -1))
    y = g("Softmax", g("Add", g("MatMul", y, random(128, 5) * 0.1), random(5)), axis=1)
    found = check(g.model(y, ["unk__1", 15, 15, 3]), random(2, 15, 15, 3))
    assert "shape_of" not in found


@pytest.mark.slow
@pytest.mark.parametrize("opset", OPSETS)
def test_a_decoder_that_resizes_to_the_size_of_another_tensor(opset):
    """Sizes are arithmetic on shapes; up to opset 9 as scales in float32."""
    g = Graph(opset)
    small = g.conv("x:0", random(4, 3, 3, 3), pads=[0, 0, 1, 1], strides=[2, 2])
    image = g("Transpose", small, perm=FIRST)
    if opset < 10:
        old = g("Cast", g.slice(g("Shape", image), 2, 4), to=TensorProto.FLOAT)
        new = g("Cast", g.slice(g("Shape", "x:0"), 1, 3), to=TensorProto.FLOAT)
        scales = g("Concat", np.ones(2, "float32"), g("Div", new, old), axis=0)
        made = g("Upsample", image, scales, mode="linear")
    else:
        sizes = g("Concat", g.slice(g("Shape", image), 0, 2), g.slice(g("Shape", "x:0"), 1, 3),
                  axis=0)  # fmt: skip
        made = g("Resize", image, np.zeros(0, "float32"), np.zeros(0, "float32"), sizes,
                 mode="linear", coordinate_transformation_mode="half_pixel")  # fmt: skip
    y = g("Concat", g("Transpose", made, perm=LAST), "x:0", axis=-1)
    check(g.model(y, ["unk__1", 8, 8, 3]), random(2, 8, 8, 3))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("opset", OPSETS)
def test_a_layer_of_an_encoder(opset):
    """Heads are split by shapes, the mask is made of ids, norms are spelt out."""
    g = Graph(opset)
    ids = "x:0"
    y = g("Gather", random(20, 8), ids)
    batch, length = g.strided_slice(ids, 0), g.strided_slice(ids, 1)

    def heads(weight):
        flat = g("Reshape", y, np.array([-1, 8], "int64"))
        made = g("Reshape", g("MatMul", flat, weight), g.pack(batch, length, 2, 4))
        return g("Transpose", made, perm=[0, 2, 1, 3])

    q, k, v = heads(random(8, 8)), heads(random(8, 8) + 0.1), heads(random(8, 8) - 0.1)
    scores = g("Mul", g("MatMul", q, g("Transpose", k, perm=[0, 1, 3, 2])), np.float32(0.5))
    seen = g("Cast", g("Not", g("Equal", g("Cast", ids, to=TensorProto.INT32), np.int32(0))),
             to=TensorProto.FLOAT)  # fmt: skip
    mask = g.axes("Unsqueeze", g("Sub", np.float32(1), seen), [1, 2])
    scores = g("Add", scores, g("Mul", mask, np.float32(-10000)))
    mixed = g("Transpose", g("MatMul", g("Softmax", scores, axis=3), v), perm=[0, 2, 1, 3])
    y = g("Add", g("Reshape", mixed, g.pack(batch, length, 8)), y)
    mean = g("ReduceMean", y, axes=[-1] if opset >= 11 else [2], keepdims=1)
    error = g("Sub", y, mean)
    variance = g("ReduceMean", g("Mul", error, error), axes=[2], keepdims=1)
    scale = g("Mul", g("Reciprocal", g("Sqrt", g("Add", variance, np.float32(1e-6)))), random(8))
    y = g("Add", g("Mul", y, scale), g("Sub", random(8), g("Mul", mean, scale)))
    first = g.axes("Squeeze", g.slice(y, 0, 1, axis=1), [1])
    y = g("Tanh", g("MatMul", first, random(8, 8)))
    rng = np.random.default_rng(0)
    check(g.model(y, ["unk__1", "unk__2"], TensorProto.INT64), rng.integers(0, 20, (2, 5)))


@pytest.mark.parametrize("opset", [11, 13, 15])
def test_positions_and_tensors_of_computed_shapes(opset):
    """tf.range, tf.fill, tf.tile, tf.one_hot, tf.where of shapes."""
    g = Graph(opset)
    batch, width = g.strided_slice("x:0", 0), g.strided_slice("x:0", 1)
    places = g("Range", np.int32(0), width, np.int32(1))
    encoded = g("OneHot", places, np.array([7], "int32"), np.array([0, 1], "float32"), axis=-1)
    ones = g("ConstantOfShape", g.pack(batch, width, 1),
             value=numpy_helper.from_array(np.ones(1, "float32")))  # fmt: skip
    tiled = g("Tile", g.axes("Unsqueeze", encoded, [0]), g.pack(batch, 1, 1))
    even = g("Equal", g("Mod", places, np.int32(2)), np.int32(0))
    chosen = g("Where", even, "x:0", g("Neg", "x:0"))
    y = g("Concat", g("Mul", tiled, ones), g.axes("Unsqueeze", chosen, [2]), axis=2)
    check(g.model(y, ["unk__1", "unk__2"]), random(2, 5))
