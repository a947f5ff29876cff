"""`Caller`: a compiled network on memory of another library: no copy goes in or out.

In: a loaded library, addresses of inputs and outputs.  Out: filled outputs.  `torch.compile` calls
networks through it.  Read next: `instance.py`, `../drivers/__init__.py` (`OpenPlan`).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import cast

from tilewright.base.concurrency import lock
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import Memory, OpenPlan, Spot
from tilewright.runtime.network.instance import Instance, slots_of
from tilewright.runtime.network.loaded import LoadedLibrary
from tilewright.runtime.network.plan import Operand, Plan, TensorSpec
from tilewright.runtime.sequence import launches_of

Put = Callable[[int], None]


@dataclass(frozen=True)
class Output:
    """One result.

    put:    takes the address where it is to be computed; None: it has to be copied
    memory: from here, where no other is named: it shares it with larger values, or is a constant
    same:   from the earlier output that is the same value, if any
    given:  from the input that it is, if it is one
    room:   which of `Caller.rooms` holds it, if one does
    over:   the input in whose memory it may be computed, if any: `put` may have its address
    """

    spec: TensorSpec
    put: Put | None
    memory: Memory
    same: int | None = None
    given: int | None = None
    room: int | None = None
    over: int | None = None


class Caller:
    """One plan of a library, with intermediate values of its own.

    inputs:  each takes the address of an input: dense, and aligned to `drivers.ALIGNMENT`
    staging: for each input memory of its size, where one that is not aligned can be copied to
    outputs: see `Output`
    run:     runs on the other library's current stream
    rooms:   how many bytes each block of intermediate values has that is no output's; `run` has
             blocks of its own, `record` is given some
    copy:    copies on that stream: target and source addresses, how many bytes
    captured: whether that stream is being captured, so that `record` is to be called; None on a
             device without graphs
    bounds:  what inputs may hold, with their names; `run` does not look at them
    turn:    to be held from the first `put` to the end of `run` or `record`

    stream: gives the handle of that stream; of no interest on a CPU
    plan:   which one; default: the first
    Raises DeviceError on a device whose memory has no addresses.
    """

    def __init__(
        self, module: LoadedLibrary, stream: Callable[[], int], plan: Plan | None = None
    ) -> None:
        self.device, self.turn = module.device, lock()
        plan = plan or module.library.plan
        self._held = Instance(module, plan, slots_of(module))
        self.bounds = [(plan.inputs[bound.input].name, bound) for bound in plan.bounds]
        calls = (call for launch in self._held.launches for call in launch)
        launches = launches_of(calls, module.constants)
        opened = self.device.driver.plan(launches)
        if not hasattr(opened, "argument"):
            raise DeviceError(
                f"Caller on {self.device}", "memory of other libraries cannot be passed there",
                "Use GraphModule.set_input and get_output.",
            )  # fmt: skip
        self._plan = cast(OpenPlan, opened)
        self.run = self._plan.on(stream)
        self._places: dict[int, list[Spot]] = {}  # by the memory that is there, or a part of it
        for k, launch in enumerate(launches):
            for position, memory in enumerate(launch.buffers):
                spot = Spot(k, position, memory.offset)
                self._places.setdefault(id(memory.whole), []).append(spot)
        self.staging = [a.memory for a in self._held.inputs]
        self.inputs = [self._plan.argument(self._places.get(id(m), [])) for m in self.staging]
        self._room_of: dict[int, int] = {}  # by the memory
        self._rooms: list[tuple[list[Spot], Memory]] = []
        self.outputs = self._outputs()
        self.rooms = [memory.nbytes for _, memory in self._rooms]
        self._stream = stream
        self.copy = self._copier()
        ask = getattr(self.device.driver, "captures", None)
        self.captured = None if ask is None else lambda: bool(ask(stream()))

    def record(self, rooms: Sequence[int]) -> None:
        """Have the other library's current stream, which is being captured, take up one run.

        rooms: addresses of memory like `self.rooms`, aligned to `drivers.ALIGNMENT`
        What it reads and writes besides lies where `put` said, and the caller keeps all of that as
        long as it replays.  Weights and code are kept as long as the process.
        """
        moved = [
            (places, m.pointer, to) for (places, m), to in zip(self._rooms, rooms, strict=True)
        ]
        self._plan.record(self._stream(), moved)

    def _copier(self) -> Callable[[int, int, int], object]:
        driver, stream = self.device.driver, self._stream
        if not hasattr(driver, "copy_between"):
            return ctypes.memmove
        between = driver.copy_between
        return lambda target, source, nbytes: between(target, source, nbytes, stream())

    def _outputs(self) -> list[Output]:
        plan, found, first = self._held.plan, list[Output](), dict[Operand, int]()
        over = {pair.output: pair.input for pair in plan.in_place}
        written = set[int]()  # outputs' own memory
        for k, (spec, where) in enumerate(plan.outputs):
            memory, same = self._held.outputs[k].memory, first.setdefault(where, k)
            is_whole = where.kind == "slot" and spec.nbytes == plan.slot_bytes[where.index]
            put = None
            if is_whole and same == k:
                put = self._plan.argument(self._places[id(memory.whole)])
                written.add(id(memory.whole))
            given = where.index if where.kind == "input" else None
            shared = None if same == k else same
            found.append(Output(spec, put, memory, shared, given, over=over.get(k)))
        for slot in self._held.slots:
            whole = slot.memory.whole
            if id(whole) in self._places and id(whole) not in written:
                self._room_of[id(whole)] = len(self._rooms)
                self._rooms.append((self._places[id(whole)], whole))
        return [replace(o, room=self._room_of.get(id(o.memory.whole))) for o in found]
