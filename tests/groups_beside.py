"""What groups of warps do beside their threads, for the definition of the lowered IR.

In: a thread of `interpreter.py`, whose class has this as a part.  Out: its course through an `Mma`
of a group and what stands around one.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from typing import Any

import numpy as np

from tilewright.ir.atoms import GROUP, ROWS_OF_EIGHT, Tile
from tilewright.ir.stmt import Buffer, Mma, MmaBegin, MmaEnd, Region, Show
from tilewright.ir.warps import Meeting

Course = Generator[Any, Any, None]


class Beside:
    """See `interpreter.py`, `run`."""

    cells: Any
    hidden: Any
    batches: Any
    filled: Any
    gates: Any
    now: Any
    check: bool
    read: Any
    refuse: Any
    places: Any
    value: Any

    def multiply_beside(self, stmt: Mma) -> Course:
        tiles = [self.tile(region, of) for region, of in stmt.operands if isinstance(of, Tile)]
        a, b = (
            tuple(self.read(region.buffer, at, beside=True) for at in places)
            for region, places in zip((stmt.a, stmt.b), tiles, strict=True)
        )
        buffer, places = stmt.sum.buffer, self.places(stmt.sum)
        cells = self.cells[buffer]
        sums = tuple(cells.values[at] for at in places)
        if self.check:
            self.refuse("unfenced" if cells.stored else "", buffer, places[0])
            self.refuse("unwritten" if None in sums else "", buffer, places[0])
            for of, where in zip((stmt.a, stmt.b, stmt.sum), (*tiles, places), strict=True):
                self.engage(of.buffer, where)
        results = yield Meeting(stmt, (a, b, sums))
        for at, value in zip(places, results, strict=True):
            cells.values[at] = np.float64(value)

    def engage(self, buffer: Buffer, places: Sequence[int]) -> None:
        """The batch that is under way reads these elements, or adds to them."""
        cells = self.cells[buffer]
        if buffer in self.filled:
            self.batches[-1].append(self.gates.engage(self.now.thread, buffer, places))
            return
        cells.busy.update(places)
        self.batches[-1].append(lambda: cells.busy.subtract(places))

    def tile(self, region: Region, tile: Tile) -> list[int]:
        """Where the lane reads its part."""
        buffer, first = region.buffer, self.value(region.index)
        row, columns = buffer.swizzle // buffer.dtype.bytes, tile.shape[1]
        if self.check:
            inside = 0 <= first <= buffer.size - region.count
            self.refuse("" if inside else "bounds", buffer, first)
            begins = first // row % ROWS_OF_EIGHT == 0 and first % row % columns == 0
            self.refuse("" if begins else "tile", buffer, first, columns)
        lane = self.now.thread % GROUP
        return [buffer.at(first + k) for k in tile.offsets(buffer.swizzle, lane)]

    def show(self, stmt: Show) -> Course:
        for cells, at in self.hidden:
            cells.hidden.discard(at)
        self.hidden = []
        self.gates.show(self.now.thread)
        yield from ()

    def begin(self, stmt: MmaBegin) -> Course:
        self.cells[stmt.sum.buffer].stored = False
        yield from ()

    def end(self, stmt: MmaEnd) -> Course:
        self.batches.append([])
        while len(self.batches) - 1 > stmt.pending:
            for release in self.batches.pop(0):
                release()
        yield from ()
