from pathlib import Path

import pytest

from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.driver import doctor
from tilewright.driver.doctor import diagnose
from tilewright.runtime import cpu, cuda, opencl
from tilewright.targets.kind import kind
from tilewright.targets.target import Target


def test_every_device_and_compiler_is_reported() -> None:
    findings = {f.what: f for f in diagnose()}
    compilers = {f"compile for {kind}" for kind in ("llvm", "cuda", "opencl")}
    assert {"kernel cache", *compilers} <= set(findings)
    for device in (cpu(), cuda(), opencl()):
        finding = findings[f"device {device}"]
        assert finding.works == device.exist
        error = device.why_not()
        if isinstance(error, TilewrightError):
            assert finding.way_out == error.way_out != "" and error.way_out in str(finding)
        else:
            assert "a small kernel is right" in finding.detail
    assert findings["device cpu(0)"].works and findings["compile for cuda"].works


class Fake:
    """A device whose architecture the compiler does not know; devices 0 and 1 exist."""

    kind, name, arch, limits = "cuda", "Old", "sm_20", {"cores": 4}

    def __init__(self, index: int) -> None:
        self.exist = index < 2
        self.index = index

    def why_not(self) -> TilewrightError | None:
        return None if self.exist else DeviceError(str(self), "there is none")

    @property
    def target(self) -> Target:
        return Target(f"cuda -arch={self.arch}")

    def __str__(self) -> str:
        return f"fake({self.index})"


def test_a_device_that_cannot_be_compiled_for_is_a_finding(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(doctor, "device", lambda kind, index: Fake(index))
    _, artifact = doctor._compiler(kind("llvm"))
    findings = doctor._devices("cuda", artifact)
    assert [f.what for f in findings] == ["device fake(0)", "device fake(1)"]
    for finding in findings:
        assert not finding.works and "'sm_20' is not supported" in finding.detail
        assert "sm_90" in finding.way_out


def test_a_cache_that_cannot_be_written_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "file"))
    finding = doctor._cache()
    assert not finding.works and "TILEWRIGHT_CACHE" in finding.way_out
    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "new"))
    assert doctor._cache().works
