"""Groups of stages: what is said of one is said of all its stages.

In: stages of one schedule.  Out: a `Group`, whose `compute_at` is a step for each of them.  Groups
are no part of what a schedule records: its steps are.
Read next: `schedule_members.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tilewright.base.errors import ScheduleError
from tilewright.schedule.schedule import Schedule, Stage
from tilewright.te.tensor import IterVar, PlaceholderOp

_KEY = "_tvm_group"  # in the attributes of a schedule its groups, of a stage its own


class Group:
    """Stages, and groups, that are attached together.

    group:        the group that it is in, or None
    attach_stage: the stage that `compute_at` named, or None
    """

    def __init__(self, schedule: Schedule, children: Sequence[Stage | Group]) -> None:
        self.schedule, self.children = schedule, tuple(children)
        self.group: Group | None = None
        self.attach_stage: Stage | None = None

    @property
    def num_child_stages(self) -> int:
        """The number of stages and groups right inside."""
        return len(self.children)

    def stages(self) -> Iterator[Stage]:
        """All of them, those of groups inside, too."""
        for child in self.children:
            if isinstance(child, Group):
                yield from child.stages()
            else:
                yield child

    def compute_at(self, parent: Stage, axis: IterVar) -> None:
        """Computes its stages inside a loop of one that reads them, but for those that are computed
        inside others of them; see `steps.ComputeAt`."""
        own = set(self.stages())
        if parent in own:
            raise ScheduleError(
                f"group.compute_at({parent.name})", "it is in the group itself",
                "Give a stage that reads what the group computes.",
            )  # fmt: skip
        for stage in reversed(self.schedule.stages):
            inside = stage.attach is not None and stage.attach[0] in own
            if stage in own and stage.attach_kind != "inline" and not inside:
                stage.compute_at(parent, axis)
        self.attach_stage = parent

    def compute_root(self) -> None:
        """Computes those of its stages on their own that are not inside others of them."""
        own = list(self.stages())  # in order, as steps are recorded
        for stage in own:
            if stage.attach is not None and stage.attach[0] not in own:
                stage.compute_root()
        self.attach_stage = None

    def __repr__(self) -> str:
        return f"Group({', '.join(stage.name for stage in self.stages())})"


def between(
    schedule: Schedule, outputs: Sequence[Stage], inputs: Sequence[Stage], *, include_inputs: bool
) -> list[Stage]:
    """The stages on the ways from `inputs` to `outputs`, without the inputs unless they are asked
    for.  Raises ScheduleError where there are none."""
    ends = set(inputs)
    found: set[Stage] = set()
    todo = list(outputs)
    while todo:
        stage = todo.pop()
        if stage in found or isinstance(stage.op, PlaceholderOp):
            continue
        if stage in ends and not include_inputs:
            continue
        found.add(stage)
        if stage not in ends:
            todo += [schedule[t] for t in stage.op.input_tensors]
    uses = {s for s in found if s in ends or any(schedule.reaches(e, s) for e in ends)}
    made = [stage for stage in schedule.stages if stage in (uses if ends else found)]
    if not made:
        raise ScheduleError(
            "create_group", "no stage is between the inputs and the outputs",
            "Give outputs that are computed of the inputs.",
        )  # fmt: skip
    return made


def grouped(schedule: Schedule, stages: Sequence[Stage]) -> Group:
    """A group of stages, and of the groups that hold some of them.

    Raises ScheduleError for stages of groups that hold other stages as well.
    """
    around = {stage: _around(stage) for stage in stages}
    shared = [g for g in next(iter(around.values())) if all(g in a for a in around.values())]
    outer = shared[0] if shared else None
    children: list[Stage | Group] = []
    for stage, groups in around.items():
        inside = groups[: groups.index(outer)] if outer in groups else groups
        child: Stage | Group = inside[-1] if inside else stage
        if isinstance(child, Group) and not set(child.stages()) <= set(stages):
            raise ScheduleError(
                "create_group", f"{stage.name} is in a group with stages that this one has not",
                "Make the outer group of all stages of the inner one.",
            )  # fmt: skip
        if child not in children:
            children.append(child)
    made = Group(schedule, children)
    made.group = outer
    if outer is not None:
        kept = [child for child in outer.children if child not in children]
        outer.children = (*kept, made)
    for child in children:
        _put(child, made)
    return made


def _around(stage: Stage) -> list[Group]:
    """The groups that a stage is in, innermost first."""
    found, group = [], of_stage(stage)
    while group is not None:
        found.append(group)
        group = group.group
    return found


def groups_of(schedule: Schedule) -> list[Group]:
    """All groups of a schedule, the list itself: those of the steps of scans come first."""
    known: list[Group] | None = vars(schedule).get(_KEY)
    if known is None:
        known = vars(schedule)[_KEY] = []
        for op, inside in schedule.dag.steps.items():
            stages = [schedule[op], *(schedule[inner] for inner in inside)]
            known.append(grouped(schedule, stages))
    return known


def of_stage(stage: Stage) -> Group | None:
    """The innermost group that a stage is in."""
    groups_of(stage.schedule)
    found: Group | None = vars(stage).get(_KEY)
    return found


def _put(child: Stage | Group, group: Group) -> None:
    if isinstance(child, Group):
        child.group = group
    else:
        vars(child)[_KEY] = group
