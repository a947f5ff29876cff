"""Functions inside others become functions of the module.

In: a module.  Out: an equal one, of which no function has another in it.
Read next: `machine.py`, which needs none of this.
"""

from __future__ import annotations

from itertools import count

from tilewright.graph.expr import Expr, Function, GlobalVar, IRModule, Var, post_order
from tilewright.graph.traversal import rewrite, substitute
from tilewright_tvm.relay.functional.nodes import (
    Apply,
    Call,
    LetNode,
    NamedFunction,
    make_call,
    make_function,
)


def lambda_lift(mod: IRModule) -> IRModule:
    """Functions in functions get names; what they read becomes parameters.

    @main(y) { fn (x) { x + y } }  ->  @main(y) { @lifted_0(y) }  @lifted_0(y) { fn (x) { x + y } }
    """
    lifted = _Lifted(mod)
    functions = {name: lifted.without(f) for name, f in mod.functions.items()}
    return mod.with_functions({**functions, **lifted.made})


class _Lifted:
    """made: functions by their new names"""

    def __init__(self, mod: IRModule) -> None:
        self.made: dict[str, Function] = {}
        self._named = {f: name for name, f in mod.functions.items()}
        self._names = (n for n in (f"lifted_{k}" for k in count()) if n not in mod)
        self._done: dict[Function, Expr] = {}

    def without(self, function: Function) -> Function:
        """`function` without functions in it."""
        named = [n.value for n in post_order(function.body) if isinstance(n, LetNode)]

        def visit(old: Expr, node: Expr) -> Expr:
            if isinstance(old, LetNode) and isinstance(old.value, Function):
                return self._let(old, node)
            if isinstance(node, Function):
                return node if old in named else self.value(node)
            if isinstance(node, Call) and isinstance(node.op, Function):
                return self._call(node)
            return node

        return function.with_body(rewrite(function.body, visit))

    def value(self, function: Function, itself: Var | None = None) -> Expr:
        """What stands for a function inside: its name, or a call that gives it.

        itself: the variable by which it calls itself
        """
        if function in self._named:
            return NamedFunction(GlobalVar(self._named[function], function))
        if function not in self._done:
            name = GlobalVar(next(self._names))
            free = [v for v in function.free if v is not itself]
            stands = Apply(name, free) if free else NamedFunction(name)
            if itself is not None:
                function_body = substitute(function.body, {itself: stands})
                inner = self.without(function.with_body(function_body))
            else:
                inner = self.without(function)
            made = make_function(free, inner) if free else inner
            name.function = made
            self.made[name] = made
            self._done[function] = stands
        return self._done[function]

    def _let(self, old: LetNode, node: Expr) -> Expr:
        assert isinstance(old.value, Function) and isinstance(node, LetNode)
        return substitute(node.body, {old.var: self.value(old.value, old.var)})

    def _call(self, node: Call) -> Expr:
        assert isinstance(node.op, Function)
        if node.op in self._named:
            return node
        stands = self.value(node.op)
        if isinstance(stands, NamedFunction):
            return make_call(stands.name, node.args)
        return make_call(stands, node.args)
