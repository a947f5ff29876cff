"""Sizes of convolutions, as scripts of TVM ask for them to choose a configuration.

In: tensors, and a convolution's arguments.  Out: numbers by TVM's names.
Read next: `topi/cpu_fallback.py`.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window
from tilewright.topi.stage import call_text, check_tensor, require

LAYOUTS = {"NCHW": "OIHW", "NHWC": "HWIO"}


class Workload(NamedTuple):
    """A convolution of images: types, extents of an image, channels, window, padding, steps."""

    in_dtype: str
    out_dtype: str
    height: int
    width: int
    in_filter: int
    groups: int
    out_filter: int
    kernel_h: int
    kernel_w: int
    padt: int
    padl: int
    padb: int
    padr: int
    dilation_h: int
    dilation_w: int
    stride_h: int
    stride_w: int


def conv2d_workload(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str,
    data_layout: str = "NCHW",
) -> Workload:  # fmt: skip
    """The sizes of a convolution of data [N, C, H, W] and kernel [CO, CI / groups, KH, KW].

    data_layout: NCHW, or NHWC, whose kernel is [KH, KW, CI / groups, CO]
    """
    place = call_text("conv2d workload", data=data, kernel=kernel, data_layout=data_layout)
    require(data_layout in LAYOUTS, place, "the layout is unknown", "Use NCHW or NHWC.")
    sizes, own = _sizes(data, kernel, data_layout, LAYOUTS[data_layout], place)
    groups = sizes["C"] // max(own["I"], 1)
    require(
        own["I"] * groups == sizes["C"], place,
        f"a kernel of {own['I']} channels does not divide {sizes['C']}", "Use a divisor.",
    )  # fmt: skip
    window = Window.of((own["H"], own["W"]), stride, padding, dilation, place)
    return _workload(data, out_dtype, sizes, groups, own["O"], window)


def depthwise_workload(
    data: Tensor, kernel: Tensor, stride: Any, padding: Any, dilation: Any, out_dtype: str,
    data_layout: str = "NCHW",
) -> Workload:  # fmt: skip
    """The sizes of a depthwise convolution of data [N, C, H, W] and kernel [C, M, KH, KW].

    data_layout: NCHW; NHWC, whose kernel is [KH, KW, C, M]; or NCHWc, channels in blocks
    """
    place = call_text("depthwise workload", data=data, kernel=kernel, data_layout=data_layout)
    known = {"NCHW": "CMHW", "NHWC": "HWCM", "NCHWc": "CMHWmc"}
    require(data_layout in known, place, "the layout is unknown", "Use NCHW, NHWC or NCHWc.")
    sizes, own = _sizes(data, kernel, data_layout, known[data_layout], place)
    sizes["C"] *= sizes.get("c", 1)
    channels = own["C"] * own.get("c", 1)
    require(
        channels == sizes["C"], place, f"the kernel has {channels} channels, not {sizes['C']}",
        "Give both as many.",
    )  # fmt: skip
    window = Window.of((own["H"], own["W"]), stride, padding, dilation, place)
    outer = channels * own["M"] * own.get("m", 1)
    return _workload(data, out_dtype, sizes, sizes["C"], outer, window)


def _sizes(
    data: Tensor, kernel: Tensor, layout: str, kernel_layout: str, place: str
) -> tuple[dict[str, int], dict[str, int]]:
    check_tensor(data, "data", " ".join(layout), place)
    check_tensor(kernel, "kernel", " ".join(kernel_layout), place)
    return (
        dict(zip(layout, data.shape, strict=True)),
        dict(zip(kernel_layout, kernel.shape, strict=True)),
    )


def _workload(
    data: Tensor, out_dtype: str, sizes: dict[str, int], groups: int, outer: int, window: Window
) -> Workload:
    return Workload(
        str(data.dtype), str(out_dtype), sizes["H"], sizes["W"], sizes["C"], groups, outer,
        *window.kernel, *window.padding, *window.dilation, *window.stride,
    )  # fmt: skip
