"""A search for drills to break: real builds and trials in a process of its own, but known costs.

In: `python _tuner.py LOG TRIAL_SECONDS SIZES...`.  Out: the log; on standard output a line per
result, and at the end the best.  It measures the whole space, and the costs depend on the programs
only: whatever happens on the way, the best is the same.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from dataclasses import replace

from search.spaces import cpu_task
from tilewright.measure.database import Database
from tilewright.measure.jobs import RunJob, RunResult
from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.measure.pipeline import Pipeline
from tilewright.search.loop import tune
from tilewright.search.report import Event, Options


class Known(LocalRunner):
    """Runs and verifies candidates; those that run get a cost that hangs on their text."""

    def submit(self, run: RunJob) -> Future[RunResult]:
        inner, outer = super().submit(run), Future[RunResult]()

        def finish(done: Future[RunResult]) -> None:
            try:
                result = done.result()
                if result.costs and run.artifact is not None:
                    part = int(run.artifact.source.digest()[:8], 16) / 16**8
                    result = replace(result, costs=(1e-5 * (1 + part),))
                outer.set_result(result)
            except BaseException as error:
                outer.set_exception(error)

        inner.add_done_callback(finish)
        return outer


def tell(event: Event) -> None:
    if event.kind == "trial" and event.record is not None:
        print("trial", sorted(event.record.decisions.items()), flush=True)
    elif event.message:
        print(event.message.replace("\n", " "), flush=True)


def main() -> None:
    log, seconds, *sizes = sys.argv[1:]
    task = cpu_task(*map(int, sizes))
    with (
        Database(log, on_error=lambda error: print(error, flush=True)) as database,
        LocalBuilder(timeout=10 * float(seconds), n_parallel=1) as builder,
        Known(timeout=float(seconds), number=1, repeat=1, race=False) as runner,
        Pipeline(builder, runner, database, slice_seconds=0.2, drift=1.0) as pipeline,
    ):
        options = Options(tuner="grid", leaders=0, negligible=0, fruitless=0)
        report = tune([task], pipeline, database, options, on_event=tell)
    found = report.tasks[0]
    assert found.best is not None
    print("best", sorted(found.best.decisions.items()), flush=True)


if __name__ == "__main__":
    main()
