"""`Record`: what a measured candidate was, how long it took or why it failed; one JSON line each.

In: the outcome of a trial.  Out: a line for the log, and back.  A log also holds each task's
computation once (`DagLine`) and a line per tuning run (`RunLine`).  Read next: `database.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Mapping, Sequence
from functools import cache
from importlib import metadata
from typing import Any, Literal, NamedTuple, TypeVar, get_args

import msgspec

from tilewright.base.dtype import json_name
from tilewright.base.errors import RecordError

T = TypeVar("T")
VERSION = 1
ErrorKind = Literal["instantiate", "compile", "verify", "run", "wrong", "timeout"]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
Candidate = tuple[str, bytes, bytes]  # origin, decisions, steps


class Key(NamedTuple):
    """What records are found by: hash of the computation, target, fingerprint of the device.

    fingerprint: "" in a question: of any device; in a record: of a device that is not known
    """

    dag: str
    target: str
    fingerprint: str = ""


class TaskId(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """Which computation was measured, for which target, on what.

    name, args:  the template or operator and its arguments, as users know it; labels only
    dag:         `ComputeDAG.hash`, which covers shapes, types and which inputs are constant
    target:      `str(Target)`
    fingerprint: `DeviceSpec.fingerprint` of the device; "" in logs that are older than it
    """

    name: str
    args: list[Any]
    dag: str
    target: str
    fingerprint: str = ""

    @property
    def key(self) -> Key:
        return Key(self.dag, self.target, self.fingerprint)

    @property
    def of_any_device(self) -> Key:
        return Key(self.dag, self.target)


class Result(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """costs: seconds of one run, an entry per repeat; empty when `error` is set.

    error:          None or one of `ERROR_KINDS`; `message` is its full text
    build_s, run_s: wall seconds spent on building and on the trial
    raced:          it lost the race, so `costs` is one rough figure
    verified:       its results were compared with the reference
    final:          timed in turn with the other leaders; replaces earlier costs of the candidate
    same_as:        another trial of the run, whose program is the same: these are its figures
    """

    costs: tuple[float, ...] = ()
    error: ErrorKind | None = None
    message: str = ""
    build_s: float = 0.0
    run_s: float = 0.0
    raced: bool = False
    verified: bool = False
    final: bool = False
    same_as: int | None = None

    @property
    def ok(self) -> bool:
        return self.error is None and bool(self.costs)

    @property
    def seconds(self) -> float:
        """The median cost; infinity for a failure."""
        return statistics.median(self.costs) if self.ok else float("inf")


class Record(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="record", tag_field="kind"):
    """One measured candidate; `make_record` makes one.

    origin:    "template:NAME", "rules:NAME" or "default"; "import:NAME" is of another program, and
               "replay:NAME" what its steps cost here
    device:    name of the device that ran it
    seed:      of the tuning run; trial is the number of the proposal in it
    timestamp: seconds since the epoch
    versions:  of Tilewright and of the compiler

    Decisions and steps stay JSON text until they are asked for: few of a log's records are.
    """

    v: Literal[1] = 1
    task: TaskId
    origin: str = "default"
    decisions_json: msgspec.Raw = msgspec.field(name="decisions")
    steps_json: msgspec.Raw = msgspec.field(name="steps")
    result: Result
    device: str = ""
    seed: int = 0
    trial: int = 0
    timestamp: float = 0.0
    versions: dict[str, str] = {}

    @property
    def decisions(self) -> dict[str, Any]:
        """Name -> value, for example {"tile_f": [4, 1, 16, 2]}.  Raises RecordError, as `steps`."""
        return _decoded(self.decisions_json, dict[str, Any], "decisions")

    @property
    def steps(self) -> list[Any]:
        """The closed schedule, as `Schedule.to_json()` gives it.

        Raises RecordError for text that is none: it is read here, not with the line.
        """
        return _decoded(self.steps_json, list[Any], "steps")

    @property
    def key(self) -> Key:
        return self.task.key

    @property
    def seconds(self) -> float:
        return self.result.seconds

    def __repr__(self) -> str:
        outcome = (
            f"{self.seconds * 1e3:.4g} ms" if self.result.ok else f"failed ({self.result.error})"
        )
        where = f" on {self.device}" if self.device else ""
        return (
            f"Record({self.task.name} for {self.task.target}: {outcome}{where}, "
            f"{self.origin}, trial {self.trial})"
        )

    @property
    def candidate(self) -> Candidate:
        """The same for two measurements of one candidate of a task."""
        return self.origin, bytes(self.decisions_json), bytes(self.steps_json)


class DagLine(msgspec.Struct, frozen=True, kw_only=True, tag="dag", tag_field="kind"):
    """A computation that records refer to by hash; `dag` is `ComputeDAG.to_json()`."""

    v: Literal[1] = 1
    hash: str
    dag: msgspec.Raw


class RunLine(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """The start of a tuning run: all options that its sequence of proposals depends on."""

    v: Literal[1] = 1
    options: dict[str, Any]
    timestamp: float = 0.0
    versions: dict[str, str] = {}


Line = Record | DagLine | RunLine


def encode(line: Line) -> bytes:
    """One line of JSON, with its newline.  Raises RecordError for a value that is not JSON."""
    return bytes(_raw(line)) + b"\n"


def make_record(
    task: TaskId,
    result: Result,
    *,
    origin: str = "default",
    decisions: Mapping[str, Any] | None = None,
    steps: Sequence[Any] = (),
    device: str = "",
    seed: int = 0,
    trial: int = 0,
    timestamp: float | None = None,
    versions: dict[str, str] | None = None,
) -> Record:
    """A `Record`.  Decisions and steps are JSON values; numpy numbers and arrays become plain ones.

    timestamp: now, where it is not given.  Raises RecordError for a value that is not JSON.
    """
    return Record(
        task=task, origin=origin, decisions_json=_raw(decisions or {}), steps_json=_raw(steps),
        result=result, device=device, seed=seed, trial=trial,
        timestamp=time.time() if timestamp is None else timestamp,
        versions=own_versions() if versions is None else versions,
    )  # fmt: skip


def candidate_of(origin: str, decisions: Mapping[str, Any], steps: Sequence[Any]) -> Candidate:
    """`Record.candidate` of a candidate that has no record yet."""
    return origin, bytes(_raw(decisions)), bytes(_raw(steps))


def decode(line: bytes | str) -> Line:
    """The inverse of `encode`.  Raises RecordError saying what is wrong with the line."""
    try:
        found: Line = _decoder.decode(line)
    except (msgspec.MsgspecError, UnicodeError) as error:
        raise RecordError("decode", why_not(line, error), "Leave the line out.") from None
    return found


def decoder() -> msgspec.json.Decoder[Line]:
    """The decoder behind `decode`, for loops that must be fast."""
    return _decoder


def why_not(line: bytes | str, error: Exception) -> str:
    """The reason why `line` is not a line of a log, short and the same for similar lines."""
    try:
        data = msgspec.json.decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        return "not JSON, or cut off"
    if not isinstance(data, dict):
        return "not a JSON object"
    if "config" in data and "input" in data:
        return "a line of TVM's AutoTVM log"
    if "i" in data and "r" in data:
        return "a line of TVM's auto-scheduler log"
    if data.get("v", VERSION) != VERSION:
        return f"schema version {data['v']!r}, this is version {VERSION}"
    return f"not a record ({str(error).rstrip('.')})"


@cache
def own_versions() -> dict[str, str]:
    """The `versions` of a record made by this installation."""
    try:
        return {"tilewright": metadata.version("tilewright")}
    except metadata.PackageNotFoundError:  # run from a source tree
        return {"tilewright": "source"}


def _decoded(text: msgspec.Raw, kind: type[T], what: str) -> T:
    try:
        return msgspec.json.decode(text, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        raise RecordError("record", f"its {what} cannot be read ({error})") from None


def _raw(value: Any) -> msgspec.Raw:
    try:
        return msgspec.Raw(_encoder.encode(value))
    except (TypeError, msgspec.MsgspecError) as error:
        raise RecordError(
            "record", f"a value in it is not JSON ({error})",
            "Use numbers, strings, lists, and dicts with string keys.",
        ) from None  # fmt: skip


def _plain(value: Any) -> Any:
    if hasattr(value, "tolist"):  # numpy scalars and arrays
        return value.tolist()
    return json_name(value)


_encoder = msgspec.json.Encoder(enc_hook=_plain)
_decoder: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
