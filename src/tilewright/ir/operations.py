"""The operations of expressions: what they are called and what they do to numbers.

In: nothing.  Out: tables by the `op` of a node.  Read next: `expr.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

# op -> (C-like spelling, numpy-free evaluation on Python scalars)
ARITHMETIC: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "add": ("+", operator.add),
    "sub": ("-", operator.sub),
    "mul": ("*", operator.mul),
    "div": ("/", operator.truediv),
    "floordiv": ("//", operator.floordiv),
    "floormod": ("%", operator.mod),
    "min": ("min", min),
    "max": ("max", max),
    "bitand": ("&", operator.and_), "bitor": ("|", operator.or_), "bitxor": ("^", operator.xor),
    "shl": ("<<", operator.lshift), "shr": (">>", operator.rshift),
}  # fmt: skip
BITWISE = ("bitand", "bitor", "bitxor", "shl", "shr")  # of integers only
COMPARE: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "eq": ("==", operator.eq), "ne": ("!=", operator.ne), "lt": ("<", operator.lt),
    "le": ("<=", operator.le), "gt": (">", operator.gt), "ge": (">=", operator.ge),
}  # fmt: skip
LOGIC: dict[str, tuple[str, Callable[[Any, Any], Any]]] = {
    "and": ("&&", lambda a, b: a and b),
    "or": ("||", lambda a, b: a or b),
}
BINARY = {**ARITHMETIC, **COMPARE, **LOGIC}

# Functions of one or two floating-point arguments that every back end and reference provides.
# "product" is a * b rounded by itself, which no multiply-add takes in, "tf32" what is left of a
# number in the operand of such an atom, rounded to the nearest, "two_to" 2**x as the units of GPUs
# know it, 0 below the normal numbers, "nearest" the nearest whole number of one up to 2**22; steps
# and lowering make all four.
FUNCTIONS: dict[str, int] = {
    "exp": 1, "log": 1, "sqrt": 1, "rsqrt": 1, "tanh": 1, "erf": 1, "abs": 1, "floor": 1, "ceil": 1,
    "round": 1, "pow": 2, "sin": 1, "cos": 1, "tan": 1, "asin": 1, "acos": 1, "atan": 1, "sinh": 1,
    "cosh": 1, "asinh": 1, "acosh": 1, "atanh": 1, "fmod": 2,
    "product": 2, "tf32": 1, "two_to": 1, "nearest": 1,
}  # fmt: skip
