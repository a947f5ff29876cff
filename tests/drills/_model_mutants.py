"""Models of other programs, and what may have happened to them on the way here.

In: a number from which everything follows.  Out: the bytes of a model that was changed in one to
three places, and what was changed.  Read next: `models.py`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import AttributeProto, ModelProto, TensorProto, helper, numpy_helper

from tilewright.models.onnx.ops import CONVERTERS

INTS = (
    0, 1, 2, 3, 4, 5, 7, 16, 100, 1000, 65536, 10**6, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1,
    -1, -2, -3, -7, -100, -(2**31), -(2**63),
)  # fmt: skip
FLOATS = (0.0, -0.0, 1.0, -1.0, 0.5, 1e-30, 1e38, float("nan"), float("inf"), float("-inf"))
NAMES = (
    "", "x", "y", "\x1b[31m", "\0", "a b", "%p0", "é" * 50, "n" * 5000, "../../etc/passwd",
)  # fmt: skip
STRINGS = ("", "SAME_UPPER", "SAME_LOWER", "VALID", "NOTSET", "reflect", "edge", "wrap", "\xff")
ATTRIBUTES = (
    "axis", "axes", "pads", "strides", "dilations", "kernel_shape", "group", "auto_pad", "perm",
    "keepdims", "ceil_mode", "count_include_pad", "storage_order", "alpha", "beta", "transA",
    "transB", "epsilon", "to", "value", "shape", "min", "max", "mode", "broadcast", "training_mode",
    "noop_with_empty_axes", "allowzero", "start", "end", "spatial", "momentum", "ratio",
)  # fmt: skip
OTHER_OPERATORS = ("Loop", "If", "Scan", "Gather", "Slice", "Tile", "Range", "Resize", "NonZero")


@cache
def originals() -> tuple[bytes, ...]:
    """What is changed: models that PyTorch and Caffe2 wrote, small ones, one of each operator."""
    wheel = Path(onnx.__file__).parent / "backend" / "test" / "data"
    files = [p for p in wheel.rglob("*.onnx") if p.stat().st_size < 100_000]
    found = {p: onnx.load(p) for p in sorted(files)}
    known = [m for m in found.values() if {n.op_type for n in m.graph.node} <= {*CONVERTERS}]
    return tuple(m.SerializeToString() for m in [*known, *_of_operators(), *_networks()])


def _of_operators() -> list[ModelProto]:
    from graph.cases import CASES, function
    from models.test_onnx import MODELS, X, model
    from tilewright_tvm import relay

    ours = [relay.to_onnx(function(c.build())) for c in CASES if c.in_onnx]
    return ours + [model(n, {"x": X.shape}, w, opset) for n, w, opset in MODELS.values()]


def _networks() -> list[ModelProto]:
    """A network of convolutions with its head, and shape arithmetic."""
    rng = np.random.default_rng(0)
    node = helper.make_node

    def weight(name: str, *shape: int) -> TensorProto:
        return numpy_helper.from_array(rng.standard_normal(shape).astype("float32"), name)

    nodes = [
        node("Conv", ["x", "w"], ["c"], pads=[1, 1, 1, 1], kernel_shape=[3, 3]),
        node("BatchNormalization", ["c", "g", "b", "m", "v"], ["n"]),
        node("Relu", ["n"], ["r"]),
        node("MaxPool", ["r"], ["p"], kernel_shape=[2, 2], strides=[2, 2]),
        node("Shape", ["p"], ["s"]),
        node("Gather", ["s", "zero"], ["batch"], axis=0),
        node("Unsqueeze", ["batch", "at"], ["b1"]),
        node("Concat", ["b1", "rest"], ["to"], axis=0),
        node("Reshape", ["p", "to"], ["f"]),
        node("Gemm", ["f", "d", "e"], ["l"], transB=1),
        node("Softmax", ["l"], ["y"], axis=-1),
    ]
    weights = [
        weight("w", 4, 3, 3, 3), *(weight(k, 4) for k in "gbm"),
        numpy_helper.from_array(np.ones(4, "float32"), "v"),
        numpy_helper.from_array(np.array(0), "zero"), numpy_helper.from_array(np.array([0]), "at"),
        numpy_helper.from_array(np.array([-1]), "rest"), weight("d", 5, 36), weight("e", 5),
    ]  # fmt: skip
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes, "net", [info("x", TensorProto.FLOAT, (1, 3, 6, 6))],
        [info("y", TensorProto.FLOAT, None)], weights,
    )  # fmt: skip
    return [helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)]


def mutant(seed: int, index: int) -> tuple[bytes, str]:
    """The model of try `index`, and what was done to it."""
    rng = random.Random(f"{seed} {index}")
    which = rng.randrange(len(originals()))
    data = originals()[which]
    if rng.random() < 0.1:
        return _damaged(data, rng), f"#{which}: bytes"
    proto = ModelProto.FromString(data)
    done = [rng.choice(CHANGES) for _ in range(rng.choice((1, 1, 1, 2, 3)))]
    for change in done:
        change(proto, rng)
    return proto.SerializeToString(), f"#{which}: {', '.join(c.__name__ for c in done)}"


def _damaged(data: bytes, rng: random.Random) -> bytes:
    kind, changed = rng.choice(("flip", "cut", "insert", "drop")), bytearray(data)
    if kind == "cut":
        return data[: rng.randrange(len(data))]
    for _ in range(rng.choice((1, 2, 8))):
        at = rng.randrange(len(changed))
        if kind == "flip":
            changed[at] ^= 1 << rng.randrange(8)
        elif kind == "insert":
            changed[at:at] = rng.randbytes(rng.choice((1, 4)))
        else:
            del changed[at : at + rng.choice((1, 4))]
    return bytes(changed)


def _pick(items: Sequence[Any], rng: random.Random) -> Any:
    return rng.choice(items) if len(items) else None


def _names(model: ModelProto) -> list[str]:
    graph = model.graph
    made = [o for n in graph.node for o in n.output]
    return [*made, *(i.name for i in graph.input), *(t.name for t in graph.initializer), "nothing"]


# -- nodes and attributes


def attribute_value(model: ModelProto, rng: random.Random) -> None:
    attribute = _pick([a for n in model.graph.node for a in n.attribute], rng)
    if attribute is None:
        return more_attributes(model, rng)
    if attribute.type == AttributeProto.INT:
        attribute.i = rng.choice(INTS)
    elif attribute.type == AttributeProto.FLOAT:
        attribute.f = rng.choice(FLOATS)
    elif attribute.type == AttributeProto.STRING:
        attribute.s = rng.choice(STRINGS).encode("latin-1")
    elif attribute.type == AttributeProto.INTS and attribute.ints:
        for k in range(rng.choice((1, len(attribute.ints)))):
            attribute.ints[k if rng.random() < 0.5 else 0] = rng.choice(INTS)
    elif attribute.type == AttributeProto.TENSOR:
        _change_tensor(attribute.t, rng)


def attribute_length(model: ModelProto, rng: random.Random) -> None:
    attribute = _pick([a for n in model.graph.node for a in n.attribute if a.ints], rng)
    if attribute is None:
        return
    kept = list(attribute.ints)
    changed = rng.choice((kept[:-1], [*kept, 1], kept * 2, [], kept[::-1], kept[:1] * 5000))
    del attribute.ints[:]
    attribute.ints.extend(changed)


def attribute_type(model: ModelProto, rng: random.Random) -> None:
    attribute = _pick([a for n in model.graph.node for a in n.attribute], rng)
    if attribute is not None:
        made = helper.make_attribute(attribute.name, _any_value(rng))
        attribute.CopyFrom(made)
        if rng.random() < 0.3:
            attribute.type = rng.randrange(15)


def _any_value(rng: random.Random) -> Any:
    return rng.choice(
        (rng.choice(INTS), rng.choice(FLOATS), "text", b"\xff\xfe", [1, 1], [rng.choice(INTS)],
         [1.5], ["a"], numpy_helper.from_array(np.zeros((2, 2), "float32")))
    )  # fmt: skip


def more_attributes(model: ModelProto, rng: random.Random) -> None:
    if (node := _pick(model.graph.node, rng)) is not None:
        node.attribute.append(helper.make_attribute(rng.choice(ATTRIBUTES), _any_value(rng)))


def attribute_removed(model: ModelProto, rng: random.Random) -> None:
    node = _pick([n for n in model.graph.node if n.attribute], rng)
    if node is not None:
        del node.attribute[rng.randrange(len(node.attribute))]


def attribute_repeated(model: ModelProto, rng: random.Random) -> None:
    node = _pick([n for n in model.graph.node if n.attribute], rng)
    if node is not None:
        node.attribute.append(node.attribute[0])


def operator(model: ModelProto, rng: random.Random) -> None:
    if (node := _pick(model.graph.node, rng)) is not None:
        node.op_type = rng.choice((*CONVERTERS, *OTHER_OPERATORS))


def domain(model: ModelProto, rng: random.Random) -> None:
    if (node := _pick(model.graph.node, rng)) is not None:
        node.domain = rng.choice(("ai.onnx", "ai.onnx.ml", "my.ops", "\xe9"))


# -- topology


def inputs(model: ModelProto, rng: random.Random) -> None:
    node = _pick([n for n in model.graph.node if n.input], rng)
    if node is None:
        return
    at, kind = rng.randrange(len(node.input)), rng.randrange(5)
    if kind == 0:
        del node.input[at]
    elif kind == 1:
        node.input[at] = ""
    elif kind == 2:
        node.input.append(rng.choice(_names(model)))
    elif kind == 3:
        node.input[:] = list(node.input)[::-1]
    else:
        node.input[at] = rng.choice(_names(model))


def outputs(model: ModelProto, rng: random.Random) -> None:
    node = _pick([n for n in model.graph.node if n.output], rng)
    if node is None:
        return
    kind = rng.randrange(3)
    if kind == 0:
        node.output[0] = rng.choice(_names(model))
    elif kind == 1:
        node.output.append(rng.choice(("", "more", *_names(model))))
    else:
        del node.output[:]


def order(model: ModelProto, rng: random.Random) -> None:
    nodes = list(model.graph.node)
    rng.shuffle(nodes)
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def node_repeated(model: ModelProto, rng: random.Random) -> None:
    if (node := _pick(model.graph.node, rng)) is not None:
        model.graph.node.append(node)


def node_removed(model: ModelProto, rng: random.Random) -> None:
    if model.graph.node:
        del model.graph.node[rng.randrange(len(model.graph.node))]


def chain(model: ModelProto, rng: random.Random) -> None:
    """Many operators behind the first output."""
    count, op = rng.choice((3, 100, 300)), rng.choice(("Relu", "Abs", "Sigmoid", "Identity"))
    if not model.graph.output:
        return
    last = model.graph.output[0].name
    for k in range(count):
        model.graph.node.append(helper.make_node(op, [last], [f"chain{k}"]))
        last = f"chain{k}"
    model.graph.output[0].name = last


def wide(model: ModelProto, rng: random.Random) -> None:
    """One operator of many inputs."""
    if model.graph.output:
        name, count = model.graph.output[0].name, rng.choice((2, 40, 300))
        op = rng.choice(("Concat", "Sum", "Max", "Mean"))
        attrs = {"axis": 0} if op == "Concat" else {}
        model.graph.node.append(helper.make_node(op, [name] * count, ["wide"], **attrs))
        model.graph.output[0].name = "wide"


# -- tensors


def _change_tensor(tensor: TensorProto, rng: random.Random) -> None:
    kind = rng.randrange(9)
    if kind == 0 and tensor.dims:
        tensor.dims[rng.randrange(len(tensor.dims))] = rng.choice(INTS)
    elif kind == 1:
        tensor.dims.append(rng.choice((1, 1, 2, 0, 10**9)))
    elif kind == 2:
        tensor.data_type = rng.randrange(30)
    elif kind == 3:
        tensor.raw_data = tensor.raw_data[: rng.randrange(len(tensor.raw_data) + 1)]
    elif kind == 4:
        tensor.raw_data = tensor.raw_data + rng.randbytes(rng.choice((1, 4, 8)))
    elif kind == 5:
        del tensor.dims[:]
    elif kind == 6 and tensor.data_type == TensorProto.INT64 and tensor.raw_data:
        values = np.frombuffer(tensor.raw_data, "int64").copy() if _whole(tensor) else np.zeros(1)
        values[rng.randrange(len(values))] = rng.choice(INTS)
        tensor.raw_data = values.tobytes()
    elif kind == 7:
        tensor.data_location = TensorProto.EXTERNAL
        entry = tensor.external_data.add()
        entry.key = "location"
        entry.value = rng.choice(("/etc/passwd", "../../x", "missing.bin", "", "x\0y"))
    else:
        changed = bytearray(tensor.raw_data)
        for _ in range(8 if changed else 0):
            changed[rng.randrange(len(changed))] = rng.randrange(256)
        tensor.raw_data = bytes(changed)


def _whole(tensor: TensorProto) -> bool:
    return len(tensor.raw_data) % 8 == 0


def weight(model: ModelProto, rng: random.Random) -> None:
    if (tensor := _pick(model.graph.initializer, rng)) is not None:
        _change_tensor(tensor, rng)


def weight_removed(model: ModelProto, rng: random.Random) -> None:
    if model.graph.initializer:
        del model.graph.initializer[rng.randrange(len(model.graph.initializer))]


def weight_repeated(model: ModelProto, rng: random.Random) -> None:
    if (tensor := _pick(model.graph.initializer, rng)) is not None:
        model.graph.initializer.append(tensor)
        model.graph.initializer[-1].name = rng.choice((tensor.name, *_names(model)))


def shape_of_input(model: ModelProto, rng: random.Random) -> None:
    info = _pick(model.graph.input, rng)
    dims = info.type.tensor_type.shape.dim if info is not None else ()
    kind = rng.randrange(4)
    if kind == 0 and dims:
        dims[rng.randrange(len(dims))].dim_value = rng.choice(INTS)
    elif kind == 1 and dims:
        dims[rng.randrange(len(dims))].dim_param = "n"
    elif kind == 2 and info is not None:
        info.type.tensor_type.shape.dim.add().dim_value = rng.choice((0, 1, 2))
    elif dims:
        del dims[-1]


def type_of_input(model: ModelProto, rng: random.Random) -> None:
    if (info := _pick(model.graph.input, rng)) is not None:
        info.type.tensor_type.elem_type = rng.randrange(30)
        if rng.random() < 0.2:
            info.ClearField("type")


def interface(model: ModelProto, rng: random.Random) -> None:
    side = rng.choice((model.graph.input, model.graph.output))
    kind = rng.randrange(3)
    if not side:
        return
    if kind == 0:
        del side[rng.randrange(len(side))]
    elif kind == 1:
        side.append(side[0])
    else:
        side[0].name = rng.choice((*_names(model), *NAMES))


# -- the model


def version(model: ModelProto, rng: random.Random) -> None:
    for entry in model.opset_import:
        entry.version = rng.choice((1, 6, 7, 9, 11, 13, 18, 21, 23, 30, *INTS))


def versions(model: ModelProto, rng: random.Random) -> None:
    kind = rng.randrange(3)
    if kind == 0:
        del model.opset_import[:]
    elif kind == 1:
        model.opset_import.append(helper.make_opsetid("my.ops", 1))
    else:
        model.ir_version = rng.choice((0, 1, 3, 4, 10, 100, 2**40))


def names(model: ModelProto, rng: random.Random) -> None:
    """One value is called something else everywhere."""
    old, new = rng.choice(_names(model)), rng.choice(NAMES)
    for node in model.graph.node:
        node.input[:] = [new if n == old else n for n in node.input]
        node.output[:] = [new if n == old else n for n in node.output]
    for named in (*model.graph.input, *model.graph.output, *model.graph.initializer):
        named.name = new if named.name == old else named.name


CHANGES: tuple[Callable[[ModelProto, random.Random], None], ...] = (
    attribute_value, attribute_value, attribute_value, attribute_length, attribute_type,
    more_attributes, attribute_removed, attribute_repeated, operator, operator, domain, inputs,
    inputs, outputs, order, node_repeated, node_removed, chain, wide, weight, weight, weight,
    weight_removed, weight_repeated, shape_of_input, shape_of_input, type_of_input, interface,
    version, versions, names,
)  # fmt: skip
