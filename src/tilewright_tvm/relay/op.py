"""TVM's `relay.op`: the operator table, what users register for operators, and the functions that
call them, which are those of `relay`."""

from __future__ import annotations

import sys
from collections.abc import Callable
from importlib import import_module
from types import ModuleType
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent
from tilewright.graph import op as _table
from tilewright.graph.op import *  # noqa: F403
from tilewright.graph.op import TABLE, get
from tilewright_tvm.relay import op_attributes as registered

del register  # noqa: F821  # it takes rows; TVM's takes names

__path__: list[str] = []  # its modules are imported, too


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
        registered.set_attribute(row.name, attr_key, given, level)
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


# Folders of TVM's operators, by where their functions are here.
_FOLDERS = {
    "annotation": "relay.annotation", "dyn": "relay", "image": "relay.image",
    "random": "relay.random", "reduce": "relay", "tensor": "relay", "transform": "relay",
    "vision": "relay.vision", "nn": "relay.nn",
}  # fmt: skip


def __getattr__(name: str) -> Any:
    """Functions that call operators are those of `relay`, which TVM has here, too."""
    if name in _ELSEWHERE or name.startswith("__"):
        raise absent("relay.op", name, _ELSEWHERE)
    if name in _FOLDERS:
        return import_module(f"tilewright_tvm.{_FOLDERS[name]}")
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
    *(name for name in _table.__all__ if name != "register"),
    "register_alter_op_layout", "register_gradient", "register_legalize", "register_op_attr",
]  # fmt: skip
