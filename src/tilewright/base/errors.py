"""Errors that name the place, what was asked, why it is refused, and a way out.

Every refusal a user can cause is a subclass of `TilewrightError`; a broken invariant is an
`InternalError`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from tilewright.base.text import printable, shortened


def absent(owner: str, name: str, elsewhere: Mapping[str, str]) -> AttributeError:
    """What `__getattr__` raises: for the names of TVM in `elsewhere`, with what to use instead."""
    if name in elsewhere:
        return AttributeError(f"{owner}.{name} does not exist here. {elsewhere[name]}")
    return AttributeError(f"{owner} has no attribute {name!r}")


class TilewrightError(RuntimeError):
    """`place: reason. way_out`; the three parts stay readable as attributes.

    place:   what the user called or named, for example ``split(conv.i, factor=0)``
    reason:  why it is refused, one sentence without the final full stop
    way_out: what would work instead, one sentence; may be empty
    command: the same for who typed a command, where `way_out` speaks of arguments of Python
    """

    def __init__(self, place: str, reason: str, way_out: str = "", *, command: str = "") -> None:
        self.place, self.reason, self.way_out, self.command = place, reason, way_out, command
        super().__init__(place, reason, way_out)  # args rebuild the error when it is pickled

    def __str__(self) -> str:
        return self._told(self.way_out)

    def in_command(self) -> str:
        """The error for who typed a command."""
        return self._told(self.command or self.way_out)

    def _told(self, way_out: str) -> str:
        text = f"{self.place}: {self.reason.rstrip('.')}."
        return shortened(printable(f"{text} {way_out}" if way_out else text))


class ExpressionError(TilewrightError):
    """An expression or tensor computation that is not well formed."""


class TruthError(ExpressionError, ValueError):
    """An expression was asked whether it is true, before it runs."""


class ScheduleError(TilewrightError):
    """A schedule step that is not legal where it was asked for."""


class LegalityError(TilewrightError):
    """A schedule that breaks a limit of its target (threads, shared memory, ...)."""


class LoweringError(TilewrightError):
    """A legal schedule whose lowering to loops met something it cannot express."""


class TargetError(TilewrightError, ValueError):
    """An unknown target, or one whose library or device is missing; scripts for TVM expect a
    ValueError."""


class CompileError(TilewrightError):
    """The device compiler refused generated text."""

    REPORT = "If Tilewright generated the text, please report it."  # a way out


class DeviceError(TilewrightError):
    """A device failed, is missing, or was given a wrong array.

    fatal: true when the device is lost to this process (a poisoned context): start a new process.
    """

    fatal = False


class Unavailable(DeviceError):
    """What measuring needs is missing: space, memory, processes, a device.

    No candidate is to blame, and it may come back: what raised this may be called again.
    """


class DeviceLost(Unavailable):
    """A device that worked before cannot be opened any more, not even by a new process."""

    fatal = True


class RecordError(TilewrightError):
    """A log file or log line that cannot be used."""


class ModelError(TilewrightError):
    """A network that cannot be imported, typed or built."""


class SpaceError(TilewrightError):
    """A search space or a configuration that is not well formed."""


class SearchError(TilewrightError):
    """A search none of whose trials succeeded."""


class InternalError(TilewrightError):
    """A broken invariant of Tilewright itself; please report it."""


@contextmanager
def part_of(work: str) -> Iterator[None]:
    """Internal errors raised inside say that they happened during `work`."""
    try:
        yield
    except InternalError as error:
        place = f"{work}: {error.place}"
        raise InternalError(place, error.reason, error.way_out) from error


class renamed:
    """Errors raised inside name what the user named, instead of calls that others made for it.

    names: by places of errors, or by how such places begin: what stands before a colon
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = names

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if not isinstance(error, TilewrightError):
            return
        for call, name in self._names.items():
            head, rest = error.place[: len(call)], error.place[len(call) :]
            if head == call and rest[:1] in ("", ":"):
                error.place = name + rest
                error.args = (error.place, *error.args[1:])
                break


class named(renamed):
    """`renamed` of several calls, to one name."""

    def __init__(self, name: str, *calls: str) -> None:
        super().__init__(dict.fromkeys(calls, name))
