"""Statements written one after the other: the bodies of `te.extern`, by the names of TVM's builder.

In: calls of `ir_builder.create()`, in the order in which what they say is to run.  Out: a `Body`.
A statement is one of `ir/stmt.py`, so whatever prints, interprets or compiles loops takes it.
Read next: `extern.py`, which makes a stage of a body.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from typing import Any

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError, absent
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    BLOCK_TAGS,
    THREAD_TAGS,
    Allocate,
    Buffer,
    For,
    If,
    PackedCall,
    Stmt,
    Thread,
    While,
    load,
    seq,
)
from tilewright.ir.symbols import is_extent
from tilewright.te.axis import IterVar, shape_of
from tilewright.te.opaque import Body, Launch
from tilewright_tvm.te.lanes import split_type, stored

__all__ = ["BufferVar", "IRBuilder", "create", "decl_buffer"]

# TVM's names of how a loop runs -> those of `ir/stmt.py`
_KINDS = {
    "serial": "serial", "parallel": "parallel", "vectorize": "vectorized",
    "vectorized": "vectorized", "unroll": "unrolled", "unrolled": "unrolled",
}  # fmt: skip
_SCOPES = {"": "", "global": "", "local": "local", "shared": "shared"}


# Names of TVM's builder: what to use instead.
_ELSEWHERE = {
    "pointer": "Use buffer_ptr(ins[0]) for a tensor, allocate for memory of the stage's own.",
}


class BufferVar:
    """Memory that a body reads and writes: a tensor, or what `allocate` gave.

    `a[i]` is the element at a flat index, `a[i, j]` one at an index for each dimension;
    `a[i] = value` stores to it, where a builder gave `a` (`buffer_ptr`, `allocate`).
    """

    def __init__(
        self, buffer: Buffer, builder: IRBuilder | None = None, strides: Sequence[Any] = ()
    ) -> None:
        self.buffer, self._builder = buffer, builder
        self.strides = tuple(strides)  # of a buffer that is not row-major

    @property
    def name(self) -> str:
        return self.buffer.name

    @property
    def dtype(self) -> DType:
        return self.buffer.dtype

    @property
    def shape(self) -> tuple[int, ...]:
        """Ints, or expressions of variables."""
        return self.buffer.shape

    @property
    def data(self) -> BufferVar:
        """Itself: what TVM's scripts hand to functions."""
        return self

    def asobject(self) -> BufferVar:
        return self

    def access_ptr(self, access_mask: str | int = "rw", *_: Any, **__: Any) -> BufferVar:
        """Itself: a function gets the whole array."""
        return self

    def __getitem__(self, index: Any) -> Expr:
        return load(self.buffer, self._flat(index))

    def __setitem__(self, index: Any, value: Any) -> None:
        if self._builder is None:
            raise ExpressionError(
                f"{self.name}[...] = ...", "no builder says when this is stored",
                f"Use p = ib.buffer_ptr({self.name}), then p[i] = value.",
            )  # fmt: skip
        self._builder.emit(self.vstore(index, value))

    def vload(self, begin: Any, dtype: str | None = None) -> Expr:
        """The element at an index; of a dtype such as float32x4, so many from there on."""
        place = f"{self.name}.vload"
        kind, lanes = split_type(self.dtype if dtype is None else dtype, place)
        if kind is not self.dtype:
            raise ExpressionError(
                place, f"its elements are {self.dtype}, not {dtype}", "Load them, and cast them."
            )
        return load(self.buffer, E.ramp(self._flat(begin), 1, lanes))

    def vstore(self, begin: Any, value: Any) -> Stmt:
        """A statement that stores `value` at an index, cast to the type of the elements; a vector
        from there on."""
        place = self._flat(begin)
        node = E.convert(value, load(self.buffer, place))
        return stored(self.buffer, place, E.cast(self.dtype, node))

    def _flat(self, index: Any) -> Expr:
        given = tuple(index) if isinstance(index, (tuple, list)) else (index,)
        place = f"{self.name}[{', '.join(map(str, given))}]"
        nodes = [E.convert(i) for i in given]
        for node in nodes:
            if not node.dtype.is_index:
                raise ExpressionError(
                    place, f"the index {node} of type {node.dtype} is not an integer",
                    "Use loop variables and integers, or cast it to int32.",
                )  # fmt: skip
        sizes = self.shape if len(nodes) == len(self.shape) else (self.buffer.size,)
        if len(nodes) != len(sizes):
            raise ExpressionError(
                place, f"{len(nodes)} indices for the shape {list(self.shape)}",
                f"Give {len(self.shape)}, or one that counts all elements.",
            )  # fmt: skip
        flat = E.const(0)
        if self.strides and len(nodes) == len(self.strides):
            for node, stride in zip(nodes, self.strides, strict=True):
                flat = flat + node * stride
            return flat
        for node, size in zip(nodes, sizes, strict=True):
            known = node.op == "const" and not isinstance(size, Expr)
            if known and not 0 <= node.attr < size:
                raise ExpressionError(
                    place, f"the index {node} is outside a dimension of {size} elements",
                    f"Use 0 to {size - 1}.",
                )  # fmt: skip
            flat = flat * size + node
        return flat

    def __repr__(self) -> str:
        return f"buffer({self.buffer!r})"


@dataclass(eq=False)
class _Frame:
    """What is written so far between a `with` and its end.

    items:   statements, launches, and buffers that live from their place to the end of the frame
    threads: of the launch that began at item `start`
    is_open: whether it may have threads: it is in no loop and under no condition
    """

    is_open: bool
    items: list[Stmt | Launch | Buffer] = field(default_factory=list)
    threads: list[Thread] = field(default_factory=list)
    start: int = 0


class IRBuilder:
    """Writes a body statement by statement; `get()` gives it.

    `with ib.for_range(0, n) as i:`, `with ib.if_scope(test):`, `with ib.else_scope():` hold what is
    written inside them.  Errors are ExpressionErrors.
    """

    def __init__(self) -> None:
        self._frames = [_Frame(is_open=True)]
        self._spaces: list[Buffer] = []

    # -- memory ------------------------------------------------------------------------------------
    def buffer_ptr(self, buf: BufferVar, shape: Any = None) -> BufferVar:
        """`buf`, an input or output of the stage, so that its elements can be stored to.

        shape: by which it is indexed; default: its own
        """
        place = "ir_builder.buffer_ptr"
        if not isinstance(buf, BufferVar):
            raise ExpressionError(
                place, f"{buf!r:.60} is no buffer", "Give one of ins and outs of te.extern."
            )
        if shape is None:
            return BufferVar(buf.buffer, self, buf.strides)
        made = _Shaped(buf.buffer, self)
        made.dims = shape_of(shape, place)
        if not isinstance(buf.buffer.size, Expr) and prod(made.dims) != buf.buffer.size:
            raise ExpressionError(
                place, f"{list(made.dims)} is no shape of {buf.buffer.size} elements",
                f"Its own is {list(buf.shape)}.",
            )  # fmt: skip
        return made

    def allocate(self, dtype: str, shape: Any, name: str = "buf", scope: str = "") -> BufferVar:
        """Memory from here to the end of what is being written, of undefined content.

        scope: "shared" by the threads of a block, "local" to each of them or to an iteration of a
               loop; "global" or "": outside of loops, conditions and threads seen by all that
               follows, inside them local
        """
        place = f"ir_builder.allocate({name!r})"
        if scope not in _SCOPES:
            raise ExpressionError(
                place, f"unknown scope {scope!r}", "Use global, local or shared."
            )  # fmt: skip
        dims = shape_of(shape, place)
        frame = self._frames[-1]
        whole = not _SCOPES[scope] and frame.is_open and not self._launching
        size: Any = prod(dims)
        kind = "global" if whole else _SCOPES[scope] or "local"
        if not isinstance(size, Expr) and size < 1:
            raise ExpressionError(place, "it has no elements", "Give extents of at least 1.")
        buffer = Buffer(name, DType(dtype, place), size, kind, dims)
        if whole:
            self._spaces.append(buffer)
        else:
            frame.items.append(buffer)
        return BufferVar(buffer, self)

    def let(self, var_name: str, value: Any) -> Expr:
        """The value that `value` has now, whatever is stored later."""
        node = E.convert(value)
        if not any(n.op == "load" for n in E.walk(node)):
            return node
        kept = Buffer(var_name, node.dtype, node.lanes, "local", (node.lanes,))
        self._frames[-1].items.append(kept)
        self.emit(stored(kept, E.const(0), node))
        return load(kept, E.ramp(E.const(0), 1, node.lanes))

    # -- statements --------------------------------------------------------------------------------
    def emit(self, stmt: Any) -> None:
        """A statement that was made elsewhere: by `vstore`, or by another builder."""
        if isinstance(stmt, Body):
            plain = len(stmt.launches) == 1 and not stmt.launches[0].threads and not stmt.spaces
            if not plain and not (self._frames[-1].is_open and not self._launching):
                raise ExpressionError(
                    "ir_builder.emit", "a body with threads or memory of its own is inside others",
                    "Emit it outside of loops, conditions and threads.",
                )  # fmt: skip
            self._spaces += stmt.spaces
            self._frames[-1].items += [stmt.launches[0].body] if plain else stmt.launches
            return
        if isinstance(stmt, PackedCall):
            raise ExpressionError(
                "ir_builder.emit", f"{stmt.name} is a Python function, which no kernel calls",
                "Return tir.call_packed(...) from the function of a te.extern of its own.",
            )  # fmt: skip
        if not isinstance(stmt, Stmt):
            raise ExpressionError(
                "ir_builder.emit", f"{stmt!r:.60} is no statement",
                "Give what vstore or the get() of a builder returned.",
            )  # fmt: skip
        self._frames[-1].items.append(stmt)

    @contextmanager
    def for_range(
        self,
        begin: Any,
        end: Any = None,
        name: str = "i",
        dtype: str | None = None,
        kind: str = "serial",
        *,
        for_type: str | None = None,
    ) -> Iterator[Expr]:
        """A loop over [begin, end), or [0, begin); gives its variable.

        kind: "serial", "parallel", "vectorize" or "unroll"; for_type: an older name of it
        """
        place, kind = f"ir_builder.for_range({name!r})", for_type or kind
        if kind not in _KINDS:
            raise ExpressionError(
                place, f"unknown kind {kind!r}", "Use serial, parallel, vectorize or unroll; "
                "for threads ib.scope_attr(axis, 'thread_extent', n).",
            )  # fmt: skip
        first, last = (0, begin) if end is None else (begin, end)
        low, high = E.convert(first), E.convert(last)
        extent = Simplifier({})(high - low)
        if extent.op == "const":
            count: Any = int(extent.attr)
        elif is_extent(extent):
            count = extent
        else:
            with self._counted(name, low, high, kind, place) as counter:
                yield counter
            return
        var = E.var(name, dtype or (low if low.op != "const" else high).dtype)
        with self._frame() as inner:
            yield var + E.cast(var.dtype, low)
        if isinstance(count, Expr) or count > 0:
            self.emit(For(var, count, self._whole(inner, "a loop"), _KINDS[kind]))

    @contextmanager
    def _counted(self, name: str, low: Expr, high: Expr, kind: str, place: str) -> Iterator[Expr]:
        """A loop that runs as often as data say."""
        if kind != "serial":
            raise ExpressionError(
                place, f"data say how often it runs, so it cannot be of kind {kind}",
                "Use kind serial, or a number with ib.if_scope(i < end) inside.",
            )  # fmt: skip
        with self.new_scope():
            end = self.let(f"{name}.end", high)
            at = self.allocate(end.dtype, 1, name, "local")
            at[0] = low
            with self.while_loop(at[0] < end):
                yield at[0]
                at[0] = at[0] + 1

    @contextmanager
    def while_loop(self, condition: Any) -> Iterator[None]:
        """What is written inside runs again and again as long as `condition` holds."""
        test = _condition(condition, "ir_builder.while_loop")
        with self._frame() as inner:
            yield
        self.emit(While(test, self._whole(inner, "a loop")))

    @contextmanager
    def if_scope(self, cond: Any) -> Iterator[None]:
        """What is written inside runs where `cond` holds."""
        test = _condition(cond, "ir_builder.if_scope")
        with self._frame() as inner:
            yield
        self.emit(If(test, self._whole(inner, "a condition")))

    @contextmanager
    def else_scope(self) -> Iterator[None]:
        """What is written inside runs where the condition just before does not hold."""
        items = self._frames[-1].items
        before = items[-1] if items else None
        if not isinstance(before, If) or before.orelse is not None:
            raise ExpressionError(
                "ir_builder.else_scope", "no if_scope ended just before it",
                "Write it right after the `with ib.if_scope(...)` that it belongs to.",
            )  # fmt: skip
        with self._frame() as inner:
            yield
        items[-1] = If(before.condition, before.then, self._whole(inner, "a condition"))

    @contextmanager
    def new_scope(self) -> Iterator[None]:
        """Memory and threads that are begun inside end with it."""
        with self._frame(is_open=self._frames[-1].is_open and not self._launching) as inner:
            yield
        self._frames[-1].items += _folded(inner)

    def scope_attr(self, node: Any, attr_key: str, value: Any) -> None:
        """`scope_attr(te.thread_axis("blockIdx.x"), "thread_extent", n)`: what follows is run by n
        blocks or threads, of which `node.var` is the number of each."""
        place, frame = f"ir_builder.scope_attr({attr_key!r})", self._frames[-1]
        if attr_key != "thread_extent" or not isinstance(node, IterVar):
            raise ExpressionError(
                place, "only thread_extent of a te.thread_axis changes what runs",
                'Leave it out, or give for_range its kind="unroll".',
            )  # fmt: skip
        if node.thread_tag not in (*BLOCK_TAGS, *THREAD_TAGS):
            raise ExpressionError(
                place, f"{node.thread_tag} is no index of blocks or threads",
                f"Use one of {', '.join((*BLOCK_TAGS, *THREAD_TAGS))}.",
            )  # fmt: skip
        if not frame.is_open:
            raise ExpressionError(
                place, "blocks and threads run a whole kernel, not a loop of one",
                "Call it outside of loops and conditions.",
            )  # fmt: skip
        if any(t.tag == node.thread_tag for f in self._frames for t in f.threads):
            raise ExpressionError(
                place, f"{node.thread_tag} has an extent already",
                "Begin another kernel with `with ib.new_scope():`.",
            )  # fmt: skip
        extent: Any = E.convert(value)
        if extent.op == "const":
            extent = int(extent.attr)
        elif not is_extent(extent) or node.thread_tag in THREAD_TAGS:
            raise ExpressionError(
                place, f"{node.thread_tag} would have {extent} values, not a number of them",
                "Give a number; of blocks also integer arithmetic of te.var.",
            )  # fmt: skip
        if not isinstance(extent, Expr) and extent < 1:
            raise ExpressionError(place, f"{node.thread_tag} would have {extent} values")
        if not frame.threads:
            frame.start = len(frame.items)
        frame.threads.append(Thread(node.thread_tag, node.var, extent))

    def likely(self, expr: Any) -> Expr:
        """`expr` itself: a hint that nothing needs."""
        return _condition(expr, "ir_builder.likely")

    def get(self) -> Body:
        """All that was written."""
        if len(self._frames) > 1:
            raise ExpressionError(
                "ir_builder.get", "a loop or a condition has not ended yet",
                "Call it behind all `with`.",
            )  # fmt: skip
        launches: list[Launch] = []
        for item in _folded(self._frames[0]):
            if isinstance(item, Launch):
                launches.append(item)
            elif launches and not launches[-1].threads:
                launches[-1] = Launch((), seq(launches[-1].body, item))
            else:
                launches.append(Launch((), item))
        return Body(tuple(launches), tuple(self._spaces))

    def __getattr__(self, name: str) -> Any:
        raise absent("IRBuilder", name, _ELSEWHERE)

    # -- frames ------------------------------------------------------------------------------------
    @property
    def _launching(self) -> bool:
        return any(f.threads for f in self._frames)

    @contextmanager
    def _frame(self, *, is_open: bool = False) -> Iterator[_Frame]:
        """A frame for what is written inside; what an error leaves behind is dropped."""
        depth, made = len(self._frames), _Frame(is_open)
        self._frames.append(made)
        try:
            yield made
        finally:
            del self._frames[depth:]

    def _whole(self, frame: _Frame, what: str) -> Stmt:
        parts = _folded(frame)
        if any(isinstance(part, Launch) for part in parts):
            raise ExpressionError(
                "ir_builder.emit", f"a kernel with threads is inside {what}", "Emit it outside."
            )
        return seq(*parts)  # type: ignore[arg-type]


class _Shaped(BufferVar):
    """The same memory by another shape."""

    dims: tuple[int, ...] = ()

    @property
    def shape(self) -> tuple[int, ...]:
        return self.dims


@door(ExpressionError, "tir.decl_buffer")
def decl_buffer(
    shape: Any,
    dtype: str | None = None,
    name: str = "buffer",
    *,
    scope: str = "",
    elem_offset: int | None = None,
    data_alignment: int = -1,
    offset_factor: int = 0,
    buffer_type: str = "",
    strides: Sequence[int | Expr] | None = None,
) -> BufferVar:
    """A buffer for te.extern and te.decl_tensor_intrin; `dtype` is float32 unless given.

    strides: of a tile of te.decl_tensor_intrin, elements between neighbours along each dimension:
             numbers, or variables that its statements then know
    The others are TVM's: offsets, other scopes than global and broadcasts are refused, what else
    they may be changes nothing.
    """
    place = f"tir.decl_buffer({name!r})"
    if buffer_type:
        raise ExpressionError(
            place, f"a buffer of type {buffer_type} would repeat its elements",
            "Use topi.broadcast_to, or operators such as topi.add, which do.",
        )  # fmt: skip
    if elem_offset not in (None, 0) or scope not in ("", "global"):
        raise ExpressionError(
            place, "tensors are in global memory, from their first element on",
            "Leave out elem_offset and scope.",
        )  # fmt: skip
    dims = shape_of(shape, place)
    if strides and len(strides) != len(dims):
        raise ExpressionError(
            place, f"{len(strides)} strides for {len(dims)} dimensions", "Give one for each."
        )
    made = Buffer(name, DType(dtype or "float32", place), prod(dims), "global", dims)
    return BufferVar(made, strides=strides or ())


@door(ExpressionError, "ir_builder.create")
def create() -> IRBuilder:
    """A builder with nothing written yet."""
    return IRBuilder()


def _folded(frame: _Frame) -> list[Stmt | Launch]:
    """The statements and launches of a frame, with its memory around what follows it."""
    own, begun = list(frame.items), frame.start
    before: list[Any] = own[:begun] if frame.threads else own
    behind: list[Any] = []
    if frame.threads:
        kept = [item for item in before if isinstance(item, Buffer)]  # each thread has its own
        before = [item for item in before if not isinstance(item, Buffer)]
        behind = [Launch(tuple(frame.threads), seq(*_around([*kept, *own[begun:]])))]
    return [*_around(before), *behind]


def _around(items: Sequence[Any]) -> list[Any]:
    """Statements, each buffer allocated around all that come after it."""
    for k, item in enumerate(items):
        if isinstance(item, Buffer):
            inside = _around(items[k + 1 :])
            if any(isinstance(part, Launch) for part in inside):
                raise ExpressionError(
                    f"ir_builder.allocate({item.name!r})",
                    f"{item.scope} memory ends with its kernel",
                    "Allocate it behind scope_attr, or with scope global.",
                )  # fmt: skip
            return [*items[:k], Allocate(item, seq(*inside))]
    return list(items)


def _condition(value: Any, place: str) -> Expr:
    node = E.convert(value)
    if node.dtype != "bool" or node.lanes > 1:
        raise ExpressionError(place, f"{node} is no condition", "Compare a number: x != 0.")
    return node
