"""Targets for other machines: their numbers are those of the processor that they name."""

from __future__ import annotations

import pickle

import pytest

from tilewright.runtime.device import local_target
from tilewright.targets import processors
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

A72 = "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon"
ARMV7 = "llvm -mtriple=armv7l-linux-gnueabihf"
WIDE = DeviceSpec("llvm", "this machine", limits=(("cores", 64), ("vector_bytes", 64)))

VECTORS = {  # target: bytes of a vector, registers
    A72: (16, 32),
    f"{ARMV7} -mattr=+neon": (16, 16),
    ARMV7: (8, 16),
    "llvm -mcpu=x86-64": (16, 16),
    "llvm -mcpu=haswell": (32, 16),
    "llvm -mcpu=skylake-avx512": (64, 32),
    "llvm -mcpu=skylake-avx512 -mattr=-avx512f": (32, 16),
    "llvm -mtriple=x86_64-linux-gnu -mattr=+avx2": (32, 16),
    "llvm -mtriple=riscv64-linux-gnu": (16, 16),
}


@pytest.mark.parametrize("text", VECTORS)
def test_vectors_are_those_of_the_processor(text: str) -> None:
    for target in (Target(text), Target(text).native(), Target(text).on(WIDE)):
        limits = target.limits
        assert (limits.vector_bytes, limits.vector_registers) == VECTORS[text]


def test_caches_and_rates_differ_between_processors() -> None:
    little, big = (
        Target(f"llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a{n}").limits for n in (53, 76)
    )
    assert little.l2_bytes == 512 << 10 and big.l1_bytes == 64 << 10
    rates = [dict(limits.rates)["float32"] for limits in (little, big)]
    assert rates[0] < rates[1]


def test_a_machine_completes_what_the_options_leave_open() -> None:
    assert Target("llvm").on(WIDE).limits.vector_bytes == 64
    assert Target("llvm -mcpu=x86-64").on(WIDE).limits.cores == 64
    assert Target("llvm -vector-bytes=32").on(WIDE).limits.vector_bytes == 32


def test_what_is_for_another_machine_is_not_run_here() -> None:
    other = next(t for t in (A72, "llvm -mtriple=x86_64-linux-gnu")
                 if processors.elsewhere(Target(t).triple))  # fmt: skip
    assert local_target(Target(other))[1] is None
    assert local_target(Target("opencl", host=other))[1] is None
    here = f"{processors.here()}-linux-gnu"
    assert local_target(Target(f"llvm -mtriple={here}"))[1] is not None


def test_a_host_is_kept_beside_the_target() -> None:
    target = Target(target="opencl -device=mali", host=A72)
    assert target.host == Target(A72) and target.triple == "aarch64-linux-gnu"
    assert str(target) == "opencl -device=mali" and target == Target("opencl -device=mali")
    for again in (
        pickle.loads(pickle.dumps(target)), target.with_limits(cores=2), target.native(),
        Target(target), Target({"kind": "opencl", "device": "mali", "host": A72}),
        Target(Target("opencl -device=mali"), host=Target(A72)),
    ):  # fmt: skip
        assert again.host == Target(A72)


def test_a_mali_has_the_limits_of_every_mali() -> None:
    big = DeviceSpec("opencl", "a CPU", limits=(
        ("max_threads_per_block", 8192), ("max_block", (8192, 8192, 8192)),
        ("shared_bytes_per_block", 16 << 10), ("cores", 2),
    ))  # fmt: skip
    for target in (Target("opencl -device=mali"), Target("opencl -device=mali").on(big)):
        limits = target.limits
        assert limits.max_threads_per_block == 256 and limits.max_block[0] == 256
        assert limits.warp_size == 1 and limits.vector_bytes == 16
    assert Target("opencl -device=mali").on(big).limits.shared_bytes_per_block == 16 << 10
    assert Target("opencl").on(big).limits.max_threads_per_block == 8192


@pytest.mark.parametrize(
    ("word", "arch"),
    [("arm64-apple-darwin", "aarch64"), ("armv7l-linux-gnueabihf", "arm"), ("AMD64", "x86_64")],
)
def test_one_word_for_an_architecture(word: str, arch: str) -> None:
    assert processors.architecture(word) == arch
