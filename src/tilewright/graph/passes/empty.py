"""Tensors without elements: no kernel makes or reads one.

In: any module.  Out: an equal one whose calls have elements in all they read and give.
Read next: `constants.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.graph.evaluate import evaluate_call
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    IRModule,
    TensorType,
    Tuple,
    TupleType,
    Type,
)
from tilewright.graph.op import call
from tilewright.graph.op.work import elements
from tilewright.graph.traversal import each_function, is_call, rewrite, unpacked, with_body

PUT = ("scatter_elements", "scatter_nd", "strided_set")


def drop_empty(mod: IRModule) -> IRModule:
    """Replace what tensors of extent 0 decide alone.

    x: (0, 3)   f(x): (0, 5)         ->  an empty constant
    x: (0, 3)   sum(x, axis=0)       ->  the constant zeros(3), the sum of nothing
    x: (0, 3)   concatenate((x, y))  ->  concatenate((y,))
    x: (0, 3)   y with x put into it ->  y
    """
    return each_function(mod, lambda f: with_body(f, rewrite(f.body, _visit)))


def _visit(old: Expr, node: Expr) -> Expr:
    if not isinstance(node, Call):
        return unpacked(node)
    kind = node.checked_type
    if elements(kind) == 0:
        return _empty(kind)
    if is_call(node, "concatenate") and isinstance(node.args[0], Tuple):
        parts = tuple(f for f in node.args[0].fields if elements(f.checked_type))
        same = len(parts) == len(node.args[0].fields)
        return node if same else call("concatenate", Tuple(parts), axis=node.attrs.axis)
    if is_call(node, *PUT) and any(elements(a.checked_type) == 0 for a in node.args):
        return node.args[0]
    given = [a for a in node.args if not isinstance(a, Constant)]
    if not given or any(elements(a.checked_type) for a in given):
        return node
    value = np.asarray(evaluate_call(node, [_array(a) for a in node.args]))
    assert isinstance(kind, TensorType)
    return Constant(np.ascontiguousarray(value, kind.dtype.storage).reshape(kind.shape))


def _empty(kind: Type) -> Expr:
    if isinstance(kind, TupleType):
        return Tuple([_empty(f) for f in kind.fields])
    return Constant(np.zeros(kind.shape, kind.dtype.storage))


def _array(value: Expr) -> Any:
    if isinstance(value, Constant):
        return value.data
    made = _empty(value.checked_type)
    return tuple(map(_array, made.fields)) if isinstance(made, Tuple) else _array(made)
