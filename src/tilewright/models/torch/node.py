"""One call of an ATen operator as its converter sees it.

In: a step of the program and what it reads.  Out: graph values, numbers, refusals that name it.
Read next: `ops/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.deferred import computed
from tilewright.graph.expr import Array, Constant, Expr
from tilewright.graph.functions import tensor
from tilewright.graph.leaves import const
from tilewright.graph.op.work import nbytes
from tilewright.models.torch.program import Spec

_KINDS = {"bool": 0, "uint": 1, "int": 1, "float": 2}
# Complex types, and the type of their parts.
PARTS = {"complex32": "float16", "complex64": "float32", "complex128": "float64"}


@dataclass(frozen=True)
class Complex:
    """A tensor of complex numbers, which networks have as two.  imag: None where it is zero."""

    real: Expr
    imag: Expr | None


@dataclass(frozen=True)
class Node:
    """place: of errors; args: by the schema's names, tensors as graph values

    static_of: the array of a value that is known at import, else None
    room:      asks for bytes of a constant that is about to be made
    """

    op: str
    place: str
    args: Mapping[str, Any]
    results: tuple[Spec | None, ...]
    static_of: Callable[[Expr], Array | None]
    room: Callable[[int], None]

    def __getitem__(self, name: str) -> Expr:
        """Argument `name`, a tensor; a number becomes a constant."""
        value = self.args.get(name)
        if isinstance(value, Expr):
            return value
        if isinstance(value, (bool, int, float)):
            return const(value)
        kind = "complex" if isinstance(value, Complex) else repr(value)
        raise self.refuse(f"its argument {name} is {kind}, not a tensor of real numbers")

    def optional(self, name: str) -> Expr | None:
        return None if self.args.get(name) is None else self[name]

    def get(self, name: str, default: Any = None) -> Any:
        """Argument `name` as it is; `default` where it is None or left out."""
        value = self.args.get(name)
        return default if value is None else value

    def integer(self, name: str, default: int | None = None) -> int:
        value = self.get(name, default)
        self.require(isinstance(value, int), f"{name}={value!r} is not an int")
        return int(value)

    def ints(self, name: str, rank: int | None = None) -> tuple[int, ...]:
        """Integers; one alone stands for `rank` equal ones, none for no argument."""
        value = self.get(name, ())
        items = tuple(value) if isinstance(value, (tuple, list)) else (value,)
        for v in items:
            self.require(isinstance(v, int), f"{name}={value!r} is computed by the network")
        return items * rank if rank is not None and len(items) == 1 else items

    def axis(self, name: str = "dim", rank: int | None = None, default: int | None = None) -> int:
        """The axis `name` of argument `self`, counted from the front."""
        n = len(self["self"].shape) if rank is None else rank
        return self._from_front(self.integer(name, default), max(n, 1))

    def _from_front(self, axis: int, rank: int) -> int:
        self.require(
            -rank <= axis < rank, f"axis {axis} is out of range", f"Use {-rank} to {rank - 1}."
        )
        return axis % rank

    def axes(self, name: str = "dim") -> tuple[int, ...] | None:
        """The axes `name` of argument `self`, from the front; None for all.

        A tensor without axes may be asked for its axis 0 or -1, which means nothing.
        """
        rank = len(self["self"].shape)
        found = tuple(self._from_front(a, rank) for a in self.ints(name)) if rank else ()
        return found or None

    @property
    def result(self) -> Spec:
        found = self.results[0]
        assert found is not None
        return found

    @property
    def shape(self) -> tuple[int, ...]:
        """Extents of the result, all known."""
        for extent in self.result.shape:
            self.require(isinstance(extent, int), f"its result has the open extent {extent}")
        return tuple(int(n) for n in self.result.shape)

    @property
    def dtype(self) -> str:
        return self.result.dtype

    def computed(self, compute: Callable[..., Any], *parts: Expr, several: bool = False) -> Expr:
        """What a function of arrays gives, of shapes that their elements decide: an array, or a
        tuple of them where there are `several`."""
        known = [self.static_of(p) for p in parts]
        found = [p if a is None else Constant(a) for p, a in zip(parts, known, strict=True)]
        made = computed(self.place, compute, *found, several=several)
        self.room(0 if made.waits else nbytes(made.checked_type))
        return made

    def refuse(self, reason: str, way_out: str = "") -> ModelError:
        return ModelError(self.place, reason, way_out)

    def require(self, holds: bool, reason: str, way_out: str = "") -> None:
        if not holds:
            raise self.refuse(reason, way_out)


Converter = Callable[[Node], Any]


def first_of_several(converter: Converter) -> Converter:
    """Of an operator that gives more than networks read, such as statistics for training."""
    return lambda n: [converter(n), *[None] * (len(n.results) - 1)]


def as_type(value: Expr, dtype: str) -> Expr:
    """`value` with elements of `dtype`."""
    if value.dtype == dtype:
        return value
    if isinstance(value, Constant) and not value.shape:
        return const(value.data.item(), dtype)
    return tensor.cast(value, dtype)


def number(value: float | int | bool, dtype: str) -> Constant:
    """A number as PyTorch stores it in an element type: of integers, its whole part."""
    kind = DType(dtype)
    if kind == "bool":
        return const(bool(value), dtype)
    return const(float(value) if kind.is_float else int(value), dtype)


def common_type(values: Sequence[Any]) -> str:
    """The element type in which an operation of `values` (tensors and numbers) is done.

    The highest kind (bool, integer, float) decides; within it tensors with axes come before those
    without, and both before numbers of Python.
    """

    def kind_of(value: Any) -> int:
        if isinstance(value, Expr):
            return _KINDS[value.dtype.kind]
        return 0 if isinstance(value, bool) else 1 if isinstance(value, int) else 2

    highest = max(map(kind_of, values))
    ranks: tuple[list[DType], list[DType]] = ([], [])
    for v in values:
        if isinstance(v, Expr) and kind_of(v) == highest:
            ranks[0 if v.shape else 1].append(v.dtype)
    for found in ranks:
        if found:
            return str(_widest(found))
    return ("bool", "int64", "float32")[highest]


def _widest(types: Sequence[DType]) -> DType:
    wide = max(types, key=lambda t: t.bits)
    if {"float16", "bfloat16"} <= {str(t) for t in types} and wide.bits == 16:
        return DType("float32")
    signed = [t for t in types if t.kind == "int"]
    if wide.kind == "uint" and signed and all(t.bits <= wide.bits for t in signed):
        return DType(f"int{2 * wide.bits}") if wide.bits < 64 else wide
    return wide
