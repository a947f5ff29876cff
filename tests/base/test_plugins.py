"""What other packages add: looked for when a name is missing, and never before."""

from __future__ import annotations

import subprocess
import sys
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace

import pytest

from tilewright.base import plugins

# How a log begins that AutoTVM wrote.
LINE = '{"input": ["llvm", "dense", [], {}], "config": {}, "result": [[1.0], 0, 1.0, 1.0]}'


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As in a process in which nobody has registered anything."""
    monkeypatch.setattr(plugins, "_PLACES", {})
    monkeypatch.setattr(plugins, "_looked", False)
    monkeypatch.setattr(metadata, "entry_points", lambda group: [])
    monkeypatch.setattr(plugins, "__file__", str(tmp_path / "src/tilewright/base/plugins.py"))


def entry(name: str, value: str) -> metadata.EntryPoint:
    return metadata.EntryPoint(name, value, plugins.GROUP)


def run(code: str, *path: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code, *map(str, path)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.usefixtures("alone")
def test_what_is_registered_is_imported_when_it_is_used() -> None:
    assert plugins.find("tuners", "best") is None and plugins.names("tuners") == []
    plugins.register("tuners", {"best": "builtins:max", "never": "no.such.module:thing"})
    assert plugins.find("tuners", "best") is max and plugins.names("tuners") == ["best", "never"]
    assert plugins.find("logs", "best") is None
    plugins.register("tuners", {"never": "math"})
    assert [found.__name__ for found in plugins.every("tuners")] == ["max", "math"]


@pytest.mark.usefixtures("alone")
def test_a_distribution_that_fails_costs_a_warning(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = [entry("gone", "no.such:thing")]
    monkeypatch.setattr(metadata, "entry_points", lambda group: entries)
    with pytest.warns(RuntimeWarning, match="plugin gone .*is left out: ModuleNotFoundError"):
        assert plugins.names("logs") == []
    monkeypatch.setattr(metadata, "entry_points", lambda group: pytest.fail("looked twice"))
    assert plugins.find("logs", "any") is None


@pytest.mark.usefixtures("alone")
def test_a_source_tree_need_not_be_installed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    mine = SimpleNamespace(register=lambda: plugins.register("logs", {"best": "math"}))
    monkeypatch.setitem(sys.modules, "mine", mine)
    for name, known in (("another", []), ("tilewright", ["best"])):
        (tmp_path / "pyproject.toml").write_text(
            f'[project]\nname = "{name}"\n'
            f'[project.entry-points."{plugins.GROUP}"]\nmine = "mine:register"\n'
        )
        monkeypatch.setattr(plugins, "_looked", False)
        assert plugins.names("logs") == known


def test_a_start_looks_for_nothing() -> None:
    code = """
import sys
import tilewright
from tilewright.cli import app
try:
    app.main(["--help"])
except SystemExit:
    pass
from tilewright.base import plugins
print(plugins._looked, [name for name in sys.modules if "foreign" in name])
"""
    assert run(code).splitlines()[-1] == "False []"


def test_a_line_of_tvm_is_known_without_an_import(tmp_path: Path) -> None:
    """By the entry point of the distribution."""
    log = tmp_path / "old.json"
    log.write_text(f"{LINE}\n")
    code = """
import sys
from tilewright.measure.database import Database
from tilewright.search.propose.named import tuner_name
print(*Database.load(sys.argv[1]).skipped, tuner_name("xgb-rank-knob"), sep=", ")
"""
    assert run(code, log) == "a line of TVM's AutoTVM log, xgb_rank_knob\n"


def test_a_log_of_ours_asks_nobody(tmp_path: Path) -> None:
    log = tmp_path / "own.jsonl"
    code = """
import sys
from tilewright.base import plugins
from tilewright.measure import Database, Result, TaskId, make_record
from tilewright.measure.sources import source_of
with Database(sys.argv[1]) as database:
    database.append(make_record(TaskId("t", [], "h", "llvm"), Result(costs=(1e-3,))))
print(len(source_of(sys.argv[1])), len(Database(sys.argv[1])), plugins._looked)
"""
    assert run(code, log) == "1 1 False\n"


class Thing:
    """Of ours; `ThingsNames` is what a higher package adds to it."""

    size = 2

    def __getattr__(self, name: str) -> object:
        return plugins.member(self, name, "the thing")


class Part(Thing):
    pass


class ThingsNames(Thing):
    @property
    def doubled(self) -> int:
        return 2 * self.size

    def times(self, n: int) -> int:
        return n * self.size

    def _own(self) -> None:
        pass


@pytest.mark.usefixtures("alone")
@pytest.mark.parametrize("kind", [Thing, Part])
def test_members_of_a_higher_package_are_those_of_a_class_of_ours(kind: type[Thing]) -> None:
    thing = kind()
    assert not hasattr(thing, "doubled")
    plugins.register("members", {"Thing": f"{__name__}:ThingsNames"})
    assert thing.doubled == 4 and thing.times(3) == 6
    for name in ("_own", "other"):
        with pytest.raises(AttributeError, match=f"^the thing has no attribute '{name}'"):
            getattr(thing, name)


def test_members_of_tvm_need_no_import() -> None:
    code = """
import sys
from tilewright import te
from tilewright.schedule.space.config_space import ConfigSpace
a = te.placeholder((4,), name="a")
b = te.compute((4,), lambda i: a[i] + 1, name="b")
s = te.create_schedule(b.op)
from tilewright.targets.target import Target
print("tilewright_tvm" in sys.modules, s[b].attach_type, s.normalize() is s, s.groups)
print(repr(Target("opencl -device=mali").device_name))
try:
    ConfigSpace().sample_ints(2)
except Exception as error:
    print(error)
try:
    s[b].prefetch
except AttributeError as error:
    print(error)
"""
    first, device, second, third = run(code).splitlines()
    assert (
        first == "False 1 True []" and device == "'mali'" and "found 1 valid indices only" in second
    )
    assert third.startswith("s[b].prefetch does not exist here. Use s.cache_read")
