"""The weights of a graph of PyTorch: part of the graph, and whether they are what they were.

In: graphs and tensors of PyTorch.  Out: graphs whose calls pass no weights, and a question that is
asked at every call, so it has to be quick.  Read next: `compile.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Mapping, MutableSet, Sequence
from operator import attrgetter
from typing import Any

Question = Callable[[Sequence[Any]], bool]


def is_static(node: Any) -> bool:
    """Whether an input of a graph is a weight: the same tensor at every call."""
    return "_dynamo_static_input_type" in (node.meta.get("tensor_dict") or {})


def bind(torch: Any, gm: Any, example_inputs: Sequence[Any]) -> None:
    """Make the weights among the inputs attributes of the graph, while Dynamo compiles it.

    Dynamo would compare type and shape of each weight at every call and pass all of them.  Now it
    asks whether each is the same object, which is quicker, and compiles again where one is not.
    A `guard_filter_fn` that drops guards on modules drops that, too: then weights may be written
    to, not replaced.  Where this PyTorch keeps no such guards, the weights stay inputs.
    """
    context = torch._guards.TracingContext.try_get()
    guards = getattr(getattr(context, "guards_context", None), "dynamo_guards", None)
    held = getattr(guards, "inner", None)
    if not isinstance(held, MutableSet):
        return
    inputs = [n for n in gm.graph.nodes if n.op == "placeholder"]
    first = next(n for n in gm.graph.nodes if n.op != "placeholder")
    sources = []
    for node, value in zip(inputs, example_inputs, strict=True):
        source = getattr(node.meta.get("grapharg"), "source", None)
        if not is_static(node) or source is None or hasattr(gm, node.name):
            continue
        setattr(gm, node.name, value)
        with gm.graph.inserting_before(first), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of tensors that are neither parameters nor buffers
            node.replace_all_uses_with(gm.graph.get_attr(node.name))
        gm.graph.erase_node(node)
        sources.append(source)
    gm.recompile()
    same_object = torch._dynamo.guards.GuardBuilder.ID_MATCH
    bound = set(sources)
    for guard in [g for g in held if g.originating_source in bound]:
        if guard.create_fn_name() == "TENSOR_MATCH":
            held.discard(guard)
    for source in sources:
        held.add(source.make_guard(same_object))


def lifted(torch: Any, gm: Any, numbers: Mapping[int, float]) -> tuple[Any, list[Any]]:
    """The graph that takes the tensors among its attributes as inputs, behind its own ones, and
    these tensors.  So an exporter sees what is written to them, and writes to none itself.

    numbers: by position, inputs that are numbers in a tensor, and what they are
    """
    graph, held = torch.fx.Graph(), list[Any]()
    graph.output(graph.graph_copy(gm.graph, {}))
    _with_real_autocast(torch, graph)
    nodes = list(graph.nodes)
    inputs = [n for n in nodes if n.op == "placeholder"]
    for k, number in numbers.items():
        for user in list(inputs[k].users):
            if user.op == "call_method" and user.target == "item":
                user.replace_all_uses_with(number)
                graph.erase_node(user)
    last = inputs[-1] if inputs else None
    for node in nodes:
        value = attrgetter(str(node.target))(gm) if node.op == "get_attr" else None
        if isinstance(value, torch.Tensor):
            with graph.inserting_after(last) if last else graph.inserting_before(nodes[0]):
                last = graph.placeholder(f"held_{len(held)}")
            node.replace_all_uses_with(last)
            graph.erase_node(node)
            held.append(value)
    return torch.fx.GraphModule(gm, graph), held


def cast_inside(torch: Any, gm: Any, kind: str, dtype: Any) -> None:
    """Have the graph compute under `torch.autocast(kind, dtype)` wherever it is traced."""
    nodes = list(gm.graph.nodes)
    with gm.graph.inserting_before(next(n for n in nodes if n.op != "placeholder")):
        entered = gm.graph.call_function(
            torch.amp.autocast_mode._enter_autocast, (kind, dtype, True, None)
        )
    with gm.graph.inserting_before(nodes[-1]):
        gm.graph.call_function(torch.amp.autocast_mode._exit_autocast, (entered,))
    _with_real_autocast(torch, gm.graph)
    gm.recompile()


def _with_real_autocast(torch: Any, graph: Any) -> None:
    """Where PyTorch's own functions are traced they are noted, not entered, and what is computed
    between them is taken for of another type than it is."""

    def enter(*given: Any) -> Any:
        mode = torch.amp.autocast(*given)
        mode.__enter__()
        return mode

    def leave(mode: Any) -> None:
        mode.__exit__(None, None, None)

    own = torch.amp.autocast_mode
    for node in graph.nodes:
        if node.target is own._enter_autocast:
            node.target = enter
        elif node.target is own._exit_autocast:
            node.target = leave


def is_number(node: Any) -> bool:
    """Whether an input of a graph is a float of Python's, which is passed in a tensor and read from
    it.  numpy's arrays and numbers are passed in tensors, too, and are tensors to the graph."""
    passed = bool(getattr(node.meta.get("grapharg"), "pass_arg_as_tensor", False))
    return passed and all(u.op == "call_method" and u.target == "item" for u in node.users)


def attributes(gm: Any) -> list[Any]:
    """What the nodes of a graph take from its module: tensors where PyTorch made weights part of
    the graph."""
    return [attrgetter(str(n.target))(gm) for n in gm.graph.nodes if n.op == "get_attr"]


def unchanged(torch: Any, tensors: Sequence[Any]) -> Question:
    """Whether others are `tensors` as they are now: the same memory, not written to since.

    PyTorch counts what is written through a tensor and its views, not what is written through
    `.data`, and nothing for tensors that were made in inference mode.
    """
    held = [t.detach() for t in tensors]  # while they are, no other tensor gets their addresses
    address, version = torch.Tensor.data_ptr, attrgetter("_version")
    addresses, places = list(map(address, held)), list(range(len(held)))
    at_once = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)  # with CUDA only

    def same_memory(given: Sequence[Any]) -> bool:
        if at_once is not None and held:
            return bool(at_once(list(given), addresses, places))
        return list(map(address, given)) == addresses

    if any(t.is_inference() for t in tensors):
        return same_memory
    versions = list(map(version, tensors))
    return lambda given: list(map(version, given)) == versions and same_memory(given)
