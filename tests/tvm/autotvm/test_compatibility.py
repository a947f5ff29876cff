"""The page of TVM's names tells the truth: one that works is there, one that does not helps on."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

DOCS = Path(__file__).parents[3] / "docs" / "tvm"


def _generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location(
        "make_compatibility", DOCS / "make_compatibility.py"
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


GENERATOR = _generator()
ROWS = [row for rows in GENERATOR.SECTIONS.values() for row in rows]
THERE = [row.use or row.name for row in ROWS if row.state != GENERATOR.NOT_YET]
MISSING = [row.name for row in ROWS if row.state == GENERATOR.NOT_YET]


def test_the_page_is_current() -> None:
    assert GENERATOR.PAGE.read_text(encoding="utf-8") == GENERATOR.page(), (
        "run python docs/tvm/make_compatibility.py"
    )


def test_no_name_is_told_twice() -> None:
    names = [row.name for row in ROWS]
    assert len(set(names)) == len(names) > 200


@pytest.mark.slow
def test_names_that_work_are_there() -> None:
    missing = {}
    for name in THERE:
        try:
            GENERATOR.resolve(name)
        except Exception as error:
            missing[name] = str(error)
    assert THERE and missing == {}


@pytest.mark.parametrize("name", MISSING)
def test_a_name_that_is_missing_says_what_to_use(name: str) -> None:
    with pytest.raises((AttributeError, ImportError), match=r"does not exist here\. \w.+\.$"):
        GENERATOR.resolve(name)


@pytest.mark.parametrize("package", GENERATOR.OPERATORS)
def test_operators_that_the_page_lists_are_there(package: str) -> None:
    names = GENERATOR.operators(package)
    assert names
    assert all(callable(GENERATOR.resolve(f"{package}.{name}")) for name in names)


def test_an_unknown_name_is_an_ordinary_error() -> None:
    for owner in ("te", "autotvm", "relay.testing", "contrib", "s[C]", "s"):
        with pytest.raises(AttributeError, match=r"has no attribute 'nonsense'"):
            GENERATOR.resolve(f"{owner}.nonsense")
