"""A masked store of one known lane writes that element and nothing beside it."""

from __future__ import annotations

import re

import pytest

from tilewright.base.artifact import Source
from tilewright.driver.llvm import assembly
from tilewright.driver.llvm_lanes import with_lanes_apart
from tilewright.targets.target import Target

WIDE = Target("llvm -mtriple=x86_64-linux-gnu -mcpu=x86-64-v4")
SHAPES = [(4, 32, 16), (8, 32, 16), (8, 32, 8), (16, 32, 8), (4, 64, 32), (8, 16, 8)]
# How many bytes an instruction stores that moves a part of a vector, or a register, to memory.
BYTES = {
    "vmovss": 4, "vextractps": 4, "vpextrd": 4, "vmovd": 4, "vpextrq": 8, "vmovq": 8, "vmovsd": 8,
    "vpextrw": 2, "vpextrb": 1, "movb": 1, "movw": 2, "movl": 4, "movq": 8, "vmovlps": 8,
    "vmovhps": 8,
}  # fmt: skip


def truncating_store(lanes: int, wide: int, narrow: int, mask: list[bool]) -> str:
    chosen = ", ".join(f"i1 {str(lane).lower()}" for lane in mask)
    stored = f"<{lanes} x i{narrow}>"
    return f"""
declare void @llvm.masked.store.v{lanes}i{narrow}.p0({stored}, ptr, i32, <{lanes} x i1>)
define void @main(ptr %p, <{lanes} x i{wide}> %x) {{
  %y = trunc <{lanes} x i{wide}> %x to {stored}
  call void @llvm.masked.store.v{lanes}i{narrow}.p0(
    {stored} %y, ptr %p, i32 {narrow // 8}, <{lanes} x i1> <{chosen}>)
  ret void
}}
"""


def stores(text: str) -> list[str]:
    """The instructions of `main` that write memory behind its first argument."""
    found = re.findall(r"^\s+(\w+)\s+[^\n]*, -?\d*\(%rdi\)", text, re.MULTILINE)
    assert found
    return found


@pytest.mark.parametrize("lanes, wide, narrow", SHAPES)
def test_no_byte_beside_the_element_is_written(lanes: int, wide: int, narrow: int) -> None:
    for lane in range(lanes):
        text = truncating_store(lanes, wide, narrow, [k == lane for k in range(lanes)])
        source = Source("llvm", text, "main", (), ())
        assert [BYTES[name] for name in stores(assembly(source, WIDE))] == [narrow // 8]


@pytest.mark.parametrize("attributes, align", [("align 8 ", 8), ("nonnull align 1 ", 1), ("", 0)])
def test_the_address_and_its_alignment_are_those_of_the_lane(attributes: str, align: int) -> None:
    text = (
        f"  tail call void @llvm.masked.store.v4f32.p0(<4 x float> %y, ptr {attributes}%p, "
        "<4 x i1> <{}>), !alias.scope !3\n"
    )
    masks = {
        k: text.replace("{}", ", ".join(f"i1 {str(i == k).lower()}" for i in range(4)))
        for k in (0, 2)
    }
    for lane, line in masks.items():
        extracted, address, store = with_lanes_apart(line).splitlines()
        assert extracted.strip() == f"%one.lane1 = extractelement <4 x float> %y, i64 {lane}"
        assert address.strip() == f"%one.lane1.to = getelementptr float, ptr %p, i64 {lane}"
        kept = align if lane == 0 or align == 1 else 0
        promise = f", align {kept}" if kept else ""
        assert (
            store.strip() == f"store float %one.lane1, ptr %one.lane1.to{promise}, !alias.scope !3"
        )


def test_other_masks_stay() -> None:
    for mask in ("i1 true, i1 true", "i1 false, i1 false"):
        text = f"  call void @llvm.masked.store.v2i8.p0(<2 x i8> %y, ptr %p, <2 x i1> <{mask}>)\n"
        assert with_lanes_apart(text) == text
    text = "  call void @llvm.masked.store.v2i8.p0(<2 x i8> %y, ptr %p, <2 x i1> %mask)\n"
    assert with_lanes_apart(text) == text
