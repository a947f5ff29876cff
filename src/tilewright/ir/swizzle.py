"""Swizzled shared memory: where the 16 bytes of each place really lie.

In: a flat index, an int, a vector of them, or an expression.  Out: the index at which memory has
the element.  Who reads rows by the address alone (a matrix unit, a copy engine) undoes it by the
same rule, so it is one of addresses: buffers begin at multiples of `period`.

Of 128 bytes: address ^= (address >> 7 & 7) << 4.  Eight rows of 128 bytes, one below the other,
then have their 16 bytes of one column in eight different groups of banks.  Of 64 and of 32 bytes
two bits, and one, of the row take part; four rows, and two, differ.
Read next: `stmt.py` (`Buffer.swizzle`), `codegen/c_value.py`.
"""

from __future__ import annotations

from typing import Any

SWIZZLES = (0, 32, 64, 128)  # bytes within which places change; 0: none do
PIECE = 16  # bytes that stay together
LINE = 128  # bytes of a row, by which places change


def period(swizzle: Any) -> Any:
    """Bytes after which places change in the same way again; 0 where none do."""
    return swizzle * (LINE // PIECE)


def swizzled(index: Any, swizzle: Any, size: int) -> Any:
    """Where memory has the element that `index` counts; size: bytes of an element."""
    if isinstance(swizzle, int) and not swizzle:
        return index
    rows, pieces, unit = turn(swizzle, size)
    return index ^ (index // rows % pieces * unit)


def turn(swizzle: Any, size: int) -> tuple[Any, Any, Any]:
    """Elements of a row, rows that differ, elements of a piece."""
    return LINE // size, swizzle // PIECE, PIECE // size
