"""Matrices stored in the order in which the lanes of a warp hold them.

In: a fragment of an atom.  Out: the blocks and the order by which `pack` stores a matrix so that
the elements which a lane has of an atom lie side by side, lane behind lane.
Read next: `ir/atoms.py`, `steps/layouts.py`.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import Fragment, runs

Blocks = list[list[int]]


def fragment_order(
    fragment: Fragment, rank: int = 2, dims: tuple[int, int] = (0, 1),
    atoms: Mapping[str, int] | None = None,
) -> tuple[Blocks, list[int]]:  # fmt: skip
    """The arguments of `s.pack(tensor, blocks, order)`.

    rank:  of the tensor; dims: which of its dimensions are row and column of the fragment
    atoms: by letter of an axis, of how many neighbouring atoms along it (a power of two) the
           elements of a lane lie together, so that one access has more of them
    Outer dimensions come first, in their order; then the lanes; then the elements of a lane.
    Raises ScheduleError for numbers that do not fit.
    """
    place = f"fragment_order(rank={rank}, dims={dims}, atoms={atoms})"
    dim_of = dict(zip(fragment.axes, dims, strict=True))
    if len(set(dims)) < 2 or not set(dims) <= set(range(rank)):
        raise ScheduleError(place, "two dimensions of the tensor are needed", "Try dims=(0, 1).")
    held, lane = fragment.element.split(), fragment.lane.split()
    for axis, count in (atoms or {}).items():
        if axis not in dim_of or count < 1 or count & (count - 1):
            raise ScheduleError(
                place, f"{count} atoms along {axis} cannot lie together",
                f"Name {' or '.join(fragment.axes)}, and a power of two.",
            )  # fmt: skip
        first = sum(bit[0] == axis for bit in (*held, *lane))
        held += [f"{axis}{first + k}" for k in range(count.bit_length() - 1)]
    found = [(axis, to, 1 << count) for _, axis, to, count in runs([*held, *lane])]
    blocks: Blocks = [[] for _ in range(rank)]
    number: dict[tuple[str, int], int] = {}
    for axis, to, size in sorted(found, key=lambda run: -run[1]):
        own = blocks[dim_of[axis]]
        own.append(size)
        number[axis, to] = rank * len(own) + dim_of[axis]
    order = [*range(rank), *(number[axis, to] for axis, to, _ in reversed(found))]
    return blocks, order
