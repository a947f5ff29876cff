"""Types of graph values: tensors, tuples of them, functions.

In: shapes and element types as users write them.  Out: frozen types of plain ints, of which equal
ones are equal.  Read next: `expr.py`, `extents.py` (open extents).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tilewright.base.doors import is_integer
from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import ExpressionError, ModelError
from tilewright.graph.extents import closed, known_part, open_axes, stand_in

Array = NDArray[Any]

# Of one tensor: numpy has no more axes, loops count in 32 bits, and what no process can address is
# an error, which leaves room for four open extents.
MAX_RANK, MAX_EXTENT, MAX_BYTES = 32, 2**31 - 1, 2**46


class Held(np.ndarray):
    """An array of numpy that also answers as one of `nd` does: the data of constants."""

    def numpy(self) -> Array:
        """The same numbers as a plain array of numpy."""
        return np.asarray(self)

    asnumpy = numpy


def as_array(value: Any) -> Array:
    """`value` as a numpy array: numbers, lists, arrays, constants, anything with `.numpy()`."""
    # an array's own `data` is its buffer, which bfloat16 has none of
    held = None if isinstance(value, np.ndarray) else getattr(value, "data", None)
    value = held if isinstance(held, np.ndarray) else value
    try:
        made = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        reason = "it holds no numbers" if made.dtype.hasobject or made.dtype.kind in "SU" else ""
    except ValueError as error:
        reason = str(error)
    if reason:
        raise ModelError(
            f"array of a {type(value).__name__}", f"it is none ({reason})",
            "Give numbers, or lists of one length.",
        )  # fmt: skip
    return made


def check_dtype(dtype: object, place: str) -> DType:
    """The element type called `dtype`; raises ModelError where networks may not have it."""
    try:
        return DType(dtype)
    except ExpressionError as error:
        raise ModelError(place, error.reason, error.way_out) from None


@dataclass(frozen=True)
class TensorType:
    """A dense tensor: `shape` in elements of `dtype`, row-major.

    shape: ints, or `relay.Any()` and `te.var` for what relay.build is told
    open_extents: the names of those, by axis; types that a graph infers have only what stands for
        them in `shape`
    """

    door_words = ("a TensorType", "TensorType(shape, dtype) makes one.")

    shape: tuple[int, ...]
    dtype: DType = FLOAT32
    open_extents: Mapping[int, str] = field(default_factory=dict, compare=False, repr=False)

    def __post_init__(self) -> None:
        if type(self.shape) is not tuple or any(type(n) is not int for n in self.shape):
            made = tensor_type(self.shape, FLOAT32, "relay.TensorType")
            object.__setattr__(self, "open_extents", made.open_extents)
            object.__setattr__(self, "shape", made.shape)
        if not isinstance(self.dtype, DType):  # a name, as users give it
            object.__setattr__(self, "dtype", check_dtype(self.dtype, "relay.TensorType"))

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    @property
    def nbytes(self) -> int:
        return self.size * self.dtype.bytes

    @property
    def concrete_shape(self) -> tuple[int, ...]:
        """The shape, under the name that TVM has for it where all of it is known."""
        return self.shape

    def __str__(self) -> str:
        if not self.shape:
            return str(self.dtype)
        return f"Tensor[({', '.join(map(str, self.shape))}), {self.dtype}]"


@dataclass(frozen=True)
class TupleType:
    """Several values at once."""

    fields: tuple[Any, ...]  # types of tensors and tuples, where tensors are all there is

    def __post_init__(self) -> None:
        object.__setattr__(self, "fields", listed_types(self.fields, "relay.TupleType"))

    def __str__(self) -> str:
        last = "," if len(self.fields) == 1 else ""
        return f"({', '.join(map(str, self.fields))}{last})"


Type = TensorType | TupleType
AnyType = Any  # of any value: `Type`, or an `OtherType`


class OtherType:
    """Of a value that is no tensor: of functions, and what packages above add.

    words: what such a value is; way_out: how to get a tensor from it
    """

    __slots__ = ()

    way_out = "Take a tensor out of it."

    @property
    def words(self) -> str:
        return f"a value of type {self}"

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        """Whether `other` is this type; there: which bound variable of it stands for one of
        this."""
        raise NotImplementedError

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OtherType) and self.is_same(other, {})

    def __hash__(self) -> int:
        return hash(type(self).__name__)


class FuncType(OtherType):
    """What a function takes and gives; `Function.checked_type`.

    type_params: the variables that each call may put other types for
    """

    __slots__ = ("arg_types", "ret_type", "type_params")

    words, way_out = "a function", "Call it: f(x), or use its body."

    def __init__(
        self,
        arg_types: Sequence[AnyType],
        ret_type: AnyType,
        type_params: Sequence[Any] | None = None,
        type_constraints: Sequence[Any] | None = None,
    ) -> None:
        if type_constraints:
            raise ModelError(
                "relay.FuncType", "type_constraints are given", "Leave them out: operators have "
                "rules of their own.",
            )  # fmt: skip
        self.arg_types = listed_types(arg_types, "relay.FuncType")
        self.ret_type: AnyType = ret_type
        self.type_params = tuple(type_params or ())

    def is_same(self, other: Any, there: Mapping[Any, Any]) -> bool:
        if type(other) is not FuncType or len(self.type_params) != len(other.type_params):
            return False
        there = {**there, **dict(zip(self.type_params, other.type_params, strict=True))}
        mine, others = (*self.arg_types, self.ret_type), (*other.arg_types, other.ret_type)
        return all_same(mine, others, there)

    def __str__(self) -> str:
        bound = f"[{', '.join(map(str, self.type_params))}]" if self.type_params else ""
        return f"fn {bound}({', '.join(map(str, self.arg_types))}) -> {self.ret_type}"

    __repr__ = __str__


def listed_types(types: Any, place: str) -> tuple[AnyType, ...]:
    """Types as a tuple; one alone is one.  Raises ModelError for what is none."""
    found = tuple(types) if isinstance(types, Sequence) and not isinstance(types, str) else (types,)
    if wrong := [t for t in found if not isinstance(t, TensorType | TupleType | OtherType)]:
        raise ModelError(
            f"{place}({wrong[0]!r})", "it is no type of a value",
            "Give a list of TensorType(shape, dtype), or of other types.",
        )  # fmt: skip
    return found


def holds_other(kind: object) -> bool:
    """Whether values of this type are, or have in them, something that is no tensor."""
    if isinstance(kind, TupleType):
        return any(map(holds_other, kind.fields))
    return isinstance(kind, OtherType)


def same_type(a: AnyType, b: AnyType, there: Mapping[Any, Any] | None = None) -> bool:
    """Whether they are one type; there: which bound variable of `b` stands for one of `a`."""
    there = {} if there is None else there
    if isinstance(a, TupleType) and isinstance(b, TupleType):
        return all_same(a.fields, b.fields, there)
    return a.is_same(b, there) if isinstance(a, OtherType) else bool(a == b)


def all_same(some: Sequence[AnyType], others: Sequence[AnyType], there: Mapping[Any, Any]) -> bool:
    """Whether types are the same in order."""
    pairs = zip(some, others, strict=False)
    return len(some) == len(others) and all(same_type(a, b, there) for a, b in pairs)


class Waiting:
    """Of a node whose type values decide, which are known when the network runs."""

    def __repr__(self) -> str:
        return "of a type that values decide"


WAITING = Waiting()


class IncompleteType:
    """Of a variable whose first operator tells its type: the same as to leave the type out."""


def tensor_type(shape: Any, dtype: DType, place: str) -> TensorType:
    """The type of a shape that a user gives, with open extents or without."""
    extents = static_shape(closed(shape, stand_in), place)
    return TensorType(extents, dtype, open_axes(shape))


def scalar_type(dtype: str) -> TensorType:
    """The type of one number."""
    return TensorType((), check_dtype(dtype, "relay.scalar_type"))


def static_shape(shape: Any, place: str) -> tuple[int, ...]:
    """`shape` as a tuple of ints; a tensor with an extent of 0 has no elements."""
    if hasattr(shape, "as_numbers"):  # a value of a graph that is known
        known = shape.as_numbers()
        if known is None:
            shape.await_numbers(lambda like: True)
        shape = shape if known is None else known
    items = tuple(shape) if isinstance(shape, (tuple, list)) else (shape,)
    for extent in items:
        if not is_integer(extent) or int(extent) < 0:
            raise ModelError(
                place,
                f"shape {items} has the extent {extent!r}",
                "Every extent is an int of at least 0.",
            )
    found = tuple(int(e) for e in items)
    if reason := oversize(found, FLOAT32):
        raise ModelError(place, f"the shape is too large: {reason}", "Use smaller extents.")
    return found


def oversize(shape: tuple[int, ...], dtype: DType) -> str:
    """What is beyond the limits of a tensor; empty if nothing."""
    if len(shape) > MAX_RANK:
        return f"{len(shape)} dimensions, at most {MAX_RANK} are possible"
    nbytes = math.prod(shape) * dtype.bytes
    if nbytes > MAX_EXTENT:  # what open extents multiply to is told when they are numbers
        shape = tuple(map(known_part, shape))
        nbytes = math.prod(shape) * dtype.bytes
    if max(shape, default=0) > MAX_EXTENT:
        return f"an extent of {max(shape)}, loops count to {MAX_EXTENT}"
    return f"{nbytes} bytes, of {MAX_BYTES} at most" if nbytes > MAX_BYTES else ""
