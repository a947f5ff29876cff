"""A kernel that brings one box of a tensor by a bulk copy and writes out what came."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

import numpy as np

from tilewright.base.dtype import DType
from tilewright.ir import expr as E
from tilewright.ir.bulk import GATE_TYPE, Await, Box, BulkCopy, Expect, Fence, MakeGates
from tilewright.ir.stmt import (
    Allocate,
    Barrier,
    Buffer,
    For,
    If,
    Kernel,
    Program,
    Region,
    Store,
    Thread,
    load,
    seq,
)

THREADS = 32


@dataclass(frozen=True)
class Boxed:
    """shape: of the tensor; extents, steps, at: of the box
    order: of the tensor's dimensions, as the copy sees them; (): as they are
    swizzle: of the buffer that it comes to
    """

    shape: tuple[int, ...]
    extents: tuple[int, ...]
    at: tuple[int, ...]
    steps: tuple[int, ...] = ()
    order: tuple[int, ...] = ()
    dtype: str = "float32"
    swizzle: int = 0

    @property
    def box(self) -> Box:
        n = len(self.shape)
        dense = [prod(self.shape[d + 1 :]) for d in range(n)]
        order = self.order or tuple(range(n))
        return Box(
            tuple(self.shape[d] for d in order), tuple(dense[d] for d in order), self.extents,
            self.steps or (1,) * n,
        )  # fmt: skip


CASES = {
    "a row": Boxed((1, 100), (1, 64), (0, 48)),
    "before the begin": Boxed((40, 64), (8, 32), (-3, -8)),
    "behind the end": Boxed((40, 64), (16, 48), (33, 40)),
    "three dimensions": Boxed((5, 7, 32), (3, 4, 16), (3, -1, 8)),
    "five dimensions": Boxed((3, 2, 4, 5, 16), (2, 2, 2, 3, 16), (1, 1, 3, 3, 4)),
    "in steps": Boxed((20, 9, 16), (5, 3, 8), (1, -1, 4), steps=(3, 2, 1)),
    "rows of another dimension": Boxed((6, 10, 32), (8, 3, 32), (5, 1, 0), order=(1, 0, 2)),
    "behind everything": Boxed((40, 64), (16, 48), (40, 16)),
    "before everything": Boxed((40, 64), (16, 48), (0, -48)),
    "halves": Boxed((33, 72), (32, 64), (7, 16), dtype="float16"),
    "halves of another kind": Boxed((33, 72), (32, 64), (7, 16), dtype="bfloat16"),
    "swizzled": Boxed((40, 80), (24, 64), (-2, 24), dtype="float16", swizzle=128),
    "swizzled by 64 bytes": Boxed((40, 80), (24, 32), (-2, 24), dtype="float16", swizzle=64),
    "swizzled by 32 bytes": Boxed((40, 80), (16, 8), (-2, 20), swizzle=32),
    "bytes": Boxed((30, 48), (24, 32), (-2, 16), dtype="int8"),
    "doubles": Boxed((30, 20), (24, 16), (-2, 8), dtype="float64"),
    "integers": Boxed((30, 20), (24, 16), (-2, 8), dtype="int32"),
}


def program(case: Boxed) -> Program:
    kind, box = DType(case.dtype), case.box
    a = Buffer("a", kind, prod(case.shape), "global", case.shape)
    b = Buffer("b", kind, box.elements, "global", box.extents)
    s = Buffer("s", kind, box.elements, "shared", swizzle=case.swizzle)
    gates = Buffer("gate", DType(GATE_TYPE), 1, "shared")
    t, j, zero = E.var("t"), E.var("j"), E.const(0)
    gate, count = Region(gates, zero, 1), box.elements
    copy = BulkCopy(
        Region(s, zero, count), Region(a, zero, a.size), box, tuple(map(E.const, case.at)), gate
    )
    at = j * THREADS + t
    body = seq(
        If(t.equal(0), seq(MakeGates(gate, 1), Fence())), Barrier(),
        If(t.equal(0), seq(Expect(gate, copy.nbytes), copy)), Await(gate, zero),
        For(j, -(-count // THREADS), If(at < count, Store(b, at, load(s, at)))),
    )  # fmt: skip
    nest = Allocate(gates, Allocate(s, body))
    kernel = Kernel("boxed", (a, b), nest, (Thread("threadIdx.x", t, THREADS),))
    return Program("boxed", (a, b), ("input", "output"), (kernel,))


def arrays(case: Boxed) -> list[np.ndarray]:
    kind = DType(case.dtype)
    given = np.arange(1, 1 + prod(case.shape)) % 97
    return [
        given.astype(kind.storage).reshape(case.shape), np.zeros(case.box.extents, kind.storage)
    ]  # fmt: skip


def expected(case: Boxed) -> np.ndarray:
    given, result = arrays(case)
    seen = given.transpose(case.order or range(given.ndim))
    for index in np.ndindex(*result.shape):
        place = [c + i * s for c, i, s in zip(case.at, index, case.box.steps, strict=True)]
        inside = all(0 <= p < n for p, n in zip(place, seen.shape, strict=True))
        result[index] = seen[tuple(place)] if inside else 0
    return result
