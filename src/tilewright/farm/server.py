"""A device of the farm: a Dask worker that registers with a tracker and lets a `Board` answer.

In: the tracker's address, a key.  Out: a process that runs until it is stopped, and comes back by
itself when the tracker does.  Dask keeps it known to the tracker, and the tracker may end that;
from everybody else it takes messages for its board and nothing of Dask.
Read next: `board.py`, `tracker.py`.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import tempfile
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from distributed import Worker
from distributed.core import Status

from tilewright.base.errors import DeviceError
from tilewright.base.text import printable
from tilewright.farm import bounds, wire
from tilewright.farm.address import is_loopback
from tilewright.farm.admission import Gate, devices_places, open_files
from tilewright.farm.board import Board
from tilewright.farm.certificates import SERVER, credentials
from tilewright.farm.network import OPERATION, dask_security, reach, reason
from tilewright.farm.plain_comm import OURS, House
from tilewright.farm.registration import KEY, TOKEN

# Of Dask's orders those of its tracker, which come by the connection that the device opened.
_ORDERS = {"close", "worker-status-change", "remove-worker"}
_DONE = {OPERATION: OURS}  # for whoever connects
_PAUSE = 0.5  # seconds between attempts to find the tracker
_REFUSED_PAUSE = 5.0  # after it did not take the device
_LOG = logging.getLogger("tilewright.farm")


def house(servers: int = 1) -> House:
    """What so many devices in one process do for others."""
    gate = Gate(devices_places(open_files(), servers))
    return House(gate, _DONE, frozenset(), bounds.MESSAGE_BYTES, bounds.UNREAD_DEVICE_BYTES)


class _NotTaken(Exception):
    """The tracker does not take the device, for now or for ever."""


class _Silent(Worker):
    """Without Dask's pages, which would be open to everybody who reaches the machine.

    contact: HOST or HOST:PORT by which others reach it, where that is not its own
    """

    contact: str | None = None

    def start_http_server(self, *_: Any, **__: Any) -> None:
        pass

    async def plugin_add(self, *_: Any, **__: Any) -> Any:
        """Those of a site's scheduler are pickled code for Dask's tasks, which there are not."""
        return {"status": "OK"}

    async def _register_with_scheduler(self) -> None:
        if self.contact is not None:
            scheme, own = self.address.split("://")
            host, _, port = self.contact.partition(":")
            self.contact_address = f"{scheme}://{host}:{port or own.rpartition(':')[2]}"
        await super()._register_with_scheduler()


async def run_server(
    tracker: tuple[str, int],
    key: str,
    host: str,
    ports: range,
    certificates: str | None,
    ready: Callable[[str], object],
    contact: str | None = None,
    builds: bool = False,
) -> None:
    """Serve as a device until cancelled; `ready` is told its address, each time it registers.

    contact: HOST or HOST:PORT by which others reach it, where that is not its own
    builds:  it is no device, but builds, one candidate at a time
    Raises DeviceError where no port is free, the key cannot be one or the certificates do not do.
    """
    wire.check_key(key, "--key")
    board, told, was_ready = Board(builds), "", False
    token = secrets.token_hex(16)
    try:
        while True:
            try:
                place, _ = await reach(tracker[0], tracker[1], certificates, role=SERVER)
            except (OSError, DeviceError) as error:
                if isinstance(error, DeviceError) and not was_ready:
                    raise
                why = reason(error)
                if why != told:  # once: a tracker may be away for days
                    _LOG.info("waiting for the tracker at %s:%d (%s)", *tracker, why)
                told = why
                await asyncio.sleep(_PAUSE)
                continue
            security, bound = None, host
            if place.scheme == "tls":
                shown = credentials(SERVER, certificates)
                assert shown is not None  # else the tracker was not reached
                security = dask_security(shown)
            elif is_loopback(place.host):
                bound = "127.0.0.1"  # spoken to plainly, and the tracker's users are all here
            with tempfile.TemporaryDirectory(prefix="server-", dir=board.folder) as folder:
                worker = _worker(
                    board, str(place), key, token, bound, ports, security, folder, contact
                )
                try:
                    await _start(worker, bound, ports)
                    ready(worker.address)
                    was_ready, told = True, ""
                    await worker.finished()
                    why, pause = "the tracker is gone", _PAUSE
                except _NotTaken as error:
                    why, pause = str(error), _REFUSED_PAUSE
                finally:
                    with suppress(Exception):
                        await worker.close(nanny=False)
            if why != told:
                _LOG.info("%s", why)
            told = why
            await asyncio.sleep(pause)
    finally:
        board.close()


def _worker(
    board: Board, tracker: str, key: str, token: str, host: str, ports: range, security: Any,
    folder: str, contact: str | None,
) -> Worker:  # fmt: skip
    async def told(worker: Any) -> str:
        return key

    async def known(worker: Any) -> str:
        return token

    async def serve(comm: Any, **_: Any) -> Any:
        async def read() -> wire.Message:
            return wire.decoded(await comm.read(), comm.peer_address)

        async def write(message: wire.Message) -> None:
            await comm.write(wire.encoded(message))

        with suppress(OSError):
            await board.serve(read, write, comm.peer_address, comm.guest)
        with suppress(OSError):
            await comm.close()
        return Status.dont_reply

    last = ports.stop - 1
    worker = _Silent(
        tracker, host=host, port=f"{ports.start}:{last}" if last > ports.start else ports.start,
        nthreads=1, startup_information={KEY: told}, metrics={TOKEN: known}, security=security,
        extensions={}, preload=[], dashboard=False, deserialize=False, memory_limit=0,
        local_directory=folder, death_timeout=None,
    )  # fmt: skip
    worker.contact = contact
    worker.handlers = {OPERATION: serve}
    worker.stream_handlers = {k: v for k, v in worker.stream_handlers.items() if k in _ORDERS}
    return worker


async def _start(worker: Worker, host: str, ports: range) -> None:
    """Raises DeviceError where no port is free, _NotTaken where the tracker refuses."""
    try:
        await worker
    except (ValueError, OSError, RuntimeError) as error:
        cause: BaseException = error.__cause__ or error
        if "response from register" in str(cause):
            said = printable(str(cause).partition("'message': ")[2]).replace("\n", " ")
            raise _NotTaken(f"the tracker does not take this device: {said[:400]}") from None
        if isinstance(cause, (ValueError, OSError)) and "port" in str(cause).lower():
            raise DeviceError(
                f"server at {host}",
                f"no port from {ports.start} to {ports.stop - 1} is free ({cause})",
                "Name others with --port and --port-end.",
            ) from None  # fmt: skip
        raise
