"""Stages whose kernels somebody wrote: what they compute is what their statements say.

In: tensors, each with the buffer that stands for it in the statements.  Out: the tensors of an
`OpaqueOp`.  It has no axes: no step changes its loops, it is computed on its own, and each of its
launches is a kernel of the program; stages before and after it are scheduled as any.
What writes such stages gives them a class of its own, with its words in errors.
Read next: `lowering/opaque.py`, which makes the kernels.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ExpressionError
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, walk
from tilewright.ir.fast_interpreter import run_fast
from tilewright.ir.stmt import (
    STATEMENTS,
    Allocate,
    Buffer,
    For,
    Kernel,
    PackedCall,
    Program,
    Region,
    Stmt,
    Store,
    Thread,
    expressions,
    load,
    map_children,
    map_regions,
    read_regions,
    statements,
    written_regions,
)
from tilewright.ir.symbols import one_of
from tilewright.ir.tuples import together
from tilewright.te.rounding import Approx, cast_value, kept_as
from tilewright.te.tensor import ComputeOp, IterVar, Tensor


@dataclass(frozen=True, eq=False)
class Launch:
    """One kernel: a statement, and the blocks and threads that run it (none: it runs once)."""

    threads: tuple[Thread, ...]
    body: Stmt


@dataclass(frozen=True, eq=False)
class Body:
    """The kernels of a stage.  launches: run one after the other; spaces: memory that all of them
    see, beside the tensors."""

    launches: tuple[Launch, ...]
    spaces: tuple[Buffer, ...] = ()

    def __str__(self) -> str:
        return "\n".join(str(launch.body) for launch in self.launches)

    @property
    def expressions(self) -> Iterator[Expr]:
        """The root expressions of all statements, extents of threads among them."""
        for launch in self.launches:
            yield from expressions(launch.body)
            yield from (t.extent for t in launch.threads if isinstance(t.extent, Expr))


class _Own(Tensor):
    """A tensor of a stage whose tensors have shapes of their own."""

    __slots__ = ()

    @property
    def shape(self) -> tuple[int, ...]:
        assert isinstance(self.op, OpaqueOp)
        return self.op.writes[self.value_index].shape


@dataclass(frozen=True)
class Words:
    """How errors call a kind of opaque stages, and what they say to do instead.

    name:     without an article
    loops:    of a step that would change its loops
    parallel: of a parallel loop on a device that has none
    serial:   of threads on a device that has none
    inside:   of an index that is surely outside
    """

    name: str = "handwritten kernel"
    loops: str = "Write its statements so."
    parallel: str = "Use blocks and threads, or build for llvm."
    serial: str = "Use loops, or build for cuda or opencl."
    inside: str = "Run the loop less often, or put a condition around it."


class OpaqueOp(ComputeOp):
    """A stage that statements compute.

    reads:  its inputs, each with the buffer that stands for it in `script`; it reads all of them
    writes: the buffers of its outputs, whose shapes may differ
    call:   the Python function that computes it in place of statements, or None
    words:  of errors (of a subclass, its own)
    """

    __slots__ = ("call", "reads", "script", "writes")
    words: ClassVar[Words] = Words()

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

    @property
    def why_fixed(self) -> tuple[str, str]:
        return (
            f"{self.words.name} is computed on its own, by the loops that its statements have",
            self.words.loops,
        )

    @property
    def why_untuned(self) -> tuple[str, str]:
        return (
            f"{self.name} is a {self.words.name}, which is not tuned",
            "Schedule it with te.create_schedule, or tune what is computed around it.",
        )

    @property
    def text(self) -> str:
        head = f"{self.name} = EXTERN({', '.join(t.name for t in self.input_tensors)})"
        return f"{head}\n{self.script if self.call is None else self.call}"

    def rest_of_json(self, number: Callable[[Tensor], Any]) -> list[Any]:
        raise ExpressionError(
            f"ComputeDAG: {self.name}", f"statements of {self.words.name} have no hash and no JSON",
            "Build it with te.create_schedule; records and tasks are of what te.compute says.",
        )  # fmt: skip

    def over(self, axis: tuple[IterVar, ...], body: Expr) -> OpaqueOp:
        return self

    def at(self, numbers: Mapping[Expr, int], tensors: Mapping[Tensor, Tensor]) -> OpaqueOp:
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
        return type(self)(self.name, reads, writes, script, self.tag, self.attrs, call)

    def evaluate(self, values: Mapping[Tensor, Approx], track: bool) -> dict[Tensor, Approx]:
        """Run the statements, which define the result, on values as they are stored.

        track: whether a bound is asked for.  Of integers nothing is rounded; what rounding does to
               all else no bound says
        Raises InterpreterError for an index outside, a race, and an element that nothing stored.
        """
        read = [values[tensor] for tensor, _ in self.reads]
        arrays = [
            cast_value(r.value, t.dtype).astype(t.dtype.storage)
            for r, (t, _) in zip(read, self.reads, strict=True)
        ]
        kinds = {node.dtype for node in walk(*self.expressions)}
        sure = not any(kind.is_float for kind in kinds) and all(r.error is None for r in read)
        return {
            tensor: Approx(
                found.astype(kept_as(tensor.dtype)),
                None if sure or not track else np.full(tensor.shape, np.inf),
            )
            for tensor, found in zip(self.outputs, self._run(arrays), strict=True)
        }

    def _run(self, inputs: Sequence[Any]) -> list[Any]:
        """The outputs, of an array for each of `reads`, of its type."""
        if self.call is not None:
            raise ExpressionError(
                f"evaluate({self.name})", f"the Python function {self.call.name} says what it is",
                "Build it for llvm, and compare what the module gives with what you expect.",
            )  # fmt: skip
        kernels = tuple(
            Kernel(f"{self.name}_{k}", touched(launch.body), launch.body, launch.threads)
            for k, launch in enumerate(self.script.launches)
        )
        buffers = tuple(dict.fromkeys(b for _, b in self.reads))
        roles = ("input",) * len(buffers) + ("output",) * len(self.writes)
        program = Program(self.name, (*buffers, *self.writes), roles, kernels, self.script.spaces)
        given = dict(zip((b for _, b in self.reads), inputs, strict=True))
        outs = [np.zeros(b.shape, b.dtype.storage) for b in self.writes]
        run_fast(program, [*(given[b] for b in buffers), *outs])
        return outs

    def __repr__(self) -> str:
        return f"extern({self.name}, {', '.join(map(repr, self.writes))})"


def rewritten(
    stmt: Stmt, buffer: Callable[[Buffer], Buffer], value: Callable[[Expr], Expr] = lambda e: e
) -> Stmt:
    """Put a statement on other buffers.  value: what becomes of its expressions beside that."""

    def on_expr(e: Expr) -> Expr:
        return E.transform(
            value(e), lambda n: load(buffer(n.attr), n.args[0]) if n.op == "load" else None
        )

    def on_region(region: Region) -> Region:
        return replace(region, buffer=buffer(region.buffer))

    def on_stmt(s: Stmt) -> Stmt:
        new = map_regions(map_children(s, on_stmt, on_expr), on_region)
        if isinstance(new, (Store, Allocate)):
            return replace(new, buffer=buffer(new.buffer))
        if isinstance(new, For) and isinstance(new.extent, Expr) and new.extent.op == "const":
            return replace(new, extent=int(new.extent.attr))
        return new

    return on_stmt(stmt)


def touched(stmt: Stmt) -> tuple[Buffer, ...]:
    """List the buffers in global memory that a statement touches, in order."""
    found: dict[Buffer, None] = {}
    for s in statements(stmt):
        found |= {n.attr: None for n in walk(*own_expressions(s)) if n.op == "load"}
        found |= dict.fromkeys(r.buffer for r in (*read_regions(s), *written_regions(s)))
        if isinstance(s, Store):
            found[s.buffer] = None
    return tuple(b for b in found if b.scope == "global")


def own_expressions(s: Stmt) -> Iterator[Expr]:
    """Give the root expressions of a statement itself, not of those under it."""
    fields = (getattr(s, name) for name in STATEMENTS[type(s)].expressions)
    yield from (part for part in fields if isinstance(part, Expr))
    yield from (region.index for region in (*read_regions(s), *written_regions(s)))
