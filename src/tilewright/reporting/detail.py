"""What the best candidate of a task looks like: its loop nest and the text of its kernels.

In: tasks with their records.  Out: text.  The tasks that take longest have both, as far as there is
time and room; the others can be asked for with `--task`.  Read next: `page.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import TilewrightError
from tilewright.driver.build import generate_source
from tilewright.measure.database import Database
from tilewright.measure.record import TaskId
from tilewright.reporting.model import Report, TaskPart
from tilewright.targets.target import Target

MOST, MOST_CHARACTERS = 8, 220_000  # tasks, characters of all
LONGEST = 60_000  # of one text


def add_details(report: Report, database: Database, ids: Mapping[int, TaskId]) -> None:
    """Write loops and source into the tasks that take longest.  ids: of tasks, by their numbers"""
    by_number = {part.number: (part, ids[part.number]) for part in report.tasks}
    order = [k.task for k in report.kernels if k.task in by_number]
    order += [number for number in by_number if number not in set(order)]
    left = MOST_CHARACTERS
    for rank, number in enumerate(order):
        part, task = by_number[number]
        if part.best is None:
            continue
        if rank >= MOST or left <= 0:
            part.left_out = (
                "Loops and source are left out, to keep this file small; with --task "
                f"{number} they are there."
            )
            continue
        _write(part, task, database)
        left -= len(part.loops) + len(part.source)


def _write(part: TaskPart, task: TaskId, database: Database) -> None:
    record, dag = database.best(task), database.computation(task.dag)
    if record is None or dag is None:
        part.left_out = "The log does not tell the computation, so its loops cannot be shown."
        return
    try:
        schedule = database.replay(record, dag)
        part.loops = _cut(str(schedule))
        part.source = _cut(generate_source(schedule, Target(task.target), task.name).text)
    except TilewrightError as error:
        part.left_out = f"It cannot be shown here: {error}"


def _cut(text: str) -> str:
    if len(text) <= LONGEST:
        return text
    return f"{text[:LONGEST]}\n[{len(text) - LONGEST:,} more characters]"
