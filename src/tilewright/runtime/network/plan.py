"""`Plan`: a network as launches over buffers, without code and weights.

In: what `network/build.py` laid out, or a file says.  Out: plain data, checked against the
kernels and constants that it names.  Read next: `library.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from numpy.typing import NDArray

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import cached_property
from tilewright.base.dtype import DType
from tilewright.runtime.drivers import ALIGNMENT

Array = NDArray[Any]


@dataclass(frozen=True)
class TensorSpec:
    """A tensor that users see: an input or an output."""

    name: str
    shape: tuple[int, ...]
    dtype: str

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * DType(self.dtype).bytes

    def __str__(self) -> str:
        return f"{self.name}: {self.dtype}{list(self.shape)}"


@dataclass(frozen=True)
class Operand:
    """Where an argument of a kernel lives: "input", "constant" or "slot", and which of them; or
    "counters", which all launches of a plan share, and plans that run at the same time do not.

    offset: where in that it begins, in bytes: values share slots, and a slice is a part of a value
    """

    kind: str
    index: int
    offset: int = 0


COUNTERS = Operand("counters", 0)


@dataclass(frozen=True)
class Launch:
    """One run of a kernel.

    operands: one for each of its `Source.buffers`, workspaces included
    layers:   names of the layers of the model that it computes, the one that takes the time first
    """

    kernel: int
    operands: tuple[Operand, ...]
    layers: tuple[str, ...] = ()


@dataclass(frozen=True)
class Pair:
    """A result that may be computed in the memory of an input; numbers of both."""

    output: int
    input: int


@dataclass(frozen=True)
class Kept:
    """A state: an input whose value in the next run is a result of this one; numbers of both.

    initial: the constant that it begins as; None: zeros
    """

    input: int
    output: int
    initial: int | None = None


@dataclass(frozen=True)
class Bound:
    """What numbers of an input may be, such as positions of a cache: from least to most."""

    input: int
    least: int
    most: int

    def wrong(self, value: Array) -> int | None:
        """Give a number of `value` that is none of them."""
        if value.size == 1:  # as of a step: numpy takes ten times as long over one number
            number = value.item()
            return None if self.least <= number <= self.most else int(number)
        outside = value[(value < self.least) | (value > self.most)]
        return int(outside.flat[0]) if outside.size else None


@dataclass(frozen=True)
class Plan:
    """The network for one set of input shapes.

    slot_bytes: sizes of the buffers that intermediate values share; launches run in order
    bound:      parameters that became constants
    partial:    samples, along the first axis of all inputs and outputs, do not depend on each
                other: fewer of them may be given
    in_place:   results for which a caller may give the memory of an input, which is theirs then
    states:     what stays on the device from run to run
    bounds:     of inputs; others are refused before anything runs
    """

    target: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[tuple[TensorSpec, Operand], ...]
    launches: tuple[Launch, ...]
    slot_bytes: tuple[int, ...]
    bound: tuple[str, ...] = ()
    partial: bool = False
    in_place: tuple[Pair, ...] = ()
    states: tuple[Kept, ...] = ()
    bounds: tuple[Bound, ...] = ()

    @cached_property
    def given(self) -> tuple[int, ...]:
        """Which inputs a caller gives."""
        kept = {state.input for state in self.states}
        return tuple(k for k in range(len(self.inputs)) if k not in kept)

    @cached_property
    def returned(self) -> tuple[int, ...]:
        """Which outputs a caller gets."""
        kept = {state.output for state in self.states}
        return tuple(k for k in range(len(self.outputs)) if k not in kept)

    @property
    def taken_before(self) -> tuple[int, ...]:
        """Results that are copied before states go on: what is given back of a state as it was, and
        new values of states that are other inputs or constants as they are."""
        kept = {state.input for state in self.states}
        next_ = {state.output for state in self.states}
        return tuple(
            k for k, (_, where) in enumerate(self.outputs)
            if (where.kind != "slot" if k in next_ else where.kind == "input"
                and where.index in kept)
        )  # fmt: skip

    @property
    def written_over(self) -> dict[int, int]:
        """The slots that lie in the memory of a state, and which input that is: of new values that
        are computed in place and have a slot to themselves."""
        pairs = {(pair.output, pair.input) for pair in self.in_place}
        found = {}
        for state in self.states:
            spec, where = self.outputs[state.output]
            whole = where.kind == "slot" and spec.nbytes == self.slot_bytes[where.index]
            if whole and (state.output, state.input) in pairs:
                found[where.index] = state.input
        return found

    def misfit(self, kernels: Sequence[Artifact], constants: Sequence[Array]) -> str:
        """Why it cannot run with these kernels and constants; "" where it can.

        Kernels trust their arguments: a launch never gets less memory than its kernel touches.
        """
        held = {
            "input": [spec.nbytes for spec in self.inputs],
            "constant": [int(c.nbytes) for c in constants],
            "slot": list(self.slot_bytes),
        }
        shapes = [spec.shape for spec in (*self.inputs, *(out for out, _ in self.outputs))]
        if any(d < 0 for shape in (*shapes, self.slot_bytes) for d in shape):
            return "a shape or a size is negative"
        for launch in self.launches:
            if not 0 <= launch.kernel < len(kernels):
                return f"a launch runs kernel {launch.kernel} of {len(kernels)}"
            source = kernels[launch.kernel].source
            if len(launch.operands) != len(source.buffers):
                return f"{source.entry_name} gets {len(launch.operands)} arguments"
            if any(not 0 <= i < len(source.buffers) for k in source.kernels for i in k.args):
                return f"{source.entry_name} reads an argument that it has not"
            for operand, buffer in zip(launch.operands, source.buffers, strict=True):
                if buffer.role == "counters" and operand == COUNTERS:
                    continue
                wrong = _misplaced(operand, buffer.nbytes, held)
                if wrong:
                    return f"{buffer.name} of {source.entry_name}: {wrong}"
                if buffer.role == "counters":
                    return f"{source.entry_name} counts in {operand.kind} {operand.index}"
                if buffer.role != "input" and operand.kind != "slot":
                    return f"{source.entry_name} writes to {operand.kind} {operand.index}"
        for spec, operand in self.outputs:
            if wrong := _misplaced(operand, spec.nbytes, held):
                return f"{spec.name}: {wrong}"
        for pair in self.in_place:
            known = 0 <= pair.output < len(self.outputs) and 0 <= pair.input < len(self.inputs)
            if not known:
                return f"result {pair.output} is to lie in input {pair.input}"
            made, given = self.outputs[pair.output][0], self.inputs[pair.input]
            if (made.nbytes, made.dtype) != (given.nbytes, given.dtype):
                return f"{made.name} is to lie in {given.name}, which is another"
        for bound in self.bounds:
            if not 0 <= bound.input < len(self.inputs):
                return f"input {bound.input} has bounds, of {len(self.inputs)}"
        return self._unkept(held["constant"])

    def unlike(self, first: Plan) -> str:
        """Why it cannot have its states in common with the first plan of its library; "" where it
        can."""
        if not self.states and not first.states:
            return ""
        names = [[spec.name for spec in plan.inputs] for plan in (self, first)]
        if names[0] != names[1] or self.states != first.states:
            return "plans of one library have other states"
        for state in self.states:
            mine, its = self.inputs[state.input], first.inputs[state.input]
            if mine != its:
                return f"state {its} is {mine} in another plan"
        return ""

    def _unkept(self, constants: Sequence[int]) -> str:
        """What is wrong with the states; "" where nothing is."""
        for state in self.states:
            known = 0 <= state.output < len(self.outputs) and 0 <= state.input < len(self.inputs)
            if not known:
                return f"input {state.input} is to become result {state.output}"
            made, given = self.outputs[state.output][0], self.inputs[state.input]
            if (made.shape, made.dtype) != (given.shape, given.dtype):
                return f"{given} is to become {made}"
            at = state.initial
            if at is not None and not (
                at in range(len(constants)) and constants[at] == given.nbytes
            ):
                return f"{given.name} begins as constant {at}, which it cannot"
        if len(set(self.given)) + len(self.states) != len(self.inputs):
            return "an input is two states"
        if len(set(self.returned)) + len(self.states) != len(self.outputs):
            return "a result is two states"
        return ""


def _misplaced(operand: Operand, nbytes: int, held: dict[str, list[int]]) -> str:
    """What is wrong with `nbytes` at `operand`.  Constants are used whole, of all else parts."""
    sizes = held.get(operand.kind)
    if sizes is None or not 0 <= operand.index < len(sizes):
        return f"there is no {operand.kind} {operand.index}"
    size, begin = sizes[operand.index], operand.offset
    whole = operand.kind == "constant"
    if nbytes < 0 or begin < 0 or begin + nbytes > size or (whole and nbytes != size):
        at = f" from {begin} on" if begin else ""
        return f"{operand.kind} {operand.index} has {size} bytes, not {nbytes}{at}"
    if begin % ALIGNMENT:
        return f"{begin} in {operand.kind} {operand.index} is not aligned to {ALIGNMENT} bytes"
    return ""
