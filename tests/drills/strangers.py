"""A farm beside somebody who only reaches its ports: others are answered soon, sessions go on."""

from __future__ import annotations

import multiprocessing
import random
import statistics
import tempfile
import time
from collections import Counter
from concurrent.futures import Future, ProcessPoolExecutor
from pathlib import Path

from drills._attacks import ATTACKS, make
from drills.drill import Counts, Drill
from farm.processes import Farm
from tilewright.base.errors import TilewrightError
from tilewright.farm.client import summary
from tilewright.farm.network import soon
from tilewright.farm.session import RemoteSession, request_remote

SECONDS = 1.0  # in which a tracker answers, beside what it takes in peace
OPEN_FILES = 768


def run(tries: int, seed: int) -> Counts:
    rng = random.Random(seed)
    counts: Counts = Counter()
    few = f"import resource; resource.setrlimit(resource.RLIMIT_NOFILE, ({OPEN_FILES},) * 2)"
    with tempfile.TemporaryDirectory() as folder:
        farm = Farm(Path(folder), before=few)
        try:
            server = farm.serve_at("board", 0, before=few)
            ports = farm.port, server.port
            stranger = ProcessPoolExecutor(1, multiprocessing.get_context("spawn"))
            with stranger, request_remote("board", "127.0.0.1", farm.port, timeout=60) as session:
                session.upload(b"abc", "kept")
                stranger.submit(make, "names", *ports, 0).result(60)  # it has started
                peace = max(_query(farm.port) for _ in range(5))
                for n in range(tries):
                    name = list(ATTACKS)[n] if n < len(ATTACKS) else rng.choice(list(ATTACKS))
                    attack = stranger.submit(make, name, *ports, rng.randrange(1 << 30))
                    counts[_tried(name, attack, farm.port, session, SECONDS + 5 * peace)] += 1
            if not _works_anew(farm.port):
                counts["no session afterwards"] += 1
        finally:
            farm.stop()
    return counts


def _tried(name: str, attack: Future[int], port: int, session: RemoteSession, most: float) -> str:
    """What comes of one attack."""
    times = []
    try:
        while not attack.done() or len(times) < 3:
            times.append(_query(port))
            time.sleep(0.05)
            kept = session.listdir()
        if attack.result():
            return f"{name}: more was kept than there is room for"
        kept += session.listdir()
        rows = soon(summary("127.0.0.1", port)).result().rows
    except TilewrightError:
        return f"{name}: somebody was not served"
    if statistics.median(times) > most:  # one may be late for other reasons
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
        "files were lost", "more was kept than there is room for")  # fmt: skip

DRILL = Drill(
    name="strangers",
    tried="attacks on a farm's ports",
    run=run,
    never=(*(f"{name}: {what}" for name in ATTACKS for what in _BAD), "no session afterwards"),
    always=tuple(f"{name}, nothing lost" for name in ATTACKS),
    short=len(ATTACKS),
    long=200,
)
