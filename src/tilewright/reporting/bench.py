"""A report of what `bench` measured: engines side by side, kernels as they are in the network.

In: its figures, perhaps the log that was built from.  Out: a `Document`.  Read next: `collect.py`.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tilewright.reporting.collect import bench_alone, collect
from tilewright.reporting.model import Bench, Engine
from tilewright.reporting.write import Document


def document_of(found: Any, log: Path | None, measure: bool = True) -> Document:
    """found: a `cli.tables.BenchReport`; log: whose tasks are told, too; measure: the ceilings of
    the device, which is here
    """
    engines = [Engine(e.engine, tuple(e.seconds), e.note) for e in found.latencies]
    verdict = (
        f"The largest error against {found.reference} is {found.largest_error:.2f} of the "
        f"tolerance, {'within' if found.correct else 'BEYOND'} it."
    )
    bench = Bench(engines, found.timed, found.target, found.device, verdict)
    if log is None:
        return Document(bench_alone(bench, found.model, found.network, measure))
    return Document(collect(log, found.network, bench=bench, measure=measure))
