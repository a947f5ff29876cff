"""tir.layout and tir.bijective_layout: texts, shapes and indices, against numpy's transposes."""

import itertools

import numpy as np
import pytest

from tilewright import te
from tilewright.base.errors import ExpressionError
from tilewright_tvm import tir

SHAPES = {"NCHW": (2, 24, 3, 5), "NHWC": (2, 3, 5, 24), "NCHW8c": (2, 3, 3, 5, 8)}
SHAPES |= {"NCHW4c": (2, 6, 3, 5, 4), "WHN2nC3c": (5, 3, 1, 2, 8, 3)}


def test_a_layout_tells_axes_and_blocks() -> None:
    layout = tir.layout("NCHW16c")
    assert [layout[i] for i in range(5)] == list("NCHWc") and layout[-1] == "c"
    assert "c" in layout and "O" not in layout and "NC" not in layout
    assert [layout.index_of(a) for a in "NWcO"] == [0, 3, 4, -1]
    assert [layout.factor_of(a) for a in "cCN"] == [16, 16, -1]
    assert str(layout) == "NCHW16c"


@pytest.mark.parametrize(("src", "dst"), [*itertools.product(SHAPES, SHAPES)])
def test_shapes_and_indices_there_and_back(src: str, dst: str) -> None:
    found = tir.bijective_layout(src, dst)
    assert found is not None
    assert tuple(found.forward_shape(SHAPES[src])) == SHAPES[dst]
    assert tuple(found.backward_shape(SHAPES[dst])) == SHAPES[src]
    whole = SHAPES["NCHW"]
    element = _in_nchw(src, np.arange(np.prod(whole)).reshape(whole))
    moved = _in_nchw(dst, np.arange(np.prod(whole)).reshape(whole))
    for index in itertools.islice(np.ndindex(SHAPES[src]), 0, None, 37):
        there = tuple(int(i) for i in found.forward_index(index))
        assert moved[there] == element[index]
        assert tuple(int(i) for i in found.backward_index(there)) == index


def _in_nchw(layout: str, data: np.ndarray) -> np.ndarray:
    """`data`, which is NCHW, stored in one of SHAPES."""
    n, c, h, w = data.shape
    match layout:
        case "NCHW":
            return data
        case "NHWC":
            return data.transpose(0, 2, 3, 1)
        case "WHN2nC3c":
            return data.reshape(n // 2, 2, c // 3, 3, h, w).transpose(5, 4, 0, 1, 2, 3)
        case _:
            block = int(layout[4])
            return data.reshape(n, c // block, block, h, w).transpose(0, 1, 3, 4, 2)


def test_indices_may_be_expressions() -> None:
    c = te.var("c")
    found = tir.bijective_layout("NCHW", "NCHW16c")
    assert found is not None
    assert [str(e) for e in found.forward_index([0, c, 1, 2])] == [
        "0",
        "(c // 16)",
        "1",
        "2",
        "(c % 16)",
    ]


@pytest.mark.parametrize(
    ("src", "dst"), [("NCHW", "ABCD"), ("__undef__", "NCHW"), ("NCHW", ""), ("", "")]
)
def test_nothing_leads_there(src: str, dst: str) -> None:
    assert tir.bijective_layout(src, dst) is None


def test_refusals() -> None:
    for text in ("", "NCHWc", "NN", 3):
        with pytest.raises(ExpressionError):
            tir.layout(text)  # type: ignore[arg-type]
    with pytest.raises(ExpressionError):
        tir.bijective_layout("NCHW", 3)  # type: ignore[arg-type]
    found = tir.bijective_layout("NCHW", "NCHW16c")
    assert found is not None
    for shape in ((1, 20, 7, 7), (1, 16, 7), (1, 16, 7, 7.5), None):
        with pytest.raises(ExpressionError):
            found.forward_shape(shape)  # type: ignore[arg-type]
    with pytest.raises(ExpressionError, match="5 axes"):
        found.backward_index([0, 0, 0, 0])
    with pytest.raises(ExpressionError, match="not indices"):
        found.forward_index([0, 1.5, 0, 0])  # type: ignore[list-item]
