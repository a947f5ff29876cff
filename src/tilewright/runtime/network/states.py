"""`States`: what a network keeps on its device from run to run, such as caches and a position.

In: an instance of a plan with states.  Out: their values, set, begun anew, brought forward.
Read next: `graph_executor.py`, `plan.py` (`Kept`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tilewright.base.errors import DeviceError
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.network.instance import Instance


class States:
    """Those of one library's instances; the names are those of the inputs that they are to a plan.

    instance: the first; all that come later have the same memory for them
    """

    def __init__(self, instance: Instance) -> None:
        plan = instance.plan
        self.names = {plan.inputs[s.input].name: s for s in plan.states}
        self.of(instance)
        if self.names:
            self.reset()

    def of(self, instance: Instance) -> None:
        """Bring forward what `instance` computes, from now on."""
        self._held, plan = instance, instance.plan
        over = set(plan.written_over.values())
        self._copied = [s for s in plan.states if s.input not in over]
        # Of a value that is another input itself, which another state may change first.
        self._early = {s.output for s in self._copied} & {*plan.taken_before}

    def reset(self) -> None:
        """Let all begin anew."""
        constants = self._held.module.library.constants
        for state in self.names.values():
            held = self._held.inputs[state.input]
            if state.initial is None:
                held.copyfrom(np.zeros(held.shape, held.dtype.storage))
            else:
                held.copyfrom(constants[state.initial].reshape(held.shape))

    def advance(self) -> None:
        """Have the results of the last run be what the next one begins with."""
        held = self._held
        for old, result in held.taken:
            old.copyto(result)
        made = {s.output: held.outputs[s.output] for s in self._copied}
        made |= {k: made[k].copyto(made[k].device) for k in self._early}
        for state in self._copied:
            made[state.output].copyto(held.inputs[state.input])

    def arrays(self) -> dict[str, NDArray]:
        """Copies of all values, on the device."""
        inputs = self._held.inputs
        return {n: inputs[s.input].copyto(inputs[s.input].device) for n, s in self.names.items()}

    def set(self, values: Mapping[str, Any], place: str) -> None:
        """Set some of them, or, where one cannot be, none.  Raises DeviceError."""
        for name, value in values.items():
            if name not in self.names:
                listed = ", ".join(self.names) or "none"
                raise DeviceError(place, f"there is no state {name!r}", f"It has {listed}.")
            spec = self._held.plan.inputs[self.names[name].input]
            shape, dtype = tuple(np.shape(value)), str(getattr(value, "dtype", ""))
            if (shape, dtype) not in ((spec.shape, spec.dtype), (spec.shape, _bits(spec.dtype))):
                raise DeviceError(
                    f"{place}: {name!r}", f"the value is {dtype}{list(shape)}, the state "
                    f"{spec.dtype}{list(spec.shape)}", "Give what `state()` gave, or the like.",
                )  # fmt: skip
        for name, value in values.items():
            self._held.inputs[self.names[name].input].copyfrom(value)


def _bits(dtype: str) -> str:
    return "uint16" if dtype == "bfloat16" else dtype
