"""What errors tell users to install: what pyproject.toml asks for, under names that exist."""

import re
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest

from tilewright.base import extras
from tilewright.base.extras import EXTRAS, install

ROOT = Path(__file__).parents[2]
TEXTS = [ROOT / "README.md", ROOT / "SECURITY.md", ROOT / "CONTRIBUTING.md"] + [
    path
    for folder in ("src", "docs", "examples", "benchmarks")
    for path in sorted((ROOT / folder).rglob("*"))
    if path.suffix in (".py", ".md", ".html", ".toml", ".sh")
]
# A name that no index has, so somebody else's package could answer to it one day.
OWN_NAME = re.compile(r"tilewright\[[\w,-]+\]|pip install\s+(-\S+\s+)*[\"']?tilewright\b")


def test_the_table_is_that_of_pyproject() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    listed = {
        name: tuple(needed)
        for name, needed in project["optional-dependencies"].items()
        if name != "test"
    }
    assert listed.pop("cuda") == EXTRAS["cuda13"]
    assert listed == EXTRAS


def test_a_version_is_named_where_the_newest_would_not_do(monkeypatch: Any) -> None:
    monkeypatch.setenv("PATH", str(Path(sys.executable).parent))
    assert install("onnx") == "pip install onnx onnxruntime"
    assert install("cuda12") == "pip install 'cuda-bindings>=12.8,<13' nvidia-cuda-nvrtc-cu12"


@pytest.mark.parametrize(
    ("pip", "uv", "begins"),
    [
        (Path(sys.executable).with_name("pip"), None, "pip install onnx"),
        ("/usr/bin/pip", "/usr/bin/uv", f"{sys.executable} -m pip install onnx"),
        (None, None, f"{sys.executable} -m pip install onnx"),
    ],
)
def test_the_command_is_of_this_python(monkeypatch: Any, pip: Any, uv: Any, begins: str) -> None:
    """Not of the system's, which a shell finds where an environment is not activated."""
    places = {"pip": pip and str(pip), "uv": uv}
    monkeypatch.setattr(extras.shutil, "which", places.get)
    assert install("onnx").startswith(begins)
    if not (pip and str(pip) == str(Path(sys.executable).with_name("pip"))):
        monkeypatch.setattr(extras, "find_spec", lambda name: None)
        by_uv = f"uv pip install --python {sys.executable} onnx"
        assert install("onnx").startswith(by_uv if uv else begins)


@pytest.mark.parametrize("text", [
    "pip install 'tilewright[onnx]'", 'pip install "tilewright[cuda12]"', "'tilewright[farm]'",
    "pip install -U tilewright", "pip install tilewright",
])  # fmt: skip
def test_the_pattern_finds_what_must_not_be_said(text: str) -> None:
    assert OWN_NAME.search(text)


def test_nothing_tells_users_to_install_a_package_of_our_name() -> None:
    assert len(TEXTS) > 500
    said = {
        str(path.relative_to(ROOT)): found.group()
        for path in TEXTS
        if (found := OWN_NAME.search(path.read_text(errors="replace")))
    }
    assert not said
