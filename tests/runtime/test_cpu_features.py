"""Code for another CPU is refused before it runs: when it is built to run here, and loaded."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from llvmlite import binding

import tilewright as tw
from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError, TargetError
from tilewright.driver.build import build_artifact
from tilewright.driver.cache import Cache
from tilewright.driver.compilers import compile_source
from tilewright.runtime import Module, array, artifact_file, cpu, empty, load_module
from tilewright.runtime.device import local_target
from tilewright.runtime.drivers import cpu_features, cpu_host, cpu_names
from tilewright.targets.target import Target
from tilewright_tvm import relay, te

Build = Callable[..., Artifact]
HOST = binding.get_host_cpu_features()
TRIPLE = binding.get_process_triple()
ARCH = TRIPLE.partition("-")[0]
ABSENT = next((n for n in ("amx-tile", "avx512f", "xop", "sve2", "sme") if not HOST.get(n, 1)), "")
OTHER = next(a for a in ("aarch64", "x86_64") if a != ARCH)

lacking = pytest.mark.skipif(not ABSENT, reason="this machine has every feature in question")
x86 = pytest.mark.skipif(ARCH != "x86_64", reason="processors of x86-64")


def schedule() -> te.Schedule:
    x = te.placeholder((64,), name="x")
    y = te.compute((64,), lambda i: x[i] * 2.0, name="y")
    return te.create_schedule(y.op)


def native(elementwise: Build) -> Artifact:
    return elementwise(cpu(), [(2, 0, "+", 1)])


@lacking
def test_a_build_for_instructions_that_this_machine_lacks() -> None:
    s = schedule()
    module = tw.build(s, target=f"llvm -mattr=+{ABSENT}")  # it can be saved, and be read
    x, y = (tw.nd.array(np.zeros(64, "float32")) for _ in range(2))
    with pytest.raises(DeviceError, match=rf"compiled for a processor with .*{ABSENT}.* lacks"):
        module(x, y)
    assert build_artifact(s, Target(f"llvm -mattr=+{ABSENT}")).binary  # without running it


@lacking
def test_a_file_for_instructions_that_this_machine_lacks(tmp_path: Path) -> None:
    s = schedule()
    made = build_artifact(s, Target(f"llvm -mattr=+{ABSENT}"))
    older = replace(made, meta={k: v for k, v in made.meta.items() if k != "needs"})
    for artifact in (made, older):
        (tmp_path / "file").write_bytes(artifact_file.to_bytes(artifact))
        with pytest.raises(DeviceError, match=ABSENT):
            load_module(tmp_path / "file")


@lacking
def test_a_network_for_another_machine_is_built_and_not_run(tmp_path: Path) -> None:
    x = relay.var("x", shape=(2, 3))
    target = f"llvm -mattr=+{ABSENT}"
    library = relay.build(relay.Function([x], relay.exp(x)), target)
    assert "no kernel was run" in str(library.report)
    library.save(str(tmp_path / "net"))
    with pytest.raises(DeviceError, match=ABSENT):
        relay.load(str(tmp_path / "net"))["default"](cpu())


def test_what_this_machine_has_runs(elementwise: Build) -> None:
    artifact = native(elementwise)
    assert artifact.meta["needs"] and not cpu_features.missing(artifact.meta)
    assert local_target(Target("llvm"))[1] == cpu()
    assert cpu_features.missing({}) == ()  # of a compiler that says nothing


def test_an_artefact_is_judged_by_what_it_says(elementwise: Build) -> None:
    artifact = native(elementwise)
    present = next(n for n in artifact.meta["needs"] if HOST[n])
    x, out = array(np.ones(1000, np.float32)), empty(1000)
    Module(replace(artifact, meta=artifact.meta | {"needs": [present, "unknown"]}))(x, x, out)
    absent = next(n for n, has in HOST.items() if not has)
    with pytest.raises(DeviceError, match=f"with {absent}, which this one .* lacks"):
        Module(replace(artifact, meta=artifact.meta | {"needs": [absent]}))


@pytest.mark.slow
@x86
@pytest.mark.parametrize(
    ("cpu_name", "features", "inside", "outside"),
    [
        ("x86-64", "", (), ("avx", "avx2", "avx512f")),
        ("x86-64-v3", "", ("avx2", "fma", "bmi2"), ("avx512f",)),
        ("x86-64-v3", "-fma", ("avx2",), ("fma", "avx512f")),
        ("x86-64", "+avx2", ("avx", "avx2", "sse4.2"), ("fma",)),
        ("skylake-avx512", "", ("avx512f", "avx512vl"), ("avx512vnni", "amx-tile", "pku")),
    ],
)
def test_a_processor_implies_features(
    cpu_name: str, features: str, inside: tuple[str, ...], outside: tuple[str, ...]
) -> None:
    needs = set(cpu_features.required(TRIPLE, cpu_name, features) or ())
    assert needs.issuperset(inside) and needs.isdisjoint(outside)


@x86
def test_a_sum_of_features_is_told_by_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "avx10.1"
    parts = cpu_features._SYSTEM_NAMES[name]
    adds = set(cpu_features.required(TRIPLE, "x86-64-v3", f"+{name}") or ())
    assert adds - set(cpu_features.required(TRIPLE, "x86-64-v3", "") or ()) == {name, *parts}
    for flags, missing in ((parts, ()), (parts[:-1], (name,)), (parts[1:], (name,))):
        monkeypatch.setattr(cpu_host, "flags", lambda flags=flags: flags)
        assert cpu_features.missing_here({"needs": [name]}) == missing


@x86
def test_a_processor_that_is_unknown(elementwise: Build) -> None:
    for name, bits in (("nosuch", ""), ("i686", "64-bit ")):
        with pytest.raises(TargetError, match=f"LLVM knows no {bits}processor '{name}'"):
            compile_source(native(elementwise).source, f"llvm -mcpu={name}", Cache(None))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ("-mcpu=hasswell", "no processor 'hasswell' of x86_64. Did you mean haswell"),
        ("-mtriple=aarch64-linux-gnu -mcpu=cortex-72", "Did you mean cortex-a72"),
        ("-mtriple=armv7l-linux-gnueabihf -mcpu=cortex-a99", "no processor 'cortex-a99' of arm"),
        ("-mcpu=haswell -mattr=+avx2,+avx9", "no feature 'avx9' of x86_64"),
        ("-mtriple=aarch64-linux-gnu -mattr=-neonx", "no feature 'neonx' of aarch64"),
    ],
)
@x86
def test_a_misspelt_name_is_one_error_and_llvm_says_nothing(
    elementwise: Build, capfd: pytest.CaptureFixture[str], options: str, words: str
) -> None:
    for _ in range(2):
        with pytest.raises(TargetError, match=words):
            compile_source(native(elementwise).source, f"llvm {options}", Cache(None))
    assert capfd.readouterr().err == ""


def test_what_others_say_meanwhile_is_not_lost(capfd: pytest.CaptureFixture[str]) -> None:
    line = b"'x' is not a recognized processor for this target (ignoring processor)\n"
    cpu_names._said_of(lambda: os.write(2, b"before\n" + line + b"mine\n"))
    assert capfd.readouterr().err == "before\nmine\n"


def test_a_feature_says_whether_it_is_there() -> None:
    """LLVM ends the process otherwise."""
    with pytest.raises(TargetError, match="does not say whether 'avx2' is there"):
        Target("llvm -mattr=+avx,avx2")


def test_another_architecture_is_compiled_and_refused(elementwise: Build) -> None:
    target = Target(f"llvm -mtriple={OTHER}-linux-gnu")
    assert cpu_features.required("riscv64-linux-gnu", "generic", "") is None
    made = compile_source(native(elementwise).source, target, Cache(None))
    with pytest.raises(DeviceError, match="it was compiled for"):
        Module(made)


ARM = {"mtriple": "aarch64-linux-gnu", "mcpu": "generic", "mattr": "+fp-armv8,+neon"}
X86 = {"mtriple": "x86_64-unknown-linux-gnu", "mcpu": "haswell", "mattr": "+avx2,-avx512f"}


@pytest.mark.parametrize(
    ("code", "triple", "needs", "reason"),
    [
        (ARM, "aarch64-unknown-linux-gnu", ("fp-armv8", "neon"), ""),
        (ARM, "aarch64-linux-gnu", ("dotprod", "neon"), "needs dotprod, which the device lacks"),
        (ARM, "aarch64-linux-gnu", ("something-new",), ""),
        (ARM, "x86_64-linux-gnu", (), "is for x86_64-linux-gnu, and the device is aarch64"),
        (X86, "x86_64-unknown-linux-gnu", ("avx2", "avx512f"), "needs avx512f"),
        (X86, "x86_64-unknown-linux-gnu", ("avx2", "fma"), ""),
        ({}, "x86_64-linux-gnu", ("avx2",), ""),
    ],
)
def test_code_is_held_against_what_another_machine_says_of_itself(
    code: dict[str, str], triple: str, needs: tuple[str, ...], reason: str
) -> None:
    found = cpu_features.unfit({"triple": triple, "needs": needs}, code)
    assert reason in found and bool(reason) == bool(found)
