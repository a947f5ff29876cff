"""Passes under TVM's names: `relay.transform.ToMixedPrecision("float16")(mod)`.

In: options.  Out: functions from module to module.  `relay.build` runs its own passes by itself.
Read next: `passes/mixed_precision.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tilewright.base import context
from tilewright.base.errors import absent
from tilewright.relay.graph.expr import IRModule
from tilewright.relay.passes.mixed_precision import to_mixed_precision

__all__ = ["InferType", "ToMixedPrecision"]


@dataclass(frozen=True)
class ToMixedPrecision:
    """Contractions and what follows them in `mixed_precision_type`: "float16" or "bfloat16".

    Sums accumulate in float32; softmax, exponentials and means stay in float32.  The option
    ``relay.ToMixedPrecision.keep_orig_output_dtype`` of a `PassContext` casts results back.
    missing_op_mode: accepted for TVM's spelling; every operator has a rule
    """

    mixed_precision_type: str = "float16"
    missing_op_mode: int = 1

    def __call__(self, mod: IRModule) -> IRModule:
        options = getattr(context.current("pass"), "config", {})
        keep = bool(options.get("relay.ToMixedPrecision.keep_orig_output_dtype", False))
        return to_mixed_precision(mod, self.mixed_precision_type, keep)


class InferType:
    """Types are known as soon as a graph is built: this gives the module back."""

    def __call__(self, mod: IRModule) -> IRModule:
        return mod


_ELSEWHERE = dict.fromkeys(
    ("FoldConstant", "FuseOps", "SimplifyInference", "EliminateCommonSubexpr", "AlterOpLayout"),
    "relay.build runs its passes by itself; relay.optimize applies them, relay.PASSES lists them.",
)


def __getattr__(name: str) -> Any:
    raise absent("relay.transform", name, _ELSEWHERE)
