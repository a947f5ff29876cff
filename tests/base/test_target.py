"""Targets from text: options change limits; what cannot be read is refused with a way out."""

from __future__ import annotations

import pickle

import pytest

from tilewright.base.dtype import DType
from tilewright.base.errors import TargetError
from tilewright.targets.target import Target

REFUSED = {
    "": "unknown kind ''. Use one of llvm, cuda, opencl",
    "metal": "unknown kind 'metal'",
    "cuda sm_90": "cannot read 'sm_90'. Write options as -name=value",
    "cuda -arch=sm_20": "arch 'sm_20' is not supported. Use one of sm_61",
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
    assert Target("cuda -arch=sm_120a").limits == Target("cuda -arch=sm_90").limits


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
