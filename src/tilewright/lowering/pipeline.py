"""The pipeline: one literal list of passes from schedule to program.

In: a closed `Schedule`, a `Target`, a name.  Out: a `Program`.  Each pass is named, timed, and printed
when it changed something and TILEWRIGHT_DEBUG is 5 or more.  Read next: `nest.py`.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence

from tilewright.base.errors import LoweringError
from tilewright.base.target import Target
from tilewright.ir.stmt import Kernel, Program
from tilewright.lowering.loops import simplify_indices, unroll, vectorize
from tilewright.lowering.nest import Nests, build_nests
from tilewright.lowering.threads import inject_virtual_threads, insert_barriers
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import Bounds, LoopTree
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

Pass = Callable[[Kernel, Nests, Target], Kernel]

PASSES: tuple[tuple[str, Pass], ...] = (
    ("virtual threads", lambda k, n, t: inject_virtual_threads(k)),
    ("vectorize", lambda k, n, t: vectorize(k, t.is_gpu)),
    ("barriers", lambda k, n, t: insert_barriers(k)),
    ("simplify", lambda k, n, t: simplify_indices(k)),
    ("unroll", lambda k, n, t: unroll(k, n.unroll_limit, t.is_gpu, t.limits.max_unrolled_body)),
)


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
    debug = int(os.environ.get("TILEWRIGHT_DEBUG", "0") or 0)
    tree = tree if tree is not None else LoopTree(schedule)
    nests = build_nests(tree, bounds if bounds is not None else tree.bounds(), name, target.is_gpu)
    kernels = []
    for kernel in nests.kernels:
        for label, apply in PASSES:
            start = time.perf_counter()
            new = apply(kernel, nests, target)
            if debug >= 5 and new is not kernel:
                spent = (time.perf_counter() - start) * 1e3
                print(f"-- {label}: {kernel.name} ({spent:.2f} ms)\n{new}\n", file=sys.stderr)
            kernel = new
        kernels.append(kernel)
    dag = schedule.dag
    params = _parameters(dag, args)
    outputs = set(dag.outputs)
    roles = tuple("output" if t in outputs else "input" for t in params)
    workspaces = tuple(
        nests.buffers[n.stage.tensor] for n in tree.roots if n.stage.tensor not in outputs
    )
    return Program(name, tuple(nests.buffers[t] for t in params), roles, tuple(kernels), workspaces)


def _parameters(dag: ComputeDAG, args: Sequence[Tensor] | None) -> tuple[Tensor, ...]:
    if args is None:
        return dag.args
    missing = [t.name for t in dag.args if t not in args]
    unknown = [t.name for t in args if t not in dag.args]
    if missing or unknown or len(set(args)) != len(args):
        raise LoweringError(
            "lower(args)", f"the arguments must be every input and output once; missing {missing}, unknown {unknown}",
            f"Pass [{', '.join(t.name for t in dag.args)}].",
        )  # fmt: skip
    return tuple(args)
