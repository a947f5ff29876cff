"""`BuildReport`: what `relay.build` made of a network, kernel by kernel.

In: figures.  Out: a table.  Read next: `network/build.py`.
"""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass

from tilewright.runtime.timing import show_seconds

_WIDTH = 100
_MOST_MOVED = 12  # rows of a report


@dataclass(frozen=True)
class KernelReport:
    """One distinct kernel.

    label:    its workload, short
    count:    how often the network runs it
    source:   "record", "knowledge", "re-instantiated", "predicted" or "default"
    seconds:  of one call, as timed when it was verified, else as recorded; None: not known
    verified: its results were compared with the reference, by this installation on this device
    check:    "verified here", "verified here before" or "not verified"; behind the first, where so
              it is, why its threads could not be tried one after the other
    note:     what was refused on the way, and why
    group:    key of what it computes, as the network states it
    layers:   names of the layers of the model that it computes, one for each call
    least:    seconds of a call that the device's limits allow at least, see `cost/ceilings.py`; 0:
              not known; limit: what most of them go to, "memory"
    """

    name: str
    label: str
    count: int
    source: str
    flop: float
    seconds: float | None = None
    verified: bool = False
    check: str = ""
    note: str = ""
    group: str = ""
    layers: tuple[str, ...] = ()
    least: float = 0.0
    limit: str = ""


@dataclass(frozen=True)
class Accuracy:
    """What narrow weights cost of a network, measured on random inputs.

    weights: as they were asked for; layers: how many have them
    outputs: the largest distance of an output from that with float weights, by its size (both
             Euclid's); None: not measured, since it would take too long; NaN: some are not finite
    worst:   the largest distance of a layer's weights from its floats, likewise; of which layer
    """

    weights: str
    layers: int
    outputs: float | None
    worst: float
    worst_layer: str

    def __str__(self) -> str:
        if not self.layers:
            return f"weights {self.weights}: no layer is large enough, or divides into groups"
        off = "outputs not measured"
        if self.outputs is not None:
            off = f"outputs {self.outputs:.2%} off, by their size, against float32"
            if math.isnan(self.outputs):
                off = "outputs are not finite on random inputs, with float weights or these"
        return (
            f"weights {self.weights} in {self.layers} layers: {off}; "
            f"weights {self.worst:.2%} at most ({self.worst_layer})"
        )


@dataclass(frozen=True)
class Moved:
    """A kernel that only moves elements.  calls: how often; nbytes: of its results in all of them;
    why: what keeps it from being part of another; each: calls for each set of input shapes"""

    label: str
    calls: int
    nbytes: int
    why: str
    each: tuple[int, ...] = ()

    def __str__(self) -> str:
        label = self.label if len(self.label) <= _WIDTH else f"{self.label[: _WIDTH - 3]}..."
        return f"{self.calls} x {label} ({self.nbytes / (1 << 10):.1f} KiB): {self.why}"


@dataclass(frozen=True)
class BuildReport:
    """seconds: wall time of the build.  planned_bytes: memory of intermediate values on the device,
    of which one buffer each would take unshared_bytes.  constant_bytes: weights, as kernels read
    them.  live_bytes: of intermediate values at the step with most, the least that any plan of
    memory needs.  notes: what the reader should know.  accuracy: what narrow weights cost, where
    there are any.  moved: kernels that only move elements.
    """

    target: str
    kernels: tuple[KernelReport, ...]
    seconds: float
    planned_bytes: int
    unshared_bytes: int
    constant_bytes: int
    notes: tuple[str, ...] = ()
    live_bytes: int = 0
    accuracy: Accuracy | None = None
    moved: tuple[Moved, ...] = ()

    @property
    def sources(self) -> dict[str, int]:
        """How many kernels have a schedule of each source."""
        return dict(Counter(k.source for k in self.kernels))

    @property
    def expected_seconds(self) -> float | None:
        """Sum over all calls; None unless every kernel's time is known."""
        known = [k.seconds * k.count for k in self.kernels if k.seconds is not None]
        return sum(known) if len(known) == len(self.kernels) else None

    def __str__(self) -> str:
        rows = [("calls", "schedule", "per call", "GFLOP/s", "kernel")]
        rows += [_row(k) for k in self.kernels]
        widths = [max(len(r[c]) for r in rows) for c in range(4)]
        lines = [
            f"{r[0]:>{widths[0]}}  {r[1]:<{widths[1]}}  {r[2]:>{widths[2]}}  "
            f"{r[3]:>{widths[3]}}  {r[4]}"
            for r in rows
        ]
        return "\n".join(
            [self.summary(), *lines, *self.moved_told(), *(f"note: {n}" for n in self._notes())]
        )

    def moved_told(self) -> list[str]:
        """Lines on what only moves elements, and why it has kernels of its own."""
        if not self.moved:
            return []
        count = sum(row.calls for row in self.moved)
        more = len(self.moved) - _MOST_MOVED
        each = [sum(n) for n in zip(*(row.each for row in self.moved), strict=True)]
        split = " and ".join(map(str, each))
        shapes = f" ({split}, for {len(each)} shapes of inputs)" if len(each) > 1 else ""
        return [
            f"{count} launches{shapes} only move elements, by kernels of their own:",
            *(f"  {row}" for row in self.moved[:_MOST_MOVED]),
            *([f"  and {more} more"] if more > 0 else []),
        ]

    def summary(self) -> str:
        """Two lines: kernels and their schedules; time and memory."""
        mib = 1 / (1 << 20)
        split = ", ".join(f"{n} {source}" for source, n in self.sources.items())
        checked = sum(k.verified for k in self.kernels)
        total = self.expected_seconds
        expected = "" if total is None else f"expected {show_seconds(total)} a run, "
        return (
            f"{len(self.kernels)} kernels for {self.target} ({split}), {checked} verified, "
            f"built in {self.seconds:.1f} s\n"
            f"{expected}{self.planned_bytes * mib:.2f} MiB for intermediate values (alive at once "
            f"{self.live_bytes * mib:.2f}, unshared {self.unshared_bytes * mib:.2f}), "
            f"{self.constant_bytes * mib:.2f} MiB of weights"
        )

    def _notes(self) -> list[str]:
        told = [] if self.accuracy is None else [str(self.accuracy)]
        return [*told, *self.notes, *(f"{k.name}: {k.note}" for k in self.kernels if k.note)]


def _row(k: KernelReport) -> tuple[str, str, str, str, str]:
    time = "-" if k.seconds is None else show_seconds(k.seconds)
    rate = f"{k.flop / k.seconds * 1e-9:.1f}" if k.seconds else "-"
    label = k.label if len(k.label) <= _WIDTH else f"{k.label[: _WIDTH - 3]}..."
    how = f"{k.source}, {k.check}" if k.check else k.source
    return str(k.count), how, time, rate, label
