"""Whether a log makes a network faster: at the end of a search it runs as a whole, with the log and
without it.

In: a network, the log of its search.  Out: a `NetworkLine` in it, which `decide.py` follows.
What is fastest alone need not be so among its neighbours: weights come from memory there, and
records of some kernels were compared with guesses of others.  So the networks that the records
propose are timed in turn with the one that is built without them, then each kernel where it lies in
a run; what loses there is built as without the log.  A build with the log is then no slower than
one without it.
Read next: `decide.py`, `tune_network.py`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, replace
from statistics import median
from typing import Any

import msgspec

from tilewright.base.artifact import Artifact
from tilewright.farm.address import Devices
from tilewright.farm.network_there import networks_there
from tilewright.graph.expr import Function, IRModule
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.graph.samples import sample_inputs
from tilewright.knowledge import records
from tilewright.measure.database import Database
from tilewright.measure.record import NetworkLine, own_versions
from tilewright.network.build import build
from tilewright.network.decide import Decision, decide
from tilewright.network.evidence import Evidence
from tilewright.network.extract import Groupings
from tilewright.network.helpers import Helpers
from tilewright.runtime.device import Device, device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.report import KernelReport
from tilewright.targets.target import Target

SECONDS = 2.0  # of timing, each time that networks are compared
_ROUNDS = range(5, 41)  # in each of them every network runs
_LEAST_MS = 10.0  # of a network in a round
_AT_ONCE = 3  # runs in which launches are timed
_CLEARLY = 1.03  # times what it is compared with: a kernel that is disputed
_NOTICED = 0.001  # of a run: what differs by less is not disputed

Load = Callable[[Library], tuple[Any, Any]]  # a `GraphModule` or one like it, and its device


@contextmanager
def loading(target: Target, farm: Devices | None = None) -> Iterator[Load]:
    """Give what brings a library to the device of this machine, or to one of a farm."""
    if farm is not None:
        with networks_there(farm, str(target.kind)) as load:
            yield load
        return

    def load_here(library: Library) -> tuple[GraphModule, Device]:
        here = device(target.kind)
        return GraphModule(library["default"](here)), here

    yield load_here


@dataclass(frozen=True, eq=False)
class Way:
    """The network built in one way, on its device.  line: in which way; module: None: set aside"""

    line: NetworkLine
    library: Library
    module: Any
    device: Any

    def seconds(self) -> float:
        """Time a run."""
        timed = self.module.benchmark(self.device, repeat=1, number=1, min_repeat_ms=_LEAST_MS)
        return float(timed.median)


class Trials:
    """One network, built in several ways for one device and timed there.

    load: see `loading`; seconds: of timing, each time that networks are compared
    helpers: of a search that goes on, or did
    usual: what is decided without a log; untuned: the network so, untuned_seconds of a run
    """

    def __init__(
        self, mod: IRModule | Function, params: Mapping[str, Any] | None, target: Target,
        load: Load, seconds: float = SECONDS, pass_options: PassOptions = USUAL,
        helpers: Helpers | None = None,
    ) -> None:  # fmt: skip
        self.mod, self.params, self.target = mod, params or {}, target
        self._load, self._limit, self.pass_options = load, seconds, pass_options
        self._helpers = helpers or Helpers()
        module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
        self._inputs = sample_inputs(module, self.params)
        self.usual = self._decided()
        library = self._library(line := self._line(self.usual))
        with self.device_free():
            self.untuned = self._loaded(line, library)
            (self.untuned_seconds,) = self._in_turn([self.untuned])

    @property
    def groupings(self) -> Groupings:
        """What is known of it and of its kind."""
        return self._helpers.groupings

    def device_free(self) -> AbstractContextManager[None]:
        """Keep the search from the device meanwhile."""
        return self._helpers.device_free()

    def set_aside(self) -> None:
        """Give back what the untuned network has of the device, until `confirm`."""
        self.untuned = replace(self.untuned, module=None, device=None)

    def search_ended(self) -> None:
        """From now on its processes help, but its references are gone."""
        self._helpers = replace(self._helpers, references=None, device_free=nullcontext)

    def confirm(self, database: Database) -> NetworkLine:
        """Find the fastest way to build the network with these records; write it down there."""
        if self.untuned.module is None:
            self.untuned = self._loaded(self.untuned.line, self.untuned.library)
        proposed = [self._line(self._decided(database))]
        if proposed[0] != self.untuned.line:
            proposed.append(self.untuned.line)
        ways = [self._built(line, database) for line in proposed]
        best = self._fastest(ways)
        usual = best.line == self.untuned.line
        bare = self.untuned if usual else self._built(best.line)
        differing = _differing(best, bare)
        slower = self._slower(best, bare) & differing if differing else set[str]()
        finalists = [best] if differing or not usual else []  # what is the same is not timed twice
        if slower:
            finalists.append(self._built(_without(best.line, slower), database))
        before, *after = self._in_turn([self.untuned, *finalists])
        timed = zip(after, [w.line for w in finalists], strict=True)
        seconds, line = min(timed, key=lambda p: p[0], default=(before, best.line))
        if seconds > before:
            every = {k.group for k in self.untuned.library.report.kernels}
            seconds, line = before, _without(self.untuned.line, every)
        line = msgspec.structs.replace(
            line, seconds=seconds, untuned_seconds=before, timestamp=time.time(),
            versions=own_versions(),
        )  # fmt: skip
        database.note(line)
        return line

    def _decided(self, *logs: Database) -> Decision:
        """What these records propose, whatever was confirmed before."""
        names, print_ = (str(self.target),), self.target.fingerprint
        evidence = Evidence(logs, names, print_, records(self.target))
        return decide(
            self.mod, self.params, evidence, self.target, self.pass_options, as_confirmed=False,
            known=self._helpers.groupings,
        )  # fmt: skip

    def _line(self, way: Decision) -> NetworkLine:
        return NetworkLine(
            network=way.network, target=str(self.target), fingerprint=self.target.fingerprint,
            layouts=list(way.layouts), grouping=way.grouping,
        )  # fmt: skip

    def _built(self, line: NetworkLine, *logs: Database) -> Way:
        return self._loaded(line, self._library(line, *logs))

    def _library(self, line: NetworkLine, *logs: Database) -> Library:
        told = Database()
        told.note(line)
        return build(
            self.mod, self.target, self.params, [told, *logs], pass_options=self.pass_options,
            helpers=self._helpers,
        )  # fmt: skip

    def _loaded(self, line: NetworkLine, library: Library) -> Way:
        module, where = self._load(library)
        module.run(**self._inputs)
        return Way(line, library, module, where)

    def _fastest(self, ways: Sequence[Way]) -> Way:
        if len(ways) == 1:
            return ways[0]
        return min(zip(self._in_turn(ways), ways, strict=True), key=lambda pair: pair[0])[1]

    def _in_turn(self, ways: Sequence[Way]) -> list[float]:
        """Seconds of a run of each: medians over rounds in which all run."""
        rounds: list[list[float]] = []
        for _ in self._rounds():
            rounds.append([way.seconds() for way in ways])
        return [median(each) for each in zip(*rounds, strict=True)]

    def _rounds(self) -> Iterator[int]:
        end = time.monotonic() + self._limit
        for number in range(_ROUNDS.stop):
            if number >= _ROUNDS.start and time.monotonic() > end:
                return
            yield number

    def _slower(self, way: Way, bare: Way) -> set[str]:
        """Keys of the kernels that take clearly longer than in `bare`, the same without a log."""
        rounds = [[kernel_seconds(one) for one in (way, bare)] for _ in self._rounds()]
        ours, theirs = (
            {key: median(taken[key] for taken in each) for key in each[0]}
            for each in zip(*rounds, strict=True)
        )
        noticed = _NOTICED * sum(theirs.values())
        return {
            key for key, seconds in ours.items()
            if key in theirs and seconds > max(_CLEARLY * theirs[key], theirs[key] + noticed)
        }  # fmt: skip


def kernel_seconds(way: Way) -> dict[str, float]:
    """Time all launches of each kernel where they lie in a run, by the key of its group."""
    taken = [median(each) for each in way.module.launch_seconds(_AT_ONCE)]
    kernels, found = way.library.report.kernels, dict[str, float]()
    for launch, seconds in zip(way.library.plan.launches, taken, strict=True):
        key = kernels[launch.kernel].group
        found[key] = found.get(key, 0.0) + seconds
    return found


def _differing(way: Way, other: Way) -> set[str]:
    """Keys of the kernels of `way` that the other one has not: what takes longer of the rest was
    not made slower by a record."""
    there = {(k.group, a.source.text) for k, a in _kernels(other)}
    return {k.group for k, a in _kernels(way) if (k.group, a.source.text) not in there}


def _kernels(way: Way) -> list[tuple[KernelReport, Artifact]]:
    return list(zip(way.library.report.kernels, way.library.kernels, strict=True))


def _without(line: NetworkLine, untuned: Collection[str]) -> NetworkLine:
    return msgspec.structs.replace(line, untuned=sorted({*line.untuned, *untuned}))
