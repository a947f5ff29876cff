"""What MODEL is on a command line: a network, or one computation that a script declares.

In: what was typed, the target, the options that make a network of it.  Out: a `Network` or a
`Task`.  Read next: `../models/scripts.py`, `../front.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError, named

if TYPE_CHECKING:
    from tilewright.front import Network
    from tilewright.schedule.task import Task
    from tilewright.targets.target import Target


def loaded(
    model: str, target: Target, *, batch: Sequence[int] = (), shape: Mapping[str, Any],
    dtype: str = "float32", layout: str | None = None, weights: str | None = None,
    as_it_is: bool = False,
) -> Network | Task:  # fmt: skip
    """Load MODEL.

    as_it_is: of a network leave type, layout and weights as the model has them, for who compares
    Raises ModelError as `front.load` does, for a computation with options that networks have, and
    for a task of another target.
    """
    from tilewright import front
    from tilewright.models import scripts
    from tilewright.schedule.task import Task

    given: Any = model
    if scripts.parts_of(model) is not None:
        given = scripts.made(model)
    if not isinstance(given, scripts.Made) or not given.is_computation:
        if shape and isinstance(given, scripts.Made) and given.inputs is not None:
            reason = "its shapes are those of the example inputs that it returns"
            raise ModelError(model, reason, "Leave --shape out.")
        if as_it_is:
            return front.load(given, batch=batch, shape=shape)
        net = front.load(given, batch=batch, shape=shape, dtype=dtype, layout=layout)
        return net if weights is None else net.with_weights(weights)
    options = {
        "--batch": batch, "--shape": shape, "--desired-layout": layout, "--weights": weights,
    }  # fmt: skip
    if wrong := [name for name, value in options.items() if value]:
        raise ModelError(model, "it is one computation, which has its shapes",
                         f"Leave {', '.join(wrong)} out.")  # fmt: skip
    if dtype != "float32":
        raise ModelError(model, "it is one computation, which has its types", "Leave --dtype out.")
    if not isinstance(given.model, Task):
        with named(model, "ComputeDAG"):
            return front.task(given.model, target=target)
    if given.model.target.kind != target.kind:
        kind = given.model.target.kind
        raise ModelError(model, f"its target is {given.model.target}", f"Give --target {kind}.")
    return given.model


def network(
    model: str, target: Target, *, batch: Sequence[int] = (), shape: Mapping[str, Any],
    dtype: str = "float32", layout: str | None = None, weights: str | None = None,
) -> Network:  # fmt: skip
    """Load MODEL where only a network will do.  Raises ModelError for a computation."""
    from tilewright.schedule.task import Task

    found = loaded(
        model, target, batch=batch, shape=shape, dtype=dtype, layout=layout, weights=weights
    )
    if isinstance(found, Task):
        raise ModelError(model, "it is one computation, not a network", "Leave --farm out.")
    return found
