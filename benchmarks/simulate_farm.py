"""A farm of a thousand devices in time of its own: the code that decides, with everything else made
up.

`farm.leases` and `farm.dispatch` are driven as the tracker and the tuners drive them, by a queue of
events: trials of random length, devices that are slow, die, fall silent and join, messages that
take their time.  Prints a table, and writes it to `results/simulate_farm.json`.

PYTHONPATH=src:benchmarks python benchmarks/simulate_farm.py [--devices 1000] [--seconds 600]
"""

from __future__ import annotations

import argparse
import heapq
import itertools
import random
import resource
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from results_file import append, table

from tilewright.farm.dispatch import Dispatch
from tilewright.farm.leases import Leases

KEY = "k"
TRIAL = 0.4  # seconds, on average
DELAY = 0.001  # of a message
SILENT = 4.0  # until a device that is cut off is given up
WRONG = 0.05  # of candidates


@dataclass(frozen=True)
class World:
    """What happens: shares of devices, and events per device and hour."""

    name: str
    slow: float = 0.0  # devices that take ten times as long
    deaths: float = 0.0
    cuts: float = 0.0
    joins: float = 0.0
    tuners: tuple[float, ...] = (1.0,)  # how much longer the trials of each are


@dataclass
class Tuner:
    name: str
    length: float
    dispatch: Dispatch = field(default_factory=Dispatch)
    wanted: Any = None
    done: int = 0


class Simulation:
    def __init__(self, world: World, devices: int, seconds: float, seed: int) -> None:
        self.world, self.seconds = world, seconds
        self.rng = random.Random(seed)
        self.leases = Leases()
        self.now = 0.0
        self.events: list[tuple[float, int, Callable[[], None]]] = []
        self.numbers = itertools.count()
        self.names = itertools.count()
        self.alive: dict[str, float] = {}  # device -> how slow it is
        self.tuners = {str(k): Tuner(str(k), x) for k, x in enumerate(world.tuners)}
        self.counts: Counter[str] = Counter()
        self.busy = self.there = 0.0
        self.starts: dict[tuple[str, str], float] = {}
        for _ in range(devices):
            self.join()
        for tuner in self.tuners.values():
            self.refill(tuner)

    def run(self) -> None:
        while self.events and self.events[0][0] < self.seconds:
            self.now, _, event = heapq.heappop(self.events)
            event()

    def after(self, seconds: float, event: Callable[[], None]) -> None:
        heapq.heappush(self.events, (self.now + seconds, next(self.numbers), event))

    def often(self, per_hour: float, event: Callable[[], None]) -> None:
        if per_hour:
            self.after(self.rng.expovariate(per_hour / 3600), event)

    # -- devices -----------------------------------------------------------------------------------
    def join(self) -> None:
        name = f"d{next(self.names)}"
        self.alive[name] = 10.0 if self.rng.random() < self.world.slow else 1.0
        self.there -= self.now
        self.leases.join(name, KEY)
        self.often(self.world.deaths, lambda: self.die(name))
        self.often(self.world.cuts, lambda: self.cut(name))
        self.counted()

    def die(self, name: str) -> None:
        if self.alive.pop(name, None) is None:
            return
        self.there += self.now
        self.counts["deaths"] += 1
        self.lost(self.leases.leave(name, self.now), name)
        self.often(self.world.joins * 3600, self.join)
        self.counted()

    def cut(self, name: str) -> None:
        """Nothing is heard of it for a minute."""
        if name not in self.alive:
            return
        self.counts["cuts"] += 1
        slow, self.alive[name] = self.alive[name], float("inf")
        self.there += self.now

        def noticed() -> None:
            if name in self.alive:
                self.lost(self.leases.fall_silent(name, self.now), name)
                self.counted()

        def back() -> None:
            if name in self.alive:
                self.alive[name] = slow
                self.there -= self.now
                self.leases.speak(name)
                self.often(self.world.cuts, lambda: self.cut(name))
                self.counted()

        self.after(SILENT, noticed)
        self.after(60, back)

    def lost(self, holder: str | None, name: str) -> None:
        if holder is not None:
            tuner = self.tuners[holder]
            self.counts["trials made again"] += name in tuner.dispatch.doing
            self.settle(tuner, tuner.dispatch.lost(name, "gone"))
            self.starts.pop((holder, name), None)
            self.refill(tuner)

    def counted(self) -> None:
        total = self.leases.total(KEY)
        for tuner in self.tuners.values():
            tuner.dispatch.total = total
        self.lend()

    # -- tuners ------------------------------------------------------------------------------------
    def refill(self, tuner: Tuner) -> None:
        """Keep enough proposals on their way, and say what is wanted."""
        while tuner.dispatch.wanted[0] < 64:
            tuner.dispatch.add(self.rng.random() < WRONG)
        count, without = tuner.dispatch.wanted
        wanted = min(count, 2 * max(tuner.dispatch.total, 1)), without
        if wanted != tuner.wanted:
            tuner.wanted = wanted
            self.leases.want(tuner.name, KEY, wanted[0], self.now, without=wanted[1])
            self.lend()

    def lend(self) -> None:
        for grant in self.leases.grants(self.now):
            self.after(DELAY, lambda g=grant: self.start(self.tuners[g.holder], g.device))

    def start(self, tuner: Tuner, name: str) -> None:
        ticket = tuner.dispatch.granted(name)
        tuner.wanted = None
        if ticket is None:
            self.leases.release(tuner.name, name, self.now)
        elif name in self.alive:
            seconds = self.rng.expovariate(1 / (TRIAL * tuner.length)) * self.alive[name]
            self.starts[tuner.name, name] = began = self.now
            if seconds < float("inf"):
                self.after(DELAY + seconds, lambda: self.end(tuner, name, ticket, began, seconds))
        else:
            self.settle(tuner, tuner.dispatch.lost(name, "gone"))
        self.refill(tuner)

    def end(self, tuner: Tuner, name: str, ticket: Any, began: float, seconds: float) -> None:
        if self.starts.get((tuner.name, name)) != began or self.alive.get(name) == float("inf"):
            return  # it was lost on the way
        del self.starts[tuner.name, name]
        self.busy += seconds
        self.settle(tuner, tuner.dispatch.done(name, None, failed=ticket.work))
        self.leases.release(tuner.name, name, self.now)
        self.refill(tuner)
        self.lend()

    def settle(self, tuner: Tuner, settled: Any) -> None:
        for one in settled:
            tuner.done += 1
            self.counts["blamed or given up"] += one.opinion is None
            self.counts["wrongly judged"] += (
                one.opinion is not None and one.opinion.failed != one.ticket.work
            )
        tuner.dispatch.notices.clear()


WORLDS = (
    World("all is well"),
    World("one in ten is ten times as slow", slow=0.1),
    World("each dies once an hour, others join", deaths=1, joins=1 / 30),
    World("each is cut off twice an hour", cuts=2),
    World("two tuners", tuners=(1.0, 1.0)),
    World("two tuners, one with trials five times as long", tuners=(1.0, 5.0)),
    World("all of that", 0.1, 1, 2, 1 / 30, (1.0, 5.0)),
)


def row(world: World, devices: int, seconds: float) -> dict[str, Any]:
    began = time.process_time()
    made = Simulation(world, devices, seconds, seed=0)
    made.run()
    spent = time.process_time() - began
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss  # KiB, of all worlds until now
    there = made.there + len([d for d, s in made.alive.items() if s < float("inf")]) * seconds
    trials = sum(t.done for t in made.tuners.values())
    used = [made.leases.used(t.name, KEY, made.now) for t in made.tuners.values()]
    return {
        "world": world.name,
        "trials": trials,
        "devices busy": f"{made.busy / there:.1%}",
        "share of time": " ".join(f"{u / sum(used):.1%}" for u in used),
        "deaths, cuts": f"{made.counts['deaths']}, {made.counts['cuts']}",
        "made again": made.counts["trials made again"],
        "given up": made.counts["blamed or given up"],
        "misjudged": made.counts["wrongly judged"],
        "us a trial": round(spent / max(trials, 1) * 1e6),
        "MB in all": round(peak / 1e3),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n\n")[0])
    parser.add_argument("--devices", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=600.0)
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    given = parser.parse_args()
    rows = [row(world, given.devices, given.seconds) for world in WORLDS]
    print(table(rows))
    if given.keep:
        append("simulate_farm", rows, devices=given.devices, seconds=given.seconds)


if __name__ == "__main__":
    main()
