"""Convolutions on the matrix units of GPUs, of any rank: `conv2d_nhwc.slab`, `conv2d_nchw.tensor`.

In: anchors of `topi.nn.conv` and of `conv2d_NCHWc`, with and without groups, and those of
`topi.nn.conv_transpose` without.  Out: schedules by `gpu_atoms.py`.  Weights are the rows of the
product and columns of the image its columns; the part of an image that a block reads, its slab,
comes to shared memory once for all of the window: by copies of 16 bytes where channels come last,
of pairs of channels where these lie together.  Where the window has one element, a convolution is a
product of matrices; where channels fill no atoms, what is in the window is gathered, as often as it
is read.  A transposed convolution is one for each phase of its stride, whose taps are stored
together; phases that lack a tap skip its atoms.
Read next: `gpu_atoms.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import prod
from typing import Any

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import Atom
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import ComputeOp, reduction_of
from tilewright.topi.templates.gpu import op_of, wasted
from tilewright.topi.templates.gpu_atoms import (
    KINDS,
    STRUCTURES,
    WASTE,
    Groups,
    is_constant,
    schedule_tensor,
)
from tilewright.topi.templates.gpu_atoms_untuned import fallback


def conv_groups(op: ComputeOp, atom: Atom) -> Groups:
    """Weights are the rows of the product where channels come first, else the columns."""
    layout, last = layout_of(op), len(op.axis) - 1
    if layout.lower().index("c") == 1:
        return slab_groups(op, atom) or gathered_groups(op, atom)
    depth, image = (len(layout) - 2,), _longer(op, range(last))
    k = depth if _waste(op, depth, atom) == 1 else tuple(range(len(op.reduce_axis)))
    return Groups(m=image or (last - 1,), n=(last,), k=k, channels="n")


def layout_of(op: ComputeOp) -> str:
    return op.tag.rpartition("_")[2]


def _channels(op: ComputeOp) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Axes of channels: of the result, and those that are summed up."""
    layout, last, inner = layout_of(op), len(op.axis) - 1, len(op.reduce_axis) - 1
    if layout.endswith("c"):
        return ((1, last), (0, inner)) if layout.startswith("NC") else ((last,), (inner,))
    return (1,), (0,)


def slab_groups(op: ComputeOp, atom: Atom) -> Groups | None:
    """Weights are the rows of the product, columns of an image its columns: what a block needs of
    the image comes once, for all of the window.  None where the window has one element, or atoms
    would be half empty."""
    channels, depth = _channels(op)
    most = 1 if layout_of(op).endswith("w") else WASTE  # gathered, such a window wastes less
    window = [ax for d, ax in enumerate(op.reduce_axis) if d not in depth]
    if all(ax.size == 1 for ax in window) or _waste(op, depth, atom) > most:
        return None
    image = [d for d in range(1, len(op.axis)) if d not in channels]
    return Groups(m=channels, n=(image[-1],), k=depth, image=tuple(image[:-1][-1:]))


def gathered_groups(op: ComputeOp, atom: Atom) -> Groups:
    """Weights are the rows of the product, the whole image its columns, for each of which all that
    it sums up is gathered."""
    channels, depth = _channels(op)
    k = depth if _waste(op, depth, atom) == 1 else tuple(range(len(op.reduce_axis)))
    image = [d for d in range(1, len(op.axis)) if d not in channels]
    return Groups(m=channels, n=_longer(op, image) or (image[-1],), k=k)


def _waste(op: ComputeOp, depth: Sequence[int], atom: Atom) -> float:
    """How many times the terms there are, whole atoms along these axes have."""
    extent = prod(op.reduce_axis[d].size for d in depth)
    return wasted(extent, atom.extents["k"])


def _longer(op: ComputeOp, axes: Iterable[int]) -> tuple[int, ...]:
    return tuple(d for d in axes if op.axis[d].size > 1)


def schedule_conv(cfg: Any, a: Anchored) -> None:
    schedule_tensor(cfg, a, conv_groups)


def schedule_slab(cfg: Any, a: Anchored) -> None:
    def groups(op: ComputeOp, atom: Atom) -> Groups:
        found = slab_groups(op, atom)
        if found is None:
            raise ScheduleError(
                f"template for {op.name}",
                "its window has one element, or its channels fill no atoms",
                "Other templates compute it.",
            )  # fmt: skip
        return found

    schedule_tensor(cfg, a, groups)


def transposed_groups(op: ComputeOp, atom: Atom) -> Groups:
    """Phases stay loops around blocks; what each of them computes is a convolution of stride 1."""
    first, rank = layout_of(op).index("c") == 1, len(layout_of(op)) - 2
    end = len(op.axis) if first else len(op.axis) - 1
    image, channels = tuple(range(end - rank, end)), 1 if first else end
    depth = (0,) if first else (len(op.reduce_axis) - 1,)
    window = [ax for d, ax in enumerate(op.reduce_axis) if d not in depth]
    full = _waste(op, depth, atom)
    reduced = reduction_of(op.body)
    some = reduced is not None and reduced.args[0].op == "if_then_else"  # phases lack taps
    slab = any(ax.size > 1 for ax in window) and full <= (1 if rank == 1 else WASTE)
    if some or slab:
        return Groups(m=(channels,), n=image[-1:], k=depth, image=image[:-1][-1:])
    k = depth if full == 1 else tuple(range(len(op.reduce_axis)))
    pixels = _longer(op, image) or image[-1:]
    return Groups(m=(channels,), n=pixels, k=k)


def schedule_transposed(cfg: Any, a: Anchored) -> None:
    _store_by_phases(a)
    schedule_tensor(cfg, a, transposed_groups)


def _store_by_phases(a: Anchored) -> None:
    """A constant kernel with the taps of a phase beside each other, so that where they lie depends
    on no phase."""
    op = op_of(a.schedule, a.anchor)
    kernel = op.input_tensors[1]
    dims = len(layout_of(op))
    phases = len(op.axis) - dims
    if not phases or not is_constant(a.schedule, kernel):
        return
    (read,) = {e for e in E.walk(op.body) if e.op == "read" and e.attr is kernel}
    at = 2 if layout_of(op).index("c") == 1 else 1
    inside = {ax.var: int(ax.size) for ax in op.axis[at : at + phases]}
    blocks = [
        next((inside[v] for v in E.free_variables(index) if v in inside), 1) for index in read.args
    ]
    order = [*range(len(blocks)), *(len(blocks) + d for d, b in enumerate(blocks) if b > 1)]
    a.schedule.pack(kernel, blocks, order)


for _layout in ("ncw", "nwc", "nchw", "nhwc", "NCHWc", "ncdhw", "ndhwc"):
    _rank = len(_layout.replace("Wc", "W")) - 2
    _name = f"conv{_rank}d_{_layout}"
    _tags = (_name, f"group_{_name}")
    if _layout.startswith("n") and _layout.endswith("c"):
        anchor_template(
            f"{_name}.slab", kinds=KINDS, tags=_tags, fallback=fallback, structures=STRUCTURES
        )(schedule_slab)
    anchor_template(
        f"{_name}.tensor", kinds=KINDS, tags=_tags, fallback=fallback, structures=STRUCTURES
    )(schedule_conv)
    if "NCHWc" not in _layout:
        anchor_template(
            f"conv{_rank}d_transpose_{_layout}.tensor", kinds=KINDS, fallback=fallback,
            tags=(f"conv{_rank}d_transpose_{_layout}",), structures=STRUCTURES,
        )(schedule_transposed)  # fmt: skip
