"""Transposed convolutions on matrix units: members at random compute what PyTorch says."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests import interpreter
from tests.topi.test_templates_atoms import CUDA, TF32, computed, integers
from tilewright import te, topi
from tilewright.base.artifact import Source
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate, serial_threads
from tilewright.driver import nvrtc
from tilewright.ir import expr as E
from tilewright.ir.stmt import If, Mma, statements
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import anchor_templates, sketch_of_anchor
from tilewright.schedule.thread_loops import lanes
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor

torch = pytest.importorskip("torch")
ATOM = "m16n8k16.float16"

# layout, channels in, size, channels out, kernel, stride; then what is not usual
CASES: dict[str, tuple[tuple[Any, ...], dict[str, Any]]] = {
    "NCHW, taps of all phases": (("NCHW", 32, 5, 16, 4, 2), {}),
    "NHWC, taps of all phases": (("NHWC", 32, 5, 16, 4, 2), {}),
    "NCHW, phases without some taps": (("NCHW", 16, 6, 24, 3, 2), {}),
    "NHWC, phases without some taps": (("NHWC", 16, 4, 24, 3, 2), {"batch": 2, "extra": 1}),
    "NCHW, stride 1": (("NCHW", 3, 7, 20, 3, 1), {}),
    "NHWC, stride 1": (("NHWC", 32, 6, 8, 3, 1), {}),
    "NCHW, dilated": (("NCHW", 20, 5, 9, 3, 1), {"padding": 2, "dilation": 2}),
    "NCHW, no constant": (("NCHW", 16, 5, 8, 4, 2), {"constant": False}),
    "NHWC in tf32": (("NHWC", 8, 5, 16, 4, 2), {"dtype": "float32"}),
    "NHWC of bytes": (("NHWC", 32, 5, 16, 2, 2), {"dtype": "int8", "padding": 0}),
    "NCW": (("NCW", 32, 9, 8, 4, 2), {}),
    "NWC": (("NWC", 32, 9, 8, 3, 2), {}),
    "NCDHW": (("NCDHW", 16, 3, 8, 2, 2), {"padding": 0}),
    "NDHWC": (("NDHWC", 16, 3, 8, 3, 2), {}),
}


def transposed(
    layout: str, c: int, size: int, f: int, kernel: int, stride: int, batch: int = 1,
    dtype: str = "float16", constant: bool = True, padding: int = 1, extra: int = 0,
    dilation: int = 1,
) -> list[Tensor]:  # fmt: skip
    image = (size,) * (len(layout) - 2)
    shape = (batch, c, *image) if layout[1] == "C" else (batch, *image, c)
    data = te.placeholder(shape, dtype, "data")
    weight = te.placeholder((c, f, *(kernel,) * len(image)), dtype, "weight", constant=constant)
    sums = "int32" if dtype == "int8" else None
    made = topi.nn.conv_transpose(
        data, weight, stride, padding, sums, extra, dilation, 1, layout
    )  # fmt: skip
    return [data, weight, made]


def expected(case: str, given: list[Any]) -> Any:
    (layout, *_, stride), other = CASES[case]
    data, weight = (torch.tensor(x.astype(np.float64)) for x in given)
    data = data if layout[1] == "C" else data.movedim(-1, 1)
    made = getattr(torch.nn.functional, f"conv_transpose{len(layout) - 2}d")(
        data, weight, stride=stride, padding=other.get("padding", 1),
        output_padding=other.get("extra", 0), dilation=other.get("dilation", 1),
    )  # fmt: skip
    return (made if layout[1] == "C" else made.movedim(1, -1)).numpy()


def sketch_of(tensors: list[Tensor]) -> Sketch:
    dag, target = ComputeDAG(tensors), TF32 if tensors[0].dtype == "float32" else CUDA
    (registered,) = (t for t in anchor_templates(dag, target) if t.name.endswith(".tensor"))
    return sketch_of_anchor(registered, dag, target)


@pytest.mark.slow
@pytest.mark.sampled(5)
@pytest.mark.parametrize("case", CASES)
def test_members_compute_what_torch_says(case: str) -> None:
    shape, other = CASES[case]
    tensors = transposed(*shape, **other)
    sketch, rng = sketch_of(tensors), np.random.default_rng(len(case))
    some = sketch.space.sample(128, rng)
    legal = some[sketch.legal(some)]
    given = [integers(rng, t) for t in tensors[:-1]]
    whole = expected(case, given)
    for index in (*legal[:2], sketch.fallback()):
        got = computed(sketch, int(index), tensors, given)
        np.testing.assert_array_equal(got, whole)


def test_a_phase_skips_the_atoms_of_taps_that_it_lacks() -> None:
    """Infinities beside such taps leave no trace."""
    tensors = transposed("NCHW", 16, 3, 16, 3, 2)
    sketch = sketch_of(tensors)
    index = sketch.fallback()
    assert index is not None
    program = lower_schedule(sketch.close(index), CUDA, args=tensors)
    found = [s for kernel in program.kernels for s in statements(kernel.body)]
    assert any(isinstance(s, If) and any(isinstance(x, Mma) for x in statements(s)) for s in found)
    data = np.zeros((1, 16, 3, 3), np.float16)
    data[0, :, 1, 1] = np.inf
    weight = np.ones((16, 16, 3, 3), np.float16)
    got = computed(sketch, index, tensors, [data, weight])
    reached = np.zeros((5, 5), bool)
    reached[1:4, 1:4] = True
    assert np.isposinf(got[0, :, reached]).all() and not got[0, :, ~reached].any()


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("layout", ["NHWC", "NCHW"])
def test_they_can_be_proven(layout: str) -> None:
    """Copies stay in flight until somebody waits; compilers take the text, and its threads in
    turns."""
    tensors = transposed(layout, 16, 3, 16, 3, 2)
    sketch, rng = sketch_of(tensors), np.random.default_rng(0)
    some = sketch.space.sample(64, rng)
    legal = [int(i) for i in some[sketch.legal(some)]]
    index = max(legal, key=lambda i: sketch.space.get(i)["stages"].val)
    program = lower_schedule(sketch.close(index), CUDA, args=tensors)
    data, weight = (integers(rng, t) for t in tensors[:-1])
    packing, found = program.args[1].packing, np.zeros(tensors[-1].shape, np.float16)
    assert packing is None  # of a kernel whose phases differ in taps
    interpreter.run(program, [data, weight, found])
    sums = torch.nn.functional.conv_transpose2d(
        *(torch.tensor(x.astype(np.float64)) for x in (
            data if layout == "NCHW" else data.transpose(0, 3, 1, 2), weight
        )), stride=2, padding=1,
    ).numpy()  # fmt: skip
    whole = sums if layout == "NCHW" else sums.transpose(0, 2, 3, 1)
    np.testing.assert_array_equal(found, whole)
    pytest.importorskip("cuda.bindings.nvrtc")
    source = generate(program, CUDA)
    turns = serial_threads.serialized(source)
    assert isinstance(turns, Source)
    for each in (source, turns):
        assert nvrtc.build(each, CUDA).binary


def test_a_condition_inside_an_atom_is_refused() -> None:
    """Whether something is added may depend on loops around an atom only."""
    a, b = te.placeholder((16, 16), "float16", "A"), te.placeholder((16, 8), "float16", "B")
    r = te.reduce_axis((0, 16), "r")
    made = te.compute(
        (16, 8),
        lambda i, j: te.sum(
            te.if_then_else(
                r < i, a[i, r].astype("float32") * b[r, j].astype("float32"),
                E.const(0, "float32"),
            ), r,
        ), "P",
    )  # fmt: skip
    after = te.compute((16, 8), lambda i, j: made[i, j] * 2.0, "C")
    s = Schedule(ComputeDAG([a, b, after]))
    s[made].set_scope("fragment")
    lane, *rest, pair = lanes(s[after], *s[after].op.axis, ATOM)
    s[after].reorder(lane, *rest, pair)
    s[made].compute_at(s[after], lane)
    rows, columns = s[made].op.axis
    outer, inner = s[made].split(s[made].op.reduce_axis[0], factor=16)
    s[made].reorder(outer, rows, columns, inner)
    for tensor in (a, b):
        s[s.cache_read(tensor, "fragment", [made])].compute_at(s[made], outer)
    s[made].tensorize(rows, ATOM)
    with pytest.raises(ScheduleError, match="whether it adds a product depends on"):
        lower_schedule(s, CUDA)
