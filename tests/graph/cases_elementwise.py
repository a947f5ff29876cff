"""Cases of elementwise operators and reductions.  Read next: `cases.py`."""

from __future__ import annotations

from graph.case import Case, tensor
from tilewright_tvm import relay

ANY = ("asinh", "atan", "cosh", "round", "sign", "sinh", "tan", "isnan", "isinf", "isfinite")
UNIT = ("asin", "acos", "atanh")
COMPARISONS = ("not_equal", "less_equal", "greater_equal")
LOGICAL = ("logical_and", "logical_or", "logical_xor")
BITWISE = ("bitwise_and", "bitwise_or", "bitwise_xor")
SHIFTS = ("left_shift", "right_shift")

ELEMENTWISE: tuple[Case, ...] = (
    *(Case(n, lambda n=n: getattr(relay, n)(tensor("x", 3, 5))) for n in ANY),
    *(Case(n, lambda n=n: getattr(relay, n)(relay.tanh(tensor("x", 3, 5)))) for n in UNIT),
    Case("acosh", lambda: relay.acosh(tensor("pos_x", 3, 5) + 1.0)),
    Case("logical_not", lambda: relay.logical_not(tensor("x", 3, 5, dtype="bool"))),
    Case("bitwise_not", lambda: relay.bitwise_not(tensor("x", 3, 5, dtype="int32"))),
    Case("bitwise_not", lambda: relay.bitwise_not(tensor("x", 3, 5, dtype="bool")), "bool"),
    *(
        Case(n, lambda n=n: getattr(relay, n)(tensor("x", 3, 1, 4), tensor("y", 5, 4)))
        for n in COMPARISONS
    ),
    *(
        Case(
            n, lambda n=n: getattr(relay, n)(*(tensor(v, 3, 5, dtype="bool") for v in "xy"))
        )
        for n in LOGICAL
    ),
    *(
        Case(
            n, lambda n=n, t=t: getattr(relay, n)(*(tensor(v, 3, 5, dtype=t) for v in "xy")), t
        )
        for n in BITWISE
        for t in ("int64", "bool")
    ),
    *(
        Case(
            n,
            lambda n=n: getattr(relay, n)(
                *(tensor(v, 3, 5, dtype="uint32") for v in ("pos_x", "pos_y"))
            ),
        )
        for n in SHIFTS
    ),
    *(
        Case(n, lambda n=n: getattr(relay, n)(*_pair("int32")))
        for n in ("floor_divide", "floor_mod", "mod", "trunc_divide")
    ),
    *(
        Case(n, lambda n=n: getattr(relay, n)(*_pair("float32")), "floats")
        for n in ("floor_divide", "floor_mod", "mod")
    ),
)  # fmt: skip


def _pair(dtype: str) -> tuple[relay.Var, relay.Expr]:
    """The second is not 0."""
    y = tensor("pos_y", 4, dtype=dtype)
    return tensor("x", 3, 4, dtype=dtype), y + 1 if dtype.startswith("int") else y
