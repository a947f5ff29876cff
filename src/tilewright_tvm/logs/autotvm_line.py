"""One line of AutoTVM's log 0.2: what was measured, with which knobs, what it cost.

In: a line as bytes, or decoded.  Out: its fields, checked; nothing is run or looked up.
Read next: `tvm_logs.py`, `history.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.errors import TilewrightError
from tilewright.measure.formats import refuse
from tilewright.measure.importing import decoded_line
from tilewright.measure.lines import DAMAGE
from tilewright.measure.record import MOST_SECONDS, MOST_TIME, value_of
from tilewright.schedule.space.config_space import ConfigEntity
from tilewright.targets.target import Target

AUTOTVM = "TVM's AutoTVM log"
AUTOTVM_VERSION = 0.2
ERRORS = (
    "", "instantiation", "compiling for the host", "compiling for the device", "running",
    "a wrong answer", "a build timeout", "a run timeout", "an unknown error", "the fleet",
)  # fmt: skip
# Options of an old target that say what is compiled for; others are limits, which `Target` knows.
_KEPT = {"llvm": ("mcpu", "mattr", "num-cores"), "cuda": ("arch",), "opencl": ("device",)}


@dataclass(frozen=True)
class AutotvmLine:
    """target: as the line spells it; args: with tensors as ["TENSOR", shape, dtype]

    result: costs, number of the error, seconds of everything, time since the epoch
    """

    target: str
    name: str
    args: list[Any]
    config: ConfigEntity
    result: list[Any]
    tvm: str

    @property
    def costs(self) -> tuple[float, ...]:
        """Seconds of a trial that succeeded.  Raises RecordError for others."""
        return costs_of(self.result)

    @property
    def timestamp(self) -> float:
        return time_of(self.result)


def wrote_autotvm(line: Mapping[str, Any]) -> bool:
    """Whether a line, whose values may still be text, is AutoTVM's."""
    if "input" in line and ("config" in line or "result" in line):
        return True
    return "i" in line and "r" in line and not isinstance(value_of(line.get("v")), str)


def read_autotvm(line: bytes | None) -> AutotvmLine:
    """Raises RecordError saying why the line is none of AutoTVM's."""
    data = decoded_line(line)
    if not isinstance(data, dict) or not wrote_autotvm(data):
        raise refuse("no line of AutoTVM")
    try:
        return autotvm_line(data)
    except TilewrightError:  # says why; some of these are ValueErrors, too
        raise
    except DAMAGE:
        raise refuse(f"a damaged line of {AUTOTVM}") from None


def autotvm_line(data: dict[str, Any]) -> AutotvmLine:
    """Raises RecordError, or one of `DAMAGE` for a line with other fields."""
    version = data.get("version", data.get("v"))
    if version != AUTOTVM_VERSION:
        raise refuse(f"AutoTVM log version {version}, known is {AUTOTVM_VERSION}")
    target, name, args, kwargs = data["input"]
    result = list(data["result"])
    if kwargs:
        raise refuse("a task with keyword arguments")
    if not isinstance(name, str) or not isinstance(args, list) or len(result) != 4:
        raise ValueError("a task is a name and a list of arguments")
    if any(len(row) != 3 for row in data["config"]["entity"]):
        raise ValueError("a knob is [name, kind, value]")
    config = ConfigEntity.from_json_dict(data["config"])
    return AutotvmLine(str(target), name, args, config, result, str(data.get("tvm_version", "")))


def costs_of(result: Sequence[Any]) -> tuple[float, ...]:
    """Seconds of a trial that succeeded in TVM."""
    costs, error = result[0], int(result[1])
    if error:
        known = ERRORS[error] if 0 < error < len(ERRORS) else f"error {error}"
        raise refuse(f"a trial that failed in TVM: {known}")
    seconds = tuple(float(c) for c in costs)
    if not seconds or not all(0 < c < MOST_SECONDS for c in seconds):
        raise refuse("no costs that are times")
    return seconds


def time_of(result: Sequence[Any]) -> float:
    """When the trial was, in seconds since the epoch."""
    seconds = float(result[3])
    if not 0 <= seconds < MOST_TIME:
        raise refuse("a timestamp out of range")
    return seconds


def target_of(text: str) -> Target:
    """What an old target compiles for, less what it says of the device's limits."""
    words = text.split()
    kind = words[0] if words else ""
    if kind not in _KEPT:
        raise refuse(f"target kind {kind!r}, known are {', '.join(_KEPT)}")
    options = (word.lstrip("-") for word in words[1:])
    kept = [f"-{o}" for o in options if o.partition("=")[0] in _KEPT[kind]]
    return Target(" ".join([kind, *kept]))
