"""`lower` and `build`: from a schedule to a program, to text, to a module on a device.

In: a schedule (or a payload of plain data, in worker processes) and a target.  Out: `Program`,
`Source`, `Artifact` or `Module`.  Read next: `compilers.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, overload

from tilewright.base import context
from tilewright.base.artifact import Artifact, Source
from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import ScheduleError, TargetError
from tilewright.codegen import generate
from tilewright.driver.compilers import compile_source
from tilewright.driver.extra_outputs import with_extra_outputs
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import Program
from tilewright.lowering.pipeline import check_target, lower_schedule
from tilewright.runtime.device import device, local_target
from tilewright.runtime.module import Module
from tilewright.runtime.modules import Modules
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.tree import legality
from tilewright.schedule.tree.loop_tree import Bounds, LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target, TargetLike
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import ComputeOp, PlaceholderOp, Tensor

_LARGE = 4096  # an extent like any other, by which limits of a device are checked


def resolve_target(target: TargetLike | None, otherwise: TargetLike | None = None) -> Target:
    """`target`, or that of the innermost `with target:`, or `otherwise`; for this machine, see
    `Target.native`."""
    found = target if target is not None else context.current("target", otherwise)
    if found is None:
        raise TargetError(
            "build", "no target was given", "Pass target= or use `with Target('llvm'):`."
        )
    return Target(found).native()


class Declared(Protocol):
    """A buffer that somebody declared for an argument."""

    @property
    def name(self) -> str: ...
    @property
    def dtype(self) -> DType: ...
    @property
    def shape(self) -> tuple[int, ...]: ...


@dataclass(frozen=True, eq=False)
class Lowered(Program):
    """A program that knows its schedule and arguments, so that `build` takes it for any target."""

    schedule: Schedule | None = None
    listed: tuple[Tensor | Expr, ...] | None = None

    __str__ = Program.__str__

    def __getitem__(self, name: str) -> Lowered:
        """The function of this name, which is all that TVM's module of it holds.

        Raises KeyError for another name.
        """
        if str(name) != self.name:
            raise KeyError(name)
        return self


@door(ScheduleError)
def lower(
    schedule: Schedule,
    args: Sequence[Tensor | Expr] | None = None,
    target: TargetLike | None = None,
    name: str = "main",
    simple_mode: bool = False,
    binds: Mapping[Tensor, Declared] | None = None,
) -> Program:
    """The loops of a schedule; `print(lower(s, [A, B, C]))` shows them.

    target: default: that of the innermost `with target:`, else cuda for a schedule that binds loops
            to blocks or threads, else llvm
    simple_mode: TVM's; it changes nothing, what is printed is always simple
    binds: TVM's: buffers for arguments, of their shapes and types, as arguments have them anyway
    """
    _check_binds(binds)
    found = target if target is not None else context.current("target")
    if found is None:
        found = "cuda" if schedule.binds_threads else "llvm"
    chosen = Target(found).native()
    listed = None if args is None else tuple(args)
    stored, given = with_extra_outputs(schedule, args)
    made = lower_schedule(stored, chosen, kernel_name(name), given)
    parts = (made.name, made.args, made.roles, made.kernels, made.workspaces, made.calls)
    return Lowered(*parts, schedule=schedule, listed=listed)


@door(ScheduleError, "driver.build_module.schedule_to_module")
def schedule_to_module(
    sch: Schedule, args: Sequence[Tensor | Expr] | None = None, name: str = "main"
) -> Program:
    """`lower`, by another name of TVM's."""
    return lower(sch, args, name=name)


def generate_source(
    schedule: Schedule,
    target: Target,
    name: str = "main",
    args: Sequence[Tensor | Expr] | None = None,
    *,
    chained: bool | str = False,
) -> Source:
    """Legality, lowering and text.

    chained: the kernels are links of a chain of launches, such as those of a network, in which
             nothing writes the constants of the computation; see `Program.steady`.  "early": also
             `Program.lets_in`; behind that word, names of inputs that nothing writes before they
             are read

    Raises LegalityError when a limit of the target is broken, TargetError when it lacks a type.
    """
    schedule, args = with_extra_outputs(schedule, args)
    check_types(schedule.dag, target)
    tree = LoopTree(schedule)
    bounds = tree.bounds()
    check_target(tree, target)
    resources = Resources(_numbers(schedule, bounds), target)
    legality.check(resources, name, grids=not schedule.dag.symbols)
    program = lower_schedule(schedule, target, kernel_name(name), args, tree, bounds)
    if chained:
        listed = schedule.dag.args if args is None else args
        pairs = zip(program.args, listed, strict=False)  # behind them are extents
        word, *names = str(chained).split()
        given = {t.name for t in schedule.dag.args if isinstance(t.op, PlaceholderOp)} & set(names)
        steady = frozenset(b for b, i in pairs if _is_constant(i) or _name(i) in given)
        program = replace(program, steady=steady, lets_in=word == "early")
    return generate(program, target)


def _name(item: Tensor | Expr) -> str:
    return item.name if isinstance(item, Tensor) else ""


def _is_constant(item: Tensor | Expr) -> bool:
    return isinstance(item, Tensor) and isinstance(item.op, PlaceholderOp) and item.op.constant


def _numbers(schedule: Schedule, bounds: Bounds) -> Bounds:
    """Of a schedule whose extents are variables, the bounds where each of them is large: what a
    kernel takes of its device follows from the factors of its splits."""
    dag = schedule.dag
    if not dag.symbols:
        return bounds
    values = {str(v.attr): _LARGE for v in dag.symbols}
    return LoopTree(Schedule.replay(dag.at(**values), schedule.to_json())).bounds()


def check_types(dag: ComputeDAG, target: Target) -> None:
    """Raises TargetError where the kind, or this device of it, cannot compute an element type."""
    lacks = target.device.lacks if target.device is not None else ()
    for op in dag.ops:
        tensor = op.output(0)
        types = {*op.dtypes, *(op.accumulators if isinstance(op, ComputeOp) else ())}
        for dtype in types:
            known = dtype in target.device_kind.types
            if known and dtype not in lacks:
                continue
            who = f"this device ({target.device.name})" if target.device and known else "its code"
            raise TargetError(
                f"build {tensor.name} for {target}", f"{who} does not compute {dtype}",
                "Cast to float32, or build for another target.",
            )  # fmt: skip


def build_artifact(
    schedule: Schedule,
    target: Target,
    name: str = "main",
    args: Sequence[Tensor | Expr] | None = None,
    *,
    chained: bool | str = False,
) -> Artifact:
    return compile_source(generate_source(schedule, target, name, args, chained=chained), target)


@overload
def build(
    schedule: Schedule | Program,
    args: Sequence[Tensor | Expr] | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Declared] | None = None,
) -> Module: ...


@overload
def build(
    schedule: Sequence[Program],
    args: TargetLike | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Declared] | None = None,
) -> Modules: ...


@door(ScheduleError)
def build(
    schedule: Schedule | Program | Sequence[Program],
    args: Sequence[Tensor | Expr] | TargetLike | None = None,
    target: TargetLike | None = None,
    target_host: TargetLike | None = None,
    name: str = "main",
    binds: Mapping[Tensor, Declared] | None = None,
) -> Module | Modules:
    """A callable module on device 0 of the target; its arguments are `args` in order.  Where there
    is no such device, its text can be read, and calls raise what is missing.

    schedule:    or what `lower` gave for one, which is lowered again for the target; for a list of
                 such, `Modules`, with each function by the name it was lowered with
    target_host: the processor beside the device, where it is not this machine's
    args: default: the inputs and outputs of the schedule.  All inputs must be there, and whatever
          else is wanted; what the schedule inlines, or computes inside another stage, is computed
          once more for it, as `NAME.whole`.  Variables are given as numbers; where they are left
          out, extents are what the shapes of a call's arrays say
    binds: as of `lower`
    """
    _check_binds(binds)
    if isinstance(args, (str, Target, Mapping)):  # TVM's order for what was lowered already
        args, target = None, args if target is None else target
    if not isinstance(schedule, (Schedule, Program)):
        return _several(schedule, target, target_host)
    if isinstance(schedule, Program):
        if not isinstance(schedule, Lowered) or schedule.schedule is None:
            raise ScheduleError(
                f"build({schedule.name})", "nothing says what this program was made from",
                "Give the schedule, or what lower(s, args) returned.",
            )  # fmt: skip
        args = schedule.listed if args is None else args
        name = schedule.name if name == "main" else name
        schedule = schedule.schedule
    whole = resolve_target(target, "llvm")
    chosen, here = local_target(whole if target_host is None else whole.with_host(target_host))
    if here is None and not device(chosen).exist:
        source = generate_source(schedule, chosen, name, args)
        return Module(Artifact(source, b""), device(chosen))
    made = build_artifact(schedule, chosen, name, args)
    return Module(made, device(chosen), load_later=here is None)


def _check_binds(binds: Mapping[Tensor, Declared] | None) -> None:
    """Raises ScheduleError for a buffer of another shape or type than its tensor."""
    for tensor, buffer in (binds or {}).items():
        alike = len(tensor.shape) == len(buffer.shape) and all(
            a is b or (isinstance(a, int) and a == b)
            for a, b in zip(tensor.shape, buffer.shape, strict=True)
        )
        if tensor.dtype is not buffer.dtype or not alike:
            raise ScheduleError(
                f"binds={{{tensor.name}: {buffer.name}}}",
                f"it is {buffer.dtype}{list(buffer.shape)}, not {tensor.dtype}{list(tensor.shape)}",
                "Leave binds out: arguments are row-major, of the shapes of their tensors.",
            )  # fmt: skip


def _several(
    lowered: Sequence[Program], target: TargetLike | None, target_host: TargetLike | None
) -> Modules:
    names = [program.name for program in lowered if isinstance(program, Program)]
    if not lowered or len(names) < len(lowered) or len(set(names)) < len(names):
        raise ScheduleError(
            f"build({names})", "it is no list of lowered functions with different names",
            'Give what lower(s, args, name="add") returned for each.',
        )  # fmt: skip
    return Modules([build(program, None, target, target_host) for program in lowered])


def payload_of(
    schedule: Schedule, name: str = "main", *, chained: bool | str = False
) -> dict[str, Any]:
    """A build job as plain data: the DAG and the closed steps; chained: as of `generate_source`."""
    return payload(schedule.dag.to_json(), schedule.to_json(), name, chained=chained)


def payload(dag: Any, steps: Any, name: str, *, chained: bool | str = False) -> dict[str, Any]:
    """`payload_of` a schedule that is there as JSON."""
    told = {"dag": dag, "steps": steps, "name": name}
    return {**told, "chained": chained} if chained else told


def build_payload(told: dict[str, Any], target: Target | str) -> Artifact:
    """Build from `payload_of`'s data, as a worker does."""
    schedule = Schedule.replay(ComputeDAG.from_json(told["dag"]), told["steps"])
    chained = told.get("chained", False)
    return build_artifact(schedule, Target(target), told["name"], chained=chained)


def kernel_name(name: str) -> str:
    """`name` as an identifier of C."""
    clean = re.sub(r"\W", "_", name)
    return clean if clean and not clean[0].isdigit() else f"k_{clean}"
