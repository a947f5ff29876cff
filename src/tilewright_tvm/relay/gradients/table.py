"""The rule of each operator that has a gradient, and the rules that users register.

In: a call.  Out: what gives the gradient of each argument by that of the result.  What a user
registered (`relay.op.register_gradient`) goes before the table; the others have none.
Read next: `elementwise.py`; `backward.py`, which asks.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call
from tilewright.graph.traversal import op_name
from tilewright_tvm.relay.gradients import (
    elementwise,
    indexing,
    movement,
    normalize,
    product,
    reduction,
    window,
)
from tilewright_tvm.relay.gradients.shared import Rule, whole
from tilewright_tvm.relay.op_attributes import GRADIENT, attribute

RULES: dict[str, Rule] = {
    **elementwise.RULES, **reduction.RULES, **movement.RULES, **indexing.RULES, **product.RULES,
    **window.RULES, **normalize.RULES,
}  # fmt: skip


def rule_of(node: Call) -> Rule:
    """Raises ModelError for an operator without a gradient."""
    name = op_name(node)
    own = attribute(name, GRADIENT)
    if own is not None:
        return lambda made, grad: own(made, whole(grad, made.checked_type))
    if name not in RULES:
        raise ModelError(
            f"gradient of {name}", "it has none here",
            f'Give it one: relay.op.register_gradient("{name}", f).',
        )  # fmt: skip
    return RULES[name]
