"""Which functions of a module are functional, and which call which.

In: functions and modules.  Out: functions; modules of ordinary functions, for builds.
Read next: `../graph/functional.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import Call, Expr, Function, GlobalVar, IRModule, post_order
from tilewright.relay.graph.functional import Apply, NamedFunction
from tilewright.relay.graph.later import CallByName

WAY_OUT = 'Run it with relay.create_executor("vm", mod) or relay.vm.compile.'


def is_program(function: Function) -> bool:
    """Whether it, or a function that it calls, is functional."""
    stack, done = [function], set[Function]()
    while stack:
        found = stack.pop()
        if found.is_functional:
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
    functional = [name for name, f in mod.functions.items() if f.is_functional]
    if not functional:
        return mod
    return IRModule({n: f for n, f in mod.functions.items() if n not in functional})


def called(node: Expr) -> Function | None:
    """The function that a node calls, or is, where that is known before it runs."""
    if isinstance(node, CallByName):
        return node.name.function
    if isinstance(node, Call) and isinstance(node.op, Function):
        return node.op
    if isinstance(node, Apply) and isinstance(node.op, GlobalVar):
        return node.op.function
    return node.name.function if isinstance(node, NamedFunction) else None
