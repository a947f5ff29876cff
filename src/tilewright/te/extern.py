"""Stages whose tensors are made by statements, not by an expression of each element.

In: shapes, input tensors, and a function that gives their statements (`ir_builder.py`).  Out: the
tensors of an `ExternOp`.  It has no axes: a schedule leaves its loops as they are written, and
computes it on its own; stages before and after it are scheduled as any.
Read next: `lowering/opaque.py`, which makes kernels of it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import prod
from typing import Any

import numpy as np

from tilewright.base import context
from tilewright.base.doors import check_arguments
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.expr import Expr, walk
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    STATEMENTS,
    Allocate,
    Buffer,
    For,
    If,
    Kernel,
    PackedCall,
    Program,
    Stmt,
    Store,
    While,
    children,
    expressions,
    load,
    map_children,
    statements,
    written_buffers,
)
from tilewright.ir.symbols import is_extent, is_symbol, one_of
from tilewright.ir.tuples import together
from tilewright.te.axis import IterVar, shape_of
from tilewright.te.ir_builder import Body, BufferVar, Launch
from tilewright.te.tensor import ComputeOp, Tensor

__all__ = ["ExternOp", "call_packed", "extern", "rewritten", "touched", "values_of"]

_FORM = "Write it with tir.ir_builder.create() and return ib.get()."


class _Own(Tensor):
    """A tensor of a stage whose tensors have shapes of their own."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        assert isinstance(self.op, ExternOp)
        return self.op.writes[self.value_index].shape


class ExternOp(ComputeOp):
    """A stage that statements compute.

    reads:  its inputs, each with the buffer that stands for it in `script`
    writes: the buffers of its outputs
    call:   the Python function that computes it in place of statements, or None
    """

    __slots__ = ("call", "reads", "script", "writes")

    def __init__(
        self,
        name: str,
        reads: Sequence[tuple[Tensor, Buffer]],
        writes: Sequence[Buffer],
        script: Body,
        tag: str = "",
        attrs: dict[str, Any] | None = None,
        call: PackedCall | None = None,
    ) -> None:
        self.reads, self.writes, self.script = tuple(reads), tuple(writes), script
        self.call = call
        nothing = together([E.const(0, b.dtype) for b in self.writes])
        super().__init__(name, (), nothing, tag, attrs)
        self.input_tensors = tuple(dict.fromkeys(tensor for tensor, _ in self.reads))
        self.outputs = tuple(_Own(self, k) for k in range(len(self.writes)))

    @property
    def dtypes(self) -> tuple[DType, ...]:
        return tuple(b.dtype for b in self.writes)

    @property
    def launches_threads(self) -> bool:  # type: ignore[override]
        return any(launch.threads for launch in self.script.launches)

    @property
    def expressions(self) -> tuple[Expr, ...]:
        extents = self.call.args if self.call is not None else ()
        return (*self.script.expressions, *(a for a in extents if isinstance(a, Expr)))

    def over(self, axis: tuple[IterVar, ...], body: Expr) -> ComputeOp:
        return self

    def at(self, numbers: Mapping[Expr, int], tensors: Mapping[Tensor, Tensor]) -> ExternOp:
        """The same with numbers in the place of symbols, of other inputs."""
        known = dict(numbers)
        same: dict[Expr, E.Value] = {v: E.const(n, v.dtype) for v, n in known.items()}
        made: dict[Buffer, Buffer] = {}

        def sized(b: Buffer) -> Buffer:
            if b not in made:
                shape = tuple(one_of(known, n) for n in b.shape)
                made[b] = replace(b, size=one_of(known, b.size), shape=shape)
            return made[b]

        launches = tuple(
            Launch(
                tuple(replace(t, extent=one_of(known, t.extent)) for t in launch.threads),
                rewritten(launch.body, sized, lambda e: E.substitute(e, same)),
            )
            for launch in self.script.launches
        )
        script = Body(launches, tuple(map(sized, self.script.spaces)))
        reads = [(tensors[t], sized(b)) for t, b in self.reads]
        writes, call = [*map(sized, self.writes)], self.call
        if call is not None:
            args = (sized(a) if isinstance(a, Buffer) else a for a in call.args)
            args = (one_of(known, a) if isinstance(a, Expr) else a for a in args)
            call = PackedCall(call.name, tuple(args))
        return ExternOp(self.name, reads, writes, script, self.tag, self.attrs, call)

    def __repr__(self) -> str:
        return f"extern({self.name}, {', '.join(map(repr, self.writes))})"


def rewritten(
    stmt: Stmt, buffer: Callable[[Buffer], Buffer], value: Callable[[Expr], Expr] = lambda e: e
) -> Stmt:
    """`stmt` on other buffers.  value: what becomes of its expressions beside that."""

    def on_expr(e: Expr) -> Expr:
        return E.transform(
            value(e), lambda n: load(buffer(n.attr), n.args[0]) if n.op == "load" else None
        )

    def on_stmt(s: Stmt) -> Stmt:
        new = map_children(s, on_stmt, on_expr)
        if isinstance(new, (Store, Allocate)):
            return replace(new, buffer=buffer(new.buffer))
        if isinstance(new, For) and isinstance(new.extent, Expr) and new.extent.op == "const":
            return replace(new, extent=int(new.extent.attr))
        return new

    return on_stmt(stmt)


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
        fits = isinstance(item, BufferVar) and item.dtype is kind
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
        own = {s.buffer for s in statements(launch.body) if isinstance(s, Allocate)}
        known = {*ins, *outs, *script.spaces, *own}
        written = written_buffers(launch.body)
        stored |= written
        nodes = list(walk(*(e for s in statements(launch.body) for e in _own_expressions(s))))
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


def _own_expressions(s: Stmt) -> Iterator[Expr]:
    fields = (getattr(s, name) for name in STATEMENTS[type(s)].expressions)
    return (part for part in fields if isinstance(part, Expr))


def _check_variables(s: Stmt, known: set[Expr], place: str) -> None:
    for v in E.free_variables(*_own_expressions(s)):
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


# -- values ----------------------------------------------------------------------------------------


def values_of(op: ExternOp, inputs: Sequence[Any]) -> list[Any]:
    """What the statements make of arrays, in the types of the stage: they define it.

    inputs: an array for each of `op.reads`, of its type.  Raises InterpreterError for an index
    outside, a race, and an element that nothing stored.
    """
    if op.call is not None:
        raise ExpressionError(
            f"evaluate({op.name})", f"the Python function {op.call.name} says what it is",
            "Build it for llvm, and compare what the module gives with what you expect.",
        )  # fmt: skip
    kernels = tuple(
        Kernel(f"{op.name}_{k}", touched(launch.body), launch.body, launch.threads)
        for k, launch in enumerate(op.script.launches)
    )
    buffers = tuple(dict.fromkeys(b for _, b in op.reads))
    roles = ("input",) * len(buffers) + ("output",) * len(op.writes)
    program = Program(op.name, (*buffers, *op.writes), roles, kernels, op.script.spaces)
    given = dict(zip((b for _, b in op.reads), inputs, strict=True))
    outs = [np.zeros(b.shape, b.dtype.storage) for b in op.writes]
    run_fast(program, [*(given[b] for b in buffers), *outs])
    return outs


def touched(stmt: Stmt) -> tuple[Buffer, ...]:
    """The buffers in global memory that a statement touches, in order."""
    found: dict[Buffer, None] = {}
    for s in statements(stmt):
        found |= {n.attr: None for n in walk(*_own_expressions(s)) if n.op == "load"}
        if isinstance(s, Store):
            found[s.buffer] = None
    return tuple(b for b in found if b.scope == "global")
