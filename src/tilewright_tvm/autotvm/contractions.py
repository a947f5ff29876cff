"""The contractions of a network by themselves, as AutoTVM's users know tasks.

In: a module and its parameters.  Out: `Task`s.  Read next: `network/extract.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Var,
    post_order,
)
from tilewright.graph.op import Op
from tilewright.graph.op import get as get_op
from tilewright.graph.op.conv import TRANSPOSED
from tilewright.graph.pass_options import Instrument
from tilewright.graph.passes import (
    PASSES,
    fuse,
    optimize,
)
from tilewright.graph.passes.weights import CONTRACTIONS
from tilewright.graph.traversal import op_name
from tilewright.network.alternatives import alternatives
from tilewright.network.computation import compute_dag
from tilewright.network.extract import label_of
from tilewright.network.user_templates import registered
from tilewright.schedule.task import Task, task_of_dag
from tilewright.search.rules.derive import with_default
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG


def extract_from_program(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None = None,
    target: TargetLike | None = None,
    ops: Iterable[Op | str] | None = None,
    instruments: Sequence[Instrument] = (),
) -> list[Task]:
    """Give the distinct contractions of the network by themselves, in network order, as TVM counts
    them.

    Other implementations, of which the network runs the fastest, are the `others` of a task; those
    that users registered are tasks behind it.  One that no template fits has its default schedule
    as its only configuration.

    ops: operators (rows of the table, or names) to look for; default: all contractions
    instruments: told of each pass
    Raises ModelError for a name that is no operator, TargetError without a target.
    """
    if not isinstance(mod, IRModule | Function):
        raise ModelError(
            f"extract_from_program(mod={mod!r:.60})", f"a {type(mod).__name__} is no network",
            "Give an IRModule or a Function.",
        )  # fmt: skip
    chosen = resolve_target(target)
    wanted = _wanted(ops)
    passes = [p for p in PASSES if p is not fuse]
    prepared = optimize(mod, params, passes, instruments=instruments)
    found: dict[str, _Contraction] = {}
    counts: dict[str, int] = {}
    for node in post_order(prepared["main"].body):
        if not isinstance(node, Call) or op_name(node) not in wanted:
            continue
        alone = _alone(node)
        found.setdefault(alone.dag.hash, alone)
        counts[alone.dag.hash] = counts.get(alone.dag.hash, 0) + 1
    return [t for key, alone in found.items() for t in alone.tasks(chosen, counts[key])]


def _wanted(ops: Iterable[Op | str] | None) -> set[str]:
    if ops is None:
        return {*CONTRACTIONS, *TRANSPOSED, "nn.batch_matmul"}
    listed = [ops] if isinstance(ops, (Op, str)) else list(ops)
    for op in listed:
        if not isinstance(op, (Op, str)):
            raise ModelError(
                f"extract_from_program(ops={op!r})", f"a {type(op).__name__} is no operator",
                'Give relay.op.get("nn.conv2d") or its name.',
            )  # fmt: skip
    return {(op if isinstance(op, Op) else get_op(op)).name for op in listed}


@dataclass(frozen=True, eq=False)
class _Contraction:
    """One call as a function of its own; constant: of its parameters."""

    op: Op | Function
    function: Function
    constant: tuple[bool, ...]
    dag: ComputeDAG

    def tasks(self, target: Target, weight: int) -> list[Task]:
        """It with its `others`, then what users registered."""
        direct = self._task(self.dag, target, weight)
        ours = alternatives(self.function, self.constant, target)
        direct.others += (self._task(a.dag, target, weight, direct.key) for a in ours)
        theirs = registered(self.function, self.constant, target)
        return [direct, *(self._task(a.dag, target, weight, direct.key) for a in theirs)]

    def _task(self, dag: ComputeDAG, target: Target, weight: int, instead_of: str = "") -> Task:
        return with_default(task_of_dag(dag, target, *label_of(self.op, dag), weight, instead_of))


def _alone(node: Call) -> _Contraction:
    """One call whose arguments are its inputs, named as in a fused group."""
    names: dict[Expr, Expr] = {}
    for arg in node.args:
        if arg not in names and not isinstance(arg.checked_type, TensorType):
            raise ModelError(
                f"extract_from_program({op_name(node)})", "an argument of it is a tuple",
                "Leave it out of ops.",
            )  # fmt: skip
        names.setdefault(arg, Var(f"p{len(names)}", arg.checked_type))
    params = [p for p in names.values() if isinstance(p, Var)]
    body = Call(node.op, [names[a] for a in node.args], node.attrs)
    function, constant = Function(params, body), tuple(isinstance(a, Constant) for a in names)
    return _Contraction(node.op, function, constant, compute_dag(function, constant))
