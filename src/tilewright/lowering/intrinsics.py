"""Tiles that statements of a user compute: see `schedule/intrinsics.py`.

In: an `Emission` and a stage whose innermost loops an intrinsic runs.  Out: its statements on the
buffers of the program, where the tile at hand begins.  What the stage computes there is compared
with what the intrinsic declares, term by term; a tile that would overhang is refused.
Read next: `reductions.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tilewright.base.errors import LegalityError, ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.foreign import Foreign
from tilewright.ir.renaming import fresh_loops
from tilewright.ir.stmt import Buffer, For, Stmt, Store, load, map_children, seq
from tilewright.lowering.emission import Emission
from tilewright.lowering.guards import ALL
from tilewright.lowering.reductions import Reduction
from tilewright.lowering.storage import row_major
from tilewright.schedule.atoms import innermost_part
from tilewright.schedule.intrinsics import INTRINSICS, Intrinsic
from tilewright.schedule.tree.accumulators import has_accumulator
from tilewright.schedule.tree.layout import Strided
from tilewright.schedule.tree.loop_tree import Node
from tilewright.te.tensor import IterVar, Tensor, reduction_of


@dataclass(frozen=True, eq=False)
class _Tile:
    """Where an operand, or the result, of a tile begins: in which buffer, and how its dimensions
    follow each other there."""

    buffer: Buffer
    begin: Expr
    strides: tuple[int, ...]


def by_intrinsic(emission: Emission, node: Node) -> Reduction:
    """The statements of an intrinsic in the loops that it leaves."""
    assert node.stage.atom is not None
    name, axis = node.stage.atom
    found = _Match(emission, node, INTRINSICS[name], f"tensorize({node.name}.{axis.name}, {name})")
    leaves = node.stage.leaf_iter_vars
    upto = leaves.index(axis)
    outside = [ax for ax in leaves[:upto] if ax.kind == "reduce" and emission.place.is_loop(ax)]
    intrinsic = found.intrinsic
    if not outside:
        if intrinsic.body is not None:
            return Reduction(found.statement(intrinsic.body, "body"), {}, upto)
        assert intrinsic.reset is not None and intrinsic.update is not None
        parts = (found.statement(s, w) for s, w in (
            (intrinsic.reset, "reset"), (intrinsic.update, "update")))  # fmt: skip
        return Reduction(seq(*parts), {}, upto)
    if intrinsic.reset is None or intrinsic.update is None:
        raise ScheduleError(
            found.place, f"the sum goes on in {outside[0].name}, and it only computes whole ones",
            "Give statements that begin a sum, and that add to it: (body, reset, update).",
        )  # fmt: skip
    first = leaves.index(outside[0])
    start = found.statement(intrinsic.reset, "reset")
    own = emission.place.leaf
    for ax in reversed(leaves[first:upto]):
        if ax.kind == "spatial" and emission.place.is_loop(ax):
            var = E.var(f"{ax.name}.init")
            start = emission.loop(node, ax, fresh_loops(start, {}, {own[ax]: var}), var)
    update = found.statement(intrinsic.update, "update")
    return Reduction(update, {first: lambda nest: seq(start, nest)}, upto)


class _Match:
    """How a stage's innermost loops are what an intrinsic declares.

    Raises ScheduleError, or LegalityError for a size, where they are not.
    """

    def __init__(self, emission: Emission, node: Node, intrinsic: Intrinsic, place: str) -> None:
        self.emission, self.node, self.intrinsic, self.place = emission, node, intrinsic, place
        self._refuse()
        declared, self.inner = intrinsic.op, dict[Expr, Expr]()  # root axis -> what it moves by
        own: dict[Expr, E.Value] = {}
        for ours, theirs in (
            (node.op.axis, declared.axis),
            (node.op.reduce_axis, declared.reduce_axis),
        ):
            self._axes([ax for ax in ours if ax in self._parts], theirs, own)
        self.tiles: dict[Tensor, _Tile] = {}
        self.names: dict[Expr, E.Value] = {}
        if not self._same(E.substitute(declared.body, own), node.body):
            raise ScheduleError(
                place, f"{node.name} computes {node.body}, the intrinsic {declared.body}",
                "Declare the same computation, term by term.",
            )  # fmt: skip
        (buffer,) = emission.accesses.targets(node)
        begin, strides = emission.accesses.store_index(node), self._strides(node.stage.tensor, node)
        out = declared.output_tensor
        self._bind(out, _Tile(buffer, begin, strides[-len(out.shape) :]))

    def _refuse(self) -> None:
        node, stage = self.node, self.node.stage
        if has_accumulator(node) or stage.aligned or (node.stage.binds and any(
            tag == "vthread" for tag in stage.binds.values()
        )):  # fmt: skip
            raise ScheduleError(
                self.place, "its sums have another type than its result, its rows are padded, or"
                " virtual threads run it",
                "Write the result in the type of the sums, in plain rows.",
            )  # fmt: skip
        self._parts: dict[IterVar, IterVar] = {}
        chains: set[IterVar] = set()
        for leaf in stage.inside:
            part = innermost_part(stage, leaf)
            if part is None or any(child.attach_axis is leaf for child in node.children):
                raise ScheduleError(
                    self.place, f"{leaf.name} is not the end of a whole axis, or something is"
                    " computed at it",
                    "Take an axis of the computation, or the inner loop of a split.",
                )  # fmt: skip
            self._parts[part.root] = leaf
            chains |= {part.root, *(split.parent for split in part.splits)}
        bounds = self.emission.place.bounds
        uneven = [ax.name for ax, flag in bounds.guards[node].items() if flag and ax in chains]
        sides = zip(node.op.axis, bounds.outside[node], strict=True)
        uneven += [ax.name for ax, (low, high) in sides if ax in chains and (low or high)]
        if uneven or self.emission.guards.of(node, ALL).op != "const":
            raise LegalityError(
                self.place, f"tiles along {' and '.join(uneven) or node.name} overhang",
                "Split by sizes that divide the extents.",
            )  # fmt: skip

    def _axes(
        self, ours: Sequence[IterVar], theirs: Sequence[IterVar], own: dict[Expr, E.Value]
    ) -> None:
        sizes = [int(self.emission.place.extent(self._parts[ax])) for ax in ours]
        wanted = [ax.size for ax in theirs]
        if sizes != wanted:
            raise LegalityError(
                self.place, f"its loops are {sizes} long, those of the intrinsic {wanted}",
                "Split off loops of these lengths.",
            )  # fmt: skip
        for ax, declared in zip(ours, theirs, strict=True):
            self.inner[ax.var] = own[declared.var] = E.var(f"{declared.name}.tile")

    def _same(self, declared: Expr, ours: Expr) -> bool:
        if declared.op == "reduce" and ours.op == "reduce":
            a, b = reduction_of(declared), reduction_of(ours)
            assert a is not None and b is not None
            alike = a.attr[0].name == b.attr[0].name and a.dtype is b.dtype
            return alike and all(map(self._same, a.args, b.args))
        if declared.op == "read" and ours.op == "read":
            return self._same_read(declared, ours)
        if (declared.op, declared.dtype, len(declared.args)) != (
            ours.op, ours.dtype, len(ours.args),
        ):  # fmt: skip
            return False
        if declared.op == "var" or declared.attr != ours.attr:
            return False
        return all(map(self._same, declared.args, ours.args))

    def _same_read(self, declared: Expr, ours: Expr) -> bool:
        """Whether a read moves in its last dimensions as declared, and in no other."""
        place, rank = self.emission.place, len(declared.args)
        if declared.attr.dtype is not ours.attr.dtype or rank > len(ours.args):
            return False
        at = place.coordinates(self.node)
        moving = {var: at[var] + by for var, by in self.inner.items()} | {
            var: value for var, value in at.items() if var not in self.inner
        }
        ranges = {var: (0, 1 << 20) for var in self.inner.values()}
        simple = Simplifier({**place.simplify.ranges, **ranges})
        steps = [
            simple(E.substitute(i, moving) - E.substitute(i, at)) for i in ours.args
        ]  # fmt: skip
        wanted = [E.const(0)] * (len(steps) - rank) + list(declared.args)
        apart = (simple(a - b) for a, b in zip(steps, wanted, strict=True))
        if any(e.op != "const" or e.attr for e in apart):
            return False
        value = self.emission.accesses.value(self.node, ours)
        if value.op != "load":
            return False
        strides = self._strides(ours.attr, place.producer(ours))
        self._bind(declared.attr, _Tile(value.attr, value.args[0], strides[len(steps) - rank :]))
        return True

    def _strides(self, tensor: Tensor, producer: Node | None) -> tuple[int, ...]:
        storage = self.emission.accesses.storage
        if producer is None:
            return tuple(storage.strides_of(tensor, None))
        layout = storage.layouts[producer]
        if not isinstance(layout, Strided) or any(isinstance(n, Expr) for n in layout.strides):
            raise ScheduleError(self.place, f"{tensor.name} lies in no plain rows")
        return tuple(int(n) for n in layout.strides)

    def _bind(self, tensor: Tensor, tile: _Tile) -> None:
        known = self.tiles.setdefault(tensor, tile)
        if known is not tile and (known.buffer, known.begin) != (tile.buffer, tile.begin):
            raise ScheduleError(self.place, f"{tensor.name} would be two different tiles")
        shape = tuple(tensor.shape)
        wanted = self.intrinsic.strides.get(tensor) or row_major(shape)
        for size, stride, asked in zip(shape, tile.strides, wanted, strict=True):
            fits = size == 1 or stride == asked
            if isinstance(asked, Expr):
                bound = self.names.setdefault(asked, E.const(stride, asked.dtype))
                fits = isinstance(bound, Expr) and bound.attr == stride
            if not fits:
                raise LegalityError(
                    self.place, f"rows of {tensor.name} lie {stride} elements apart, not {asked}",
                    "Declare its buffer with strides=[te.var(..), 1].",
                )  # fmt: skip

    # -- statements --------------------------------------------------------------------------------
    def statement(self, stmt: Stmt, what: str) -> Stmt:
        """`stmt` on the buffers of the program; what: body, reset or update."""
        of = {self.intrinsic.buffers[t]: tile for t, tile in self.tiles.items()}
        return fresh_loops(self._moved(stmt, of, what), {})

    def _moved(self, stmt: Stmt, of: Mapping[Buffer, _Tile], what: str) -> Stmt:
        def expression(e: Expr) -> Expr:
            def rule(n: Expr) -> Expr | None:
                if n.op != "load" or n.attr not in of:
                    return None
                return load(of[n.attr].buffer, of[n.attr].begin + n.args[0])

            return E.transform(E.substitute(e, self.names), rule)

        made = map_children(stmt, lambda s: self._moved(s, of, what), expression)
        if isinstance(made, Store) and made.buffer in of:
            tile = of[made.buffer]
            return replace(made, buffer=tile.buffer, index=tile.begin + made.index)
        if isinstance(made, Foreign):
            tiles = [of[buffer] for buffer in made.places]
            offsets = tuple(t.begin + o for t, o in zip(tiles, made.offsets, strict=True))
            return replace(
                made,
                places=tuple(t.buffer for t in tiles),
                offsets=offsets,
                means=self._means(what),
            )
        return made

    def _means(self, what: str) -> Stmt:
        """What the intrinsic declares, as loops."""
        op = self.intrinsic.op
        loops = {ax.var: E.var(ax.name) for ax in (*op.axis, *op.reduce_axis)}

        def at(tensor: Tensor, index: Sequence[Expr]) -> tuple[Buffer, Expr]:
            tile = self.tiles[tensor]
            place = tile.begin
            for i, stride in zip(index, tile.strides, strict=True):
                place = place + i * stride
            return tile.buffer, place

        def rule(n: Expr) -> Expr | None:
            return load(*at(n.attr, n.args)) if n.op == "read" else None

        buffer, place = at(op.output_tensor, [loops[ax.var] for ax in op.axis])
        reduced = reduction_of(op.body)
        body = op.body if reduced is None else reduced.args[0]
        value = E.transform(E.substitute(body, loops), rule)
        if reduced is None or op.combiner is None:
            return _looped(Store(buffer, place, value), op.axis, loops)
        both = op.combiner.combine(load(buffer, place), value)
        added = _looped(Store(buffer, place, both), op.reduce_axis, loops)
        begun = Store(buffer, place, op.combiner.identity)
        parts: dict[str, tuple[Any, ...]] = {
            "body": (begun, added), "reset": (begun,), "update": (added,),
        }  # fmt: skip
        return _looped(seq(*parts[what]), op.axis, loops)


def _looped(stmt: Stmt, axes: Sequence[IterVar], loops: Mapping[Expr, Expr]) -> Stmt:
    for ax in reversed(axes):
        stmt = For(loops[ax.var], ax.size, stmt)
    return stmt
