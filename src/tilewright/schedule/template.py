"""Templates: Python functions that schedule a computation and define a search space in passing.

Two kinds.  A *function template* (`@template("name")`) declares tensors, schedules them and returns
(schedule, [tensors]), as in the AutoTVM tutorials.  An *anchor template* (`@anchor_template(...)`)
schedules an existing DAG around its anchor operation, with whatever elementwise epilogue follows,
so it takes part in fused networks.  Both make a `Sketch`.  Read next: `task.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import wraps
from math import prod
from typing import Any

from tilewright.base import context, plugins
from tilewright.base.doors import check_arguments
from tilewright.base.errors import ScheduleError, SpaceError
from tilewright.ir import expr as E
from tilewright.schedule.rows_behind import before_rows
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.config_space import ConfigSpace, FallbackConfigEntity
from tilewright.schedule.space.trace import MAX_PARTS, REFUSALS
from tilewright.schedule.sums import block_sums
from tilewright.schedule.workload import arguments_of
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, Tensor

FunctionTemplate = Callable[..., tuple[Schedule, Sequence[Tensor]]]


@dataclass(frozen=True)
class Anchored:
    """What an anchor template gets to work with.

    anchor: the stage that does the work (a convolution, a matrix product, ...)
    output: the last stage of the DAG; the anchor itself when nothing follows, or what follows is
            not elementwise: then it is scheduled by itself
    rows_follow: whether norms of the anchor's rows follow the output, which is no result then
    """

    schedule: Schedule
    anchor: Tensor
    output: Tensor
    target: Target
    rows_follow: bool = False

    @property
    def has_epilogue(self) -> bool:
        return self.anchor is not self.output

    @property
    def epilogue(self) -> tuple[ComputeOp, ...]:
        """The elementwise stages that follow the anchor, the output last."""
        assert isinstance(self.anchor.op, ComputeOp)
        return epilogue(self.schedule.dag, self.anchor.op) or ()

    def stage(self, tensor: Tensor) -> Stage:
        return self.schedule[tensor]


AnchorTemplate = Callable[[Any, Anchored], None]
Fallback = Callable[[Sketch, Anchored], Mapping[str, Any] | int]
Computation = Callable[..., Tensor]


@dataclass(frozen=True)
class RegisteredAnchor:
    """fallback: the configuration (values, or an index) to use where nothing was tuned, if there is
    one; it gets the sketch of the DAG at hand and an unscheduled `Anchored`.

    compute: the result, of the arguments of a task by this name; None: tasks have no such name.
             Of one that is offered: another way to compute the operator that its name begins with
    offered: every task that it fits has a sketch of it; else those that ask for it by name
    structures: how many kinds of loop nests its space has, at most
    special: whether it takes few of the anchors with its tags, and so comes before those that take
             any of them
    alone:   where it fits, nothing else is predicted: others give sums that it computes along the
             way kernels of their own, of which trees know too little
    rows:    whether norms of the anchor's rows may follow it; else none do
    usual:   where only such ones come before it, its `fallback` was measured to be faster than what
             trees predict
    measured: the member that was measured to be faster than what trees predict, of whatever they
             predict that; refuses where nobody measured that
    """

    name: str
    kinds: tuple[str, ...]
    tags: tuple[str, ...]
    schedule: AnchorTemplate
    fallback: Fallback | None = None
    compute: Computation | None = None
    offered: bool = True
    structures: int = MAX_PARTS
    special: bool = False
    alone: bool = False
    usual: bool = False
    rows: bool = False
    measured: Fallback | None = None

    @property
    def origin(self) -> str:
        """Where its sketches and records are said to be from; TVM's names may be others' here."""
        return f"template:{self.name}" if self.offered else f"template:tvm.{self.name}"

    def fits(self, target: Target) -> bool:
        return bool(set(target.device_kind.templates).intersection(self.kinds))


_FUNCTIONS: dict[str, FunctionTemplate] = {}
_ANCHORS: dict[str, RegisteredAnchor] = {}  # by origin
_ELSEWHERE: dict[str, tuple[str, str]] = {}  # part of a name -> why there is none, what to use

_BUILT_IN = "offered templates"  # kind of plugins: modules that register those of the compiler
PART = "part"  # tag of sums that are terms of another, which is the anchor
MADE_BY = "autotvm"  # attribute of what a template of the user's computed: its name and arguments
_LONG_NAME = 100  # characters of a name that is unknown


def _anchors() -> dict[str, RegisteredAnchor]:
    """All anchor templates by origin: the built-in ones, then those of users as registered."""
    plugins.known(_BUILT_IN)
    return _ANCHORS


def template(name: str) -> Callable[[FunctionTemplate], FunctionTemplate]:
    """Register a function template; inside it, `autotvm.get_config()` gives the configuration."""

    def register(function: FunctionTemplate) -> FunctionTemplate:
        _FUNCTIONS[name] = function

        @wraps(function)
        def scheduled(*args: Any) -> tuple[Schedule, Sequence[Tensor]]:
            if context.current("config") is not None:
                return function(*args)
            with context.scope("config", _dispatched(name, args)):
                return function(*args)

        return scheduled

    return register


def _dispatched(name: str, args: tuple[Any, ...]) -> Any:
    """For a template called by its user: the best record, else the space's defaults."""
    target = Target.current()
    for source in context.every("dispatch"):
        config = source.query(target, (name, *args)) if target is not None else None
        if config is not None:
            return config
    return FallbackConfigEntity()


def anchor_template(
    name: str,
    *,
    kinds: Sequence[str],
    tags: Sequence[str],
    fallback: Fallback | None = None,
    compute: Computation | None = None,
    offered: bool = True,
    structures: int = MAX_PARTS,
    special: bool = False,
    alone: bool = False,
    usual: bool = False,
    rows: bool = False,
    measured: Fallback | None = None,
) -> Callable[[AnchorTemplate], AnchorTemplate]:
    """Register a template for anchors with one of `tags` on targets of one of `kinds`.

    fallback: `default_schedule` uses it; it and the others: see `RegisteredAnchor`.
    """

    def register(function: AnchorTemplate) -> AnchorTemplate:
        registered = RegisteredAnchor(
            name,
            tuple(kinds),
            tuple(tags),
            function,
            fallback,
            compute,
            offered,
            structures,
            special,
            alone,
            usual,
            rows,
            measured,
        )
        _anchors()[registered.origin] = registered
        return function

    return register


def function_template(name: str) -> FunctionTemplate:
    found = _FUNCTIONS.get(name)
    if found is None:
        plugins.every("templates")
        told = next((told for part, told in _ELSEWHERE.items() if part in name), None)
        if told is not None:
            raise SpaceError(f"template {name!r:.{_LONG_NAME}}", *told)
        near = get_close_matches(name[:_LONG_NAME], names_of_others(), n=3, cutoff=0.5)
        known = ", ".join([*near, *sorted(_FUNCTIONS)]) or "none"
        raise SpaceError(f"template {name!r}", "no template of that name", f"Registered: {known}.")
    return found


def names_elsewhere(told: Mapping[str, tuple[str, str]]) -> None:
    """Register parts of names of templates that are not here: why, and what to use instead."""
    _ELSEWHERE.update(told)


def named_template(name: str) -> RegisteredAnchor | None:
    """The anchor template that tasks of this name use, where no function template has the name.

    Those that are taken by name only may be plugins (`base/plugins.py`, kind "templates"): modules
    that register them.
    """
    if name in _FUNCTIONS:
        return None
    known = _anchors()
    if (offered := known.get(f"template:{name}")) is None or offered.compute is None:
        plugins.every("templates")
        offered = known.get(f"template:tvm.{name}")
    return offered if offered is not None and offered.compute is not None else None


def look_for_templates(origins: Iterable[str]) -> None:
    """Have those of plugins, too, where the origin of a record is that of none that is known."""
    known = {*_anchors(), *(f"template:{name}" for name in _FUNCTIONS)}
    if any(origin.startswith("template:") and origin not in known for origin in origins):
        plugins.every("templates")


def names_of_others() -> list[str]:
    """The names of the templates of plugins, which tasks can be created by."""
    plugins.every("templates")
    return sorted(t.name for t in _anchors().values() if not t.offered)


def get_config() -> Any:
    """The configuration that the running template should use.

    While a task is created: the space under construction.  While it is built: the chosen
    configuration; outside both, an empty one whose knobs take their first value, or what is set.
    """
    config = context.current("config")
    return config if config is not None else FallbackConfigEntity()


def sketch_of_function(name: str, args: tuple[Any, ...], target: Target) -> Sketch:
    """Run the function template once to collect its space."""
    function = function_template(name)
    check_arguments(function, args, f"template {name!r}", SpaceError)
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
            f"template {name!r}",
            f"it returned {type(result).__name__}",
            "Return (schedule, [tensors]).",
        )
    return result


def find_anchor(dag: ComputeDAG) -> ComputeOp | None:
    """The operation that dominates the DAG: the reduction with the most work."""
    best: ComputeOp | None = None
    most = 0
    for op in dag.compute_ops:
        if op.combiner is None or op.tag == PART:
            continue
        work = max(map(_work, (op, *_parts(op))))
        if work >= most:
            best, most = op, work
    return best


def _work(op: ComputeOp) -> int:
    return prod(ax.size for ax in (*op.axis, *op.reduce_axis))


def _parts(op: ComputeOp) -> list[ComputeOp]:
    """Sums that are terms of this one."""
    read = (t.op for t in op.input_tensors)
    return [p for p in read if isinstance(p, ComputeOp) and p.tag == PART]


def anchor_key(anchor: ComputeOp) -> tuple[str, bool]:
    """The anchor with what it reads, by structure, and whether some operand of it is constant."""
    data = ComputeDAG([anchor.output_tensor]).to_json()
    constant = False
    for op in data["ops"]:
        if op[0] == "placeholder":
            constant |= bool(op[4])
            op[4] = 0
    return ComputeDAG.from_json(data).hash, constant


def epilogue(dag: ComputeDAG, anchor: ComputeOp) -> tuple[ComputeOp, ...] | None:
    """Return what follows `anchor`, in order, if all is elementwise and ends in the one output, or
    in one stage that gives all of them.

    Every stage has the anchor's shape and reads the anchor and its kind at its own indices; where
    that is not so: None.
    """
    if len({t.op for t in dag.outputs}) != 1:
        return None
    behind: dict[Tensor, ComputeOp] = {anchor.output_tensor: anchor}
    for op in dag.compute_ops:
        if op is anchor or not any(t in behind for t in op.input_tensors):
            continue
        if op.combiner is not None or op.shape != anchor.shape:
            return None
        own = [ax.var for ax in op.axis]
        for e in E.walk(op.body):
            if e.op == "read" and e.attr in behind and not _same_place(e.args, own, op.shape):
                return None
        behind |= dict.fromkeys(op.outputs, op)
    read = {t for op in behind.values() for t in op.input_tensors}
    ends = {t for t in behind if t not in read}
    return tuple(dict.fromkeys(behind.values()))[1:] if ends == set(dag.outputs) else None


def separate(dag: ComputeDAG, anchor: ComputeOp) -> bool:
    """Tell whether what follows `anchor` can be computed behind it: it reduces nothing."""
    behind: set[Tensor] = {anchor.output_tensor}
    for op in dag.compute_ops:
        if op is not anchor and behind.intersection(op.input_tensors):
            if op.combiner is not None:
                return False
            behind.add(op.output_tensor)
    return len(dag.outputs) == 1


def without_norms(dag: ComputeDAG) -> ComputeDAG | None:
    """Give the part of a DAG before the norms of its anchor's rows; None where none follow."""
    anchor = find_anchor(dag)
    if anchor is None or epilogue(dag, anchor) is not None or separate(dag, anchor):
        return None
    last = before_rows(dag, anchor)
    if last is None:
        return None
    needed = set(ComputeDAG([last.output_tensor]).placeholders)
    inputs = [t for t in dag.args if t.op in needed]
    return ComputeDAG([*inputs, last.output_tensor])


def _same_place(index: Sequence[E.Expr], own: Sequence[E.Expr], shape: Sequence[int]) -> bool:
    return all(
        i is v or (n == 1 and i.op == "const" and i.attr == 0)
        for i, v, n in zip(index, own, shape, strict=True)
    )


def anchor_templates(dag: ComputeDAG, target: Target) -> list[RegisteredAnchor]:
    """Templates that fit the anchor of `dag` on `target`, also those that are taken by name only,
    as far as they were asked for: what follows it is elementwise, or can be computed behind it, or
    are norms of its rows."""
    anchor = find_anchor(dag)
    if anchor is None:
        return []
    rows = False
    if epilogue(dag, anchor) is None and not separate(dag, anchor):
        rows = before_rows(dag, anchor) is not None
        if not rows:
            return []
    own = {op.attrs[MADE_BY][0] for op in dag.compute_ops if MADE_BY in op.attrs}
    known = sorted(_anchors().values(), key=lambda t: not t.special)
    fitting = (t for t in known if t.fits(target) and (t.rows or not rows))
    return [t for t in fitting if anchor.tag in t.tags or t.name in own]


def registered_computations(target: Target) -> list[RegisteredAnchor]:
    """Templates of users that compute an operator in their own way."""
    return [t for t in _anchors().values() if t.offered and t.compute and t.fits(target)]


def all_ours(templates: Iterable[RegisteredAnchor]) -> bool:
    """Tell whether none that is offered is of a user, whose code we do not know."""
    ours = __name__.partition(".")[0]
    return all(t.schedule.__module__.partition(".")[0] == ours for t in templates if t.offered)


def anchored_schedule(dag: ComputeDAG, target: Target) -> Anchored:
    """A fresh schedule of a DAG that has an anchor, as its templates get it."""
    anchor = find_anchor(dag)
    assert anchor is not None
    if epilogue(dag, anchor) is not None:
        return Anchored(Schedule(dag), anchor.output_tensor, dag.outputs[0], target)
    last = None if separate(dag, anchor) else before_rows(dag, anchor)
    output = (last or anchor).output_tensor
    return Anchored(Schedule(dag), anchor.output_tensor, output, target, last is not None)


def anchor_sketches(dag: ComputeDAG, target: Target) -> list[Sketch]:
    """The sketches of all templates that are offered, fit `dag` and do not refuse it."""
    found = []
    for registered in anchor_templates(dag, target):
        if registered.offered:
            with suppress(*REFUSALS):
                found.append(sketch_of_anchor(registered, dag, target))
    return found


def fallback_schedule(dag: ComputeDAG, target: Target) -> Schedule | None:
    """Return what the first template that fits proposes untuned; None where that is not legal."""
    for sketch in anchor_sketches(dag, target):
        index = sketch.fallback()
        if index is not None:
            return sketch.close(index)
    return None


def sketch_of_anchor(registered: RegisteredAnchor, dag: ComputeDAG, target: Target) -> Sketch:
    """The sketch of an anchor template on a DAG."""

    def build(config: Any) -> Schedule:
        anchored = anchored_schedule(dag, target)
        registered.schedule(config, anchored)
        block_sums(anchored.schedule)
        return anchored.schedule

    def fallback() -> Any:
        assert registered.fallback is not None
        return registered.fallback(sketch, anchored_schedule(dag, target))

    space = ConfigSpace()
    build(space)
    sketch = Sketch(
        registered.origin, dag, space, build, target, fallback if registered.fallback else None,
        registered.structures, repeatable=all_ours([registered]),
    )  # fmt: skip
    return sketch


def measured_member(registered: RegisteredAnchor, sketch: Sketch) -> int | None:
    """The index of its member that goes before predictions; None where there is none."""
    choose = registered.measured
    if choose is None:
        return None
    return sketch.checked(lambda: choose(sketch, anchored_schedule(sketch.dag, sketch.target)))


def sketch_of_name(registered: RegisteredAnchor, args: Sequence[Any], target: Target) -> Sketch:
    """The sketch of an anchor template on the computation that it has for a task's arguments."""
    compute, place = registered.compute, f"template {registered.name!r}"
    assert compute is not None
    if not registered.fits(target):
        raise SpaceError(
            place, f"it is not for {target.kind}", f"Use a target of {', '.join(registered.kinds)}."
        )  # fmt: skip
    tensors = arguments_of(args)
    check_arguments(compute, tensors, place, SpaceError)
    dag = ComputeDAG([compute(*tensors)])
    anchor = find_anchor(dag)
    if anchor is None or anchor.tag not in registered.tags:
        raise SpaceError(
            place, "its computation is not one that it schedules",
            f"It schedules {', '.join(registered.tags)}.",
        )  # fmt: skip
    return sketch_of_anchor(registered, dag, target)
