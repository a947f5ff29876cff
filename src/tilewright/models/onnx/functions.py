"""Operators that are defined by others: functions of the model, function bodies in ONNX's schemas.

In: a node.  Out: its definition as nodes, with the attributes of the caller put in.
Read next: `importer.py`, which inlines it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError
from tilewright.models.onnx.checks import DAMAGED, shown
from tilewright.models.onnx.load import opsets
from tilewright.models.onnx.structure import Plan, plan, subgraphs

if TYPE_CHECKING:
    from onnx import FunctionProto, ModelProto, NodeProto, TypeProto

DEEPEST = 32  # functions that call functions


@dataclass(frozen=True)
class Body:
    """
    inputs, outputs: names, in the order of the caller's
    opsets:          versions of operators, by domain
    """

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    plan: Plan
    opsets: Mapping[str, int]


def functions_of(model: ModelProto) -> dict[tuple[str, str, str], FunctionProto]:
    """Those that the model brings, by domain, name and overload."""
    found: dict[tuple[str, str, str], FunctionProto] = {}
    for function in model.functions:
        key = function.domain, function.name, function.overload
        if key in found:
            raise ModelError(
                f"from_onnx: function {shown(function.name)}", "it is there twice", DAMAGED
            )
        found[key] = function
    return found


def body_of(function: FunctionProto, node: NodeProto, defaults: Iterable[Any], place: str) -> Body:
    """The definition as `node` calls it.

    defaults: attributes that hold where `node` gives none
    """
    if len(node.input) > len(function.input) or len(node.output) > len(function.output):
        raise ModelError(
            place, f"it has {len(node.input)} inputs and {len(node.output)} outputs, its function "
            f"{len(function.input)} and {len(function.output)}", DAMAGED,
        )  # fmt: skip
    given = {a.name: a for a in [*defaults, *function.attribute_proto, *node.attribute]}
    nodes = [_with_attributes(n, given) for n in function.node]
    wanted = [o for o, held in zip(function.output, node.output, strict=False) if held]
    return Body(
        tuple(function.input), tuple(function.output), plan(nodes, wanted, place),
        opsets(function.opset_import),
    )  # fmt: skip


def _with_attributes(node: NodeProto, given: Mapping[str, Any]) -> NodeProto:
    """`node` with the attributes that it refers to; one that nobody gives is left out."""
    if not _refers(node):
        return node
    made = type(node)()
    made.CopyFrom(node)
    _fill(made, given)
    return made


def _refers(node: NodeProto) -> bool:
    return any(
        a.ref_attr_name or any(_refers(inner) for g in subgraphs([a]) for inner in g.node)
        for a in node.attribute
    )


def _fill(node: NodeProto, given: Mapping[str, Any]) -> None:
    kept = []
    for attribute in node.attribute:
        if not attribute.ref_attr_name:
            for graph in subgraphs([attribute]):
                for inner in graph.node:
                    _fill(inner, given)
            kept.append(attribute)
        elif attribute.ref_attr_name in given:
            held = type(attribute)()
            held.CopyFrom(given[attribute.ref_attr_name])
            held.name = attribute.name
            kept.append(held)
    kept = [type(a).FromString(a.SerializeToString()) for a in kept]
    del node.attribute[:]
    node.attribute.extend(kept)


def definition(schema: Any, node: NodeProto, opset: int, types: Sequence[TypeProto]) -> Any:
    """The function by which `schema` defines `node`; None where it does not.

    types: of the inputs, empty ones where they are left out or not known
    """
    from onnx import FunctionProto

    plain, by_types = (
        schema.function_opset_versions,
        schema.context_dependent_function_opset_versions,
    )
    version = max(
        (v for v in plain or by_types if v <= opset), default=min(plain or by_types, default=0)
    )
    try:
        if plain:
            text = schema.get_function_with_opset_version(version)
        elif by_types:
            text = schema.get_context_dependent_function_with_opset_version(
                version, node.SerializeToString(), [t.SerializeToString() for t in types]
            )
        else:
            return None
    except Exception:  # onnx cannot write one for these types
        return None
    return FunctionProto.FromString(text) if text else None


def defaults_of(schema: Any) -> list[Any]:
    """The attributes that hold where a node does not give them."""
    return [a.default_value for a in schema.attributes.values() if a.default_value.name]
