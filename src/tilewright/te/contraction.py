"""Sums of products of one or two reads with affine indices, as strided windows and BLAS.

In: a stage and the arrays it reads.  Out: its value in one batched matrix product per block.
Matrix products, convolutions of every kind, sums and averages take this path from `evaluate.py`.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilewright.ir.expr import Expr, walk
from tilewright.te.numeric import apply, constant, constant_value
from tilewright.te.rounding import Approx, Array, keeps_all
from tilewright.te.tensor import ComputeOp, Tensor

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
class Contraction:
    """`scale` * sum over the atoms in `reduced` of the product of `windows`.

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
    factored = _factors(value)
    if factored is None or len(factored[0]) not in (1, 2):
        return None
    reads, scale = factored
    axes = (*op.axis, *op.reduce_axis)
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
    whole = Contraction(op.shape, tuple(extents), spatial, tuple(windows), scale, terms)
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

    known: dict[Expr, Approx] = {}
    for node in walk(test):
        if node in forms:
            known[node] = Approx(reduce(np.add, (places(a) * c for a, c in forms[node])))
        elif node.op == "const":
            known[node] = constant(node)
        elif any(a not in known for a in node.args):
            return None
        else:
            known[node] = apply(node, [known[a] for a in node.args], False)
    mask = np.asarray(known[test].value)
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


def _factors(node: Expr) -> tuple[list[Expr], float | int] | None:
    """The reads of a product and its constant factor; None for any other expression."""
    if node.op == "mul":
        left, right = _factors(node.args[0]), _factors(node.args[1])
        if left is None or right is None:
            return None
        return left[0] + right[0], left[1] * right[1]
    if node.op == "const":
        return [], constant_value(node).item()
    if node.op == "cast" and keeps_all(node.args[0].dtype, node.dtype):
        node = node.args[0]
    return ([node], 1) if node.op == "read" else None


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
