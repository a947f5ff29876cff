"""The shape of the package: who imports whom, and what is imported only when it is needed."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

from tests import times

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "tilewright"
TVM = ROOT / "src" / "tilewright_tvm"
CORE = sorted(PACKAGE.rglob("*.py"))
FILES = CORE + sorted(TVM.rglob("*.py"))
PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
# Libraries that a user may not have, or that take long to import.
LAZY = {"llvmlite", "cuda", "pyopencl", "onnx", "onnxruntime", "torch", "xgboost", "rich"}
LONGEST = 600  # lines of a file


def test_rooms_import_only_the_rooms_before_them():
    pytest.importorskip("importlinter")
    code = "from importlinter.cli import lint_imports_command as run; run()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--no-logo", "--no-cache"],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_room_has_its_place_in_the_order():
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    known = [layer.strip("()") for layer in layers]
    rooms = {path.relative_to(PACKAGE).parts[0] for path in CORE if path.parent != PACKAGE}
    assert rooms <= set(known)
    assert len(known) == len(set(known))


@pytest.mark.slow
def test_no_module_needs_itself():
    """Not by way of others either, imports inside functions counted, those for types apart."""
    asked = {_module(path): path for path in CORE}
    needs = {name: _needed(path, asked) - {name} for name, path in asked.items()}
    while free := {name for name, others in needs.items() if not others & needs.keys()}:
        needs = {name: others for name, others in needs.items() if name not in free}
    assert {name: sorted(others & needs.keys()) for name, others in needs.items()} == {}


def _module(path: Path) -> str:
    parts = path.relative_to(ROOT / "src").with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def _needed(path: Path, known: dict[str, Path]) -> set[str]:
    """The modules that a module imports when it is loaded or when it is used."""
    found, left = set(), list(_tree(path).body)
    while left:
        node = left.pop()
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            left += node.orelse
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            whole = {f"{node.module}.{alias.name}" for alias in node.names}
            found |= whole & known.keys() or {node.module or ""}
        else:
            left += ast.iter_child_nodes(node)
    return found & known.keys()


PLACE = re.compile(r"(tilewright(?:_tvm)?)((?:\.[a-z_][a-z_0-9]*)*)(?::[\w.]+)?")
# Who may name a module of a later room in a string: it is asked for by name, and not before.
NAMES_LATER = {
    "__init__.py": "the package's own names, and what rooms find in later ones",
    **{f"targets/{kind}.py": "the row of a device kind: its printer, compiler, driver"
       for kind in ("cuda", "llvm", "opencl")},
    "base/forward.py": "names of TVM, which are those of tilewright_tvm",
    "driver/archive.py": "puts files of both packages into an archive",
}  # fmt: skip


def test_no_string_names_a_module_of_a_later_room():
    layers = PYPROJECT["tool"]["importlinter"]["contracts"][0]["layers"]
    rank = {layer.strip("()"): -k for k, layer in enumerate(layers)}
    found = set()
    for path in CORE:
        file = path.relative_to(PACKAGE)
        own = rank.get(file.parts[0].removesuffix(".py"), -len(layers))  # of files in no room
        for node in ast.walk(_tree(path)):
            text = node.value if isinstance(node, ast.Constant) else None
            place = PLACE.fullmatch(text) if isinstance(text, str) else None
            if place is None:
                continue
            room = place[2].split(".")[1] if place[2] else ""
            if place[1] == "tilewright_tvm" or rank.get(room, own) > own:
                found.add(file.as_posix())
    assert found == set(NAMES_LATER)


def test_the_compiler_loads_nothing_of_tvms_home():
    code = (
        "import sys, tilewright\n"
        "from tilewright import te, topi, front\n"
        "import tilewright.cli.app, tilewright.network.build, tilewright.models.networks\n"
        "try: front.load('no.pt2')\n"
        "except RuntimeError: pass\n"
        "print([m for m in sys.modules if m.startswith('tilewright_tvm')])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout == "[]\n", done.stdout + done.stderr


def test_importing_it_and_its_help_load_no_numpy():
    code = (
        "import sys, tilewright\n"
        "from tilewright.cli.app import cli\n"
        "cli.main(['--help'], standalone_mode=False)\n"
        "print([m for m in sys.modules if m in ('numpy', 'tilewright.targets')])\n"
        "from tilewright import Target; print(Target('llvm').kind)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.stdout.endswith("\n[]\nllvm\n"), done.stdout + done.stderr


@pytest.mark.slow
def test_optional_and_slow_libraries_are_imported_when_needed():
    found = []
    for path in FILES:
        for name, line in _imports_at_the_top(_tree(path)):
            if name.partition(".")[0] in LAZY:
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert found == []


@pytest.mark.slow
def test_values_are_cached_without_a_lock_that_a_fork_would_copy():
    """`functools.cached_property` of Python 3.11 has one; `functools.cache`, in C, has none."""
    found = []
    for path in FILES:
        for node in ast.walk(_tree(path)):
            names = [a.name for a in node.names] if isinstance(node, ast.ImportFrom) else []
            named = node.attr if isinstance(node, ast.Attribute) else ""
            functools = (
                (isinstance(node, ast.ImportFrom) and node.module == "functools")
                or (isinstance(node, ast.Attribute) and ast.unparse(node.value) == "functools")
            )  # fmt: skip
            if functools and "cached_property" in (*names, named):
                found.append(f"{path.relative_to(ROOT)}:{node.lineno}")
    assert found == []


@pytest.mark.slow
def test_every_module_opens_by_saying_what_it_is():
    silent = [
        str(path.relative_to(ROOT)) for path in FILES
        if path.stat().st_size and not ast.get_docstring(_tree(path))
    ]  # fmt: skip
    assert silent == []


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples", "docs"])
def test_no_file_is_too_long_to_find_ones_way(folder):
    counts = {p: len(p.read_text().splitlines()) for p in (ROOT / folder).rglob("*.py")}
    assert {str(p.relative_to(ROOT)): n for p, n in counts.items() if n > LONGEST} == {}


def test_no_folder_of_tests_takes_more_than_its_budget():
    kept = json.loads(times.KEPT.read_text())
    assert times.over(kept["folders"]) == {}
    assert times.BUDGETS.keys() <= kept["folders"].keys()
    assert kept["seconds"] <= times.WHOLE


def test_the_commands_of_the_readme_name_real_extras():
    text = (ROOT / "README.md").read_text()
    extras = PYPROJECT["project"]["optional-dependencies"]
    named = re.findall(r"install (?:-q )?'\.\[([a-z0-9,-]+)\]'", text)
    assert len(named) >= 4 and {e for group in named for e in group.split(",")} <= set(extras)
    for command in ("main job", "tests"):  # .ci/run takes them from there
        block = text.partition(f"<!-- command: {command} -->\n```sh\n")[2].partition("\n```")[0]
        assert block.startswith("python3 -m venv .venv && ") and "\n" not in block


@cache
def _tree(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def _imports_at_the_top(tree: ast.Module) -> list[tuple[str, int]]:
    found = []
    for node in tree.body:  # not inside functions, not under `if TYPE_CHECKING:`
        if isinstance(node, ast.Import):
            found += [(alias.name, node.lineno) for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found.append((node.module or "", node.lineno))
    return found
