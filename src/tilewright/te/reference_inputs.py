"""Inputs of the reference, which may be much larger than what a computation reads of them.

In: arrays in the types of their placeholders.  Out: what is read, as `rounding.kept_as` has it; and
large inputs, drawn as small ones are.  Read next: `evaluate.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import numpy as np

from tilewright.targets.precision import Precision
from tilewright.te.contraction import Contraction, Table
from tilewright.te.rounding import Approx, Array, cast_value, grid_of
from tilewright.te.tensor import Tensor, placeholder

MOST_DRAWN = 1 << 20  # elements of an input that are drawn; more repeat them
_PRIMES = (1, 3, 5, 7, 13, 31, 61, 127, 251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521)


class Values(dict[Tensor, Approx]):
    """The value of each tensor; an input is converted when it is first asked for.

    given: the inputs; track: whether it must be known of which number they are multiples
    precision: in what sums of products of float32 may be computed
    """

    def __init__(self, given: Mapping[Tensor, Array], track: bool, precision: Precision) -> None:
        super().__init__()
        self._given, self._track, self.precision = given, track, precision

    def __missing__(self, tensor: Tensor) -> Approx:
        self[tensor] = found = self._kept(tensor, self._given[tensor])
        return found

    def copy(self) -> Values:
        """Others to which tensors may be added."""
        made = Values(self._given, self._track, self.precision)
        made.update(self)
        return made

    def picked(self, tensor: Tensor, pick: Callable[[Array], Array], most: int) -> Approx:
        """Convert what `pick` takes of a tensor: only that where it has more elements than `most`,
        which is what a stage can read of it."""
        if tensor in self or math.prod(tensor.shape) <= most:
            return self[tensor].map(pick)
        return self._kept(tensor, pick(self._given[tensor]))

    def operands(self, product: Contraction) -> list[Approx]:
        """What the windows of a product read."""
        return [self._operand(w.tensor, product.tables.get(w.tensor)) for w in product.windows]

    def _operand(self, tensor: Tensor, table: Table | None) -> Approx:
        if table is None:
            return self[tensor]
        source = table.read.attr
        held = self[source].value if source in self else self._given[source]
        return table.look_up(held.astype(source.dtype.storage, copy=False), self._track)

    def _kept(self, tensor: Tensor, array: Array) -> Approx:
        held = cast_value(array, tensor.dtype)
        return Approx(held, grid=grid_of(held) if self._track else 0.0)


def repeated(tensor: Tensor, draw: Callable[[Tensor], Array]) -> Array:
    """`draw(tensor)`; of a large tensor a part is drawn, and repeated along its long axes.

    Parts are twice a prime long: even, so that odd and even places stay so, and no power of two, by
    which a wrong address is likely to be off.
    """
    shape = list(tensor.shape)
    while math.prod(shape) > MOST_DRAWN:
        axis = max(range(len(shape)), key=shape.__getitem__)
        wanted = MOST_DRAWN // (math.prod(shape) // shape[axis])
        shape[axis] = 2 * max((p for p in _PRIMES if 2 * p <= wanted), default=1)
    if shape == list(tensor.shape):
        return draw(tensor)
    drawn = draw(placeholder(tuple(shape), str(tensor.dtype), tensor.name))
    for axis, (part, whole) in enumerate(zip(shape, tensor.shape, strict=True)):
        if part != whole:
            drawn = np.take(drawn, np.arange(whole) % part, axis)
    return drawn
