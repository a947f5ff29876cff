"""Arithmetic of integers that never faults: divisions, remainders, shifts and powers of elements.

In: two scalar expressions of integers.  Out: one.  Processors trap, or leave open, division by zero
and the least number by -1; a network's data may hold both.  Here anything divided by zero is 0 and
so is its remainder, as numpy has it, and quotients wrap around.  Shifts by a type's width or more
shift everything out.  Read next: `broadcast.py`.
"""

from __future__ import annotations

from tilewright import te
from tilewright.base.dtype import DType, join
from tilewright.ir import expr as E
from tilewright.ir.expr import Expr, binary

_POWER_BITS = 6  # of an exponent that count


def _common(a: Expr, b: Expr) -> tuple[Expr, Expr]:
    kind = join(a.dtype, b.dtype, f"{a} with {b}")
    return E.cast(kind, a), E.cast(kind, b)


def _divided(op: str, a: Expr, b: Expr) -> Expr:
    """floordiv or floormod."""
    a, b = _common(a, b)
    if b.op == "const" and b.attr not in (0, -1):
        return binary(op, a, b)
    zero = E.const(0, a.dtype)
    odd = b.equal(zero)
    special = zero
    if a.dtype.kind == "int":
        special = te.select(odd, zero, -a) if op == "floordiv" else zero
        odd = odd | b.equal(E.const(-1, a.dtype))
    safe = te.select(odd, E.const(1, a.dtype), b)
    return te.select(odd, special, binary(op, a, safe))


def floor_divide(a: Expr, b: Expr) -> Expr:
    """Rounds down."""
    return _divided("floordiv", a, b)


def floor_mod(a: Expr, b: Expr) -> Expr:
    """With the sign of `b`."""
    return _divided("floormod", a, b)


def trunc_mod(a: Expr, b: Expr) -> Expr:
    """With the sign of `a`."""
    a, b = _common(a, b)
    rest = floor_mod(a, b)
    if a.dtype.kind == "uint":
        return rest
    return te.select(_is_rounded_down(rest, a, b), rest - b, rest)


def trunc_divide(a: Expr, b: Expr) -> Expr:
    """Rounds towards zero."""
    a, b = _common(a, b)
    down = floor_divide(a, b)
    if a.dtype.kind == "uint":
        return down
    return te.select(_is_rounded_down(floor_mod(a, b), a, b), down + 1, down)


def _is_rounded_down(rest: Expr, a: Expr, b: Expr) -> Expr:
    """Whether rounding down and towards zero differ."""
    return (rest != 0) & binary("ne", a < 0, b < 0)


def left_shift(a: Expr, b: Expr) -> Expr:
    """a * 2**b, wrapped around."""
    return _shifted("shl", a, b, E.const(0, a.dtype))


def right_shift(a: Expr, b: Expr) -> Expr:
    """a // 2**b."""
    last = E.const(a.dtype.bits - 1, a.dtype)
    out = binary("shr", a, last) if a.dtype.kind == "int" else E.const(0, a.dtype)
    return _shifted("shr", a, b, out)


def _shifted(op: str, a: Expr, b: Expr, out: Expr) -> Expr:
    """out: of shifts by the width or more."""
    width = a.dtype.bits
    by = E.cast(a.dtype, binary("bitand", b, width - 1))
    inside = b < width if b.dtype.kind == "uint" else (b < width) & (b >= 0)
    return te.select(inside, binary(op, a, by), out)


def power(a: Expr, b: Expr) -> Expr:
    """a to the power b, wrapped around; a negative power of what is not 1 or -1 is 0."""
    kind = a.dtype
    exact = DType(f"uint{kind.bits}") if kind.is_index else kind  # its squares may leave the range
    one, odd = E.const(1, kind), binary("bitand", b, 1)
    # of more than 63 no bits are left but those of -1, 0 and 1
    held = te.select(b < 1 << _POWER_BITS, b, odd + ((1 << _POWER_BITS) - 2))
    result, square = E.const(1, exact), E.cast(exact, a)
    for k in range(_POWER_BITS):
        taken = binary("bitand", binary("shr", held, k), 1).equal(1)
        result = te.select(taken, result * square, result)
        square = square * square
    result = E.cast(kind, result)
    if b.dtype.kind == "uint":
        return result
    unit = a.equal(1) if kind.kind == "uint" else a.equal(1) | a.equal(-1)
    below = te.select(unit, te.select(odd.equal(1), a, one), E.const(0, kind))
    return te.select(b < 0, below, result)
