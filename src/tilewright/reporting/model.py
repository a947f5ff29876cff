"""What a report says, as data; how it looks is the business of `page.py` and `markdown.py`.

In: what `collect.py` found.  Out: these.  Times are in seconds, dates in seconds since the epoch.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

from tilewright.cost.ceilings import Bound, Ceilings, Work


class Trial(NamedTuple):
    """One line of a log.

    at:      when its record was made; number: of the trial in its task; elapsed: seconds that
             searches had run by then
    seconds: of a call, infinite where it was refused; predicted: before it was measured, or 0
    error:   kind of refusal, or ""
    device:  number of the device in `Report.devices`
    counts:  it is verified, and not the result of an equal program
    """

    at: float
    number: int
    elapsed: float
    seconds: float
    predicted: float
    error: str
    raced: bool
    final: bool
    counts: bool
    build_s: float
    run_s: float
    builder: int
    built: float
    device: int


@dataclass(frozen=True)
class Refusal:
    """Candidates that were refused for one reason, numbers in it apart.

    kind: one of `record.ERROR_KINDS`; example: the text of one of them
    """

    kind: str
    reason: str
    count: int
    example: str
    label: str


@dataclass(frozen=True)
class Choice:
    """One measured candidate.  origin: who proposed it; decisions: name -> value"""

    seconds: float
    costs: tuple[float, ...]
    origin: str
    decisions: Mapping[str, Any]
    number: int
    predicted: float = 0.0


class Value(NamedTuple):
    """A value of a knob: among how many of all candidates, and of the leading ones."""

    text: str
    every: int
    leading: int


@dataclass(frozen=True)
class Knob:
    """One decision of the sketch that the best candidate is of.

    importance: the share of the spread of log seconds that its value explains, 0 to 1
    best: its value in the best candidate
    """

    name: str
    importance: float
    best: str
    values: Sequence[Value]


@dataclass
class TaskPart:
    """One computation that was tuned.

    label:    its workload, short; number: its place in the log, which anchors have
    layers:   names of what it is in a model, perhaps none
    calls:    how often a run of the network calls it; 0: not known
    instead_of: key of the computation whose place it may take; "": none
    work, bound: what it asks for, and how soon it can be done; None: not known
    loops, source: of the best, where there is room for them
    left_out: why there are none
    """

    key: str
    number: int
    label: str
    target: str
    device: str
    layers: tuple[str, ...] = ()
    calls: int = 0
    instead_of: str = ""
    trials: Sequence[Trial] = ()
    measured: int = 0
    refused: int = 0
    best: Choice | None = None
    leaders: Sequence[Choice] = ()
    knobs: Sequence[Knob] = ()
    sketch_trials: int = 0
    work: Work | None = None
    bound: Bound | None = None
    loops: str = ""
    source: str = ""
    left_out: str = ""

    @property
    def name(self) -> str:
        """As people know it: the first of its layers, else its workload."""
        return self.layers[0] if self.layers else self.label

    @property
    def seconds(self) -> float | None:
        return None if self.best is None else self.best.seconds


@dataclass(frozen=True)
class Kernel:
    """A row of the table.

    seconds: of one call; calls: in a run, 0 where nobody knows; share: of the time of all rows
    costs:   of the repeats behind `seconds`
    source:  where its schedule is from
    task:    number of the task, or None
    """

    label: str
    layers: tuple[str, ...]
    calls: int
    seconds: float | None
    share: float
    work: Work | None
    bound: Bound | None
    source: str
    task: int | None = None
    key: str = ""
    costs: tuple[float, ...] = ()
    trials: int = 0
    refused: int = 0

    @property
    def name(self) -> str:
        """As people know it: the first of its layers, else its workload."""
        return self.layers[0] if self.layers else self.label

    @property
    def total(self) -> float | None:
        """Seconds of all its calls in a run."""
        return None if self.seconds is None else self.seconds * max(self.calls, 1)

    @property
    def gflops(self) -> float | None:
        if self.work is None or not self.seconds or not self.work.flop:
            return None
        return self.work.flop / self.seconds * 1e-9

    @property
    def gbytes(self) -> float | None:
        if self.work is None or not self.seconds:
            return None
        return self.work.nbytes / self.seconds * 1e-9

    @property
    def of_roof(self) -> float | None:
        """How near it comes to what limits it, 1 being there."""
        return self.bound.seconds / self.seconds if self.bound and self.seconds else None


def shared(kernels: Sequence[Kernel]) -> list[Kernel]:
    """The same with their shares, those that take longest first, unknown ones last."""
    whole = math.fsum(k.total or 0.0 for k in kernels) or 1.0
    found = [replace(k, share=(k.total or 0.0) / whole) for k in kernels]
    return sorted(found, key=lambda k: (k.total is None, -(k.total or 0.0), k.name, k.key))


@dataclass(frozen=True)
class Engine:
    """One engine's times of the whole network.  seconds: an entry per repeat; note: why none"""

    name: str
    seconds: tuple[float, ...] = ()
    note: str = ""


@dataclass(frozen=True)
class Bench:
    """What `tilewright bench` measured of a network, in one run.

    kernels: by the key of what they compute: seconds of one call alone, and where the schedule is
             from
    verdict: how its results compare with the reference's
    """

    engines: Sequence[Engine]
    kernels: Mapping[str, tuple[float | None, str]]
    target: str
    device: str
    verdict: str = ""

    def timed(self, kernels: Sequence[Kernel]) -> list[Kernel]:
        """The same with its times."""
        found = []
        for kernel in kernels:
            seconds, source = self.kernels.get(kernel.key, (kernel.seconds, kernel.source))
            named = kernel.source if source in ("record", "knowledge") else source
            found.append(replace(kernel, seconds=seconds, source=named))
        return shared(found)


@dataclass(frozen=True)
class Compared:
    """A task in this log and in another.

    ratio: seconds here by seconds there; low, high: where it is with 95% confidence, by the
           repeats of both; None: too few of them
    verdict: "faster", "same within noise", "slower", "only here", "only there", "not comparable"
    """

    label: str
    here: float | None
    there: float | None
    ratio: float | None
    low: float | None
    high: float | None
    verdict: str
    task: int | None = None


@dataclass(frozen=True)
class Comparison:
    """name: of the other log; told: in a sentence, what it comes to"""

    name: str
    told: str
    rows: Sequence[Compared] = ()


@dataclass(frozen=True)
class Span:
    """What a worker did from `begin` to `end`, in seconds of the searches' time."""

    begin: float
    end: float
    task: int
    number: int
    outcome: str


@dataclass(frozen=True)
class Lane:
    """name: of a builder or a device; busy: share of the time"""

    name: str
    kind: str
    spans: Sequence[Span]
    busy: float


@dataclass(frozen=True)
class Whole:
    """How a network ran as a whole, as the search confirmed it."""

    seconds: float
    untuned: float
    kept: int


@dataclass
class Report:
    """All of it.

    title:   what was tuned; facts: names and values for the head; commands: to do it again
    ceilings_told: where the ceilings are from; named: whether rows have names of layers
    notes:   sentences on what is missing, and why
    shares_of: what `Kernel.share` is of
    """

    title: str
    log: str = ""
    digest: str = ""
    facts: Sequence[tuple[str, str]] = ()
    commands: Sequence[str] = ()
    kernels: Sequence[Kernel] = ()
    tasks: Sequence[TaskPart] = ()
    ceilings: Ceilings | None = None
    ceilings_told: str = ""
    refusals: Sequence[Refusal] = ()
    more_refusals: int = 0
    lanes: Sequence[Lane] = ()
    length: float = 0.0
    whole: Sequence[Whole] = ()
    comparison: Comparison | None = None
    bench: Bench | None = None
    devices: Sequence[str] = ()
    notes: list[str] = field(default_factory=list)
    shares_of: str = ""
    trials: int = 0
    refused: int = 0

    @property
    def is_network(self) -> bool:
        return len(self.kernels) > 1

    @property
    def kernel_seconds(self) -> float:
        """Of a run, kernels alone, as far as they are known."""
        return sum(k.total or 0.0 for k in self.kernels)
