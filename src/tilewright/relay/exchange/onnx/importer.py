"""Import of ONNX models.

In: a `ModelProto`, its bytes, or the path of a file.  Out: `(mod, params)`: weights are parameters
of main, under their ONNX names.  Shape arithmetic is computed here, by onnx's own reference
evaluator.  A file may come from anybody: it is checked against onnx's schemas, its numbers against
the type rules of operators, its sizes against `Limits`, each before anything is made of it.
Read next: `checks.py`; `ops/__init__.py`, what each operator becomes.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import ModelError
from tilewright.relay.exchange.limits import Limits
from tilewright.relay.exchange.onnx.checks import (
    DAMAGED,
    array_of,
    attributes_of,
    check_node,
    check_text,
    check_types,
    computed_bytes,
    element_type,
    is_shape_arithmetic,
    read_external,
    shown,
)
from tilewright.relay.exchange.onnx.node import Node
from tilewright.relay.exchange.onnx.ops import CONVERTERS
from tilewright.relay.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    Var,
    free_vars,
    var,
)

if TYPE_CHECKING:
    from onnx import ModelProto, NodeProto

Value = Expr | Array
INSTALL = 'Install it with: pip install "tilewright[onnx]" (or pip install onnx).'


def from_onnx(
    model: ModelProto | bytes | str | os.PathLike[str],
    shape: Mapping[str, Sequence[int]] | None = None,
    limits: Limits | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """The network in `model` and its weights.

    shape:  input shapes by name, for inputs whose extents the model leaves open (or to change them)
    limits: what the model may cost; default: `Limits()`
    Raises ModelError for a missing or damaged file, an open extent, a model beyond the limits, and
    once for all operators that cannot be imported.
    """
    proto = _load(model)
    return _Importer(proto, _opset(proto), dict(shape or {}), limits or Limits()).run()


def _opset(proto: ModelProto) -> int:
    from onnx import defs

    version = max((o.version for o in proto.opset_import if o.domain in ("", "ai.onnx")), default=1)
    if not 1 <= version <= defs.onnx_opset_version():
        raise ModelError(
            "from_onnx", f"its opset is {version}, the onnx that is installed knows 1 to "
            f"{defs.onnx_opset_version()}", "Convert the model, or install a newer onnx.",
        )  # fmt: skip
    return version


def _load(model: Any) -> ModelProto:
    try:
        import onnx
    except ImportError:
        raise ModelError("from_onnx", "the package onnx is not installed", INSTALL) from None
    if isinstance(model, onnx.ModelProto):
        proto, place = model, "from_onnx"
    elif isinstance(model, bytes):
        proto, place = _parse(model, "from_onnx(bytes)"), "from_onnx(bytes)"
    elif not isinstance(model, (str, os.PathLike)):
        raise ModelError(
            f"from_onnx({type(model).__name__})", "it is no ONNX model",
            "Give the path of an .onnx file, its bytes, or a ModelProto.",
        )  # fmt: skip
    else:
        path = Path(model)
        place = f"from_onnx({str(path)!r})"
        if not path.is_file():
            what = "it is a directory" if path.is_dir() else "there is no such file"
            raise ModelError(place, what, "Give the path of an .onnx file.")
        proto = _parse(path.read_bytes(), place)
        values = [a.t for node in proto.graph.node for a in node.attribute if a.HasField("t")]
        read_external([*proto.graph.initializer, *values], path.parent, place)
    if not proto.HasField("graph") or not proto.graph.output:
        raise ModelError(place, "it holds no graph", "The file may be truncated; export it again.")
    return proto


def _parse(data: bytes, place: str) -> ModelProto:
    import onnx
    from google.protobuf.message import DecodeError

    if not data:
        raise ModelError(place, "it is empty", "Export or copy it again.")
    try:
        return onnx.load_model_from_string(data)
    except DecodeError:
        raise ModelError(
            place,
            f"its {len(data)} bytes are no ONNX model",
            "It may be truncated; export or copy it again.",
        ) from None


class _Importer:
    """One import: values by name as they become known.

    values: graph values, or arrays known already (weights, shape arithmetic); None: the result of
    an operator that is unsupported
    """

    def __init__(
        self, proto: ModelProto, opset: int, shapes: dict[str, Sequence[int]], limits: Limits
    ) -> None:
        self.proto, self.graph, self.opset, self.shapes = proto, proto.graph, opset, shapes
        self.limits = limits
        self.values: dict[str, Value | None] = {}
        self.params: dict[str, Array] = {}
        self.constant_bytes = 0

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        self.limits.check("nodes", len(self.graph.node))
        check_text(self.graph)
        self._read_initializers()
        infos = [i for i in self.graph.input if i.name not in self.values]
        if unknown := sorted(set(self.shapes) - {i.name for i in infos}):
            raise ModelError(
                f"from_onnx(shape={{{unknown[0]!r}: ...}})", "the model has no such input",
                f"Its inputs are {', '.join(shown(i.name) for i in infos)}.",
            )  # fmt: skip
        inputs = [self._input(i) for i in infos]
        unsupported: dict[str, list[str]] = {}
        for k, node in enumerate(self.graph.node):
            self._convert(node, shown(node.name) or f"#{k}", unsupported)
        if unsupported:
            listed = "; ".join(
                f"{op} (node {', '.join(names)})" for op, names in sorted(unsupported.items())
            )
            raise ModelError(
                "from_onnx", f"operators that cannot be imported: {listed}",
                "relay.exchange.onnx.ops.CONVERTERS lists those that can.",
            )  # fmt: skip
        outputs = [self.expr(o.name, "the graph's output") for o in self.graph.output]
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
        self.limits.check_graph(body)
        weights = [v for v in free_vars(body) if v not in inputs]
        main = Function([*inputs, *weights], body)
        return IRModule({"main": main}), {v.name_hint: self.params[v.name_hint] for v in weights}

    def expr(self, name: str, reader: str) -> Expr:
        """The graph value `name`; a known array becomes a parameter, a number a constant."""
        value = self.values.get(name)
        if isinstance(value, Expr):
            return value
        if value is None:
            raise ModelError(
                f"from_onnx: {reader}",
                f"it reads {shown(name)!r}, which nothing computes",
                "The model is damaged, or its nodes are not in order.",
            )
        made: Expr
        if value.dtype.name not in TYPES:
            raise ModelError(
                f"from_onnx: {reader}", f"{shown(name)!r} has the element type {value.dtype}",
                f"Supported are {', '.join(TYPES)}.",
            )  # fmt: skip
        if value.ndim == 0 or not _is_float(value):
            made = Constant(np.ascontiguousarray(value).reshape(value.shape))
        else:
            made = var(name, shape=value.shape, dtype=value.dtype.name)
            self.params[name] = value
        self.values[name] = made
        return made

    def static(self, name: str) -> Array | None:
        """The array `name` if it is known at import."""
        value = self.values.get(name)
        if isinstance(value, Constant):
            return value.data
        if isinstance(value, Var):
            return self.params.get(name)
        return value if isinstance(value, np.ndarray) else None

    def _define(self, name: str, value: Value | None, place: str) -> None:
        if name in self.values:
            raise ModelError(place, f"{shown(name)!r} is there already", DAMAGED)
        if not name.isprintable():
            raise ModelError(place, f"{shown(name)} holds control characters", DAMAGED)
        self.values[name] = value

    def _read_initializers(self) -> None:
        if self.graph.sparse_initializer:
            raise ModelError(
                "from_onnx", "the model has sparse weights", "Export it with dense weights."
            )
        for tensor in self.graph.initializer:
            place = f"from_onnx: weight {shown(tensor.name)!r}"
            self._define(tensor.name, array_of(tensor, place), place)

    def _input(self, info: Any) -> Var:
        place = f"from_onnx: input {shown(info.name)!r}"
        kind = info.type.tensor_type
        if not info.type.HasField("tensor_type"):
            raise ModelError(
                place, "it is not a tensor", "Sequences, maps and optionals cannot be inputs."
            )
        dtype = element_type(kind.elem_type)
        if dtype not in TYPES:
            raise ModelError(
                place, f"its element type is {dtype}", f"Supported are {', '.join(TYPES)}."
            )
        dims = [d.dim_value or d.dim_param or "?" for d in kind.shape.dim]
        extents: Sequence[Any] = self.shapes.get(info.name, dims)
        if info.name not in self.shapes and not kind.HasField("shape"):
            raise ModelError(
                place, "its shape is not given", f"Pass shape={{{info.name!r}: (...)}}."
            )
        if open_ := [str(d) for d in extents if isinstance(d, str)]:
            guess = tuple(1 if isinstance(d, str) else d for d in extents)
            raise ModelError(
                place,
                f"its extent {', '.join(open_)} is open",
                f"Pass shape={{{info.name!r}: {guess}}}.",
            )
        made = var(info.name, shape=tuple(extents), dtype=dtype)
        self._define(info.name, made, place)
        return made

    def _convert(self, node: NodeProto, name: str, unsupported: dict[str, list[str]]) -> None:
        place = f"from_onnx: node {name} ({shown(node.op_type)})"
        known = [self.static(i) for i in node.input if i]
        numbers = [a for a in known if a is not None and not _is_float(a)]
        is_own = node.domain in ("", "ai.onnx")
        converter = CONVERTERS.get(node.op_type) if is_own else None
        if numbers and len(numbers) == len(known) and is_own and is_shape_arithmetic(node.op_type):
            results: Sequence[Value | None] = self._compute(node, numbers, place)
        elif converter is None:
            op = f"{node.domain}.{node.op_type}" if node.domain else node.op_type
            unsupported.setdefault(shown(op), []).append(name)
            results = [None] * len(node.output)
        elif any(i in self.values and self.values[i] is None for i in node.input):
            results = [None] * len(node.output)  # it reads what an unsupported operator would give
        else:
            results = self._apply(converter, node, place)
        for output, result in zip(node.output, results, strict=False):
            if output:
                self._define(output, result, place)

    def _room(self, nbytes: int, place: str) -> None:
        """Asks for `nbytes` of constants that are not in the file."""
        self.constant_bytes += nbytes
        self.limits.check("constants", self.constant_bytes, place)

    def _compute(self, node: NodeProto, numbers: Sequence[Array], place: str) -> list[Array]:
        """Shape arithmetic: a node of known integers."""
        from onnx import helper
        from onnx.reference import ReferenceEvaluator

        check_node(node, self.opset, place)
        inputs = list(dict.fromkeys(i for i in node.input if i))
        graph = helper.make_graph(
            [node], "shape arithmetic", [helper.make_empty_tensor_value_info(i) for i in inputs],
            [helper.make_empty_tensor_value_info(o) for o in node.output],
        )  # fmt: skip
        alone = helper.make_model(graph, opset_imports=self.proto.opset_import)
        try:
            self._room(computed_bytes(node.op_type, numbers), place)
            with np.errstate(all="ignore"):
                found = ReferenceEvaluator(alone).run(None, {i: self.static(i) for i in inputs})
            return [np.asarray(value) for value in found]
        except ModelError:
            raise
        except Exception as e:
            raise ModelError(place, f"onnx cannot compute it ({shown(str(e))})", DAMAGED) from None

    def _apply(self, converter: Any, node: NodeProto, place: str) -> Sequence[Value]:
        schema = check_node(node, self.opset, place)
        check_types(schema, [self._dtype(i) for i in node.input], place)
        attrs = attributes_of(node, schema, place)
        view = Node(
            node.op_type, place, self.opset, attrs, [i or None for i in node.input],
            self.expr, self.static, [o for o in node.output if o], lambda n: self._room(n, place),
        )  # fmt: skip
        try:
            result = converter(view)
        except ModelError as e:
            if e.place.startswith("from_onnx"):
                raise
            raise ModelError(f"{place}: {e.place}", e.reason, e.way_out) from None
        if left := sorted(set(attrs) - view.used):
            raise ModelError(
                place,
                f"its attribute {left[0]}={attrs[left[0]]!r} has no meaning here",
                "Remove it, or convert the model to a newer opset.",
            )
        return [result] if isinstance(result, (Expr, np.ndarray)) else list(result)

    def _dtype(self, name: str) -> str | None:
        value = self.values.get(name)
        return None if value is None else str(value.dtype)


def _is_float(array: np.ndarray) -> bool:
    return array.dtype.name in TYPES and DType(array.dtype).is_float
