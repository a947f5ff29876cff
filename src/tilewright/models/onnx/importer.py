"""Import of ONNX models.

In: a `ModelProto`, its bytes, or the path of a file.  Out: `(mod, params)`: weights are parameters
of main, under their ONNX names.  Shape arithmetic, control flow, sequences and functions are gone:
they are computed, inlined, plumbing.  A file may come from anybody: it is checked against onnx's
schemas, its numbers against the type rules of operators, its sizes against `Limits`, each before
anything is made of it.
Read next: `ops/__init__.py`, what each operator becomes; `control.py`, `functions.py`, `fold.py`,
`blockers.py`.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import InternalError, ModelError
from tilewright.graph.deferred import NotYet
from tilewright.graph.expr import (
    Array,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    Var,
    free_vars,
)
from tilewright.graph.extents import closed, open_names
from tilewright.graph.layers import adopt
from tilewright.graph.leaves import var
from tilewright.graph.passes.extents import opened
from tilewright.models.limits import BeyondLimit, Limits
from tilewright.models.onnx.blockers import Blocker, Blockers, operator_name
from tilewright.models.onnx.checks import (
    DAMAGED,
    array_of,
    attributes_of,
    check_node,
    check_text,
    check_types,
    onnx_schema,
    shown,
)
from tilewright.models.onnx.control import CONTROL
from tilewright.models.onnx.fold import AT_ONCE, Folder
from tilewright.models.onnx.foreign import foreign_schema
from tilewright.models.onnx.functions import (
    DEEPEST,
    Body,
    body_of,
    defaults_of,
    definition,
    functions_of,
)
from tilewright.models.onnx.inference import output_types, static_type
from tilewright.models.onnx.inputs import Given
from tilewright.models.onnx.load import load, opsets
from tilewright.models.onnx.node import Node, NotAllowed
from tilewright.models.onnx.ops import DOMAINS
from tilewright.models.onnx.ops.refused import refusal
from tilewright.models.onnx.postponed import Postponing
from tilewright.models.onnx.schema import Schema
from tilewright.models.onnx.scope import Scope
from tilewright.models.onnx.structure import Plan, plan, without
from tilewright.models.onnx.values import (
    WIDER,
    Narrow,
    Unknown,
    Value,
    items,
    kind_of,
    tensors,
    waits,
)

if TYPE_CHECKING:
    from onnx import GraphProto, ModelProto, NodeProto


def from_onnx(
    model: ModelProto | bytes | str | os.PathLike[str],
    shape: Mapping[str, Any] | None = None,
    dtype: Mapping[str, str] | None = None,
    opset: int | None = None,
    freeze_params: bool = False,
    *,
    params: Mapping[str, Any] | None = None,
    limits: Limits | None = None,
) -> tuple[IRModule, dict[str, Array]]:
    """The network in `model` and its weights.

    shape:  input shapes by name, for inputs whose extents the model leaves open (or to change
            them); an extent that the model gives a name may be given by that: {"batch": 8}.
            `relay.Any()` in a shape or for a name leaves it open: relay.build is told its sizes
    dtype:  element types of inputs by name, where they shall not be the model's
    opset:  of ONNX's operators, instead of what the model says
    freeze_params: weights become constants of the graph, and the second result is empty
    params: values of inputs by name: they are weights then, or constants where an operator needs
            one, such as a shape
    limits: what the model may cost; default: `Limits()`
    Raises ModelError for a missing or damaged file, an open extent, a model beyond the limits, and
    once for all nodes that cannot be imported.  A result that is a sequence counts as its tensors.
    """
    limits = limits or Limits()
    proto = load(model, limits)
    if names := open_names(shape or {}):
        return opened(
            names,
            lambda sizes: from_onnx(
                proto, closed(shape, sizes.__getitem__), dtype, opset, freeze_params,
                params=params, limits=limits,
            ),
        )  # fmt: skip
    given = Given(dict(shape or {}), dict(dtype or {}), dict(params or {}))
    versions = opsets(proto.opset_import, opset)
    return _Importer(proto, versions, given, limits, freeze_params).run()


@dataclass(frozen=True)
class _Prepared:
    """What is read of a graph once, however often it is run."""

    graph: GraphProto
    plan: Plan
    weights: Mapping[str, Array]
    declared: Mapping[str, TensorType]


class _Importer(Postponing):
    """One import: graphs are run, as an interpreter would, on values that stand for tensors.

    params: arrays of the variables that weights became
    nodes:  run so far, copies of bodies included
    """

    def __init__(
        self, proto: ModelProto, versions: Mapping[str, int], given: Given, limits: Limits,
        freeze: bool,
    ) -> None:  # fmt: skip
        self.proto, self.graph, self.versions, self.given = proto, proto.graph, versions, given
        self.limits, self.freeze = limits, freeze
        self.params: dict[str, Array] = {}
        self.names: set[str] = set()
        self.constant_bytes = self.nodes = 0
        self.blockers = Blockers()
        self.folder = Folder(self.params, self._room)
        self._exprs: dict[int, tuple[Array, Expr]] = {}
        self._array_names: dict[int, str] = {}
        self._prepared: dict[int, _Prepared] = {}

    def run(self) -> tuple[IRModule, dict[str, Array]]:
        self.limits.check("nodes", len(self.graph.node))
        check_text(self.proto)
        self.functions = functions_of(self.proto)
        prepared = self._prepare(self.graph)
        scope = Scope(self.versions, prepared.plan.read, declared=prepared.declared)
        self._define_weights(scope, prepared)
        infos = [i for i in self.graph.input if i.name not in prepared.weights]
        inputs: list[Var] = []
        for name, value in self.given.values_of(infos):
            scope.define(name, value, f"from_onnx: input {shown(name)!r}")
            taken = value.value if isinstance(value, Narrow) else value
            if isinstance(taken, Var):
                inputs.append(taken)
                self.names.add(name)
            elif isinstance(value, np.ndarray):
                self._array_names[id(value)] = name
        self._run(scope, prepared.plan)
        results = [self._read(scope, o.name, "the graph's output") for o in self.graph.output]
        self.blockers.raise_for(results, len(self.graph.node))
        outputs = [
            self.expr(self._wide(tensor), o.name, "the graph's output")
            for value, o in zip(results, self.graph.output, strict=True)
            for tensor in items(value)
        ]
        if not outputs:
            raise ModelError("from_onnx", "its results are empty sequences", "Give it others.")
        body = outputs[0] if len(outputs) == 1 else Tuple(outputs)
        self.limits.check_graph(body)
        weights = [v for v in free_vars(body) if v not in inputs]
        main = Function([*inputs, *weights], body)
        return IRModule({"main": main}), {v.name_hint: self.params[v.name_hint] for v in weights}

    # -- graphs ------------------------------------------------------------------------------------

    def _prepare(self, graph: GraphProto) -> _Prepared:
        """`graph` in order, with its weights; read once."""
        if id(graph) not in self._prepared:
            if graph.sparse_initializer:
                raise ModelError(
                    "from_onnx", "the model has sparse weights", "Export it with dense weights."
                )
            weights: dict[str, Array] = {}
            for tensor in graph.initializer:
                place = f"from_onnx: weight {shown(tensor.name)!r}"
                if tensor.name in weights:
                    raise ModelError(place, f"{shown(tensor.name)!r} is there already", DAMAGED)
                weights[tensor.name] = array_of(tensor, place)
            infos = (*graph.value_info, *graph.output)
            types = {i.name: static_type(i.type) for i in infos}
            self._prepared[id(graph)] = _Prepared(
                graph, plan(graph.node, [o.name for o in graph.output], "from_onnx"), weights,
                {name: kind for name, kind in types.items() if kind is not None},
            )  # fmt: skip
        return self._prepared[id(graph)]

    def _define_weights(self, scope: Scope, prepared: _Prepared) -> None:
        for name, array in prepared.weights.items():
            self._array_names.setdefault(id(array), name)
            scope.define(name, array, f"from_onnx: weight {shown(name)!r}")

    def _run(self, scope: Scope, plan: Plan) -> None:
        for k, node in plan.nodes:
            self._count(1)
            self._convert(scope, node, shown(node.name) or f"#{k}")

    def _count(self, more: int) -> None:
        self.nodes += more
        self.limits.check("nodes", self.nodes, "from_onnx: with all copies of bodies")

    def _copies(self, graph: GraphProto, count: int) -> None:
        """Refuses copies that would be beyond the limit, before the first of them is made."""
        nodes = self.nodes + count * (1 + len(self._prepare(graph).plan.nodes))
        self.limits.check("nodes", nodes, "from_onnx: with all copies of bodies")

    def _trip(self, graph: GraphProto, number: int) -> None:
        """Refuses a trip of a loop that may never end."""
        self.limits.check("unrolled", number * (1 + len(self._prepare(graph).plan.nodes)))

    def _inline(self, outer: Scope, graph: GraphProto, values: Sequence[Value]) -> list[Value]:
        """The results of a graph inside a node of `outer`."""
        place = f"from_onnx: graph {shown(graph.name)!r}"
        prepared = self._prepare(graph)
        self._count(1)
        scope = Scope(outer.versions, prepared.plan.read, outer, outer.depth,
                       declared=prepared.declared)  # fmt: skip
        if len(graph.input) != len(values):
            raise ModelError(
                place, f"it has {len(graph.input)} inputs, {len(values)} are given", DAMAGED
            )
        for info, value in zip(graph.input, values, strict=True):
            scope.define(info.name, value, place)
        self._define_weights(scope, prepared)
        self._run(scope, prepared.plan)
        return [self._read(scope, o.name, "the result of a graph in it") for o in graph.output]

    def _call(
        self, outer: Scope, body: Body, values: Sequence[Value | None], place: str
    ) -> list[Value]:
        """The results of a function; an input or result that is left out is not there."""
        if outer.depth >= DEEPEST:
            raise BeyondLimit(
                place, f"functions call each other more than {DEEPEST} deep",
                "The model may be damaged: a function must not call itself.",
            )  # fmt: skip
        scope = Scope(body.opsets, body.plan.read, depth=outer.depth + 1)
        for name, value in zip(body.inputs, values, strict=False):
            if value is not None:
                scope.define(name, value, place)
        absent = frozenset(body.inputs) - scope.values.keys()
        nodes = [(k, without(node, absent)) for k, node in body.plan.nodes]
        self._run(scope, Plan(tuple(nodes), body.plan.read))
        return [scope.values.get(name, Unknown()) for name in body.outputs]

    # -- values ------------------------------------------------------------------------------------

    def _read(self, scope: Scope, name: str, reader: str) -> Value:
        value = scope.find(name)
        if value is None:
            raise ModelError(
                f"from_onnx: {reader}",
                f"it reads {shown(name)!r}, which nothing computes", DAMAGED,
            )  # fmt: skip
        return value

    def expr(self, value: Value, name: str, reader: str) -> Expr:
        """`value` as a graph value; a known array becomes a parameter, a number a constant."""
        if isinstance(value, Expr):
            return value
        if isinstance(value, Narrow):
            raise ModelError(
                f"from_onnx: {reader}", f"{shown(name)!r} has the element type {value.kind}",
                f"Cast it to one of {', '.join(TYPES)} before.",
            )  # fmt: skip
        if not isinstance(value, np.ndarray):
            raise ModelError(
                f"from_onnx: {reader}",
                f"{shown(name)!r} is a sequence or an empty optional where a tensor is needed",
                "Networks have tensors as inputs and results.",
            )
        if id(value) in self._exprs:
            return self._exprs[id(value)][1]
        if value.dtype.name not in TYPES:
            raise ModelError(
                f"from_onnx: {reader}", f"{shown(name)!r} has the element type {value.dtype}",
                f"Supported are {', '.join(TYPES)}.",
            )  # fmt: skip
        made: Expr
        if value.ndim == 0 or self.freeze or not DType(value.dtype).is_float:
            made = Constant(np.ascontiguousarray(value).reshape(value.shape))
        else:
            unique = self._unique(self._array_names.get(id(value), name))
            made = var(unique, shape=value.shape, dtype=value.dtype.name)
            self.params[unique] = value
        self._exprs[id(value)] = value, made
        return made

    def _wide(self, value: Value) -> Value:
        """`value`; one of a type that networks do not have in the type that stands for it."""
        if isinstance(value, Narrow):
            return value.value
        wide = WIDER.get(value.dtype.name) if isinstance(value, np.ndarray) else None
        return value if wide is None else value.astype(wide)  # type: ignore[union-attr]

    def _unique(self, name: str) -> str:
        found, k = name, 1
        while found in self.names:
            found, k = f"{name}.{k}", k + 1
        self.names.add(found)
        return found

    def _known(self, value: Value, place: str) -> Array | None:
        """The array of `value` if it is known at import."""
        if isinstance(value, np.ndarray):
            return value
        if not isinstance(value, Expr) or value.waits:
            return None
        return self.folder.array(value, place)

    def _static(self, value: Value, place: str) -> Array | None:
        """`_known`, for what must be."""
        found = self._known(value, place)
        if found is None and isinstance(value, Expr) and self.blockers.hide(value):
            raise _Hidden(place, "it reads what cannot be imported")
        return found

    def _room(self, nbytes: int, place: str) -> None:
        """Asks for `nbytes` of constants that are not in the file."""
        self.constant_bytes += nbytes
        self.limits.check("constants", self.constant_bytes, place)

    # -- nodes -------------------------------------------------------------------------------------

    def _convert(self, scope: Scope, node: NodeProto, name: str) -> None:
        place = f"from_onnx: node {name} ({shown(node.op_type)})"
        reader = f"node {name} ({shown(node.op_type)})"
        values = {i: self._read(scope, i, reader) for i in node.input if i}
        try:
            results = self._results(scope, node, name, values, place)
        except (BeyondLimit, _Damaged, InternalError):
            raise
        except ModelError as error:
            results = self._blocked(scope, node, name, error, values)
        if layer := _layer(node, scope):
            for made in (tensor for result in results for tensor in tensors(result)):
                adopt(made, (layer,))
        for output, result in zip(node.output, results, strict=False):
            if output:
                scope.define(output, result, place)

    def _results(
        self, scope: Scope, node: NodeProto, name: str, values: Mapping[str, Value], place: str,
        resume: Value | None = None,
    ) -> Sequence[Value]:  # fmt: skip
        domain = "" if node.domain == "ai.onnx" else node.domain
        own = self.functions.get((node.domain, node.op_type, node.overload))
        if own is not None:
            return self._call(
                scope, body_of(own, node, (), place), self._arguments(values, node), place
            )
        version = scope.versions.get(domain, 0)
        official = onnx_schema(node.op_type, version, domain)
        is_foreign = official is None and foreign_schema(node.op_type, domain) is not None
        if official is None and domain and not is_foreign:
            return self._blocked(scope, node, name, refusal(domain, place), values)
        if official is None and not is_foreign:
            raise ModelError(
                place, f"opset {version} has no operator {shown(node.op_type)}",
                "Convert the model to another opset.",
            )  # fmt: skip
        with _damaged():
            schema = check_node(node, version, place, domain)
        control = None if domain else CONTROL.get(node.op_type)
        converter = control or DOMAINS.get(domain, {}).get(node.op_type)
        if any(isinstance(v, Unknown) for v in values.values()):
            return self._behind(node, official, name, converter is not None)
        if converter is None:
            inlined = self._by_definition(scope, node, official, values, version, place)
            if inlined is not None:
                return inlined
            return self._blocked(scope, node, name, refusal(domain, place), values)
        try:
            made = self._apply(scope, converter, node, schema, values, place, resume)
        except (BeyondLimit, NotAllowed, _Damaged, InternalError):
            raise
        except ModelError as error:
            inlined = self._by_definition(scope, node, official, values, version, place)
            if isinstance(error, NotYet) and (inlined is None or waits(inlined)):
                return self._later(scope, node, name, place, error)
            if inlined is None:
                raise
            return inlined
        return [self._folded(value, values, place) for value in made]

    def _arguments(self, values: Mapping[str, Value], node: NodeProto) -> list[Value | None]:
        return [values[i] if i else None for i in node.input]

    def _by_definition(
        self, scope: Scope, node: NodeProto, official: Any, values: Mapping[str, Value],
        version: int, place: str,
    ) -> list[Value] | None:  # fmt: skip
        """By the function in ONNX's schema; None where there is none that can be imported."""
        if official is None:
            return None
        types = [_type_proto(values[i] if i else None) for i in node.input]
        function = definition(official, node, version, types)
        if function is None:
            return None
        body = body_of(function, node, defaults_of(official), place)
        body = Body(body.inputs, body.outputs, body.plan, {**scope.versions, **body.opsets})
        before, made = self.blockers.mark(), None
        try:
            made = self._call(scope, body, self._arguments(values, node), place)
        except (BeyondLimit, InternalError):
            raise
        except ModelError:
            pass
        if made is not None and self.blockers.mark() == before:
            return made
        self.blockers.back_to(before)
        return None

    def _apply(
        self, scope: Scope, converter: Any, node: NodeProto, schema: Schema,
        values: Mapping[str, Value], place: str, resume: Value | None,
    ) -> list[Value]:  # fmt: skip
        with _damaged():
            kinds = [kind_of(values.get(i)) for i in node.input]
            check_types(schema, [None if k is None else k[0] for k in kinds], place)
            attrs = attributes_of(node, schema, place)
        view = Node(
            node.op_type, place, scope.versions.get("", 1), attrs, [i or None for i in node.input],
            lambda i, reader: self.expr(values[i], i, reader),
            lambda i: self._static(values[i], place),
            _until_read(node.output, scope.read),
            lambda n: self._room(n, place), lambda i: values[i],
            lambda v: self._known(v, place), lambda g, v: self._inline(scope, g, v),
            self._copies, self._trip,
            lambda v: self.expr(v, node.op_type, place.removeprefix("from_onnx: ")),
            resume,
        )  # fmt: skip
        try:
            result = converter(view)
        except ModelError as e:
            if e.place.startswith("from_onnx"):
                raise
            raise type(e)(f"{place}: {e.place}", e.reason, e.way_out) from None
        if left := sorted(set(attrs) - view.used):
            raise ModelError(
                place,
                f"its attribute {left[0]}={attrs[left[0]]!r} has no meaning here",
                "Remove it, or convert the model to a newer opset.",
            )
        results = result if isinstance(result, (list, tuple)) else [result]
        return [np.asarray(r) if isinstance(r, np.generic) else r for r in results]

    def _folded(self, value: Value, values: Mapping[str, Value], place: str) -> Value:
        """`value`, as an array where it is small and all of `values` are known."""
        if not isinstance(value, Expr) or value.waits:
            return value
        if not isinstance(value.checked_type, TensorType):
            return value
        if not all(isinstance(v, (np.ndarray, Constant)) for v in values.values()):
            return value
        found = self.folder.array(value, place, AT_ONCE)
        return value if found is None else found

    # -- what cannot be imported -------------------------------------------------------------------

    def _blocked(
        self, scope: Scope, node: NodeProto, name: str, error: ModelError | None,
        values: Mapping[str, Value],
    ) -> list[Value]:  # fmt: skip
        op = operator_name(node)
        blocker = None if isinstance(error, _Hidden) else Blocker(op, name, error)
        domain = "" if node.domain == "ai.onnx" else node.domain
        types = output_types(
            node, scope.versions.get(domain, 0), values, lambda v: self._known(v, "from_onnx"),
            scope.declared,
        )  # fmt: skip
        made = iter(self.blockers.stand_ins(op, blocker, list(values.values()), types))
        return [next(made) if o else Unknown() for o in node.output]

    def _behind(self, node: NodeProto, official: Any, name: str, known: bool) -> list[Value]:
        """A node that reads something of unknown type: it may be in the way as well."""
        if known or (
            official is not None
            and (official.has_function or official.has_context_dependent_function)
        ):
            self.blockers.behind += 1
        else:
            self.blockers.untyped.append(Blocker(operator_name(node), name, None))
        return [Unknown() for _ in node.output]


class _Damaged(ModelError):
    """No operator is to blame: the node is not what ONNX allows."""


class _Hidden(ModelError):
    """A node that needs to know a value that a node before it would give."""


@contextmanager
def _damaged() -> Iterator[None]:
    try:
        yield
    except ModelError as error:
        raise _Damaged(error.place, error.reason, error.way_out) from None


def _layer(node: NodeProto, scope: Scope) -> str:
    """What people call it; "" where the node that it is a part of says."""
    outermost = scope.parent is None and not scope.depth
    return shown(node.name or (next(filter(None, node.output), "") if outermost else ""))


def _type_proto(value: Value | None) -> Any:
    from onnx import TypeProto, helper

    if (kind := kind_of(value)) is None:
        return TypeProto()
    dtype, shape = kind
    return helper.make_tensor_type_proto(helper.np_dtype_to_tensor_dtype(np.dtype(dtype)), shape)


def _until_read(outputs: Sequence[str], read: frozenset[str]) -> list[str]:
    """`outputs` up to the last that something reads."""
    return list(outputs[: max((k + 1 for k, o in enumerate(outputs) if o in read), default=0)])
