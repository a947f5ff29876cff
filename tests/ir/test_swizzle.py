"""Swizzled shared memory: which place each element has, and who knows it."""

from __future__ import annotations

import re

import numpy as np
import pytest

from lowering.tensor_products import Product, product
from tilewright import te
from tilewright.base.errors import LegalityError, ScheduleError
from tilewright.codegen import generate, serial_threads
from tilewright.codegen.c_shared import plan_shared
from tilewright.driver import nvrtc
from tilewright.ir.stmt import Allocate, Buffer, statements
from tilewright.ir.swizzle import SWIZZLES, period, swizzled
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import create_schedule
from tilewright.schedule.space.decision import var
from tilewright.schedule.tree.legality import check, judge
from tilewright.schedule.tree.loop_tree import LoopTree
from tilewright.schedule.tree.resources import Resources
from tilewright.targets.target import Target

TARGET = Target("cuda -arch=sm_90 -precision=tf32")


@pytest.mark.parametrize("size", [1, 2, 4, 8])
@pytest.mark.parametrize(("swizzle", "bits"), [(32, 1), (64, 3), (128, 7)])
def test_bits_of_the_row_change_bits_of_the_column(swizzle: int, bits: int, size: int) -> None:
    index = np.arange(2 * period(swizzle) // size)
    address = index * size
    expected = (address ^ ((address >> 7 & bits) << 4)) // size
    found = swizzled(index, swizzle, size)
    np.testing.assert_array_equal(found, expected)
    assert sorted(found) == [*index]
    again = [Buffer("s", "float32", 512, "shared", swizzle=swizzle).at(int(k)) for k in index[:99]]
    assert size != 4 or again == [*found[:99]]


def test_rows_of_128_bytes_lie_in_eight_groups_of_banks() -> None:
    column = swizzled(np.arange(8) * 64, 128, 2) // 8 % 8
    assert sorted(column) == [*range(8)]


SWIZZLED = Product(block=(32, 32, 64), k=192, slots=2, swizzle=128, order="nk")


@pytest.mark.parametrize("p", [SWIZZLED, Product(swizzle=64), Product(swizzle=32, slots=3)])
def test_buffers_begin_where_swizzles_do_and_masks_know_the_bytes(p: Product) -> None:
    schedule, args = product(p)
    resources = Resources(LoopTree(schedule).bounds(), TARGET)
    check(resources, "it")
    (kernel,) = lower_schedule(schedule, TARGET, args=args).kernels
    plan = plan_shared(kernel.body)
    assert plan.alignment == period(p.swizzle)
    assert all(at % period(p.swizzle) == 0 for at in plan.offsets.values())
    assert resources.kernels[0].shared_bytes == plan.total
    made = (s.buffer for s in statements(kernel.body) if isinstance(s, Allocate))
    shared = [b for b in made if b.scope == "shared"]
    assert all(b.size * b.dtype.bytes % (period(p.swizzle) * b.slots) == 0 for b in shared)


def test_beside_other_buffers_there_is_room_to_begin() -> None:
    a = te.placeholder((40, 24), "float16", name="A")
    b = te.compute((40, 24), lambda i, j: a[i, j] * a[i, 0], name="B")
    s = create_schedule(b.op)
    first = s.cache_read(a, "shared", [b])
    second = s.cache_read(first, "shared", [b])
    block, _ = s[b].split(b.op.axis[0], factor=5)
    s[b].bind(block, "blockIdx.x")
    for t in (first, second):
        s[t].compute_at(s[b], block)
    s[second].swizzle(128)
    total = Resources(LoopTree(s).bounds(), TARGET).kernels[0].shared_bytes
    plan = plan_shared(lower_schedule(s, TARGET).kernels[0].body)
    assert sorted(plan.offsets.values()) == [0, 1024] and plan.total <= total


def test_text_has_places_and_the_memory_is_aligned() -> None:
    schedule, args = product(SWIZZLED)
    text = generate(lower_schedule(schedule, TARGET, args=args), TARGET).text
    assert "__align__(1024)" in text
    stores = re.findall(r"tw_copy_16\(&A_shared\[(.*)\], &A", text)
    place = re.compile(r"(.* \+ )?\(?\(.*\) \^ \(.* / 64 % 8 \* 8\)\)?")
    assert stores and all(map(place.fullmatch, stores))
    schedule, args = product(Product(slots=2))
    text = generate(lower_schedule(schedule, TARGET, args=args), TARGET).text
    assert "__align__(16)" in text and "^" not in text[text.index("__global__") :]


def test_threads_in_turns_have_the_memory_as_aligned() -> None:
    schedule, args = product(SWIZZLED)
    source = serial_threads.serialized(
        generate(lower_schedule(schedule, TARGET, args=args), TARGET)
    )
    assert isinstance(source, serial_threads.Source)
    assert source.text.count("__align__(1024)") == 2 and "__align__(16)" not in source.text


@pytest.mark.slow
def test_nvrtc_accepts() -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    schedule, args = product(SWIZZLED)
    source = generate(lower_schedule(schedule, TARGET, args=args), TARGET)
    assert "warning" not in nvrtc.build(source, TARGET).meta["log"]


def test_open_swizzles_are_judged_by_masks() -> None:
    schedule, _ = product(Product(k=64, slots=2, block=(64, 64, 64)))
    for stage in schedule.stages:
        if stage.scope == "shared":
            stage.swizzle(var("bytes"))
    tree = LoopTree(schedule)
    chosen = {"bytes": np.array([0, 32, 48, 64, 128, 256])}
    resources = Resources(tree.bounds(chosen), TARGET)
    assert judge(resources).refused["swizzle"].tolist() == [False, False, True, False, False, True]
    with pytest.raises(LegalityError, match=r"a swizzle of other than .*\(swizzle\)"):
        check(Resources(tree.bounds({"bytes": 48}), TARGET), "it")
    for swizzle in SWIZZLES:
        check(Resources(tree.bounds({"bytes": swizzle}), TARGET), "it")


def test_what_is_in_no_shared_memory_is_refused() -> None:
    schedule, _ = product(Product())
    with pytest.raises(ScheduleError, match="shared memory has banks, and the scope is"):
        schedule.stages[-1].swizzle(128)
