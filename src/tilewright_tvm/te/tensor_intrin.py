"""`te.decl_tensor_intrin`: tiles that statements compute, or functions of others that they call.

In: a computation, and a function that gives its statements (`ir_builder.py`, `tir.call_extern`).
Out: what `s[C].tensorize(axis, intrin)` puts in the place of loops, checked when it is lowered.
Read next: `schedule/intrinsics.py`, `lowering/intrinsics.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.doors import check_arguments, door
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import Buffer, PackedCall, Stmt, seq, statements, written_buffers
from tilewright.schedule.intrinsics import Intrinsic as TensorIntrin
from tilewright.te.opaque import Body
from tilewright.te.tensor import ComputeOp, PlaceholderOp, Tensor
from tilewright_tvm.te.ir_builder import BufferVar, decl_buffer

__all__ = ["TensorIntrin", "call_extern", "decl_tensor_intrin"]


@door(ExpressionError, "te.decl_tensor_intrin")
def decl_tensor_intrin(
    op: ComputeOp,
    fcompute: Callable[..., Any],
    name: str | None = None,
    binds: Mapping[Tensor, BufferVar] | None = None,
    scalar_params: Any = None,
    default_buffer_params: Mapping[str, Any] | None = None,
) -> TensorIntrin:
    """A tile that statements compute, for `s[C].tensorize(axis, intrin)`.

    op:       what it computes, of placeholders, with numbers as extents
    fcompute: gets the buffers of inputs and of outputs, `ins` and `outs`, and gives statements: the
              `get()` of an `ir_builder`, or `tir.call_extern(...)`; or three of them, (body, reset,
              update): one for a whole sum (or None), one that begins it, one that adds to it
    name:     of the intrinsic; default: that of op
    binds:    buffers to use: `tir.decl_buffer(shape, dtype, strides=[te.var("s"), 1])`.  Where none
              is given, rows follow each other without a gap
    default_buffer_params: of `tir.decl_buffer`, for the others
    Raises ExpressionError for what is no such computation or statement.
    """
    place = f"te.decl_tensor_intrin({op.name})"
    if scalar_params is not None:
        raise ExpressionError(
            place, "tiles have no scalar parameters", "Read them from a tensor of one element."
        )
    sizes = [ax.size for ax in (*op.axis, *op.reduce_axis)]
    plain = all(isinstance(t.op, PlaceholderOp) for t in op.input_tensors)
    if not plain or op.num_outputs != 1 or not all(isinstance(n, int) for n in sizes):
        raise ExpressionError(
            place, "it is not one result, of placeholders, with numbers as extents",
            "Declare a tile of fixed size on te.placeholder.",
        )  # fmt: skip
    given, params = dict(binds or {}), dict(default_buffer_params or {})
    tensors = (*op.input_tensors, op.output_tensor)
    buffers = {
        t: given[t] if t in given else decl_buffer(t.shape, str(t.dtype), t.name, **params)
        for t in tensors
    }
    for t, b in buffers.items():
        if tuple(b.shape) != tuple(t.shape) or b.dtype is not t.dtype:
            raise ExpressionError(
                place, f"{b!r:.60} is no buffer for {t.name}: {t.dtype}{list(t.shape)}",
                "Give tir.decl_buffer of its shape and type, or leave it out.",
            )  # fmt: skip
    ins, outs = [buffers[t] for t in op.input_tensors], [buffers[op.output_tensor]]
    check_arguments(fcompute, (ins, outs), place, ExpressionError)
    found = fcompute(ins, outs)
    parts = list(found) if isinstance(found, (tuple, list)) else [found, None, None]
    if len(parts) != 3 or (parts[0] is None and None in parts[1:]):
        raise ExpressionError(
            place, f"it gives {len(parts)} statements", "Give one, or (body, reset, update)."
        )
    body, reset, update = (None if part is None else _statement(part, place) for part in parts)
    output = buffers[op.output_tensor].buffer
    for stmt in (body, reset, update):
        if stmt is None or any(isinstance(s, Foreign) for s in statements(stmt)):
            continue
        if written_buffers(stmt) != {output}:
            raise ExpressionError(
                place, f"the statements store to {written_buffers(stmt) or 'nothing'}",
                f"Store the elements of {output.name}, and of nothing else.",
            )  # fmt: skip
    strides = {t: tuple(b.strides) for t, b in buffers.items() if b.strides}
    own = {t: b.buffer for t, b in buffers.items()}
    return TensorIntrin(name or op.name, op, own, strides, body, reset, update)


def _statement(found: Any, place: str) -> Stmt:
    if isinstance(found, Body) and len(found.launches) == 1 and not found.launches[0].threads:
        return found.launches[0].body
    if isinstance(found, Stmt) and not isinstance(found, PackedCall):
        return found
    raise ExpressionError(
        place, f"the function gives {found!r:.60}, no statements",
        "Give what the get() of an ir_builder returned, or tir.call_extern(...).",
    )  # fmt: skip


@door(ExpressionError, "tir.call_extern")
def call_extern(dtype: str, func_name: str, *args: Any) -> Foreign:
    """A call of a C function, as a statement of a tensor intrinsic.

    dtype: that it returns, which nobody looks at; args: `access_ptr` of buffers, and integers.  A
    module of LLVM that defines it comes by `s[C].pragma(axis, "import_llvm", text)`; else it is one
    of the C library.
    """
    place = f"tir.call_extern({func_name!r})"
    form = ""
    places: list[Buffer] = []
    numbers: list[Expr] = []
    for arg in args:
        if isinstance(arg, BufferVar):
            form, places = form + "p", [*places, arg.buffer]
            continue
        number = arg if isinstance(arg, Expr) else E.convert(arg)
        if number.lanes != 1:
            raise ExpressionError(
                place, f"{arg!r:.60} is no place and no number", "Use access_ptr."
            )
        form, numbers = form + "n", [*numbers, number]
    offsets = tuple(E.const(0) for _ in places)
    return Foreign(
        func_name, form, tuple(places), offsets, tuple(numbers), DType(dtype, place), seq()
    )
