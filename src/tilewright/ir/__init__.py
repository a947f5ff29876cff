"""The program representation: expressions, statements, affine analysis, printer, interpreter.

Everything before text lives in these nodes.  Read in this order: expr, stmt, affine, interpreter.
"""

from typing import Any

from tilewright.base.errors import absent

# Names of TVM that one may look for here.
_ELSEWHERE = {
    **dict.fromkeys(
        ("structural_equal", "assert_structural_equal", "structural_hash"),
        "Use that of relay.analysis.",
    ),
    **dict.fromkeys(
        ("register_op_attr", "register_intrin_lowering"),
        "Functions of numbers are a fixed set; te.compute makes others of them (tir.exp, ...).",
    ),
    "IRModule": "Use tilewright.IRModule.",
    "module": "Use tilewright.IRModule.",
    "instrument": "Use tilewright.instrument.",
    "transform": "Use tilewright.transform.",
    "TensorType": "Use relay.TensorType.",
}


def __getattr__(name: str) -> Any:
    raise absent("ir", name, _ELSEWHERE)
