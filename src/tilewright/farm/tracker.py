"""The tracker: a Dask scheduler that knows devices by key and lends them to tuners.

In: a host, a port, certificates.  Out: a process that runs until it is stopped.  Devices are Dask's
workers: they register and send heartbeats, and where they are killed or cut off, Dask says so.
Tuners speak to it over one connection each; it ends, and with it their leases, when they do.
The scheduler does nothing else: of what Dask offers only registration and heartbeats are left, and
what is said in these is made anew before Dask gets it.
Read next: `leases.py`, `registration.py`, `plain_comm.py`, `server.py`.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import dask.config
from distributed.comm.addressing import normalize_address
from distributed.comm.core import CommClosedError
from distributed.core import Status
from distributed.diagnostics.plugin import SchedulerPlugin
from distributed.scheduler import Scheduler, heartbeat_interval

from tilewright.base.errors import DeviceError
from tilewright.farm import bounds, wire
from tilewright.farm.admission import DEVICE, TUNER, Gate, open_files, trackers_places
from tilewright.farm.leases import Leases
from tilewright.farm.network import OPERATION
from tilewright.farm.plain_comm import NOTES, OPERATIONS, OURS, House, admitted
from tilewright.farm.registration import KEY, Registration, figures, registration, token_of
from tilewright.farm.versions import VERSION
from tilewright.measure.run_folder import RunFolder

_CHECK_SECONDS = 0.25
_EVENTS_KEPT = "10s"  # by Dask, of a device that is gone
_LOG = logging.getLogger("tilewright.farm")
# What devices need of a scheduler, and what follows it on their connection; the rest of Dask's
# handlers would run code, move data, or end what belongs to others.
_REGISTER, _BEAT = "register-worker", "heartbeat_worker"
_DONE = {_REGISTER: NOTES, _BEAT: OPERATIONS, OPERATION: OURS}
_NOTED = frozenset({"keep-alive", "worker-status-change", "log-event"})  # and nothing follows
_SERVER_PEM = "Copy ca.pem, server.pem and server.key there."


def house() -> House:
    """What a tracker does for others."""
    gate = Gate(trackers_places(open_files()))
    return House(gate, _DONE, _NOTED, bounds.TRACKER_BYTES, bounds.UNREAD_BYTES)


class Tracker(SchedulerPlugin):
    """The part of the scheduler that lends devices."""

    name = "tilewright"

    def __init__(self, scheduler: Any, alone: bool) -> None:
        self.leases = Leases()
        self.scheduler = scheduler
        self._heard: dict[str, float] = {}  # by device; clocks of machines are not to be trusted
        self._tokens: dict[str, str] = {}  # of devices: address -> token
        self._registered_as: dict[str, str] = {}  # token -> address
        self._holders: dict[str, _Holder] = {}
        self._interested: dict[str, dict[_Holder, None]] = {}  # key -> who is told of it
        self._told: dict[str, int] = {}  # key -> total, as they know it
        self._watch = asyncio.ensure_future(self._watching())
        handlers = scheduler.handlers
        self._registered, self._beaten = (handlers[name] for name in (_REGISTER, _BEAT))
        handlers[_REGISTER] = self._register if alone else self._register_in_cluster
        handlers[_BEAT] = self._heartbeat if alone else self._heartbeat_in_cluster

    async def close(self) -> None:
        self._watch.cancel()

    # -- devices: called by Dask -------------------------------------------------------------------
    async def _register(self, comm: Any, **said: Any) -> Any:
        try:
            if not getattr(comm, "may_serve", True):
                raise DeviceError("device", "its certificate is one for tuners", _SERVER_PEM)
            found = await registration(said, self.scheduler.address.startswith("tls"))
            await self._until_free(found)
            if not admitted(comm, DEVICE):
                raise DeviceError("tracker", "it has no place for another device")
            self._tokens[found.address] = found.token
            self._registered_as[found.token] = found.address
            try:
                return await self._registered(comm, **found.said)
            finally:
                if found.address not in self.scheduler.workers:
                    self._forget_token(found.address)
        except (DeviceError, ValueError, TypeError, KeyError, AttributeError) as error:
            if comm.closed():
                return Status.dont_reply
            _LOG.warning("refused a device at %s: %s", comm.peer_address, error)
            await comm.write({"status": "error", "message": str(error), "time": time.time()})
            await comm.close()
            return Status.dont_reply

    async def _until_free(self, found: Registration) -> None:
        """Who was cut off and started again comes before its old connection is known to be dead;
        nobody else gets the place of one that lives.  Raises DeviceError."""
        end = time.monotonic() + bounds.STRANGER_SECONDS / 2
        for address in (self._registered_as.get(found.token, found.address), found.address):
            while address in self.scheduler.workers:
                silent = time.monotonic() - self._heard.get(address, 0.0)
                patience = max(
                    bounds.AGAIN_SECONDS, 2.5 * heartbeat_interval(len(self.leases.devices))
                )
                if silent > patience or self._tokens.get(address) == found.token:
                    self._drop(address)
                if time.monotonic() > end:
                    raise DeviceError(f"device {address}", "another one is there, and lives")
                await asyncio.sleep(0.02)

    def _patience(self, least: float) -> float:
        """Seconds of silence; of many devices Dask wants fewer signs of life."""
        return max(least, 2.5 * float(heartbeat_interval(len(self.leases.devices))))

    def _drop(self, address: str) -> None:
        """Dask notices soon."""
        before = self.scheduler.stream_comms.get(address)
        if before is not None and not before.closed():
            _LOG.info("%s has started again", address)
            before.abort()

    async def _heartbeat(self, comm: Any, **said: Any) -> Any:
        """Counts for whom the token belongs to, whoever it says it is."""
        address = None
        with suppress(ValueError):
            address = self._registered_as.get(token_of(said))
        if address is None or not admitted(comm, DEVICE):
            return {"status": "missing"}
        now = time.monotonic()
        before, self._heard[address] = self._heard.get(address, 0.0), now
        if now - before < bounds.BEAT_PAUSE:
            interval = heartbeat_interval(len(self.scheduler.workers))
            return {"status": "OK", "time": time.time(), "heartbeat-interval": interval}
        beat = {"now": time.time(), "metrics": figures(said), "resolve_address": False}
        return self._beaten(address=address, **beat)

    async def _register_in_cluster(self, comm: Any, **said: Any) -> Any:
        address = normalize_address(str(said.get("address")))
        self._drop(address)
        while address in self.scheduler.workers:
            await asyncio.sleep(0.01)
        return await self._registered(comm, **said)

    def _heartbeat_in_cluster(self, **said: Any) -> Any:
        address = normalize_address(str(said.get("address")))
        if address in self.scheduler.workers:
            self._heard[address] = time.monotonic()
        return self._beaten(**said)

    def add_worker(self, scheduler: Any, worker: str) -> None:
        key = scheduler.workers[worker].extra.get(KEY)
        if not isinstance(key, str):
            return
        self._heard[worker] = time.monotonic()
        with suppress(DeviceError):  # in a site's cluster
            wire.check_key(key, "key")
            _LOG.info("%s joins with the key %s", worker, key)
            self.leases.join(worker, key)
            self._go_on()

    def remove_worker(self, scheduler: Any, worker: str, **_: Any) -> None:
        self._heard.pop(worker, None)
        self._forget_token(worker)
        if worker in self.leases.devices:
            _LOG.info("%s is gone", worker)
            self._lost(self.leases.leave(worker, time.monotonic()), worker, "it is gone")
            self._go_on()

    def _forget_token(self, address: str) -> None:
        token = self._tokens.pop(address, "")
        if self._registered_as.get(token) == address:
            del self._registered_as[token]

    async def _watching(self) -> None:
        """Find out who says nothing any more."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            # of many devices Dask wants fewer signs of life
            patience = max(
                bounds.SILENT_SECONDS, 2.5 * heartbeat_interval(len(self.leases.devices))
            )
            for address, device in list(self.leases.devices.items()):
                since = now - self._heard.get(address, now)
                silent = since > patience
                if since > bounds.GONE_SECONDS:
                    await self.scheduler.remove_worker(address, stimulus_id="silent")
                elif silent and not device.silent:
                    _LOG.warning("%s has said nothing for %g s", address, patience)
                    had = self.leases.fall_silent(address, now)
                    self._lost(had, address, f"nothing was heard of it for {patience:g} s")
                elif device.silent and not silent:
                    _LOG.info("%s is heard of again", address)
                    self.leases.speak(address)
            for holder in list(self._holders.values()):
                if now - holder.heard > bounds.OWNER_SECONDS:
                    _LOG.warning("%s says nothing any more", holder.name)
                    holder.comm.abort()
            self._go_on()

    # -- tuners ------------------------------------------------------------------------------------
    async def serve(self, comm: Any, **_: Any) -> Any:
        """Speak with one tuner until it goes."""
        holder = _Holder(comm, f"{comm.peer_address}")
        try:
            async with asyncio.timeout(bounds.STRANGER_SECONDS):
                hello = wire.check_hello(await _read(comm), holder.name)
            if not admitted(comm, TUNER):
                raise DeviceError(
                    "tracker", "it serves as many tuners as it can", "Try again, or end some."
                )
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
            self._forget(holder)
            self._go_on()
            comm.abort()
        return Status.dont_reply

    def _take(self, holder: _Holder, message: wire.Message) -> None:
        now = time.monotonic()
        if isinstance(message, wire.Want):
            if message.key not in holder.keys:
                self._take_interest(holder, message.key)
            self.leases.want(
                holder.name, message.key, message.count, now, message.priority, message.without
            )
        elif isinstance(message, wire.Release):
            self.leases.release(holder.name, message.device, now)
        elif isinstance(message, wire.Ask):
            holder.send(wire.Summary(self.leases.rows(), self._members(now)))
        elif isinstance(message, wire.Ping):
            holder.send(message)
        else:
            raise wire.malformed(holder.name, f"{type(message).__name__} is not for a tracker")
        self._go_on()

    def _take_interest(self, holder: _Holder, key: str) -> None:
        """Raises DeviceError where it wants too many keys."""
        if len(holder.keys) >= bounds.KEYS:
            raise DeviceError(
                holder.name, f"it wants devices of more than {bounds.KEYS} keys",
                "Use a connection for each.",
            )  # fmt: skip
        holder.keys.add(key)
        holder.is_busy()
        self._interested.setdefault(key, {})[holder] = None
        total = self._told.setdefault(key, self.leases.total(key))
        holder.send(wire.Devices(key, total))

    def _forget(self, holder: _Holder) -> None:
        self.leases.gone(holder.name, time.monotonic())
        for key in holder.keys:
            del self._interested[key][holder]
            if not self._interested[key]:
                del self._interested[key], self._told[key]

    def _members(self, now: float) -> tuple[wire.Member, ...]:
        made = []
        for address, device in self.leases.devices.items():
            since = min(max(now - self._heard.get(address, now), 0.0), 1e6)
            made.append(wire.Member(address, device.key, since, device.holder or ""))
        return tuple(made)

    # -- what follows ------------------------------------------------------------------------------
    def _go_on(self) -> None:
        """Lend what is free, and tell who wants a key how many devices it has."""
        changed = tuple(self.leases.changed)
        for grant in self.leases.grants(time.monotonic()):
            self._holders[grant.holder].send(wire.Granted(grant.key, grant.device))
        for key in changed:
            total = self.leases.total(key)
            if self._told.get(key, total) != total:
                self._told[key] = total
                for holder in self._interested[key]:
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

    def is_busy(self) -> None:
        """It waits for devices, or has some."""
        guest = getattr(self.comm, "guest", None)
        if guest is not None:
            guest.busy = True

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


def attach(scheduler: Any, alone: bool = False) -> Tracker:
    """Make a tracker of a Dask scheduler, which goes on to be one.  alone: it is nothing else."""
    tracker = Tracker(scheduler, alone)
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


def _nothing(**_: Any) -> None:
    """What follows from a note of a device."""


async def run_tracker(
    host: str, ports: range, security: Any, dashboard: str | None, ready: Callable[[str], object]
) -> None:
    """Be a tracker at the first free port until cancelled; `ready` is told its address.

    security: Dask's, or None to speak plainly; dashboard: address of Dask's pages, or None
    Raises DeviceError where no port is free.
    """
    dask.config.set({"distributed.scheduler.events-cleanup-delay": _EVENTS_KEPT})
    own = RunFolder()  # Dask's usual one may belong to another user, and modules are found there
    for port in ports:
        scheduler = (_Silent if dashboard is None else Scheduler)(
            host=host, port=port, security=security, extensions={}, preload=[],
            protocol="tcp" if security is None else "tls", dashboard=dashboard is not None,
            dashboard_address=dashboard, http_prefix="", idle_timeout=None,
            local_directory=str(own.path),
        )  # fmt: skip
        scheduler.handlers = {k: v for k, v in scheduler.handlers.items() if k in _DONE}
        scheduler.stream_handlers = dict.fromkeys(_NOTED, _nothing)
        scheduler.worker_ttl = None  # measured with this machine's clock, which may be set anew
        tracker = attach(scheduler, alone=True)  # before anybody can be heard
        try:
            await scheduler
        except RuntimeError as error:
            await tracker.close()
            with suppress(Exception):
                await scheduler.close()
            if isinstance(error.__cause__, OSError):
                continue
            raise
        ready(scheduler.address)
        try:
            await scheduler.finished()
        finally:
            await tracker.close()
            await scheduler.close()
        return
    raise DeviceError(
        f"tracker at {host}", f"no port from {ports.start} to {ports.stop - 1} is free",
        "Name others with --port and --port-end.",
    )  # fmt: skip
