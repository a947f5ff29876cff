"""What a device that is here really reaches: bytes per second, and what it takes to start a kernel.

In: a target.  Out: `Ceilings`, kept in the cache folder for reports to come, by the device's make.
Three additions of one are timed: of few numbers, of what stays in the cache, of what does not.
On a processor the cache is the nearest one, of all cores together.
Rates of arithmetic stay those of the model: what a kernel reaches of them is less than they are.
Read next: `cost/ceilings.py`, `collect.py`.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec

from tilewright import front, te
from tilewright.base.errors import DeviceError
from tilewright.cost.ceilings import Ceilings, ceilings_of, from_json
from tilewright.driver.cache import default_cache
from tilewright.measure.signatures import code_key
from tilewright.runtime.device import local_target
from tilewright.targets.target import Target, TargetLike
from tilewright.te.tensor import Tensor

FEW = 64  # numbers
LARGE = 256 << 20  # bytes that no cache holds
NEAR = 16 << 10  # bytes that the nearest cache of any core holds
_REPEATS, _REPEAT_MS = 7, 10.0


def ceilings_here(target: TargetLike, fingerprint: str = "") -> Ceilings:
    """The ceilings of this machine's device for a target, measured now or once before; the first
    time takes some seconds.

    fingerprint: of the device that is asked for; "": whichever is here
    Raises DeviceError where it is not here.
    """
    asked = Target(target)
    chosen, device = local_target(asked)
    if device is None or fingerprint not in ("", device.spec.fingerprint):
        raise DeviceError(
            f"ceilings of {fingerprint or target}", "that device is not here",
            "Leave --measure out, or call it on the machine with the device.",
        )  # fmt: skip
    key = code_key("ceilings", str(asked), device.spec.fingerprint)
    kept = _read(default_cache().kept(key))
    if kept is None:
        kept = _measured(chosen)
        default_cache().keep(key, msgspec.json.encode(kept.to_json()))
    return kept


def _read(data: bytes | None) -> Ceilings | None:
    try:
        return from_json(msgspec.json.decode(data or b"null"))
    except msgspec.DecodeError:
        return None


def _measured(target: Target) -> Ceilings:
    known = ceilings_of(target)
    few = _seconds(target, FEW)
    far = _seconds(target, LARGE // 8)
    memory = LARGE / max(far - few, far / 2)
    # Two arrays: on a GPU half of its cache, on a processor what the nearest cache of a core holds.
    inside = known.cache_bytes // 16 if target.has_threads else NEAR // 8
    near = _seconds(target, max(inside, FEW))
    cache = 8 * inside / max(near - few, near / 4)
    cache *= 1 if target.has_threads else target.limits.cores
    return replace(known, launch=few, memory=memory, cache=max(cache, memory))


def _seconds(target: Target, count: int) -> float:
    """Of adding one to so many numbers; the fastest repeat."""

    def plus_one(n: int) -> list[Tensor]:
        x = te.placeholder((n,), "float32", "x")
        return [x, te.compute((n,), lambda i: x[i] + 1.0, "y")]

    run = front.compile(front.task(plus_one, (count,), target), verify=False)
    return run.benchmark(repeat=_REPEATS, number=2, min_repeat_ms=_REPEAT_MS).min
