"""Derivatives of an element: what it changes by with each of the values that it is made of.

In: an expression, and which of its nodes are variable.  Out: the derivative by each, an expression.
Read next: `gradient.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr

Partials = dict[Expr, Expr]  # variable node -> derivative by it
Rule = Callable[[], Expr]


def partials(root: Expr, varies: Callable[[Expr], bool]) -> Partials:
    """The derivatives of `root`, a number of floating point, by every node that varies.

    Where it has none (a step, the edge of `abs`, two equal sides of `max`) that of one side is
    taken.  Raises ExpressionError for an operation without a rule.
    """
    known: dict[Expr, Partials] = {}
    todo = [root]
    while todo:  # children first, without recursion: chains may be long
        node = todo[-1]
        waiting = [] if varies(node) else [a for a in node.args if a not in known]
        if not waiting:
            known[node] = _of(node, varies(node), known)
            todo.pop()
        todo += waiting
    return known[root]


def _of(node: Expr, varies: bool, known: Mapping[Expr, Partials]) -> Partials:
    if varies:
        return {node: E.const(1.0, node.dtype)}
    found: Partials = {}
    if not node.dtype.is_float or node.op in ("read", "const", "var"):
        return found
    if node.op in ("select", "if_then_else"):
        test, *sides = node.args
        choose = E.select if node.op == "select" else E.if_then_else
        nothing = E.const(0.0, node.dtype)
        first, second = (known[side] for side in sides)
        for leaf in (*first, *second):
            found[leaf] = choose(test, first.get(leaf, nothing), second.get(leaf, nothing))
        return found
    args, rules = node.args, _rules
    if (power := _of_logistic(node)) is not None:
        args, rules = (power,), _logistic_rule
    inner = [known[a] for a in args]
    if not any(inner):
        return found
    for by, own in zip(rules(node), inner, strict=True):
        for leaf, value in own.items():
            part = times(by(), E.cast(node.dtype, value))
            found[leaf] = found[leaf] + part if leaf in found else part
    return found


def _of_logistic(node: Expr) -> Expr | None:
    """x of 1 / (1 + exp(x)): where exp(x) is infinite, the derivatives of its parts are no
    numbers, and their product is none."""
    if node.op != "div" or not _is_one(node.args[0]) or node.args[1].op != "add":
        return None
    one, power = node.args[1].args
    is_exp = power.op == "call" and power.attr == "exp"
    return power.args[0] if is_exp and _is_one(one) else None


def _is_one(node: Expr) -> bool:
    return node.op == "const" and bool(node.attr == 1)


def _logistic_rule(node: Expr) -> tuple[Rule, ...]:
    return (lambda: -(node * (1.0 - node)),)


def times(a: Expr, b: Expr) -> Expr:
    """Their product, or the one where the other is 1."""
    if a.op == "const" and a.attr == 1:
        return b
    return a if b.op == "const" and b.attr == 1 else a * b


def _rules(node: Expr) -> tuple[Rule, ...]:
    """The derivative by each argument, made only where it is needed."""

    def number(value: float) -> Expr:
        return E.const(float(value), node.dtype)

    name = node.attr if node.op == "call" else node.op
    x, *rest = node.args
    y = rest[0] if rest else x
    table: dict[str, tuple[Rule, ...]] = {
        "cast": (lambda: number(1),),
        "add": (lambda: number(1), lambda: number(1)),
        "sub": (lambda: number(1), lambda: number(-1)),
        "mul": (lambda: y, lambda: x),
        "div": (lambda: 1.0 / y, lambda: -node / y),
        "max": (lambda: _unit(x >= y, node), lambda: _unit(x < y, node)),
        "min": (lambda: _unit(x <= y, node), lambda: _unit(x > y, node)),
        "floormod": (lambda: number(1), lambda: -E.call("floor", x / y)),
        "fmod": (lambda: number(1), lambda: -_truncated(x / y)),
        "pow": (lambda: y * E.call("pow", x, y - 1.0), lambda: node * E.call("log", x)),
        "exp": (lambda: node,),
        "log": (lambda: 1.0 / x,),
        "sqrt": (lambda: 0.5 / node,),
        "rsqrt": (lambda: -0.5 * node / x,),
        "tanh": (lambda: 1.0 - node * node,),
        "erf": (lambda: 2.0 / math.sqrt(math.pi) * E.call("exp", -(x * x)),),
        "abs": (lambda: E.select(x >= 0.0, number(1), number(-1)),),
        "sin": (lambda: E.call("cos", x),),
        "cos": (lambda: -E.call("sin", x),),
        "tan": (lambda: 1.0 + node * node,),
        "asin": (lambda: E.call("rsqrt", 1.0 - x * x),),
        "acos": (lambda: -E.call("rsqrt", 1.0 - x * x),),
        "atan": (lambda: 1.0 / (1.0 + x * x),),
        "sinh": (lambda: E.call("cosh", x),),
        "cosh": (lambda: E.call("sinh", x),),
        "asinh": (lambda: E.call("rsqrt", x * x + 1.0),),
        "acosh": (lambda: E.call("rsqrt", x * x - 1.0),),
        "atanh": (lambda: 1.0 / (1.0 - x * x),),
    }
    for step in ("floor", "ceil", "round", "floordiv"):
        table[step] = (lambda: number(0),) * len(node.args)
    found = table.get(name)
    if found is None:
        raise ExpressionError(
            "te.gradient", f"{name} has no derivative here", "Declare it with te.compute."
        )
    return found


def _unit(holds: Expr, node: Expr) -> Expr:
    return E.cast(node.dtype, holds)


def _truncated(x: Expr) -> Expr:
    return E.select(x >= 0.0, E.call("floor", x), E.call("ceil", x))
