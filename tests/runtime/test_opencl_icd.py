import os
from pathlib import Path

import pytest

from tilewright.runtime.drivers import opencl_icd


@pytest.fixture
def system(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    folder = tmp_path / "vendors"
    folder.mkdir()
    (folder / "pocl.icd").write_text("/usr/lib/libpocl.so\n")
    monkeypatch.setenv("OCL_ICD_VENDORS", "restored afterwards")
    monkeypatch.delenv("OCL_ICD_VENDORS")
    monkeypatch.setattr(opencl_icd, "_SYSTEM", folder)
    monkeypatch.setattr(opencl_icd, "_intel", lambda: "/venv/lib/libintelocl.so")
    monkeypatch.setattr(opencl_icd, "_nvidia", lambda: "/driver/libnvidia-opencl.so.1")
    monkeypatch.setattr(opencl_icd.tempfile, "tempdir", str(tmp_path))
    return folder


def registered() -> dict[str, str]:
    folder = Path(os.environ["OCL_ICD_VENDORS"])
    return {p.name: p.read_text().strip() for p in folder.iterdir()}


def test_unregistered_libraries_are_added(system: Path) -> None:
    (system / "nvidia.icd").write_text("libnvidia-opencl.so.1\n")  # the system has this one
    opencl_icd.register()
    assert registered() == {
        "pocl.icd": "/usr/lib/libpocl.so", "intel-cpu.icd": "/venv/lib/libintelocl.so",
        "nvidia.icd": "libnvidia-opencl.so.1",
    }  # fmt: skip
    first = os.environ.pop("OCL_ICD_VENDORS")
    opencl_icd.register()
    assert os.environ["OCL_ICD_VENDORS"] == first  # one folder, however many processes


def test_the_users_choice_stands(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OCL_ICD_VENDORS", "/mine")
    opencl_icd.register()
    assert os.environ["OCL_ICD_VENDORS"] == "/mine"


def test_nothing_to_add(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_icd, "_intel", lambda: "")
    monkeypatch.setattr(opencl_icd, "_nvidia", lambda: "")
    opencl_icd.register()
    assert "OCL_ICD_VENDORS" not in os.environ


def test_nowhere_to_write(system: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl_icd.tempfile, "tempdir", str(system / "pocl.icd"))
    opencl_icd.register()
    assert "OCL_ICD_VENDORS" not in os.environ
