"""What convolutions over blocks of channels have in common: checks, window, padded data.

In: data [N, C/c, H, W, c] and a kernel in blocks.  Out: `Blocks`.
Read next: `conv2d.py`, `depthwise.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tilewright.base.dtype import DType
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.window import Window, pad
from tilewright.topi.stage import call_text, check_tensor, product_dtype, require


@dataclass(frozen=True)
class Blocks:
    """image: rows and columns of the result; place: the call, for errors; groups: in how many parts
    the channels fall, each with its own kernels"""

    place: str
    window: Window
    image: Sequence[int]
    dtype: DType
    padded: Tensor
    groups: int


def over_blocks(
    name: str, data: Tensor, kernel: Tensor, letters: str, inputs: str, stride: Any, padding: Any,
    dilation: Any, layout: str | None, out_layout: str | None, out_dtype: str | None,
) -> Blocks:  # fmt: skip
    """letters: of the kernel's axes; inputs: those of blocks of the data's channels, and of one"""
    place = call_text(
        name, data=data, kernel=kernel, stride=stride, padding=padding, dilation=dilation
    )
    check_tensor(data, "data", "N C H W c", place)
    check_tensor(kernel, "kernel", " ".join(letters), place)
    _, chunks, height, width, block = data.shape
    size = dict(zip(letters, kernel.shape, strict=True))
    kernel_chunks, kernel_block = (size[letter] for letter in inputs)
    groups = chunks // max(kernel_chunks, 1) if "O" in letters else 1
    require(
        (chunks, block) == (kernel_chunks * groups, kernel_block), place,
        f"data has {chunks} blocks of {block} channels, "
        f"the kernel {kernel_chunks} of {kernel_block}", "Store both in blocks of one size.",
    )  # fmt: skip
    require(
        size.get("O", 0) % groups == 0, place,
        f"{groups} groups do not divide {size.get('O', 0)} blocks of output channels",
        "Use a divisor.",
    )  # fmt: skip
    for what, given, own in (
        ("layout", layout, block), ("out_layout", out_layout, size[letters[-1]]),
    ):  # fmt: skip
        wanted = f"NCHW{own}c"
        require(
            given in (None, wanted), place, f"{what} is {given!r}, and the blocks are {wanted}",
            "Leave it out; an element type is given by name, out_dtype=.",
        )  # fmt: skip
    window = Window.of((size["H"], size["W"]), stride, padding, dilation, place)
    image = window.output_size((height, width), place)
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)
    padded = pad(data, *window.pads((2, 3), 5), name="data_pad") if any(window.padding) else data
    return Blocks(place, window, image, dtype, padded, groups)
