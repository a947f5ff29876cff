"""Builds as messages: a `Job` becomes `wire.Build` and is one again there; `Built` and `wire.Made`.

In: jobs and results of this side.  Out: messages, and the same from messages of a stranger.
Read next: `builder.py` (who asks), `board.py` (who builds).
"""

from __future__ import annotations

from dataclasses import asdict, fields
from typing import Any

import msgspec

from tilewright.base.dtype import json_name
from tilewright.base.errors import DeviceError
from tilewright.farm import bounds, wire
from tilewright.measure.jobs import Built, Job
from tilewright.measure.record import TaskId
from tilewright.runtime import artifact_file
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Limits, Target

_SPEC_FIELDS = [name for name in wire.Spec.__struct_fields__ if name != "has_llvm"]


def asked(job: Job | None, target: Target, timeout: float) -> wire.Build:
    """job: None asks for what is known to be good.  Raises DeviceError for no plain data."""
    spec = None
    if target.device is not None:
        known = asdict(target.device)
        del known["shares_host"]
        spec = wire.Spec(**known)
    host = "" if target.host is None else str(target.host)
    base = _target(str(target), spec, host).limits
    pairs = [(f.name, getattr(target.limits, f.name)) for f in fields(Limits)]
    limits = tuple((name, value) for name, value in pairs if value != getattr(base, name))
    try:
        payload = (
            b"" if job is None else msgspec.msgpack.encode(dict(job.payload), enc_hook=json_name)
        )
    except (TypeError, OverflowError, RecursionError) as error:
        raise DeviceError(
            "build on a farm", f"this candidate is no plain data ({error})",
            "Build it here: LocalBuilder(build_func=...).",
        ) from None  # fmt: skip
    return wire.Build(payload, str(target), timeout, spec, limits, host)


def job_of(message: wire.Build) -> Job:
    """Raises TilewrightError for a target that is not known here, DeviceError for no payload."""
    target = _target(message.target, message.device, message.host)
    target = target.with_limits(**dict(message.limits))
    try:
        payload = msgspec.msgpack.decode(message.payload) if message.payload else {}
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise wire.malformed("build", str(error)) from None
    if not isinstance(payload, dict):
        raise wire.malformed("build", f"a {type(payload).__name__} as payload")
    return Job(TaskId("build", [], "build", message.target), payload, None, target=target)


def made(built: Built) -> wire.Made:
    data = b"" if built.artifact is None else artifact_file.to_bytes(built.artifact)
    if len(data) > bounds.WHOLE_BYTES:
        return wire.Made(b"", "compile", f"an artefact of {len(data)} bytes", built.seconds)
    return wire.Made(data, built.error, built.message[:10_000], built.seconds, built.cause)


def built(message: wire.Message, target: Target) -> Built:
    """Raises DeviceError for what is no answer, or one that contradicts itself."""
    if not isinstance(message, wire.Made):
        raise wire.malformed("builder", type(message).__name__)
    given: Any = message
    if message.error is not None:
        return Built(None, given.error, given.message, given.seconds, given.cause)
    artifact = artifact_file.from_bytes(message.artifact, "artefact")
    if Target(artifact.source.target).kind != target.kind:
        raise DeviceError("builder", f"it built for {artifact.source.target}, asked for {target}")
    return Built(artifact, seconds=message.seconds)


def _target(text: str, spec: wire.Spec | None, host: str) -> Target:
    target = Target(text, host or None)
    if spec is None:
        return target
    known: dict[str, Any] = {name: getattr(spec, name) for name in _SPEC_FIELDS}
    return target.on(DeviceSpec(**known))
