"""Transposed convolution over images of any rank, without a zero that is multiplied.

In: data and kernel tensors.  Out: for strides above 1 two stages.  With stride s, outputs at o,
o + s, o + 2s, ... read the same taps of the kernel, every s-th of it.  So the first stage, which
carries the workload, has an axis of extent s beside each axis of the image, and is a convolution of
stride 1; the second one puts its elements side by side.  Read next: `conv.py`.

    o + before = q*s + r:   sum over t of  data[q - t] * kernel[r + t*s]
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.nn.conv import AXIS_NAME, TAP_NAME, check_channels, check_kernel
from tilewright.topi.nn.window import Window, image_letters, pad
from tilewright.topi.stage import (
    Indices,
    call_text,
    check_tensor,
    per_axis,
    product_dtype,
    require,
    stage,
    sum_of_products,
    workload,
)

PHASE_NAME = {"D": "pz", "H": "py", "W": "px"}


@dataclass(frozen=True)
class Axis:
    """One axis of the image.

    size, out: extents of data and result; taps: of every phase
    """

    size: int
    out: int
    kernel: int
    stride: int
    dilation: int
    before: int

    @property
    def taps(self) -> int:
        reach = (self.kernel - 1) * self.dilation + 1
        return -(-reach // self.stride)

    def holds(self, at: Expr) -> list[Expr]:
        """Return a condition that is true where `at` of the spread kernel is a tap."""
        found = []
        if self.dilation > 1:
            found.append((at % self.dilation).equal(0))
        reach = (self.kernel - 1) * self.dilation + 1
        if self.taps * self.stride > reach:
            found.append(at < reach)
        return found

    @property
    def first(self) -> int:
        """q of the first output."""
        return self.before // self.stride

    @property
    def steps(self) -> int:
        """Values of q."""
        return (self.before + self.out - 1) // self.stride - self.first + 1

    @property
    def plain(self) -> bool:
        """Whether tap t of phase r is element r + t*stride of the kernel as it is stored."""
        return self.dilation == 1 and self.kernel == self.taps * self.stride

    @property
    def pads(self) -> tuple[int, int]:
        """Zeros in front of the data and behind it that some output reads."""
        least, greatest = self.first - (self.taps - 1), self.first + self.steps - 1
        return max(-least, 0), max(greatest - (self.size - 1), 0)


def conv_transpose(
    data: Tensor,
    kernel: Tensor,
    strides: Any = 1,
    padding: Any = 0,
    out_dtype: str | None = None,
    output_padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    data_layout: str = "NCHW",
    kernel_layout: str = "",
) -> Tensor:
    """The gradient of a convolution: data [N, CI, H, W], kernel [CI, CO / groups, KH, KW].

    kernel_layout: an order of I, O and the image's axes, by default IOHW whatever the data's; I is
    of the data, O of one group of the result.  The result has (H - 1)*stride - padding +
    dilated kernel + output_padding rows.
    """
    rank, layout = len(data_layout) - 2, data_layout
    image = image_letters(rank)
    name = f"{'group_' if groups != 1 else ''}conv{rank}d_transpose_{layout.lower()}"
    place = call_text(
        name, data=data, kernel=kernel, strides=strides, padding=padding,
        output_padding=output_padding, dilation=dilation,
    )  # fmt: skip
    require(
        layout in (f"NC{image}", f"N{image}C"), place, f"data layout {layout!r} is unknown",
        "Use NCW, NWC, NCHW, NHWC, NCDHW or NDHWC.",
    )  # fmt: skip
    check_tensor(data, "data", layout, place)
    kernel_layout = kernel_layout or f"IO{image}"
    check_kernel(kernel, kernel_layout, image, place)
    size = dict(zip(layout, data.shape, strict=True))
    weight = dict(zip(kernel_layout, kernel.shape, strict=True))
    outputs = weight["O"] * groups
    check_channels(size["C"], outputs, weight["I"] // max(groups, 1), groups, place)
    window = Window.of([weight[a] for a in image], strides, padding, dilation, place, rank)
    extra = per_axis(output_padding, rank, "output_padding", place, 0)
    axes = {a: _axis(window, n, size[a], extra[n], place) for n, a in enumerate(image)}
    dtype = product_dtype(place, out_dtype, data=data, kernel=kernel)
    key = workload(
        name, data, kernel, window.stride, window.padding, extra, window.dilation,
        *([groups] if groups > 1 else []), dtype,
    )  # fmt: skip

    phases = [a for a in image if axes[a].stride > 1]
    if not all(axis.plain for axis in axes.values()):
        kernel = _spread(kernel, kernel_layout, axes)
    before, after = [0] * len(layout), [0] * len(layout)
    for a, axis in axes.items():
        before[layout.index(a)], after[layout.index(a)] = axis.pads
    padded = pad(data, before, after, name="pad_temp")
    per_group = weight["I"] // groups
    reduced = {"C": te.reduce_axis((0, per_group), TAP_NAME["C"])}
    reduced |= {a: te.reduce_axis((0, axes[a].taps), TAP_NAME[a]) for a in image}
    rc = reduced["C"]
    letters = _with_phases(layout, phases)

    def body(i: Indices) -> Expr:
        at = dict(zip(letters, i, strict=True))
        channel = rc.as_expr()
        if groups > 1:
            channel = at["C"] // weight["O"] * per_group + rc
        source = {"N": at["N"], "C": channel}
        tap = {"O": at["C"] if groups == 1 else at["C"] % weight["O"], "I": channel}
        there: list[Expr] = []
        for a, axis in axes.items():
            lead = axis.first - (axis.taps - 1) + axis.pads[0]
            source[a] = at[a] + reduced[a] + lead
            stored = (axis.taps - 1 - reduced[a]) * axis.stride
            tap[a] = stored + at[a.lower()] if a in phases else stored
            there += axis.holds(tap[a])
        return sum_of_products(
            padded[tuple(source[a] for a in layout)],
            kernel[tuple(tap[a] for a in kernel_layout)],
            dtype,
            [reduced[a] for a in layout if a != "N"],
            te.all(*there) if there else None,
        )

    extents = {"N": size["N"], "C": outputs, **{a: x.steps for a, x in axes.items()}}
    extents |= {a.lower(): axes[a].stride for a in phases}
    names = AXIS_NAME | {a.lower(): PHASE_NAME[a] for a in image}
    made = stage(
        [extents[a] for a in letters], body, name, name, axes=[names[a] for a in letters],
        workload=key,
    )  # fmt: skip
    return _interleaved(made, layout, phases, axes) if phases else made


def _axis(window: Window, n: int, size: int, extra: int, place: str) -> Axis:
    stride, before = window.stride[n], window.before[n]
    out = (size - 1) * stride + window.reach[n] - before - window.after[n] + extra
    require(
        out >= 1, place, f"its result would have extent {out}",
        "Use less padding or a larger kernel.",
    )  # fmt: skip
    require(
        extra < max(stride, window.dilation[n]), place,
        f"output_padding {extra} is not below stride {stride} or dilation {window.dilation[n]}",
        "Use less of it.",
    )  # fmt: skip
    return Axis(size, out, window.kernel[n], stride, window.dilation[n], before)


def _with_phases(layout: str, phases: list[str]) -> str:
    """The axes of the first stage: phases, in lower case, behind the channels or in front of the
    image, so that the innermost axis stays what it is."""
    small = "".join(phases).lower()
    return f"NC{small}{layout[2:]}" if layout[1] == "C" else f"N{small}{layout[1:]}"


def _spread(kernel: Tensor, layout: str, axes: Mapping[str, Axis]) -> Tensor:
    """The kernel with zeros between its taps and behind them, so that all phases have as many."""
    shape = [
        axes[a].taps * axes[a].stride if a in axes else n
        for a, n in zip(layout, kernel.shape, strict=True)
    ]

    def body(i: Indices) -> Expr:
        inside, at = [], list(i)
        for k, a in enumerate(layout):
            if a not in axes:
                continue
            step = axes[a].dilation
            at[k] = i[k] // step if step > 1 else i[k]
            if step > 1:
                inside.append((i[k] % step).equal(0))
            if shape[k] > (axes[a].kernel - 1) * step + 1:
                inside.append(i[k] < (axes[a].kernel - 1) * step + 1)
        return te.if_then_else(te.all(*inside), kernel[tuple(at)], te.const(0, kernel.dtype))

    return stage(shape, body, "kernel_spread", "injective,pad")


def _interleaved(made: Tensor, layout: str, phases: list[str], axes: Mapping[str, Axis]) -> Tensor:
    """Element q of phase r goes to q*stride + r; what is cut off by padding stays out."""
    letters = _with_phases(layout, phases)
    shape = [axes[a].out if a in axes else made.shape[letters.index(a)] for a in layout]

    def body(i: Indices) -> Expr:
        at: dict[str, Any] = dict(zip(layout, i, strict=True))
        for a in phases:
            axis = axes[a]
            moved = at[a] + axis.before % axis.stride
            at[a], at[a.lower()] = moved // axis.stride, moved % axis.stride
        return made[tuple(at[a] for a in letters)]

    return stage(shape, body, "T_interleave", "injective")
