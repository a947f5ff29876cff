"""Patterns of graphs, under TVM's name: what an expression looks like, and what becomes of it.

In: patterns made of `is_op`, `wildcard` and the others; expressions and functions.  Out: whether
they match, rewritten expressions, parts put into functions of their own.
Read next: `relay/patterns/matching.py` (how patterns are matched), `relay/patterns/partition.py`.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Type
from tilewright_tvm.relay.patterns.let_pattern import LetPattern, is_let
from tilewright_tvm.relay.patterns.matching import (
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
from tilewright_tvm.relay.patterns.partition import DFPatternCallback, partition, rewrite

__all__ = [
    "AltPattern", "AttrPattern", "CallPattern", "ConstantPattern", "DFPattern",
    "DFPatternCallback", "DataTypePattern", "DominatorPattern", "ExprPattern", "FunctionPattern",
    "IfPattern", "LetPattern", "ShapePattern", "TupleGetItemPattern", "TuplePattern", "TypePattern",
    "VarPattern", "WildcardPattern", "dominates", "has_attr", "has_dtype", "has_shape",
    "has_type", "is_constant", "is_expr", "is_if", "is_let", "is_op", "is_tuple",
    "is_tuple_get_item", "is_var", "match", "partition", "rewrite", "wildcard",
]  # fmt: skip


def has_attr(attrs: Mapping[str, Any], pattern: DFPattern | None = None) -> AttrPattern:
    """What matches `pattern` (default: anything) and has these attributes."""
    return (wildcard() if pattern is None else pattern).has_attr(attrs)


def has_type(ttype: Type, pattern: DFPattern | None = None) -> TypePattern:
    """What matches `pattern` (default: anything) and has this type."""
    return (wildcard() if pattern is None else pattern).has_type(ttype)


def has_dtype(dtype: str, pattern: DFPattern | None = None) -> DataTypePattern:
    """What matches `pattern` (default: anything) and has this element type."""
    return (wildcard() if pattern is None else pattern).has_dtype(dtype)


def has_shape(shape: Sequence[int], pattern: DFPattern | None = None) -> ShapePattern:
    """What matches `pattern` (default: anything) and has this shape."""
    return (wildcard() if pattern is None else pattern).has_shape(shape)


open_doors(globals(), [n for n in __all__ if n[0].islower()], ModelError)

__path__: list[str] = []  # so that imports of other names say what to use, too
