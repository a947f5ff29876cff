"""`autotvm.database`: results by input, in memory, by AutoTVM's names.

In: inputs and what came of them.  Out: the last or every result of an input.  Logs are
`measure/database.py`'s.  Read next: `record.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

from tilewright.base.errors import absent
from tilewright_tvm.autotvm.record import measure_str_key
from tilewright_tvm.autotvm.results import MeasureInput, MeasureResult

__all__ = ["Database", "DummyDatabase"]

_ELSEWHERE = {
    "RedisDatabase": "Use log_to_file: a log holds any number of tasks, several runs may write it.",
}


class Database(ABC):
    """Subclass it to keep results somewhere else."""

    @abstractmethod
    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        """The last result of an input, or all of them, oldest first; None where there is none."""

    @abstractmethod
    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        """Keep a result.  extend: beside the earlier ones of the input, not in their place"""


class DummyDatabase(Database):
    """In memory.  Inputs are one if target, task, configuration and its `code_hash` are."""

    def __init__(self) -> None:
        self._known: dict[tuple[str, str | None], tuple[MeasureInput, list[MeasureResult]]] = {}

    def flush(self) -> None:
        """Forget everything."""
        self._known.clear()

    def load(self, inp: MeasureInput, get_all: bool = False) -> Any:
        found = self._known.get(_key(inp))
        if found is None:
            return None
        return list(found[1]) if get_all else found[1][-1]

    def save(self, inp: MeasureInput, res: MeasureResult, extend: bool = False) -> None:
        earlier = self._known[_key(inp)][1] if extend and _key(inp) in self._known else []
        self._known[_key(inp)] = inp, [*earlier, res]

    def filter(
        self, func: Callable[[MeasureInput, Sequence[MeasureResult]], Any]
    ) -> list[tuple[MeasureInput, MeasureResult]]:
        """The pairs (input, last result) for which `func(input, results)` holds."""
        return [(inp, results[-1]) for inp, results in self._known.values() if func(inp, results)]


def _key(inp: MeasureInput) -> tuple[str, str | None]:
    return measure_str_key(inp), inp.config.code_hash


def __getattr__(name: str) -> Any:
    raise absent("autotvm.database", name, _ELSEWHERE)
