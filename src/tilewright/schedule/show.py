"""How a schedule looks: as a loop nest for readers, as Python that rebuilds it.

In: a `Schedule`.  Out: text.  Both work on open schedules, whose extents show as "?".
"""

from __future__ import annotations

import keyword
import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import TilewrightError
from tilewright.schedule import steps as S
from tilewright.schedule.space.decision import Choice
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp

if TYPE_CHECKING:
    from tilewright.schedule.schedule import Schedule, Stage
    from tilewright.schedule.tree.loop_tree import Bounds

_TAKEN = ("s", "te", "tensors")  # names that printed Python uses itself


def loop_nest_text(s: Schedule) -> str:
    """Every stage's loops, attached stages inside the loop they are computed at."""
    bounds = _closed_bounds(s)
    lines: list[str] = []

    def children(stage: Stage, axis: IterVar, indent: int) -> None:
        for child in s.stages:
            if child.attach == (stage, axis) and child.attach_kind == "scope":
                nest(child, indent)

    def nest(stage: Stage, indent: int) -> None:
        scope = stage.scope or "auto"
        lines.append(f"{'  ' * indent}{stage.name} ({scope}):")
        for ax in stage.leaf_iter_vars:
            indent += 1
            extent = bounds.extent.get(ax) if bounds is not None else ax.extent
            size = "?" if extent is None else str(extent)
            how = (
                stage.binds.get(ax)
                or stage.annotations.get(ax)
                or ("reduce" if ax.kind == "reduce" else "")
            )
            lines.append(f"{'  ' * indent}for {ax.name} in {size}" + (f"  # {how}" if how else ""))
            children(stage, ax, indent + 1)
        assert isinstance(stage.op, ComputeOp)
        reads = ", ".join(t.name for t in stage.op.input_tensors)
        lines.append(f"{'  ' * (indent + 1)}{stage.name}[...] = f({reads})")

    for stage in s.stages:
        if isinstance(stage.op, PlaceholderOp):
            continue
        if stage.attach_kind == "inline":
            lines.append(f"{stage.name}: inlined")
        elif stage.attach_kind == "root":
            nest(stage, 0)
    return "\n".join(lines)


def _closed_bounds(s: Schedule) -> Bounds | None:
    from tilewright.schedule.tree.loop_tree import LoopTree

    try:
        return LoopTree(s).bounds()
    except TilewrightError:  # decisions still open, or a stage not finished
        return None


def identifier(name: str) -> str:
    """The variable of a tensor or an axis in printed Python."""
    clean = re.sub(r"\W", "_", name)
    if clean in _TAKEN or keyword.iskeyword(clean):
        return f"{clean}_"
    return clean if not clean[0].isdigit() else f"t_{clean}"


def python_text(s: Schedule) -> str:
    """Python that repeats the steps.  It expects `s` (from te.create_schedule) and one variable per
    tensor of the computation, named as in `ComputeDAG.unique_names`."""
    from tilewright.schedule.schedule import Schedule

    replay = Schedule(s.dag)
    lines: list[str] = []
    known: dict[tuple[str, str], str] = {}

    def axis(stage: str, name: str) -> str:
        if (stage, name) not in known:
            op = replay.find(stage).op
            for ax in (*op.axis, *op.reduce_axis):
                known[stage, ax.name] = identifier(f"{stage}_{ax.name}")
            names = ", ".join(known[stage, ax.name] for ax in (*op.axis, *op.reduce_axis))
            handle = f"s[{identifier(stage)}].op"
            lines.append(f"{names}, = (*{handle}.axis, *{handle}.reduce_axis)")
        return known[stage, name]

    for step in s.steps:
        lines_for = _python_line(step, axis)
        result = replay.do(step)
        lines.append(lines_for(result))
        if isinstance(step, (S.CacheWrite, S.RFactor)):  # the stage got fresh axes
            known = {key: value for key, value in known.items() if key[0] != step.stage}
        elif isinstance(step, S.Split):
            for ax in result:
                known[step.stage, ax.name] = identifier(f"{step.stage}_{ax.name}")
        elif isinstance(step, S.Fuse):
            known[step.stage, result.name] = identifier(f"{step.stage}_{result.name}")
    return "\n".join(lines) + "\n" if lines else ""


def _value(v: object) -> str:
    return str(v) if isinstance(v, (int, Choice)) else repr(v)


def _python_line(step: S.Step, name: Callable[[str, str], str]) -> Callable[[Any], str]:
    """From the step's result to its line of Python; axes are named before the step runs."""
    handle = f"s[{identifier(step.stage)}]"
    tensor = identifier(step.stage)
    if isinstance(step, S.Split):
        a = name(step.stage, step.axis)
        which, value = ("factor", step.factor) if step.nparts is None else ("nparts", step.nparts)
        call = f"{handle}.split({a}, {which}={_value(value)})"
        return lambda r: f"{', '.join(identifier(f'{step.stage}_{x.name}') for x in r)} = {call}"
    if isinstance(step, S.Fuse):
        axes = ", ".join(name(step.stage, a) for a in step.axes)
        return lambda r: f"{identifier(f'{step.stage}_{r.name}')} = {handle}.fuse({axes})"
    if isinstance(step, S.Reorder):
        axes = ", ".join(name(step.stage, a) for a in step.axes)
        return lambda r: f"{handle}.reorder({axes})"
    if isinstance(step, S.Bind):
        a = name(step.stage, step.axis)
        return lambda r: f'{handle}.bind({a}, te.thread_axis("{step.tag}"))'
    if isinstance(step, S.Annotate):
        a = name(step.stage, step.axis)
        return lambda r: f"{handle}.{step.how}({a})"
    if isinstance(step, S.Pragma):
        a = name(step.stage, step.axis)
        return lambda r: f'{handle}.pragma({a}, "{step.key}", {_value(step.value)})'
    if isinstance(step, S.ComputeAt):
        a = name(step.parent, step.axis)
        return lambda r: f"{handle}.compute_at(s[{identifier(step.parent)}], {a})"
    if isinstance(step, S.StorageAlign):
        a = name(step.stage, step.axis)
        return lambda r: (
            f"{handle}.storage_align({a}, {_value(step.factor)}, {_value(step.offset)})"
        )
    if isinstance(step, S.CacheRead):
        readers = ", ".join(map(identifier, step.readers))
        return lambda r: (
            f'{identifier(r.name)} = s.cache_read({tensor}, "{step.scope}", [{readers}])'
        )
    if isinstance(step, S.CacheWrite):
        return lambda r: f'{identifier(r.name)} = s.cache_write({tensor}, "{step.scope}")'
    if isinstance(step, S.RFactor):
        a = name(step.stage, step.axis)
        return lambda r: f"{identifier(r.name)} = s.rfactor({tensor}, {a}, {step.factor_axis})"
    if isinstance(step, S.Pack):
        return lambda r: (
            f"{identifier(r.name)} = s.pack({tensor}, {list(step.blocks)}, {list(step.order)})"
        )
    if isinstance(step, S.SetScope):
        return lambda r: f'{handle}.set_scope("{step.scope}")'
    return lambda r: f"{handle}.{step.verb}()"
