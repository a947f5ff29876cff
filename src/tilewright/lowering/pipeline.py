"""The pipeline: one literal list of passes from schedule to program.

In: a closed `Schedule`, a `Target`, a name.  Out: a `Program`.  Read next: `nest.py`.

TILEWRIGHT_DEBUG=5 (or more) prints a kernel after each pass that changed it, with the time taken,
and checks it with `ir/verifier.py`.  TILEWRIGHT_DUMP=dir writes the same texts as
`dir/KERNEL/NN_pass.txt`; NN counts passes, 00 are the loops that the first pass gets.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tilewright.base import environment
from tilewright.base.errors import LoweringError, part_of
from tilewright.ir.stmt import Kernel, Program
from tilewright.ir.verifier import verify, verify_kernel
from tilewright.lowering.branches import flatten_choices, merge_guards
from tilewright.lowering.loops import simplify_indices, unroll, vectorize
from tilewright.lowering.nest import Nests, build_nests
from tilewright.lowering.threads import inject_virtual_threads, insert_barriers
from tilewright.lowering.types import legalize_types
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

Pass = Callable[[Kernel, Nests, Target], Kernel]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("virtual threads", lambda k, n, t: inject_virtual_threads(k)),
    ("vectorize", lambda k, n, t: vectorize(k, t.device_kind.vectors_are_aligned)),
    ("barriers", lambda k, n, t: insert_barriers(k)),
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
            folder = Path(self.directory) / kernel.name
            folder.mkdir(parents=True, exist_ok=True)
            file = folder / f"{number:02}_{label.replace(' ', '_')}.txt"
            file.write_text(f"{kernel}\n", encoding="utf-8")


def lower_schedule(
    schedule: Schedule,
    target: Target,
    name: str = "main",
    args: Sequence[Tensor] | None = None,
    tree: LoopTree | None = None,
    bounds: Bounds | None = None,
) -> Program:
    """The program of a schedule whose decisions are all ints.

    args: the parameters in order, the DAG's own order where none is given.  Tensors that are stored
    between kernels and are no parameter become workspaces.
    """
    watch = _Watch.from_environment()
    start = time.perf_counter()
    tree = tree if tree is not None else LoopTree(schedule)
    _check_target(tree, target)
    bounds = bounds if bounds is not None else tree.bounds()
    nests = build_nests(tree, bounds, name, target.has_threads)
    kernels = []
    for kernel in nests.kernels:
        watch.see(0, "loops", kernel, time.perf_counter() - start)
        for number, (label, apply) in enumerate(PASSES, 1):
            start = time.perf_counter()
            with part_of(f"pass {label!r} on {kernel.name}"):
                new = apply(kernel, nests, target)
            if new is not kernel:
                watch.see(number, label, new, time.perf_counter() - start)
            kernel = new
        kernels.append(kernel)
    dag = schedule.dag
    params = _parameters(dag, args)
    outputs = set(dag.outputs)
    roles = tuple("output" if t in outputs else "input" for t in params)
    workspaces = tuple(
        nests.buffers[n.stage.tensor] for n in tree.roots if n.stage.tensor not in outputs
    )
    buffers = tuple(nests.buffers[t] for t in params)
    program = Program(name, buffers, roles, tuple(kernels), workspaces)
    if watch.debug:
        verify(program)
    return program


def _check_target(tree: LoopTree, target: Target) -> None:
    """Loops that the kind of target does not have."""
    for node in tree.nodes:
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


def _parameters(dag: ComputeDAG, args: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    if args is None:
        return dag.args
    missing = [t.name for t in dag.args if t not in args]
    unknown = [t.name for t in args if t not in dag.args]
    if missing or unknown or len(set(args)) != len(args):
        raise LoweringError(
            "lower(args)",
            "the arguments must be every input and output once; "
            f"missing {missing}, unknown {unknown}",
            f"Pass [{', '.join(t.name for t in dag.args)}].",
        )
    return tuple(args)
