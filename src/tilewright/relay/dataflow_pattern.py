"""Patterns of graphs, under TVM's name: what an expression looks like, and what becomes of it.

In: patterns made of `is_op`, `wildcard` and the others; expressions and functions.  Out: whether
they match, rewritten expressions, parts put into functions of their own.
Read next: `passes/matching.py` (how patterns are matched), `passes/partition.py`.
"""

from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError, absent
from tilewright.relay.passes.matching import (
    AltPattern,
    AttrPattern,
    CallPattern,
    ConstantPattern,
    DataTypePattern,
    DFPattern,
    DominatorPattern,
    ExprPattern,
    FunctionPattern,
    IfPattern,
    ShapePattern,
    TupleGetItemPattern,
    TuplePattern,
    TypePattern,
    VarPattern,
    WildcardPattern,
    dominates,
    has_attr,
    has_dtype,
    has_shape,
    has_type,
    is_constant,
    is_expr,
    is_if,
    is_op,
    is_tuple,
    is_tuple_get_item,
    is_var,
    match,
    wildcard,
)
from tilewright.relay.passes.partition import DFPatternCallback, partition, rewrite

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern",
    "DFPatternCallback", "DataTypePattern", "DominatorPattern", "ExprPattern", "FunctionPattern",
    "IfPattern", "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern",
    "VarPattern", "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape",
    "has_type", "is_constant", "is_expr", "is_if", "is_op", "is_tuple",
    "is_tuple_get_item", "is_var", "match", "partition", "rewrite", "wildcard",
]  # fmt: skip

open_doors(globals(), [n for n in __all__ if n[0].islower()], ModelError)

_ELSEWHERE = dict.fromkeys(
    ("is_let", "LetPattern"),
    "Values stand where relay.Let names them: match the body, with the value's pattern there.",
)


def __getattr__(name: str) -> Any:
    raise absent("relay.dataflow_pattern", name, _ELSEWHERE)
