"""The tracker: a Dask scheduler that knows devices by key and lends them to tuners.

In: a host, a port, certificates.  Out: a process that runs until it is stopped.  Devices are Dask's
workers: they register and send heartbeats, and where they are killed or cut off, Dask says so.
Tuners speak to it over one connection each; it ends, and with it their leases, when they do.
The scheduler does nothing else: whatever Dask offers to run code is taken out of it.
Read next: `leases.py`, `plain_comm.py`, `server.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed.comm.addressing import normalize_address
from distributed.comm.core import CommClosedError
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler, heartbeat_interval

from tilewright.base.errors import DeviceError
from tilewright.farm import wire
from tilewright.farm.leases import Leases
from tilewright.farm.network import OPERATION
from tilewright.farm.versions import VERSION
from tilewright.measure.run_folder import RunFolder

KEY = "tilewright-key"  # what a device registers with
SILENT_SECONDS = 4.0  # a device that says nothing for so long is given to nobody
_CHECK_SECONDS = 0.25
_GONE_SECONDS = 300.0  # a device that says nothing for so long is forgotten
_HOLDER_SECONDS = 15.0  # a tuner that says nothing for so long loses its devices
_LOG = logging.getLogger("tilewright.farm")
# What devices need of a scheduler; the rest of Dask's handlers would run code or move data.
_ALLOWED = {"register-worker", "unregister", "heartbeat_worker", "identity", OPERATION}
_OURS = ("register-worker", "heartbeat_worker")  # of these, which we hear as well
_ALLOWED_STREAMS = {"keep-alive", "worker-status-change", "log-event"}


class Tracker(SchedulerPlugin):
    """The part of the scheduler that lends devices."""

    name = "tilewright"

    def __init__(self, scheduler: Any) -> None:
        self.leases = Leases()
        self.scheduler = scheduler
        self._heard: dict[str, float] = {}  # by device; clocks of machines are not to be trusted
        self._holders: dict[str, _Holder] = {}
        self._told: dict[str, int] = {}  # key -> total, as holders know it
        self._watch = asyncio.ensure_future(self._watching())
        handlers = scheduler.handlers
        self._registered, self._beaten = (handlers[name] for name in _OURS)
        handlers.update(zip(_OURS, (self._register, self._heartbeat), strict=True))

    # -- devices: called by Dask -------------------------------------------------------------------
    async def _register(self, comm: Any, **said: Any) -> Any:
        """Who was cut off and started again comes before its old connection is known to be dead."""
        address = normalize_address(str(said.get("address")))
        before = self.scheduler.stream_comms.get(address)
        if before is not None:
            _LOG.info("%s has started again", address)
            before.abort()
            while address in self.scheduler.workers:  # until Dask has noticed
                await asyncio.sleep(0.01)
        return await self._registered(comm, **said)

    def _heartbeat(self, **said: Any) -> Any:
        self._heard[normalize_address(str(said.get("address")))] = time.monotonic()
        return self._beaten(**said)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        key = scheduler.workers[worker].extra.get(KEY)
        self._heard[worker] = time.monotonic()
        if isinstance(key, str):
            _LOG.info("%s joins with the key %s", worker, key)
            self.leases.join(worker, key)
            self._go_on()

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        self._heard.pop(worker, None)
        if worker in self.leases.devices:
            _LOG.info("%s is gone", worker)
            self._lost(self.leases.leave(worker, time.monotonic()), worker, "it is gone")
            self._go_on()

    async def _watching(self) -> None:
        """Find out who says nothing any more."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            # of many devices Dask wants fewer signs of life
            patience = max(SILENT_SECONDS, 2.5 * heartbeat_interval(len(self.leases.devices)))
            for address, device in list(self.leases.devices.items()):
                since = now - self._heard.get(address, now)
                silent = since > patience
                if since > _GONE_SECONDS:
                    await self.scheduler.remove_worker(address, stimulus_id="silent")
                elif silent and not device.silent:
                    _LOG.warning("%s has said nothing for %g s", address, patience)
                    had = self.leases.fall_silent(address, now)
                    self._lost(had, address, f"nothing was heard of it for {patience:g} s")
                elif device.silent and not silent:
                    _LOG.info("%s is heard of again", address)
                    self.leases.speak(address)
            for holder in list(self._holders.values()):
                if now - holder.heard > _HOLDER_SECONDS:
                    _LOG.warning("%s says nothing any more", holder.name)
                    holder.comm.abort()
            self._go_on()

    # -- tuners ------------------------------------------------------------------------------------
    async def serve(self, comm: Any, **_: Any) -> Any:
        """Speak with one tuner until it goes."""
        holder = _Holder(comm, f"{comm.peer_address}")
        try:
            hello = wire.check_hello(await _read(comm), holder.name)
            holder.name = f"{hello.user} at {comm.peer_address}"
            await comm.write(wire.encoded(wire.Hello(wire.PROTOCOL, VERSION)))
            self._holders[holder.name] = holder
            while True:
                message = await _read(comm)
                holder.heard = time.monotonic()
                self._take(holder, message)
        except DeviceError as error:
            _LOG.warning("refused %s: %s", holder.name, error)
            refused = wire.Refused(error.place, error.reason, error.way_out)
            with suppress(OSError):
                await comm.write(wire.encoded(refused))
                await comm.close()
        except (CommClosedError, OSError):
            pass
        finally:
            self._holders.pop(holder.name, None)
            self.leases.gone(holder.name, time.monotonic())
            self._go_on()
            comm.abort()
        return Status.dont_reply

    def _take(self, holder: _Holder, message: wire.Message) -> None:
        now = time.monotonic()
        if isinstance(message, wire.Want):
            self.leases.want(
                holder.name, message.key, message.count, now, message.priority, message.without
            )
            if message.key not in holder.keys:
                holder.keys.add(message.key)
                holder.send(wire.Devices(message.key, self.leases.total(message.key)))
        elif isinstance(message, wire.Release):
            self.leases.release(holder.name, message.device, now)
        elif isinstance(message, wire.Ask):
            holder.send(wire.Summary(self.leases.rows(), self._members(now)))
        elif isinstance(message, wire.Ping):
            holder.send(message)
        else:
            raise wire.malformed(holder.name, f"{type(message).__name__} is not for a tracker")
        self._go_on()

    def _members(self, now: float) -> tuple[wire.Member, ...]:
        made = []
        for address, device in self.leases.devices.items():
            since = now - self._heard.get(address, now)
            made.append(wire.Member(address, device.key, since, device.holder or ""))
        return tuple(made)

    # -- what follows ------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Lend what is free, and tell who wants a key how many devices it has."""
        for grant in self.leases.grants(time.monotonic()):
            self._holders[grant.holder].send(wire.Granted(grant.key, grant.device))
        keys = {key for holder in self._holders.values() for key in holder.keys}
        for key in keys:
            total = self.leases.total(key)
            if self._told.get(key) != total:
                self._told[key] = total
                for holder in self._holders.values():
                    if key in holder.keys:
                        holder.send(wire.Devices(key, total))

    def _lost(self, name: str | None, address: str, why: str) -> None:
        holder = self._holders.get(name or "")
        if holder is not None:
            holder.send(wire.Lost(address, why))


class _Holder:
    """A tuner.  keys: of which it is told how many devices there are."""

    def __init__(self, comm: Any, name: str) -> None:
        self.comm, self.name = comm, name
        self.heard = time.monotonic()
        self.keys: set[str] = set()
        self._last: asyncio.Future[Any] | None = None

    def send(self, message: wire.Message) -> None:
        """Soon, in order; what cannot be sent is not needed, its connection is gone."""
        before, data = self._last, wire.encoded(message)

        async def write() -> None:
            if before is not None:
                await asyncio.wait([before])
            with suppress(OSError):
                await self.comm.write(data)

        self._last = asyncio.ensure_future(write())


async def _read(comm: Any) -> wire.Message:
    return wire.decoded(await comm.read(), comm.peer_address)


def attach(scheduler: Any) -> Tracker:
    """Make a tracker of a Dask scheduler, which goes on to be one."""
    tracker = Tracker(scheduler)
    scheduler.handlers[OPERATION] = tracker.serve
    scheduler.add_plugin(tracker)
    return tracker


async def dask_setup(scheduler: Any) -> None:
    """`dask scheduler --preload tilewright.farm.tracker`: a cluster that is there lends devices."""
    attach(scheduler)


class _Silent(Scheduler):
    """Without Dask's pages, which would be open to everybody who reaches the machine."""

    def start_http_server(self, *_: Any, **__: Any) -> None:
        pass


async def run_tracker(
    host: str, ports: range, security: Any, dashboard: str | None, ready: Callable[[str], object]
) -> None:
    """Be a tracker at the first free port until cancelled; `ready` is told its address.

    security: Dask's, or None to speak plainly; dashboard: address of Dask's pages, or None
    Raises DeviceError where no port is free.
    """
    own = RunFolder()  # Dask's usual one may belong to another user, and modules are found there
    for port in ports:
        scheduler = (_Silent if dashboard is None else Scheduler)(
            host=host, port=port, security=security, extensions={}, preload=[],
            protocol="tcp" if security is None else "tls", dashboard=dashboard is not None,
            dashboard_address=dashboard, http_prefix="", idle_timeout=None,
            local_directory=str(own.path),
        )  # fmt: skip
        scheduler.handlers = {k: v for k, v in scheduler.handlers.items() if k in _ALLOWED}
        scheduler.stream_handlers = {
            k: v for k, v in scheduler.stream_handlers.items() if k in _ALLOWED_STREAMS
        }
        scheduler.worker_ttl = None  # measured with this machine's clock, which may be set anew
        try:
            await scheduler
        except RuntimeError as error:
            with suppress(Exception):
                await scheduler.close()
            if isinstance(error.__cause__, OSError):
                continue
            raise
        attach(scheduler)
        ready(scheduler.address)
        try:
            await scheduler.finished()
        finally:
            await scheduler.close()
        return
    raise DeviceError(
        f"tracker at {host}", f"no port from {ports.start} to {ports.stop - 1} is free",
        "Name others with --port and --port-end.",
    )  # fmt: skip
