"""Templates: ordinary Python functions that schedule a computation and define a search space in passing.

Two kinds.  A *function template* (`@template("name")`) declares tensors, schedules them and returns
(schedule, [tensors]), as in the AutoTVM tutorials.  An *anchor template* (`@anchor_template(...)`)
schedules an existing DAG around its anchor operation, with whatever elementwise epilogue follows, so
it takes part in fused networks.  Both make a `Sketch`.  Read next: `task.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base import context
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.base.target import Target
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space import ConfigSpace
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor

FunctionTemplate = Callable[..., tuple[Schedule, Sequence[Tensor]]]


@dataclass(frozen=True)
class Anchored:
    """What an anchor template gets to work with.

    anchor: the stage that does the work (a convolution, a matrix product, ...)
    output: the last stage of the DAG; the anchor itself when nothing follows
    data, weight: the tensors the anchor reads (weight: the one that is an input of the DAG)
    """

    schedule: Schedule
    anchor: Tensor
    output: Tensor
    target: Target

    @property
    def has_epilogue(self) -> bool:
        return self.anchor is not self.output

    def stage(self, tensor: Tensor) -> Stage:
        return self.schedule[tensor]


AnchorTemplate = Callable[[Any, Anchored], None]


@dataclass(frozen=True)
class RegisteredAnchor:
    name: str
    kinds: tuple[str, ...]
    tags: tuple[str, ...]
    schedule: AnchorTemplate


_FUNCTIONS: dict[str, FunctionTemplate] = {}
_ANCHORS: dict[str, RegisteredAnchor] = {}


def template(name: str) -> Callable[[FunctionTemplate], FunctionTemplate]:
    """Register a function template; inside it, `autotvm.get_config()` gives the configuration."""
    if callable(name):
        raise SpaceError("@autotvm.template", "a template needs a name", 'Write @autotvm.template("conv2d").')

    def register(function: FunctionTemplate) -> FunctionTemplate:
        _FUNCTIONS[name] = function
        return function

    return register


def anchor_template(
    name: str, *, kinds: Sequence[str], tags: Sequence[str]
) -> Callable[[AnchorTemplate], AnchorTemplate]:
    """Register a template for anchors with one of `tags` on targets of one of `kinds`."""

    def register(function: AnchorTemplate) -> AnchorTemplate:
        _ANCHORS[name] = RegisteredAnchor(name, tuple(kinds), tuple(tags), function)
        return function

    return register


def function_template(name: str) -> FunctionTemplate:
    found = _FUNCTIONS.get(name)
    if found is None:
        known = ", ".join(sorted(_FUNCTIONS)) or "none"
        raise SpaceError(f"template {name!r}", "no template of that name", f"Registered: {known}.")
    return found


def get_config() -> Any:
    """The configuration that the running template should use.

    While a task is created: the space under construction.  While it is built: the chosen
    configuration; outside both, an empty space whose knobs take their first value.
    """
    config = context.current("config")
    return config if config is not None else ConfigSpace()


def sketch_of_function(name: str, args: tuple[Any, ...], target: Target) -> Sketch:
    """Run the function template once to collect its space."""
    function = function_template(name)
    space = ConfigSpace()
    with context.scope("config", space), context.scope("target", target):
        schedule, tensors = _checked(name, function(*args))
    dag = ComputeDAG(list(tensors))
    del schedule

    def build(config: Any) -> Schedule:
        with context.scope("config", config), context.scope("target", target):
            return _checked(name, function(*args))[0]

    return Sketch(f"template:{name}", dag, space, build, target)


def _checked(name: str, result: Any) -> tuple[Schedule, Sequence[Tensor]]:
    if not (isinstance(result, tuple) and len(result) == 2 and isinstance(result[0], Schedule)):
        raise ScheduleError(
            f"template {name!r}", f"it returned {type(result).__name__}", "Return (schedule, [tensors])."
        )
    return result


def find_anchor(dag: ComputeDAG) -> ComputeOp | None:
    """The operation that dominates the DAG: the tagged reduction with the most work."""
    best: ComputeOp | None = None
    most = 0
    for op in dag.compute_ops:
        if op.combiner is None:
            continue
        work = 1
        for ax in (*op.axis, *op.reduce_axis):
            work *= int(ax.extent)  # type: ignore[arg-type]
        if work > most:
            best, most = op, work
    return best


def anchor_templates(dag: ComputeDAG, target: Target) -> list[RegisteredAnchor]:
    """Templates that fit the anchor of `dag` on `target`."""
    anchor = find_anchor(dag)
    if anchor is None or len(dag.outputs) != 1:
        return []
    return [t for t in _ANCHORS.values() if target.kind in t.kinds and anchor.tag in t.tags]


def sketch_of_anchor(registered: RegisteredAnchor, dag: ComputeDAG, target: Target) -> Sketch:
    """The sketch of an anchor template on a DAG."""
    anchor = find_anchor(dag)
    assert anchor is not None

    def build(config: Any) -> Schedule:
        schedule = Schedule(dag)
        registered.schedule(config, Anchored(schedule, anchor.output_tensor, dag.outputs[0], target))
        return schedule

    space = ConfigSpace()
    build(space)
    return Sketch(f"template:{registered.name}", dag, space, build, target)
