"""`Record`: what a measured candidate was, how long it took or why it failed; one JSON line each.

In: the outcome of a trial.  Out: a line for the log, and back.  A log also holds each task's
computation once (`DagLine`) and a line per tuning run (`RunLine`).  Read next: `database.py`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cache
from importlib import metadata
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NamedTuple, get_args

import msgspec
from msgspec import Meta

from tilewright.base import plugins
from tilewright.base.dtype import json_name
from tilewright.base.errors import RecordError
from tilewright.base.output import FileKind
from tilewright.base.text import printable
from tilewright.measure.lines import LINE_BYTES, NOT_JSON, decoded, read_lines, refusal, short

if TYPE_CHECKING:
    from tilewright.schedule.task import Task

VERSION = 1
IMPORT = "import:"  # begins the origin of what another program measured
_MESSAGE = 10_000  # characters that are kept of both ends of a message without end
ErrorKind = Literal["instantiate", "compile", "verify", "run", "wrong", "timeout"]
ERROR_KINDS: tuple[ErrorKind, ...] = get_args(ErrorKind)
Candidate = tuple[str, bytes, bytes]  # origin, decisions, steps

# What a number of a log may be; checked where lines are read.  A kernel takes some time, and less
# than a month; times are before the year 5138.
MOST_SECONDS, MOST_TIME = 3e6, 1e11
Cost = Annotated[float, Meta(gt=0, lt=MOST_SECONDS)]
Seconds = Annotated[float, Meta(ge=0, lt=MOST_TIME)]
Number = Annotated[int, Meta(ge=0, le=2**53)]
Name = Annotated[str, Meta(max_length=2000)]
Seed = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]


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

    name: Name
    args: list[Any]
    dag: Name
    target: Name
    fingerprint: Name = ""

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
    order:          why it was not tried with its threads one after the other, where that is so
    cold:           its constants came from memory in each run, as in a network whose weights do
                    not stay in the caches
    predicted:      seconds that its search expected of it; 0: it expected nothing
    builder, built: number of the process that built it, and when it had; 0: not known
    """

    costs: tuple[Cost, ...] = ()
    error: ErrorKind | None = None
    message: str = ""
    build_s: Seconds = 0.0
    run_s: Seconds = 0.0
    raced: bool = False
    verified: bool = False
    final: bool = False
    same_as: Number | None = None
    order: Name = ""
    cold: bool = False
    predicted: Annotated[float, Meta(ge=0)] = 0.0
    builder: Number = 0
    built: Seconds = 0.0

    @property
    def ok(self) -> bool:
        return self.error is None and bool(self.costs)

    @property
    def seconds(self) -> float:
        """The median cost; infinity for a failure."""
        if self.error is not None or not self.costs:
            return math.inf
        ordered = sorted(self.costs)
        middle, odd = divmod(len(ordered), 2)
        return ordered[middle] if odd else (ordered[middle - 1] + ordered[middle]) / 2


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
    origin: Name = "default"
    decisions_json: msgspec.Raw = msgspec.field(name="decisions")
    steps_json: msgspec.Raw = msgspec.field(name="steps")
    result: Result
    device: Name = ""
    seed: Seed = 0
    trial: Number = 0
    timestamp: Seconds = 0.0
    versions: dict[str, str] = {}

    @property
    def decisions(self) -> dict[str, Any]:
        """Name -> value, for example {"tile_f": [4, 1, 16, 2]}.

        Raises RecordError where the line of the log has something else.
        """
        found: dict[str, Any] = decoded(self.decisions_json, "decisions", dict[str, Any])
        return found

    @property
    def steps(self) -> list[Any]:
        """The closed schedule, as `Schedule.to_json()` gives it.  Raises RecordError likewise."""
        found: list[Any] = decoded(self.steps_json, "steps", list[Any])
        return found

    @property
    def is_imported(self) -> bool:
        """Whether another program measured it."""
        return self.origin.startswith(IMPORT)

    @property
    def is_whole(self) -> bool:
        """Whether `decisions` and `steps` can be read."""
        try:
            return isinstance(self.decisions, dict) and isinstance(self.steps, list)
        except RecordError:
            return False

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
        return printable(
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
    hash: Name
    dag: msgspec.Raw


class RunLine(msgspec.Struct, frozen=True, kw_only=True, tag="run", tag_field="kind"):
    """The start of a tuning run: all options that its sequence of proposals depends on."""

    v: Literal[1] = 1
    options: dict[str, Any]
    timestamp: Seconds = 0.0
    versions: dict[str, str] = {}

    @property
    def layers(self) -> dict[str, list[str]]:
        """Names of the layers of a model that tasks compute, by the hash of the computation."""
        told = self.options.get("layers")
        listed = told.items() if isinstance(told, dict) else ()
        return {str(k): [str(n) for n in names] for k, names in listed if isinstance(names, list)}


class NetworkLine(msgspec.Struct, frozen=True, kw_only=True, tag="network", tag_field="kind"):
    """How a network was fastest as it ran as a whole, at the end of a search.

    network: key of the network before its operators are grouped; target, fingerprint: as of tasks
    layouts:  of its convolutions, see `network/layouts.py`; None: as records choose them
    grouping: which of the ways to group its operators; None: as records choose it
    untuned:  keys of kernels in which records lost: they are built as without a log
    seconds:  of a run so; untuned_seconds: of one that was built without a log, timed in turn
    """

    v: Literal[1] = 1
    network: Name
    target: Name = ""
    fingerprint: Name = ""
    layouts: list[Name] | None = None
    grouping: Number | None = None
    untuned: list[Name] = []
    seconds: Seconds = 0.0
    untuned_seconds: Seconds = 0.0
    timestamp: Seconds = 0.0
    versions: dict[str, str] = {}


class Glance(msgspec.Struct, frozen=True, kw_only=True, gc=False, tag="record", tag_field="kind"):
    """A record with its task as text: what a log's loader looks at, line after line."""

    v: Literal[1] = 1
    task: msgspec.Raw
    origin: Name = "default"
    decisions: msgspec.Raw
    steps: msgspec.Raw
    result: Result
    device: Name = ""
    seed: Seed = 0
    trial: Number = 0
    timestamp: Seconds = 0.0
    versions: dict[str, str] = {}


Line = Record | DagLine | RunLine | NetworkLine
Glimpse = Glance | DagLine | RunLine | NetworkLine


def layers_told(runs: Iterable[RunLine]) -> dict[str, tuple[str, ...]]:
    """Give the names of the layers of models that each task computes, by the hash of its
    computation, as the `runs` of a log tell them: the first is the first that runs."""
    found: dict[str, dict[str, None]] = {}
    for run in runs:
        for key, names in run.layers.items():
            found.setdefault(key, {}).update(dict.fromkeys(names))
    return {key: tuple(names) for key, names in found.items() if names}


def encode(line: Line) -> bytes:
    """One line of JSON, with its newline.

    Of a message that would make the line longer than readers take, the middle is left out.
    Raises RecordError for a value that is not JSON, and for a line that is too long without it.
    """
    text = bytes(_raw(line))
    if len(text) > LINE_BYTES and isinstance(line, Record):
        message = line.result.message
        message = f"{message[:_MESSAGE]}\n[...]\n{message[-_MESSAGE:]}"
        result = msgspec.structs.replace(line.result, message=message)
        text = bytes(_raw(msgspec.structs.replace(line, result=result)))
    if len(text) > LINE_BYTES:
        raise RecordError(
            "record", f"its line has {len(text)} bytes, and a log's have {LINE_BYTES} at most",
            "Leave out what is not needed to build it again.",
        )  # fmt: skip
    return text + b"\n"


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
    line = line.encode(errors="replace") if isinstance(line, str) else line
    found, reason = read(line)
    if found is None:
        raise RecordError("decode", reason, "Leave the line out.")
    return found


def read(line: bytes) -> tuple[Line | None, str]:
    """(what the line holds, ""), or (None, why it is not a line of a log).

    It is read by the decoder that loaders use, so both judge a line alike: of a key that comes
    twice, say, the last one counts.
    """
    reason = refusal(line)
    if reason is not None:
        return None, reason
    try:
        found = _glance.decode(line)
        return (_record(found) if isinstance(found, Glance) else found), ""
    except UNREADABLE as error:
        return None, why_not(line, error)


def _record(found: Glance) -> Record:
    """Raises `UNREADABLE` for a task that is none."""
    return Record(
        v=found.v, task=_task.decode(found.task), origin=found.origin,
        decisions_json=found.decisions, steps_json=found.steps, result=found.result,
        device=found.device, seed=found.seed, trial=found.trial, timestamp=found.timestamp,
        versions=found.versions,
    )  # fmt: skip


UNREADABLE = (msgspec.MsgspecError, ValueError, RecursionError)  # what a decoder raises


def glance() -> msgspec.json.Decoder[Glimpse]:
    """A decoder for loops that must be fast.  It raises `UNREADABLE`."""
    return _glance


def why_not(line: bytes, error: Exception) -> str:
    """The reason why `line` is not a line of a log, short and the same for similar lines."""
    reason = refusal(line)
    if reason is not None:
        return reason
    try:
        fields = _read_fields(line)
    except msgspec.ValidationError:
        return "not a JSON object"
    except UNREADABLE:
        return NOT_JSON
    if not is_own(fields) and (format := format_of(fields)) is not None:
        return f"a line of {format.name}"
    version = bytes(fields.get("v", b"%d" % VERSION)).decode()
    if version != str(VERSION):
        return short(f"schema version {version}, this is version {VERSION}")
    return short(f"not a record ({str(error).rstrip('.')})")


def is_own(line: Any) -> bool:
    """Whether a decoded line, whose values may still be text, is of a log of Tilewright."""
    return isinstance(line, dict) and value_of(line.get("kind")) in _KINDS


def format_of(line: Any) -> Any:
    """The `formats.Format` that a decoded line is of, which is not ours; None where nobody knows
    it."""
    if not isinstance(line, dict):
        return None
    return next((f for f in plugins.every("logs") if f.wrote(line)), None)


def value_of(field: Any) -> Any:
    """Of a field that may still be text; None of a number out of range."""
    if not isinstance(field, msgspec.Raw):
        return field
    try:
        return decoded(field, "field")
    except RecordError:
        return None


def _is_log(path: Path) -> bool:
    """Whether the first lines are of a log, of another program too, or it ends inside its very
    first one."""
    with open(path, "rb") as file:
        for at, line, end in islice(read_lines(file.fileno()), _LOOKS):
            if line is None or refusal(line) is not None or at > _LOOKS_BYTES:
                return False
            if end < 0 and line.startswith(_BEGINS):
                return True
            with suppress(RecordError):
                told = decoded(line, "line")
                if is_own(told) or format_of(told) is not None:
                    return True
    return False


_LOOKS, _LOOKS_BYTES = 1000, 16 << 20
_BEGINS = b'{"kind":'
LOG = FileKind("a log", _is_log)
_KINDS = ("record", "dag", "run", "network")


@cache
def own_versions() -> dict[str, str]:
    """The `versions` of a record made by this installation."""
    try:
        return {"tilewright": metadata.version("tilewright")}
    except metadata.PackageNotFoundError:  # run from a source tree
        return {"tilewright": "source"}


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
# The fields of a line as text: no object is made for what they hold.
_read_fields = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode
_task = msgspec.json.Decoder(TaskId)
_glance: msgspec.json.Decoder[Glimpse] = msgspec.json.Decoder(Glimpse)


def task_label(task: TaskId | Task) -> str:
    """`conv2d_nchw 1x512x7x7 512x512x3x3 1 1`: name and arguments, short enough for a table."""
    return " ".join([task.name, *_argument_texts(task.args)])


def _argument_texts(args: Iterable[Any]) -> list[str]:
    texts = []
    for arg in args:
        if isinstance(arg, (list, tuple)) and len(arg) == 3 and arg[0] == "TENSOR":
            arg = arg[1]
        if isinstance(arg, (list, tuple)):
            texts.append("x".join(map(str, arg)))
        elif not isinstance(arg, str):
            texts.append(str(arg))
    return texts
