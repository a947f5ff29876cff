"""One computation built as the kernels of networks are: verified, as a library of one launch.

In: a task, schedules (a log).  Out: a `Library`, whose inputs and outputs are the computation's.
Read next: `kernels.py`, `build.py`.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import Any

from tilewright.base.artifact import BufferSpec
from tilewright.base.errors import ModelError
from tilewright.knowledge import records
from tilewright.measure.local import LocalBuilder
from tilewright.network.evidence import Evidence, sources_of
from tilewright.network.extract import FusedGroup
from tilewright.network.kernels import build_kernels
from tilewright.network.schedules import choices
from tilewright.runtime.device import local_target
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.plan import COUNTERS, Launch, Operand, Plan, TensorSpec
from tilewright.runtime.network.report import BuildReport
from tilewright.schedule.task import Task
from tilewright.search.predictions import Predictions
from tilewright.search.warm_start import usable_trees


def build_task(
    task: Task, schedules: Any = None, *, verify: bool = True, use_knowledge: bool = True
) -> Library:
    """Compile a computation with the best schedule that is known; arguments as of `build`.

    Raises ModelError for one with a constant that its kernel reads in another layout.
    """
    began = time.perf_counter()
    target, dev = local_target(task.target)
    known = records(target) if use_knowledge else []
    trees, unusable = usable_trees(target) if use_knowledge else (None, "")
    with LocalBuilder() as builder:
        predictions = Predictions(target, trees, builder)
        names = (str(target), str(task.target))
        evidence = Evidence(sources_of(schedules), names, target.fingerprint, known, predictions)
        group = FusedGroup(task.name, task.args, task.dag, ())
        found = choices(evidence, task.dag, target)
        (made,), notes = build_kernels(
            [group], [found], target, builder, verify=verify and dev is not None
        )
    plan = _plan(str(target), made.artifact.source.buffers)
    held = sum(plan.slot_bytes)
    report = BuildReport(
        target=str(target), kernels=(replace(made.report, count=1),),
        seconds=time.perf_counter() - began, planned_bytes=held, unshared_bytes=held,
        constant_bytes=0, notes=(*filter(None, (unusable, evidence.mismatch())), *notes),
        live_bytes=held,
    )  # fmt: skip
    return Library(plan, [made.artifact], [], report)


def _plan(target: str, buffers: tuple[BufferSpec, ...]) -> Plan:
    inputs, outputs = list[TensorSpec](), list[tuple[TensorSpec, Operand]]()
    operands, slots = list[Operand](), list[int]()
    for buffer in buffers:
        spec = TensorSpec(buffer.name, buffer.shape, str(buffer.dtype))
        if buffer.packing is not None:
            raise ModelError(
                f"compile: input {buffer.name}", "the kernel reads this constant in another layout",
                "Declare it as a placeholder that is no constant, or use tilewright.build.",
            )  # fmt: skip
        if buffer.role == "input":
            operands.append(Operand("input", len(inputs)))
            inputs.append(spec)
            continue
        if buffer.role == "counters":
            operands.append(COUNTERS)
            continue
        operands.append(Operand("slot", len(slots)))
        slots.append(buffer.nbytes)
        if buffer.role == "output":
            outputs.append((spec, operands[-1]))
    launch = Launch(0, tuple(operands))
    return Plan(target, tuple(inputs), tuple(outputs), (launch,), tuple(slots))
