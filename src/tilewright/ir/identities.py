"""The identities by which expressions fold when they are made: a table of algebra.

In: nothing; the rows read left to right.  Out: `folds`, which turns them into one function per kind
of type and operation.  Rows of one operation are tried in order; the right side is made through the
same builders, so it folds again.  `tests/ir/test_identities.py` draws values for every row.
Read next: `affine.py`, for all that is cleverer.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

INTEGERS = ("int", "uint")
LOGICAL = ("bool",)
NUMBERS = ("int", "uint", "float")


@dataclass(frozen=True)
class Identity:
    """`left` equals `right` in every type of those kinds (see `DType.kind`), if `when` holds.

    x stands for any expression, the same one wherever it is written; m and n for constants.
    Integers wrap around where their type does.  A divisor x is not 0.
    """

    left: str
    right: str
    kinds: tuple[str, ...] = INTEGERS
    when: str = ""


IDENTITIES = (
    Identity("x + 0", "x"),
    Identity("m + x", "x + m"),
    Identity("(x + m) + n", "x + (m + n)"),
    Identity("(x - m) + n", "x + (n - m)"),
    Identity("x - 0", "x"),
    Identity("(x + m) - n", "x + (m - n)"),
    Identity("(x - m) - n", "x + (-m - n)"),
    Identity("x - n", "x + (-n)", ("int",), when="n < 0"),
    Identity("x - x", "0"),
    Identity("x * 0", "0"),
    Identity("x * 1", "x"),
    Identity("0 * x", "0"),
    Identity("1 * x", "x"),
    Identity("x // 1", "x"),
    Identity("x % 1", "0"),
    Identity("0 // x", "0"),
    Identity("0 % x", "0"),
    Identity("x & True", "x", LOGICAL),
    Identity("x & False", "False", LOGICAL),
    Identity("True & x", "x", LOGICAL),
    Identity("False & x", "False", LOGICAL),
    Identity("x & x", "x", LOGICAL),
    Identity("x | False", "x", LOGICAL),
    Identity("x | True", "True", LOGICAL),
    Identity("False | x", "x", LOGICAL),
    Identity("True | x", "True", LOGICAL),
    Identity("x | x", "x", LOGICAL),
    Identity("min(x, x)", "x", NUMBERS),
    Identity("max(x, x)", "x", NUMBERS),
)

_OPS: dict[type[ast.operator], str] = {
    ast.Add: "add", ast.Sub: "sub", ast.Mult: "mul", ast.FloorDiv: "floordiv", ast.Mod: "floormod",
    ast.BitAnd: "and", ast.BitOr: "or",
}  # fmt: skip

Fold = Callable[[Any, Any], Any]  # of both operands; None where no row applies


def folds(builders: Mapping[str, Callable[..., Any]]) -> dict[str, dict[str, Fold]]:
    """kind -> operation -> its rows as one function.

    builders: `binary(op, a, b)`, and `number(value, like)` for a constant of the type of `like`.
    """
    return {
        kind: {op: _function(op, rows, builders) for op, rows in _by_operation(kind).items()}
        for kind in (*LOGICAL, *NUMBERS)
    }


def _by_operation(kind: str) -> dict[str, list[Identity]]:
    found: dict[str, list[Identity]] = {}
    for row in IDENTITIES:
        if kind in row.kinds:
            found.setdefault(_parts(_parsed(row.left))[0], []).append(row)
    return found


def _function(op: str, rows: list[Identity], builders: Mapping[str, Callable[..., Any]]) -> Fold:
    """Python of the rows: folding happens at every step of lowering, so it must be quick."""
    lines = ["def fold(a, b):"]
    for row in rows:
        names: dict[str, str] = {}
        _, sides = _parts(_parsed(row.left))
        tests = [t for at, side in zip("ab", sides, strict=True) for t in _tests(side, at, names)]
        if row.when:
            tests.append(_number(_parsed(row.when), names))
        result = _made(_parsed(row.right), names)
        lines.append(f"    if {' and '.join(tests)}: return {result}  # {row.left} = {row.right}")
    namespace = dict(builders)
    exec(
        compile("\n".join([*lines, "    return None"]), f"<identities of {op}>", "exec"), namespace
    )
    return namespace["fold"]


def _parsed(text: str) -> ast.expr:
    return ast.parse(text, mode="eval").body


def _parts(node: ast.expr) -> tuple[str, list[ast.expr]]:
    """The operation and its operands."""
    if isinstance(node, ast.Call):
        return ast.unparse(node.func), node.args
    assert isinstance(node, ast.BinOp), ast.unparse(node)
    return _OPS[type(node.op)], [node.left, node.right]


def _tests(pattern: ast.expr, at: str, names: dict[str, str]) -> list[str]:
    """What must hold of the expression `at`; names: where each letter was found, grows."""
    if isinstance(pattern, ast.Constant):
        return [f"{at}.op == 'const'", f"{at}.attr == {pattern.value!r}"]
    if isinstance(pattern, ast.Name):
        if pattern.id in names:
            return [f"{at} is {names[pattern.id]}"]
        constant = pattern.id in "mn"
        names[pattern.id] = f"{at}.attr" if constant else at
        return [f"{at}.op == 'const'"] if constant else []
    op, sides = _parts(pattern)
    below = (_tests(side, f"{at}.args[{k}]", names) for k, side in enumerate(sides))
    return [f"{at}.op == {op!r}", *(test for tests in below for test in tests)]


def _made(node: ast.expr, names: Mapping[str, str]) -> str:
    """Python that makes the right side."""
    letters = {n.id for n in ast.walk(node) if isinstance(n, ast.Name)}
    if "x" not in letters:
        return f"number({_number(node, names)}, a)"
    if isinstance(node, ast.Name):
        return names[node.id]
    op, sides = _parts(node)
    return f"binary({op!r}, {', '.join(_made(side, names) for side in sides)})"


def _number(node: ast.expr, names: Mapping[str, str]) -> str:
    """Python arithmetic on the constants that were found."""

    class Found(ast.NodeTransformer):
        def visit_Name(self, name: ast.Name) -> ast.expr:
            return _parsed(names[name.id])

    return ast.unparse(Found().visit(node))
