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

# Differences over growing numbers of points: offsets in units of half a step, and their weights.
_STENCILS: tuple[dict[int, float], ...] = (
    {0: -1 / 2, 2: 1 / 2},
    {-2: -1 / 4, 2: 1 / 4},
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
    grad_values:    by the first inputs, each of the shape of its input, in the same order or by the
                    same names; the other inputs stay as they are
    function_value: what the function gives for `input_values`; default: it is called
    delta:          between the points that are compared; where two of them do not agree with the
                    gradient, up to four are asked
    atol, rtol:     the distance of all elements of a gradient may be
                    atol * sqrt(number of elements) + rtol * (length of the numerical gradient)
    """
    inputs = {n: np.array(x) for n, x in _named(input_values).items()}
    grads = {n: np.asarray(g, np.float64) for n, g in _named(grad_values).items()}
    if strange := [n for n in grads if n not in inputs]:
        raise ExpressionError(
            "check_numerical_grads", f"there is no input {strange[0]!r}",
            f"The inputs are {', '.join(map(repr, inputs))}.",
        )  # fmt: skip

    def call() -> float:
        if isinstance(input_values, Mapping):
            return float(function(**{str(n): x for n, x in inputs.items()}))
        return float(function(*inputs.values()))

    here = call() if function_value is None else float(function_value)
    for name, grad in grads.items():
        x = inputs[name]
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


def _named(values: Arrays) -> Mapping[Any, Any]:
    """By name, or by position."""
    return values if isinstance(values, Mapping) else dict(enumerate(values))


def _slopes(
    call: Callable[[], float], x: np.ndarray, at: tuple[int, ...], here: float, delta: float
) -> Iterator[float]:
    """What the function grows by at one element, each time from more points."""
    known, unit = {0: here}, delta / 2
    was = x[at]
    for stencil in _STENCILS:
        for offset in stencil:
            if offset not in known:
                x[at] = was + offset * unit
                known[offset] = call()
                x[at] = was
        yield sum(weight * known[offset] for offset, weight in stencil.items()) / unit


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
