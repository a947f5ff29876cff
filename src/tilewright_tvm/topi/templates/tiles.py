"""What the templates by name share: an output in tiles, a reduction in slices, packed constants.

In: a configuration and the axes that its knobs tile.  Out: stages spread over blocks, virtual
threads and threads, and copies to shared memory.  Read next: `gpu_conv.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.decision import Size
from tilewright.schedule.template import Anchored
from tilewright.schedule.thread_loops import staged
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor
from tilewright.topi.stage import workload_of

LEVELS = {2: "bv", 3: "bti", 4: "bvti"}  # blocks, virtual threads, threads, inner; by their number
Knobs = Sequence[Sequence[str]]  # those that share a block or thread index, x last


@dataclass(frozen=True)
class Tiles:
    """A tiled output.

    block, thread: the innermost loop over blocks, over threads; inner: those of one thread
    counts: threads along each index, x last
    """

    block: IterVar
    thread: IterVar
    inner: list[IterVar]
    counts: list[Size]


def factors(a: Anchored) -> tuple[Tensor, Tensor]:
    """The two tensors that the anchor multiplies: data and weight."""
    tensors = a.stage(a.anchor).op.input_tensors
    if len(tensors) != 2:
        raise ScheduleError(
            f"template for {a.stage(a.anchor).name}",
            f"it reads {len(tensors)} tensors, not data and weight",
            "Use the rules, or its default schedule.",
        )
    return tensors[0], tensors[1]


def last_of(a: Anchored, op: ComputeOp) -> Tensor:
    """The output; of a transposed convolution what puts its phases side by side, or follows it."""
    if "transpose" not in op.tag:
        return a.output
    last = a.schedule.dag.outputs[0]
    rank = len(workload_of(op, 1)[1][1])
    if len(last.shape) != rank or last.shape[:2] != op.shape[:2]:
        raise ScheduleError(
            f"template for {a.anchor.name}", "what follows it has another shape",
            "Use the rules, or its default schedule.",
        )  # fmt: skip
    return last


def pack(s: Schedule, tensor: Tensor, blocks: Sequence[Size], order: Sequence[int]) -> None:
    """`s.pack` of a constant, and nothing for any other tensor.

    order: as for `s.pack`, with the blocks that turn out to be 1
    """
    op = s[tensor].op
    if not (isinstance(op, PlaceholderOp) and op.constant):
        return
    sizes = [int(b) for b in blocks]
    kept = [d for d in order if d < len(sizes) or sizes[d - len(sizes)] > 1]
    s.pack(tensor, sizes, kept)


def spread(
    cfg: Any, s: Schedule, out: Tensor, axes: Mapping[str, IterVar], blocks: Knobs, threads: Knobs,
    lead: Sequence[IterVar] = (),
) -> Tiles:  # fmt: skip
    """Tile the axes of `out`, one by each knob, and bind the loops.

    axes: in the order in which their loops are nested within a level
    lead: other axes, which share the first block index
    """
    stage = s[out]
    at = {
        name: dict(zip(LEVELS[len(cfg[name].size)], cfg[name].apply(s, out, axis), strict=True))
        for name, axis in axes.items()
    }
    inner = [loops["i"] for loops in at.values() if "i" in loops]
    outer = [loops[level] for level in "bvt" for loops in at.values() if level in loops]
    stage.reorder(*lead, *outer, *inner)
    grid = [[at[name]["b"] for name in names] for names in blocks]
    grid[0] = [*lead, *grid[0]]
    bound = [stage.fuse(*loops) for loops in grid]
    for loop, dim in zip(bound, "zyx"[-len(bound) :], strict=True):
        stage.bind(loop, f"blockIdx.{dim}")
    for loops in at.values():
        if "v" in loops:
            stage.bind(loops["v"], "vthread")
    working = [stage.fuse(*(at[name]["t"] for name in names)) for names in threads]
    for loop, dim in zip(working, "zyx"[-len(working) :], strict=True):
        stage.bind(loop, f"threadIdx.{dim}")
    counts = [prod(cfg[name].size[-2] for name in names) for names in threads]
    return Tiles(bound[-1], working[-1], inner, counts)


def fetch(
    stage: Stage, counts: Sequence[Size], *, in_turn: bool, lanes: Size | None = None
) -> None:
    """Copy with all threads of the block, dealt out an index at a time.

    in_turn: neighbouring elements by neighbouring threads, else each has its share in one piece
    lanes: of the vectors that are copied; None: single elements
    """
    rest = stage.fuse(*stage.op.axis)
    if lanes is not None:
        rest, lane = stage.split(rest, factor=lanes)
        stage.vectorize(lane)
    dims = "zyx"[-len(counts) :]
    if in_turn:
        for count, dim in zip(reversed(counts), reversed(dims), strict=True):
            rest, thread = stage.split(rest, factor=count)
            stage.bind(thread, f"threadIdx.{dim}")
        return
    for count, dim in zip(counts, dims, strict=True):
        thread, rest = stage.split(rest, nparts=count)
        stage.bind(thread, f"threadIdx.{dim}")


def through_shared(
    s: Schedule, tensors: Sequence[Tensor], local: Tensor, place: Stage, loop: IterVar,
    counts: Sequence[Size], *, in_turn: bool,
) -> list[Tensor]:  # fmt: skip
    """The copies in shared memory, made at `loop` of `place`."""
    copies = []
    for tensor in tensors:
        shared = s.cache_read(tensor, "shared", [local], staged(tensor.dtype))
        s[shared].compute_at(place, loop)
        fetch(s[shared], counts, in_turn=in_turn)
        copies.append(shared)
    return copies


def unroll(cfg: Any, stage: Stage) -> None:
    """`unroll_explicit` says in TVM who unrolls; here it is always the code that is printed."""
    loop = stage.leaf_iter_vars[0]
    stage.pragma(loop, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)


def define_unroll(cfg: Any, steps: Sequence[int]) -> None:
    cfg.define_knob("auto_unroll_max_step", list(steps))
    cfg.define_knob("unroll_explicit", [0, 1])
