"""What tuners, the tracker and devices say to each other: msgpack with a schema, both ways checked.

In: messages as structs.  Out: bytes, and the same structs from bytes of a stranger.  Every number,
text and list has a bound; a message that breaks one is refused as a whole.  Read next: `bounds.py`,
`plain_comm.py` (how bytes travel), `tracker.py` and `board.py` (who answers).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from tilewright.base.errors import DeviceError
from tilewright.farm import bounds

PROTOCOL = 4  # a message that an older side cannot read gets a new number
PART_BYTES = bounds.PART_BYTES
_LISTED = 4096  # of anything that a message lists

Name = Annotated[str, Meta(max_length=bounds.NAME_LENGTH, pattern=bounds.PLAIN)]
Key = Annotated[str, Meta(min_length=1, max_length=bounds.NAME_LENGTH, pattern=bounds.PLAIN)]
Text = Annotated[str, Meta(max_length=20_000)]
Hash = Annotated[str, Meta(pattern=r"^[0-9a-f]{64}\Z")]
File = Annotated[str, Meta(max_length=64, pattern=r"^[0-9]+-[a-z]+[0-9]+\.npy\Z")]
Count = Annotated[int, Meta(ge=0, le=1 << 20)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Cost = Annotated[float, Meta(gt=0, le=1e6)]
LimitValue = int | float | tuple[int, int, int]  # as `targets.kind` has it; of 64 bits here
Limits = Annotated[tuple[tuple[Name, LimitValue], ...], Meta(max_length=256)]


class Message(Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Whatever is said."""


# -- both ----------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of each side.  user: as people know who it is."""

    protocol: Count
    version: Name
    user: Name = ""


class Ping(Message, frozen=True):
    """It lives; a tracker says so, too."""


class Refused(Message, frozen=True):
    """What was asked is not done: the three parts of an error."""

    place: Text
    reason: Text
    way_out: Text = ""


# -- tuner and tracker ----------------------------------------------------------------------------


class Want(Message, frozen=True):
    """So many devices of a key are wanted from now on, besides those that are held.

    without: devices that are not
    """

    key: Key
    count: Count
    priority: Annotated[int, Meta(ge=-(1 << 31), lt=1 << 31)] = 1
    without: Annotated[tuple[Name, ...], Meta(max_length=bounds.WITHOUT)] = ()


class Release(Message, frozen=True):
    device: Name


class Ask(Message, frozen=True):
    """For `Summary`."""


class Granted(Message, frozen=True):
    """A device is the tuner's until it releases it.  device: its address."""

    key: Key
    device: Name


class Lost(Message, frozen=True):
    """A device that was held is gone, or says nothing any more."""

    device: Name
    why: Text


class Devices(Message, frozen=True):
    """How many devices a key has now."""

    key: Key
    total: Count


class Row(Struct, frozen=True):
    key: Key
    total: Count
    free: Count
    pending: Count


class Member(Struct, frozen=True):
    """A device.  since: seconds since it was last heard of; holder: the user who has it, or ""."""

    address: Name
    key: Key
    since: Seconds
    holder: Text = ""


class Summary(Message, frozen=True):
    rows: Annotated[tuple[Row, ...], Meta(max_length=2 * _LISTED)]
    members: Annotated[tuple[Member, ...], Meta(max_length=_LISTED)]


# -- tuner and device -----------------------------------------------------------------------------


class Describe(Message, frozen=True):
    """What is device `index` of a kind of targets?"""

    kind: Name
    index: Count = 0


class Spec(Message, frozen=True):
    """A `targets.DeviceSpec`.  has_llvm: it loads object code; else only what is linked."""

    kind: Name
    name: Name
    fingerprint: Name
    arch: Name
    limits: Limits
    code: Annotated[tuple[tuple[Name, Text], ...], Meta(max_length=_LISTED)]
    lacks: Annotated[tuple[Name, ...], Meta(max_length=_LISTED)]
    has_llvm: bool = True


class Part(Message, frozen=True):
    """A part of a file with that hash, or of that name in a session; at: where it begins."""

    name: Name
    at: Annotated[int, Meta(ge=0, le=1 << 40)]
    total: Annotated[int, Meta(ge=0, le=1 << 40)]
    data: Annotated[bytes, Meta(max_length=bounds.PART_BYTES)]


class Stored(Message, frozen=True):
    """A file is complete."""

    name: Name


class Missing(Message, frozen=True):
    """These are needed first."""

    names: Annotated[tuple[Hash, ...], Meta(max_length=2 * _LISTED)]


class Data(Struct, frozen=True):
    """A `Reference`: arrays by their names in files, each by hash."""

    files: Annotated[tuple[tuple[File, Hash], ...], Meta(max_length=_LISTED)]
    inputs: Count
    outputs: Count
    also: Count = 0
    given: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}\Z")] = ""
    constants: Annotated[tuple[Count, ...], Meta(max_length=_LISTED)] = ()


class Timing(Struct, frozen=True):
    """How a trial is timed: the options of `LocalRunner`."""

    timeout: Annotated[float, Meta(gt=0, le=86_400)] = 10.0
    number: Annotated[int, Meta(ge=1, le=1 << 20)] = 4
    repeat: Annotated[int, Meta(ge=1, le=1 << 12)] = 3
    min_repeat_ms: Annotated[float, Meta(ge=0, le=1e6)] = 0.0
    cooldown: Annotated[float, Meta(ge=0, le=3600)] = 0.0
    flush: bool = False
    index: Count = 0
    cold_bytes: Annotated[int, Meta(ge=0, le=1 << 34)] = 0


class Run(Message, frozen=True):
    """Try an artefact.  fresh: in a new process; the rest: see `measure.RunJob`."""

    artifact: Hash
    dag: Name
    timing: Timing
    data: Data | None = None
    best_seconds: Cost | None = None
    verify: bool = True
    race: bool = True
    control: bool = False
    fresh: bool = False


class Started(Message, frozen=True):
    """The device is free for it: the deadline begins."""


class Ran(Message, frozen=True):
    """A `measure.RunResult`."""

    costs: Annotated[tuple[Cost, ...], Meta(max_length=_LISTED)] = ()
    raced: bool = False
    verified: bool = False
    error: Annotated[str, Meta(pattern=r"^(run|wrong|timeout)\Z")] | None = None
    message: Text = ""
    seconds: Seconds = 0.0
    device: Name = ""
    cause: Annotated[str, Meta(pattern=r"^(candidate|unclear|killed|machine)\Z")] = "candidate"
    fatal: bool = False
    first: bool = False
    order: Text = ""
    cold: bool = False


class Build(Message, frozen=True):
    """Build a candidate, or what is known to be good where there is no payload.

    payload: plain data for `driver.build.build_payload`, as msgpack
    target:  as text; limits: those that differ from what text and device say; host: beside it
    """

    payload: Annotated[bytes, Meta(max_length=bounds.WHOLE_BYTES)]
    target: Text
    timeout: Annotated[float, Meta(gt=0, le=86_400)]
    device: Spec | None = None
    limits: Limits = ()
    host: Text = ""


class Made(Message, frozen=True):
    """A `measure.Built`.  artifact: as its file, empty where `error` is set."""

    artifact: Annotated[bytes, Meta(max_length=bounds.WHOLE_BYTES)] = b""
    error: Annotated[str, Meta(pattern=r"^(instantiate|compile|verify|timeout)\Z")] | None = None
    message: Text = ""
    seconds: Seconds = 0.0
    cause: Annotated[str, Meta(pattern=r"^(candidate|unclear|killed|machine)\Z")] = "candidate"


class Call(Message, frozen=True):
    """A call of a session: one of `session_calls.CALLS`, with plain arguments."""

    function: Name
    arguments: Annotated[dict[Name, Any], Meta(max_length=32)]
    timeout: Annotated[float, Meta(gt=0, le=86_400)] = 60.0


class Answer(Message, frozen=True):
    value: Any = None


MESSAGES = (
    Hello | Ping | Refused | Want | Release | Ask | Granted | Lost | Devices | Summary | Describe
    | Spec | Part | Stored | Missing | Run | Started | Ran | Build | Made | Call | Answer
)  # fmt: skip
M = TypeVar("M", bound=Message)
_encoder = msgspec.msgpack.Encoder()
_decoder: msgspec.msgpack.Decoder[Message] = msgspec.msgpack.Decoder(MESSAGES)


def encoded(message: Message) -> bytes:
    return _encoder.encode(message)


def decoded(data: object, place: str) -> Message:
    """Raises DeviceError for what is no message of this protocol."""
    if not isinstance(data, (bytes, bytearray, memoryview)):
        raise malformed(place, f"a {type(data).__name__} instead of bytes")
    try:
        return _decoder.decode(data)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise malformed(place, str(error)) from None


def malformed(place: str, what: str) -> DeviceError:
    return DeviceError(
        place, f"it sent no message of this protocol ({what})",
        "Both sides must be Tilewright, of versions that speak the same protocol.",
    )  # fmt: skip


def check_wish(key: str, priority: int) -> None:
    """Raises DeviceError for a key or a priority that no tracker would understand."""
    check_key(key, "key")
    if not -(1 << 31) <= priority < 1 << 31:
        raise DeviceError(f"priority={priority}", "it has more than 32 bits", "Try 2.")


def check_key(key: str, place: str) -> None:
    """Raises DeviceError for what cannot be the key of devices."""
    try:
        msgspec.convert(key, Key)
    except msgspec.ValidationError:
        raise DeviceError(
            f"{place} {key[:40]!r}{'...' if len(key) > 40 else ''}",
            f"a key is a text of 1 to {bounds.NAME_LENGTH} characters in one line, without control "
            "characters", 'Take a short name such as "1080ti".',
        ) from None  # fmt: skip


def check_hello(message: Message, place: str) -> Hello:
    """Raises DeviceError where the other side is of another version."""
    if isinstance(message, Refused):
        raise DeviceError(message.place, message.reason, message.way_out)
    if not isinstance(message, Hello):
        raise malformed(place, f"{type(message).__name__} before Hello")
    if message.protocol != PROTOCOL:
        raise DeviceError(
            place, f"it speaks protocol {message.protocol} (Tilewright {message.version}), this "
            f"side {PROTOCOL}", "Install the same version of Tilewright on both.",
        )  # fmt: skip
    return message
