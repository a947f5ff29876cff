"""Values of functional networks, as programs give and get them.

In: arrays, values.  Out: values.  Tensors are arrays, tuples are lists.
Read next: `machine.py`, `program.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Function
from tilewright_tvm.relay.functional.nodes import Constructor

if TYPE_CHECKING:
    from tilewright_tvm.relay.functional.machine import Frame


class ConstructorValue:
    """A value of a data type.

    tag: which constructor of the type made it; fields: values; constructor: it itself
    """

    @door(ModelError)
    def __init__(self, tag: int, fields: Sequence[Any], constructor: Constructor) -> None:
        self.tag, self.fields, self.constructor = tag, list(fields), constructor
        if tag != constructor.tag or len(self.fields) != len(constructor.inputs):
            raise ModelError(
                f"ConstructorValue(tag={tag})",
                f"{constructor.name_hint} has tag {constructor.tag} and "
                f"{len(constructor.inputs)} fields", "Give constructor.tag and a value for each.",
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"{self.constructor.name_hint}({', '.join(map(repr, self.fields))})"


class Constructed(list[Any]):
    """A value of a data type as the virtual machine gives it: the list of its fields.

    tag: which constructor of the type made it
    """

    def __init__(self, fields: Sequence[Any], constructor: Constructor) -> None:
        super().__init__(fields)
        self.tag, self.constructor = constructor.tag, constructor


class RefValue:
    """A reference: what it holds is `value`."""

    def __init__(self, value: Any) -> None:
        self.value = value


class Closure:
    """A function with the values of the variables of others that it reads.

    frame: where they are; None where there are none
    """

    __slots__ = ("frame", "function")

    def __init__(self, function: Function, frame: Frame | None = None) -> None:
        self.function, self.frame = function, frame
