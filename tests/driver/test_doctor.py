from tilewright.base.errors import TilewrightError
from tilewright.driver.doctor import diagnose
from tilewright.runtime import cpu, cuda, opencl


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
