"""`testing.check_numerical_grads`: gradients against differences of the function itself.

In: a function of arrays that gives a number, where to look, gradients that were computed there.
Out: AssertionErrors.  Read next: `relay/testing/gradients.py`, which asks a network the same.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import ExpressionError

# Differences over growing numbers of points: offsets in units of the step, and their weights.
_STENCILS: tuple[dict[int, float], ...] = (
    {0: -1.0, 1: 1.0},
    {-1: -1 / 2, 1: 1 / 2},
    {-2: 1 / 12, -1: -2 / 3, 1: 2 / 3, 2: -1 / 12},
)
_SHOWN = 10  # places that an error lists

Arrays = Sequence[Any] | Mapping[str, Any]


@door(ExpressionError, "testing.check_numerical_grads")
def check_numerical_grads(
    function: Callable[..., Any],
    input_values: Arrays,
    grad_values: Arrays,
    function_value: float | None = None,
    delta: float = 1e-3,
    atol: float = 1e-2,
    rtol: float = 0.1,
) -> None:
    """Raise AssertionError where gradients are not what differences of the function say.

    function:       of arrays, by position or by name as `input_values` has them; gives a number
    grad_values:    one for each input, of its shape, in the same order or by the same names
    function_value: what the function gives for `input_values`; default: it is called
    delta:          between the points that are compared; where two of them do not agree with the
                    gradient, up to four are asked
    atol, rtol:     the distance of all elements of a gradient may be
                    atol * sqrt(number of elements) + rtol * (length of the numerical gradient)
    """
    names = list(input_values) if isinstance(input_values, Mapping) else range(len(input_values))
    inputs = [np.array(_of(input_values, n)) for n in names]
    grads = [np.asarray(_of(grad_values, n), np.float64) for n in names]

    def call() -> float:
        if isinstance(input_values, Mapping):
            return float(function(**dict(zip(input_values, inputs, strict=True))))
        return float(function(*inputs))

    here = call() if function_value is None else float(function_value)
    for name, x, grad in zip(names, inputs, grads, strict=True):
        if x.shape != grad.shape:
            raise AssertionError(
                f"the gradient by {name!r} has shape {grad.shape}, the input {x.shape}"
            )
        # of one element, far below what all of them together may be off
        near = atol + rtol * np.abs(grad)
        found = np.empty(x.shape)
        for at in np.ndindex(x.shape):
            for slope in _slopes(call, x, at, here, delta):
                found[at] = slope
                if abs(slope - grad[at]) <= near[at]:
                    break
        _compare(name, grad, found, near, atol, rtol)


def _of(values: Arrays, name: Any) -> Any:
    return values[name]


def _slopes(
    call: Callable[[], float], x: np.ndarray, at: tuple[int, ...], here: float, delta: float
) -> Iterator[float]:
    """What the function grows by at one element, each time from more points."""
    known = {0: here}
    was = x[at]
    for stencil in _STENCILS:
        for offset in stencil:
            if offset not in known:
                x[at] = was + offset * delta
                known[offset] = call()
                x[at] = was
        yield sum(weight * known[offset] for offset, weight in stencil.items()) / delta


def _compare(
    name: Any, grad: np.ndarray, found: np.ndarray, near: np.ndarray, atol: float, rtol: float
) -> None:
    distance, length = np.linalg.norm(found - grad), np.linalg.norm(found)
    if not (np.isfinite(distance) and np.isfinite(length)):
        raise AssertionError(f"NaN or infinity in a gradient by {name!r}")
    room = atol * np.sqrt(grad.size) + rtol * length
    if distance <= room:
        return
    wrong = np.argwhere(np.abs(found - grad) > near)
    places = ", ".join(str(tuple(map(int, w))) for w in wrong[:_SHOWN])
    raise AssertionError(
        f"the gradient by {name!r} is off by {distance:.4g}, of {room:.4g} that it may be\n"
        f"given: {grad}\nof differences: {found}\n"
        f"{100 * len(wrong) // max(grad.size, 1)}% of it, first at {places}"
    )
