"""What tuners, the tracker and devices say to each other: msgpack with a schema, both ways checked.

In: messages as structs.  Out: bytes, and the same structs from bytes of a stranger.  Numbers have
bounds; a message that breaks one is refused as a whole.  Read next: `plain_comm.py` (how bytes
travel), `tracker.py` and `board.py` (who answers).
"""

from __future__ import annotations

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from tilewright.base.errors import DeviceError

PROTOCOL = 4  # a message that an older side cannot read gets a new number
MOST_BYTES = 64 << 20  # of one message
PART_BYTES = 8 << 20  # of a file that is sent in parts

Name = Annotated[str, Meta(max_length=200)]
Text = Annotated[str, Meta(max_length=20_000)]
Hash = Annotated[str, Meta(pattern="^[0-9a-f]{64}$")]
Count = Annotated[int, Meta(ge=0, le=1 << 20)]
Seconds = Annotated[float, Meta(ge=0, le=1e6)]
Cost = Annotated[float, Meta(gt=0, le=1e6)]
LimitValue = int | float | tuple[int, int, int]  # as `targets.kind` has it


class Message(Struct, tag=True, frozen=True, forbid_unknown_fields=True):
    """Whatever is said."""


# -- both ----------------------------------------------------------------------------------------


class Hello(Message, frozen=True):
    """The first message of each side.  user: as people know who it is."""

    protocol: int
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

    key: Name
    count: Count
    priority: int = 1
    without: tuple[Name, ...] = ()


class Release(Message, frozen=True):
    device: Name


class Ask(Message, frozen=True):
    """For `Summary`."""


class Granted(Message, frozen=True):
    """A device is the tuner's until it releases it.  device: its address."""

    key: Name
    device: Name


class Lost(Message, frozen=True):
    """A device that was held is gone, or says nothing any more."""

    device: Name
    why: Text


class Devices(Message, frozen=True):
    """How many devices a key has now."""

    key: Name
    total: Count


class Row(Struct, frozen=True):
    key: Name
    total: Count
    free: Count
    pending: Count


class Member(Struct, frozen=True):
    """A device.  since: seconds since it was last heard of; holder: the user who has it, or ""."""

    address: Name
    key: Name
    since: float
    holder: Text = ""


class Summary(Message, frozen=True):
    rows: tuple[Row, ...]
    members: tuple[Member, ...]


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
    limits: tuple[tuple[Name, LimitValue], ...]
    code: tuple[tuple[Name, Text], ...]
    lacks: tuple[Name, ...]
    has_llvm: bool = True


class Part(Message, frozen=True):
    """A part of a file with that hash, or of that name in a session; at: where it begins."""

    name: Name
    at: Annotated[int, Meta(ge=0, le=1 << 40)]
    total: Annotated[int, Meta(ge=0, le=1 << 40)]
    data: bytes


class Stored(Message, frozen=True):
    """A file is complete."""

    name: Name


class Missing(Message, frozen=True):
    """These are needed first."""

    names: tuple[Hash, ...]


class Data(Struct, frozen=True):
    """A `Reference`: arrays by their names in files, each by hash."""

    files: tuple[tuple[Annotated[str, Meta(pattern=r"^[0-9]+-[a-z]+[0-9]+\.npy$")], Hash], ...]
    inputs: Count
    outputs: Count
    also: Count = 0
    given: Annotated[str, Meta(pattern=r"^[0-9a-f]{0,64}$")] = ""
    constants: tuple[Count, ...] = ()


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

    costs: tuple[Cost, ...] = ()
    raced: bool = False
    verified: bool = False
    error: Annotated[str, Meta(pattern="^(run|wrong|timeout)$")] | None = None
    message: Text = ""
    seconds: Seconds = 0.0
    device: Name = ""
    cause: Annotated[str, Meta(pattern="^(candidate|unclear|killed|machine)$")] = "candidate"
    fatal: bool = False
    first: bool = False
    order: Text = ""


class Build(Message, frozen=True):
    """Build a candidate, or what is known to be good where there is no payload.

    payload: plain data for `driver.build.build_payload`, as msgpack
    target:  as text; limits: those that differ from what text and device say; host: beside it
    """

    payload: bytes
    target: Text
    timeout: Annotated[float, Meta(gt=0, le=86_400)]
    device: Spec | None = None
    limits: tuple[tuple[Name, LimitValue], ...] = ()
    host: Text = ""


class Made(Message, frozen=True):
    """A `measure.Built`.  artifact: as its file, empty where `error` is set."""

    artifact: bytes = b""
    error: Annotated[str, Meta(pattern="^(instantiate|compile|verify|timeout)$")] | None = None
    message: Text = ""
    seconds: Seconds = 0.0
    cause: Annotated[str, Meta(pattern="^(candidate|unclear|killed|machine)$")] = "candidate"


class Call(Message, frozen=True):
    """A call of a session: one of `session_calls.CALLS`, with plain arguments."""

    function: Name
    arguments: dict[Name, Any]
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
