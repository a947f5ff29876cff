"""`te.extern`: stages whose tensors are made by statements, not by an expression of each element.

In: shapes, input tensors, and a function that gives their statements (`ir_builder.py`).  Out: the
tensors of an `ExternOp`, checked.  Read next: `te/opaque.py`, what such a stage is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import prod
from typing import Any

from tilewright.base import context
from tilewright.base.doors import check_arguments, door
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.expr import Expr, walk
from tilewright.ir.foreign import Foreign
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    PackedCall,
    Stmt,
    Store,
    While,
    children,
    expressions,
    statements,
    written_buffers,
)
from tilewright.ir.symbols import is_extent, is_symbol
from tilewright.te.axis import shape_of
from tilewright.te.opaque import Body, Launch, OpaqueOp, Words, own_expressions
from tilewright.te.tensor import Tensor
from tilewright_tvm.te.ir_builder import BufferVar

__all__ = ["ExternOp", "call_packed", "extern"]

_FORM = "Write it with tir.ir_builder.create() and return ib.get()."


class ExternOp(OpaqueOp):
    """A stage that statements compute, which `te.extern` was given."""

    __slots__ = ()
    words = Words(
        name="te.extern",
        loops="Write the loops so in its function: ib.for_range(kind=), ib.scope_attr.",
        parallel="Use scope_attr of blockIdx and threadIdx, or build for llvm.",
        serial="Use for_range, with kind parallel or vectorize, or build for cuda or opencl.",
        inside="Run the loop less often, or use ib.if_scope.",
    )


@door(ExpressionError, "te.extern")
def extern(
    shape: Any,
    inputs: Sequence[Tensor],
    fcompute: Callable[..., Any],
    name: str = "extern",
    dtype: str | Sequence[str] | None = None,
    in_buffers: BufferVar | Sequence[BufferVar] | None = None,
    out_buffers: BufferVar | Sequence[BufferVar] | None = None,
    tag: str = "",
    attrs: dict[str, Any] | None = None,
) -> Tensor:
    """The tensor that statements make; for a list of shapes a tuple of tensors.

    shape:    of the tensor, or a list of shapes, which may differ
    inputs:   tensors that the statements read; they are row-major there
    fcompute: gets the buffers of inputs and of outputs, `ins` and `outs` (`ir_builder.BufferVar`:
              `name`, `dtype`, `shape`, `vload`, `vstore`), and gives the statements: the `get()` of
              an `ir_builder`, or `tir.call_packed("name", ...)`: a Python function that computes
              all of it, on CPUs
    dtype:    of the tensor, or one for each; default: that of all inputs
    in_buffers, out_buffers: buffers to use for `ins` and `outs`, of the same shapes and types
    tag, attrs: as in te.compute

    A statement that reads, or stores, at an index that is surely outside is refused when it is
    lowered.  One at an index that may be outside, as data say, reads the nearest element, or stores
    nothing.  Raises ExpressionError for statements that use other memory, store to an input, or
    leave an output out.
    """
    place = f"extern({name!r})"
    tag = tag or context.current("tag", "")
    given = list(inputs)
    shapes, several = _shapes(shape, place)
    kinds = _types(dtype, given, len(shapes), place)
    names = [f"{name}.v{k}" if len(shapes) > 1 else name for k in range(len(shapes))]
    ins = _buffers(in_buffers, [(t.name, t.dtype, t.shape) for t in given], f"{place}: in_buffers")
    outs = _buffers(
        out_buffers, list(zip(names, kinds, shapes, strict=True)), f"{place}: out_buffers"
    )
    buffers = [BufferVar(b) for b in ins], [BufferVar(b) for b in outs]
    check_arguments(fcompute, buffers, place, ExpressionError)
    found, reads = fcompute(*buffers), list(zip(given, ins, strict=True))
    if isinstance(found, PackedCall):
        _check_call(found, ins, outs, place)
        made = ExternOp(name, reads, outs, Body(()), tag, attrs, found).outputs
        return made if several else made[0]  # type: ignore[return-value]
    script = _script(found, place)
    _check(script, ins, outs, place)
    script = Body(tuple(map(_waiting, script.launches)), script.spaces)
    made = ExternOp(name, reads, outs, script, tag, attrs).outputs
    return made if several else made[0]  # type: ignore[return-value]


def _shapes(shape: Any, place: str) -> tuple[list[tuple[int, ...]], bool]:
    """Of each output, and whether several were asked for."""
    several = isinstance(shape, (tuple, list)) and any(isinstance(s, (tuple, list)) for s in shape)
    listed = [shape_of(s, place) for s in (shape if several else (shape,))]
    if any(isinstance(n, int) and n < 1 for dims in listed for n in dims):
        raise ExpressionError(place, "an output has no elements", "Give extents of at least 1.")
    return listed, len(listed) > 1


def _types(dtype: Any, inputs: Sequence[Tensor], count: int, place: str) -> list[DType]:
    if dtype is None:
        kinds = {t.dtype for t in inputs}
        if len(kinds) != 1:
            raise ExpressionError(
                place, "the types of its inputs do not say that of its output", "Give dtype=."
            )
        return [kinds.pop()] * count
    listed = list(dtype) if isinstance(dtype, (tuple, list)) else [dtype] * count
    if len(listed) != count:
        raise ExpressionError(place, f"{len(listed)} types for {count} outputs", "Give one each.")
    return [DType(kind, place) for kind in listed]


def _buffers(given: Any, wanted: Sequence[tuple[str, Any, Any]], place: str) -> list[Buffer]:
    """A buffer for each name, type and shape: the given ones, or new ones."""
    if given is None:
        return [Buffer(n, kind, prod(dims), "global", tuple(dims)) for n, kind, dims in wanted]
    listed = [given] if isinstance(given, BufferVar) else list(given)
    if len(listed) != len(wanted):
        raise ExpressionError(place, f"{len(listed)} buffers for {len(wanted)} tensors")
    for item, (name, kind, dims) in zip(listed, wanted, strict=True):
        fits = isinstance(item, BufferVar) and item.dtype is kind and not item.strides
        if not fits or not _alike(item.shape, dims):
            raise ExpressionError(
                place, f"{item!r:.60} is no buffer for {name}: {kind}{list(dims)}",
                "Give tir.decl_buffer of its shape and type, or leave it out.",
            )  # fmt: skip
    return [item.buffer for item in listed]


def _alike(a: Sequence[Any], b: Sequence[Any]) -> bool:
    return len(a) == len(b) and all(
        x is y or (isinstance(x, int) and x == y) for x, y in zip(a, b, strict=True)
    )


def _script(found: Any, place: str) -> Body:
    if isinstance(found, Stmt):
        return Body((Launch((), found),))
    if isinstance(found, Body):
        return found
    raise ExpressionError(
        place, f"the function gives a {type(found).__name__}, no statements", _FORM
    )


def _check(script: Body, ins: Sequence[Buffer], outs: Sequence[Buffer], place: str) -> None:
    """Raises ExpressionError for memory and variables that the statements do not have."""
    stored: set[Buffer] = set()
    for launch in script.launches:
        if any(isinstance(s, Foreign) for s in statements(launch.body)):
            raise ExpressionError(
                place, "it calls a function of others, of which nothing says what it computes",
                "te.decl_tensor_intrin says it; tir.call_packed calls a Python function.",
            )  # fmt: skip
        own = {s.buffer for s in statements(launch.body) if isinstance(s, Allocate)}
        known = {*ins, *outs, *script.spaces, *own}
        written = written_buffers(launch.body)
        stored |= written
        nodes = list(walk(*(e for s in statements(launch.body) for e in own_expressions(s))))
        used = {n.attr for n in nodes if n.op == "load"} | written
        _check_shared(launch.body, place)
        for strange in used - known:
            raise ExpressionError(
                place, f"the statements use {strange!r}, which is none of theirs",
                "List it among the inputs, or allocate it in the builder.",
            )  # fmt: skip
        for n in nodes:
            if n.op in ("read", "reduce", "tuple"):
                raise ExpressionError(
                    place, f"{n} is an element of te.compute, not of a buffer",
                    "List its tensor among the inputs and read ins[k].",
                )  # fmt: skip
        _check_variables(launch.body, {t.var for t in launch.threads}, place)
    for b in stored & set(ins):
        raise ExpressionError(
            place, f"it stores to its input {b.name}", "Copy it to an output and change that."
        )
    for b in outs:
        if b not in stored:
            raise ExpressionError(place, f"nothing is stored to {b.name}", "Store its elements.")


def _waiting(launch: Launch) -> Launch:
    """The same with barriers where shared memory changes hands: what is written first is seen by
    what is written next."""
    kernel = Kernel("", (), launch.body, launch.threads)
    return Launch(launch.threads, insert_barriers(kernel).body)


def call_packed(func_name: str, *args: Any) -> PackedCall:
    """A call of the Python function that `tilewright.register_func` knows by a name.

    args: buffers of `te.extern`, which arrive as arrays over the module's own memory (`numpy()`,
          `copyfrom`, `copyto`, DLPack), extents, numbers and texts.  Return it from the function of
          te.extern: the stage is a step of the module, in the process that calls it.
    """
    place = f"tir.call_packed({func_name!r})"
    return PackedCall(func_name, tuple(_argument(a, place) for a in args))


def _argument(value: Any, place: str) -> Any:
    if isinstance(value, BufferVar):
        return value.buffer
    if isinstance(value, (bool, int, float, str)):
        return value
    node = value if isinstance(value, Expr) else None
    if node is not None and node.op == "const":
        return node.attr
    if node is not None and is_extent(node):
        return node
    raise ExpressionError(
        place, f"{value!r:.60} is no buffer, number or text",
        "Give those of ins and outs, extents, and plain numbers.",
    )  # fmt: skip


def _check_call(
    call: PackedCall, ins: Sequence[Buffer], outs: Sequence[Buffer], place: str
) -> None:
    for b in call.args:
        if isinstance(b, Buffer) and b not in (*ins, *outs):
            raise ExpressionError(
                place, f"{call.name} is given {b!r}, which is none of its tensors",
                "List it among the inputs.",
            )  # fmt: skip
    for b in outs:
        if b not in call.args:
            raise ExpressionError(
                place, f"{call.name} is not given the output {b.name}", "Pass all of outs."
            )


def _check_variables(s: Stmt, known: set[Expr], place: str) -> None:
    for v in E.free_variables(*own_expressions(s)):
        if v not in known and not is_symbol(v):
            raise ExpressionError(
                place, f"{v} is used outside its loop", "Use it inside the `with` that made it."
            )
    inner = known | {s.var} if isinstance(s, For) else known
    for part in children(s):
        _check_variables(part, inner, place)


def _check_shared(body: Stmt, place: str) -> None:
    """Threads wait for each other where shared memory changes hands, which all must do."""
    for s in statements(body):
        if not isinstance(s, (If, While)):
            continue
        loads = (n.attr for e in expressions(s) for n in E.walk(e) if n.op == "load")
        both = {b for b in loads if b.scope == "shared"} & written_buffers(s)
        own = {p.buffer for p in statements(s) if isinstance(p, Allocate)}
        parts = list(statements(s))
        alone = sum(isinstance(p, Store) for p in parts) == 1
        if both - own and not alone:
            raise ExpressionError(
                f"{place}: {min(b.name for b in both)}",
                "under a condition it is stored to and read, and threads cannot wait there",
                "Put a condition around each store of its own.",
            )  # fmt: skip
