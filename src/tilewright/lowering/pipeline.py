"""The pipeline: one literal list of passes from schedule to program.

In: a closed `Schedule`, a `Target`, a name.  Out: a `Program`.  Read next: `nest.py`.

TILEWRIGHT_DEBUG=5 (or more) prints a kernel after each pass that changed it, with the time taken,
and checks it with `ir/verifier.py`.  TILEWRIGHT_DUMP=dir writes the same texts as
`dir/KERNEL/NN_pass.txt`; NN counts passes, 00 are the loops that the first pass gets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path

from tilewright.base import environment
from tilewright.base.errors import LoweringError, part_of
from tilewright.base.names import as_plain
from tilewright.ir.atoms import Atom
from tilewright.ir.barriers import insert_barriers
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Buffer, Kernel, Program
from tilewright.ir.symbols import is_symbol
from tilewright.ir.verifier import verify, verify_kernel
from tilewright.lowering.branches import flatten_choices, merge_guards
from tilewright.lowering.loops import simplify_indices, unroll, vectorize
from tilewright.lowering.nest import Nests, build_nests
from tilewright.lowering.roles import separate_roles
from tilewright.lowering.types import legalize_types
from tilewright.lowering.unseen import skip_unseen
from tilewright.lowering.unseen_keys import skip_unseen_keys
from tilewright.lowering.virtual_threads import inject_virtual_threads
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree
from tilewright.targets.atoms import of_threads
from tilewright.targets.target import Target
from tilewright.te.tensor import PlaceholderOp, Tensor, scalar

Pass = Callable[[Kernel, Nests, Target], Kernel]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("virtual threads", lambda k, n, t: inject_virtual_threads(k)),
    ("vectorize", lambda k, n, t: vectorize(k, t.device_kind.vectors_are_aligned)),
    ("barriers", lambda k, n, t: insert_barriers(k)),
    ("unseen", lambda k, n, t: skip_unseen_keys(skip_unseen(k)) if t.has_threads else k),
    ("roles", lambda k, n, t: separate_roles(k)),
    ("simplify", lambda k, n, t: simplify_indices(k)),
    ("choices", lambda k, n, t: flatten_choices(k) if t.has_threads else k),
    ("guards", lambda k, n, t: merge_guards(k) if t.has_threads else k),
    ("types", lambda k, n, t: legalize_types(k) if n.narrow else k),
    (
        "unroll",
        lambda k, n, t: unroll(
            k, n.unroll_limit, t.limits.max_unrolled_body, t.limits.register_bytes
        ),
    ),
)


@dataclass(frozen=True)
class _Watch:
    """Shows, checks and writes kernels between passes, as the environment asks."""

    debug: bool
    directory: str

    @staticmethod
    def from_environment() -> _Watch:
        return _Watch(environment.debug_level() >= 5, environment.dump_directory())

    def see(self, number: int, label: str, kernel: Kernel, seconds: float) -> None:
        if self.debug:
            head = f"-- {label}: {kernel.name} ({seconds * 1e3:.2f} ms)"
            print(f"{head}\n{kernel}\n", file=sys.stderr)
            verify_kernel(kernel)
        if self.directory:
            folder = Path(self.directory) / as_plain(kernel.name)
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{number:02}_{label.replace(' ', '_')}.txt"
            file.write_text(f"{kernel}\n", encoding="utf-8")


def lower_schedule(
    schedule: Schedule,
    target: Target,
    name: str = "main",
    args: Sequence[Tensor | Expr] | None = None,
    tree: LoopTree | None = None,
    bounds: Bounds | None = None,
    passes: Sequence[tuple[str, Pass]] | None = None,
) -> Program:
    """The program of a schedule whose decisions are all ints.

    args: the parameters in order, the DAG's own order where none is given: all inputs, and of what
          is computed on its own whatever the caller wants; what is none becomes a workspace.
          Variables may be among them; extents that are not follow from the shapes of the others
    passes: what is made of the loops; default: all, as devices need them
    """
    watch = _Watch.from_environment()
    start = time.perf_counter()
    tree = tree if tree is not None else LoopTree(schedule)
    check_target(tree, target)
    bounds = bounds if bounds is not None else tree.bounds()
    given_out = [t for t in args or () if isinstance(t, Tensor) and t in schedule.dag.computed]
    nests = build_nests(tree, bounds, name, target.has_threads, given_out)
    kernels = []
    for kernel in nests.kernels:
        watch.see(0, "loops", kernel, time.perf_counter() - start)
        for number, (label, apply) in enumerate(PASSES if passes is None else passes, 1):
            start = time.perf_counter()
            with part_of(f"pass {label!r} on {kernel.name}"):
                new = apply(kernel, nests, target)
            if new is not kernel:
                watch.see(number, label, new, time.perf_counter() - start)
            kernel = new
        kernels.append(kernel)
    params = _parameters(schedule, nests, args)
    stored = [nests.buffers[t] for stage in tree.stored_alone for t in stage.tensors]
    stored += [nests.buffers[t] for n in tree.nodes if n.joined for t in n.stage.tensors]
    workspaces = tuple(b for b in (*stored, *nests.counters, *nests.spaces) if b not in params)
    roles = tuple(params.values())
    program = Program(name, tuple(params), roles, tuple(kernels), workspaces, nests.calls)
    if watch.debug:
        verify(program)
    return program


def check_target(tree: LoopTree, target: Target) -> None:
    """Loops and instructions that the target does not have."""
    for node in tree.nodes:
        if node.stage.is_bulk and not target.copies_boxes:
            raise LoweringError(
                f"bulk_copy({node.name})", f"{target} has no engine that copies boxes",
                "Leave it out, or build for cuda -arch=sm_90 or later.",
            )  # fmt: skip
        if node.stage.is_copied and not target.copies_alone:
            raise LoweringError(
                f"pipeline({node.name})", f"{target} has no asynchronous copies",
                "Leave it out, or build for cuda -arch=sm_80 or later.",
            )  # fmt: skip
        if node.joined and not target.counts_blocks:
            raise LoweringError(
                f"join({node.name})", f"blocks of {target} cannot count each other",
                "Use compute_root: another kernel goes on, or build for cuda.",
            )  # fmt: skip
        if node.product is not None and not target.has(node.product.atom.name):
            raise LoweringError(
                f"tensorize({node.name}, {node.product.atom})", f"{target} has no such instruction",
                _instead(node.product.atom, target),
            )  # fmt: skip
        for axis, tag in node.stage.binds.items():
            if not target.has_threads and tag != "vthread":
                raise LoweringError(
                    f"bind({node.name}.{axis.name}, {tag})",
                    f"{target.kind} kernels have no blocks and threads",
                    "Use parallel and vectorize, or build for cuda or opencl.",
                )
        for axis, how in node.stage.annotations.items():
            if target.has_threads and how == "parallel":
                raise LoweringError(
                    f"parallel({node.name}.{axis.name})",
                    f"{target.kind} kernels have no parallel loops",
                    "Bind the loop to blockIdx or threadIdx, or build for llvm.",
                )


def _instead(atom: Atom, target: Target) -> str:
    """What to do about a matrix instruction that a target lacks."""
    has = [*target.atoms, *(rate.name for rate in of_threads(target))]
    if has:
        return f"It has {', '.join(has)}; or leave tensorize out."
    if atom.by_thread:
        return "It has none: leave tensorize out."
    arch = "sm_90" if atom.by_group else "sm_80"
    return f"It has none: leave tensorize out, or build for cuda -arch={arch} or later."


def _parameters(
    schedule: Schedule, nests: Nests, args: Sequence[Tensor | Expr] | None
) -> dict[Buffer, str]:
    """The buffers that callers give, in order, with their roles."""
    dag = schedule.dag
    listed = dag.args if args is None else args
    found: dict[Buffer, str] = {}
    for item in listed:
        buffer, role = _parameter(schedule, nests, item)
        if buffer in found:
            raise LoweringError(
                f"lower(args): {buffer.name}", "it is listed twice", "List every argument once."
            )
        found[buffer] = role
    missing = [op.name for op in dag.placeholders if nests.buffers[op.output_tensor] not in found]
    if missing:
        raise LoweringError(
            f"lower(args): {missing[0]}", "it is an input and not among the arguments",
            f"Pass [{', '.join(t.name for t in dag.args)}].",
        )  # fmt: skip
    return found | {b: "extent" for b in _hidden(nests, found)}


def _parameter(schedule: Schedule, nests: Nests, item: Tensor | Expr) -> tuple[Buffer, str]:
    """A tensor of the schedule, or a variable; other inputs may be given and are not used."""
    if isinstance(item, Expr):
        if not is_symbol(item):
            raise LoweringError(
                f"lower(args): {item}", "it is no tensor and no variable",
                "Give tensors, and variables that te.var made.",
            )  # fmt: skip
        if item in nests.given:
            return nests.given[item].buffer, "input"
        item = scalar(item)
    if item in nests.buffers and isinstance(item.op, PlaceholderOp):
        return nests.buffers[item], "input"
    if item in nests.buffers and schedule[item].attach_kind == "root":
        return nests.buffers[item], "output"
    if isinstance(item.op, PlaceholderOp):
        size = prod(item.shape)
        return Buffer(item.name, item.dtype, size, "global", tuple(item.shape)), "input"
    inside = item.op in schedule.dag.ops
    raise LoweringError(
        f"lower(args): {item.name}",
        "it is computed inside another stage and stored nowhere"
        if inside
        else "this schedule does not compute it",
        f"Leave it out, or call s[{item.name}].compute_root()."
        if inside
        else f"Pass [{', '.join(t.name for t in schedule.dag.args)}].",
    )


def _hidden(nests: Nests, given: Collection[Buffer]) -> list[Buffer]:
    """Buffers of extents that follow from the shapes of arguments.

    Raises LoweringError for a variable that follows from none of them.
    """
    shapes = [n for b in given for n in b.shape]
    read = {g for kernel in nests.kernels for g in kernel.given}
    hidden = []
    for v, g in nests.given.items():
        if g.buffer in given:
            continue
        if not any(v is n for n in shapes):
            raise LoweringError(
                f"lower(args): {v.attr}", f"no argument has {v.attr} itself as a dimension",
                f"Give {v.attr} among the arguments: [{v.attr}, ...].",
            )  # fmt: skip
        if g in read:
            hidden.append(g.buffer)
    return hidden
