"""`relay.analysis.CallGraph`: which functions of a module call which.

In: a module.  Out: names and numbers.  Read next: `calls.py`.
"""

from __future__ import annotations

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function, IRModule, post_order
from tilewright_tvm.relay.functional.calls import name_of
from tilewright_tvm.relay.functional.nodes import Call


class CallGraph:
    """module: its functions call each other by what `mod[name] = function` was given, or by name
    (`relay.GlobalVar`).

    Prints as one line for each function with those that it calls.
    """

    @door(ModelError, "relay.analysis.CallGraph")
    def __init__(self, module: IRModule) -> None:
        self.module = module
        names = {function: str(name) for name, function in module.functions.items()}
        self._calls = {
            str(name): _called(function, names) for name, function in module.functions.items()
        }

    @door(ModelError, "CallGraph.ref_count")
    def ref_count(self, var: str) -> int:
        """How many functions call `var`, itself among them where it does."""
        return sum(self._known(var) in called for called in self._calls.values())

    @door(ModelError, "CallGraph.global_call_count")
    def global_call_count(self, var: str) -> int:
        """How many functions `var` calls, each counted once."""
        return len(self._calls[self._known(var)])

    @door(ModelError, "CallGraph.is_recursive")
    def is_recursive(self, var: str) -> bool:
        """Whether `var` calls itself, not by way of another."""
        return self._known(var) in self._calls[var]

    @door(ModelError, "CallGraph.print_var")
    def print_var(self, var: str) -> str:
        """How often `var` is called, and what it calls, as text."""
        called = "".join(f"\n  calls @{name}" for name in self._calls[self._known(var)])
        return f"@{var} #refs = {self.ref_count(var)}{called}"

    def __str__(self) -> str:
        return "\n".join(map(self.print_var, self._calls))

    def _known(self, var: str) -> str:
        self.module[var]  # refuses what is not there
        return str(var)


def _called(function: Function, names: dict[Function, str]) -> list[str]:
    """The functions of a module that one calls, in order, each once."""
    found: dict[str, None] = {}
    done: set[Expr] = set()
    stack: list[Expr] = [function.body]
    while stack:
        for node in post_order(stack.pop()):
            if node in done:
                continue
            done.add(node)
            if isinstance(node, Call) and isinstance(node.op, Function):
                if node.op in names:
                    found[names[node.op]] = None
                else:  # one that is no function of the module, which may call those that are
                    stack.append(node.op.body)
            name = name_of(node)
            if name is not None:
                found[str(name)] = None
    return list(found)
