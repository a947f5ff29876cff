"""One plan of a library bound to memory: buffers, launches, a sequence that runs them all.

In: a loaded library, one of its plans, slots.  Out: arrays of inputs and outputs, launches.
Read next: `graph_executor.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tilewright.base.artifact import BufferSpec
from tilewright.base.concurrency import cached_property
from tilewright.base.dtype import DType
from tilewright.runtime.drivers import Memory
from tilewright.runtime.ndarray import NDArray, array, empty
from tilewright.runtime.network.loaded import LoadedLibrary
from tilewright.runtime.network.plan import Operand, Plan
from tilewright.runtime.sequence import KernelCall, LaunchSequence


def slots_of(module: LoadedLibrary) -> list[NDArray]:
    """Memory for intermediate values of every plan: one of them runs at a time.

    They are bytes; the kernels say what is in them.
    """
    sizes: dict[int, int] = {}
    for plan in module.library.plans:
        over = plan.written_over  # in the memory of a state instead
        for k, nbytes in enumerate(plan.slot_bytes):
            sizes[k] = max(sizes.get(k, 1), 1 if k in over else nbytes)
    return [empty((sizes[k],), "bool", module.device) for k in range(len(sizes))]


class Instance:
    """launches: of each launch of the plan the kernel calls it makes; sequence: all of them, None
    where there is nothing to compute; slots: intermediate values; taken: states that are results as
    they were, and where these are copied to behind a run.

    other: an instance of another plan, with which it has its states in common
    """

    def __init__(
        self, module: LoadedLibrary, plan: Plan, slots: Sequence[NDArray],
        other: Instance | None = None,
    ) -> None:  # fmt: skip
        self.module, self.plan, self.slots = module, plan, slots
        self._over = plan.written_over
        kept = () if other is None else [state.input for state in plan.states]
        self.inputs: list[NDArray] = []
        self.taken: list[tuple[NDArray, NDArray]] = []
        for k, spec in enumerate(plan.inputs):
            if other is not None and k in kept:
                self.inputs.append(other.inputs[k])
                continue
            held = empty(spec.shape, spec.dtype, module.device)
            held.copyfrom(np.zeros(held.shape, held.dtype))
            self.inputs.append(held)
        self._bind()

    def use_input(self, index: int, array: NDArray) -> None:
        """Read input `index` from `array`, which is like the one that it replaces."""
        if self.inputs[index].memory is array.memory:
            return
        self.inputs[index] = array
        self.__dict__.pop("sequence", None)
        self._bind()

    def _bind(self) -> None:
        """Outputs and launches over the memory there is now."""
        self._parts: dict[tuple[Operand, int], Memory] = {}
        self.outputs = [
            NDArray(s.shape, DType(s.dtype), self.module.device, self._memory(where, s.nbytes))
            for s, where in self.plan.outputs
        ]
        self.taken = []
        for k in self.plan.taken_before:
            if k in self.plan.returned:
                held = self.outputs[k]
                self.outputs[k] = held.copyto(held.device)
                self.taken.append((held, self.outputs[k]))
        self.launches = [self._calls(k) for k in range(len(self.plan.launches))]

    @cached_property
    def _counters(self) -> NDArray:
        """Zeros, which every launch leaves as it found them."""
        kernels = self.module.library.kernels
        used = {launch.kernel for launch in self.plan.launches}
        buffers = [b for k in used for b in kernels[k].source.buffers if b.role == "counters"]
        zeros = np.zeros(max((b.nbytes for b in buffers), default=1), np.uint8)
        return array(zeros, self.module.device)

    @cached_property
    def sequence(self) -> LaunchSequence | None:
        calls = [call for launch in self.launches for call in launch]
        return self.sequence_of(calls) if calls else None

    def sequence_of(self, calls: Sequence[KernelCall]) -> LaunchSequence:
        joint = [self.inputs[k].memory for k in self._over.values()]
        return LaunchSequence(self.module.device, calls, self.module.constants, joint)

    def node(self, index: int) -> NDArray:
        """The value of a node of `graph_json`: an input, a weight, or what a kernel wrote."""
        first = len(self.inputs) + len(self.module.constants)
        if index < first:
            return [*self.inputs, *self.module.constants][index]
        kernels = self.module.library.kernels
        written = [
            (where, spec)
            for each in self.plan.launches
            for where, spec in zip(each.operands, kernels[each.kernel].source.buffers, strict=True)
            if spec.role == "output"
        ]
        return self._array(*written[index - first])

    def _memory(self, where: Operand, nbytes: int) -> Memory:
        """`nbytes` of an operand; the same object each time it is asked for."""
        held = {"input": self.inputs, "constant": self.module.constants, "slot": self.slots}
        if where.kind == "slot" and where.index in self._over:
            return self.inputs[self._over[where.index]].memory
        own = held.get(where.kind)
        whole = (self._counters if own is None else own[where.index]).memory
        if not where.offset and nbytes == whole.nbytes:
            return whole
        if (where, nbytes) not in self._parts:
            driver = self.module.device.driver
            self._parts[where, nbytes] = driver.part(whole, where.offset, max(nbytes, 1))
        return self._parts[where, nbytes]

    def _array(self, where: Operand, spec: BufferSpec) -> NDArray:
        """An operand as its kernel sees it: a slot has bytes, a view another shape."""
        memory = self._memory(where, spec.nbytes)
        return NDArray(spec.shape, spec.dtype, self.module.device, memory)

    def _calls(self, index: int) -> list[KernelCall]:
        launch = self.plan.launches[index]
        specs = self.module.library.kernels[launch.kernel].source.buffers
        buffers = [self._array(o, s) for o, s in zip(launch.operands, specs, strict=True)]
        return [
            (kernel, [buffers[i] for i in kernel.info.args])
            for kernel in self.module.kernels[launch.kernel]
        ]
