"""`relay.build`: a network becomes a library of verified kernels, with one report.

In: a module, its parameters, a target, schedules (a log).  Out: a `Library`.  Every distinct fused
group is compiled once, with the best schedule that is known, and compared with the reference.
Read next: `decide.py`, `kernels.py`, `memory.py`, `runtime/network/library.py`.
"""

from __future__ import annotations

import time
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any

import numpy as np

from tilewright.base.artifact import Artifact
from tilewright.base.doors import is_integer
from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.driver.build import resolve_target
from tilewright.graph.expr import (
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
from tilewright.graph.layers import layers_of
from tilewright.graph.open import still_open
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.graph.passes.batch import with_batch
from tilewright.graph.passes.extents import open_extents, with_sizes
from tilewright.knowledge import records
from tilewright.network.batching import sample_dependence
from tilewright.network.chains import chained_each, reading_inputs
from tilewright.network.decide import Decision, KernelChoices, decide, uncompared
from tilewright.network.evidence import Evidence, sources_of
from tilewright.network.extract import FusedGroup, fused_groups
from tilewright.network.helpers import Helpers
from tilewright.network.in_place import in_place
from tilewright.network.kernels import BuiltKernel, build_kernels
from tilewright.network.memory import (
    Lifetime,
    MemoryPlan,
    lifetimes,
    made_in,
    places,
    plan_memory,
    steps,
)
from tilewright.network.movement import moved
from tilewright.network.narrow import begin_packing
from tilewright.network.schedules import DEFAULT
from tilewright.runtime.device import local_target
from tilewright.runtime.network.library import Library, load
from tilewright.runtime.network.plan import COUNTERS, Bound, Kept, Launch, Operand, Plan, TensorSpec
from tilewright.runtime.network.report import BuildReport
from tilewright.runtime.timing import show_seconds
from tilewright.search.predictions import Predictions
from tilewright.search.warm_start import usable_trees
from tilewright.targets.precision import check_used
from tilewright.targets.target import Target, TargetLike

__all__ = ["State", "build", "load"]


@dataclass(frozen=True)
class State:
    """What stays on the device.  output: its next value; initial: what it begins as, None: zeros"""

    output: int
    initial: Array | None = None


def build(
    mod: IRModule | Function | Sequence[IRModule | Function],
    target: TargetLike | None = None,
    params: Mapping[str, Any] | None = None,
    schedules: Any = None,
    target_host: TargetLike | None = None,
    *,
    verify: bool = True,
    batch_sizes: Sequence[int] | None = None,
    sizes: Sequence[Mapping[str, int]] | None = None,
    partial_batches: bool = False,
    use_knowledge: bool = True,
    pass_options: PassOptions = USUAL,
    states: Mapping[str, State] | None = None,
    bounds: Mapping[str, tuple[int, int]] | None = None,
    helpers: Helpers | None = None,
) -> Library:
    """Compile a network.

    mod:       or several: the same network for other shapes of its inputs.  One library then holds
               them all, and a run takes the one that the shape of an input asks for
    target:    default: that of the innermost `with target:`
    params:    weights by name; they become constants.  The other parameters are inputs.  A CPU
               uses an array that is dense and aligned to 64 bytes where it is, without a copy: it
               must not change while the library is in use
    schedules: the path of a log, ours or AutoTVM's, a `measure.Database` or another
               `ScheduleSource`, or several;
               default: what `with autotvm.apply_history_best(log):` entered
    target_host: the target of the processor beside the device; see `Target`
    verify:    run each distinct kernel once against the reference, where the device is there, in a
               process of its own.  Those that were verified here before are not run again; what
               is wrong, hangs or crashes is not shipped, whatever its record says
    batch_sizes: make of `mod`, which is for one batch size, the network for each of these: the
               first extents of its inputs (all parameters that are not in `params`).  Of a network
               with one open extent (`relay.Any()`): what that may be
    sizes:     the same for several open extents: numbers by their names, for each network one set
    partial_batches: a batch between two sizes runs in the network for the greater one, filled up
               with zeros, and gives as many results as it has samples.  Refused where samples,
               along the first axis of inputs and outputs, depend on each other
    use_knowledge: where `schedules` have nothing, use what is known of devices of this class: what
               ships with Tilewright, and what a site added; see `tilewright.knowledge`
    pass_options: which passes run, and who is told of them
    states:    inputs that stay on the device from run to run, by name, and which output is the next
               value of each.  Networks for several shapes of inputs have them in common: a step of
               one position and one of many, as a decoder's prefill, go on from each other
    bounds:    the least and the greatest number that an input may hold, by name, such as positions
               of a cache: a run refuses others before anything is written
    helpers:   processes and predictions of a search that goes on beside it

    Raises ModelError for a network that cannot be compiled.
    """
    began = time.perf_counter()
    asked = Target(resolve_target(target), target_host)
    check_used("relay.build", asked)
    chosen, dev = local_target(asked)
    here = dev is not None
    functions = _functions(mod, batch_sizes, sizes, tuple(params or ()))
    names = (str(chosen), str(asked))
    known = records(chosen) if use_knowledge else []
    trees, unusable = usable_trees(chosen) if use_knowledge else (None, "")
    shared = helpers or Helpers()
    with shared.building() as builder:
        predictions = shared.predicted(chosen) if use_knowledge else None
        predictions = predictions or Predictions(chosen, trees, builder)
        evidence = Evidence(sources_of(schedules), names, chosen.fingerprint, known, predictions)
        decided = [
            decide(f, params, evidence, chosen, pass_options, known=shared.groupings)
            for f in functions
        ]
        mains = [d.main for d in decided]
        begin_packing(mains)
        _check_inputs(mains)
        each = [fused_groups(main) for main in mains]
        joined = _joined(each)
        if partial_batches:
            _check_apart(mains, each)
        kernels = KernelChoices(decided, each, evidence, chosen)
        # Tiles of several samples lie side by side in what Winograd's transforms compute.
        groups = joined
        if not partial_batches:
            groups = kernels.with_schedules(joined, kernels.implemented(joined))

        def built(groups: Sequence[FusedGroup]) -> tuple[list[BuiltKernel], list[str]]:
            by_schedules = kernels.schedules(groups)
            begun = reading_inputs(chained_each(each, groups), mains, each)
            return build_kernels(
                groups, by_schedules, chosen, builder, verify=verify and here, chained=begun,
                references=shared.references, runner=shared.runner,
            )  # fmt: skip

        made, more = built(groups)
        lost = [
            g.instead_of and m.report.source == DEFAULT.name
            for g, m in zip(groups, made, strict=True)
        ]
        if any(lost):  # what was chosen for its schedules turned out not to have any that is right
            groups = [own if no else g for own, g, no in zip(joined, groups, lost, strict=True)]
            made, more = built(groups)
    notes = [note for note in (unusable, evidence.mismatch()) if note]
    if verify and not here:
        why = f"{chosen.triple} is another machine" if chosen.triple else "there is none here"
        notes.append(f"no kernel was run, for want of a device of kind {chosen.kind}: {why}")
    if len(mains) > 1:
        notes.append(f"for {len(mains)} shapes of inputs: calls and times are those of all")
    notes += evidence.notes() + uncompared(joined, groups, evidence)
    notes += [note for d in decided if (note := _as_confirmed(d))]
    artifacts, constants = [m.artifact for m in made], _Constants()
    alignment = chosen.device_kind.alignment
    nets = [_Network(main, groups, artifacts, constants, alignment) for main in mains]
    largest = max((net.memory for net in nets), key=lambda memory: memory.planned_bytes)
    report = BuildReport(
        target=str(chosen), kernels=tuple(m.report for m in made),
        seconds=time.perf_counter() - began, planned_bytes=largest.planned_bytes,
        unshared_bytes=largest.unshared_bytes, live_bytes=largest.peak_bytes,
        constant_bytes=sum(c.nbytes for c in constants.arrays), notes=(*notes, *more),
        moved=moved(
            mains, [net.kernel_of for net in nets], [m.report for m in made],
            [net.written for net in nets],
        ),
    )  # fmt: skip
    plans = [net.plan(str(chosen), tuple(params or ())) for net in nets]
    plans = [replace(plan, partial=partial_batches) for plan in plans]
    if states:
        plans = [_with_states(plan, plans[0], states, constants) for plan in plans]
    plans = [_with_bounds(plan, bounds or {}) for plan in plans]
    return Library(plans, artifacts, constants.arrays, report)


def _with_bounds(plan: Plan, bounds: Mapping[str, tuple[int, int]]) -> Plan:
    index = {spec.name: k for k, spec in enumerate(plan.inputs)}
    if missing := [name for name in bounds if name not in index]:
        raise ModelError(
            "relay.build(bounds=)", f"there is no input {missing[0]!r}",
            f"Its inputs are {', '.join(index) or 'none'}.",
        )  # fmt: skip
    for name, ends in bounds.items():
        spec, whole = plan.inputs[index[name]], [n for n in ends if is_integer(n)]
        if not DType(spec.dtype).is_int or len(whole) != 2 or not -(1 << 63) <= ends[0] <= ends[1]:
            raise ModelError(
                f"relay.build(bounds=): {spec}", f"numbers from {ends} are not of an integer input",
                'Give the least and the greatest: bounds={"position": (0, 255)}.',
            )  # fmt: skip
    return replace(plan, bounds=tuple(Bound(index[n], *ends) for n, ends in bounds.items()))


def _with_states(
    plan: Plan, first: Plan, states: Mapping[str, State], constants: _Constants
) -> Plan:  # fmt: skip
    """A plan with its states, which it has in common with the first.

    Raises ModelError for those that it cannot have.
    """
    if plan.partial:
        raise ModelError(
            "relay.build(states=)", "what a batch is filled up with would be written to them",
            "Leave partial_batches out.",
        )  # fmt: skip
    for name in states:
        mine, its = ([s for s in p.inputs if s.name == name] for p in (plan, first))
        if mine != its:
            raise ModelError(
                "relay.build(states=)", f"state {its[0]} is {mine[0]} for other inputs",
                "All shapes of inputs have the same states: give these one shape.",
            )  # fmt: skip
    index = {spec.name: k for k, spec in enumerate(plan.inputs)}
    kept = []
    for name, state in states.items():
        if name not in index or state.output not in range(len(plan.outputs)):
            what = f"input {name!r}" if name not in index else f"output {state.output}"
            listed = ", ".join(index) or "none"
            raise ModelError(
                "relay.build(states=)", f"there is no {what}",
                f"Its inputs are {listed}; it has {len(plan.outputs)} outputs.",
            )  # fmt: skip
        begins = state.initial
        at = constants.add(begins) if begins is not None and np.any(begins) else None
        kept.append(Kept(index[name], state.output, at))
    return replace(plan, states=tuple(kept))


# -- several shapes --------------------------------------------------------------------------------


def _functions(
    mod: Any,
    batch_sizes: Sequence[int] | None,
    sizes: Sequence[Mapping[str, int]] | None,
    bound: tuple[str, ...],
) -> list[Any]:
    """What to build, one for each set of input shapes.  Raises ModelError."""
    if not isinstance(mod, (IRModule, Function)):
        mods = list(mod)
        if not mods or batch_sizes is not None or sizes is not None:
            raise ModelError(
                "relay.build", "no module is given" if not mods
                else f"several modules and {'sizes' if batch_sizes is None else 'batch_sizes'} "
                "are given", "Give one module and sizes, or a module for each.",
            )  # fmt: skip
        return mods
    if batch_sizes is not None and (
        not batch_sizes or len(set(batch_sizes)) < len(batch_sizes) or min(batch_sizes) < 1
    ):
        raise ModelError(
            f"relay.build(batch_sizes={list(batch_sizes)})",
            "they are not different whole numbers of at least 1", "Example: batch_sizes=[1, 8].",
        )  # fmt: skip
    names = open_extents(mod)
    if names or sizes is not None:
        return [with_sizes(mod, each) for each in _sets(names, batch_sizes, sizes)]
    if batch_sizes is None:
        return [mod]
    main = mod["main"] if isinstance(mod, IRModule) else mod
    return [with_batch(main, int(size), bound) for size in batch_sizes]


def _sets(
    names: tuple[str, ...],
    batch_sizes: Sequence[int] | None,
    sizes: Sequence[Mapping[str, int]] | None,
) -> Sequence[Mapping[str, int]]:
    """The numbers of the open extents `names`, one set for each network."""
    if not names:
        raise ModelError(
            "relay.build(sizes=)", "the network has no open extent",
            "Give batch_sizes, or relay.Any() in the shapes of its inputs.",
        )  # fmt: skip
    if (batch_sizes is None) == (sizes is None):
        if sizes is None:
            raise still_open("relay.build", names)
        raise ModelError("relay.build", "both batch_sizes and sizes are given", "Give one of them.")
    if sizes is not None:
        if not sizes:
            raise ModelError("relay.build(sizes=[])", "no set is given", "Give one for a network.")
        return sizes
    if len(names) > 1:
        raise still_open(f"relay.build(batch_sizes={list(batch_sizes or ())})", names)
    return [{names[0]: size} for size in batch_sizes or ()]


def _check_inputs(mains: Sequence[Function]) -> None:
    """One library has one list of inputs, whose shapes tell its plans apart."""

    def told(main: Function) -> list[tuple[str, str]]:
        return [(p.name_hint, str(p.dtype)) for p in main.params]

    shapes = [tuple(p.shape for p in main.params) for main in mains]
    if any(told(main) != told(mains[0]) for main in mains) or len(set(shapes)) < len(shapes):
        raise ModelError(
            "relay.build", "the modules have not the same inputs in different shapes",
            "Give the same network for each set of input shapes, once.",
        )  # fmt: skip


def _check_apart(mains: Sequence[Function], each: Sequence[Sequence[FusedGroup]]) -> None:
    """Samples of a batch must not depend on each other; of a batch of 1 they cannot."""
    for main, groups in zip(mains, each, strict=True):
        alone = all(p.shape[:1] == (1,) for p in main.params)
        if not alone and (reason := sample_dependence(main, groups)):
            raise ModelError(
                "relay.build(partial_batches=True)", reason,
                "Leave it out, and build the network for every size.",
            )  # fmt: skip


def _as_confirmed(decided: Decision) -> str:
    """A note on what a search found of the network as a whole; "" where none did."""
    line = decided.confirmed
    if line is None:
        return ""
    kept = f"; {n} of its kernels as without the log" if (n := len(line.untuned)) else ""
    return (
        f"as confirmed in the whole network: {show_seconds(line.seconds)} a run, "
        f"{show_seconds(line.untuned_seconds)} without the log{kept}"
    )


def _joined(each: Sequence[Sequence[FusedGroup]]) -> list[FusedGroup]:
    """The distinct groups of several networks, with the calls of all."""
    found: dict[str, FusedGroup] = {}
    for group in (group for groups in each for group in groups):
        known = found.get(group.key)
        found[group.key] = (
            group if known is None else replace(known, calls=(*known.calls, *group.calls))
        )
    return list(found.values())


_LOOKED_AT = 1 << 20  # bytes of a constant by which equal ones are found
Forms = tuple[Any, ...]  # what is applied to a constant, in order: each has apply(array)


class _Constants:
    """The weights of a library, each once in every form that kernels read."""

    def __init__(self) -> None:
        self.arrays: list[Array] = []
        self._by_node: dict[tuple[Constant, Forms], int] = {}
        self._by_content: dict[tuple[Any, ...], list[tuple[Array, int]]] = {}

    def index(self, value: Constant, forms: Forms) -> int:
        if (value, forms) not in self._by_node:
            self._by_node[value, forms] = self._index(value.data, forms)
        return self._by_node[value, forms]

    def add(self, data: Array) -> int:
        """The index of an array that no kernel reads."""
        return self._index(np.ascontiguousarray(data), ())

    def _index(self, data: Array, forms: Forms) -> int:
        """Networks for several shapes have equal weights, which are folded in each of them."""
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        key = (data.shape, str(data.dtype), forms, zlib.crc32(raw[:_LOOKED_AT].data))
        known = self._by_content.setdefault(key, [])
        for other, index in known:
            if other.ctypes.data == raw.ctypes.data or np.array_equal(other, raw):
                return index
        known.append((raw, len(self.arrays)))
        self.arrays.append(reduce(lambda made, form: form.apply(made), forms, data))
        return len(self.arrays) - 1


# -- where values live -----------------------------------------------------------------------------


class _Network:
    """Launches, buffers and packed weights of a prepared function.

    artifacts: of `groups`, in their order; constants: takes the weights
    alignment: of places of values in memory that they share, in bytes
    """

    def __init__(
        self,
        main: Function,
        groups: Sequence[FusedGroup],
        artifacts: Sequence[Artifact],
        constants: _Constants,
        alignment: int,
    ) -> None:
        self.main, self.artifacts, self.constants = main, artifacts, constants
        self.groups = groups
        self.kernel_of = {call: k for k, g in enumerate(groups) for call in g.calls}
        self.in_place, self.made = in_place(main), made_in(main.body)
        alive, order = lifetimes(main), steps(main.body)
        self._places, results = places(main.body), _results(main.body)
        self.written = [results[pair.output] for pair in self.in_place]
        for pair in self.in_place:  # nothing else may be in that memory before it is read
            owner = self._places[results[pair.output]].owner
            alive[owner] = replace(alive[owner], first=0)
        spaces = {
            (call, k): Lifetime(f"w{step}.{k}", spec.nbytes, step, step)
            for step, call in enumerate(order)
            for k, spec in enumerate(self._artifact(call).source.buffers)
            if spec.role == "workspace"
        }
        self.memory: MemoryPlan = plan_memory([*alive.values(), *spaces.values()], alignment)
        values: dict[Any, Lifetime] = {**alive, **spaces}
        self._slots = {key: self.memory.place_of[life.name] for key, life in values.items()}
        self.launches = tuple(
            Launch(self.kernel_of[call], tuple(self._operands(call)), layers_of(call))
            for call in order
        )
        self.results = [(e.tensor_type, self._place(e)) for e in results]

    def plan(self, target: str, bound: tuple[str, ...]) -> Plan:
        """The network as data, for `Library`."""
        inputs = tuple(TensorSpec(p.name_hint, p.shape, p.dtype) for p in self.main.params)
        outputs = tuple(
            (TensorSpec(f"output{k}", kind.shape, kind.dtype), where)
            for k, (kind, where) in enumerate(self.results)
        )
        slots, pairs = self.memory.slot_bytes, self.in_place
        return Plan(target, inputs, outputs, self.launches, slots, bound, in_place=pairs)

    def _artifact(self, call: Expr) -> Artifact:
        assert isinstance(call, Call)
        return self.artifacts[self.kernel_of[call]]

    def _operands(self, call: Call) -> Iterator[Operand]:
        """One for each buffer of its kernel: the call's arguments, its result, workspaces."""
        transformed = self.groups[self.kernel_of[call]].transformed
        given, made = iter(enumerate(_arguments(call))), iter(self.made[call])
        for k, spec in enumerate(self._artifact(call).source.buffers):
            if spec.role == "workspace":
                yield Operand("slot", *self._slots[call, k])
            elif spec.role == "counters":
                yield COUNTERS
            elif spec.role == "output":
                yield self._place(next(made))
            else:
                at, value = next(given)
                steps = (transformed.get(at), spec.packing)
                yield self._place(value, tuple(step for step in steps if step is not None))

    def _place(self, value: Expr, forms: Forms = ()) -> Operand:
        if isinstance(value, TupleGetItem) and isinstance(value.tuple_value, Tuple):
            return self._place(value.tuple_value.fields[value.index], forms)
        place = self._places[value]
        owner, offset = place.owner, place.offset
        if isinstance(owner, Var):
            return Operand("input", self.main.params.index(owner), offset)
        if isinstance(owner, Constant):
            return Operand("constant", self.constants.index(owner, forms))
        slot, begin = self._slots[owner]
        return Operand("slot", slot, begin + offset)


def _arguments(call: Call) -> list[Expr]:
    return [a for arg in call.args for a in (arg.fields if isinstance(arg, Tuple) else (arg,))]


def _results(body: Expr) -> list[Expr]:
    if isinstance(body, Tuple):
        return [e for field in body.fields for e in _results(field)]
    if isinstance(body.checked_type, TensorType):
        return [body]
    raise ModelError(
        "relay.build", f"its result is a {type(body).__name__} of several values",
        "Return a tuple of tensors.",
    )  # fmt: skip
