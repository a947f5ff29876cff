"""What one row of the operator table holds, and how a use of it is typed.

In: argument types and attributes.  Out: the result type, or a ModelError that names the operator,
its arguments with their shapes, and a way out.  Read next: `elementwise.py`, `nn.py`,
`reduction.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Attrs,
    Expr,
    Function,
    TensorType,
    TupleType,
    Type,
    check_dtype,
    oversize,
)


class Pattern(IntEnum):
    """How an operator may share a kernel, in rising order of what stands against it.

    ELEMENTWISE  one element in, the same element out
    BROADCAST    elementwise after stretching an operand
    INJECTIVE    moves elements; each result is one element of an argument
    REDUCTION    many elements in, one out; elementwise consumers may follow in its kernel
    ANCHOR       a contraction or pooling with its own schedule; elementwise consumers may follow
    OPAQUE       has its kernel to itself
    """

    ELEMENTWISE = 0
    BROADCAST = 1
    INJECTIVE = 2
    REDUCTION = 3
    ANCHOR = 4
    OPAQUE = 5


class Site:
    """One use of an operator: what a type rule reads, and how it refuses."""

    def __init__(self, op: Op, types: Sequence[Type], attrs: Attrs) -> None:
        self.op, self.types, self.attrs = op, tuple(types), attrs

    @property
    def place(self) -> str:
        """`nn.dense(data=(1, 64) float32, weight=(10, 32) float32, ...)`."""
        shown = [f"{n}={_brief(t)}" for n, t in zip(self.op.inputs, self.types, strict=False)]
        changed = (  # an array, which is no right attribute, has no one answer to !=
            (k, v) for k, v in self.attrs.items()
            if isinstance(v, np.ndarray) or v != self.op.attrs.get(k)
        )  # fmt: skip
        shown += [f"{k}={v!r}" for k, v in changed]
        return f"{self.op.name}({', '.join(shown)})"

    def refuse(self, reason: str, way_out: str = "") -> ModelError:
        return ModelError(self.place, reason, way_out)

    def require(self, holds: bool, reason: str, way_out: str = "") -> None:
        if not holds:
            raise self.refuse(reason, way_out)

    def tensor(self, index: int, rank: int | None = None, dims: str = "") -> TensorType:
        """The type of argument `index`, a tensor of `rank` dimensions (called `dims`)."""
        found, name = self.types[index], self.op.inputs[index]
        if not isinstance(found, TensorType):
            raise self.refuse(
                f"{name} is a tuple, a tensor is needed", "Pick one of its values with [0]."
            )
        if rank is not None and len(found.shape) != rank:
            raise self.refuse(
                f"{name} has {len(found.shape)} dimensions, "
                f"not the {rank} of {dims or 'its place'}",
                "Reshape it, or name its layout.",
            )
        return found

    def tensors(self, index: int) -> tuple[TensorType, ...]:
        """The types in argument `index`, a tuple of tensors."""
        found = self.types[index]
        fields = found.fields if isinstance(found, TupleType) else ()
        tensors = tuple(f for f in fields if isinstance(f, TensorType))
        if not fields or len(tensors) != len(fields):
            raise self.refuse(
                f"{self.op.inputs[index]} is not a tuple of tensors",
                "Pass a list of them.",
            )
        return tensors

    def same_dtype(self, *types: TensorType) -> DType:
        """The one element type of `types` (all arguments if left out)."""
        among = types or tuple(self.tensor(i) for i in range(len(self.types)))
        self.require(
            len({t.dtype for t in among}) == 1,
            "the element types differ",
            "Cast one of them.",
        )
        return among[0].dtype

    def float_dtype(self, *types: TensorType) -> DType:
        """`same_dtype`, which must be a floating-point one."""
        dtype = self.same_dtype(*types)
        self.require(
            dtype.is_float,
            f"{dtype} is not a floating-point type",
            "Cast it to float32.",
        )
        return dtype

    def number_dtype(self, *types: TensorType) -> DType:
        """`same_dtype`, which must not be bool."""
        dtype = self.same_dtype(*types)
        self.require(dtype != "bool", "there is no arithmetic on bool", "Cast it.")
        return dtype

    def product_dtype(self) -> DType:
        """The element type of a sum of products: what attribute `out_dtype` asks for, else that of
        floating-point arguments, else the integer that holds sums of theirs.  Bytes may be signed
        and not where it is asked for."""
        asked = self.attrs.get("out_dtype")
        kinds = [self.tensor(i).dtype for i in range(len(self.types))]
        bytes_of_two = bool(asked) and set(kinds) == {"int8", "uint8"}
        dtype = kinds[0] if bytes_of_two else self.number_dtype()
        if asked is None or (isinstance(asked, str) and not asked):
            return dtype if dtype.is_float else dtype.accumulator
        wanted = check_dtype(asked, self.place)
        self.require(
            wanted.kind == dtype.accumulator.kind
            and wanted.bits >= (dtype if dtype.is_float else dtype.accumulator).bits,
            f"out_dtype={str(wanted)!r} does not hold sums of {dtype}",
            f"Use {str(dtype.accumulator)!r}.",
        )
        return wanted

    def axis(self, axis: int, rank: int) -> int:
        """`axis` counted from the front."""
        self.require(
            -rank <= axis < rank, f"axis {axis} is out of range", f"Use {-rank} to {rank - 1}."
        )
        return axis % rank


def _brief(t: Type) -> str:
    if isinstance(t, TensorType):
        return f"{t.shape} {t.dtype}"
    return f"({', '.join(map(_brief, t.fields))})"


TypeRule = Callable[[Site], Type]
NumpyRule = Callable[[Sequence[Any], Attrs], Any]
TeRule = Callable[[Sequence[Any], Attrs, Type], Any]


@dataclass(frozen=True, eq=False)
class Op:
    """One operator.

    inputs:    names of the arguments; one that takes several tensors gets them as a Tuple
    attrs:     attribute names with their defaults
    type_rule: result type from argument types and attributes
    numpy:     its value on arrays (tuples of arrays), for the evaluator and for folding constants
    compute:   its value on te tensors (a one-element constant arrives as a Python number)
    onnx:      ONNX operators that mean this one; the first is what export writes
    view:      the result is the argument's memory under another shape: no kernel is needed
    reads:     how often its expression has the same argument
    follows:   attributes of TVM that follow from the arguments, from their types; calls show them
    """

    name: str
    inputs: tuple[str, ...]
    pattern: Pattern
    type_rule: TypeRule
    numpy: NumpyRule
    compute: TeRule
    doc: str
    attrs: Mapping[str, Any] = field(default_factory=dict)
    onnx: tuple[str, ...] = ()
    view: bool = False
    reads: int = 1
    follows: Callable[[Sequence[TensorType], Attrs], Mapping[str, Any]] | None = None

    def infer(self, args: tuple[Expr, ...], attrs: Attrs) -> Type:
        """The type of a call; ModelError when the arguments or attributes do not fit."""
        if len(args) != len(self.inputs):
            raise ModelError(
                self.name,
                f"{len(args)} arguments were given",
                f"It takes {', '.join(self.inputs)}.",
            )
        if unknown := sorted(set(attrs) - set(self.attrs)):
            raise ModelError(
                self.name,
                f"unknown attribute {unknown[0]}",
                f"It has {', '.join(self.attrs) or 'none'}.",
            )
        types = []
        for name, arg in zip(self.inputs, args, strict=True):
            if not isinstance(arg, Expr):
                raise ModelError(
                    f"{self.name}({name}={arg!r})", f"a {type(arg).__name__} is not a graph value",
                    "Wrap numbers and arrays: const(x).",
                )  # fmt: skip
            if isinstance(arg, Function):
                raise ModelError(
                    f"{self.name}({name}=)", "a function where a tensor is needed",
                    "Call it: f(x), or use its body.",
                )  # fmt: skip
            try:
                types.append(arg.checked_type)
            except ModelError as e:
                raise ModelError(f"{self.name}({name}={arg})", e.reason, e.way_out) from None
        site = Site(self, types, attrs)
        result = self.type_rule(site)
        for made in result.fields if isinstance(result, TupleType) else (result,):
            if isinstance(made, TensorType) and (reason := oversize(made.shape, made.dtype)):
                raise site.refuse(f"its result is too large: {reason}", "Use smaller extents.")
        return result

    def __repr__(self) -> str:
        return f"Op({self.name})"


def broadcast(site: Site, *shapes: tuple[int, ...]) -> tuple[int, ...]:
    """The common shape, by numpy's rule."""
    rank = max(map(len, shapes))
    padded = [(1,) * (rank - len(s)) + s for s in shapes]
    result = []
    for axis, extents in enumerate(zip(*padded, strict=True)):
        wide = {e for e in extents if e != 1}
        site.require(
            len(wide) <= 1,
            f"extents {' and '.join(map(str, sorted(wide)))} meet at axis {axis - rank}, none is 1",
            "Shapes are aligned at the last axis; use expand_dims or reshape on one of them.",
        )
        result.append(wide.pop() if wide else 1)
    return tuple(result)


def first_array(arrays: Sequence[Any]) -> Array:
    found: Array = arrays[0]
    return found
