"""`Case`: inputs of a computation, what must come out, and how far a right kernel may be off.

In: arrays.  Out: what a trial compares a kernel with.  Read next: `te/cases.py`, which makes them,
and `runtime/trial.py`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Case:
    """inputs: one per input buffer; expected, tolerance: one per output buffer.

    tolerance: largest |out - expected| per element, broadcast to its output; 0: equal
    """

    inputs: tuple[Array, ...]
    expected: tuple[Array, ...]
    tolerance: tuple[Array, ...]

    @property
    def nbytes(self) -> int:
        return sum(a.nbytes for a in (*self.inputs, *self.expected, *self.tolerance))

    @classmethod
    def of(
        cls,
        inputs: Iterable[npt.ArrayLike],
        expected: Iterable[npt.ArrayLike],
        tolerance: Iterable[npt.ArrayLike],
    ) -> Case:
        """Of anything like arrays; a tolerance that is zero everywhere takes no room."""
        slacks = (np.asarray(t) for t in tolerance)
        return cls(
            tuple(map(np.asarray, inputs)),
            tuple(map(np.asarray, expected)),
            tuple(t if t.any() else np.zeros((), t.dtype) for t in slacks),
        )
