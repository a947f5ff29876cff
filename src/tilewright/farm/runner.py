"""`FarmRunner`: trials on all devices of a key, behind the same protocol as `LocalRunner`.

In: `RunJob`s.  Out: futures of `RunResult`.  N devices try N candidates at once.  A device that is
lost costs nobody anything; when none is left, trials fail as the machine's fault, and the search
waits as it does for a device of its own.  Devices of another make than the first are not used,
since times of different makes do not compare; those of one make that differ are reported.
Read next: `dispatch.py` (who does what), `device_link.py`, `client.py`.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from tilewright.base.errors import DeviceError, ModelError, TilewrightError
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.driver.doctor import small_source
from tilewright.driver.linking import for_boards
from tilewright.farm import address, wire
from tilewright.farm.client import TrackerClient, summary
from tilewright.farm.device_link import DeviceLink, SentReference
from tilewright.farm.dispatch import Dispatch, Settled, Ticket
from tilewright.farm.network import check_installed, soon
from tilewright.measure.flow import median
from tilewright.measure.jobs import Job, RunJob, RunResult
from tilewright.measure.record import TaskId
from tilewright.measure.reference import Reference
from tilewright.targets.kind import kind as device_kind
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

T = TypeVar("T")
EMPTY_SECONDS = 5.0  # without any device of the key, until what waits is given up
LOST_SECONDS = 30.0  # the same where there were devices: they, or the tracker, may come back
BUSY_SECONDS = 60.0  # for a device to become free, when only what it is shall be asked
DIFFERENCE = 0.1  # two devices of a make may differ by this share
_YARDSTICK_SECONDS = 20e-6  # kernels shorter than this tell little about a device
_YARDSTICK_TRIALS = 200  # of a device, until it is compared again
_CHECK_SECONDS = 0.25

Notice = Callable[[str], object]
_Work = Callable[[str, DeviceLink], Awaitable[Any]]


@dataclass
class _Order:
    """What a ticket stands for.  failed: whether a value means that the work failed."""

    work: _Work
    future: Future[Any]
    kind: str
    failed: Callable[[Any], bool]


class FarmRunner:
    """Tries candidates on the devices that the tracker at host:port has for `key`.

    host, port:   default: TVM_TRACKER_HOST and TVM_TRACKER_PORT
    priority:     who has a higher one gets devices first
    timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, race, index:
                  as `LocalRunner` has them
    certificates: folder with them; default: see `tilewright farm certificates`
    on_notice:    told of devices that are lost, left out, or differ; default: a Python warning
    Raises DeviceError where the tracker cannot be reached or refuses the certificate.
    """

    def __init__(
        self,
        key: str,
        host: str | None = None,
        port: int | None = None,
        *,
        priority: int = 1,
        timeout: float = 10.0,
        number: int = 4,
        repeat: int = 3,
        min_repeat_ms: float = 0,
        cooldown_interval: float = 0.0,
        enable_cpu_cache_flush: bool = False,
        race: bool = True,
        index: int = 0,
        certificates: str | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        check_installed()
        self.key, self.timeout, self.race, self.index = key, timeout, race, index
        self._timing = checked_timing(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, index
        )
        self._place = address.tracker_address(host, port)
        self._certificates, self._priority = certificates, priority
        self._on_notice = on_notice or _warn
        self._dispatch = Dispatch()
        self._links: dict[str, DeviceLink] = {}
        self._specs: dict[str, DeviceSpec] = {}  # by kind: of the make that is used
        self._known: dict[tuple[str, str], DeviceSpec] = {}  # by device and kind
        self._references: dict[Reference, SentReference] = {}
        self._yardstick = _Yardstick()
        self._empty_since: float | None = time.monotonic()
        self._connected = False
        self._wanted: tuple[int, frozenset[str]] = (0, frozenset())
        self._deliver = ThreadPoolExecutor(1, thread_name_prefix="tilewright farm results")
        self._tasks: set[asyncio.Task[Any]] = set()
        self._closed = False
        self._client = TrackerClient(*self._place, certificates, self)
        soon(self._start()).result()

    @property
    def n_parallel(self) -> int:
        """How many devices there are now."""
        return max(self._dispatch.useful, 1)

    def describe(self, target: Target) -> DeviceSpec:
        """The make of the devices.  Raises DeviceError where there is none, or none gets free."""
        kind = str(target.kind)
        if kind not in self._specs:
            self._specs[kind] = self._ask(kind)
        return self._specs[kind]

    def submit(self, run: RunJob) -> Future[RunResult]:
        """Try one candidate on whatever device gets free."""
        return self._submit(replace(run, race=run.race and self.race), fresh=False)

    def probe(self, target: Target) -> None:
        """Run a small kernel in a new process of a device.

        Devices that were left out get another chance.  Raises DeviceError where that fails.
        """
        soon(self._forgive()).result()
        known, full = device_kind(target.kind), target.on(self.describe(target))
        if not known.sanity:
            return
        artifact = compile_source(small_source(known), full, Cache(None))
        job = Job(TaskId("probe", [], "probe", str(target)), {}, None, target=full)
        result = self._submit(RunJob(job, artifact, control=True), fresh=True).result()
        if result.error is not None:
            raise DeviceError(f"devices of {self.key}", result.message, _STATUS_HINT)

    def close(self) -> None:
        """Give up what is under way, and everything that was lent."""
        if not self._closed:
            self._closed = True
            soon(self._stop()).result()
            self._deliver.shutdown(wait=False)

    def __enter__(self) -> FarmRunner:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- from other threads ------------------------------------------------------------------------
    def _ask(self, kind: str) -> DeviceSpec:
        async def work(device: str, link: DeviceLink) -> DeviceSpec | TilewrightError:
            try:
                return await link.describe(kind, self.index)
            except DeviceError as refused:
                return refused

        future: Future[Any] = Future()
        soon(self._add(_Order(work, future, "", lambda _: False)))
        try:
            answer = future.result(BUSY_SECONDS)
        except TimeoutError:
            raise DeviceError(
                f"key {self.key!r}", f"no device got free within {BUSY_SECONDS:g} s",
                "Others are using them: wait, give a priority=, or start more servers.",
            ) from None  # fmt: skip
        if isinstance(answer, RunResult):
            raise DeviceError(f"key {self.key!r}", answer.message, _STATUS_HINT)
        if isinstance(answer, TilewrightError):
            raise answer
        spec: DeviceSpec = answer
        return spec

    def _submit(self, run: RunJob, fresh: bool) -> Future[RunResult]:
        async def work(device: str, link: DeviceLink) -> RunResult:
            return await self._run_on(device, link, run, fresh)

        future: Future[RunResult] = Future()
        kind = str(run.job.full_target.kind)
        order = _Order(work, future, kind, lambda result: result.error is not None)
        soon(self._add(order, twice=not run.control and not fresh))
        return future

    # -- in the thread of the network --------------------------------------------------------------
    async def _start(self) -> None:
        await self._client.start()
        self._keep(asyncio.ensure_future(self._watch()))

    async def _stop(self) -> None:
        self._client.close()
        for task in list(self._tasks):
            task.cancel()
        for link in self._links.values():
            link.abort()
        for settled in [*self._dispatch.give_up("the runner was closed")]:
            settled.ticket.work.future.cancel()
        for ticket in self._dispatch.doing.values():
            ticket.work.future.cancel()

    async def _forgive(self) -> None:
        self._dispatch.forgive()
        self._say_wants()

    async def _add(self, order: _Order, twice: bool = True) -> None:
        if self._closed:
            order.future.cancel()
            return
        self._dispatch.add(order, twice)
        self._say_wants()

    def connected(self) -> None:
        self._connected, self._wanted = True, (-1, frozenset())
        self._say_wants()

    def disconnected(self, why: str) -> None:
        self._connected = False
        self._notify(f"The tracker is lost ({why}); trials under way go on, and it is tried again.")

    def granted(self, key: str, device: str) -> None:
        ticket = self._dispatch.granted(device)
        if ticket is None:
            self._client.send(wire.Release(device))
        else:
            self._keep(asyncio.ensure_future(self._serve(device, ticket)))
        self._wanted = (self._wanted[0] - 1, self._wanted[1])
        self._say_wants()

    def lost(self, device: str, why: str) -> None:
        link = self._links.pop(device, None)
        if link is not None:
            link.abort()  # whoever reads from it is told

    def counted(self, key: str, total: int) -> None:
        self._dispatch.total = total
        self._empty_since = None if total else self._empty_since or time.monotonic()
        self._settle(*self._dispatch.alone())
        self._say_wants()

    async def _serve(self, device: str, ticket: Ticket) -> None:
        """Let a device do its work, whatever comes of it."""
        order: _Order = ticket.work
        settled: list[Settled] = []
        try:
            link = await self._link(device)
            if order.kind and not await self._is_alike(device, link, order.kind):
                return
            value = await order.work(device, link)
            settled += self._dispatch.done(device, value, order.failed(value))
        except DeviceError as refused:
            self._dispatch.leave_out(device, str(refused))
        except OSError as error:
            self.lost(device, "")
            settled += self._dispatch.lost(device, str(error) or type(error).__name__)
        except Exception as error:  # a fault of ours, which must not lose the trial
            order.future.set_exception(error)
            self._dispatch.doing.pop(device, None)
        finally:
            self._client.send(wire.Release(device))
            self._settle(*settled, *self._dispatch.alone())
            self._say_wants()

    async def _link(self, device: str) -> DeviceLink:
        link = self._links.get(device)
        if link is None or link.closed:
            link = self._links[device] = await DeviceLink.open(device, self._client.context)
        return link

    async def _is_alike(self, device: str, link: DeviceLink, kind: str) -> bool:
        """Whether it is of the make that is used; asked once of each device."""
        spec = self._known.get((device, kind))
        if spec is None:
            spec = self._known[device, kind] = await link.describe(kind, self.index)
        chosen = self._specs.setdefault(kind, spec)
        if spec.fingerprint == chosen.fingerprint:
            return True
        self._dispatch.leave_out(
            device, f"it is a {spec.name}, the others are {chosen.name}: give it a key of its own"
        )
        return False

    async def _run_on(self, device: str, link: DeviceLink, run: RunJob, fresh: bool) -> RunResult:
        try:
            sent = self._sent_reference(run.job.reference)
            assert run.artifact is not None
            run = replace(run, artifact=await asyncio.to_thread(for_boards, run.artifact))
        except (OSError, ModelError) as error:
            message = f"it cannot be sent ({error})"
            return RunResult(error="run", message=message, cause="machine")
        yardstick = self._yardstick
        if not run.control and yardstick.is_due(device):
            assert yardstick.run is not None
            again = replace(yardstick.run, verify=False, race=False, control=True)
            told = self._sent_reference(again.job.reference)
            measured = await link.run(again, self._timing, told, fresh=False)
            self._notify(*yardstick.compare(device, measured))
        result = await link.run(run, self._timing, sent, fresh)
        yardstick.note(device, run, result)
        return result

    def _sent_reference(self, reference: Reference | None) -> SentReference | None:
        if reference is None:
            return None
        if reference not in self._references:
            self._references[reference] = SentReference.of(reference)
        return self._references[reference]

    def _settle(self, *settled: Settled) -> None:
        for one in settled:
            self._deliver.submit(_finish, one)
        self._notify(*self._dispatch.notices)
        self._dispatch.notices.clear()

    def _say_wants(self) -> None:
        """Tell the tracker how many devices there is work for, where that has changed."""
        count, without = self._dispatch.wanted
        wanted = min(count, 2 * max(self._dispatch.total, 1)), without
        if wanted != self._wanted:
            self._wanted = wanted
            names = tuple(sorted(without))[:1000]
            self._client.send(wire.Want(self.key, wanted[0], self._priority, names))

    async def _watch(self) -> None:
        """Give up what waits when there has been no device for long."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            usable = self._connected and self._dispatch.useful
            if usable or self._dispatch.doing:
                self._empty_since = None
            elif self._empty_since is None:
                self._empty_since = now
            elif now - self._empty_since > self._patience and self._dispatch.wanted[0]:
                self._settle(*self._dispatch.give_up(await self._why_empty()))
                self._say_wants()

    @property
    def _patience(self) -> float:
        """Seconds without a device; where all that there are were left out, none comes back."""
        return LOST_SECONDS if self._known and not self._dispatch.left_out else EMPTY_SECONDS

    async def _why_empty(self) -> str:
        host, port = self._place
        if not self._connected:
            return f"the tracker at {host}:{port} is gone"
        if self._dispatch.left_out:
            return "; ".join(f"{d}: {why}" for d, why in self._dispatch.left_out.items())
        with suppress(TilewrightError):
            known = await summary(host, port, self._certificates)
            keys = ", ".join(row.key for row in known.rows if row.total) or "none"
            return f"the tracker at {host}:{port} has no device of this key; it has {keys}"
        return f"the tracker at {host}:{port} has no device of this key"

    def _notify(self, *texts: str) -> None:
        for text in texts:
            self._deliver.submit(self._on_notice, text)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_STATUS_HINT = "`python -m tilewright.exec.query_rpc_tracker` shows which devices there are."


class _Yardstick:
    """One kernel, timed on every device, so that devices that differ are noticed."""

    def __init__(self) -> None:
        self.run: RunJob | None = None
        self._seconds: dict[str, float] = {}
        self._trials: dict[str, int] = {}

    def note(self, device: str, run: RunJob, result: RunResult) -> None:
        self._trials[device] = self._trials.get(device, 0) + 1
        if self.run is not None or not result.verified or not result.costs or result.raced:
            return
        if median(result.costs) >= _YARDSTICK_SECONDS:
            self.run, self._seconds[device] = run, median(result.costs)

    def is_due(self, device: str) -> bool:
        return self.run is not None and (
            device not in self._seconds or self._trials[device] >= _YARDSTICK_TRIALS
        )

    def compare(self, device: str, measured: RunResult) -> list[str]:
        """What to tell the user."""
        self._trials[device] = 0
        if not measured.costs:
            return []
        seconds = median(measured.costs)
        before = self._seconds.get(device)
        self._seconds[device] = seconds
        if before is None:
            other, then = next(iter(self._seconds.items()))
            what = f"{device} and {other} differ"
        else:
            then, what = before, f"{device} has changed its speed"
        ratio = max(seconds, then) / min(seconds, then)
        if ratio <= 1 + DIFFERENCE:
            return []
        return [
            f"{what}: the same kernel takes {seconds * 1e3:.4g} and {then * 1e3:.4g} ms.  Times of "
            "the two do not compare; look at their clocks, power and other programs."
        ]


def checked_timing(
    timeout: float, number: int, repeat: int, min_repeat_ms: float, cooldown: float, flush: bool,
    index: int,
) -> wire.Timing:  # fmt: skip
    """Raises DeviceError for what no device accepts."""
    import msgspec

    fields = {
        "timeout": timeout, "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
        "cooldown": cooldown, "flush": flush, "index": index,
    }  # fmt: skip
    try:
        return msgspec.convert(fields, wire.Timing)
    except msgspec.ValidationError as error:
        raise DeviceError("RPCRunner", str(error), "Try number=4, repeat=3, timeout=10.") from None


def _finish(settled: Settled) -> None:
    """Give the result to whoever waits for it, and run what he does then."""
    future: Future[Any] = settled.ticket.work.future
    if future.done() or not future.set_running_or_notify_cancel():
        return
    opinion = settled.opinion
    if opinion is None:
        suspected = settled.ticket.losses > 0
        future.set_result(RunResult(
            error="run", message=settled.why, cause="killed" if suspected else "machine",
            fatal=suspected,
        ))  # fmt: skip
        return
    value = opinion.value
    if settled.confirmed and isinstance(value, RunResult) and value.error is not None:
        first: RunResult = settled.ticket.first.value  # type: ignore[union-attr]  # confirmed
        if first.error == value.error and "machine" not in (first.cause, value.cause):
            value = replace(value, cause="candidate", fatal=False)
    future.set_result(value)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
