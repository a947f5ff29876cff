"""Kernels of networks for CUDA wait themselves; built without a device."""

from __future__ import annotations

import re

import pytest

from graph.small import residual
from tilewright.base.artifact import AWAIT_ONLY
from tilewright.network.build import build
from tilewright.runtime.network.library import Library

SM90 = "cuda -arch=sm_90"
SWITCH = "TILEWRIGHT_DEPENDENT_LAUNCH"


def network(switch: str = "") -> Library:
    mod, params = residual()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SWITCH, switch)
        return build(mod, SM90, params, verify=False, use_knowledge=False)


@pytest.fixture(scope="module")
def built() -> Library:
    pytest.importorskip("cuda.bindings.nvrtc")
    return network()


@pytest.mark.slow
def test_every_kernel_waits_and_reads_no_other_argument_as_before(built: Library) -> None:
    """Constants in the text are constants of the plan, and nothing else is."""
    for launch in built.plan.launches:
        source = built.kernels[launch.kernel].source
        assert source.waits
        assert source.text.count(f"{AWAIT_ONLY}();") == len(source.kernels)
        fresh = set(re.findall(r"(\w+) = tw_fresh\(\1\);", source.text))
        for spec, operand in zip(source.buffers, launch.operands, strict=True):
            if spec.role == "input":
                assert (spec.name in fresh) == (operand.kind != "constant"), spec.name
            if operand.kind == "constant":
                assert spec.role == "input" and f"const {spec.dtype.spelling.cuda}*" in source.text


@pytest.mark.slow
def test_it_can_be_switched_off(built: Library) -> None:
    """And what was built before does not come back from the cache of builds."""
    plain = network("off")
    assert not any(kernel.source.waits for kernel in plain.kernels)
    again = network()
    assert [k.source for k in again.kernels] == [k.source for k in built.kernels]
    assert len(plain.kernels) == len(again.kernels)
