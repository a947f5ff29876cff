"""`GraphModule`: runs a compiled network on a device, every kernel through one `LaunchSequence`.

In: `lib["default"](dev)` and arrays.  Out: arrays, latencies.  Inputs, outputs and intermediate
values live in buffers that are allocated once.  Read next: `library.py`, `memory.py`.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.artifact import BufferSpec
from tilewright.base.doors import door, is_integer
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError
from tilewright.relay.run.library import Library, LoadedLibrary, Operand, TensorSpec
from tilewright.relay.run.ownership import Ownership
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, empty
from tilewright.runtime.sequence import KernelCall, LaunchSequence
from tilewright.runtime.timing import BenchmarkResult

_MAX_NUMBER = 1 << 20
_ONE_EACH = (
    'Give each thread its own GraphModule(lib["default"](dev)), which share code and weights, or '
    "write `with module:` around set_input, run and get_output."
)


@dataclass(frozen=True)
class KernelTime:
    """Seconds of one launch, timed alone; `name` is the kernel's."""

    name: str
    seconds: float


class GraphModule:
    """A network ready to run.  Two modules of one library share code and weights, nothing else.

    Inputs and outputs are its state, so it belongs to the thread that uses it first, until that
    thread ends.  Threads that share one write `with module:` around what belongs together, from
    `set_input` to reading the outputs, and then take turns.  Otherwise another thread's call raises
    DeviceError.
    """

    def __init__(self, module: LoadedLibrary) -> None:
        if not isinstance(module, LoadedLibrary):
            raise DeviceError(
                f"GraphModule({type(module).__name__})",
                "the network is not on a device yet" if isinstance(module, Library)
                else "it is no compiled network",
                'Write GraphModule(lib["default"](dev)).',
            )  # fmt: skip
        self.module, self.device = module, module.device
        plan = module.library.plan
        self._own = Ownership("GraphModule", _ONE_EACH)
        self._inputs = plan.inputs
        self._index = {spec.name: k for k, spec in enumerate(plan.inputs)}
        self._input_arrays = [empty(s.shape, s.dtype, self.device) for s in plan.inputs]
        for held in self._input_arrays:
            held.copyfrom(np.zeros(held.shape, held.dtype))
        self._slots = [
            empty((max(n, 1),), "bool", self.device) for n in plan.slot_bytes
        ]  # bytes: the kernels say what is in them
        self._outputs = [
            NDArray(spec.shape, DType(spec.dtype), self.device, self._held(where).memory)
            for spec, where in plan.outputs
        ]
        self._calls = self._kernel_calls()
        self._sequence = LaunchSequence(self.device, self._calls) if self._calls else None

    # -- inputs and outputs ------------------------------------------------------------------------

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copy `value` (numpy array, NDArray, nested list) into input `key`, by name or position.

        params: further inputs by name.  Raises DeviceError for an unknown input and for a value of
        another shape or element type.
        """
        with self._own:
            if key is not None:
                self._set(key, value)
            for name, item in params.items():
                self._set(name, item)

    def run(self, **inputs: Any) -> None:
        """Set `inputs` and run.  On a GPU this enqueues; reading an output waits for it."""
        with self._own:
            for name, value in inputs.items():
                self._set(name, value)
            if self._sequence is not None:
                self._sequence.run()

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Output `index`: the buffer that the next run overwrites, or its copy in `out`."""
        self._check_index("get_output", index, len(self._outputs), "outputs")
        with self._own:
            found = self._outputs[index]
            return found if out is None else found.copyto(out)

    def get_input(self, key: str | int, out: NDArray | None = None) -> NDArray:
        """The buffer of an input, or its copy in `out`."""
        with self._own:
            found = self._input_arrays[self._position("get_input", key)]
            return found if out is None else found.copyto(out)

    def __enter__(self) -> GraphModule:
        self._own.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._own.leave()

    def get_num_inputs(self) -> int:
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        return len(self._outputs)

    @door(DeviceError)
    def get_input_index(self, name: str) -> int:
        """The position of an input, -1 where there is none of that name."""
        return self._index.get(name, -1)

    @property
    def planned_bytes(self) -> int:
        """Device memory of all intermediate values."""
        return sum(self.module.library.plan.slot_bytes)

    # -- timing ------------------------------------------------------------------------------------

    def benchmark(
        self,
        device: Device,
        func_name: str = "run",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        limit_zero_time_iterations: int = 100,
        end_to_end: bool = False,
        cooldown_interval_ms: float = 0,
        repeats_to_cooldown: int = 1,
        **inputs: Any,
    ) -> BenchmarkResult:
        """Seconds of one run: `repeat` times the mean of `number` runs back to back.

        min_repeat_ms: `number` grows until a repeat lasts that long
        end_to_end: each run copies its inputs from host memory and its outputs to it
        inputs: set before
        """
        place = f"benchmark({device}, {func_name!r})"
        if device != self.device:
            raise DeviceError(
                place, f"the network is loaded on {self.device}", f"Pass {self.device}."
            )
        if func_name != "run":
            raise DeviceError(place, "only run can be timed", 'Leave out func_name, or use "run".')
        with self._own:
            self.set_input(**inputs)
            if end_to_end:
                return self._end_to_end(repeat, number, min_repeat_ms or 0)
            if self._sequence is None:
                raise DeviceError(
                    place, "the network has no kernel to time",
                    "It only hands its inputs on; time one that computes.",
                )  # fmt: skip
            return self._sequence.time(
                number, repeat, min_repeat_ms or 0,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms, repeats_to_cooldown=repeats_to_cooldown,
            )  # fmt: skip

    def profile(self, number: int = 5) -> list[KernelTime]:
        """Each launch timed alone, `number` times back to back, in order.

        Their sum differs from a run's time: alone a kernel finds its operands in the caches.
        """
        plan = self.module.library.plan
        found, at = [], 0
        with self._own:
            for launch in plan.launches:
                kernels = self.module.kernels[launch.kernel]
                calls = self._calls[at : at + len(kernels)]
                at += len(kernels)
                name = self.module.library.kernels[launch.kernel].source.entry_name
                timed = LaunchSequence(self.device, calls).time(number)
                found.append(KernelTime(name, timed.median))
        return found

    def _end_to_end(self, repeat: int, number: int, min_repeat_ms: float) -> BenchmarkResult:
        hosts = [held.numpy() for held in self._input_arrays]
        if repeat < 1 or number < 1:
            raise DeviceError(
                f"benchmark(repeat={repeat}, number={number})", "both must be at least 1",
                "Try repeat=5, number=5.",
            )  # fmt: skip

        def once() -> None:
            for held, host in zip(self._input_arrays, hosts, strict=True):
                held.copyfrom(host)
            self.run()
            for result in self._outputs:
                result.numpy()

        once()
        results: list[float] = []
        while len(results) < repeat:
            began = time.perf_counter()
            for _ in range(number):
                once()
            spent = time.perf_counter() - began
            if spent * 1e3 < min_repeat_ms and number < _MAX_NUMBER:
                number = max(int(min_repeat_ms * 1e-3 / spent * number) + 1, number + 1)
                continue
            results.append(spent / number)
        return BenchmarkResult(tuple(results))

    # -- inside ------------------------------------------------------------------------------------

    def _held(self, where: Operand) -> NDArray:
        held = {
            "input": self._input_arrays, "constant": self.module.constants, "slot": self._slots
        }[where.kind]  # fmt: skip
        return held[where.index]

    def _array(self, where: Operand, spec: BufferSpec) -> NDArray:
        """An operand as its kernel sees it: a slot has bytes, a view another shape."""
        held = self._held(where)
        wanted = spec.size * spec.dtype.bytes
        if where.kind != "slot" and held.nbytes != wanted:
            raise DeviceError(
                "GraphModule", f"{where.kind} {where.index} has {held.nbytes} bytes, the kernel "
                f"that reads it takes {wanted}", "Build and save the library again.",
            )  # fmt: skip
        return NDArray(spec.shape, spec.dtype, self.device, held.memory)

    def _kernel_calls(self) -> list[KernelCall]:
        calls: list[KernelCall] = []
        library = self.module.library
        for launch in library.plan.launches:
            specs = library.kernels[launch.kernel].source.buffers
            buffers = [self._array(o, s) for o, s in zip(launch.operands, specs, strict=True)]
            calls += [
                (kernel, [buffers[i] for i in kernel.info.args])
                for kernel in self.module.kernels[launch.kernel]
            ]
        return calls

    def _set(self, key: str | int, value: Any) -> None:
        k = self._position("set_input", key)
        spec, held = self._inputs[k], self._input_arrays[k]
        place = f"set_input({spec.name!r})"
        if not isinstance(value, NDArray):
            value = _host_array(value, spec, place)
        if tuple(value.shape) != spec.shape or str(value.dtype) != spec.dtype:
            raise DeviceError(
                place,
                f"the value is {value.dtype}{list(value.shape)}, the input "
                f"{spec.dtype}{list(spec.shape)}",
                "Convert it with .astype(...)." if tuple(value.shape) == spec.shape
                else "Reshape it, or build the network for that shape.",
            )  # fmt: skip
        held.copyfrom(value)

    def _position(self, what: str, key: str | int) -> int:
        if isinstance(key, str):
            if key in self._index:
                return self._index[key]
            raise DeviceError(f"{what}({key!r})", *self._unknown(key))
        self._check_index(what, key, len(self._inputs), "inputs")
        return int(key)

    def _unknown(self, name: str) -> tuple[str, str]:
        if name in self.module.library.plan.bound:
            return (
                "this parameter became a constant when the network was built",
                "Leave it out of relay.build(params=) to set it before each run.",
            )
        listed = ", ".join(map(str, self._inputs)) or "none"
        return "the network has no such input", f"Its inputs: {listed}."

    def _check_index(self, what: str, index: Any, count: int, kind: str) -> None:
        if not is_integer(index) or not 0 <= index < count:
            raise DeviceError(
                f"{what}({index!r})", f"the network has {count} {kind}",
                f"Use 0 to {count - 1}." if count else "",
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"GraphModule({self.module!r})"


def _host_array(value: Any, spec: TensorSpec, place: str) -> np.ndarray:
    """Numbers and lists take the input's element type; arrays keep theirs."""
    if value is None:
        raise DeviceError(place, "no value was given", f"Pass {spec.dtype}{list(spec.shape)}.")
    if hasattr(value, "dtype") and not isinstance(value, np.ndarray) and hasattr(value, "numpy"):
        value = value.numpy()  # a tensor of another library
    try:
        if isinstance(value, np.ndarray):
            return value.astype(value.dtype.newbyteorder("="), copy=False)
        return np.asarray(value, None if hasattr(value, "dtype") else spec.dtype)
    except (TypeError, ValueError) as error:
        raise DeviceError(
            place, f"the value is no array ({error})", "Give a numpy array or an NDArray."
        ) from None
