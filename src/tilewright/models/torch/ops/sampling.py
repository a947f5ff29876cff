"""Images read where data says: `grid_sampler`, and torchvision's regions and moved taps."""

from __future__ import annotations

from tilewright.graph.expr import Expr
from tilewright.graph.functions import image, nn, vision
from tilewright.graph.functions.tensor import transpose
from tilewright.models.torch.node import Converter, Node
from tilewright.topi.sampling import PADDINGS

METHODS = ("bilinear", "nearest", "bicubic")  # as PyTorch numbers them


def _grid_sampler(n: Node) -> Expr:
    """The coordinates come last."""
    data, grid = n["input"], n["grid"]
    method, padding = n.integer("interpolation_mode"), n.integer("padding_mode")
    rank = len(data.shape)
    n.require(
        method in range(len(METHODS)) and padding in range(len(PADDINGS)),
        f"interpolation_mode={method}, padding_mode={padding} are not known", "Use 0, 1 or 2.",
    )  # fmt: skip
    return image.grid_sample(
        data, transpose(grid, (0, rank - 1, *range(1, rank - 1))), METHODS[method],
        "NCHW" if rank == 4 else "NCDHW", PADDINGS[padding], bool(n.get("align_corners", False)),
    )  # fmt: skip


def _roi_align(n: Node) -> Expr:
    samples = n.integer("sampling_ratio")
    n.require(
        samples > 0, f"sampling_ratio={samples}: how many samples a region takes depends on it",
        "Give the layer sampling_ratio=2.",
    )  # fmt: skip
    return vision.roi_align(
        n["input"], n["rois"], (n.integer("pooled_height"), n.integer("pooled_width")),
        float(n.get("spatial_scale", 1.0)), samples, aligned=bool(n.get("aligned", False)),
    )  # fmt: skip


def _deform_conv(n: Node) -> Expr:
    def pair(name: str) -> tuple[int, int]:
        return n.integer(f"{name}_h"), n.integer(f"{name}_w")

    made = nn.deformable_conv2d(
        n["input"], n["offset"], n["weight"], pair("stride"), pair("pad"), pair("dilation"),
        n.integer("offset_groups"), n.integer("groups"),
        mask=n["mask"] if n.get("use_mask", False) else None,
    )  # fmt: skip
    return nn.bias_add(made, n["bias"])


CONVERTERS: dict[str, Converter] = {
    **dict.fromkeys(
        ("grid_sampler.default", "grid_sampler_2d.default", "grid_sampler_3d.default"),
        _grid_sampler,
    ),
    "torchvision.deform_conv2d.default": _deform_conv,
    "torchvision.roi_align.default": _roi_align,
}
