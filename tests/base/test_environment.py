"""The page of environment variables is complete, and one module reads them."""

import re
from pathlib import Path

import pytest

from tilewright.base import environment

ROOT = Path(__file__).parents[2]
NAME = re.compile(r"TILEWRIGHT_[A-Z_]+\b")
OF_C = {  # names of the interface for C
    name
    for file in (ROOT / "src" / "tilewright").rglob("*.[ch]")
    for name in NAME.findall(file.read_text())
}
PAGE = (ROOT / "docs" / "environment.md").read_text()


def names(folder: str) -> dict[str, set[str]]:
    files = (p for p in (ROOT / folder).rglob("*.py") if "results" not in p.parts)
    return {str(p.relative_to(ROOT)): set(NAME.findall(p.read_text())) - OF_C for p in files}


@pytest.mark.parametrize("folder", ["src", "tests", "benchmarks", "examples"])
def test_every_variable_is_on_the_page(folder: str) -> None:
    listed = set(re.findall(r"^\| `(TILEWRIGHT_\w+)`", PAGE, re.M))
    used = set().union(*names(folder).values())
    assert used <= listed, used - listed
    if folder == "src":
        meant = {v for k, v in vars(environment).items() if k.isupper()}
        assert used == meant and all(f"`{name}`" in PAGE for name in meant)


def test_one_module_reads_them() -> None:
    text = {file: (ROOT / file).read_text() for file in names("src")}
    readers = {file for file, t in text.items() if re.search(r"""["']TILEWRIGHT_\w+["']""", t)}
    assert readers == {"src/tilewright/base/environment.py"}


def test_who_asks_is_named_and_does() -> None:
    for line in PAGE.splitlines():
        if not line.startswith("| `TILEWRIGHT_") or line.count("|") != 5:
            continue
        for file in re.findall(r"`(\w+/[\w/]+\.py)`", line):
            text = (ROOT / "src" / "tilewright" / file).read_text()
            assert "environment." in text, file
