"""Logs of other programs: what tells their lines, who reads them, what comes of them.

A `Format` is a plugin (`base/plugins.py`, kind "logs"), looked for when a log has a line that is
not ours.
Read next: `importing.py`, which makes records of lines; `sources.py`, which asks what logs
recommend; `record.format_of`, which tells whose a line is.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

from tilewright.base import plugins
from tilewright.base.errors import RecordError
from tilewright.measure.record import TaskId
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.task import Task
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

Function = Callable[..., Sequence[Tensor]]


@dataclass(frozen=True)
class Workloads:
    """What the names in logs of other programs stand for.

    functions: name of a registered workload -> its function, which returns inputs and outputs
    dags:      workload key, as the log has it -> computation
    lookup:    the same as a function; None where it does not know the key
    tasks:     of a network: lines find them by name and arguments, by `workload_key`, or by the
               shapes of inputs and outputs that one task only has

    What else lines find, templates that are registered for instance, is their reader's to say.
    """

    functions: Mapping[str, Function] = field(default_factory=dict)
    dags: Mapping[str, ComputeDAG] = field(default_factory=dict)
    lookup: Callable[[str], ComputeDAG | None] | None = None
    tasks: Sequence[Task] = ()


@dataclass(frozen=True)
class Found:
    """What a usable line says.

    costs:  seconds of one run there, an entry per repeat
    format: the origin of its record, less "import:"
    device: the target as the line has it, as the log does not name the device
    """

    task: TaskId
    schedule: Schedule
    decisions: dict[str, Any]
    costs: tuple[float, ...]
    format: str
    device: str
    timestamp: float
    versions: dict[str, str]


# What a line, decoded, says: of one computation, or of several kernels that it is good for.  Raises
# a TilewrightError saying why it is of no use, or one of `DAMAGE` for a line with other fields.
Reader = Callable[[dict[str, Any]], list[Found]]


@runtime_checkable
class Recommendations(Protocol):
    """What a log of another program recommends; nothing of it was measured here.

    It is a `schedule.task.ScheduleSource` that tells more.
    """

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The best legal schedule for `dag` on `target`, or None."""

    def __len__(self) -> int:
        """How many configurations it knows."""

    @property
    def kinds(self) -> set[str]:
        """Kinds of the devices that it knows of."""

    def told(self) -> str:
        """How many there are, and which lines could not be used, for the user."""


@dataclass(frozen=True)
class Format:
    """A format of lines.

    name:   of a log, in a sentence; program: who writes it
    wrote:  whether a line, as an object of JSON whose values may still be text, is one of it
    reader: makes a reader of its lines, for what their names stand for and one target (None: any)
    source: what a file of it recommends; None: nothing but what is imported.  Raises RecordError
            for a file without a line that can be used
    """

    name: str
    program: str
    wrote: Callable[[Mapping[str, Any]], bool]
    reader: Callable[[Workloads, Target | None], Reader]
    source: Callable[[str | os.PathLike[str]], Recommendations] | None = None


def formats() -> list[Format]:
    """All that somebody here reads."""
    found: list[Format] = plugins.every("logs")
    return found


def refuse(reason: str, way_out: str = "") -> RecordError:
    """Why a line is of no use; raised by readers."""
    return RecordError("line", reason, way_out)
