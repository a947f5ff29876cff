"""The step pack: an input in another layout; and what is known of stages that only move elements.

In: a state.  Out: a stage that stores elements of an input elsewhere.  Such a stage carries the
`Packing` that does the same to an array (`op.attrs["packing"]`): of a constant it is done before
the program runs.  Read next: `products.py`, `base/artifact.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Any, ClassVar

from tilewright.base.artifact import Packing
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import ROUNDED
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import symbols_of
from tilewright.schedule.space.decision import Size
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.step import AnyState, Step, refuse_read_by_opaque
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor

PACKED = "pack"  # the tag of a stage in another layout: of a constant nothing computes it

Block = Size | tuple[Size, ...]  # of a dimension, in one part or in several


@dataclass(frozen=True)
class Pack(Step):
    """An input is stored in another layout: some dimensions split into blocks, then permuted.

    blocks: per dimension the block size (1: not split), or the sizes of its parts; order: of the
    outer dimensions 0..n-1, the blocks n..2n-1 (of the dimensions that are split), and for blocks
    in several parts 2n..3n-1 for the second ones, and so on
    rounded: numbers of float32 to 11 digits, as atoms of tf32 want their operands
    rewrite:  s.pack(A, [4, 1], [0, 1, 2])
        C: float32[8] global, 8 elements, 32 bytes
          for i in 8:
            for k in 10:
              C[i] += A[i, k]
        ->
        A.packed: float32[2, 10, 4] global, 80 elements, 320 bytes
          for o0 in 2:
            for o1 in 10:
              for b0 in 4:
                A.packed[o0, o1, b0] = A[o0*4 + b0, o1]
        C: float32[8] global, 8 elements, 32 bytes
          for i in 8:
            for k in 10:
              C[i] += A.packed[i//4, k, i%4]
    legal:    an input, or what pad and as_product made of one, without scheduled loops; every outer
              dimension and every part larger than 1 is in the order once; rounded: float32, and no
              stage reads it but those of atoms that round their operands.
    """

    blocks: tuple[Block, ...]
    order: tuple[int, ...]
    rounded: bool = False
    verb: ClassVar[str] = "pack"

    def apply(self, s: AnyState) -> Tensor:
        source = s.find(self.stage)
        place = f"pack({source.name}, blocks={self.blocks}, order={self.order})"
        moved = isinstance(source.op, ComputeOp) and "packing" in source.op.attrs
        if not isinstance(source.op, PlaceholderOp) and not moved:
            raise ScheduleError(
                place, "only inputs can be packed", "Use cache_read for computed tensors."
            )
        if source.is_scheduled or source.attach_kind != "root" or s.attached(source):
            raise ScheduleError(place, "the stage already has scheduled loops", "Pack it first.")
        refuse_read_by_opaque(self, s, source)
        shape = source.op.shape
        if symbols_of(shape):
            raise ScheduleError(place, "its extents are variables", "Use cache_read.")
        layout = _Blocks(shape, tuple(_parts(b) for b in self.blocks), tuple(self.order), place)
        axes = {k: IterVar(layout.name(k), size) for k, size in layout.sizes.items()}
        index = layout.index({k: ax.var for k, ax in axes.items()})
        old = source.tensor
        if self.rounded and old.dtype != "float32":
            raise ScheduleError(
                place, f"{old.dtype} has no digits that a matrix unit leaves out",
                "Leave rounded out.",
            )  # fmt: skip
        value, packing = old[tuple(index)], replace(layout.packing, rounded=self.rounded)
        if moved:  # reads its input itself
            assert isinstance(source.op, ComputeOp)
            own = zip(source.op.axis, index, strict=True)
            value = E.substitute(source.op.body, {ax.var: i for ax, i in own})
            packing = source.op.attrs["packing"].followed_by(packing)
        value = E.call(ROUNDED, value) if self.rounded else value
        inside = [
            ix < d for ix, d, b in zip(index, shape, layout.packing.blocks, strict=True) if d % b
        ]
        op = ComputeOp(
            source.name if moved else s.new_name(f"{source.name}.packed"),
            tuple(axes[k] for k in self.order),
            E.if_then_else(E.all_of(*inside), value, E.const(0, old.dtype)),
            PACKED,
            {"packing": packing},
        )
        readers = s.readers(old)
        if moved:
            s.replace_op(source, op)
        for reader in readers:
            assert isinstance(reader.op, ComputeOp)
            reader.set_body(_repack(reader.op.body, old, op.output_tensor, layout))
        if not moved:
            s.insert_stage(op, after=source)
        return op.output_tensor

    def python(self, names: PythonNames) -> str:
        blocks = ", ".join(f"{list(b)}" if isinstance(b, tuple) else f"{b}" for b in self.blocks)
        rounded = ", rounded=True" if self.rounded else ""
        return f"s.pack({names.tensor(self.stage)}, [{blocks}], {list(self.order)}{rounded})"


def _parts(block: Block) -> tuple[int, ...]:
    """The sizes of the parts of a block; none where the dimension is not split."""
    sizes = tuple(int(b) for b in block) if isinstance(block, tuple) else (int(block),)
    return () if sizes == (1,) else sizes


class _Blocks:
    """Dimensions of `shape` as outer parts and parts of blocks, each by its number.

    sizes: by the numbers in `order`.  Raises ScheduleError where they do not belong together.
    """

    def __init__(
        self, shape: tuple[int, ...], parts: tuple[tuple[int, ...], ...], order: tuple[int, ...],
        place: str,
    ) -> None:  # fmt: skip
        n = self.ndim = len(shape)
        known = {n * (j + 1) + d: p for d, own in enumerate(parts) for j, p in enumerate(own)}
        wanted = [*range(n), *sorted(known)]
        whole = all(p > 1 for p in known.values())
        if len(parts) != n or not whole or sorted(order) != wanted:
            raise ScheduleError(
                place,
                f"{n} block sizes and an order of {wanted} are needed",
                "For OIHW16o: (16,1,1,1), (0,1,2,3,4); parts of a block are larger than 1.",
            )
        self.parts = parts
        blocks = tuple(prod(own) for own in parts)
        outer = {
            d: -(-extent // b) for d, (extent, b) in enumerate(zip(shape, blocks, strict=True))
        }
        self.sizes = {k: (outer | known)[k] for k in order}
        within = parts if any(len(own) > 1 for own in parts) else ()
        self.packing = Packing(shape, blocks, order, within)

    def name(self, number: int) -> str:
        part, d = divmod(number, self.ndim)
        return f"o{d}" if part == 0 else f"b{d}" if part == 1 else f"b{d}_{part}"

    def index(self, at: dict[int, Expr]) -> list[Expr]:
        """The index in each dimension of the element at these places of the parts."""
        result = []
        for d, own in enumerate(self.parts):
            index, step = at[d] * prod(own), prod(own)
            for j, size in enumerate(own):
                step //= size
                index = index + at[self.ndim * (j + 1) + d] * step
            result.append(index)
        return result

    def split(self, indices: Sequence[Expr]) -> dict[int, Expr]:
        """The place in each part of the element at these indices."""
        places: dict[int, Expr] = {}
        for d, (index, own) in enumerate(zip(indices, self.parts, strict=True)):
            step = prod(own)
            places[d] = index // step
            for j, size in enumerate(own):
                step //= size
                places[self.ndim * (j + 1) + d] = index // step % size
        return places


def _repack(body: Expr, old: Tensor, new: Tensor, layout: _Blocks) -> Expr:
    def rule(node: Expr) -> Expr | None:
        if node.op != "read" or node.attr is not old:
            return None
        places = layout.split(node.args)
        return new[tuple(places[k] for k in layout.packing.order)]

    return E.transform(body, rule)


# -- what moves elements ---------------------------------------------------------------------------


def moving(s: AnyState, tensor: Tensor, packing: Packing | None) -> tuple[str, dict[str, Any]]:
    """The tag and the attributes of a stage that is to read `tensor` in the place of its readers
    and moves its elements as `packing` says (None: as none does).

    A constant that is read once, by this stage then, is packed before the program runs.
    """
    if packing is None or not isinstance(tensor.op, PlaceholderOp):
        return "", {}
    reads = [
        node
        for reader in s.readers(tensor)
        for node in E.walk(*reader.op.expressions)  # type: ignore[union-attr]
        if node.op == "read" and node.attr is tensor
    ]
    once = tensor.op.constant and len(reads) == 1
    return (PACKED if once else ""), {"packing": packing}


def filled_up(shape: Sequence[int], room: Sequence[int]) -> Packing | None:
    """Zeros behind each dimension, up to the extents of `room`; None where it is smaller."""
    if any(r < d for d, r in zip(shape, room, strict=True)):
        return None
    n = len(shape)
    blocks = tuple(r if r > d else 1 for d, r in zip(shape, room, strict=True))
    order = tuple(k for d, b in enumerate(blocks) for k in _numbers(d, n, b))
    return Packing(tuple(shape), blocks, order, (), tuple(room))


def _numbers(d: int, n: int, block: int) -> Iterator[int]:
    yield d
    if block > 1:
        yield n + d
