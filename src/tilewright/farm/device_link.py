"""`DeviceLink`: a tuner's connection to one device that it was lent.

In: jobs of the pipeline.  Out: results.  Files go once per connection: the device says what it does
not have.  Read next: `runner.py`, `board.py` (the other side).
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from tilewright.base.errors import DeviceError
from tilewright.farm import wire
from tilewright.farm.client import user_name
from tilewright.farm.file_store import hash_of
from tilewright.farm.network import Line, opened, refusal_raised
from tilewright.measure.jobs import RunJob, RunResult
from tilewright.measure.reference import Reference
from tilewright.runtime import artifact_file
from tilewright.targets.spec import DeviceSpec

_BOOT_SECONDS = 300.0  # beyond its deadline, for the start of a process on a slow, busy device
_PATIENCE = 4.0  # deadlines of a process that shares its core, as `measure.pool` has it


@dataclass(frozen=True)
class SentReference:
    """A reference as files: what they are called, their hashes, where they lie here."""

    data: wire.Data
    paths: dict[str, Path]

    @classmethod
    def of(cls, reference: Reference) -> SentReference:
        """Raises OSError where they cannot be read."""
        named = {p.name: p for p in sorted(Path(reference.directory).glob("*.npy"))}
        files = tuple((name, hash_of(path.read_bytes())) for name, path in named.items())
        counts = reference.inputs, reference.outputs, reference.also
        data = wire.Data(files, *counts, reference.given, reference.constants)
        return cls(data, {digest: named[name] for name, digest in files})


class Unsent(Exception):
    """A file of this machine cannot be read, so that nobody is sent it."""


class DeviceLink:
    """Raises OSError, from any method, where the device is gone; DeviceError where it refuses.

    has_llvm: as it was described last
    """

    has_llvm = True

    def __init__(self, line: Line) -> None:
        self._line = line
        self._sent: set[str] = set()
        self._turn = asyncio.Lock()

    @classmethod
    async def open(cls, device: str, context: ssl.SSLContext | None) -> DeviceLink:
        return cls(await opened(device, context, user_name()))

    @property
    def closed(self) -> bool:
        return self._line.closed

    def abort(self) -> None:
        self._line.abort()

    async def describe(self, kind: str, index: int) -> DeviceSpec:
        async with self._turn:
            answer = await self._line.ask(wire.Describe(kind, index))
        spec = described(answer)
        self.has_llvm = getattr(answer, "has_llvm", True)
        return spec

    async def run(
        self, run: RunJob, timing: wire.Timing, reference: SentReference | None, fresh: bool
    ) -> RunResult:
        """Try one artefact there."""
        assert run.artifact is not None
        blob = artifact_file.to_bytes(run.artifact)
        name = hash_of(blob)
        asked = wire.Run(
            artifact=name, dag=run.job.task.dag[:200], timing=timing,
            data=None if reference is None else reference.data, best_seconds=run.best_seconds,
            verify=run.verify and reference is not None, race=run.race, control=run.control,
            fresh=fresh,
        )  # fmt: skip
        paths = {} if reference is None else reference.paths
        async with self._turn:
            for digest, path in paths.items():
                await self._send_once(digest, path.read_bytes)
            await self._send_once(name, lambda: blob)
            while True:
                await self._line.write(asked)
                answer = await self._answered(_PATIENCE * timing.timeout + timing.cooldown)
                if not isinstance(answer, wire.Missing):
                    break
                self._sent -= set(answer.names)  # it made room
                for digest in answer.names:
                    lies = paths.get(digest)
                    await self._send_once(digest, lies.read_bytes if lies else lambda: blob)
        if not isinstance(answer, wire.Ran):
            raise wire.malformed("device", type(answer).__name__)
        return _result(answer)

    async def build(self, asked: wire.Build) -> wire.Made:
        """Build one candidate there."""
        async with self._turn:
            await self._line.write(asked)
            answer = await self._answered(_PATIENCE * asked.timeout)
        if not isinstance(answer, wire.Made):
            raise wire.malformed("builder", type(answer).__name__)
        return answer

    async def _answered(self, seconds: float) -> wire.Message:
        """The answer to what runs there for so long at most.  Raises TimeoutError, an OSError,
        where it does not come."""
        seconds += _BOOT_SECONDS
        while True:
            async with asyncio.timeout(seconds):
                answer = refusal_raised(await self._line.read())
            if not isinstance(answer, (wire.Started, wire.Stored)):
                return answer

    async def _send_once(self, name: str, content: Callable[[], bytes]) -> None:
        if name in self._sent:
            return
        try:
            data = content()
        except OSError as error:  # the device is not to blame
            raise Unsent(f"it cannot be sent ({error})") from None
        for part in parts(name, data):
            await self._line.write(part)
        self._sent.add(name)


def described(answer: wire.Message) -> DeviceSpec:
    """What a device says it is.  It computes on no processor of this machine."""
    if not isinstance(answer, wire.Spec):
        raise wire.malformed("device", type(answer).__name__)
    fields = {f: getattr(answer, f) for f in answer.__struct_fields__ if f != "has_llvm"}
    return DeviceSpec(**fields, shares_host=False)


def parts(name: str, data: bytes) -> Iterable[wire.Part]:
    """A file in pieces that fit a message."""
    view = memoryview(data)
    for at in range(0, max(len(data), 1), wire.PART_BYTES):
        yield wire.Part(name, at, len(data), bytes(view[at : at + wire.PART_BYTES]))


async def send_file(line: Line, name: str, data: bytes) -> None:
    """Send a file and wait until it is kept.  Raises DeviceError, OSError."""
    for part in parts(name, data):
        await line.write(part)
    answer = refusal_raised(await line.read())
    if not isinstance(answer, wire.Stored):
        raise wire.malformed("device", type(answer).__name__)


def _result(answer: wire.Ran) -> RunResult:
    """Raises DeviceError for a result that contradicts itself."""
    if (answer.error is None) != bool(answer.costs):
        raise DeviceError("device", "it sent a result with neither costs nor an error, or both")
    fields = {f: getattr(answer, f) for f in answer.__struct_fields__}
    return RunResult(**fields)
