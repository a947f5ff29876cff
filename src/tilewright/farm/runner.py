"""`FarmRunner`: trials on all devices of a key, behind the same protocol as `LocalRunner`.

In: `RunJob`s.  Out: futures of `RunResult`.  N devices try N candidates at once.  A device that is
lost costs nobody anything; when none is left, trials fail as the machine's fault, and the search
waits as it does for a device of its own.  Devices of another make than the first are not used,
since times of different makes do not compare; those of one make that differ are reported.
Read next: `dispatch.py` (who does what), `device_link.py`, `client.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from concurrent.futures import Future
from contextlib import suppress
from dataclasses import replace
from threading import Event
from typing import Any

from tilewright.base.errors import DeviceError, ModelError, TargetError, TilewrightError
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source, compiler
from tilewright.driver.doctor import small_source
from tilewright.driver.linking import for_boards
from tilewright.farm import wire
from tilewright.farm.device_link import DeviceLink, SentReference, Unsent
from tilewright.farm.fleet import STATUS_HINT, Fleet, Notice, Order
from tilewright.farm.network import check_installed, soon
from tilewright.measure.jobs import Cause, Job, RunJob, RunResult
from tilewright.measure.record import TaskId
from tilewright.measure.reference import Reference
from tilewright.runtime.drivers import cpu_features
from tilewright.targets import processors
from tilewright.targets.kind import kind as device_kind
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

BUSY_SECONDS = 60.0  # for a device to become free, when only what it is shall be asked
DIFFERENCE = 0.1  # two devices of a make may differ by this share
_YARDSTICK_SECONDS = 20e-6  # kernels shorter than this tell little about a device
_YARDSTICK_TRIALS = 200  # of a device, until it is compared again


class FarmRunner(Fleet):
    """Tries candidates on the devices that the tracker at host:port has for `key`.

    host, port:   default: TVM_TRACKER_HOST and TVM_TRACKER_PORT
    priority:     who has a higher one gets devices first
    timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush, race, index,
    cold_bytes:   as `LocalRunner` has them
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
        cold_bytes: int = 0,
        certificates: str | None = None,
        on_notice: Notice | None = None,
    ) -> None:
        check_installed()
        self.timeout, self.race, self.index = timeout, race, index
        self._timing = checked_timing(
            timeout, number, repeat, min_repeat_ms, cooldown_interval, enable_cpu_cache_flush,
            index, cold_bytes,
        )  # fmt: skip
        self._specs: dict[str, DeviceSpec] = {}  # by kind: of the make that is used
        self._known: dict[tuple[str, str], DeviceSpec] = {}  # by device and kind
        self._opened: set[str] = set()  # kinds that were asked for
        self._fit: set[Target] = set()
        self._without_llvm: set[str] = set()
        self._references: dict[Reference, SentReference] = {}
        self._yardstick = _Yardstick()
        super().__init__(key, host, port, priority, certificates, on_notice)

    def describe(self, target: Target) -> DeviceSpec:
        """The make of the devices.  Raises DeviceError where there is none, or none gets free, and
        TargetError where they cannot run what is compiled for the target."""
        kind = str(target.kind)
        if kind not in self._specs:
            soon(self._open_all(kind))
            self._specs[kind] = self._ask(kind)
        spec = self._specs[kind]
        if target not in self._fit:
            _check_fit(target, _needs(target, spec), spec)
            self._fit.add(target)
        return spec

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
            raise DeviceError(f"devices of {self.key}", result.message, STATUS_HINT)

    def __enter__(self) -> FarmRunner:
        return self

    # -- from other threads ------------------------------------------------------------------------
    def _ask(self, kind: str) -> DeviceSpec:
        begun = Event()

        async def work(device: str, link: DeviceLink) -> DeviceSpec | TilewrightError:
            begun.set()
            try:
                return await self._spec(device, link, kind)
            except DeviceError as refused:
                reason = f"{refused.place}: {refused.reason}"
                return DeviceError(f"{device} of key {self.key!r}", reason, refused.way_out)

        future: Future[Any] = Future()
        soon(self._add(Order(work, future, "", lambda _: False, _given_up)))
        future.add_done_callback(lambda _: begun.set())
        if not begun.wait(BUSY_SECONDS):
            future.cancel()
            held, way_out = soon(self._holders()).result()
            raise DeviceError(
                f"key {self.key!r}",
                f"no device got free within {BUSY_SECONDS:g} s{held and ': '}{held}",
                way_out or "Others are using them: wait, give a priority=, or start more servers.",
                command=way_out or "Others are using them: wait, or start more servers.",
            )
        answer = future.result()  # a slow device may take a minute to start a process
        if isinstance(answer, RunResult):
            raise DeviceError(f"key {self.key!r}", answer.message, STATUS_HINT)
        if isinstance(answer, TilewrightError):
            raise answer
        spec: DeviceSpec = answer
        return spec

    def _submit(self, run: RunJob, fresh: bool) -> Future[RunResult]:
        async def work(device: str, link: DeviceLink) -> RunResult:
            return await self._run_on(device, link, run, fresh)

        future: Future[RunResult] = Future()
        kind = str(run.job.full_target.kind)
        order = Order(
            work, future, kind, lambda result: result.error is not None, _given_up, _agreed
        )
        soon(self._add(order, twice=not run.control and not fresh))
        return future

    # -- in the thread of the network --------------------------------------------------------------
    async def _open_all(self, kind: str) -> None:
        """Have every device open theirs now: the first trial of each would wait for it."""
        self._opened.add(kind)
        await self._open(kind, self._dispatch.total)

    async def _open(self, kind: str, devices: int) -> None:
        async def work(device: str, link: DeviceLink) -> None:
            with suppress(DeviceError):  # its trials will say so
                await self._spec(device, link, kind)

        for _ in range(devices):
            await self._add(Order(work, Future(), "", lambda _: False, _given_up), twice=False)

    def counted(self, key: str, total: int) -> None:
        unknown = not self._dispatch.total
        super().counted(key, total)
        if unknown:  # who joins later is opened by its first trial
            for kind in self._opened:
                self._keep(asyncio.ensure_future(self._open(kind, total)))

    def lost(self, device: str, why: str) -> None:
        """What comes back at that address may be another board."""
        super().lost(device, why)
        for known in [k for k in self._known if k[0] == device]:
            del self._known[known]
        self._without_llvm.discard(device)
        self._yardstick.forget(device)

    async def _spec(self, device: str, link: DeviceLink, kind: str) -> DeviceSpec:
        """What the device is; asked once of each."""
        spec = self._known.get((device, kind))
        if spec is None:
            spec = self._known[device, kind] = await link.describe(kind, self.index)
            if not link.has_llvm:
                self._without_llvm.add(device)
        return spec

    async def _accepts(self, device: str, link: DeviceLink, kind: str) -> bool:
        """Whether it is of the make that is used."""
        if not kind:
            return True
        spec = await self._spec(device, link, kind)
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
            target = run.job.full_target
            _check_fit(target, run.artifact.meta, self._specs[str(target.kind)])
            llvm = device not in self._without_llvm
            run = replace(run, artifact=await asyncio.to_thread(for_boards, run.artifact, llvm))
        except (OSError, ModelError) as error:
            message = f"it cannot be sent ({error})"
            return RunResult(error="run", message=message, cause="machine")
        if not run.control and self._yardstick.is_due(device):
            await self._compare(device, link)
        if run.best_seconds is not None:  # perhaps of another device
            run = replace(run, best_seconds=run.best_seconds * self._yardstick.slower(device))
        try:
            result = await link.run(run, self._timing, sent, fresh)
        except Unsent as error:
            return RunResult(error="run", message=str(error), cause="machine")
        self._yardstick.note(device, run, result)
        return result

    async def _compare(self, device: str, link: DeviceLink) -> None:
        """Time the yardstick there; twice where it differs, for something may have disturbed it."""
        yardstick, costs = self._yardstick, tuple[float, ...]()
        assert yardstick.run is not None
        again = replace(yardstick.run, verify=False, race=False, control=True)
        told = self._sent_reference(again.job.reference)
        try:
            for _ in range(2):
                costs += (await link.run(again, self._timing, told, fresh=False)).costs
                if not yardstick.differs(device, costs):
                    break
        except Unsent:  # its task has ended, and its inputs are gone
            self._yardstick = _Yardstick()
            return
        self._notify(*yardstick.compare(device, costs))

    def _sent_reference(self, reference: Reference | None) -> SentReference | None:
        if reference is None:
            return None
        if reference not in self._references:
            self._references[reference] = SentReference.of(reference)
        return self._references[reference]


class _Yardstick:
    """One kernel, timed on every device: those that differ are noticed, and none is raced against
    what a faster one has measured."""

    def __init__(self) -> None:
        self.run: RunJob | None = None
        self._seconds: dict[str, float] = {}
        self._trials: dict[str, int] = {}

    def note(self, device: str, run: RunJob, result: RunResult) -> None:
        self._trials[device] = self._trials.get(device, 0) + 1
        if self.run is not None or not result.verified or not result.costs or result.raced:
            return
        if min(result.costs) >= _YARDSTICK_SECONDS:
            self.run, self._seconds[device] = run, min(result.costs)

    def is_due(self, device: str) -> bool:
        return self.run is not None and (
            device not in self._seconds or self._trials.get(device, 0) >= _YARDSTICK_TRIALS
        )

    def slower(self, device: str) -> float:
        """How many times as long kernels take there as on the fastest device, as far as known."""
        own = self._seconds.get(device)
        return 1.0 if own is None else own / min(self._seconds.values())

    def forget(self, device: str) -> None:
        self._seconds.pop(device, None)
        self._trials.pop(device, None)

    def differs(self, device: str, costs: tuple[float, ...]) -> bool:
        """Whether it is slower or faster than it was, or than the others where it is new."""
        _, then = self._known(device)
        seconds = min(costs, default=then)
        return then > 0 and max(seconds, then) > (1 + DIFFERENCE) * min(seconds, then)

    def compare(self, device: str, costs: tuple[float, ...]) -> list[str]:
        """Take what was measured there; what to tell the user."""
        self._trials[device] = 0
        (other, then), differs = self._known(device), self.differs(device, costs)
        if not costs:
            return []
        seconds = self._seconds[device] = min(costs)
        if not differs:
            return []
        what = f"{device} and {other} differ"
        if other == device:
            what = f"{device} has changed its speed"
        return [
            f"{what}: the same kernel takes {seconds * 1e3:.4g} and {then * 1e3:.4g} ms.  Times of "
            "the two do not compare; look at their clocks, power and other programs."
        ]

    def _known(self, device: str) -> tuple[str, float]:
        """What its time is compared with, and whose that is: its own, or of the first device; 0
        where there is none."""
        if device in self._seconds:
            return device, self._seconds[device]
        return next(iter(self._seconds.items()), (device, 0.0))


def _needs(target: Target, spec: DeviceSpec) -> dict[str, Any]:
    """What a target's own options ask of a processor, as the `meta` of an artefact has it.

    Raises TargetError for a processor that LLVM does not know.
    """
    if not spec.code or not dict(target.options).keys() & {"mtriple", "mcpu", "mattr"}:
        return {}
    about = compiler(target).identity(target.on(spec))
    own = processors.architecture(dict(spec.code)["mtriple"])
    if processors.architecture(about["triple"]) != own:
        return about
    needs = cpu_features.required(about["triple"], about["cpu"], about["features"])
    return {**about, "needs": needs}


def _check_fit(target: Target, meta: Mapping[str, Any], spec: DeviceSpec) -> None:
    """Raises TargetError for code that the devices cannot run: no candidate would."""
    known = dict(spec.code)
    if why := cpu_features.unfit(meta, known):
        options = " ".join(
            f"-{name}={known[name]}" for name in ("mtriple", "mcpu") if name in known
        )
        raise TargetError(
            f"measure for {target}", f"{why} ({spec.name})",
            f"Use the target '{spec.kind} {options}', or a key whose devices run it.",
        )  # fmt: skip


def checked_timing(
    timeout: float, number: int, repeat: int, min_repeat_ms: float, cooldown: float, flush: bool,
    index: int, cold_bytes: int,
) -> wire.Timing:  # fmt: skip
    """Raises DeviceError for what no device accepts."""
    import msgspec

    fields = {
        "timeout": timeout, "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
        "cooldown": cooldown, "flush": flush, "index": index, "cold_bytes": cold_bytes,
    }  # fmt: skip
    try:
        return msgspec.convert(fields, wire.Timing)
    except msgspec.ValidationError as error:
        raise DeviceError("RPCRunner", str(error), "Try number=4, repeat=3, timeout=10.") from None


def _given_up(why: str, suspected: bool) -> RunResult:
    cause: Cause = "killed" if suspected else "machine"
    return RunResult(error="run", message=why, cause=cause, fatal=suspected)


def _agreed(first: RunResult, second: RunResult) -> RunResult:
    """Two devices that find the same fault are right."""
    if first.error == second.error and "machine" not in (first.cause, second.cause):
        return replace(second, cause="candidate", fatal=False)
    return second
