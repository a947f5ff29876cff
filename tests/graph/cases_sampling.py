"""Graphs for the rows of images read where data says; `cases.py` takes them in."""

from __future__ import annotations

from collections.abc import Callable

from graph.case import Case, tensor
from tilewright.graph.expr import Expr
from tilewright.graph.op import call
from tilewright.topi.sampling import METHODS, PADDINGS
from tilewright_tvm.relay import image, vision


def _grid(method: str, padding: str, corners: bool, rank: int = 2) -> Callable[[], Expr]:
    extents, out = ((5, 6), (4, 7)) if rank == 2 else ((3, 4, 5), (2, 3, 4))

    def build() -> Expr:
        grid = tensor("g", 2, rank, *out) * 0.8
        return image.grid_sample(
            tensor("x", 2, 3, *extents), grid, method, "NCHW" if rank == 2 else "NCDHW", padding,
            corners,
        )  # fmt: skip

    return build


def _rois(**options: object) -> Callable[[], Expr]:
    """Regions at whole places, some of which scaling moves out of the image."""
    return lambda: vision.roi_align(
        tensor("x", 4, 3, 5, 6), tensor("at4", 5, 5), (2, 3), 2.3, 2, **options
    )


SAMPLING = (
    *(
        Case("image.grid_sample", _grid(m, p, corners), f"{m}-{p}-{corners}")
        for m in METHODS for p in PADDINGS for corners in (False, True)
    ),
    Case("image.grid_sample", _grid("bilinear", "zeros", False, 3), "3d"),
    Case("image.grid_sample", _grid("nearest", "border", True, 3), "3d-nearest"),
    Case(
        "image.grid_sample",
        lambda: call("image.grid_sample", tensor("x", 1, 2, 4, 5), tensor("g", 1, 2, 3, 3) * 3.0,
                     normalized=False),
        "elements",
    ),
    Case("vision.roi_align", _rois()),
    Case("vision.roi_align", _rois(aligned=True), "aligned"),
    Case("vision.roi_align", _rois(mode="max_weighted"), "max"),
)  # fmt: skip
