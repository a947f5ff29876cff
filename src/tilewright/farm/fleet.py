"""`Fleet`: pieces of work for all devices of a key, whatever becomes of single ones.

In: orders, each of which some device does.  Out: their futures.  It has the tracker's connection
and one to each device that was lent, and tells the user who is lost or left out; who does what is
for `dispatch.py` to say.  Read next: `runner.py` (trials), `builder.py` (builds): both are fleets.
"""

from __future__ import annotations

import asyncio
import time
import warnings
from collections.abc import Awaitable, Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.farm import address, bounds, idle, wire
from tilewright.farm.client import TrackerClient, summary
from tilewright.farm.device_link import DeviceLink
from tilewright.farm.dispatch import Dispatch, Settled, Ticket
from tilewright.farm.network import check_installed, reason, soon

EMPTY_SECONDS = 5.0  # without any device of the key, until what waits is given up
LOST_SECONDS = 30.0  # the same where there were devices: they, or the tracker, may come back
STATUS_HINT = "`tilewright farm status` shows which devices there are."
_REST_SECONDS = 2.0  # of a device that does not listen
_CHECK_SECONDS = 0.25

T = TypeVar("T")
Notice = Callable[[str], object]


@dataclass
class Order:
    """What a ticket stands for.

    kind:     of targets, that a device must be fit for; "": any device will do
    failed:   whether a value means that the work failed
    given_up: the value where no device does it: why, and whether it is suspected itself
    agreed:   the value where two devices fail at it: the first one's, the second one's
    """

    work: Callable[[str, DeviceLink], Awaitable[Any]]
    future: Future[Any]
    kind: str
    failed: Callable[[Any], bool]
    given_up: Callable[[str, bool], Any]
    agreed: Callable[[Any, Any], Any] = lambda first, second: second


class Fleet:
    """All devices that the tracker at host:port has for `key`, also those that join later."""

    def __init__(
        self, key: str, host: str | None, port: int | None, priority: int,
        certificates: str | None, on_notice: Notice | None,
    ) -> None:  # fmt: skip
        check_installed()
        wire.check_wish(key, priority)
        self.key = key
        self._place = address.tracker_address(host, port)
        self._certificates, self._priority = certificates, priority
        self._on_notice = on_notice or _warn
        self._dispatch = Dispatch()
        self._links: dict[str, DeviceLink] = {}
        self._empty_since: float | None = time.monotonic()
        self._connected = self._was_lost = self._had_some = False
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

    def close(self) -> None:
        """Give up what is under way, and everything that was lent."""
        if not self._closed:
            self._closed = True
            soon(self._stop()).result()
            self._deliver.shutdown(wait=False)

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _accepts(self, device: str, link: DeviceLink, kind: str) -> bool:
        """Whether work for targets of `kind` may go there; who refuses leaves the device out."""
        return True

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

    async def _add(self, order: Order, twice: bool = True) -> None:
        if self._closed:
            order.future.cancel()
            return
        self._dispatch.add(order, twice)
        self._say_wants()

    def connected(self) -> None:
        if self._was_lost:
            self._notify("The tracker is there again.")
        self._was_lost = False
        self._connected, self._wanted = True, (-1, frozenset())
        self._say_wants()

    def disconnected(self, why: str) -> None:
        self._connected, self._was_lost = False, True
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
        self._had_some = self._had_some or total > 0
        self._empty_since = None if total else self._empty_since or time.monotonic()
        self._settle(*self._dispatch.alone())
        self._say_wants()

    async def _serve(self, device: str, ticket: Ticket) -> None:
        """Let a device do its work, whatever comes of it."""
        order: Order = ticket.work
        settled: list[Settled] = []
        try:
            link = await self._link(device)
            if link is None:
                return
            if not await self._accepts(device, link, order.kind):
                return
            value = await order.work(device, link)
            settled += self._dispatch.done(device, value, order.failed(value))
        except DeviceError as refused:
            self._dispatch.leave_out(device, str(refused))
        except OSError as error:
            self.lost(device, "")
            settled += self._dispatch.lost(device, reason(error))
        except Exception as error:  # a fault of ours, which must not lose the trial
            order.future.set_exception(error)
            self._dispatch.doing.pop(device, None)
        finally:
            self._client.send(wire.Release(device))
            self._settle(*settled, *self._dispatch.alone())
            self._say_wants()

    async def _link(self, device: str) -> DeviceLink | None:
        link = self._links.get(device)
        if link is not None and not link.closed:
            return link
        try:
            link = self._links[device] = await DeviceLink.open(device, self._client.context)
        except OSError as error:
            self.lost(device, "")
            self._dispatch.unreached(device, reason(error))
            asyncio.get_running_loop().call_later(_REST_SECONDS, self._rested, device)
            return None
        return link

    def _rested(self, device: str) -> None:
        self._dispatch.resting.discard(device)
        self._say_wants()

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
            names = tuple(sorted(without))[: bounds.WITHOUT]
            self._client.send(wire.Want(self.key, wanted[0], self._priority, names))

    async def _watch(self) -> None:
        """Give up what waits when there has been no device for long."""
        while True:
            await asyncio.sleep(_CHECK_SECONDS)
            now = time.monotonic()
            if self._dispatch.wanted[0] and not self._dispatch.doing:
                idle.give_way(self.key)
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
        return LOST_SECONDS if self._had_some and not self._dispatch.left_out else EMPTY_SECONDS

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

    async def _holders(self) -> tuple[str, str]:
        """Who has the devices, and what to do about it: see `idle.holders`."""
        with suppress(TilewrightError):
            known = await summary(*self._place, self._certificates)
            return idle.holders(known.members, self.key)
        return "", ""

    def _notify(self, *texts: str) -> None:
        for text in texts:
            self._deliver.submit(self._on_notice, text)

    def _keep(self, task: asyncio.Task[Any]) -> None:
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def _finish(settled: Settled) -> None:
    """Give the result to whoever waits for it, and run what he does then."""
    order: Order = settled.ticket.work
    if order.future.done() or not order.future.set_running_or_notify_cancel():
        return
    if settled.opinion is None:
        order.future.set_result(order.given_up(settled.why, settled.ticket.losses > 0))
        return
    value = settled.opinion.value
    if settled.confirmed and settled.opinion.failed:
        assert settled.ticket.first is not None
        value = order.agreed(settled.ticket.first.value, value)
    order.future.set_result(value)


def _warn(text: str) -> None:
    warnings.warn(text, RuntimeWarning, stacklevel=2)
