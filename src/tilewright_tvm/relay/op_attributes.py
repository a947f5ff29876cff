"""What users know of operators beyond their rows: attributes by name, such as "FTVMLegalize".

In: an operator's name, an attribute's, a value.  Out: the value.  `relay.transform.Legalize` and
`AlterOpLayout` ask for functions that were registered so.  Read next:
`transform/legalize.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.graph.op import Op

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


def _of_row(row: Op, attr_name: str) -> Any:
    """Give what was registered for the operator by that name, None where nothing was."""
    return attribute(row.name, attr_name)


def _set_of_row(row: Op, attr_name: str, value: Any, plevel: int = DEFAULT_LEVEL) -> None:
    """Register `value`, unless something of a higher level is."""
    set_attribute(row.name, attr_name, value, plevel)


def _reset_of_row(row: Op, attr_name: str) -> None:
    """Forget what was registered."""
    reset_attribute(row.name, attr_name)


# Names that TVM has on operators.
OF_ROWS: dict[str, Any] = {
    "num_inputs": property(lambda row: len(row.inputs)),
    "get_attr": _of_row,
    "set_attr": _set_of_row,
    "reset_attr": _reset_of_row,
}
