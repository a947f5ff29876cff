"""A network that is not as it should be: a TCP proxy that delays, loses packets, is unplugged.

In: the port of a server.  Out: a port that leads there.  TCP sends a lost packet again after 200
ms, then after twice as long: to who uses it, loss is delay, and that is what is imitated.
"""

from __future__ import annotations

import asyncio
import random
import threading
from contextlib import suppress

PACKET = 1460  # bytes
AGAIN_SECONDS = 0.2


class Proxy:
    """`port` leads to `to`.

    delay:     seconds that each packet takes
    loss:      share of packets that are lost and sent again
    unplugged: nothing gets through, and nobody is told
    """

    def __init__(self, to: int, delay: float = 0.0, loss: float = 0.0, seed: int = 0) -> None:
        self.to, self.delay, self.loss, self.unplugged = to, delay, loss, False
        self.lost = 0
        self._rng = random.Random(seed)
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        started = asyncio.start_server(self._serve, "127.0.0.1", 0)
        self._server = asyncio.run_coroutine_threadsafe(started, self._loop).result()
        self.port: int = self._server.sockets[0].getsockname()[1]

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._server.close)
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()

    async def _end(self) -> None:
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._plugged()
        with suppress(OSError):
            far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
            pumps = [
                asyncio.ensure_future(self._pump(reader, far_writer)),
                asyncio.ensure_future(self._pump(far_reader, writer)),
            ]
            await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            for pump in pumps:
                pump.cancel()
            far_writer.transport.abort()
        writer.transport.abort()

    async def _pump(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(OSError):
            while data := await reader.read(PACKET):
                await asyncio.sleep(self._seconds())
                await self._plugged()
                writer.write(data)
                await writer.drain()
        await self._plugged()  # an unplugged cable brings no end of a connection either

    async def _plugged(self) -> None:
        while self.unplugged:
            await asyncio.sleep(0.02)

    def _seconds(self) -> float:
        seconds, again = self.delay, AGAIN_SECONDS
        while self._rng.random() < self.loss:
            self.lost += 1
            seconds, again = seconds + again, 2 * again
        return seconds
