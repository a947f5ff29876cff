"""The pages: links lead somewhere, files that they name are there, design.md stays one page.

A page names a file by as much of its path as tells it apart: `schedule/tree/bounds.py`.  So do the
docstrings of modules, which say where to read next.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [str(p.relative_to(ROOT)) for p in sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")])]
# What was written down on a day names what was there on that day.
DATED = re.compile(r"CHANGELOG|docs/performance-log|docs/decisions/")
LINK = re.compile(r"\]\(([^)\s]+)\)")
FILE = re.compile(r"`(\w[\w.-]*(?:/[\w.-]+)*\.(?:py|md|toml))`")
TREES = ("src", "tests", "docs", "examples", "benchmarks")
LONGEST = 15_000  # bytes of docs/design.md


@pytest.mark.parametrize("page", PAGES)
def test_a_link_leads_somewhere(page: str) -> None:
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text_of(page), flags=re.M | re.S)
    assert [link for link in LINK.findall(prose) if leads_nowhere(page, link)] == []


@pytest.mark.parametrize("page", [page for page in PAGES if not DATED.match(page)])
def test_a_file_that_a_page_names_is_there(page: str) -> None:
    assert sorted(name for name in set(FILE.findall(text_of(page))) if not is_there(name)) == []


def test_a_file_that_a_module_names_is_there() -> None:
    gone = []
    for path in sorted((ROOT / "src").rglob("*.py")):
        said = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
        gone += [
            f"{path.relative_to(ROOT)}: {name}" for name in FILE.findall(said) if not is_there(name)
        ]
    assert gone == []


def test_dead_links_and_missing_files_are_seen() -> None:
    assert leads_nowhere("docs/design.md", "nothing.md")
    assert leads_nowhere("docs/design.md", "#nothing")
    assert leads_nowhere("README.md", "docs/design.md#nothing")
    assert not leads_nowhere("docs/design.md", "../README.md#tilewright")
    assert is_there("schedule/state.py") and not is_there("chedule/state.py")
    assert FILE.findall("`te/dag.py`, `s.split()`, `docs/a-b.md`") == ["te/dag.py", "docs/a-b.md"]


def test_the_design_is_one_page() -> None:
    assert (ROOT / "docs" / "design.md").stat().st_size <= LONGEST


def test_the_design_has_every_room_in_its_order() -> None:
    told = re.findall(r"^\| `(\w+)` \|", text_of("docs/design.md"), re.M)
    contracts = tomllib.loads(text_of("pyproject.toml"))["tool"]["importlinter"]["contracts"]
    layers = [layer.strip("()") for layer in contracts[0]["layers"]]
    folders = {p.parent.name for p in (ROOT / "src" / "tilewright").glob("*/__init__.py")}
    assert told == [layer for layer in reversed(layers) if layer in folders]


def test_every_decision_is_in_the_index() -> None:
    index = text_of("docs/decisions/README.md")
    dated = re.findall(r"^\| (\d{4}-\d\d)-\d\d \| \[.+?\]\((.+?\.md)\) \|", index, re.M)
    files = {p.name for p in (ROOT / "docs" / "decisions").iterdir()} - {"README.md"}
    assert {name for _, name in dated} == files and len(dated) == len(files)
    assert all(name.startswith(month) for month, name in dated)


def test_every_page_is_in_the_navigation() -> None:
    """But for those that the index of decisions lists."""
    told = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", text_of("mkdocs.yml"), re.M)
    assert len(told) == len(set(told))
    pages = {page.removeprefix("docs/") for page in PAGES}
    assert set(told) == {p for p in pages if not re.match(r"decisions/\d", p)}


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    pytest.importorskip("mkdocs")
    pytest.importorskip("material")
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", tmp_path],
        cwd=ROOT, capture_output=True, text=True, timeout=120,
        env=os.environ | {"NO_MKDOCS_2_WARNING": "1"},
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    made = list(tmp_path.rglob("*.html"))
    assert len(made) > len(PAGES)
    loads = re.compile(r"<(?:script|img|link rel=\"stylesheet\")[^>]+(?:src|href)=\"(?:https?:)?//")
    texts = {p: re.sub(r"(?s)<pre.*?</pre>", "", p.read_text("utf-8")) for p in made}
    assert [page for page, text in texts.items() if loads.search(text)] == []
    no_list = re.compile(r"(?m)^(?:<p>)?- ")  # a list that the site takes for text
    assert [page for page, text in texts.items() if no_list.search(text)] == []


def leads_nowhere(page: str, link: str) -> bool:
    if re.match(r"[a-z]+:", link):
        return False  # of another site
    path, _, heading = link.partition("#")
    target = os.path.normpath(os.path.join(os.path.dirname(page), path)) if path else page
    if not (ROOT / target).exists():
        return True
    return bool(heading) and heading not in headings(target)


@cache
def headings(page: str) -> set[str]:
    """Anchors of the headings of a page, as GitHub makes them."""
    plain = re.sub(r"^```.*?^```", "", text_of(page), flags=re.M | re.S)
    titles = re.findall(r"^#+ (.+)$", plain, re.M)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@cache
def names() -> frozenset[str]:
    """Every file of the tree, by each end of its path: `a/b.py`, `b.py`."""
    below = (p for tree in TREES for p in (ROOT / tree).rglob("*"))
    parts = [p.relative_to(ROOT).parts for p in [*below, *ROOT.iterdir()] if p.is_file()]
    return frozenset("/".join(whole[k:]) for whole in parts for k in range(len(whole)))


def is_there(name: str) -> bool:
    return name in names()


def text_of(page: str) -> str:
    return (ROOT / page).read_text(encoding="utf-8")
