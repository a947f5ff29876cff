"""`relay.testing.check_grad`: the gradient of a network against differences of its results.

In: a function of relay.  Out: AssertionErrors.  The differences are those of the evaluator in
float64, whatever type the function computes in.  Read next: `../gradients/backward.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.evaluate import in_float64
from tilewright.graph.expr import Array, Function
from tilewright_tvm.relay.executor import create_executor
from tilewright_tvm.relay.functional.untyped import typed
from tilewright_tvm.relay.gradients.backward import gradient
from tilewright_tvm.testing import enabled_targets


def _np_randn_from_type(t: Any, scale: float = 1, mean: float = 0) -> Array:
    """Normally distributed numbers of a TensorType."""
    drawn = np.random.randn(*t.shape) if t.shape else np.array(np.random.randn())
    return (mean + scale * drawn).astype(t.dtype.storage)


def check_grad(
    func: Function,
    inputs: Sequence[Any] | None = None,
    test_inputs: Sequence[Any] | None = None,
    eps: float = 1e-6,
    atol: float = 1e-5,
    rtol: float = 1e-3,
    scale: float | None = None,
    mean: float = 0,
    mode: str = "higher_order",
    target_devices: Sequence[Any] | None = None,
    executor_kind: str = "debug",
) -> None:
    """Raise AssertionError unless the gradients of `func` are what differences of its result say.

    inputs:      an array for each parameter; default: normally distributed around `mean` with
                 deviation `scale` (10 * eps)
    test_inputs: those of `inputs`, the very arrays, of which the gradients are compared
    eps:         by how much an element is moved, to both sides
    mode:        as for `relay.transform.gradient`
    target_devices: pairs of target and device; default: all that are here
    executor_kind:  of `relay.create_executor`, which computes the gradients
    """
    forward = typed(func)
    backward = gradient(forward, mode=mode)
    if inputs is None:
        spread = 10 * eps if scale is None else scale
        inputs = [_np_randn_from_type(p.checked_type, spread, mean) for p in forward.params]
    wanted = inputs if test_inputs is None else test_inputs
    which = [_place(x, inputs) for x in wanted]
    if not which:
        raise ModelError("check_grad", "no gradient is to be compared", "Give test_inputs.")
    compared = [k for k in which if np.asarray(inputs[k]).dtype.kind == "f"]
    numerical = {k: _differences(forward, inputs, k, eps) for k in compared}
    for target, device in enabled_targets() if target_devices is None else target_devices:
        run = create_executor(executor_kind, device=device, target=target).evaluate(backward)
        grads = run(*inputs)[1]
        for k in compared:
            np.testing.assert_allclose(
                grads[k].numpy().astype("float64"), numerical[k], atol=atol, rtol=rtol,
                err_msg=f"by {forward.params[k].name_hint} on {target}",
            )  # fmt: skip


def _place(given: Any, inputs: Sequence[Any]) -> int:
    for k, x in enumerate(inputs):
        if x is given:
            return k
    raise ModelError("check_grad", "one of test_inputs is not among inputs", "Give those arrays.")


def _differences(forward: Function, inputs: Sequence[Any], k: int, eps: float) -> Array:
    """How the sum of the result grows with each element of the k-th input."""
    values: list[Array] = [
        np.array(x, np.float64 if np.asarray(x).dtype.kind == "f" else None) for x in inputs
    ]
    moved, found = values[k], np.zeros(values[k].shape)

    def result() -> Any:
        made = in_float64(forward, values)
        return (made[0] if isinstance(made, tuple) else made).astype("float64")

    for at in np.ndindex(moved.shape):
        was = moved[at]
        moved[at] = was + eps
        above = result()
        moved[at] = was - eps
        below = result()
        moved[at] = was
        found[at] = np.sum((above - below) / (2 * eps))
    return found
