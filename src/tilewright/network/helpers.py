"""What a search has that builds beside it need: processes, predictions, references, a device.

In: what `tune.begun` and `search.loop.tune` have begun.  Out: `Helpers`, which `build` takes.
Read next: `build.py`, `tune.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

from tilewright.measure.local import LocalBuilder, LocalRunner
from tilewright.network.extract import Groupings
from tilewright.search.jobs import References
from tilewright.search.predictions import Predictions
from tilewright.targets.target import Target


@dataclass(frozen=True)
class Helpers:
    """What a search has already that a build needs, too.

    builder: whose processes build; predictions: of computations on one target
    references: what kernels are compared with; runner: on the open device; None: it has none
    device_free: what keeps others from the device that is used meanwhile
    groupings: of the networks that it tunes
    apart: whether its trials are on a device of their own, so that others may compute meanwhile
    """

    builder: LocalBuilder | None = None
    predictions: Predictions | None = None
    references: References | None = None
    runner: LocalRunner | None = None
    device_free: Callable[[], AbstractContextManager[None]] = nullcontext
    groupings: Groupings = field(default_factory=Groupings)
    apart: bool = False

    def building(self) -> AbstractContextManager[LocalBuilder]:
        """Give the builder; one that nobody has yet is closed again."""
        return LocalBuilder() if self.builder is None else nullcontext(self.builder)

    def predicted(self, target: Target) -> Predictions | None:
        """Give the predictions, if they are of a target."""
        known = self.predictions
        if known is None or known.target.limits != target.limits:
            return None
        return known if str(known.target) == str(target) else None
