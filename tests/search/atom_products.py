"""A product by matrix instructions, through shared memory, of any tiles: for facts and models.

In: sizes, tiles, warps.  Out: its schedule; and the same as a template.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilewright import te
from tilewright.base.dtype import DType
from tilewright.ir.atoms import ATOMS
from tilewright.ir.expr import Expr
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.template import get_config, template
from tilewright.te.tensor import Tensor

ATOM_OF = {
    "float16": "m16n8k16.float16",
    "bfloat16": "m16n8k16.bfloat16",
    "float32": "m16n8k8.tf32",
}


@dataclass(frozen=True)
class Product:
    """rows, columns: of a block; warps: along both; depth: of a step through the reduction, a
    multiple of the atom's; pad: elements between rows in shared memory; slices: of the reduction,
    each summed by blocks of its own and added up by a second kernel

    Sizes of tiles may be numbers of a configuration.
    """

    m: int = 256
    n: int = 256
    k: int = 256
    rows: Any = 64
    columns: Any = 64
    warps: tuple[Any, Any] = (2, 2)
    depth: Any = 32
    pad: int = 8
    dtype: str = "float16"
    slices: int = 1
    swizzle: int = 0

    def with_(self, **changes: Any) -> Product:
        return replace(self, **changes)

    @property
    def atom(self) -> str:
        return ATOM_OF[self.dtype]

    @property
    def bytes(self) -> int:
        return DType(self.dtype).bytes

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        a = te.placeholder((self.m, self.k), self.dtype, "A")
        b = te.placeholder((self.n, self.k), self.dtype, "B")
        own = self.k // self.slices
        r = te.reduce_axis((0, own), "r")

        def term(z: Expr, i: Expr, j: Expr) -> Expr:
            at = z * own + r
            return a[i, at].astype("float32") * b[j, at].astype("float32")

        shape = (self.slices, self.m, self.n)
        c = te.compute(shape, lambda *at: te.sum(term(*at), axis=r), name="C")
        return a, b, c

    def schedule(self) -> Schedule:
        return self.on(*self.tensors())

    def on(self, a: Tensor, b: Tensor, c: Tensor) -> Schedule:
        z = te.reduce_axis((0, self.slices), "z")
        total = te.compute(c.shape[1:], lambda i, j: te.sum(c[z, i, j], axis=z), name="D")
        s = create_schedule([total.op if self.slices > 1 else c.op])
        if self.slices > 1:
            block, thread = s[total].split(s[total].fuse(*s[total].op.axis), factor=128)
            s[total].bind(block, "blockIdx.x")
            s[total].bind(thread, "threadIdx.x")
        sums = s.cache_write(c, "fragment")
        copies = []
        for operand in (a, b):
            shared = s.cache_read(operand, "shared", [sums])
            copies.append((shared, s.cache_read(shared, "fragment", [sums])))
        piece, i, j = s[c].op.axis
        down, across = self.warps
        block_i, i = s[c].split(i, factor=self.rows)
        block_j, j = s[c].split(j, factor=self.columns)
        warp_i, i = s[c].split(i, nparts=down)
        warp_j, j = s[c].split(j, nparts=across)
        tile_i, row = s[c].split(i, factor=8)
        tile_j, j = s[c].split(j, factor=8)
        column, two = s[c].split(j, factor=2)
        s[c].reorder(piece, block_i, block_j, warp_i, warp_j, tile_i, tile_j, row, column, two)
        lane = s[c].fuse(row, column)
        s[c].bind(piece, "blockIdx.z")
        tags = ("blockIdx.y", "blockIdx.x", "threadIdx.z", "threadIdx.y", "threadIdx.x")
        for ax, tag in zip((block_i, block_j, warp_i, warp_j, lane), tags, strict=True):
            s[c].bind(ax, tag)
        s[c].vectorize(two)
        s[sums].compute_at(s[c], warp_j)
        piece, m, n = s[sums].op.axis
        (r,) = s[sums].op.reduce_axis
        outer, r = s[sums].split(r, factor=self.depth)
        step, r = s[sums].split(r, factor=ATOMS[self.atom].extents["k"])
        tile_m, m = s[sums].split(m, factor=16)
        tile_n, n = s[sums].split(n, factor=8)
        s[sums].reorder(piece, outer, step, tile_m, tile_n, m, n, r)
        s[sums].tensorize(m, self.atom)
        for shared, fragment in copies:
            s[fragment].compute_at(s[sums], step)
            s[shared].compute_at(s[sums], outer)
            self._copy(s, shared)
        return s

    def _copy(self, s: Schedule, shared: Tensor) -> None:
        if self.pad:
            s[shared].storage_align(s[shared].op.axis[0], 32, self.pad)
        if self.swizzle:
            s[shared].swizzle(self.swizzle)
        ax = s[shared].fuse(*s[shared].op.axis)
        ax, vector = s[shared].split(ax, factor=16 // shared.dtype.bytes)
        s[shared].vectorize(vector)
        down, across = self.warps
        for size, tag in ((32, "x"), (across, "y"), (down, "z")):
            ax, inner = s[shared].split(ax, factor=size)
            s[shared].bind(inner, f"threadIdx.{tag}")


@template("tests/search/atom_product")
def atom_product(m: int, n: int, k: int, dtype: str) -> tuple[Schedule, list[Tensor]]:
    """Tiles, warps and steps open."""
    cfg = get_config()
    cfg.define_knob("rows", [16, 32, 64, 128])
    cfg.define_knob("columns", [16, 32, 64, 128])
    cfg.define_knob("down", [1, 2, 4])
    cfg.define_knob("across", [1, 2, 4])
    cfg.define_knob("depth", [16, 32, 64])
    tensors = (of := Product(m, n, k, dtype=dtype)).tensors()
    rows, columns, down, across, depth = (
        cfg[name].val for name in ("rows", "columns", "down", "across", "depth")
    )
    made = of.with_(rows=rows, columns=columns, warps=(down, across), depth=depth)
    return made.on(*tensors), list(tensors)
