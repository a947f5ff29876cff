"""Sums of products of one or two reads with affine indices, as strided windows and BLAS.

In: a stage and the arrays it reads.  Out: its value in one batched matrix product per block.
Matrix products, convolutions of every kind, sums and averages take this path from `evaluate.py`,
also where factors are functions of a byte, such as weights that are unpacked: they are looked up.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, walk
from tilewright.te.axis import IterVar
from tilewright.te.numeric import apply, constant, constant_value
from tilewright.te.rounding import Approx, Array, cast_value, grid_of, is_narrow, keeps_all
from tilewright.te.tensor import ComputeOp, Tensor, placeholder

BYTES = ("int8", "uint8")
BLOCK = 1 << 22  # elements of a gathered operand: 32 MB
SMALL_BATCH = 64  # more products of a matrix with a vector than this go to einsum, not to BLAS

Affine = tuple[dict[int, int], int]  # {atom: coefficient}, constant


@dataclass(frozen=True)
class Window:
    """One read: index `start + sum(step[atom] * position of atom)` in each dimension."""

    tensor: Tensor
    start: tuple[int, ...]
    steps: dict[int, tuple[int, ...]]  # per atom that the read depends on

    def view(self, array: Array, extents: Sequence[int]) -> Array:
        """`array` with one dimension per atom; no copy."""
        offset = tuple(slice(s, None) for s in self.start)
        base = array[offset] if offset else array
        strides = [
            sum(c * s for c, s in zip(step, array.strides, strict=True))
            for step in self.steps.values()
        ]
        return as_strided(base, [extents[a] for a in self.steps], strides, writeable=False)


@dataclass(frozen=True)
class Table:
    """A factor that is a function of one byte, which is read, and of some axes: as it were a tensor
    with the dimensions of what is read and one more for each of the axes.

    factor: of the variable `byte` and those of the axes
    """

    factor: Expr
    byte: Expr
    read: Expr
    axes: tuple[IterVar, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return (*self.read.attr.shape, *(ax.size for ax in self.axes))

    def look_up(self, held: Array, track: bool) -> Approx:
        """The factor, where the bytes are `held`."""
        rank, source = len(self.axes), self.read.attr.dtype
        every = np.arange(256, dtype=np.uint8).view(source.storage)
        known = {self.byte: Approx(cast_value(every.reshape(-1, *[1] * rank), source))}
        for k, ax in enumerate(self.axes):
            shape = [-1 if k == j else 1 for j in range(rank)]
            known[ax.var] = Approx(np.arange(ax.begin, ax.begin + ax.size).reshape(1, *shape))
        found = _elementwise(self.factor, known, track)
        assert found is not None
        whole = (256, *(ax.size for ax in self.axes))
        found = found.map(lambda array: np.broadcast_to(array, whole))
        if found.error is not None and not found.error.any():
            found = found._replace(error=None)
        grid = grid_of(found.value) if track else 0.0
        return found._replace(grid=grid).map(lambda array: array[held.view(np.uint8)])


@dataclass(frozen=True)
class Contraction:
    """`scale` * sum over the atoms in `reduced` of the product of `windows`.

    tables: what tensors of the windows are that nothing holds
    mask: over all atoms, 1 where a term counts, of length 1 where it does not matter; the window
          `masked` is zero elsewhere.  So what it is multiplied by has to be finite there

    An atom is an axis, or one of the two parts of an axis whose quotient and remainder by one
    constant are what the indices use (grouped convolution).  Spatial atoms come first, in order.
    """

    shape: tuple[int, ...]
    extents: tuple[int, ...]
    spatial: int
    windows: tuple[Window, ...]
    scale: float | int
    terms: int
    tables: Mapping[Tensor, Table]
    mask: Array | None = None
    masked: int = 0

    def run(self, arrays: Sequence[Array]) -> Array:
        """The contraction with `arrays` in place of the tensors that the windows read."""
        # numpy's product of bools is a bool
        sources = [np.ascontiguousarray(a, np.int64 if a.dtype == bool else None) for a in arrays]
        views = [w.view(a, self.extents) for w, a in zip(self.windows, sources, strict=True)]
        dtype = np.result_type(*sources)
        out = np.zeros(self.extents[: self.spatial], dtype)
        tile = self._tile()
        starts = (range(0, e, t) for e, t in zip(self.extents, tile, strict=True))
        for corner in itertools.product(*starts):
            block = [slice(c, c + t) for c, t in zip(corner, tile, strict=True)]
            operands = [
                (v[tuple(block[a] for a in w.steps)], tuple(w.steps))
                for v, w in zip(views, self.windows, strict=True)
            ]
            if self.mask is not None:
                array, atoms = operands[self.masked]
                operands[self.masked] = (array * self._counting(block, atoms), atoms)
            out[tuple(block[: self.spatial])] += self._block(operands)
        return (out if self.scale == 1 else out * self.scale).reshape(self.shape)

    def _counting(self, block: Sequence[slice], atoms: Sequence[int]) -> Array:
        """The part of the mask that belongs to a block of the masked window."""
        assert self.mask is not None
        whole = slice(None)
        pairs = zip(block, self.mask.shape, strict=True)
        part = self.mask[tuple(s if n > 1 else whole for s, n in pairs)]
        return part.reshape([part.shape[a] for a in atoms])

    def _tile(self) -> list[int]:
        tile = list(self.extents)
        for window in self.windows:
            for atom in window.steps:
                size = math.prod(tile[a] for a in window.steps)
                if size > BLOCK:
                    tile[atom] = max(1, tile[atom] * BLOCK // size)
        return tile

    def _block(self, operands: list[tuple[Array, tuple[int, ...]]]) -> Array:
        """What one block adds: one dimension per spatial atom, of length 1 where it is constant."""
        used = {a for _, atoms in operands for a in atoms}
        for k, (array, atoms) in enumerate(operands):
            others = {a for j, (_, at) in enumerate(operands) if j != k for a in at}
            alone = tuple(i for i, a in enumerate(atoms) if a >= self.spatial and a not in others)
            if alone:
                kept = tuple(a for i, a in enumerate(atoms) if i not in alone)
                operands[k] = (array.sum(axis=alone), kept)
        if len(operands) == 1:
            product, order = operands[0]
        else:
            product, order = self._pair(*operands[0], *operands[1])
        product = product.transpose(sorted(range(len(order)), key=order.__getitem__))
        unused = [e for a, e in enumerate(self.extents) if a >= self.spatial and a not in used]
        if unused:
            product = product * math.prod(unused)
        present = set(order)
        shape = iter(product.shape)
        return product.reshape([next(shape) if a in present else 1 for a in range(self.spatial)])

    def _pair(
        self, a: Array, a_atoms: tuple[int, ...], b: Array, b_atoms: tuple[int, ...]
    ) -> tuple[Array, tuple[int, ...]]:
        both = [x for x in a_atoms if x in b_atoms]
        batch = tuple(x for x in both if x < self.spatial)
        summed = tuple(x for x in both if x >= self.spatial)
        rows = tuple(x for x in a_atoms if x not in both)
        columns = tuple(x for x in b_atoms if x not in both)
        order = batch + rows + columns
        length = dict(zip(a_atoms + b_atoms, a.shape + b.shape, strict=True))

        def count(atoms: tuple[int, ...]) -> int:
            return math.prod(length[x] for x in atoms)

        thin = min(count(rows), count(columns)) == 1
        if not summed or (thin and count(batch) > SMALL_BATCH):
            return np.einsum(a, list(a_atoms), b, list(b_atoms), list(order)), order
        left = a.transpose([a_atoms.index(x) for x in batch + rows + summed])
        right = b.transpose([b_atoms.index(x) for x in batch + summed + columns])
        product = np.matmul(
            left.reshape(count(batch), count(rows), count(summed)),
            right.reshape(count(batch), count(summed), count(columns)),
        )
        return product.reshape([length[x] for x in order]), order


def contraction(op: ComputeOp) -> Contraction | None:
    """`op` as a contraction, or None where it is not a sum of one or two affine reads."""
    if op.combiner is None or op.combiner.result.op != "add":
        return None
    if {op.combiner.lhs, op.combiner.rhs} != set(op.combiner.result.args):
        return None
    test, value = _condition(op)
    axes = (*op.axis, *op.reduce_axis)
    tables: dict[Tensor, Table] = {}
    factored = _factors(value, axes, tables)
    if factored is None or len(factored[0]) not in (1, 2) or (tables and test is not None):
        return None
    reads, scale = factored
    extent_of = {ax.var: ax.size for ax in axes}
    parts = _parts(reads, extent_of)
    if parts is None:
        return None
    extents: list[int] = []
    forms: dict[Expr, list[tuple[int, int]]] = {}  # axis -> (atom, coefficient)
    spatial = 0
    for k, ax in enumerate(axes):
        size = extent_of[ax.var]
        inner = parts.get(ax.var)
        first = len(extents)
        extents.extend([size] if inner is None else [size // inner, inner])
        forms[ax.var] = [(first, 1)] if inner is None else [(first, inner), (first + 1, 1)]
        if k < len(op.axis):
            spatial = len(extents)

    def atoms_of(node: Expr) -> Affine | None:
        if node.op in ("floordiv", "floormod") and node.args[0] in parts:
            quotient, remainder = forms[node.args[0]]
            return ({quotient[0]: 1} if node.op == "floordiv" else {remainder[0]: 1}), 0
        return (dict(forms[node]), 0) if node in forms else None

    windows = []
    for read in reads:
        window = _window(read, atoms_of, extents)
        if window is None:
            return None
        windows.append(window)
    terms = math.prod(extent_of[ax.var] for ax in op.reduce_axis)
    whole = Contraction(op.shape, tuple(extents), spatial, tuple(windows), scale, terms, tables)
    return whole if test is None else _masked(whole, test, forms)


def _condition(op: ComputeOp) -> tuple[Expr | None, Expr]:
    """When a term counts (None: always), and the term."""
    value, zero = op.reduced, op.combiner.identity if op.combiner is not None else None
    if value.op == "if_then_else" and value.args[2] is zero:
        return value.args[0], value.args[1]
    return None, value


def _masked(
    whole: Contraction, test: Expr, forms: Mapping[Expr, Sequence[tuple[int, int]]]
) -> Contraction | None:
    """`whole` where only terms for which `test` holds count, if one window alone decides that."""
    if any(n.op == "read" for n in walk(test)):
        return None
    rank = len(whole.extents)

    def places(atom: int) -> Array:
        shape = [-1 if k == atom else 1 for k in range(rank)]
        return np.arange(whole.extents[atom]).reshape(shape)

    known = {
        node: Approx(reduce(np.add, (places(a) * c for a, c in forms[node])))
        for node in walk(test) if node in forms
    }  # fmt: skip
    found = _elementwise(test, known, False)
    if found is None:
        return None
    mask = np.asarray(found.value)
    mask = mask.reshape([*[1] * (rank - mask.ndim), *mask.shape])
    decided = {a for a, n in enumerate(mask.shape) if n > 1}
    for k, window in enumerate(whole.windows):
        if decided <= set(window.steps):
            return replace(whole, mask=mask, masked=k)
    return None


def affine(node: Expr, atoms_of: Callable[[Expr], Affine | None]) -> Affine | None:
    """`node` as a linear form; `atoms_of` gives the form of axes and whatever else it knows."""
    known = atoms_of(node)
    if known is not None:
        return known
    if node.op == "const":
        return {}, int(node.attr)
    if node.op == "cast" and not node.dtype.is_float:
        return affine(node.args[0], atoms_of)
    if node.op not in ("add", "sub", "mul"):
        return None
    left, right = (affine(a, atoms_of) for a in node.args)
    if left is None or right is None:
        return None
    if node.op == "mul":
        if left[0] and right[0]:
            return None
        (form, constant), factor = (left, right[1]) if left[0] else (right, left[1])
        return {a: c * factor for a, c in form.items()}, constant * factor
    sign = 1 if node.op == "add" else -1
    form = dict(left[0])
    for atom, coefficient in right[0].items():
        form[atom] = form.get(atom, 0) + sign * coefficient
    return form, left[1] + sign * right[1]


def _elementwise(root: Expr, known: dict[Expr, Approx], track: bool) -> Approx | None:
    """`root` by operations on arrays, from the nodes that are `known`; None where that is not all
    that it depends on."""
    for node in walk(root):
        if node in known:
            continue
        if node.op == "const":
            known[node] = constant(node)
        elif node.args and all(a in known for a in node.args):
            known[node] = apply(node, [known[a] for a in node.args], track)
        else:
            return None
    return known[root]


def _factors(
    node: Expr, axes: Sequence[IterVar], tables: dict[Tensor, Table]
) -> tuple[list[Expr], float | int] | None:
    """The reads of a product and its constant factor; None for any other expression.

    tables: takes factors that are functions of a byte; their reads are of tensors of their own
    """
    if node.op == "mul":
        left, right = (_factors(a, axes, tables) for a in node.args)
        if left is None or right is None:
            return None
        return left[0] + right[0], left[1] * right[1]
    if node.op == "const":
        return [], constant_value(node).item()
    if node.op == "cast" and keeps_all(node.args[0].dtype, node.dtype):
        node = node.args[0]
    if node.op == "read":
        return [node], 1
    table = _table(node, axes)
    if table is None:
        return None
    tensor = placeholder(table.shape, str(node.dtype), "table")
    tables[tensor] = table
    return [tensor[(*table.read.args, *(ax.var for ax in table.axes))]], 1


def _table(node: Expr, axes: Sequence[IterVar]) -> Table | None:
    """`node` as a function of one byte, if it is one whose every value can be had."""
    reads = [n for n in walk(node) if n.op == "read"]
    if len(reads) != 1 or reads[0].attr.dtype not in BYTES or is_narrow(node.dtype):
        return None
    byte = E.var("byte", reads[0].dtype)
    factor = E.substitute(node, {reads[0]: byte})
    if any(n.op in ("floordiv", "floormod") and n.args[1].op != "const" for n in walk(factor)):
        return None
    free = E.free_variables(factor) - {byte}
    table = Table(factor, byte, reads[0], tuple(ax for ax in axes if ax.var in free))
    points = math.prod(ax.size for ax in axes)
    return table if len(table.axes) == len(free) and math.prod(table.shape) <= points else None


def _parts(reads: Sequence[Expr], extent_of: dict[Expr, int]) -> dict[Expr, int] | None:
    """Axes that the indices use by quotient and remainder, with the one divisor of each."""
    parts: dict[Expr, int] = {}
    for node in walk(*(i for read in reads for i in read.args)):
        if node.op not in ("floordiv", "floormod"):
            continue
        axis, divisor = node.args
        if axis not in extent_of or divisor.op != "const":
            return None
        factor = int(divisor.attr)
        if factor < 1 or extent_of[axis] % factor or parts.setdefault(axis, factor) != factor:
            return None
    return parts


def _window(
    read: Expr, atoms_of: Callable[[Expr], Affine | None], extents: Sequence[int]
) -> Window | None:
    forms = []
    for index, size in zip(read.args, read.attr.shape, strict=True):
        form = affine(index, atoms_of)
        if form is None:
            return None
        spans = [c * (extents[a] - 1) for a, c in form[0].items()]
        low = form[1] + sum(s for s in spans if s < 0)
        if low < 0 or form[1] + sum(s for s in spans if s > 0) >= size:
            return None
        forms.append(form)
    atoms = sorted({a for form, _ in forms for a, c in form.items() if c})
    steps = {a: tuple(form.get(a, 0) for form, _ in forms) for a in atoms}
    return Window(read.attr, tuple(c for _, c in forms), steps)
