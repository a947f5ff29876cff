"""What a node and a tensor of an ONNX file must be before anything is made of them.

In: protobuf messages of strangers.  Out: attributes as Python values, tensors as arrays, or a
ModelError.  The schemas are onnx's own: which attributes an operator has in a version, of what
type, which of them it cannot do without, how many inputs and outputs of which element types.
Ranges of attributes are the business of each operator's type rule.  Read next: `ops/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array
from tilewright.models.onnx.foreign import foreign_schema
from tilewright.models.onnx.schema import Schema

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto, TensorProto

DAMAGED = "The model is damaged; export it again."
# Attributes that only matter to training or to other versions of the format.
IGNORED = frozenset({"momentum", "consumed_inputs", "seed", "is_test"})
_LONGEST_NAME = 80


def shown(name: str) -> str:
    """A name of the file as messages may show it: one short line without control characters."""
    short = name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}..."
    return short if short.isprintable() else ascii(short)


def check_text(model: ModelProto) -> None:
    """Raises ModelError for a name that is not UTF-8: protobuf hands those out as bytes."""
    names: list[Any] = []
    nodes, graphs = [n for f in model.functions for n in f.node], [model.graph]
    for function in model.functions:
        names += [function.name, function.domain, *function.input, *function.output]
    while graphs or nodes:
        for graph in graphs:
            named = (*graph.input, *graph.output, *graph.value_info, *graph.initializer)
            names += [n.name for n in named]
            nodes += graph.node
        graphs = []
        for node in nodes:
            names += [node.name, node.op_type, node.domain, *node.input, *node.output]
            names += [name for a in node.attribute for name in (a.name, a.ref_attr_name)]
            graphs += [a.g for a in node.attribute if a.HasField("g")]
        nodes = []
    if damaged := [name for name in names if isinstance(name, bytes)]:
        raise ModelError("from_onnx", f"the name {damaged[0][:40]!r} is not text", DAMAGED)


# -- nodes -----------------------------------------------------------------------------------------


def onnx_schema(op: str, opset: int, domain: str = "") -> Any:
    """onnx's own schema; None where that version has no such operator."""
    from onnx import defs

    try:
        found = defs.get_schema(op, opset, domain) if opset >= 1 else None
    except defs.SchemaError:
        return None
    return None if found is None or found.deprecated else found


@cache
def schema_of(op: str, opset: int, domain: str = "") -> Schema | None:
    """None where that version has no such operator."""
    from onnx import defs

    found = onnx_schema(op, opset, domain)
    if found is None:
        return foreign_schema(op, domain)
    single = defs.OpSchema.FormalParameterOption.Single
    return Schema(
        types={name: _number(a.type) for name, a in found.attributes.items()},
        required=tuple(name for name, a in found.attributes.items() if a.required),
        inputs=(found.min_input, found.max_input),
        outputs=(found.min_output, found.max_output),
        needed=tuple(i.option == single for i in found.inputs),
        accepts=_accepted(found.inputs, defs.get_schema(op, domain).inputs),
    )


def _accepted(own: Sequence[Any], newest: Sequence[Any]) -> tuple[frozenset[str], ...]:
    """Newer versions only add element types, and networks in bfloat16 are written in older ones."""
    later = [*newest[: len(own)], *own[len(newest) :]]
    return tuple(
        frozenset(_element(t) for t in (*a.types, *b.types))
        for a, b in zip(own, later, strict=True)
    )


def _number(kind: Any) -> int:
    """A type of attribute as AttributeProto numbers it."""
    return int(kind.value)


_NAMES = {
    "float": "float32", "double": "float64", "float4e2m1": "float4_e2m1fn",
    "float8e4m3fn": "float8_e4m3fn", "float8e4m3fnuz": "float8_e4m3fnuz",
    "float8e5m2": "float8_e5m2", "float8e5m2fnuz": "float8_e5m2fnuz",
    "float8e8m0": "float8_e8m0fnu",
}  # fmt: skip


def _element(text: str) -> str:
    """`tensor(float)` as numpy calls it."""
    name = text.removeprefix("tensor(").removesuffix(")")
    return _NAMES.get(name, name)


def check_node(node: NodeProto, opset: int, place: str, domain: str = "") -> Schema:
    """Raises ModelError unless `node` has the inputs and outputs of its operator."""
    found = schema_of(node.op_type, opset, domain)
    if found is None:
        raise ModelError(
            place, f"opset {opset} has no operator {shown(node.op_type)}",
            "Convert the model to another opset.",
        )  # fmt: skip
    for what, names, (least, most) in (
        ("inputs", node.input, found.inputs), ("outputs", node.output, found.outputs),
    ):  # fmt: skip
        if not least <= len(names) <= most:
            wanted = f"{least}" if least == most else f"{least} to {most}"
            raise ModelError(place, f"it has {len(names)} {what}, not {wanted}", DAMAGED)
    for k, (name, needed) in enumerate(zip(node.input, found.needed, strict=False)):
        if needed and not name:
            raise ModelError(place, f"input {k} is missing", DAMAGED)
    return found


def check_types(schema: Schema, dtypes: Sequence[str | None], place: str) -> None:
    """dtypes: element type of each input, None for one that is left out.

    Where ONNX wants int64 alone, as for shapes, int32 tells the same and some exporters write it.
    """
    for k, dtype in enumerate(dtypes):
        accepted = schema.accepts[min(k, len(schema.accepts) - 1)] if schema.accepts else None
        if dtype == "int32" and accepted == frozenset({"int64"}):
            continue
        if dtype is not None and accepted is not None and dtype not in accepted:
            raise ModelError(
                place, f"input {k} has elements of {dtype}",
                f"ONNX allows {', '.join(sorted(accepted))}.",
            )  # fmt: skip


def attributes_of(node: NodeProto, schema: Schema, place: str) -> dict[str, Any]:
    """The attributes by name: numbers, text, arrays, lists of them.

    Raises ModelError for one that is repeated, unknown to the operator, missing, or of another
    type than the operator's.
    """
    from onnx import AttributeProto

    found: dict[str, Any] = {}
    for a in node.attribute:
        name, wanted = shown(a.name), schema.types.get(a.name)
        if a.name in found:
            raise ModelError(place, f"attribute {name} is given twice", DAMAGED)
        if a.ref_attr_name:
            raise ModelError(place, f"attribute {name} is one of a function", DAMAGED)
        if wanted is None and a.name not in IGNORED:
            raise ModelError(
                place, f"its attribute {name} has no meaning here",
                "Remove it, or convert the model to a newer opset.",
            )  # fmt: skip
        if wanted is None:
            continue
        if a.type != wanted:
            kinds = AttributeProto.AttributeType
            is_known = a.type in kinds.values()
            raise ModelError(
                place,
                f"attribute {name} is {kinds.Name(a.type) if is_known else a.type}, "
                f"not {kinds.Name(wanted)}",
                DAMAGED,
            )
        found[a.name] = _value(a, f"{place}: attribute {name}")
    if missing := [name for name in schema.required if name not in found]:
        raise ModelError(place, f"attribute {missing[0]} is missing", DAMAGED)
    return found


def _value(a: Any, place: str) -> Any:
    from onnx import AttributeProto

    if a.type in (AttributeProto.STRING, AttributeProto.STRINGS):
        try:
            several = a.type == AttributeProto.STRINGS
            return [text.decode() for text in a.strings] if several else a.s.decode()
        except UnicodeDecodeError:
            raise ModelError(place, "it is not text", DAMAGED) from None
    if a.type == AttributeProto.TENSOR:
        return array_of(a.t, place)
    plain = {
        AttributeProto.INT: "i", AttributeProto.FLOAT: "f", AttributeProto.INTS: "ints",
        AttributeProto.FLOATS: "floats",
    }  # fmt: skip
    if a.type in plain:
        held = getattr(a, plain[a.type])
        return list(held) if a.type in (AttributeProto.INTS, AttributeProto.FLOATS) else held
    return a.g if a.type == AttributeProto.GRAPH else a


def element_type(number: int) -> str:
    """The element type that ONNX numbers so, by its name in numpy or in ONNX."""
    from onnx import TensorProto, helper

    if number not in TensorProto.DataType.values():
        return f"number {number}"
    if number in (TensorProto.UNDEFINED, TensorProto.STRING):
        return str(TensorProto.DataType.Name(number)).lower()
    return str(np.dtype(helper.tensor_dtype_to_np_dtype(number)))


# -- tensors ---------------------------------------------------------------------------------------


def array_of(tensor: TensorProto, place: str) -> Array:
    """The array that `tensor` holds.

    Raises ModelError where its data does not fill its shape, or is in a file that `external.py` has
    not read.
    """
    from onnx import TensorProto, numpy_helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise ModelError(
            place, "its data is in another file",
            "Give the path of the model, with its files beside it.",
        )  # fmt: skip
    try:
        return np.array(numpy_helper.to_array(tensor))
    except Exception as e:
        raise ModelError(
            place, f"its data does not fit its shape ({shown(str(e))})",
            "The file may be damaged; export it again.",
        ) from None  # fmt: skip
