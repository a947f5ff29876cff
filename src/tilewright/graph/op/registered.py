"""What users know of operators beyond their rows: attributes by name, such as "FTVMLegalize".

In: an operator's name, an attribute's, a value.  Out: the value.  `relay.transform.Legalize` and
`AlterOpLayout` ask for functions that were registered so.  Read next:
`tilewright_tvm/relay/transform/legalize.py`.
"""

from __future__ import annotations

from typing import Any

DEFAULT_LEVEL = 10
GRADIENT = "FPrimalGradient"  # the attribute that has the gradient of an operator, under TVM's name

# (operator, attribute) of operators that have no row and ask for one attribute all the same.
ROWLESS: set[tuple[str, str]] = set()

_VALUES: dict[tuple[str, str], tuple[int, Any]] = {}  # (operator, attribute) -> (level, value)


def attribute(op_name: str, key: str) -> Any:
    """The attribute `key` of an operator; None where it has none."""
    return _VALUES.get((op_name, key), (0, None))[1]


def set_attribute(op_name: str, key: str, value: Any, level: int = DEFAULT_LEVEL) -> None:
    """Give an operator an attribute; one of a higher level stays."""
    known, _ = _VALUES.get((op_name, key), (level, None))
    if level >= known:
        _VALUES[op_name, key] = level, value


def reset_attribute(op_name: str, key: str) -> None:
    """Take an attribute away, whatever its level."""
    _VALUES.pop((op_name, key), None)


def has_attribute(key: str) -> bool:
    """Whether any operator has it."""
    return any(known == key for _, known in _VALUES)
