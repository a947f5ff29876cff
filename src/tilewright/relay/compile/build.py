"""`relay.build`: a network becomes a library of verified kernels, with one report.

In: a module, its parameters, a target, schedules (a log).  Out: a `Library`.  Every distinct fused
group is compiled once, with the best schedule that is known, and compared with the reference.
Read next: `ship.py`, `schedules.py`, `library.py`, `graph_executor.py`.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tilewright.base.artifact import Artifact
from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.relay.compile.extract import FusedGroup, fused_groups, prepare
from tilewright.relay.compile.memory import Lifetime, MemoryPlan, lifetimes, plan_memory
from tilewright.relay.compile.schedules import Chooser, sources_of
from tilewright.relay.compile.ship import ship
from tilewright.relay.graph.expr import (
    Array,
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    TensorType,
    Tuple,
    TupleGetItem,
    Var,
    post_order,
)
from tilewright.runtime.device import local_target
from tilewright.runtime.network.library import Library, load
from tilewright.runtime.network.plan import Launch, Operand, Plan, TensorSpec
from tilewright.runtime.network.report import BuildReport
from tilewright.targets.target import TargetLike

__all__ = ["build", "load"]


def build(
    mod: IRModule | Function,
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    schedules: Any = None,
    target_host: Any = None,
    *,
    verify: bool = True,
) -> Library:
    """Compile a network.

    target:    default: that of the innermost `with target:`
    params:    weights by name; they become constants.  The other parameters are inputs
    schedules: the path of a log, a `measure.Database` or another `ScheduleSource`, or several;
               default: what `with autotvm.apply_history_best(log):` entered
    target_host: accepted for the tutorials' spelling; the host is this process
    verify:    run each distinct kernel once against the reference, where the device is there, in a
               process of its own.  Those that were verified here before are not run again; what
               is wrong, hangs or crashes is not shipped, whatever its record says

    `transform.PassContext(opt_level=)` counts: below 3 nothing is folded into weights, below 2
    nothing is fused.  Raises ModelError for a network that cannot be compiled.
    """
    began = time.perf_counter()
    asked = resolve_target(target)
    chosen, dev = local_target(asked)
    main = prepare(mod, params)["main"]
    groups = fused_groups(main)
    names = (str(chosen), str(asked))
    chooser = Chooser(sources_of(schedules), names, chosen.fingerprint)
    notes = [note] if (note := chooser.note()) else []
    if verify and dev is None:
        notes.append(f"no kernel was run, for want of a device of kind {chosen.kind}")
    choices = [chooser.choices(g.dag, chosen) for g in groups]
    made, more = ship(groups, choices, chosen, verify=verify and dev is not None)
    net = _Network(main, groups, [m.artifact for m in made])
    report = BuildReport(
        target=str(chosen), kernels=tuple(m.report for m in made),
        seconds=time.perf_counter() - began, planned_bytes=net.memory.planned_bytes,
        unshared_bytes=net.memory.unshared_bytes,
        constant_bytes=sum(c.nbytes for c in net.constants), notes=(*notes, *more),
    )  # fmt: skip
    plan = net.plan(str(chosen), tuple(params or ()))
    return Library(plan, net.artifacts, net.constants, report)


# -- where values live -----------------------------------------------------------------------------


class _Network:
    """Launches, buffers and packed weights of a prepared function.

    artifacts: of `groups`, in their order
    """

    def __init__(
        self, main: Function, groups: Sequence[FusedGroup], artifacts: Sequence[Artifact]
    ) -> None:
        self.main, self.artifacts = main, artifacts
        self.kernel_of = {call: k for k, g in enumerate(groups) for call in g.calls}
        self.constants: list[Array] = []
        self._constant_index: dict[tuple[Constant, Any], int] = {}
        alive = lifetimes(main)
        spaces = {
            (call, k): Lifetime(f"w{life.first}.{k}", spec.size * spec.dtype.bytes, life.first,
                                life.first)
            for call, life in alive.items()
            for k, spec in enumerate(self._artifact(call).source.buffers)
            if spec.role == "workspace"
        }  # fmt: skip
        self.memory: MemoryPlan = plan_memory([*alive.values(), *spaces.values()])
        values: dict[Any, Lifetime] = {**alive, **spaces}
        self._slots = {key: self.memory.slot_of[life.name] for key, life in values.items()}
        self.launches = tuple(
            Launch(self.kernel_of[call], tuple(self._operands(call)))
            for call in post_order(main.body)
            if isinstance(call, Call) and call in self.kernel_of
        )
        self.results = [(e.tensor_type, self._place(e)) for e in _results(main.body)]

    def plan(self, target: str, bound: tuple[str, ...]) -> Plan:
        """The network as data, for `Library`."""
        inputs = tuple(TensorSpec(p.name_hint, p.shape, p.dtype) for p in self.main.params)
        outputs = tuple(
            (TensorSpec(f"output{k}", kind.shape, kind.dtype), where)
            for k, (kind, where) in enumerate(self.results)
        )
        return Plan(target, inputs, outputs, self.launches, self.memory.slot_bytes, bound)

    def _artifact(self, call: Expr) -> Artifact:
        assert isinstance(call, Call)
        return self.artifacts[self.kernel_of[call]]

    def _operands(self, call: Call) -> Iterator[Operand]:
        """One for each buffer of its kernel: the call's arguments, its result, workspaces."""
        given = iter(_arguments(call))
        for k, spec in enumerate(self._artifact(call).source.buffers):
            if spec.role == "workspace":
                yield Operand("slot", self._slots[call, k])
            elif spec.role == "output":
                yield Operand("slot", self._slots[call])
            else:
                yield self._place(next(given), spec.packing)

    def _place(self, value: Expr, packing: Any = None) -> Operand:
        while isinstance(value, Call) and value not in self.kernel_of:
            value = value.args[0]  # a view is in the memory of what it renames
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            return self._place(value.tuple_value.fields[value.index], packing)
        if isinstance(value, Var):
            return Operand("input", self.main.params.index(value))
        if isinstance(value, Constant):
            return Operand("constant", self._constant(value, packing))
        return Operand("slot", self._slots[value])

    def _constant(self, value: Constant, packing: Any) -> int:
        key = value, packing
        if key not in self._constant_index:
            data = value.data if packing is None else packing.apply(value.data)
            self._constant_index[key] = len(self.constants)
            self.constants.append(data)
        return self._constant_index[key]


def _arguments(call: Call) -> list[Expr]:
    return [a for arg in call.args for a in (arg.fields if isinstance(arg, Tuple) else (arg,))]


def _results(body: Expr) -> list[Expr]:
    if isinstance(body, Tuple):
        return [e for field in body.fields for e in _results(field)]
    if isinstance(body.checked_type, TensorType):
        return [body]
    raise ModelError(
        "relay.build", f"its result is a {type(body).__name__} of several values",
        "Return a relay.Tuple of tensors.",
    )  # fmt: skip
