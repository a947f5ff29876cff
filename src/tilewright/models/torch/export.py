"""Modules and exported programs of PyTorch as a `Program`.

In: an `ExportedProgram`, or a module (also scripted or traced) with the shapes of its inputs.  Out:
`(mod, params)`; parameters are numpy views of the module's, not copies.  Needs PyTorch, which is
imported when it is called.  Read next: `program.py`, `importer.py`.
"""

from __future__ import annotations

import inspect
import logging
import operator
import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import ml_dtypes
import numpy as np

from tilewright.base.errors import ModelError
from tilewright.base.extras import install
from tilewright.graph.expr import Array, IRModule
from tilewright.models.limits import Limits
from tilewright.models.torch.importer import import_program
from tilewright.models.torch.program import Program, Ref, Spec, Step

if TYPE_CHECKING:
    from torch.export import ExportedProgram

INSTALL = f"Try {install('torch')}."

# Kept whole: what they decompose into hides what they are.
_KEPT = (
    "linear.default", "matmul.default", "scaled_dot_product_attention.default",
    "upsample_nearest1d.vec", "upsample_nearest2d.vec", "upsample_nearest3d.vec",
    "upsample_linear1d.vec", "upsample_bilinear2d.vec", "upsample_trilinear3d.vec",
    "upsample_bicubic2d.vec", "pixel_shuffle.default", "pixel_unshuffle.default",
    "silu.default", "hardswish.default", "hardsigmoid.default", "layer_norm.default",
    "adaptive_avg_pool1d.default", "unfold_backward.default",
)  # fmt: skip


def torch_module(place: str) -> Any:
    """PyTorch; ModelError where it is not installed."""
    try:
        import torch
        import torch.export
    except ImportError:
        raise ModelError(place, "PyTorch is not installed", INSTALL) from None
    return torch


def from_exported_program(
    exported_program: ExportedProgram, limits: Limits | None = None
) -> tuple[IRModule, dict[str, Array]]:
    """The network that `torch.export.export(module.eval(), args)` gave, and its weights.

    limits: what the model may cost; default: `Limits()`
    Weights are named as in the module, inputs as its arguments.  They share memory with the
    module's, so change neither.  What a module writes to its inputs counts for what it returns, the
    inputs stay as they are.  Raises ModelError for open extents, for a module that writes to its
    buffers, and once for all operators that cannot be imported.
    """
    place = "from_exported_program"
    torch_module(place)
    if not hasattr(exported_program, "graph_signature"):
        kind = type(exported_program).__name__
        raise ModelError(
            f"{place}({kind})", "it is no ExportedProgram",
            "Use torch.export.export(module.eval(), args), or load the module with inputs.",
        )  # fmt: skip
    return import_program(read(decomposed(exported_program), place), place, limits)


def from_examples(
    module: Any, inputs: Any, limits: Limits | None = None, place: str = ""
) -> tuple[IRModule, dict[str, Array]]:
    """A module of PyTorch, also a scripted or traced one, and its weights; inputs are named as its
    arguments are.

    inputs: an example of its input, or a tuple of them, or by the names of its arguments a mapping;
            each a tensor, an array, or a shape, which stands for float32
    place:  of errors; default: `load` of its class
    The module is taken in evaluation mode.  Raises ModelError as `from_exported_program` does.
    """
    place = place or f"load({type(module).__name__})"
    torch = torch_module(place)
    where = next((p.device for p in module.parameters()), "cpu")

    def example(value: Any) -> Any:
        if isinstance(value, np.ndarray):
            return torch.from_numpy(np.ascontiguousarray(value)).to(where)
        if _is_shape(value):
            return torch.zeros(value, device=where)
        # One that is given twice would be one input to torch.export.
        return value.clone() if isinstance(value, torch.Tensor) else value

    by_name = inputs if isinstance(inputs, Mapping) else {}
    listed = inputs if isinstance(inputs, tuple | list) and not _is_shape(inputs) else (inputs,)
    args = () if by_name else tuple(map(example, listed))
    takes = _arguments(module) if by_name else []
    if hasattr(module.forward, "schema") and (odd := [n for n in by_name if n not in takes]):
        told = ", ".join(takes)
        raise ModelError(place, f"it has no input {odd[0]!r}", f"Its inputs: {told}.")
    order = [name for name in takes if name in by_name]  # that of calls without names
    kwargs = {name: example(by_name[name]) for name in dict.fromkeys((*order, *by_name))}
    if kwargs and hasattr(module.forward, "schema") and order == takes[: len(kwargs)]:
        args, kwargs = tuple(kwargs.values()), {}  # PyTorch's converter takes them in order only
    whole = decomposed(exported(module, args, place, kwargs))
    return import_program(read(whole, place), place, limits)


def _arguments(module: Any) -> list[str]:
    """The names of what its `forward` takes, which a scripted one tells in a schema."""
    schema = getattr(module.forward, "schema", None)
    if schema is not None:
        return [argument.name for argument in schema.arguments if argument.name != "self"]
    return list(inspect.signature(module.forward).parameters)


def _is_shape(value: Any) -> bool:
    return isinstance(value, tuple | list) and all(type(n) is int for n in value)


@contextmanager
def _quiet() -> Iterator[None]:
    """PyTorch logs the tracebacks of what it refuses: its first line is in our error, and the rest
    is that error's cause.  With TORCH_LOGS everything is said."""
    known = [] if os.environ.get("TORCH_LOGS") else [*logging.root.manager.loggerDict.items()]
    loggers = [logger for name, logger in known if name.partition(".")[0] == "torch"]
    handlers = {h for logger in loggers for h in getattr(logger, "handlers", ())}
    for handler in handlers:
        handler.addFilter(_nothing)
    try:
        yield
    finally:
        for handler in handlers:
            handler.removeFilter(_nothing)


def _nothing(record: logging.LogRecord) -> bool:
    return False


def exported(
    module: Any, examples: tuple[Any, ...], place: str, by_name: dict[str, Any] | None = None
) -> ExportedProgram:
    """`module` in evaluation mode as torch.export gives it; its mode is as before afterwards.

    by_name: examples of further arguments
    Raises ModelError for what cannot be exported.
    """
    torch = torch_module(place)
    modes = [(m, m.training) for m in module.modules()]
    module.eval()
    try:
        with torch.no_grad(), warnings.catch_warnings(), _quiet():
            warnings.simplefilter("ignore")
            if isinstance(module, torch.jit.ScriptModule):
                from torch._export.converter import TS2EPConverter

                module = (
                    TS2EPConverter(module, examples, by_name or None).convert().module()
                )  # with open extents
            program: ExportedProgram = torch.export.export(module, examples, by_name)
            return program
    except Exception as error:
        reason = str(error).strip().splitlines() or [type(error).__name__]
        raise ModelError(
            place, f"torch.export refuses the module: {reason[0][:300]}",
            "Call torch.export.export on it to see why; parts of it can be exported alone.",
        ) from error  # fmt: skip
    finally:
        for m, mode in modes:
            m.training = mode


# -- from PyTorch's graph to plain data ------------------------------------------------------------


def decomposed(ep: ExportedProgram) -> ExportedProgram:
    """The program in core ATen operators, and a few that say more than what they are made of."""
    torch = torch_module("decomposed")
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            program: ExportedProgram = ep.run_decompositions(_decompositions(torch))
            return program
        except Exception as error:
            reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise ModelError(
                "from_exported_program", f"PyTorch cannot decompose the program: {reason[:300]}",
                "Call run_decompositions() on it to see why.",
            ) from error  # fmt: skip


def written(ep: ExportedProgram) -> list[str]:
    """The inputs that the program writes to, for each of its first outputs, which say what."""
    return list(ep.graph_signature.user_inputs_to_mutate.values())


def read(ep: ExportedProgram, place: str, with_writes: bool = False) -> Program:
    """The program as plain data.

    with_writes: what it writes to its inputs are its first outputs, see `written`
    """
    torch = torch_module(place)
    signature = ep.graph_signature
    if mutated := signature.buffers_to_mutate:
        names = sorted(set(mutated.values()))
        raise ModelError(
            place, f"the module writes to {', '.join(names[:6])}"
            + (f" and {len(names) - 6} more" if len(names) > 6 else ""),
            "Export it after .eval(), and give state back as outputs instead of storing it.",
        )  # fmt: skip
    weights: dict[str, Array] = {}
    inputs, known = [], dict[Any, str]()
    placeholders = {n.name: n for n in ep.graph.nodes if n.op == "placeholder"}
    for spec in signature.input_specs:
        kind, name = spec.kind.name, getattr(spec.arg, "name", "")
        if kind == "USER_INPUT":
            found = placeholders[name].meta.get("val")
            if isinstance(found, torch.Tensor):  # numbers are part of the program
                inputs.append((name, _spec(found)))
        elif kind == "TOKEN":  # of checks, see `_is_check`
            continue
        elif kind in ("PARAMETER", "BUFFER", "CONSTANT_TENSOR"):
            known[name] = _weight_name(spec, weights, ep)
        else:
            raise ModelError(
                f"{place}: input {name!r}", f"it is a {kind.lower()}",
                "Export the module without custom objects and effects.",
            )  # fmt: skip
    reader = _Reader(torch, known)
    steps, outputs = _calls(reader, ep.graph_module, weights, place, with_bodies=not with_writes)
    tokens = sum(spec.kind.name == "TOKEN" for spec in signature.output_specs)
    outputs = outputs[tokens + (0 if with_writes else len(written(ep))) :]
    inputs = [(_clear(name, weights), spec) for name, spec in inputs]
    return Program(tuple(inputs), weights, tuple(steps), tuple(outputs))


def _calls(
    reader: _Reader, owner: Any, weights: dict[str, Array], place: str, with_bodies: bool
) -> tuple[list[Step], list[Any]]:
    """The steps and the outputs of a graph; tensors that it holds go to `weights`.

    with_bodies: it may hold branches and bodies of loops
    """
    torch, steps, outputs = reader.torch, list[Step](), list[Any]()
    for node in owner.graph.nodes:
        if node.op == "call_function":
            if not _is_check(node):
                steps.append(reader.step(node))
        elif node.op == "get_attr":
            held = attrgetter(str(node.target))(owner)
            if isinstance(held, torch.Tensor):
                reader.known[node.name] = str(node.target)
                weights[str(node.target)] = as_numpy(held)
            elif isinstance(held, torch.fx.GraphModule) and with_bodies:
                reader.bodies[node.name] = _body(torch, held, place)
            else:
                raise ModelError(
                    place, f"it holds a {type(held).__name__}, a branch or the body of a loop",
                    "Write it with torch.where.",
                )  # fmt: skip
        elif node.op == "output":
            (found,) = node.args
            outputs = [reader.value(v) for v in (found if isinstance(found, Sequence) else [found])]
    return steps, outputs


def _is_check(node: Any) -> bool:
    """Whether it only raises errors over data, in the order of tokens, or is such a token."""
    if node.target is operator.getitem:
        return _is_check(node.args[0])
    if getattr(node.target, "__name__", "") != "with_effects":
        return False
    return "_linalg_check_errors" in str(node.args[1])


def _body(torch: Any, owner: Any, place: str) -> Program:
    """A branch, or what a loop does in a trip."""
    reader, weights = _Reader(torch, {}), dict[str, Array]()
    steps, outputs = _calls(reader, owner, weights, place, with_bodies=True)
    given = [(n.name, reader.result(n)) for n in owner.graph.nodes if n.op == "placeholder"]
    inputs = tuple((name, spec or Spec((), "int64")) for name, spec in given)
    return Program(inputs, weights, tuple(steps), tuple(outputs))


def _clear(name: str, weights: Mapping[str, Any]) -> str:
    if name in weights:
        raise ModelError(
            f"from_exported_program: input {name!r}", "a weight has the same name",
            "Rename the argument, or use from_pytorch with a name of your own.",
        )  # fmt: skip
    return name


def _decompositions(torch: Any) -> Any:
    table = torch.export.default_decompositions()
    for name in _KEPT:
        packet, _, overload = name.partition(".")
        op = getattr(getattr(torch.ops.aten, packet, None), overload, None)
        if op is not None:
            table.pop(op, None)
    lstm = torch.ops.aten.lstm.input
    if lstm in table:
        table[lstm] = _with_the_shapes_of_states(table[lstm])
    return table


def _with_the_shapes_of_states(lstm: Any) -> Any:
    """PyTorch's decomposition gives the states that are left with an axis too many."""

    def decomposed_lstm(data: Any, states: Any, *rest: Any) -> Any:
        made, *left = lstm(data, states, *rest)
        return made, *(a.reshape(b.shape) for a, b in zip(left, states, strict=True))

    return decomposed_lstm


def _weight_name(spec: Any, weights: dict[str, Array], ep: Any) -> str:
    """The name of the array that an input of the graph stands for; tied weights have one."""
    target = str(spec.target)
    held = ep.state_dict.get(target) if spec.kind.name != "CONSTANT_TENSOR" else None
    tensor = ep.constants[target] if held is None else held
    array = as_numpy(tensor)
    same = (
        name for name, other in weights.items()
        if other.ctypes.data == array.ctypes.data and other.shape == array.shape
        and other.dtype == array.dtype and other.strides == array.strides and array.size
    )  # fmt: skip
    found = next(same, None)
    if found is None:
        weights[target] = array
    return found or target


def as_numpy(tensor: Any) -> Array:
    """A tensor's memory as an array, without a copy where it is dense and on the CPU."""
    import torch

    held = tensor.detach().resolve_conj().resolve_neg().cpu().contiguous()
    if held.dtype == torch.bfloat16:
        return np.asarray(held.view(torch.int16).numpy().view(ml_dtypes.bfloat16))
    return np.asarray(held.numpy())


def dtype_name(dtype: Any) -> str:
    return str(dtype).removeprefix("torch.")


def _spec(value: Any) -> Spec:
    shape = tuple(n if isinstance(n, int) else str(n) for n in value.shape)
    return Spec(shape, dtype_name(value.dtype))


def _memory_read(tensor: Any, offset: int | None) -> dict[str, Any]:
    """How far behind the first element `offset` is, and whether the elements lie in order there."""
    behind = 0 if offset is None else offset - tensor.storage_offset()
    return {"storage_offset": behind, "dense": bool(tensor.is_contiguous()) and behind >= 0}


def _layer(node: Any) -> str:
    """The innermost module that calls it, by its name in the outermost; "" where that does."""
    told = node.meta.get("nn_module_stack") or {}
    names = [str(path) for path, _ in told.values()] if isinstance(told, dict) else []
    return names[-1].removeprefix("L['self']").removeprefix(".") if names else ""


class _Reader:
    """Nodes of a graph as steps.

    known:  inputs of the graph that are weights, by their names
    bodies: branches and bodies of loops that it holds, by the names of their nodes
    """

    def __init__(self, torch: Any, known: dict[Any, str]) -> None:
        self.torch, self.known, self.bodies = torch, known, dict[str, Program]()

    def step(self, node: Any) -> Step:
        if node.target is operator.getitem:
            given = {"self": self.value(node.args[0]), "index": node.args[1]}
            return Step(node.name, "getitem", given, self._results(node)[0], layer=_layer(node))
        results, several = self._results(node)
        name, args = self._name(node.target), dict(self._args(node))
        if name.startswith("as_strided"):
            args |= _memory_read(node.args[0].meta["val"], args.get("storage_offset"))
        return Step(node.name, name, args, results, several, _layer(node))

    def value(self, item: Any) -> Any:
        """An argument as plain data: values by name, element types by name, no devices."""
        torch = self.torch
        if isinstance(item, torch.fx.Node):
            held = self.bodies.get(item.name)
            return Ref(self.known.get(item.name, item.name)) if held is None else held
        if isinstance(item, (list, tuple)):
            return [self.value(i) for i in item]
        if isinstance(item, torch.dtype):
            return dtype_name(item)
        if isinstance(item, (torch.device, torch.layout, torch.memory_format)):
            return None
        return item

    def _args(self, node: Any) -> Iterator[tuple[str, Any]]:
        schema = getattr(node.target, "_schema", None)
        if schema is None:  # control flow and the like, which are refused by name
            yield from ((str(k), self.value(a)) for k, a in enumerate(node.args))
            return
        for k, argument in enumerate(schema.arguments):
            if k < len(node.args):
                yield argument.name, self.value(node.args[k])
            elif argument.name in node.kwargs:
                yield argument.name, self.value(node.kwargs[argument.name])
            elif argument.has_default_value():
                yield argument.name, self.value(argument.default_value)

    def _name(self, target: Any) -> str:
        name = str(target) if hasattr(target, "_schema") else getattr(target, "__name__", "?")
        return name.removeprefix("aten.")

    def _results(self, node: Any) -> tuple[tuple[Spec | None, ...], bool]:
        found = node.meta.get("val")
        several = isinstance(found, (list, tuple))
        values = found if isinstance(found, (list, tuple)) else [found]
        return tuple(self._of(v) for v in values), several

    def result(self, node: Any) -> Spec | None:
        """Of a node that gives one value."""
        return self._of(node.meta.get("val"))

    def _of(self, value: Any) -> Spec | None:
        torch = self.torch
        if isinstance(value, torch.Tensor):
            return _spec(value)
        kinds = {torch.SymInt: "int64", torch.SymFloat: "float64", torch.SymBool: "bool"}
        if (kind := kinds.get(type(value))) is not None:
            return Spec((), kind, str(value.node.expr))
        return None
