"""Bulk copies and gates as text, and what a launch is told of the tensors they see."""

from __future__ import annotations

import re

import pytest

from lowering.group_products import Product, product
from tests.ir import boxes
from tests.ir.bulk_rings import BulkRing, program
from tilewright.base.artifact import TensorMap
from tilewright.base.errors import InternalError
from tilewright.codegen import generate
from tilewright.driver import nvrtc
from tilewright.lowering.pipeline import lower_schedule
from tilewright.targets.target import Target

H100 = Target("cuda -arch=sm_90")


def test_cuda_calls_a_function_for_each() -> None:
    text = generate(program(BulkRing(loader=True)), H100).text
    body = text[text.index("__global__ void __") :]
    assert "asm" not in body
    lines = [line.strip() for line in body.splitlines()]
    assert lines[0].endswith("float* __restrict__ b, const __grid_constant__ tw_map a_map) {")
    for line in (
        "tw_make_gates(&gates[3], 3, 2);",
        "tw_fence();",
        "tw_expect(&gates[k2 % 3], 512);",
        "tw_bulk_2(&s[k2 % 3 * 128], a_map, &gates[k2 % 3], -8, k2 * 8 - 1);",
        "tw_arrive(&gates[k % 3 + 3]);",
    ):
        assert line in lines


def test_reads_end_before_the_engine_writes_again() -> None:
    """Without the fence the assembler lets a warp arrive with loads of its tile under way."""
    text = generate(program(BulkRing(loader=True)), H100).text
    body = text[text.index("__global__ void __") :]
    assert body.index("tw_await_gate") < body.index("tw_show();") < body.index("tw_arrive")
    show = text[text.index("void tw_show(") :]
    assert show.index("fence.proxy.async.shared::cta") < show.index("}")


def test_what_groups_have_multiplied_needs_no_fence() -> None:
    s, _ = product(Product(bulk=True, loaders=4))
    text = generate(lower_schedule(s, H100), H100).text
    assert "tw_arrive(&" in text and "tw_show" not in text


def test_a_launch_is_told_of_the_tensor() -> None:
    (kernel,) = generate(program(BulkRing()), H100).kernels
    assert kernel.maps == (TensorMap(0, "float32", (33, 24), (24, 1), (8, 16), (1, 1)),)
    (kernel,) = generate(boxes.program(boxes.CASES["in steps"]), H100).kernels
    (view,) = kernel.maps
    assert view.box == (13, 5, 8) and view.steps == (3, 2, 1)


def test_what_is_filled_begins_where_it_must() -> None:
    (kernel,) = generate(program(BulkRing(slots=2)), H100).kernels
    assert kernel.shared_bytes == 128 + 2 * 512  # four gates, then the ring


@pytest.mark.parametrize("kind", ["opencl", "llvm"])
def test_other_kinds_have_none(kind: str) -> None:
    with pytest.raises(InternalError, match=re.escape(f"generate(bulk_ring, {kind})")):
        generate(program(BulkRing()), Target(kind))


@pytest.mark.slow
@pytest.mark.parametrize("case", boxes.CASES.values(), ids=boxes.CASES)
def test_nvrtc_accepts(case) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(boxes.program(case), H100), H100)
    assert "warning" not in made.meta["log"]


@pytest.mark.slow
@pytest.mark.parametrize("loader", [False, True])
def test_nvrtc_accepts_rings(loader) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    made = nvrtc.build(generate(program(BulkRing(loader=loader, again=2)), H100), H100)
    assert "warning" not in made.meta["log"]
