"""Tuning of a network as a call: what `tilewright tune` does, without its display.

In: a module, its parameters, a target, the path of a log, seconds.  Out: records in the log.
Read next: `extract.py`, `search/loop.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilewright.measure.database import Database
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.relay.compile.extract import fused_tasks
from tilewright.relay.graph.expr import IRModule
from tilewright.search.loop import tune as search
from tilewright.search.report import Options, Report
from tilewright.search.rules.derive import with_rules
from tilewright.targets.target import Target

_MIN_REPEAT_MS = 20.0


def tune(
    mod: IRModule, params: Mapping[str, Any], target: Target, log: Path, seconds: float
) -> Report | None:
    """Tune every kernel of the network, with templates and rules; None where it has none to tune.

    Started again with the same log, it goes on where it was.  Raises SearchError where every trial
    failed, DeviceError without the device.
    """
    with (
        Database(log) as database,
        LocalBuilder() as builder,
        LocalRunner(number=4, repeat=3, min_repeat_ms=_MIN_REPEAT_MS) as runner,
        Pipeline(builder, runner, database) as pipeline,
    ):
        here = target.on(runner.describe(target))
        tasks = [with_rules(t) for t in fused_tasks(mod, params, here, include_simple=True)]
        tasks = [t for t in tasks if t.sketches]
        if not tasks:
            return None
        report = search(tasks, pipeline, database, Options(seconds=seconds))
    report.check()
    return report
