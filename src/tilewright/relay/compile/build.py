"""`relay.build`: a network becomes a library of verified kernels, with one report.

In: a module, its parameters, a target, schedules (a log).  Out: a `Library`.  Every distinct fused
group is compiled once, with the best schedule that is known, and compared with the reference.
Read next: `schedules.py`, `library.py`, `graph_executor.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from typing import Any

from tilewright.base.artifact import Artifact
from tilewright.base.errors import ModelError, TargetError, TilewrightError
from tilewright.driver.build import build_artifact, build_payload, payload_of, resolve_target
from tilewright.measure.calls import warm_build
from tilewright.measure.pool import Options, WorkerFailure, WorkerPool
from tilewright.measure.verify import verify
from tilewright.relay.compile.extract import FusedGroup, fused_groups, prepare
from tilewright.relay.compile.memory import Lifetime, MemoryPlan, lifetimes, plan_memory
from tilewright.relay.compile.report import BuildReport, KernelReport
from tilewright.relay.compile.schedules import Choice, Chooser, sources_of
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
)
from tilewright.relay.graph.traversal import post_order
from tilewright.relay.run.library import Launch, Library, Operand, Plan, TensorSpec, load
from tilewright.runtime.device import Device, local_target
from tilewright.targets.target import Target, TargetLike

__all__ = ["build", "load"]

_COMPILE_SECONDS = 120.0
_TIMED_RUNS = 5  # of a kernel whose time no record tells
_NAME_LENGTH = 48


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
    verify:    run each distinct kernel once against the reference, where the device is there.
               Those whose very record was verified are not run again

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
    made = _kernels(groups, chooser, chosen, dev if verify else None)
    net = _Network(main, groups, [m.artifact for m in made])
    report = BuildReport(
        target=str(chosen), kernels=tuple(m.report for m in made),
        seconds=time.perf_counter() - began, planned_bytes=net.memory.planned_bytes,
        unshared_bytes=net.memory.unshared_bytes,
        constant_bytes=sum(c.nbytes for c in net.constants), notes=tuple(notes),
    )  # fmt: skip
    plan = net.plan(str(chosen), tuple(params or ()))
    return Library(plan, net.artifacts, net.constants, report)


# -- kernels ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Kernel:
    artifact: Artifact
    report: KernelReport


class _Refused(Exception):
    """A choice cannot be used; the message says why."""


def _kernels(
    groups: Sequence[FusedGroup], chooser: Chooser, target: Target, dev: Device | None
) -> list[_Kernel]:
    """A kernel for each group.  dev: where to verify, or None."""
    choices = [chooser.choices(g.dag, target) for g in groups]
    first = [next(c) for c in choices]
    with _Compiler(target, len(groups)) as compiler:
        jobs = [
            compiler.start(choice.schedule, _kernel_name(g))
            for g, choice in zip(groups, first, strict=True)
        ]
        return [
            _ship(g, choice, job, rest, compiler, dev)
            for g, choice, job, rest in zip(groups, first, jobs, choices, strict=True)
        ]


def _ship(
    group: FusedGroup,
    choice: Choice,
    job: Future[Artifact],
    rest: Iterator[Choice],
    compiler: _Compiler,
    dev: Device | None,
) -> _Kernel:
    """The first choice that compiles and computes what it must.

    Raises ModelError when not even the default schedule does.
    """
    failures: list[str] = []
    while True:
        try:
            artifact = _compiled(job)
            seconds = choice.seconds
            if dev is not None and not choice.verified:
                seconds = _verify(group, artifact, dev)
            break
        except _Refused as refused:
            failures.append(f"{choice.source} failed: {refused}")
        following = next(rest, None)
        if following is None:
            raise ModelError(
                f"relay.build: kernel {_kernel_name(group)}", "; ".join(failures),
                "Please report it with the network.",
            )  # fmt: skip
        choice = following
        job = compiler.start(choice.schedule, _kernel_name(group))
    report = KernelReport(
        name=artifact.source.entry_name, label=_show(group), count=len(group.calls),
        source=choice.source, flop=group.dag.flop_ct, seconds=seconds,
        verified=choice.verified or dev is not None, note="; ".join(failures),
    )  # fmt: skip
    return _Kernel(artifact, report)


def _compiled(job: Future[Artifact]) -> Artifact:
    try:
        return job.result()
    except TargetError:
        raise  # the compiler is missing: no schedule will help
    except (TilewrightError, WorkerFailure) as error:
        raise _Refused(str(error)) from None


def _verify(group: FusedGroup, artifact: Artifact, dev: Device) -> float:
    """Seconds of one call.  Raises _Refused when the results differ by more than rounding."""
    result = verify(group.dag, artifact, dev, repeat=_TIMED_RUNS)
    if result.fatal:
        raise ModelError(
            f"relay.build: kernel {artifact.source.entry_name}",
            f"it lost the device: {result.message}", "Start a new process.",
        )  # fmt: skip
    if result.error:
        raise _Refused(result.message)
    return min(result.costs)


class _Compiler:
    """Compiles schedules, in worker processes where there are enough of them to pay for it."""

    def __init__(self, target: Target, kernels: int) -> None:
        self.target = target
        wanted = kernels // target.device_kind.kernels_per_process
        workers = min(len(os.sched_getaffinity(0)), wanted)
        self._pool = None
        if workers > 1:
            self._pool = WorkerPool(workers, Options(partial(warm_build, target.kind)))

    def start(self, schedule: Any, name: str) -> Future[Artifact]:
        if self._pool is not None:
            payload = payload_of(schedule, name)
            return self._pool.submit(build_payload, payload, self.target, timeout=_COMPILE_SECONDS)
        future: Future[Artifact] = Future()
        try:
            future.set_result(build_artifact(schedule, self.target, name))
        except TilewrightError as error:
            future.set_exception(error)
        return future

    def __enter__(self) -> _Compiler:
        return self

    def __exit__(self, *_: object) -> None:
        if self._pool is not None:
            self._pool.close()


def _kernel_name(group: FusedGroup) -> str:
    """Unique for the computation, so that two kernels of a process never share a name."""
    clean = "".join(c if c.isalnum() else "_" for c in group.name)[:_NAME_LENGTH]
    return f"{clean}_{group.key[:10]}"


def _show(group: FusedGroup) -> str:
    """`conv2d_nchw+add+relu 1x512x7x7 512x512x3x3 1x1`: the workload without types."""
    shown = [
        "x".join(map(str, a[1] if a[0] == "TENSOR" else a))
        for a in group.args
        if isinstance(a, (list, tuple)) and a
    ]
    return " ".join([group.name, *shown])


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
