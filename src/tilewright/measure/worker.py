"""The worker process: runs functions that its parent names, one at a time, as long as that lives.

In: frames on standard input, `Start` and then calls.  Out: one frame per call on standard output.
It may crash or hang: deadlines and restarts are the parent's.  Read next: `pool.py`.
"""

from __future__ import annotations

import contextlib
import os
import pickle
import queue
import struct
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, BinaryIO

from tilewright.base import garbage
from tilewright.base.errors import TilewrightError
from tilewright.targets.atoms import Added
from tilewright.targets.kind import Origin

HEADER = struct.Struct("<Q")


@dataclass(frozen=True)
class Start:
    """memory_bytes: address space that this process may use, or None.  warm: called at once.

    limits: names and values of more limits, as the module `resource` has them
    origins: the modules with device kinds that the parent has registered; nothing else is imported
    """

    memory_bytes: int | None
    warm: Callable[[], object] | None
    origins: tuple[Origin, ...] = ()
    limits: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Raised:
    """The answer to a call that raised: the exception in words, with its traceback.

    error: the exception itself where it is one of Tilewright's, which can cross processes
    """

    message: str
    error: TilewrightError | None = None


def main() -> None:
    """Serve standard input.  Whatever else is written to standard output goes to standard error."""
    source = os.fdopen(os.dup(0), "rb")
    sink = os.fdopen(os.dup(1), "wb")
    null = os.open(os.devnull, os.O_RDONLY)
    os.dup2(null, 0)
    os.dup2(2, 1)
    start = _read(source)
    _confine(start)
    for origin in start.origins:
        origin.load()
    if start.warm is not None:
        start.warm()
    garbage.look_seldom()
    calls: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_listen, args=(source, calls), daemon=True).start()
    _write(sink, "ready")
    while True:
        _write(sink, _answer(calls.get()))


def with_atoms(atoms: Sequence[Added], function: Callable[..., Any], args: Sequence[Any]) -> Any:
    """Call a function where matrix instructions are known that users added elsewhere."""
    for own in atoms:
        own.add()
    return function(*args)


def _listen(source: BinaryIO, calls: queue.SimpleQueue[bytes]) -> None:
    """Hand over calls; end the process with its parent, even inside a kernel that never returns."""
    while True:
        frame = _read_frame(source)
        if frame is None:
            os._exit(0)
        calls.put(frame)


def _answer(frame: bytes) -> object:
    try:
        function, args = pickle.loads(frame)
        return function(*args)
    except TilewrightError as error:
        return Raised(str(error), error)
    except MemoryError as error:
        return Raised(f"out of memory: {error}")
    except Exception as error:
        text = "".join(traceback.format_exception(error))
        return Raised(f"{type(error).__name__}: {error}\n\n{text}")


def _confine(start: Start) -> None:
    with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as f:
        f.write("1000")  # when memory runs out, this process goes before its parent
    limits = list(start.limits)
    if start.memory_bytes is not None:
        limits.append(("RLIMIT_AS", start.memory_bytes))
    if limits:
        import resource

        for name, value in limits:
            with contextlib.suppress(OSError, ValueError):
                resource.setrlimit(getattr(resource, name), (value, value))


def _read(source: BinaryIO) -> Any:
    frame = _read_frame(source)
    if frame is None:
        sys.exit(0)
    return pickle.loads(frame)


def _read_frame(source: BinaryIO) -> bytes | None:
    header = source.read(HEADER.size)
    if len(header) < HEADER.size:
        return None
    (size,) = HEADER.unpack(header)
    body = source.read(size)
    return body if len(body) == size else None


def _write(sink: BinaryIO, value: object) -> None:
    try:
        body = pickle.dumps(value, protocol=pickle.HIGHEST_PROTOCOL)
    except Exception as error:
        body = pickle.dumps(Raised(f"the answer cannot be sent: {error}"))
    try:
        sink.write(HEADER.pack(len(body)) + body)
        sink.flush()
    except BrokenPipeError:
        os._exit(0)
