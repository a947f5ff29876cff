"""Strings of targets as TVM prints them."""

from __future__ import annotations

import pytest

import tilewright_tvm as tvm
from tilewright.base.errors import TargetError

TEXTS = {
    "llvm -keys=cpu -link-params=0 -opt-level=3": "llvm -keys=cpu",
    "llvm -keys=cpu -mcpu=core-avx2 -runtime=c++ -system-lib=0": "llvm -keys=cpu -mcpu=core-avx2",
    "opencl -keys=adreno,opencl,gpu -device=adreno -texture_spatial_limit=16384":
        "opencl -device=adreno -keys=adreno,opencl,gpu",
    "cuda -shared_memory_per_block=32768": "cuda -max_shared_memory_per_block=32768",
}  # fmt: skip


@pytest.mark.parametrize("text", TEXTS)
def test_options_that_say_nothing_new_are_read(text):
    found, same = tvm.target.Target(text), tvm.target.Target(TEXTS[text])
    assert found == same and str(found) == TEXTS[text]


def test_options_that_would_say_something_are_refused():
    for text in ("llvm -system-lib", "llvm -runtime=c", "llvm -unheard-of=1"):
        with pytest.raises(TargetError, match="unknown option"):
            tvm.target.Target(text)
    assert tvm.target.Target("c -keys=cpu -link-params -model=host").attrs["link-params"] == "1"
    assert (
        tvm.target.Target("cuda -shared_memory_per_block=32768").limits.shared_bytes_per_block
        == 32768
    )
