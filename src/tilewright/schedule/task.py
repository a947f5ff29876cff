"""`Task`: one computation to tune on one target, with the sketches that may schedule it.

In: a template's name and arguments, or a DAG.  Out: key of records, sketches, closed schedules.
Read next: the rooms `measure` (records) and `search` (tuning).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy.typing as npt

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import SpaceError
from tilewright.schedule.default import default_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.schedule.steps import Step
from tilewright.schedule.template import (
    anchor_sketches,
    find_anchor,
    named_template,
    sketch_of_function,
    sketch_of_name,
)
from tilewright.schedule.workload import plain
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor


@runtime_checkable
class ScheduleSource(Protocol):
    """Where closed schedules come from: a database, a table, nothing."""

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The best known schedule of `dag` on `target`, or None."""


@dataclass(eq=False)
class Task:
    """name and args label the computation for people; dag and target identify it.

    weight: how often it occurs in the network it came from
    instead_of: key of the task of which this is another implementation: the network runs the
            faster one; "" where there is none
    others: further implementations, of which this task's tuner tries each; the rest as for tasks
            that are `instead_of` it
    inputs: values, by the names of inputs, with which candidates are verified and timed; all other
            inputs are drawn at random
    layers: names of the layers of a model that it computes, one for each time that it occurs
    chained: as of `driver.build.generate_source`: how a network launches it, and a search does
    """

    door_words = ("a task", "autotvm.task.create(name, args, target) makes one.")

    name: str
    args: tuple[Any, ...]
    dag: ComputeDAG
    target: Target
    sketches: list[Sketch] = field(default_factory=list)
    weight: int = 1
    instead_of: str = ""
    others: list[Task] = field(default_factory=list)
    inputs: Mapping[str, npt.NDArray[Any]] = field(default_factory=dict)
    layers: tuple[str, ...] = ()
    chained: str = ""

    def __post_init__(self) -> None:
        for untuned in self.dag.compute_ops:
            if untuned.why_untuned is not None:
                raise SpaceError(f"task {self.name}", *untuned.why_untuned)
        for op in self.dag.ops:
            if 0 in op.shape:
                raise SpaceError(
                    f"task {self.name}", f"{op.name} has a dimension of extent 0: nothing to tune",
                    "It compiles with its default schedule.",
                )  # fmt: skip

    @property
    def workload(self) -> tuple[Any, ...]:
        """(name, *args), as AutoTVM keys its records."""
        return (self.name, *self.args)

    @cached_property
    def key(self) -> str:
        """Hash of the computation; records match on it and on the target."""
        return self.dag.hash

    @property
    def family(self) -> str:
        """What all implementations of one thing have in common: the key of the first."""
        return self.instead_of or self.key

    @cached_property
    def flop(self) -> float:
        manual = [s.space.flop for s in self.sketches if getattr(s.space, "flop", None)]
        return float(manual[0]) if manual else self.dag.flop_ct

    @property
    def config_space(self) -> ConfigSpace:
        """The space of the first sketch."""
        if not self.sketches:
            raise SpaceError(
                f"task {self.name}", "no template fits it", "It compiles with its default schedule."
            )
        return self.sketches[0].space

    def sketch(self, origin: str) -> Sketch:
        for s in self.sketches:
            if s.origin == origin:
                return s
        raise SpaceError(
            f"task {self.name}",
            f"no sketch {origin!r}",
            f"It has {', '.join(s.origin for s in self.sketches)}.",
        )

    def default(self) -> Schedule:
        return default_schedule(self.dag, self.target)

    def replay(self, steps: Iterable[Step | list[Any]]) -> Schedule:
        return Schedule.replay(self.dag, steps)

    def __repr__(self) -> str:
        return f"Task(name={self.name}, args={self.args}, target={self.target})"


def create(name: str, args: Sequence[Any], target: TargetLike) -> Task:
    """The task of a template, as `autotvm.task.create("name", args=, target=)`.

    name: of a function template, or a template by TVM's name ("conv2d_nchw.cuda"), whose arguments
    are those of its computation; a tensor may be ("TENSOR", shape, dtype)
    """
    chosen = Target(target).native()
    registered = named_template(name)
    if registered is None:
        sketch = sketch_of_function(name, tuple(args), chosen)
        told = (plain(a) if isinstance(a, Tensor) else a for a in args)
        return Task(name, tuple(told), sketch.dag, chosen, [sketch])
    sketch = sketch_of_name(registered, args, chosen)
    return Task(name, tuple(map(plain, args)), sketch.dag, chosen, [sketch])


def task_of_dag(
    dag: ComputeDAG,
    target: TargetLike,
    name: str = "",
    args: Sequence[Any] = (),
    weight: int = 1,
    instead_of: str = "",
) -> Task:
    """A task with every anchor template that fits the DAG."""
    chosen = Target(target).native()
    anchor = find_anchor(dag)
    label = name or (anchor.tag or anchor.name if anchor is not None else dag.outputs[0].name)
    sketches = anchor_sketches(dag, chosen)
    return Task(label, tuple(args), dag, chosen, sketches, weight, instead_of)
