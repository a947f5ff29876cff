import hashlib
import os
from dataclasses import replace
from pathlib import Path

import pytest

from tilewright.base.artifact import Artifact, BufferSpec, KernelInfo, Source
from tilewright.base.errors import DeviceError
from tilewright.driver.cache import Cache, default_cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import artifact_file, load_module

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


def three(text: str) -> Source:
    return replace(SOURCE, text=TEXT.replace("1.0", text))


def test_an_entry_in_the_place_of_another_is_a_miss(cache: Cache) -> None:
    """Files were exchanged: nothing of a kernel but its key tells it from another."""
    sources = [three("2.0"), three("3.0")]
    binaries = [compile_source(source, "llvm", cache).binary for source in sources]
    first, second = files(cache)
    mine, its = first.read_bytes(), second.read_bytes()
    first.write_bytes(its)
    second.write_bytes(mine)
    for source, binary in zip(sources, binaries, strict=True):
        again = compile_source(source, "llvm", cache)
        assert not again.meta["cached"] and again.binary == binary


def test_an_entry_of_another_user_is_a_miss(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_source(SOURCE, "llvm", cache)
    cache.sign("it is right", "yes")
    with monkeypatch.context() as other:
        other.setattr(os, "geteuid", lambda: os.getuid() + 1)
        assert not compile_source(SOURCE, "llvm", Cache(cache.directory)).meta["cached"]
        assert cache.signed("it is right") is None
    assert compile_source(SOURCE, "llvm", cache).meta["cached"]


@pytest.mark.parametrize("mode", [0o620, 0o602, 0o666])
def test_an_entry_that_others_may_write_is_a_miss(cache: Cache, mode: int) -> None:
    compile_source(SOURCE, "llvm", cache)
    files(cache)[0].chmod(mode)
    assert not compile_source(SOURCE, "llvm", cache).meta["cached"]
    assert files(cache)[0].stat().st_mode & 0o777 == 0o600  # it was replaced


def test_an_entry_is_no_link(cache: Cache, tmp_path: Path) -> None:
    compile_source(SOURCE, "llvm", cache)
    (entry,) = files(cache)
    entry.rename(tmp_path / "elsewhere")
    entry.symlink_to(tmp_path / "elsewhere")
    assert not compile_source(SOURCE, "llvm", cache).meta["cached"]


def test_what_is_signed_is_known_here_only(cache: Cache, tmp_path: Path) -> None:
    assert cache.signed("it is right") is None
    cache.sign("it is right", "1.5")
    assert cache.signed("it is right") == "1.5"
    assert cache.signed("it is right, too") is None
    (secret,) = (p for p in files(cache) if p.name == "secret")
    assert secret.stat().st_mode & 0o777 == 0o600
    other = Cache(tmp_path / "other")
    other.sign("something", "1")
    for path in files(cache):  # all that was signed, without the secret
        if path != secret:
            (tmp_path / "other" / path.parent.name).mkdir(exist_ok=True)
            (tmp_path / "other" / path.parent.name / path.name).write_bytes(path.read_bytes())
    assert other.signed("it is right") is None


@pytest.mark.parametrize("spoil", [0o640, b"short", None])
def test_a_spoilt_secret_ends_what_was_signed(cache: Cache, spoil: int | bytes | None) -> None:
    cache.sign("it is right", "yes")
    secret = cache.directory / "secret"  # type: ignore[operator]
    if spoil is None:
        secret.unlink()
    elif isinstance(spoil, int):
        secret.chmod(spoil)
    else:
        secret.write_bytes(spoil)
    assert cache.signed("it is right") is None
    cache.sign("something else", "yes")
    assert cache.signed("it is right") is None and cache.signed("something else") == "yes"
    assert Cache(None).signed("it is right") is None


def test_prune_keeps_what_was_used_last(cache: Cache) -> None:
    for n in range(4):
        cache.put(f"{n}{n}abc", Artifact(SOURCE, bytes(1000)))
        os.utime(cache._path(f"{n}{n}abc"), (n, n))
    assert cache.get("00abc") is not None  # used now
    cache.max_bytes = int(2.5 * files(cache)[0].stat().st_size)
    cache.prune()
    assert sorted(p.name for p in files(cache)) == ["00abc", "33abc"]


def test_some_writes_look_at_the_size_whatever_process_they_are_of(cache: Cache) -> None:
    cache.max_bytes = 0
    cache.put("01abc", Artifact(SOURCE, b"x"))
    assert len(files(cache)) == 1
    cache.put("00abc", Artifact(SOURCE, b"x"))
    assert not files(cache)


def test_an_interrupted_write_leaves_nothing(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(artifact: Artifact) -> bytes:
        raise KeyboardInterrupt

    monkeypatch.setattr(artifact_file, "to_bytes", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cache.put("aabb", Artifact(SOURCE, b"x"))
    assert not files(cache)


def test_what_a_killed_process_left_is_pruned(cache: Cache) -> None:
    cache.put("aabb", Artifact(SOURCE, b"x"))
    (files(cache)[0].parent / ".new-killed").write_bytes(bytes(1000))
    cache.max_bytes = 0
    cache.prune()
    assert not files(cache)


def test_without_a_home_there_is_no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    def homeless() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("TILEWRIGHT_CACHE", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", homeless)
    assert default_cache().directory is None


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


def test_a_digest_is_of_the_program_alone() -> None:
    compiled = Artifact(SOURCE, b"binary", {}, {"compile_seconds": 1.0})
    stored = artifact_file.from_bytes(artifact_file.to_bytes(compiled))
    assert stored.source.digest() == SOURCE.digest()
    launched = replace(SOURCE, kernels=(KernelInfo("k", (0,), (2, 1, 1)),))
    assert len({SOURCE.digest(), launched.digest(), replace(SOURCE, text="").digest()}) == 3


def test_an_artefact_of_another_version_is_refused(tmp_path: Path) -> None:
    data = artifact_file.to_bytes(Artifact(SOURCE, b"x"))
    header = data[len(artifact_file.MAGIC) + 32 :].replace(b'"entry_name"', b'"entry_nome"')
    other = artifact_file.MAGIC + hashlib.sha256(header).digest() + header
    (tmp_path / "k.tw").write_bytes(other)
    with pytest.raises(DeviceError, match=r"load_module.*another version.*Write it again"):
        load_module(tmp_path / "k.tw")
    with pytest.raises(DeviceError, match=r"cannot be read \(No such file.*Module.save"):
        load_module(tmp_path / "missing.tw")
