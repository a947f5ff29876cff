"""`relay.adt`: data types and `match`, where TVM has them.

Read next: `relay/functional/nodes.py`, `relay/functional/data_types.py`.
"""

from tilewright_tvm.relay.functional.data_types import TypeData
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    Constructor,
    Match,
    Pattern,
    PatternConstructor,
    PatternTuple,
    PatternVar,
    PatternWildcard,
)

__all__ = [
    "Clause", "Constructor", "Match", "Pattern", "PatternConstructor", "PatternTuple", "PatternVar",
    "PatternWildcard", "TypeData",
]  # fmt: skip
