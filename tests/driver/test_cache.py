from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.driver.cache import Cache, default_cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import artifact_file

TEXT = "define void @k(ptr noalias %a) {\n  store float 1.0, ptr %a\n  ret void\n}"
SPEC = BufferSpec("a", "float32", (1,), "output")
SOURCE = Source("llvm", TEXT, "k", (SPEC,), (KernelInfo("k", (0,)),))


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "kernels")


def files(cache: Cache) -> list[Path]:
    assert cache.directory is not None
    return [p for p in cache.directory.rglob("*") if p.is_file()]


def test_second_compilation_comes_from_the_cache(cache: Cache) -> None:
    first = compile_source(SOURCE, "llvm", cache)
    second = compile_source(SOURCE, "llvm", cache)
    assert not first.meta["cached"] and second.meta["cached"]
    assert (second.binary, second.source) == (first.binary, first.source)
    assert len(files(cache)) == 1


def test_everything_that_matters_is_in_the_key(cache: Cache) -> None:
    identity = {"compiler": "LLVM 22", "cpu": "znver4"}
    keys = {
        cache.key(SOURCE, identity),
        cache.key(replace(SOURCE, text=TEXT + " "), identity),
        cache.key(replace(SOURCE, kernels=(KernelInfo("k", (0,), (2, 1, 1)),)), identity),
        cache.key(SOURCE, {**identity, "compiler": "LLVM 23"}),
        cache.key(SOURCE, {**identity, "cpu": "generic"}),
    }
    assert len(keys) == 5


@pytest.mark.parametrize("damage", [b"", b"nonsense", None])
def test_a_damaged_entry_is_a_miss(cache: Cache, damage: bytes | None) -> None:
    compile_source(SOURCE, "llvm", cache)
    (entry,) = files(cache)
    entry.write_bytes(entry.read_bytes()[:-1] if damage is None else damage)
    assert not compile_source(SOURCE, "llvm", cache).meta["cached"]
    assert compile_source(SOURCE, "llvm", cache).meta["cached"]  # and it was repaired


def test_prune_keeps_what_was_used_last(cache: Cache) -> None:
    import os

    for n in range(4):
        cache.put(f"{n}{n}abc", Artifact(SOURCE, bytes(1000)))
        os.utime(cache._path(f"{n}{n}abc"), (n, n))
    assert cache.get("00abc") is not None  # used now
    cache.max_bytes = int(2.5 * files(cache)[0].stat().st_size)
    cache.prune()
    assert sorted(p.name for p in files(cache)) == ["00abc", "33abc"]


def test_where_the_cache_is(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path))
    assert default_cache().directory == tmp_path
    monkeypatch.setenv("TILEWRIGHT_CACHE", "off")
    off = default_cache()
    off.put("aabb", Artifact(SOURCE, b"x"))
    assert off.directory is None and off.get("aabb") is None
    monkeypatch.delenv("TILEWRIGHT_CACHE")
    directory = default_cache().directory
    assert directory is not None and directory.name == "tilewright"


def test_a_directory_that_cannot_be_written_is_no_cache(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    blocked = Cache(tmp_path / "file")
    blocked.put("aabb", Artifact(SOURCE, b"x"))
    assert blocked.get("aabb") is None


def test_artefact_bytes_round_trip() -> None:
    artifact = Artifact(SOURCE, bytes(range(256)), {"k": {"registers": 3}}, {"arch": "sm_90"})
    assert artifact_file.from_bytes(artifact_file.to_bytes(artifact)) == artifact
