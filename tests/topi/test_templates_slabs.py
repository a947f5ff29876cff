"""Convolutions on matrix units from slabs of the image: members at random compute what numpy says,
in every layout, with steps, dilation and groups, and copies are as wide as the layout allows."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest

from tests import interpreter
from tests.topi.test_templates_atoms import computed, integers
from tilewright import te, topi
from tilewright.base.errors import ScheduleError
from tilewright.ir.stmt import AsyncCopy, If, LoadRows, Mma, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

CUDA = Target("cuda -arch=sm_90")
TF32 = Target("cuda -arch=sm_90 -precision=tf32")


@dataclass(frozen=True)
class Conv:
    """layout: NCHWc has blocks of two channels, of one in float32"""

    layout: str
    channels: int
    size: int
    outputs: int
    kernel: int = 3
    stride: int = 1
    groups: int = 1
    dilation: int = 1
    dtype: str = "float16"
    batch: int = 1

    @property
    def rank(self) -> int:
        return len(self.layout.rstrip("c")) - 2

    @property
    def padding(self) -> int:
        return self.kernel // 2 * self.dilation

    @property
    def block(self) -> int:
        if not self.layout.endswith("c"):
            return 0
        return 1 if self.dtype == "float32" else 2

    @property
    def target(self) -> Target:
        return TF32 if self.dtype == "float32" else CUDA

    def tensors(self) -> list[Tensor]:
        """Data, weight, bias, result."""
        image, window = (self.size,) * self.rank, (self.kernel,) * self.rank
        c, f, per_group, b = self.channels, self.outputs, self.channels // self.groups, self.block
        shape: tuple[int, ...]
        if b:
            shape, kernel = (c // b, *image, b), (f // b, per_group // b, *window, b, b)
            added: tuple[int, ...] = (1, f // b, 1, 1, b)
        elif self.layout.startswith("NC"):
            shape, kernel, added = (c, *image), (f, per_group, *window), (1, f, *[1] * self.rank)
        else:
            shape, kernel, added = (*image, c), (*window, per_group, f), (f,)
        data = te.placeholder((self.batch, *shape), self.dtype, "data")
        weight = te.placeholder(kernel, self.dtype, "weight", constant=True)
        bias = te.placeholder(added, self.dtype, "bias", constant=True)
        if b:
            sums = topi.nn.conv2d_NCHWc(data, weight, self.stride, self.padding, self.dilation)
        else:
            sums = topi.nn.conv(
                data, weight, self.stride, self.padding, self.dilation, self.groups, self.layout
            )
        return [data, weight, bias, topi.add(sums, bias)]

    def reference(self, given: list[Any]) -> Any:
        data, weight, bias = (a.astype(np.float64) for a in given)
        last, image = self.rank + 1, tuple(range(2, self.rank + 2))
        if self.block:
            data, bias = (_whole(a) for a in (data, bias))
            weight = weight.transpose(0, 5, 1, 4, 2, 3)
            o, b, i, _, kh, kw = weight.shape
            weight = weight.reshape(o * b, i * b, kh, kw)
        elif not self.layout.startswith("NC"):
            data = np.moveaxis(data, -1, 1)
            weight = np.moveaxis(weight, (last, last - 1), (0, 1))
            bias = bias.reshape(-1, *[1] * self.rank)
        pad = [(0, 0), (0, 0), *[(self.padding,) * 2] * self.rank]
        reach = (self.kernel - 1) * self.dilation + 1
        windows = np.lib.stride_tricks.sliding_window_view(
            np.pad(data, pad), (reach,) * self.rank, axis=image
        )
        every, step = slice(None), slice(None, None, self.stride)
        windows = windows[(every, every, *[step] * self.rank, *[slice(None, None, self.dilation)]
                           * self.rank)]  # fmt: skip
        n, _, *place = windows.shape[: last + 1]
        windows = windows.reshape(n, self.groups, -1, np.prod(place), self.kernel**self.rank)
        weight = weight.reshape(self.groups, self.outputs // self.groups, *windows.shape[2::2])
        sums = np.einsum("ngcpt,gfct->ngfp", windows, weight)
        found = sums.reshape(n, self.outputs, *place) + bias
        if self.block:
            n, f, h, w = found.shape
            return found.reshape(n, f // self.block, self.block, h, w).transpose(0, 1, 3, 4, 2)
        return found if self.layout.startswith("NC") else np.moveaxis(found, 1, -1)


def _whole(array: Any) -> Any:
    """From blocks of channels."""
    n, c, h, w, b = array.shape
    return array.transpose(0, 1, 4, 2, 3).reshape(n, c * b, h, w)


CASES = {
    "NHWC": Conv("NHWC", 32, 7, 16),
    "NHWC, strided": Conv("NHWC", 32, 10, 32, stride=2),
    "NHWC, strided, odd": Conv("NHWC", 16, 9, 16, stride=2),
    "NHWC, steps of three": Conv("NHWC", 16, 13, 16, stride=3),
    "NHWC, dilated": Conv("NHWC", 16, 9, 16, dilation=2),
    "NHWC, channels that fill no atom": Conv("NHWC", 24, 6, 40),
    "NHWC, groups": Conv("NHWC", 64, 6, 64, groups=2),
    "NHWC, groups, strided": Conv("NHWC", 64, 7, 64, groups=4, stride=2),
    "NHWC, groups of eight": Conv("NHWC", 24, 6, 24, groups=3),
    "NHWC, groups of eight, strided": Conv("NHWC", 40, 7, 40, groups=5, stride=2),
    "NHWC, groups of three atoms": Conv("NHWC", 96, 5, 96, groups=2),
    "NHWC, twelve channels": Conv("NHWC", 12, 8, 32, kernel=5),
    "NHWC, a batch": Conv("NHWC", 16, 5, 24, batch=3),
    "NHWC in tf32": Conv("NHWC", 16, 7, 16, dtype="float32"),
    "NWC": Conv("NWC", 32, 20, 24),
    "NDHWC": Conv("NDHWC", 16, 4, 16),
    "NCHW, strided": Conv("NCHW", 16, 9, 16, stride=2),
    "NCHW, groups": Conv("NCHW", 32, 6, 32, groups=2),
    "NCHW in tf32": Conv("NCHW", 16, 7, 24, dtype="float32"),
    "NCHW in tf32, strided": Conv("NCHW", 16, 9, 16, stride=2, dtype="float32"),
    "NCHW2c": Conv("NCHWc", 32, 7, 16),
    "NCHW2c, strided": Conv("NCHWc", 32, 9, 48, stride=2),
    "NCHW2c, channels that fill no atom": Conv("NCHWc", 24, 6, 40),
    "NCHW2c 1x1": Conv("NCHWc", 32, 6, 32, kernel=1),
    "NCHW2c 1x1, strided": Conv("NCHWc", 32, 8, 32, kernel=1, stride=2),
    "NCHW1c in tf32": Conv("NCHWc", 16, 6, 16, dtype="float32"),
}


def sketch_of(case: Conv, tensors: list[Tensor]) -> Sketch:
    """By slabs, where there are several."""
    dag = ComputeDAG(tensors)
    known = {t.name: t for t in anchor_templates(dag, case.target)}
    names = [name for name in known if name.endswith((".slab", ".tensor"))]
    for name in names[:-1]:
        with suppress(ScheduleError):
            return sketch_of_anchor(known[name], dag, case.target)
    return sketch_of_anchor(known[names[-1]], dag, case.target)


@pytest.mark.slow
@pytest.mark.sampled(12)
@pytest.mark.parametrize("name", CASES)
def test_members_compute_what_numpy_says(name: str) -> None:
    case = CASES[name]
    tensors = case.tensors()
    sketch, rng = sketch_of(case, tensors), np.random.default_rng(len(name))
    some = sketch.space.sample(128, rng)
    legal = some[sketch.legal(some)]
    assert len(legal) > 8
    given = [integers(rng, t) for t in tensors[:-1]]
    wanted = case.reference(given)
    for index in legal[:3]:
        np.testing.assert_array_equal(computed(sketch, int(index), tensors, given), wanted)


WIDTHS = {  # elements of a copy of the image
    "NHWC": 8, "NHWC, strided": 8, "NHWC, groups": 8, "NHWC in tf32": 4, "NCHW in tf32": 1,
    "NCHW2c": 2, "NCHW2c, strided": 2,
}  # fmt: skip


@pytest.mark.parametrize("name", WIDTHS)
def test_slabs_come_ahead_and_in_rows(name: str) -> None:
    """By asynchronous copies, each element once for all of the window, and by whole matrices."""
    case = CASES[name]
    tensors = case.tensors()
    sketch = sketch_of(case, tensors)
    some = sketch.space.sample(256, np.random.default_rng(0))
    ahead = (i for i in some[sketch.legal(some)] if sketch.space.get(int(i))["stages"].val == 3)
    program = lower_schedule(sketch.close(int(next(ahead))), case.target)
    found = [s for kernel in program.kernels for s in statements(kernel.body)]
    copies = [s for s in found if isinstance(s, AsyncCopy) and s.source.buffer.name == "data"]
    assert {s.source.count for s in copies} == {WIDTHS[name]}
    assert any(isinstance(s, LoadRows) for s in found)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [
        Conv("NHWC", 32, 5, 16, stride=2), Conv("NCHWc", 32, 4, 16),
        Conv("NCHW", 16, 4, 16, dtype="float32"),
    ],
    ids=lambda case: case.layout,
)  # fmt: skip
def test_copies_are_waited_for(case: Conv) -> None:
    """In the interpreter whose copies stay in flight until somebody waits."""
    tensors = case.tensors()
    sketch, rng = sketch_of(case, tensors), np.random.default_rng(3)
    given = [integers(rng, t) for t in tensors[:-1]]
    some = sketch.space.sample(256, rng)
    few = [
        int(i) for i in some[sketch.legal(some)]
        if sketch.space.get(int(i))["stages"].val > 1 and sketch.space.get(int(i))["step_k"].val < 2
    ]  # fmt: skip
    program = lower_schedule(sketch.close(few[0]), case.target, args=tensors)
    found = np.zeros(tensors[-1].shape, tensors[-1].dtype.storage)
    interpreter.run(program, [*given, found])
    np.testing.assert_array_equal(found, case.reference(given))


def test_slabs_are_for_windows_and_full_atoms() -> None:
    for case in (Conv("NHWC", 32, 6, 16, kernel=1), Conv("NHWC", 3, 9, 16)):
        tensors = case.tensors()
        known = {t.name: t for t in anchor_templates(ComputeDAG(tensors), CUDA)}
        with pytest.raises(ScheduleError, match="its window has one element, or its channels"):
            sketch_of_anchor(known["conv2d_nhwc.slab"], ComputeDAG(tensors), CUDA)
        assert sketch_of_anchor(known["conv2d_nhwc.tensor"], ComputeDAG(tensors), CUDA)


def test_atoms_reach_beyond_no_group() -> None:
    """Tiles of channels divide a group; of groups that are no whole atoms there is no template."""
    case = CASES["NHWC, groups of three atoms"]
    sketch = sketch_of(case, case.tensors())
    tiles = [entity.size for entity in sketch.space.space_map["tile_m"].entities]
    assert {w * e for _, w, e in tiles} == {1}
    case = Conv("NCHW", 64, 6, 96, groups=4)
    dag = ComputeDAG(case.tensors())
    known = {t.name: t for t in anchor_templates(dag, CUDA)}
    with pytest.raises(ScheduleError, match="a group has 24 channels"):
        sketch_of_anchor(known["conv2d_nchw.tensor"], dag, CUDA)


@pytest.mark.parametrize("tile", [1, 2])
def test_matrices_come_in_pairs_where_lines_end_too(tile: int) -> None:
    """Two atoms along columns, lines that overhang: whole matrices under one condition."""
    case = Conv("NHWC", 16, 14, 16)
    tensors = case.tensors()
    sketch, rng = sketch_of(case, tensors), np.random.default_rng(tile)
    given = [integers(rng, t) for t in tensors[:-1]]
    some = sketch.space.sample(512, rng)
    found = 0
    for index in some[sketch.legal(some)]:
        config = sketch.space.get(int(index))
        _, warps, each = config["tile_y"].size
        if config["tile_n"].size[2] == 2 and 14 % (warps * each) and each == tile and found < 3:
            found += 1
            result = computed(sketch, int(index), tensors, given)
            np.testing.assert_array_equal(result, case.reference(given))
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["float16", "float32"])
def test_lines_that_overhang_are_multiplied_without_a_branch(dtype: str) -> None:
    """Seven lines in tiles of four: what lies beyond is zero, and nobody stores it."""
    conv = Conv("NHWC", 16, 7, 16, dtype=dtype)
    tensors = conv.tensors()
    dag = ComputeDAG(tensors)
    (row,) = (r for r in anchor_templates(dag, conv.target) if r.name == "conv2d_nhwc.slab")
    sketch, rng = sketch_of_anchor(row, dag, conv.target), np.random.default_rng(0)
    index = next(
        int(i) for i in sketch.space.sample(4096, rng)
        if tuple(sketch.space.get(int(i))["tile_y"].size[1:]) == (1, 4)
        and sketch.legal(np.array([i]))[0]
    )  # fmt: skip
    program = lower_schedule(sketch.close(index), conv.target)
    tests = [s for k in program.kernels for s in statements(k.body) if isinstance(s, If)]
    assert not any(isinstance(s, (Mma, LoadRows)) for test in tests for s in statements(test))
    given = [integers(rng, t) for t in tensors[:-1]]
    got = computed(sketch, index, tensors, given)
    np.testing.assert_array_equal(got.astype(np.float64), conv.reference(given))
