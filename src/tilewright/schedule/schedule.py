"""`Schedule` and `Stage`: the spelling users know over the steps, plus replay and printing.

In: a ComputeDAG and calls such as `s[C].split(x, factor=8)`.  Out: a list of steps, and the state
they made.  Read next: `state.py`, `steps/`, `tree/`.
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from tilewright.base import plugins
from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError
from tilewright.schedule import steps as S
from tilewright.schedule.intrinsics import Intrinsic, added
from tilewright.schedule.space.decision import Choice, Size
from tilewright.schedule.state import ScheduleState, StageState
from tilewright.schedule.steps.python import python_text
from tilewright.schedule.steps.step import Step
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.printer import loops_text, nest_text, place_text
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import IterVar, Operation, PlaceholderOp, Tensor

# Names of an operation that TVM's scripts ask of `s.outputs`, which are stages here.
_OF_OPERATION = ("axis", "body", "input_tensors", "num_outputs", "output", "reduce_axis", "tag")
# Pragmas of TVM that are primitives, and hints about the threads of its own runtime.
_PRIMITIVES = ("parallel", "unroll", "vectorize")
_HINTS = ("parallel_barrier_when_finish", "parallel_launch_point", "parallel_stride_pattern")


MOST_STEPS = 2000  # templates and rules make some dozens


class Stage(StageState):
    """The loops of one operation, as users change them.  Attributes are for reading only."""

    def __init__(
        self,
        schedule: Schedule,
        name: str,
        op: Operation,
        tensors: tuple[Tensor, ...],
        is_output: bool,
    ) -> None:
        super().__init__(name, op, tensors, is_output)
        self.schedule = schedule

    def __getattr__(self, name: str) -> Any:
        if name in _OF_OPERATION and "op" in self.__dict__:
            return getattr(self.op, name)
        return plugins.member(self, name, f"s[{self.__dict__.get('name', '?')}]")

    # -- primitives --------------------------------------------------------------------------------
    def _do(self, step: Step) -> Any:
        return self.schedule.do(step)

    def _axis(self, verb: str, axis: IterVar) -> str:
        """What steps call an axis of this stage.  Raises ScheduleError for any other."""
        if not isinstance(axis, IterVar):
            raise ScheduleError(
                f"{verb}({self.name}, {axis!r})", f"a {type(axis).__name__} is no axis",
                f"{S.describe(self)}; s[..].op.axis, split and fuse give them.",
            )  # fmt: skip
        if isinstance(self.op, PlaceholderOp):
            return axis.name  # which no step accepts
        for own in self.all_iter_vars:
            if own == axis:
                return own.name
        owners = [st.name for st in self.schedule.stages if axis in st.all_iter_vars]
        belongs = f"is an axis of {' and '.join(owners)}" if owners else "is of no stage here"
        raise ScheduleError(
            f"{verb}({self.name}, {axis.name})", f"{axis!r} {belongs}, not of {self.name}",
            f"{S.describe(self)}; take them from s[..] of this schedule: cache_write and rfactor "
            "make new ones.",
        )  # fmt: skip

    def _axes(self, verb: str, axes: Iterable[IterVar]) -> tuple[str, ...]:
        return tuple(self._axis(verb, ax) for ax in axes)

    def split(
        self, parent: IterVar, factor: Size | None = None, nparts: Size | None = None
    ) -> tuple[IterVar, IterVar]:
        """Split a loop in two, (outer, inner); see `steps.Split`."""
        axis = self._axis("split", parent)
        sizes = (None if size is None else _size(size) for size in (factor, nparts))
        return self._do(S.Split(self.name, axis, *sizes))  # type: ignore[no-any-return]

    def tile(
        self, x: IterVar, y: IterVar, x_factor: Size, y_factor: Size
    ) -> tuple[IterVar, IterVar, IterVar, IterVar]:
        """Split two axes and bring the outer loops out: (x_outer, y_outer, x_inner, y_inner)."""
        xo, xi = self.split(x, factor=x_factor)
        yo, yi = self.split(y, factor=y_factor)
        self.reorder(xo, yo, xi, yi)
        return xo, yo, xi, yi

    def fuse(self, *axes: IterVar) -> IterVar:
        """Make one loop of several neighbours; see `steps.Fuse`."""
        return self._do(S.Fuse(self.name, self._axes("fuse", axes)))  # type: ignore[no-any-return]

    def reorder(self, *axes: IterVar) -> None:
        """Put the given loops in a new order; see `steps.Reorder`."""
        self._do(S.Reorder(self.name, self._axes("reorder", axes)))

    def bind(self, axis: IterVar, thread: IterVar | str) -> None:
        """Run a loop on blocks or threads; see `steps.Bind`."""
        tag = thread.thread_tag if isinstance(thread, IterVar) else thread
        if not isinstance(tag, str) or not tag:
            raise ScheduleError(
                f"bind({self.name}, {thread!r})", "it names no thread index",
                'Give te.thread_axis("threadIdx.x"), or "threadIdx.x".',
            )  # fmt: skip
        self._do(S.Bind(self.name, self._axis("bind", axis), tag))

    def vectorize(self, axis: IterVar) -> None:
        """Run a loop's iterations as one vector; see `steps.Annotate`."""
        self._do(S.Annotate(self.name, self._axis("vectorize", axis), "vectorize"))

    def unroll(self, axis: IterVar) -> None:
        """Write a loop's iterations out; see `steps.Annotate`."""
        self._do(S.Annotate(self.name, self._axis("unroll", axis), "unroll"))

    def parallel(self, axis: IterVar) -> None:
        """Run a loop's iterations on several cores; see `steps.Annotate`."""
        self._do(S.Annotate(self.name, self._axis("parallel", axis), "parallel"))

    @door(ScheduleError)
    def pragma(self, axis: IterVar, key: str, value: Size | str = 1) -> None:
        """Say auto_unroll_max_step or unroll_explicit for all inside `axis`; see `steps.Pragma`.

        vectorize, unroll and parallel are the primitives of these names; parallel_launch_point,
        parallel_stride_pattern and parallel_barrier_when_finish change nothing.
        """
        if key in _PRIMITIVES:
            getattr(self, key)(axis)
            return
        if key in _HINTS:
            self._axis("pragma", axis)
            return
        if isinstance(value, str):
            take = plugins.placed("pragmas", key)
            if take is None or not take(value):
                raise ScheduleError(
                    f"pragma({self.name}, {key!r}, {value[:40]!r})", "code of others is not called",
                    "Declare what it computes with te.compute.",
                )  # fmt: skip
            self._axis("pragma", axis)
            return
        self._do(S.Pragma(self.name, self._axis("pragma", axis), key, _size(value)))

    @door(ScheduleError)
    def tensorize(self, axis: IterVar, atom: str | Intrinsic) -> None:
        """Have a matrix instruction, or an intrinsic that somebody described, run the loops from
        `axis` inwards; see `steps.Tensorize`."""
        place = self._axis("tensorize", axis)
        self._do(S.Tensorize(self.name, place, atom if isinstance(atom, str) else added(atom)))

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Compute inside a loop of a reader; see `steps.ComputeAt`."""
        host = self.schedule[parent]
        self._do(S.ComputeAt(self.name, host.name, host._axis("compute_at", axis)))

    def join(self, parent: Stage, axis: IterVar) -> None:
        """Compute by blocks of its own, the last of which goes on; see `steps.Join`."""
        host = self.schedule[parent]
        self._do(S.Join(self.name, host.name, host._axis("join", axis)))

    def accumulate_at(self, parent: Stage, axis: IterVar) -> None:
        """Reduce along with a reduction loop of another stage; see `steps.AccumulateAt`."""
        host = self.schedule[parent]
        self._do(S.AccumulateAt(self.name, host.name, host._axis("accumulate_at", axis)))

    def compute_inline(self) -> None:
        """Have readers repeat the computation; see `steps.ComputeInline`."""
        self._do(S.ComputeInline(self.name))

    def compute_root(self) -> None:
        """Compute on its own, before its readers; see `steps.ComputeRoot`."""
        self._do(S.ComputeRoot(self.name))

    @door(ScheduleError)
    def set_scope(self, scope: str) -> None:
        """Say where the buffer lives; see `steps.SetScope`."""
        self._do(S.SetScope(self.name, scope))

    def async_copy(self) -> None:
        """Have a copy into shared memory go on beside its threads; see `steps.AsyncCopy`."""
        self._do(S.AsyncCopy(self.name))

    def bulk_copy(self) -> None:
        """Have a copy engine bring boxes of a tensor; see `steps.BulkCopy`."""
        self._do(S.BulkCopy(self.name))

    def pipeline(self, slots: Size, loaders: Size = 0) -> None:
        """Copy tiles ahead of their use, into a ring of slots; see `steps.Pipeline`."""
        self._do(S.Pipeline(self.name, _size(slots), _size(loaders)))

    def storage_align(self, axis: IterVar, factor: Size, offset: Size) -> None:
        """Pad the stride of `axis`; see `steps.StorageAlign`."""
        sizes = _size(factor), _size(offset)
        self._do(S.StorageAlign(self.name, self._axis("storage_align", axis), *sizes))

    def storage_order(self, *axes: IterVar) -> None:
        """Store the buffer with the dimensions of `axes` innermost; see `steps.StorageOrder`."""
        self._do(S.StorageOrder(self.name, self._axes("storage_order", axes)))

    def swizzle(self, nbytes: Size) -> None:
        """Spread rows of the shared buffer over the banks; see `steps.Swizzle`."""
        self._do(S.Swizzle(self.name, _size(nbytes)))

    def __repr__(self) -> str:
        return f"Stage({self.name}: {place_text(self)}, loops {loops_text(self)})"


def _size(value: Any) -> Any:
    """Numpy and other integers, True and False, as int; Choice as it is."""
    if isinstance(value, Choice):
        return value
    try:
        return operator.index(value)
    except TypeError:
        raise ScheduleError(
            f"size {value!r}", "not an integer", "Use // where / makes a float."
        ) from None


class Schedule(ScheduleState[Stage]):
    """The stages of a DAG in order (producers first) and the steps that shaped them."""

    door_words = ("a schedule", "te.create_schedule(op) makes one.")

    def __init__(self, dag: ComputeDAG) -> None:
        self.steps: list[Step] = []
        super().__init__(dag)

    def _new_stage(
        self, name: str, op: Operation, tensors: tuple[Tensor, ...], is_output: bool
    ) -> Stage:
        return Stage(self, name, op, tensors, is_output)

    def __getattr__(self, name: str) -> Any:
        return plugins.member(self, name, "schedule")

    def do(self, step: Step) -> Any:
        """Apply one step; it is recorded only if it is legal."""
        result = step.apply(self)
        self.steps.append(step)
        return result

    @door(ScheduleError)
    def cache_read(
        self,
        tensor: Tensor,
        scope: str,
        readers: Iterable[Tensor | Operation] | Tensor | Operation,
        dtype: str = "",
    ) -> Tensor:
        """Have readers read a copy of `tensor` in `scope`, in a wider `dtype` if one is given;
        see `steps.CacheRead`."""
        items = [readers] if isinstance(readers, (Tensor, Operation)) else list(readers)
        names = tuple(self[r].name for r in items)
        plain = isinstance(dtype, str) and not dtype
        wanted = tensor.dtype if plain else DType(dtype, f"cache_read({tensor.name})")
        kind = "" if wanted is tensor.dtype else str(wanted)
        source = self[tensor]
        value = source.tensors.index(tensor) if tensor in source.tensors else 0
        return self.do(S.CacheRead(source.name, scope, names, kind, value))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def cache_write(self, tensor: Tensor | Sequence[Tensor], scope: str) -> Any:
        """Move the computation into a stage in `scope`; see `steps.CacheWrite`.

        For a list of tensors, a list: schedules that TVM printed say `x, = s.cache_write([y], ..)`.
        All tensors of a stage are moved together, whichever are given.
        """
        listed = [tensor] if isinstance(tensor, Tensor) else list(tensor)
        stages = {self[t]: None for t in listed}
        moved: dict[Tensor, Tensor] = {}
        for stage in stages:
            made = self.do(S.CacheWrite(stage.name, scope))
            moved |= zip(stage.tensors, self[made].tensors, strict=True)
        return moved[tensor] if isinstance(tensor, Tensor) else [moved[t] for t in listed]

    @door(ScheduleError)
    def rfactor(
        self, tensor: Tensor | Sequence[Tensor], axis: IterVar, factor_axis: int = 0
    ) -> Any:
        """Compute partial results over a reduction loop; see `steps.RFactor`.

        For a stage of several tensors, a tuple of theirs.
        """
        stage = self[tensor]
        step = S.RFactor(stage.name, stage._axis("rfactor", axis), factor_axis)
        made = self[self.do(step)]
        return made.tensor if len(made.tensors) == 1 else made.tensors

    @door(ScheduleError)
    def pack(
        self, tensor: Tensor, blocks: Sequence[Size | Sequence[Size]], order: Sequence[int],
        rounded: bool = False,
    ) -> Tensor:  # fmt: skip
        """Store an input in a blocked, permuted layout; see `steps.Pack`.

        blocks: of each dimension, in one part or in several
        rounded: as operands of atoms of tf32
        """
        sizes = tuple(
            tuple(map(_size, b)) if isinstance(b, (tuple, list)) else _size(b) for b in blocks
        )
        return self.do(S.Pack(self[tensor].name, sizes, tuple(order), rounded))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def pad(self, tensor: Tensor, multiples: Mapping[IterVar, int]) -> Tensor:
        """Round extents of a sum of products up, with zeros beyond; see `steps.Pad`.

        multiples: of axes of the operation, spatial and reduction ones
        Returns the tensor of the rounded extents: `tensor` itself where all are multiples.
        """
        stage = self[tensor]
        axes, sizes = stage._axes("pad", multiples), tuple(map(_size, multiples.values()))
        for axis, size in zip(axes, sizes, strict=True):
            if not isinstance(size, int):
                raise ScheduleError(
                    f"pad({stage.name}, {{{axis}: {size}}})", "the multiple is no integer",
                    "Extents of stages are fixed: use int(), which asks a decision for its value.",
                )  # fmt: skip
        return self.do(S.Pad(stage.name, axes, sizes))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def as_product(
        self, tensor: Tensor, m: Sequence[IterVar], n: Sequence[IterVar], k: Sequence[IterVar]
    ) -> Tensor:
        """Compute a sum of products as one of matrices, [..., m, n]; see `steps.AsProduct`.

        m, n: spatial axes of the operation that are fused, k: reduction axes
        Returns the tensor of the product.
        """
        stage = self[tensor]
        groups = (stage._axes("as_product", axes) for axes in (m, n, k))
        return self.do(S.AsProduct(stage.name, *groups))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def divide_last(self, tensor: Tensor) -> Tensor:
        """Divide a sum in the place of its terms; see `steps.DivideLast`.

        Returns the tensor of the sums that are still to be divided.
        """
        return self.do(S.DivideLast(self[tensor].name))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def split_softmax(self, tensor: Tensor, parts: int) -> tuple[Tensor, ...]:
        """Sum up products of exponentials in pieces; see `steps.SplitSoftmax`.

        Returns what a piece has: its maximum, the sum of its exponentials, its sums, and all three
        side by side.
        """
        return self.do(S.SplitSoftmax(self[tensor].name, parts))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def widen(self, tensor: Tensor) -> Tensor:
        """Keep what a stage computes in the type of its arithmetic; see `steps.Widen`.

        Returns the tensor in that type.
        """
        return self.do(S.Widen(self[tensor].name))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def apart(self, tensor: Tensor, dtype: str) -> Tensor:
        """Make a stage, of type `dtype`, of the factor that a sum of products computes; see
        `steps.Apart`.

        Returns the tensor of the factor.
        """
        return self.do(S.Apart(self[tensor].name, dtype))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def sum_groups(self, tensor: Tensor) -> Tensor:
        """Add up terms before what a group of them has in common is multiplied; see
        `steps.SumGroups`.

        Returns the tensor of the sums of groups.
        """
        return self.do(S.SumGroups(self[tensor].name))  # type: ignore[no-any-return]

    @door(ScheduleError)
    def digits(
        self, tensor: Tensor, count: int, together: int = 1, abreast: int = 1
    ) -> tuple[Tensor, ...]:
        """Multiply rows of floats by small integers digit by digit, as whole numbers; see
        `steps.Digits`.

        together: terms whose elements count in whole numbers of the same
        abreast:  terms whose sums lie side by side
        Returns the tensors (sums of digits, their products, the integers as bytes, the rows; of
        what is together the largest element, the scale, what a whole number counts; whole numbers,
        their digits, and these as columns of products).
        """
        return self.do(S.Digits(self[tensor].name, count, together, abreast))  # type: ignore[no-any-return]

    @staticmethod
    def replay(dag: ComputeDAG, steps: Iterable[Step | list[Any]]) -> Schedule:
        """Give the schedule that `steps` (or their JSON) build on `dag`.

        Raises ScheduleError for a step that is none, or not legal there, and for too many of them.
        """
        s, steps = Schedule(dag), list(steps)
        if len(steps) > MOST_STEPS:
            raise ScheduleError(
                f"replay({len(steps)} steps)", f"a schedule has at most {MOST_STEPS}"
            )
        for step in steps:
            s.do(step if isinstance(step, Step) else S.step_from_json(step))
        return s

    def to_json(self) -> list[list[Any]]:
        """Give the steps as lists and numbers, of which `replay` makes the schedule again."""
        return [step.to_json() for step in self.steps]

    def __str__(self) -> str:
        """The loop nests as they are now; see `tree/printer.py`."""
        try:
            tree = LoopTree(self)
        except ScheduleError as error:  # not finished: what it still lacks is the first line
            return f"# {error}\n{nest_text(self)}"
        return str(tree)

    def __repr__(self) -> str:
        opened = {n: None for step in self.steps for n in step.decisions()}
        rest = f", open: {', '.join(opened)}" if opened else ""
        names = ", ".join(stage.name for stage in self.outputs)
        return f"Schedule({names}: {len(self.stages)} stages, {len(self.steps)} steps{rest})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuilt, (self.dag.to_json(open_extents=True), self.to_json())

    def to_python(self) -> str:
        """Print the steps as Python that makes this schedule of `s = te.create_schedule(...)`."""
        return python_text(Schedule(self.dag), self.steps)


def _rebuilt(dag: dict[str, Any], steps: list[list[Any]]) -> Schedule:
    """What a pickled schedule is: plain data."""
    return Schedule.replay(ComputeDAG.from_json(dag), steps)


@door(ScheduleError, "te.create_schedule")
def create_schedule(
    ops: Operation | Tensor | Sequence[Operation | Tensor] | ComputeDAG,
) -> Schedule:
    """Make a schedule of everything behind the given outputs, as `te.create_schedule([C.op])`."""
    if isinstance(ops, ComputeDAG):
        return Schedule(ops)
    items = ops if isinstance(ops, Sequence) else [ops]
    computed = dict.fromkeys(x.op if isinstance(x, Tensor) else x for x in items)
    return Schedule(ComputeDAG([t for op in computed for t in op.outputs]))
