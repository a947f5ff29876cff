"""When kernels of a network begin, beside the kernel before them, where nobody says.

In: its groups, or its tasks.  Out: one of the words of `TILEWRIGHT_DEPENDENT_LAUNCH`, and which
inputs of the network kernels read.  What it is worth is in docs/performance.md, how it works in
docs/devices.md.  Read next: `kernels.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod

from tilewright.base import environment
from tilewright.graph.expr import Call, Expr, Function, Tuple, TupleGetItem, Var
from tilewright.graph.passes.views import made_by
from tilewright.network.costs import moved_bytes
from tilewright.network.extract import FusedGroup
from tilewright.network.in_place import in_place
from tilewright.network.memory import Place, places
from tilewright.schedule.task import Task
from tilewright.schedule.template import find_anchor
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import PlaceholderOp
from tilewright.topi.templates import gpu_narrow
from tilewright.topi.templates.gpu_rows import FEWER, TAGS

MOST = 0.5  # of all bytes that kernels read and write: what bounds the network
MANY = 0.25  # of its launches: else few large layers stand behind many others (VGG)


def chained(groups: Sequence[FusedGroup]) -> str:
    """Say when kernels begin: `when_begun` of them."""
    return when_begun([(group.dag, len(group.calls)) for group in groups])


def chained_each(
    each: Sequence[Sequence[FusedGroup]], groups: Sequence[FusedGroup]
) -> dict[str, str]:
    """Say it for kernels of networks that share them, such as a step and a prompt, by their keys:
    one begins early where it does in any of them.

    each: of each network its groups; groups: all of them, or what computes the same
    """
    words = [chained(own) for own in each]
    paired = list(zip(each, words, strict=True))
    early = {g.key for own, word in paired if word == "early" for g in own}
    usual = next((word for word in words if word != "early"), "")
    return {g.key: "early" if (g.instead_of or g.key) in early else usual for g in groups}


def reading_inputs(
    begun: Mapping[str, str], mains: Sequence[Function], each: Sequence[Sequence[FusedGroup]]
) -> dict[str, str]:
    """Give `begun` with the names of arguments, behind a word that is "early", that are inputs of
    the network in all calls of a kernel.

    each: of each of `mains` its groups
    All that is in an input is there when a run begins, and a kernel that writes to its memory comes
    behind all that read it (`in_place.py`).  Kernels that write so have none: what they store
    depends on whether they know that an argument is the memory of a result.
    """
    names: dict[str, set[str]] = {}
    for main, groups in zip(mains, each, strict=True):
        owners, writing = places(main.body), _writing(main)
        for group in groups:
            for call in group.calls:
                own = set() if call in writing else _inputs_of(call, owners)
                names[group.key] = own & names.get(group.key, own)
    return {
        key: " ".join([word, *sorted(names.get(key, ()))]) if word == "early" else word
        for key, word in begun.items()
    }


def _writing(main: Function) -> set[Expr]:
    """The calls that write to the memory of an input."""
    results = main.body.fields if isinstance(main.body, Tuple) else (main.body,)
    values = [made_by(results[pair.output]) for pair in in_place(main)]
    return {v.tuple_value if isinstance(v, TupleGetItem) else v for v in values}


def _inputs_of(call: Call, owners: Mapping[Expr, Place]) -> set[str]:
    if not isinstance(call.op, Function) or len(call.op.params) != len(call.args):
        return set()
    return {
        param.name_hint
        for param, value in zip(call.op.params, call.args, strict=True)
        if value in owners and isinstance(owners[value].owner, Var)
    }


def as_they_run(tasks: Sequence[Task]) -> None:
    """Have candidates of one network's kernels measured as it launches them, where they begin
    early: one that asks for its weights before it waits is not the one that is fastest alone."""
    own = [(task.dag, task.weight) for task in tasks if not task.instead_of]
    if not own or not tasks[0].target.waits or when_begun(own) != "early":
        return
    for task in tasks:
        for one in (task, *task.others):
            one.chained = "early"


def when_begun(kernels: Sequence[tuple[ComputeDAG, int]]) -> str:
    """Say when kernels begin, as `environment.dependent_launch` does: "early" unless somebody says,
    where most of what they move is weights of products of few rows, and these are many, as in a
    step of a decoder.

    kernels: what each computes, and how often it is launched
    Such a kernel asks for its weights while the one before still runs.  Networks of larger kernels
    lose by blocks that come early and wait.
    """
    launches = few = moved = read = 0
    for dag, calls in kernels:
        weights = _weights_of_rows(dag)
        launches, few = launches + calls, few + (calls if weights else 0)
        moved, read = moved + calls * moved_bytes(dag), read + calls * weights
    early = read > MOST * moved and few > MANY * launches
    return environment.dependent_launch("early" if early else "on")


def _weights_of_rows(dag: ComputeDAG) -> int:
    """Bytes of the weights of a product of few rows; 0 of all else."""
    anchor = find_anchor(dag)
    if anchor is None or anchor.tag not in (*TAGS, *gpu_narrow.TAGS) or dag.symbols:
        return 0
    if min(ax.size for ax in anchor.axis[-2:]) > FEWER:
        return 0
    constant = (t for t in dag.args if isinstance(t.op, PlaceholderOp) and t.op.constant)
    return sum(prod(t.shape) * t.dtype.bytes for t in constant)


__all__ = ["as_they_run", "chained", "chained_each", "reading_inputs", "when_begun"]
