"""What configurations have by AutoTVM's names, beside what they have in the compiler.

In: nothing.  Out: classes of which no object is made: their methods are those of the compiler's
classes of these names (`base/plugins.py`, "members").
Read next: `tilewright/schedule/space/config_space.py`.
"""

from __future__ import annotations

import math
from collections.abc import Container, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.errors import SpaceError
from tilewright.schedule.space import config_space
from tilewright.schedule.space.config_space import TRIES, Indices, entity_of
from tilewright.schedule.space.entities import OtherOptionEntity, SplitEntity
from tilewright.schedule.space.policies import Knob, SplitSpace, factors


class ConfigSpace(config_space.ConfigSpace):
    def get_rand_index(
        self,
        start: int = 0,
        end: int | None = None,
        to_exclude: Container[int] = (),
        rng: np.random.Generator | None = None,
    ) -> int:
        """A valid index of [start, end) that is not excluded; SpaceError where there is none."""
        stop = self.range_length if end is None else end
        self._check_range(start, stop)
        rng = rng or np.random.default_rng()
        for _ in range(TRIES):
            index = int(rng.integers(start, stop))
            if index not in to_exclude and self.is_index_valid(index):
                return index
        for chunk in self._valid_chunks(start, stop):
            left = [int(i) for i in chunk if int(i) not in to_exclude]
            if left:
                return left[int(rng.integers(len(left)))]
        raise SpaceError(
            f"get_rand_index({start}, {stop})", "every valid index of the range is excluded",
            "Widen the range or exclude fewer.",
        )  # fmt: skip

    def get_next_index(
        self, index: int, n: int = 1, start: int = 0, end: int | None = None
    ) -> int | None:
        """The n-th valid index after `index` within [start, end), of a negative n the -n-th before
        it; None where there is none.  Raises SpaceError for n = 0."""
        stop = self.range_length if end is None else end
        self._check_range(start, stop)
        if not n:
            raise SpaceError("get_next_index(n=0)", "that is no step", "Use 1 or -1.")
        if n > 0:
            chunks = self._valid_chunks(max(start, index + 1), stop)
        else:
            chunks = self._valid_chunks(start, min(stop, index), backwards=True)
        left = abs(n)
        for chunk in chunks:
            if len(chunk) >= left:
                return int(chunk[left - 1])
            left -= len(chunk)
        return None

    def sample_ints(self, m: int, rng: np.random.Generator | None = None) -> Indices:
        """`m` different valid indices; SpaceError where the space has not as many."""
        found = self.sample(m, rng or np.random.default_rng())
        if len(found) < m:
            raise SpaceError(
                f"sample_ints({m})", f"found {len(found)} valid indices only", "Ask for fewer."
            )
        return found

    def random_walk(self, point: int, rng: np.random.Generator | None = None) -> int:
        """A valid index that differs from `point` in one knob; SpaceError if there is none."""
        self._check_index(point)
        moved = int(self.walk(np.array([point]), rng or np.random.default_rng())[0])
        if moved == point:
            raise SpaceError(
                f"random_walk({point})", "no valid neighbour",
                "Use a larger space or a looser filter.",
            )  # fmt: skip
        return moved


class ConfigEntity(config_space.ConfigEntity):
    def get_other_option(self) -> dict[str, Any]:
        """The plain knobs by name."""
        return {n: e.val for n, e in self.items() if isinstance(e, OtherOptionEntity)}

    def get_flatten_feature(self) -> npt.NDArray[np.float32]:
        """float32 vector of all knobs: sizes, permutations, one-hot annotations, numbers."""
        return np.array([f for _, e in self.items() for f in e.feature()], dtype=np.float32)


class FallbackConfigEntity(config_space.FallbackConfigEntity):
    def fallback_split(self, name: str, constraints: Sequence[int]) -> None:
        """Tile `name` greedily from the innermost loop: the largest divisor within each limit.

        constraints: a limit per loop, -1 for none
        """
        place = f"fallback_split({name}, {list(constraints)})"
        knob = self.space_map.get(name)
        if not isinstance(knob, SplitSpace):
            raise SpaceError(place, "no split of that name", "Call define_split first.")
        if len(constraints) != knob.num_output:
            raise SpaceError(
                place, f"the split has {knob.num_output} loops", "Give a limit for each."
            )  # fmt: skip
        if knob.product < 1:
            raise SpaceError(place, "the extent of its axis is not known", "Set cfg[name] instead.")
        if any(limit < 1 and limit != -1 for limit in constraints):
            raise SpaceError(place, "a limit below 1", "Use -1 for no limit.")
        left, sizes = knob.product, []
        for limit in reversed(constraints):
            size = max(f for f in factors(left) if limit == -1 or f <= limit)
            sizes.append(size)
            left //= size
        inner = sizes[:-1][::-1]
        self._chosen[name] = SplitEntity([knob.product // math.prod(inner), *inner])

    def fallback_with_reference_log(self, records: Iterable[Any]) -> None:
        """Copy the configuration of the most similar record, if there is any.

        records: what `autotvm.record.load_from_file` gives, (input, result) pairs, or inputs with a
        `.config`; failures and those of other knobs are passed over.  Similar: shares divisors of
        the split axes; of equally similar ones the fastest.  Splits take the record's sizes as
        limits, other knobs its entities.
        """
        splits = {n: k for n, k in self.space_map.items() if isinstance(k, SplitSpace)}
        best, best_rank = None, (0.0, -math.inf)
        for record in records:
            values, seconds = _told(record)
            found = _fitting(self.space_map, values)
            if found is None:
                continue
            score = sum(_overlap(knob, found[name]) for name, knob in splits.items())
            if score > 0 and (score, -seconds) > best_rank:
                best, best_rank = found, (score, -seconds)
        if best is None:
            return
        for name in self.space_map:
            if name in splits:
                self.fallback_split(name, [-1, *best[name].size[1:]])
            else:
                self._chosen[name] = best[name]


def _told(record: Any) -> tuple[Mapping[str, Any], float]:
    """Knob -> entity or value, and seconds: infinity where they are not told; nothing of failures.

    record: see `fallback_with_reference_log`
    """
    if hasattr(record, "decisions"):
        return (record.decisions if record.result.ok else {}), record.seconds
    given, result = (record, None) if hasattr(record, "config") else record
    if result is None:
        return dict(given.config.items()), math.inf
    if result.error_no:
        return {}, math.inf
    return dict(given.config.items()), sum(result.costs) / len(result.costs)


def _fitting(knobs: Mapping[str, Knob], values: Mapping[str, Any]) -> dict[str, Any] | None:
    """The entities that `values` tell for `knobs`; None where they are those of other knobs."""
    found = {}
    for name, knob in knobs.items():
        try:
            entity = found[name] = entity_of(knob, values[name], name)
        except (KeyError, TypeError, ValueError):  # TypeError: a number for a split, for example
            return None
        if isinstance(knob, SplitSpace):  # of an axis that may have another length
            fits = isinstance(entity, SplitEntity) and len(entity.size) == knob.num_output
        else:
            fits = knob.position(entity) >= 0
        if not fits:
            return None
    return found


def _overlap(knob: SplitSpace, entity: SplitEntity) -> float:
    """Share of the divisors of the knob's axis that divide the record's axis too."""
    length = math.prod(int(size) for size in entity.size if size > 0)  # -1: it was left open
    own = set(factors(knob.product))
    return len(own.intersection(factors(length))) / len(own)
