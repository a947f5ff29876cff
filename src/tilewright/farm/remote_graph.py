"""Networks and computations that were loaded on the device of a session.

In: numbers under which the other side holds them.  Out: `GraphModule`'s and `Module`'s methods.
`GraphModule(loaded["default"](dev))` gives a `RemoteGraph` where `loaded` is on another machine.
Read next: `session.py`, `session_calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.timing import BenchmarkResult

if TYPE_CHECKING:
    from tilewright.farm.session import RemoteDevice, RemoteSession

_BENCHMARK_SECONDS = 600.0


class _Loaded:
    """What the other side holds under a number."""

    def __init__(self, session: RemoteSession, held: int, kind: str, about: str) -> None:
        self.session, self.held, self.kind, self._about = session, held, kind, about

    def __repr__(self) -> str:
        return f"{self._about} on {self.session}"

    def _check(self, device: Device, place: str) -> None:
        if getattr(device, "session", None) is not self.session:
            raise DeviceError(
                place, f"{device} is no device of this session", f"Use remote.{self.kind}()."
            )


class RemoteLibrary(_Loaded):
    """A network in a file of the session."""

    def __getitem__(self, name: str) -> Callable[[RemoteDevice], RemoteOnDevice]:
        if name != "default":
            raise DeviceError(f"lib[{name!r}]", "there is no such function", 'Use lib["default"].')

        def on(device: RemoteDevice) -> RemoteOnDevice:
            self._check(device, f'lib["default"]({device})')
            return RemoteOnDevice(self, device)

        return on


class RemoteOnDevice:
    """`GraphModule` of it runs it there."""

    def __init__(self, library: RemoteLibrary, device: RemoteDevice) -> None:
        self.library, self.device = library, device

    def graph_module(self) -> RemoteGraph:
        return RemoteGraph(self)


class RemoteGraph:
    """A network ready to run on the device; methods are those of `GraphModule`."""

    def __init__(self, module: RemoteOnDevice) -> None:
        self.module, self.device = module, module.device
        self._session = module.library.session
        about = self._session.call(
            "graph", held=module.library.held, kind=self.device.kind, index=self.device.index
        )
        self._held = about["held"]
        self._inputs = {name: (tuple(shape), dtype) for name, shape, dtype in about["inputs"]}
        self._outputs = about["outputs"]

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Send `value` to input `key`, by name or position, and further inputs by name."""
        given: dict[str | int, Any] = {} if key is None else {key: value}
        given.update(params)
        for name, item in given.items():
            there = self._there(item)  # lives until the call is over
            self._session.call("set_input", held=self._held, key=name, of=_of(there))

    def run(self, **inputs: Any) -> None:
        self.set_input(**inputs)
        self._session.call("run", held=self._held)

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Output `index`, on the device; `.numpy()` brings it here."""
        return self._got("output", index, out)

    def get_input(self, key: str | int, out: NDArray | None = None) -> NDArray:
        return self._got("input", key, out)

    def get_num_inputs(self) -> int:
        return len(self._inputs)

    def get_num_outputs(self) -> int:
        return len(self._outputs)

    def get_input_index(self, name: str) -> int:
        """The position of an input, -1 where there is none of that name."""
        names = list(self._inputs)
        return names.index(name) if name in names else -1

    def benchmark(
        self, device: Device, func_name: str = "run", repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None, limit_zero_time_iterations: int = 100,
        end_to_end: bool = False, cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1,
        **inputs: Any,
    ) -> BenchmarkResult:  # fmt: skip
        """As `GraphModule.benchmark`, timed there: the network between does not count."""
        self.module.library._check(device, f"benchmark({device})")
        self.set_input(**inputs)
        options = {
            "func_name": func_name, "repeat": repeat, "number": number,
            "min_repeat_ms": min_repeat_ms, "end_to_end": end_to_end,
        }  # fmt: skip
        seconds = max(self._session.timeout, _BENCHMARK_SECONDS)
        results = self._session.call("benchmark", seconds=seconds, held=self._held, options=options)
        return BenchmarkResult(tuple(results))

    def _there(self, value: Any) -> NDArray:
        if isinstance(value, NDArray) and value.device == self.device:
            return value
        return array(value.numpy() if isinstance(value, NDArray) else value, self.device)

    def _got(self, what: str, key: str | int, out: NDArray | None) -> NDArray:
        from tilewright.farm.session import RemoteMemory

        held, shape, dtype = self._session.call("get", held=self._held, what=what, key=key)
        kind = DType(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.bytes
        found = NDArray(
            tuple(shape), kind, self.device, RemoteMemory(self._session, held, max(nbytes, 1))
        )
        return found if out is None else found.copyto(out)


class RemoteModule(_Loaded):
    """One computation, called with arrays of its device; entry_name: the function's name."""

    def __init__(
        self, session: RemoteSession, held: int, kind: str, about: str, entry_name: str
    ) -> None:
        super().__init__(session, held, kind, about)
        self.entry_name = entry_name

    def __call__(self, *arrays: NDArray) -> None:
        self.session.call("call_module", held=self.held, arrays=self._given(arrays))

    def time_evaluator(
        self, func_name: str, dev: Device, number: int = 10, repeat: int = 1,
        min_repeat_ms: float = 0,
    ) -> Callable[..., BenchmarkResult]:  # fmt: skip
        """A function of arrays that gives seconds of one call, timed there."""
        self._check(dev, f"time_evaluator({func_name!r}, {dev})")
        options = {"number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms}

        def timed(*arrays: NDArray) -> BenchmarkResult:
            results = self.session.call(
                "time_module", seconds=max(self.session.timeout, _BENCHMARK_SECONDS),
                held=self.held, arrays=self._given(arrays), options=options,
            )  # fmt: skip
            return BenchmarkResult(tuple(results))

        return timed

    def _given(self, arrays: tuple[NDArray, ...]) -> list[list[Any]]:
        for one in arrays:
            self._check(one.device, "an argument")
        return [_of(one) for one in arrays]


def _of(one: NDArray) -> list[Any]:
    """An array as the other side names it: memory, shape, element type."""
    return [one.memory.held, list(one.shape), str(one.dtype)]  # type: ignore[attr-defined]
