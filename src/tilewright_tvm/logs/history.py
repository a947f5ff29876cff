"""What logs of AutoTVM recommend: for a workload its best configurations, for a kernel a schedule.

In: lines.  Out: configurations by value, best first there.  Nothing of it was measured here: who
builds from it verifies, as `relay.build` does with every record.
Read next: `autotvm_line.py`, `schedule/template.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from tilewright.base.errors import SpaceError, TilewrightError
from tilewright.measure.lines import Skipped
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.space.config_space import ConfigEntity, ConfigSpace
from tilewright.schedule.template import (
    RegisteredAnchor,
    anchor_key,
    find_anchor,
    named_template,
    sketch_of_anchor,
    sketch_of_name,
)
from tilewright.schedule.workload import plain
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright_tvm.logs.autotvm_line import AutotvmLine, read_autotvm, target_of

TRIED = 8  # configurations of a computation, the best ones, until one is legal here
_KEPT = 64  # of a workload

_Key = tuple[str, bool, str, str]  # kind of device, whether it is Mali, name, arguments as JSON


@dataclass(frozen=True)
class Told:
    """seconds: that it took in TVM"""

    seconds: float
    config: ConfigEntity


@dataclass
class History:
    """unusable: lines, by reason"""

    unusable: Skipped = field(default_factory=Skipped)
    _told: dict[_Key, list[Told]] = field(default_factory=dict)
    _anchors: dict[tuple[str, bool], dict[str, list[tuple[Told, RegisteredAnchor]]]] = field(
        default_factory=dict
    )

    def load(self, lines: Iterable[bytes | str | None]) -> None:
        """Learn from lines; those that cannot be used are counted."""
        for number, line in enumerate(lines, 1):
            data = line.encode(errors="surrogatepass") if isinstance(line, str) else line
            if data is not None and (not data.strip() or data[:1] in b"# "):
                continue
            try:
                self.add(read_autotvm(data))
            except TilewrightError as error:
                self.unusable.note(error.reason, number)

    def add(self, line: AutotvmLine) -> None:
        """Raises a TilewrightError for a trial that failed, or a target that there is not here."""
        self.tell(target_of(line.target), line.name, line.args, line.config, line.costs)

    def tell(
        self, target: Target, name: str, args: Iterable[Any], config: ConfigEntity,
        costs: Iterable[float],
    ) -> None:  # fmt: skip
        """Learn what a configuration cost, in seconds."""
        known = self._told.setdefault(_key(target, name, list(args)), [])
        known.append(Told(median(costs), config))
        known.sort(key=lambda t: t.seconds)
        del known[_KEPT:]
        self._anchors.clear()

    def __len__(self) -> int:
        return sum(map(len, self._told.values()))

    @property
    def kinds(self) -> set[str]:
        """Kinds of the devices that it knows of."""
        return {key[0] for key in self._told}

    def told(self) -> str:
        """How many configurations there are, and which lines could not be used, for the user."""
        return "; ".join([f"{len(self)} configurations of AutoTVM's logs", *self.unusable.told()])

    def configurations(self, target: Target, name: str, args: Iterable[Any]) -> list[Told]:
        """Of a workload, best first."""
        return list(self._told.get(_key(target, name, list(args)), ()))

    def lookup(self, dag: ComputeDAG, target: Target) -> Schedule | None:
        """The best legal configuration of its anchor, by a template with TVM's name."""
        for schedule in self._schedules(dag, target):
            return schedule
        return None

    def _schedules(self, dag: ComputeDAG, target: Target) -> Iterator[Schedule]:
        anchor = find_anchor(dag)
        if anchor is None:
            return
        known = self._of_anchors(target).get(anchor_key(anchor)[0], [])
        for told, registered in known[:TRIED]:
            with suppress(TilewrightError):
                sketch = sketch_of_anchor(registered, dag, target)
                index = index_of(sketch.space, told.config)
                if not sketch.explain(index):
                    yield sketch.close(index)

    def _of_anchors(self, target: Target) -> dict[str, list[tuple[Told, RegisteredAnchor]]]:
        """Anchor by structure -> what is known of it, best first."""
        device = target.kind, target.is_mali
        if device not in self._anchors:
            found: dict[str, list[tuple[Told, RegisteredAnchor]]] = {}
            for (kind, mali, name, args), known in self._told.items():
                registered = named_template(name)
                if (kind, mali) != device or registered is None:
                    continue
                with suppress(TilewrightError):
                    dag = sketch_of_name(registered, json.loads(args), target).dag
                    anchor = find_anchor(dag)
                    if anchor is not None:
                        own = found.setdefault(anchor_key(anchor)[0], [])
                        own += [(told, registered) for told in known]
            for own in found.values():
                own.sort(key=lambda pair: pair[0].seconds)
            self._anchors[device] = found
        return self._anchors[device]


def index_of(space: ConfigSpace, config: ConfigEntity) -> int:
    """The index of a configuration of TVM's.  Raises SpaceError where it has other knobs."""
    names = {name for name, _ in config.items()}
    if names != set(space.space_map):
        raise SpaceError(
            "configuration", f"its knobs are {', '.join(sorted(names)) or 'none'}",
            f"The template has {', '.join(space.space_map) or 'none'}.",
        )  # fmt: skip
    return space.index_of(config)


def _key(target: Target, name: str, args: list[Any]) -> _Key:
    return target.kind, target.is_mali, name, json.dumps(plain(args))
