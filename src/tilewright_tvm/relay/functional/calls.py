"""Which functions of a module are functional, and which call which.

In: functions and modules.  Out: functions; modules of ordinary functions, for builds.
Read next: `nodes.py`.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function, GlobalVar, IRModule, post_order
from tilewright_tvm.relay.functional.later import CallByName
from tilewright_tvm.relay.functional.nodes import Apply, Call, GeneralFunction, NamedFunction

WAY_OUT = 'Run it with relay.create_executor("vm", mod) or relay.vm.compile.'


def is_program(function: Function) -> bool:
    """Whether it, or a function that it calls, is functional."""
    stack, done = [function], set[Function]()
    while stack:
        found = stack.pop()
        if isinstance(found, GeneralFunction):
            return True
        done.add(found)
        calls = (called(n) for n in post_order(found.body))
        stack += [f for f in calls if f is not None and f not in done]
    return False


def tensors_only(mod: IRModule, place: str) -> IRModule:
    """The module without functional functions.  Raises ModelError where main is one or calls one:
    a build has tensors and operators only."""
    main = mod.functions.get("main")
    if main is not None and is_program(main):
        raise ModelError(
            place, "main has functions as values, data types, references or open types in it",
            WAY_OUT,
        )  # fmt: skip
    functional = [name for name, f in mod.functions.items() if isinstance(f, GeneralFunction)]
    if not functional:
        return mod
    return mod.with_functions({n: f for n, f in mod.functions.items() if n not in functional})


def used_functions(mod: IRModule, names: Iterable[str]) -> set[str]:
    """The names of functions, and of those of the module that they call or have as values.

    Raises ModelError for a name that the module does not have.
    """
    stack, used = list(names), set[str]()
    names_of = {f: name for name, f in mod.functions.items()}
    while stack:
        name = stack.pop()
        if name in used:
            continue
        used.add(str(name))
        for node in everything(mod[name].body):
            for found in (name_of(node), names_of.get(called(node))):  # type: ignore[arg-type]
                if found is not None and found in mod:
                    stack.append(found)
    return used


def name_of(node: Expr) -> str | None:
    """The name that a node calls, or is the function of."""
    if isinstance(node, Apply) and isinstance(node.op, GlobalVar):
        return node.op
    return node.name if isinstance(node, (CallByName, NamedFunction)) else None


def everything(body: Expr) -> list[Expr]:
    """The nodes under `body`, and those of functions in it, that have no name."""
    nodes = post_order(body)
    inside = [n if isinstance(n, Function) else getattr(n, "op", None) for n in nodes]
    return [*nodes, *(i for f in inside if isinstance(f, Function) for i in everything(f.body))]


def called(node: Expr) -> Function | None:
    """The function that a node calls, or is, where that is known before it runs."""
    if isinstance(node, CallByName):
        return node.name.function
    if isinstance(node, Call) and isinstance(node.op, Function):
        return node.op
    if isinstance(node, Apply) and isinstance(node.op, GlobalVar):
        return node.op.function
    return node.name.function if isinstance(node, NamedFunction) else None
