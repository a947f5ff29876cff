"""Chains of additions: how many terms one accumulator takes in turn, and what that costs.

In: a reduction.  Out: whether its sums round, and how long they may be before they are added up in
blocks.  An accumulator that has grown to S rounds every further term to the digits of S, so of n
terms of one size each may be off by n/2 roundings, all to the same side where the terms are alike:
a serial float32 mean of 2^20 values near 100 is off by 1%.  Blocks have partial results of their
own, which are added up in turn: the chains are as long as a block, and as there are blocks.

Products of two tensors may be long: their terms differ, and a register tile has an accumulator for
every register, so that a second one is dear.  The longest of usual networks have 4,608 terms (3 x 3
windows of 512 channels), and these stay whole.  Other sums (means, variances, the sum of a softmax)
are subtracted from their own terms next, and have registers to spare.
Read next: `../schedule/tree/chains.py`, `combining.py`.
"""

from __future__ import annotations

import math

from tilewright.base.dtype import FLOAT32, DType
from tilewright.ir.expr import Expr, walk
from tilewright.ir.tuples import parts
from tilewright.targets.precision import PRECISIONS, Precision
from tilewright.te.tensor import ComputeOp

LONGEST = 8192  # terms that one accumulator takes in turn: of products, and of what is believed
WHOLE = 512  # of other sums, where blocks can be made
BLOCK = 64  # terms of a block of these
PRODUCT_BLOCK = 512  # of products: one more addition for so many

# What one accumulator of a matrix unit (mma.sync on an H200) loses with each term, in eps of the
# sum of sizes: measured with terms of one sign, as the greatest of many sums.  Of 3xtf32, 0.095 was
# measured with a second part that is rounded, too; a model of the unit has 0.102 where it is cut.
_LOST_OF_HALVES = 0.05
_LOST = {"tf32": 0.058, "3xtf32": 0.105}


def adds_up(op: ComputeOp) -> bool:
    """Tell whether the stage is a reduction with sums in float32 or fewer digits."""
    if op.combiner is None or not any(map(_has_few_digits, op.accumulators)):
        return False
    combined = walk(*parts(op.combiner.result))
    return any(n.op in ("add", "sub") and n.dtype.is_float for n in combined)


def _has_few_digits(dtype: DType) -> bool:
    return dtype.is_float and dtype.bits <= 32


def terms_of(op: ComputeOp) -> int:
    """Count the terms of each element of a reduction whose extents are numbers."""
    return math.prod(ax.size for ax in op.reduce_axis)


def is_product(op: ComputeOp) -> bool:
    """Tell whether the terms are products of one tensor with another."""
    term = op.reduced
    while term.op in ("cast", "if_then_else"):  # a term that may be missing counts as it is
        term = term.args[1 if term.op == "if_then_else" else 0]
    return term.op == "mul" and term.args[0] is not term.args[1] and all(map(_reads, term.args))


def longest_in_unit(terms: int, precision: str) -> float:
    """Return how many terms one accumulator of a matrix unit may take of a sum of so many.

    The unit cuts what it adds, towards zero: errors have one sign, so that they grow with the terms
    and not with their root.  Half of what the sum may be off by is left to the order of terms and
    to the addition of several such accumulators.
    """
    bound = 8 * depth(terms, FLOAT32) + PRECISIONS[precision].term / FLOAT32.eps
    return bound / (2 * _LOST.get(precision, _LOST_OF_HALVES))


def is_in(op: ComputeOp, precision: Precision) -> bool:
    """Tell whether the terms of a sum may be products in fewer digits than float32 has: where a
    precision says so, of sums of products of float32 only."""
    if not precision.rank or op.combiner is None or op.combiner.name != "sum":
        return False
    wide = any(n.op == "read" and n.attr.dtype == "float32" for n in walk(op.reduced))
    return wide and is_product(op)


def _reads(node: Expr) -> bool:
    return any(n.op == "read" for n in walk(node))


def longest_whole(op: ComputeOp) -> int:
    """Terms up to which a chain stays one, though its loops could make blocks."""
    return LONGEST if is_product(op) else WHOLE


def depth(terms: float, dtype: DType) -> float:
    """Return what rounding follows where chains have at most LONGEST terms: the square root of the
    longest, of independent errors, and of the chain of blocks that it leaves.  No other blocks, nor
    more levels of them, give more.  Of float64, which needs no blocks: that of all terms."""
    if terms <= LONGEST or not _has_few_digits(dtype):
        return math.sqrt(terms)
    return math.sqrt(LONGEST) + depth(terms / LONGEST, dtype)
