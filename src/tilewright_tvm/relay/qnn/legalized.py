"""Users' functions in place of quantised operators: `register_qnn_legalize("qnn.dense")`.

In: a builder of `relay.qnn.op`.  Out: the same; it asks first for a function that a user registered
for its operator.  Quantised operators are plain ones as soon as they are made, so that is when the
function is asked.
Read next: `relay/transform/legalize.py`, which asks those of plain operators.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from tilewright.base.doors import check_arguments
from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr
from tilewright_tvm.relay import op_attributes as registered

KEY = "FTVMQnnLegalize"

F = TypeVar("F", bound=Callable[..., Expr])


def asking(function: F) -> F:
    """The builder, which a registered `f(attrs, inputs, types)` may take the place of.

    attrs: the options; inputs: the tensors, scales and zero points; types: of those and of the
    result.  None: the builder's own result stays.
    """
    name, signature = f"qnn.{function.__name__}", inspect.signature(function)
    registered.ROWLESS.add((name, KEY))

    @functools.wraps(function)
    def made(*args: Any, **options: Any) -> Expr:
        result = function(*args, **options)
        legal = registered.attribute(name, KEY)
        if legal is None:
            return result
        bound = signature.bind(*args, **options)
        bound.apply_defaults()
        values = bound.arguments
        inputs = [v for v in values.values() if isinstance(v, Expr)]
        attrs = {k: v for k, v in values.items() if not isinstance(v, Expr)}
        given = attrs, inputs, [*(v.checked_type for v in inputs), result.checked_type]
        check_arguments(legal, given, f"{KEY} of {name}", ModelError)
        instead = legal(*given)
        if instead is None:
            return result
        if not isinstance(instead, Expr) or instead.checked_type != result.checked_type:
            raise ModelError(
                f"{KEY} of {name}", f"the function gave {instead!r:.80}",
                f"Return a value of {result.checked_type}, or None.",
            )  # fmt: skip
        return instead

    return made  # type: ignore[return-value]


def register_qnn_legalize(
    op_name: str, legal_op: Callable[..., Any] | None = None, level: int = registered.DEFAULT_LEVEL
) -> Any:
    """Register what a quantised operator becomes when it is made; or a decorator of the function.

    Raises ModelError for an operator that is none.
    """
    if (op_name, KEY) not in registered.ROWLESS:
        raise ModelError(
            f"relay.qnn.op.register_qnn_legalize({op_name!r})", "there is no such operator",
            "relay.qnn.op has them; the name of its add is qnn.add.",
        )  # fmt: skip

    def register(given: Callable[..., Any]) -> Callable[..., Any]:
        registered.set_attribute(op_name, KEY, given, level)
        return given

    return register if legal_op is None else register(legal_op)


__all__ = ["asking", "register_qnn_legalize"]
