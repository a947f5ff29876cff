"""How every operator makes its stages, and how it describes itself for errors and tuning.

In: a shape and a function of the indices.  Out: a tensor with the axis names that TVM users know.
Read next: `elementwise.py` for the simplest users, `nn/conv2d.py` for the others.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from typing import Any

from tilewright import te
from tilewright.base import doors
from tilewright.base.dtype import DType, join
from tilewright.base.errors import ExpressionError, ScheduleError, TilewrightError
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import may_hold, simplifier
from tilewright.schedule.workload import plain
from tilewright.te.tensor import ComputeOp, Tensor, compute

Indices = tuple[Expr, ...]
Body = Callable[[Indices], Any]


def stage(
    shape: Sequence[int],
    body: Body,
    name: str,
    tag: str,
    *,
    axes: str | Sequence[str] = "ax",
    workload: list[Any] | None = None,
    attrs: Mapping[str, Any] | None = None,
) -> Tensor:
    """A computed tensor: `body` maps a tuple of indices to the element there.

    axes: the prefix of numbered axis names (ax0, ax1, ...), or all the names.
    workload: what a template finds its anchor by; see `workload`.
    attrs: further attributes of the operation.
    """
    names = [f"{axes}{k}" for k in range(len(shape))] if isinstance(axes, str) else axes

    def element(*indices: Expr) -> Any:
        return body(indices)

    kind = inspect.Parameter.POSITIONAL_ONLY
    element.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
        [inspect.Parameter(n, kind) for n in names]
    )
    every = {**(attrs or {}), **({} if workload is None else {"workload": workload})}
    return compute(tuple(shape), element, name=name, tag=tag, attrs=every)


def workload(name: str, *args: Any) -> list[Any]:
    """`[name, args...]` as plain JSON; a tensor becomes `["TENSOR", shape, dtype]`."""
    return [name, *map(plain, args)]


def workload_of(op: ComputeOp, tensors: int, more: int = 0) -> list[Any]:
    """The attribute `workload` of an operation: a name, `tensors` tensors, at least `more` values.

    Raises ScheduleError where it has none, or another: somebody gave a stage the tag of an operator
    of ours, or the line of a log that tells it is damaged.
    """
    found = op.attrs.get("workload")
    fits = (
        isinstance(found, (list, tuple))
        and len(found) > tensors + more
        and isinstance(found[0], str)
        and all(map(_is_tensor, found[1 : tensors + 1]))
    )
    if not fits:
        raise ScheduleError(
            f"template for {op.name}", f"its tag is {op.tag!r}, and its workload is not",
            "It compiles with its default schedule; topi's operators have both.",
        )  # fmt: skip
    assert isinstance(found, (list, tuple))
    return [*found]


def _is_tensor(value: Any) -> bool:
    return (
        isinstance(value, (list, tuple))
        and len(value) == 3
        and isinstance(value[1], (list, tuple))
        and all(isinstance(n, int) for n in value[1])
    )


def groups_of(op: ComputeOp, channels: int) -> int:
    """Count the groups of a grouped convolution, which divide its channels.

    Raises ScheduleError, as `workload_of`, where that cannot be.
    """
    groups = workload_of(op, 2, 2)[-2]
    if not isinstance(groups, int) or groups < 1 or channels % groups:
        raise ScheduleError(
            f"template for {op.name}", f"its workload has {groups!r} groups of {channels} channels",
            "It compiles with its default schedule.",
        )  # fmt: skip
    return groups


def call_text(name: str, /, **arguments: Any) -> str:
    """The place of an error: `conv2d_nchw(data=[1, 3, 8, 8], stride=2)`."""
    shown = (f"{k}={_argument(v)}" for k, v in arguments.items())
    return f"{name}({', '.join(shown)})"


def _argument(value: Any) -> str:
    if isinstance(value, (tuple, list)) and any(isinstance(v, Tensor) for v in value):
        return f"[{', '.join(map(_argument, value))}]"
    return str(list(value.shape)) if isinstance(value, Tensor) else repr(value)


def require(holds: bool | Expr, place: str, reason: str, way_out: str = "") -> None:
    """Raises ExpressionError unless the condition holds, or may hold where extents are variables:
    calls of the kernel check what is then left open."""
    if isinstance(holds, Expr):
        holds = may_hold(holds, simplifier(holds))
    if not holds:
        raise ExpressionError(place, reason, way_out)


def check_tensors(place: str, **operands: Any) -> None:
    """Refuse operands that are not tensors."""
    for what, operand in operands.items():
        require(
            isinstance(operand, Tensor), place,
            f"{what} is a {type(operand).__name__}, not a tensor",
            "Make one with te.placeholder or te.compute.",
        )  # fmt: skip


def check_tensor(tensor: Any, what: str, dims: str, place: str) -> None:
    """Refuse what is not a tensor with one axis per letter (or word) of `dims`."""
    parts = dims.split() if " " in dims else list(dims)
    check_tensors(place, **{what: tensor})
    require(
        tensor.ndim == len(parts), place,
        f"{what} has {tensor.ndim} dimensions, not the {len(parts)} of [{', '.join(parts)}]",
        "Reshape or expand it first.",
    )  # fmt: skip


def check_vector(tensor: Any, what: str, length: int, place: str) -> None:
    """Refuse what is not a tensor of shape [length]."""
    shape = getattr(tensor, "shape", None)
    require(
        isinstance(tensor, Tensor) and shape == (length,), place,
        f"{what} must have shape [{length}], got {_argument(tensor)}", "Reshape it first.",
    )  # fmt: skip


def product_dtype(place: str, out_dtype: str | None, **tensors: Tensor) -> DType:
    """The type of a sum of products: `out_dtype`, or the one type that all operands share; of
    integers below 32 bits, and bool, their accumulator int32."""
    types = {t.dtype for t in tensors.values()}
    if len(types) > 1 and out_dtype is None:
        listed = ", ".join(f"{k} is {t.dtype}" for k, t in tensors.items())
        raise ExpressionError(place, f"the element types differ: {listed}", "Give out_dtype.")
    least = reduce(lambda a, b: join(a, b, place), types)
    least = least if least.is_float else least.accumulator
    if out_dtype is None:
        return least
    wanted = DType(out_dtype, place)
    require(
        join(wanted, least, place) is wanted, place,
        f"out_dtype={str(wanted)!r} is narrower than {least}, which sums of these products need",
        f"Use out_dtype={str(least)!r}, and cast the result.",
    )  # fmt: skip
    return wanted


def sum_of_products(a: Expr, b: Expr, dtype: DType, axis: Any, where: Expr | None = None) -> Expr:
    """The sum of a * b over `axis`, where that holds, as `dtype`, from `product_dtype`."""
    if dtype.is_float:
        return te.sum(a.astype(dtype) * b.astype(dtype), axis=axis, where=where)
    return te.sum(a * b, axis=axis, where=where, acc_dtype=dtype)  # which checks that the sum fits


def wide(value: Expr) -> Expr:
    """A float in the type its arithmetic is done in: float16 and bfloat16 become float32."""
    return value.astype(value.dtype.compute) if value.dtype.is_float else value


def require_float(x: Tensor, name: str, place: str) -> None:
    """Refuse what has no fractions."""
    require(
        x.dtype.is_float, place, f"{name} of {x.dtype} is not whole",
        'Cast it first: topi.cast(x, "float32").',
    )  # fmt: skip


def per_axis(
    value: Any,
    rank: int,
    what: str,
    place: str,
    least: int | None = 1,
    error: type[TilewrightError] = ExpressionError,
) -> tuple[int, ...]:
    """`value` as one int for each of `rank` axes, such as (height, width); an int serves all.

    least: that each must be; None: any.  error: what a wrong one raises
    """
    items = tuple(value) if isinstance(value, (tuple, list)) else (value,) * rank
    enough = all(is_integer(v) and (least is None or int(v) >= least) for v in items)
    if len(items) != rank or not enough:
        several = {1: "a list of one", 2: "a pair of ints"}.get(rank, f"{rank} ints")
        limit = "" if least is None else f" of at least {least}"
        example = (max(least or 1, 1),) * rank
        raise error(
            place, f"{what}={value!r} is neither an int nor {several}{limit}",
            f"Write {what}={example[0]} or {what}={example}.",
        )  # fmt: skip
    return tuple(map(int, items))


def is_integer(value: Any) -> bool:
    """Python and numpy integers and constant expressions; a bool is not a size."""
    if isinstance(value, Expr):
        return value.op == "const" and value.dtype in ("int32", "int64")
    return doors.is_integer(value)


def normal_axis(axis: Any, ndim: int, place: str) -> int:
    """`axis` counted from the front."""
    ok = is_integer(axis) and -ndim <= int(axis) < ndim
    require(ok, place, f"axis {axis!r} is out of range", f"Use -{ndim} to {ndim - 1}.")
    return int(axis) % ndim


def normal_axes(axis: Any, ndim: int, place: str) -> tuple[int, ...]:
    """Distinct axes counted from the front, in increasing order; None means all of them."""
    if axis is None:
        return tuple(range(ndim))
    given = axis if isinstance(axis, (tuple, list)) else (axis,)
    axes = [normal_axis(a, ndim, place) for a in given]
    require(bool(axes), place, "no axis is named", "Leave axis out to take all of them.")
    require(len(set(axes)) == len(axes), place, "an axis is named twice", "Name each axis once.")
    return tuple(sorted(axes))
