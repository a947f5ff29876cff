"""Changed files: libraries of networks, entries of the cache, what was signed in it.

In: a small library, kernels that differ in what they compute and in nothing else.  Each try changes
a file as a bad disk, a bad copy or another user would, then loads, runs and compares, in a process
that may be lost.  Read next: `drill.py`, `driver/cache.py`, `runtime/network/library.py`.
"""

from __future__ import annotations

import io
import os
import shutil
import tarfile
import tempfile
import zipfile
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from drills.drill import Counts, Drill
from tilewright import te
from tilewright.base.artifact import Source
from tilewright.base.errors import TilewrightError
from tilewright.driver.build import generate_source, resolve_target
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.measure.pool import WorkerCrash, WorkerFailure, WorkerPool, WorkerTimeout
from tilewright.runtime import cpu
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import array, empty
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.schedule.default import default_schedule
from tilewright_tvm import relay

_SECONDS = 10.0
_SHAPE = (4, 8)

WRONG, CRASH, HANG, FOREIGN, FORGED = "wrong", "crash", "hang", "foreign exception", "forged"
REFUSED, AS_BEFORE, MISSED, HIT = (
    "library refused",
    "library as before",
    "entry missed",
    "entry hit",
)


@cache
def _data() -> Any:
    return np.random.default_rng(0).standard_normal(_SHAPE).astype("float32")


# -- libraries -------------------------------------------------------------------------------------


def _network() -> relay.IRModule:
    x = relay.var("x", shape=_SHAPE)
    w = relay.const(np.random.default_rng(1).standard_normal((8, 8)).astype("float32"))
    body = relay.nn.softmax(relay.nn.relu(relay.nn.dense(x, w)))
    return relay.IRModule.from_expr(relay.Function([x], body))


@cache
def _wanted() -> Any:
    return relay.evaluate(_network(), {"x": _data()}, "float64")


def library(folder: str, seed: int) -> str:
    """A changed copy of one of the libraries in `folder`: what became of it."""
    rng = Random(seed)
    original = rng.choice(sorted(Path(folder).glob("net.*")))
    path = original.with_name(f"changed{original.suffix}")
    path.unlink(missing_ok=True)  # code of the last one may be in use
    shutil.copyfile(original, path)
    if rng.random() > 0.1 or path.suffix == ".so":
        path.write_bytes(_damaged(original.read_bytes(), rng))
    else:
        _write_members(path, _disturbed(_members_of(path), rng))
    try:
        module = GraphModule(relay.load(path)["default"](cpu()))
        module.run(x=_data())
        got = module.get_output(0).numpy()
    except TilewrightError:
        return REFUSED
    except Exception:
        return FOREIGN
    return AS_BEFORE if np.abs(got - _wanted()).max() < 1e-5 else WRONG


def _disturbed(members: dict[str, bytes], rng: Random) -> dict[str, bytes]:
    """A member is missing, cut off, or another's."""
    name, other = rng.choice(list(members)), rng.choice(list(members))
    change = rng.choice(("drop", "cut", "exchange"))
    if change == "drop":
        del members[name]
    elif change == "cut":
        members[name] = members[name][: rng.randrange(len(members[name]) + 1) or 1]
    else:
        members[name], members[other] = members[other], members[name]
    return members


def _members_of(path: Path) -> dict[str, bytes]:
    if path.suffix == ".zip":
        with zipfile.ZipFile(path) as archive:
            return {name: archive.read(name) for name in archive.namelist()}
    with tarfile.open(path) as tar:
        return {m.name: f.read() for m in tar.getmembers() if (f := tar.extractfile(m))}


def _write_members(path: Path, members: dict[str, bytes]) -> None:
    """A sound archive."""
    if path.suffix == ".zip":
        with zipfile.ZipFile(path, "w") as archive:
            for name, data in members.items():
                archive.writestr(name, data)
        return
    with tarfile.open(path, "w") as tar:
        for name, data in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            tar.addfile(info, io.BytesIO(data))


def _damaged(data: bytes, rng: Random) -> bytes:
    at, size = rng.randrange(len(data)), rng.choice((1, 1, 4, 64, 4096))
    change = rng.choice(("flip", "cut", "drop", "copy", "zero"))
    if change == "flip":
        return data[:at] + bytes([data[at] ^ 1 << rng.randrange(8)]) + data[at + 1 :]
    if change == "cut":
        return data[:at]
    if change == "drop":
        return data[:at] + data[at + size :]
    other = rng.randrange(len(data))
    new = data[other : other + size] if change == "copy" else bytes(size)
    return data[:at] + new + data[at + len(new) :]


# -- the cache -------------------------------------------------------------------------------------


@cache
def _sources() -> list[tuple[Source, float]]:
    """Kernels x * k of one shape and one name."""
    made = []
    for k in (2.0, 3.0, 5.0):
        x = te.placeholder(_SHAPE, name="x")
        y = te.compute(_SHAPE, lambda i, j, x=x, k=k: x[i, j] * k, name="y")
        target = resolve_target("llvm")
        made.append((generate_source(default_schedule(te.ComputeDAG([x, y]), target), target), k))
    return made


def entry(folder: str, seed: int) -> str:
    """Kernels through a cache in which files were changed: what became of them."""
    rng, directory = Random(seed), Path(folder) / "cache"
    shutil.rmtree(directory, ignore_errors=True)
    kept = Cache(directory)
    for source, _ in _sources():
        compile_source(source, "llvm", kept)
    kept.sign("verified: a", "1.0")
    files = sorted(p for p in directory.rglob("*") if p.is_file())
    for _ in range(rng.choice((1, 1, 3))):
        _disturb(files, rng)
    try:
        hits = 0
        for source, k in _sources():
            artifact = compile_source(source, "llvm", kept)
            hits += artifact.meta["cached"]
            out = empty(_SHAPE, "float32")
            Module(artifact, cpu())(array(_data()), out)
            if not np.array_equal(out.numpy(), _data() * np.float32(k)):
                return WRONG
        if kept.signed("verified: b") is not None or kept.signed("verified: a") not in (
            None,
            "1.0",
        ):
            return FORGED
    except Exception:
        return FOREIGN
    return HIT if hits == len(_sources()) else MISSED


def _disturb(files: list[Path], rng: Random) -> None:
    """One of the files is damaged, exchanged with another, or opened to other users."""
    path, other = rng.choice(files), rng.choice(files)
    if not path.is_file() or not other.is_file():
        return
    change = rng.choice(("damage", "exchange", "copy", "link", "mode", "folder", "gone"))
    mine, its = path.read_bytes(), other.read_bytes()
    if change == "damage":
        path.write_bytes(_damaged(mine or b"0", rng))
    elif change == "exchange":
        path.write_bytes(its)
        other.write_bytes(mine)
    elif change == "copy":
        path.write_bytes(its[: len(its) // 2] + mine[len(its) // 2 :])
    elif change == "mode":
        os.chmod(path, 0o666)
        path.write_bytes(its)
    else:
        path.unlink()
        if change == "link" and path != other:
            path.symlink_to(other)
        elif change == "folder":
            path.mkdir()


def run(tries: int, seed: int) -> Counts:
    counts: Counts = Counter()
    with tempfile.TemporaryDirectory() as folder, WorkerPool(1) as pool:
        made = relay.build(_network(), "llvm", verify=False)
        for kind in ("zip", "tar", *["so"] * bool(shutil.which("cc"))):
            made.export_library(Path(folder) / f"net.{kind}")
        for number in range(tries):
            what = (library, entry)[number % 2]
            try:
                given = (folder, seed * 1_000_000 + number)
                counts[pool.submit(what, *given, timeout=_SECONDS).result()] += 1
            except WorkerFailure as failure:
                kinds = {WorkerTimeout: HANG, WorkerCrash: CRASH}
                counts[kinds.get(type(failure), FOREIGN)] += 1
    return counts


DRILL = Drill(
    name="files",
    tried="changed libraries and cache entries",
    run=run,
    never=(WRONG, CRASH, HANG, FOREIGN, FORGED),
    always=(REFUSED, MISSED),
    short=40,
    long=2_000,
)
