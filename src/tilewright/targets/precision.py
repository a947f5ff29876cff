"""Precisions: in how many digits sums of products of float32 may be computed, where users allow it.

In: the option `-precision=` of a target.  Out: what a result may then be off by.  float16, bfloat16
and integers are no precisions but element types: they follow from a computation.  A result is a
record of the target with its option, so that none in fewer digits stands for one of float32.
Read next: `target.py`; `../te/evaluate.py`, whose bound it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.errors import TargetError

if TYPE_CHECKING:
    from tilewright.targets.target import Target


@dataclass(frozen=True)
class Precision:
    """rank: a target of some rank may run what is computed in a precision of that rank or below

    digits: of operands whose products lose nothing, the hidden one included
    term:   how far each product of two numbers of float32 may be off, as a share of its size, for
            operands that are rounded; what rounding a sum adds is as in float32
    parts:  numbers that an operand is taken apart into.  Of several there is none for an infinity,
            and what is below SPLIT_LEAST loses digits
    """

    name: str
    rank: int
    digits: int
    term: float
    parts: int = 1


# The greatest number that stays one where it is rounded to 11 digits, bits 0x7f7fefff; the least
# whose second part is no subnormal number, of which a unit may make a zero; how much that loses.
ROUNDED_GREATEST = float(0xFFEFFF) * 2.0**104
SPLIT_LEAST, SPLIT_LOST = 2.0**-102, 2.0**-126
FLOAT32 = "float32"  # unless a target says otherwise
PRECISIONS = {
    p.name: p
    for p in (
        Precision(FLOAT32, 0, 24, 0.0),
        # Three products of numbers of which each is taken apart: what is lost below the parts, and
        # with the fourth product, is within the bound of float32, which a sum is held to.
        Precision("3xtf32", 1, 11, 0.0, 2),
        # Both operands are rounded to 11 digits, and so off by 2^-11 of themselves.
        Precision("tf32", 2, 11, 2.0**-10),
    )
}

# What users ask for in the same place: of a network, whose contractions are then of that type.
HALVES = ("float16", "bfloat16")


def needed(atom: str) -> str:
    """The precision that a matrix instruction computes in, by the name that `ir.atoms` has for it;
    that of float32 where its operands are exact: halves, integers."""
    word = atom.rpartition(".")[2]
    return word if word in PRECISIONS else FLOAT32


def check_used(place: str, target: Target) -> None:
    """Refuse a precision that no template for the target's kind makes use of: nobody should believe
    that it changed what was tuned or built."""
    if target.precision not in (FLOAT32, *target.device_kind.precisions):
        raise TargetError(
            place, f"no template for {target.kind} computes float32 in {target.precision}",
            "Leave the precision out: float32 is then computed in float32.",
        )  # fmt: skip


def allows(target: str, asked: str) -> bool:
    """Tell whether a target of one precision may run what is computed in another."""
    return PRECISIONS[asked].rank <= PRECISIONS[target].rank
