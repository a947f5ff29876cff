"""What devices say of themselves, and what a target becomes on them."""

import os
import pickle

import numpy as np
import pytest

import tilewright_tvm
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device, cpu, device
from tilewright.runtime.device import local_target
from tilewright.runtime.drivers import cpu_host
from tilewright.targets.target import Target
from tilewright_tvm.testing import device_enabled


def test_a_device_describes_itself(device: Device) -> None:
    spec = device.spec
    assert spec.kind == device.device_kind.name and spec.name == device.name
    assert spec.fingerprint and spec == device.spec
    assert pickle.loads(pickle.dumps(spec)) == spec
    target = device.target
    assert target.device == spec and target.limits.cores == device.limits["cores"]
    assert local_target(Target(spec.kind)) == (target, device)


def test_the_fingerprint_of_a_processor_is_of_its_make(
    monkeypatch: pytest.MonkeyPatch, tmp_path
) -> None:
    """Not of cores or of flags that code does not use; instructions count."""
    lines = {"cpu family": "25", "model": "1", "model name": "Fast 9", "flags": "avx fma pti"}

    def told(**changes: str) -> str:
        file = tmp_path / "cpuinfo"
        file.write_text("".join(f"{k}\t: {v}\n" for k, v in (lines | changes).items()))
        monkeypatch.setattr(cpu_host, "_CPUINFO", str(file))
        cpu_host._field.cache_clear()
        return cpu_host.fingerprint()

    first = told()
    assert first.startswith("Fast 9 / ") and first == told(flags="ibrs avx fma")
    assert len({first, told(flags="avx fma avx512f"), told(model="2")}) == 3
    assert cpu_host.limits()["vector_bytes"] == 16  # "model" is no field of its own in "model name"
    told(flags="avx2 avx512f")
    assert cpu_host.limits()["vector_bytes"] == 64
    monkeypatch.setattr(cpu_host, "_CPUINFO", str(tmp_path / "missing"))
    cpu_host._field.cache_clear()
    assert cpu_host.fingerprint() and cpu_host.limits()["vector_bytes"] == 16
    cpu_host._field.cache_clear()


def test_what_this_machine_cannot_run_stays_as_it_was_asked_for() -> None:
    far = Target("llvm -mtriple=aarch64-linux-gnu")
    assert local_target(far) == (far, None)
    elsewhere = Target("llvm").on(type(cpu().spec)("llvm", fingerprint="another processor"))
    assert local_target(elsewhere) == (elsewhere, None)


def test_words_for_devices() -> None:
    assert device("llvm") == device(Target("llvm -num-cores=2")) == cpu()
    assert device("cl").kind == "opencl" and str(device("cuda", 1)) == "cuda(1)"
    assert cpu().limits["cores"] <= len(os.sched_getaffinity(0))


def test_kinds_of_tvm_that_are_not_here_have_no_device() -> None:
    for word in ("vulkan", "metal -max_num_threads=64", "rocm"):
        dev = device(word)
        assert not dev.exist and not device_enabled(word)
        with pytest.raises(DeviceError, match=f"unknown kind '{dev.kind}'. Use one of cpu"):
            tilewright_tvm.nd.array(np.zeros(3, "float32"), dev)
    with pytest.raises(DeviceError, match="unknown kind 'vulcan'"):
        device("vulcan")
