"""Operators that no network has: each is refused, with what to do instead."""

from __future__ import annotations

from tilewright.graph.expr import Expr
from tilewright.models.torch.node import Converter, Node

_DRAWING = (
    "rand.default", "randn.default", "randint.default", "randint.low", "randperm.default",
    "rand_like.default", "randn_like.default", "randint_like.default", "randint_like.low_dtype",
    "normal_functional.default", "uniform.default", "bernoulli.default", "bernoulli.p",
    "multinomial.default", "native_dropout.default", "exponential.default", "log_normal.default",
)  # fmt: skip
_FACTORS = (
    "_linalg_svd.default", "linalg_qr.default", "_linalg_eigh.default", "linalg_eig.default",
    "linalg_lu_factor_ex.default", "linalg_lstsq.default", "linalg_matrix_exp.default",
)  # fmt: skip
# why, and what to do instead
REASONS: dict[str, tuple[str, str]] = {
    **dict.fromkeys(_DRAWING, (
        "it draws random numbers, others in each run",
        "Export the module after .eval(), or draw them outside and make them an input.",
    )),
    **dict.fromkeys(_FACTORS, (
        "it factors matrices in steps that end when the data say",
        "Compute it outside, and make the factors inputs of the module.",
    )),
}  # fmt: skip


def _refused(reason: str, way_out: str) -> Converter:
    def convert(n: Node) -> Expr:
        raise n.refuse(reason, way_out)

    return convert


CONVERTERS: dict[str, Converter] = {op: _refused(*why) for op, why in REASONS.items()}
