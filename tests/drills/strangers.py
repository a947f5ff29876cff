"""A farm beside somebody who only reaches its ports: others are answered soon, sessions go on."""

from __future__ import annotations

import random
import tempfile
import time
from collections import Counter
from pathlib import Path

from drills._attacks import ATTACKS, Ports, make
from drills.drill import Counts, Drill
from farm.processes import Farm
from tilewright.base.errors import TilewrightError
from tilewright.farm.client import summary
from tilewright.farm.network import soon
from tilewright.farm.session import RemoteSession, request_remote

SECONDS = 1.0  # in which a tracker answers, beside what it takes in peace
OPEN_FILES = 512


def run(tries: int, seed: int) -> Counts:
    rng = random.Random(seed)
    counts: Counts = Counter()
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES},) * 2)"
    with tempfile.TemporaryDirectory() as folder:
        farm = Farm(Path(folder), before=few)
        try:
            server = farm.serve_at("board", 0, before=few)
            ports = Ports(farm.port, server.port)
            with request_remote("board", "127.0.0.1", farm.port, timeout=60) as session:
                session.upload(b"abc", "kept")
                peace = max(_query(farm.port) for _ in range(5))
                for n in range(tries):
                    name = list(ATTACKS)[n] if n < len(ATTACKS) else rng.choice(list(ATTACKS))
                    counts[_tried(name, ports, session, SECONDS + 5 * peace, rng)] += 1
            if not _works_anew(farm.port):
                counts["no session afterwards"] += 1
        finally:
            farm.stop()
    return counts


def _tried(name: str, ports: Ports, session: RemoteSession, most: float, rng: random.Random) -> str:
    """What comes of one attack."""
    under_way = soon(make(ATTACKS[name], ports, rng))
    try:
        times = [_query(ports.tracker) for _ in range(3)]
        kept = session.listdir()
        under_way.result(30)
        times.append(_query(ports.tracker))
        kept += session.listdir()
        rows = soon(summary("127.0.0.1", ports.tracker)).result().rows
    except TilewrightError:
        return f"{name}: somebody was not served"
    finally:
        under_way.cancel()
    if max(times) > most:
        return f"{name}: the tracker was late"
    if [row.total for row in rows if row.key == "board"] != [1] or len(rows) > 1:
        return f"{name}: other devices than there are"
    return f"{name}, nothing lost" if kept == ["kept", "kept"] else f"{name}: files were lost"


def _query(port: int) -> float:
    began = time.monotonic()
    soon(summary("127.0.0.1", port)).result()
    return time.monotonic() - began


def _works_anew(port: int) -> bool:
    """Whether a device can be had, and is empty."""
    with request_remote("board", "127.0.0.1", port, timeout=60) as session:
        return session.listdir() == []


_BAD = ("somebody was not served", "the tracker was late", "other devices than there are",
        "files were lost")  # fmt: skip

DRILL = Drill(
    name="strangers",
    tried="attacks on a farm's ports",
    run=run,
    never=(*(f"{name}: {what}" for name in ATTACKS for what in _BAD), "no session afterwards"),
    always=tuple(f"{name}, nothing lost" for name in ATTACKS),
    short=len(ATTACKS),
    long=200,
)
