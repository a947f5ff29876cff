"""Targets from text: options change limits; what cannot be read is refused with a way out."""

from __future__ import annotations

import json
import os
import pickle
from dataclasses import replace

import pytest

from tilewright.base.dtype import FLOAT32, DType
from tilewright.base.errors import TargetError
from tilewright.runtime.device import device
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.tags import list_tags
from tilewright.targets.target import Target

REFUSED = {
    "": "unknown kind ''. Use one of llvm, cuda, opencl",
    "mental": "unknown kind 'mental'",
    "cuda sm_90": "cannot read 'sm_90'. Write options as -name=value",
    "cuda -arch=sm_20": "arch 'sm_20' is not supported. Use one of sm_53",
    "cuda -speed=9": "unknown option -speed. Known: -arch",
    "cuda -max-block=5": "unknown option -max-block",  # three numbers, not one
    "cuda -warp-size=wide": "-warp-size must be a whole number from 1, not 'wide'",
    "llvm -num-cores=-4": "-num-cores must be a whole number from 1, not '-4'",
    "llvm -vector-bytes=x": "-vector-bytes must be a whole number",
    'llvm "': "No closing quotation",
}


@pytest.mark.parametrize("text", REFUSED)
def test_unreadable_targets(text: str) -> None:
    with pytest.raises(TargetError, match=REFUSED[text]) as caught:
        Target(text)
    assert caught.value.way_out


def test_options_change_limits() -> None:
    limits = Target("cuda -max-threads-per-block=512").limits
    assert limits.max_threads_per_block == 512
    assert limits.warp_size == Target("cuda").limits.warp_size
    assert Target("llvm -num-cores=3 -vector-bytes=32").limits.cores == 3


def test_an_architecture_between_known_ones_has_the_limits_below_it() -> None:
    assert Target("cuda -arch=sm_87").limits == Target("cuda -arch=sm_86").limits
    newer, known = (Target(f"cuda -arch={arch}").limits for arch in ("sm_120a", "sm_90"))
    groups = [rate for rate in known.atoms if rate not in newer.atoms]  # of this one alone
    assert groups and all(rate.name.startswith("m64") for rate in groups)
    assert newer == replace(known, atoms=newer.atoms)


def test_a_target_travels_with_the_limits_it_was_given() -> None:
    target = Target("opencl").with_limits(max_threads_per_block=64)
    again = pickle.loads(pickle.dumps(target))
    assert again == target and again.limits.max_threads_per_block == 64


def test_the_innermost_target_is_current() -> None:
    assert Target.current() is None
    with Target("cuda"), Target("llvm") as inner:
        assert Target.current() is inner
    assert Target.current() is None


def test_a_host_is_accepted_as_tvm_has_it() -> None:
    assert Target("cuda", host="llvm") == Target("cuda")
    assert Target(Target("cuda"), host=Target("llvm")) == Target("cuda")


def test_a_target_by_itself_does_not_ask_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two machines read the same target from the same text."""

    def asked(*_: object) -> None:
        raise AssertionError("it looked at the machine")

    monkeypatch.setattr("os.sched_getaffinity", asked)
    monkeypatch.setattr("builtins.open", asked)
    limits = Target("llvm").limits
    assert (limits.cores, limits.vector_bytes) == (4, 16)


def test_architectures_are_of_the_kinds_that_have_them() -> None:
    assert Target("cuda").arch == "sm_90" and Target("cuda -arch=sm_80").arch == "sm_80"
    assert Target("opencl").arch == Target("llvm").arch == ""


SPEC = DeviceSpec(
    "cuda", "Some GPU", "some gpu / 8 cores", "sm_86", (("cores", 8), ("l2_bytes", 1 << 20)),
    lacks=("float64",),
)  # fmt: skip


def test_a_device_completes_what_the_target_leaves_open() -> None:
    found = Target("cuda").on(SPEC)
    assert str(found) == "cuda -arch=sm_86" and found.arch == "sm_86"
    assert (found.limits.cores, found.limits.l2_bytes) == (8, 1 << 20)
    assert (
        found.limits.shared_bytes_per_block
        == Target("cuda -arch=sm_86").limits.shared_bytes_per_block
    )
    assert found.fingerprint == "some gpu / 8 cores" and found.on(SPEC) == found
    assert pickle.loads(pickle.dumps(found)) == found

    named = Target("cuda -arch=sm_80 -cores=5").with_limits(l2_bytes=77).on(SPEC)
    assert (named.arch, named.limits.cores, named.limits.l2_bytes) == ("sm_80", 5, 77)
    with pytest.raises(TargetError, match="the device is of kind cuda"):
        Target("llvm").on(SPEC)


def test_this_machine_completes_what_runs_on_it() -> None:
    here = Target("llvm").native()
    assert here.limits.cores == len(os.sched_getaffinity(0)) and str(here) == "llvm"
    assert here.limits.rate(FLOAT32) == 3.5e9 * here.limits.vector_bytes * here.limits.cores
    assert here.native() is here and not here.fingerprint
    assert Target("llvm -num-cores=3").native().limits.cores == 3
    assert Target("llvm").with_limits(max_stack_bytes=5).native().limits.max_stack_bytes == 5
    far = Target("llvm -mtriple=aarch64-linux-gnu")
    assert far.native() is far and far.limits.vector_bytes == 16
    assert Target("cuda").native() == Target("cuda")


def test_rates_are_of_an_element_type() -> None:
    hopper, turing = Target("cuda").limits, Target("cuda -arch=sm_75").limits
    assert hopper.rate(DType("float64")) == hopper.rate(DType("float32")) / 2
    assert turing.rate(DType("float64")) == turing.rate(DType("float32")) / 32
    assert hopper.rate(DType("float16")) == 2 * hopper.rate(DType("float32")), "in half2"
    assert hopper.rate(DType("int8")) == hopper.rate(DType("int32")), "of its compute type"
    assert hopper.rate(DType("bfloat16")) == hopper.rate(DType("float32"))
    cpu = Target("llvm -vector-bytes=32").limits
    assert cpu.rate(DType("float64")) == cpu.rate(DType("float32")) / 2
    assert {hopper, turing, cpu}, "limits hash"


def test_a_target_has_the_attributes_of_tvms() -> None:
    t = Target(target="cuda -arch=sm_80", host="llvm")
    assert t.kind == "cuda" == t.kind.name and t.keys == ("cuda", "gpu")
    assert t.attrs == {"arch": "sm_80"} and t.host == Target("llvm")
    assert t.max_num_threads == t.limits.max_threads_per_block and t.thread_warp_size == 32
    assert Target("llvm -mcpu=skylake -mattr=+avx2,+fma").mattr == ["+avx2", "+fma"]
    assert Target("llvm -mcpu=skylake").mcpu == "skylake" and Target("llvm").keys == ("cpu",)
    assert Target("llvm -mtriple=aarch64-linux-gnu").keys == ("arm_cpu", "cpu")
    assert Target("opencl -device=mali").keys == ("mali", "opencl", "gpu")
    assert pickle.loads(pickle.dumps(t)).kind.name == "cuda"
    with pytest.raises(TargetError, match="no target is in force"):
        Target.current(allow_none=False)


def test_a_host_within_the_text() -> None:
    board = "llvm -mtriple=aarch64-linux-gnu"
    for text in ("cuda --host llvm", "cuda -host=llvm", "cuda --host=llvm"):
        assert Target(text).host == Target("llvm") and str(Target(text)) == "cuda"
    assert Target(f"cuda -arch=sm_80 --host '{board}'").triple == "aarch64-linux-gnu"
    assert Target("cuda --host llvm", board).triple == "aarch64-linux-gnu"
    for text in ("cuda --host", "cuda --host -arch=sm_80", "cuda arch sm_80", "cuda -=3"):
        with pytest.raises(TargetError):
            Target(text)


def test_targets_as_dicts_and_json() -> None:
    target = Target("cuda -arch=sm_80", "llvm -mcpu=skylake")
    plain = target.export()
    assert plain == {
        "kind": "cuda", "arch": "sm_80", "host": {"kind": "llvm", "mcpu": "skylake"}
    }  # fmt: skip
    for given in (plain, json.dumps(plain)):
        assert Target(given) == target and Target(given).host == target.host
    for text in ('{"kind": ', "{}", "{" * 1500):
        with pytest.raises(TargetError, match="no JSON of a target"):
            Target(text)
    assert {"llvm", "cuda", "opencl"} <= set(Target.list_kinds())


def test_tags_are_the_targets_of_products() -> None:
    card = Target("nvidia/geforce-rtx-3090")
    assert (
        card.kind == "cuda" and card.arch == "sm_86" and card.limits.shared_bytes_per_block == 49152
    )
    assert card.attrs["registers_per_block"] == 65536 == card.limits.registers_per_block
    assert Target(str(card)) == card, "records hold no tags"
    nano = Target({"tag": "nvidia/jetson-nano", "thread_warp_size": 16}, "raspberry-pi/5-aarch64")
    assert nano.attrs["registers_per_block"] == 32768 and nano.thread_warp_size == 16
    assert nano.host is not None and nano.host.mcpu == "cortex-a76" and nano.arch == "sm_53"
    assert Target("nvidia/nvidia-a100").l2_cache_size_bytes == 40 << 20
    orin = Target("nvidia/jetson-agx-orin-32gb")
    assert orin.host is not None and orin.triple == "aarch64-linux-gnu"
    assert all(Target(tag) == Target(text) for tag, text in list_tags().items())
    with pytest.raises(TargetError, match="unknown kind 'nvidia/geforce-9'"):
        Target("nvidia/geforce-9")


def test_values_of_options() -> None:
    t = Target("llvm -mattr=+avx2,+fma -num-cores=4 -libs=cblas -model=unknown -mcpu=skylake")
    assert t.attrs == {
        "mattr": ["+avx2", "+fma"], "num-cores": 4, "libs": ["cblas"], "mcpu": "skylake"
    }  # fmt: skip
    assert t.model == "unknown" and t == Target(
        "llvm -mcpu=skylake -mattr=+avx2,+fma -num-cores=4 -libs=cblas"
    )
    assert Target(t.export()) == t
    assert Target("cuda -max_num_threads=256").limits.max_threads_per_block == 256
    assert SPEC.kind == "cuda"
    there = Target("cuda -arch=sm_80").on(SPEC)
    assert there.attrs["max_threads_per_block"] == there.limits.max_threads_per_block
    assert there.export() == {"kind": "cuda", "arch": "sm_80"}
    with pytest.raises(ValueError, match="libs cannot be"):
        Target({"kind": "llvm", "libs": {"a": "b"}})


def test_the_float_abi_is_the_triples() -> None:
    hard = Target("llvm -mtriple=armv7l-linux-gnueabihf -mfloat-abi=hard")
    assert hard.attrs["mfloat-abi"] == "hard"
    for text in ("-mtriple=armv7l-linux-gnueabihf -mfloat-abi=soft", "-mfloat-abi=firm"):
        with pytest.raises(TargetError, match="Name it there"):
            Target(f"llvm {text}")


def test_the_target_of_a_device_that_is_here() -> None:
    assert Target.from_device("cpu") == Target("llvm").on(device("cpu").spec)
    assert Target.from_device(device("cpu")) == Target.from_device("llvm")
