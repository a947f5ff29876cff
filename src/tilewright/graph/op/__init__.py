"""The operator table: everything the compiler knows of an operator is its one row.

In: `get("nn.conv2d")`.  Out: the `Op` row; `call` applies one.  The rows are in the modules
imported here, by family; what a row holds is in `row.py`.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.graph.expr import Call, Constant, Expr
from tilewright.graph.leaves import const
from tilewright.graph.op import (
    conv,
    elementwise,
    indexing,
    movement,
    nn,
    normalize,
    pooling,
    ranking,
    reduction,
    regions,
    registered,
    resize,
    sampling,
)
from tilewright.graph.op.row import Op, Pattern

ROWS: tuple[Op, ...] = (
    *elementwise.ROWS,
    *reduction.ROWS,
    *movement.ROWS,
    *nn.ROWS,
    *normalize.ROWS,
    *conv.ROWS,
    *pooling.ROWS,
    *ranking.ROWS,
    *indexing.ROWS,
    *resize.ROWS,
    *sampling.ROWS,
    *regions.ROWS,
)
TABLE: dict[str, Op] = {row.name: row for row in ROWS}


def get(name: str) -> Op:
    """The row of operator `name`, for example ``get("nn.conv2d")``."""
    if name in TABLE:
        return TABLE[name]
    near = difflib.get_close_matches(name, TABLE, 3) or [n for n in TABLE if n.endswith(name)]
    hint = f"Near it: {', '.join(near)}." if near else "relay.op.TABLE lists all."
    raise ModelError(f"relay.op.get({name!r})", "there is no such operator", hint)


@door(ModelError, "relay.op.register_op_attr")
def register_op_attr(
    op_name: str, attr_key: str, value: Any = None, level: int = registered.DEFAULT_LEVEL
) -> Any:
    """Register an attribute of an operator: `register_op_attr("exp", "FTVMLegalize", function)`, or
    a decorator of the function.  One of a lower level than what is registered has no effect.

    Raises ModelError for an operator that is none.
    """
    if op_name.startswith("tir."):
        raise ModelError(
            f"register_op_attr({op_name!r}, {attr_key!r})",
            "functions of numbers inside kernels are a fixed set without attributes",
            "Leave it out: every target has te.exp, te.log, ...; te.compute makes others of them.",
        )
    row = get(op_name)

    def register(given: Any) -> Any:
        row.set_attr(attr_key, given, level)
        return given

    return register if value is None else register(value)


@door(ModelError, "relay.op.register_legalize")
def register_legalize(
    op_name: str, legal_op: Callable[..., Any] | None = None, level: int = registered.DEFAULT_LEVEL
) -> Any:
    """Register what `relay.transform.Legalize` calls for each call of an operator.

    legal_op: `f(attrs, inputs, types)` -> another value of the same type, or None
    """
    return register_op_attr(op_name, "FTVMLegalize", legal_op, level)


@door(ModelError, "relay.op.register_alter_op_layout")
def register_alter_op_layout(
    op_name: str,
    alter_layout: Callable[..., Any] | None = None,
    level: int = registered.DEFAULT_LEVEL,
) -> Any:
    """Register what `relay.transform.AlterOpLayout` calls for each call of an operator.

    alter_layout: `f(attrs, inputs, types, result_type)` -> another value of the same type, or the
        operator of these inputs in other layouts, or None
    """
    return register_op_attr(op_name, "FTVMAlterOpLayout", alter_layout, level)


@door(ModelError, "relay.op.register_gradient")
def register_gradient(
    op_name: str, fgradient: Callable[..., Any] | None = None, level: int = registered.DEFAULT_LEVEL
) -> Any:
    """Register what gives the gradients of an operator, or a decorator of it; it goes before the
    rule that the operator has.

    fgradient: `f(call, grad)` -> for each argument its gradient, of the argument's type; grad is
        that of the result
    """
    return register_op_attr(op_name, registered.GRADIENT, fgradient, level)


def call(op_name: str, *args: Any, **attrs: Any) -> Call:
    """The operator applied to `args`; attributes that are left out have their defaults."""
    row = get(op_name)
    return Call(row, args, {**row.attrs, **attrs})


def takes_numbers(node: Call) -> bool:
    """Whether `node` has two operands of which one may be a number: `x + 1`."""
    return isinstance(node.op, Op) and node.op.inputs == elementwise.OPERANDS


def same_dtype(lhs: Any, rhs: Any) -> tuple[Expr, Expr]:
    """Both operands as graph values; a number takes the other's element type."""
    if isinstance(lhs, Expr):
        return lhs, rhs if isinstance(rhs, Expr) else _like(rhs, lhs)
    if isinstance(rhs, Expr):
        return _like(lhs, rhs), rhs
    return const(lhs), const(rhs)


def _like(value: Any, other: Expr) -> Constant:
    return const(value, other.dtype if isinstance(value, (int, float)) else None)


# Folders of TVM's operators, by where their functions are here.
_FOLDERS = {
    "annotation": "relay.annotation", "dyn": "relay", "image": "relay.image",
    "random": "relay.random", "reduce": "relay", "tensor": "relay", "transform": "relay",
    "vision": "relay.vision",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Functions that call operators are those of `relay`, which TVM has here, too."""
    if name in _ELSEWHERE or name.startswith("__"):
        raise absent("relay.op", name, _ELSEWHERE)
    if name in _FOLDERS:
        return import_module(f"tilewright.{_FOLDERS[name]}")
    if name == "op":
        return sys.modules[__name__]
    found = vars(import_module("tilewright_tvm.relay")).get(name)
    if found is None or isinstance(found, ModuleType):
        known = next((n for n in (f"nn.{name}", f"image.{name}") if n in TABLE), None)
        raise absent("relay.op", name, {} if known is None else {name: f"Use relay.{known}."})
    return found


_ELSEWHERE = {
    "contrib": "Libraries of others are not called; kernels are compiled and tuned.",
    "strategy": "Use tilewright.schedule.template.anchor_template.",
    "memory": "relay.build plans memory by itself.",
    **dict.fromkeys(
        ("register", "register_compute", "register_strategy", "register_pattern",
         "register_injective_schedule"),
        "Operators are rows of relay.op.TABLE; a template is registered with autotvm.template.",
    ),
    "register_convert_op_layout": "Name the operator's layout in relay.transform.ConvertLayout, or "
    "use register_alter_op_layout.",
    "register_infer_correct_layout": "Leave it out: every operator follows its inputs' layouts.",
}  # fmt: skip

__all__ = [
    "ROWS", "TABLE", "Op", "Pattern", "call", "get", "register_alter_op_layout",
    "register_gradient", "register_legalize", "register_op_attr", "same_dtype", "takes_numbers",
]  # fmt: skip
