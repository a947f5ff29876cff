"""Networks and computations that were loaded on the device of a session.

In: numbers under which the other side holds them.  Out: `GraphModule`'s and `Module`'s methods.
`GraphModule(loaded["default"](dev))` gives a `RemoteGraph` where `loaded` is on another machine.
Read next: `session.py`, `session_calls.py`.
"""

from __future__ import annotations

import copy
import threading
import weakref
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.runtime.device import Device
from tilewright.runtime.drivers import Memory
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.network.functions import Functions, by_name
from tilewright.runtime.network.param_dict import load_param_dict
from tilewright.runtime.network.plan import TensorSpec
from tilewright.runtime.network.profile import KernelTime, Profile
from tilewright.runtime.timing import BenchmarkResult

if TYPE_CHECKING:
    from tilewright.farm.session import RemoteDevice, RemoteSession

_BENCHMARK_SECONDS = 600.0


def _kept(owner: object, session: RemoteSession, held: int) -> None:
    """Let the other side drop what it holds when nothing here refers to `owner` any more."""
    session.holds.add(held)
    weakref.finalize(owner, _drop, session, held).atexit = False


def _drop(session: RemoteSession, held: int) -> None:
    """Soon, and not from here: a finalizer may run in any thread, even that of the network."""

    def drop() -> None:
        with suppress(TilewrightError):  # it is gone with the session
            session.call("drop", held=held)
        session.holds.discard(held)

    threading.Thread(target=drop, daemon=True).start()


class RemoteMemory:
    """A block of memory of the device; freed there when nothing here refers to it."""

    def __init__(self, session: RemoteSession, held: int, nbytes: int) -> None:
        self.pointer = self.offset = 0
        self.held, self.nbytes = held, nbytes
        _kept(self, session, held)

    @property
    def whole(self) -> Memory:
        return self


class _Loaded:
    """What the other side holds under a number."""

    def __init__(self, session: RemoteSession, held: int, kind: str, about: str) -> None:
        self.session, self.held, self.kind, self._about = session, held, kind, about
        _kept(self, session, held)

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
        self.loaded, self.device = module, module.device
        self._session = module.library.session
        about = self._session.call(
            "graph", held=module.library.held, kind=self.device.kind, index=self.device.index
        )
        self._hold(about)

    def _hold(self, about: dict[str, Any]) -> None:
        """about: what the other side says of the module that it holds"""
        self._about, self._held = about, about["held"]
        _kept(self, self._session, self._held)
        self._inputs = {name: (tuple(shape), dtype) for name, shape, dtype in about["inputs"]}
        self._outputs = about["outputs"]

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Send `value` to input `key`, by name or position, and further inputs by name."""
        given: dict[str | int, Any] = {} if key is None else {key: value}
        given.update(params)
        for name, item in given.items():
            there = self._there(item)  # lives until the call is over
            self._session.call("set_input", held=self._held, key=name, of=_of(there))

    def set_inputs(self, values: Mapping[str, Any]) -> None:
        """`set_input` of inputs by name, whatever they are called."""
        for name, value in values.items():
            self.set_input(name, value)

    def set_input_zero_copy(
        self, key: str | int | None = None, value: Any = None, **params: Any
    ) -> None:
        """Let input `key` be the array `value` itself, which is on the device."""
        given: list[tuple[str | int, Any]] = [] if key is None else [(key, value)]
        for name, item in (*given, *params.items()):
            if not isinstance(item, NDArray) or item.device != self.device:
                raise DeviceError(
                    f"set_input_zero_copy({name!r})", f"it is no array on {self.device}",
                    "Use nd.array(value, device), or set_input, which copies.",
                )  # fmt: skip
            self._session.call("use_input", held=self._held, key=name, of=_of(item))

    @door(DeviceError)
    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs, and compare weights, by what `runtime.save_param_dict` wrote."""
        for name, value in load_param_dict(params_bytes).items():
            self.set_input(name, value)

    @door(DeviceError)
    def share_params(self, other: RemoteGraph, params_bytes: bytes | bytearray) -> None:
        """As `GraphModule.share_params`.  Raises DeviceError for a module of another library."""
        if other.loaded.library is not self.loaded.library:
            raise DeviceError(
                "share_params", "the other module is of another library",
                "Make both of one: GraphModule(lib[\"default\"](dev)).",
            )  # fmt: skip
        self.load_params(params_bytes)

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

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and element types of the inputs, by name."""
        shapes = {name: shape for name, (shape, _) in self._inputs.items()}
        return shapes, {name: dtype for name, (_, dtype) in self._inputs.items()}

    def __getitem__(self, name: str) -> Any:
        """`module["run"]`: a method by its name, as TVM's modules have them."""
        return by_name(self, name)

    @property
    def module(self) -> Functions:
        """Functions by name and `time_evaluator`, as of `GraphModule`."""
        return Functions(self, self.loaded)

    @property
    def states(self) -> tuple[TensorSpec, ...]:
        """What stays on the device: inputs whose next value each run computes."""
        return tuple(TensorSpec(name, *self._inputs[name]) for name in self._about["states"])

    def reset(self) -> None:
        """Let all states begin anew."""
        self._session.call("reset", held=self._held)

    def state(self) -> dict[str, np.ndarray]:
        """Bring all states here, by name; `set_state` takes them."""
        held = dict(self._session.call("state", held=self._held))
        specs = {spec.name: spec for spec in self.states}
        return {name: self._array(n, *_shape(specs[name])).numpy() for name, n in held.items()}

    @door(DeviceError)
    def set_state(self, values: Mapping[str, Any]) -> None:
        """As `GraphModule.set_state`: none is set where one cannot be."""
        there = [self._there(value) for value in values.values()]  # live until the call is over
        arrays = [_of(one) for one in there]
        self._session.call("set_state", held=self._held, names=list(values), arrays=arrays)

    def fork(self) -> RemoteGraph:
        """Make another module there, which goes on from the same states by itself."""
        made = copy.copy(self)
        made._hold({**self._about, "held": self._session.call("fork", held=self._held)})
        return made

    def benchmark(
        self, device: Device, func_name: str = "run", repeat: int = 5, number: int = 5,
        min_repeat_ms: float | None = None, limit_zero_time_iterations: int = 100,
        end_to_end: bool = False, cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1,
        **inputs: Any,
    ) -> BenchmarkResult:  # fmt: skip
        """As `GraphModule.benchmark`, timed there: the network between does not count."""
        self.loaded.library._check(device, f"benchmark({device})")
        self.set_input(**inputs)
        options = {
            "func_name": func_name, "repeat": repeat, "number": number,
            "min_repeat_ms": min_repeat_ms, "end_to_end": end_to_end,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown,
        }  # fmt: skip
        results = self._long("benchmark", options=options)
        return BenchmarkResult(tuple(results))

    def launch_seconds(self, rounds: int) -> list[list[float]]:
        """As `GraphModule.launch_seconds`, timed there."""
        return [list(each) for each in self._long("launch_seconds", number=rounds)]

    def profile(self, number: int = 5, **inputs: Any) -> Profile:
        """As `GraphModule.profile`, timed there."""
        self.set_input(**inputs)
        launches, seconds, call_seconds = self._long("profile", number=number)
        found = tuple(KernelTime(*launch) for launch in launches)
        return Profile(found, seconds, str(self.device), call_seconds)

    def _long(self, function: str, **arguments: Any) -> Any:
        seconds = max(self._session.timeout, _BENCHMARK_SECONDS)
        return self._session.call(function, seconds=seconds, held=self._held, **arguments)

    def _there(self, value: Any) -> NDArray:
        if isinstance(value, NDArray) and value.device == self.device:
            return value
        return array(value.numpy() if isinstance(value, NDArray) else value, self.device)

    def _got(self, what: str, key: str | int, out: NDArray | None) -> NDArray:
        held, shape, dtype = self._session.call("get", held=self._held, what=what, key=key)
        found = self._array(held, tuple(shape), dtype)
        return found if out is None else found.copyto(out)

    def _array(self, held: int, shape: tuple[int, ...], dtype: str) -> NDArray:
        """What the other side holds under a number."""
        kind = DType(dtype)
        nbytes = int(np.prod(shape, dtype=np.int64)) * kind.bytes
        return NDArray(shape, kind, self.device, RemoteMemory(self._session, held, max(nbytes, 1)))


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
        min_repeat_ms: float = 0, limit_zero_time_iterations: int = 100,
        cooldown_interval_ms: float = 0, repeats_to_cooldown: int = 1, cache_flush_bytes: int = 0,
    ) -> Callable[..., BenchmarkResult]:  # fmt: skip
        """A function of arrays that gives seconds of one call, timed there; see `Module`."""
        self._check(dev, f"time_evaluator({func_name!r}, {dev})")
        options = {
            "number": number, "repeat": repeat, "min_repeat_ms": min_repeat_ms,
            "limit_zero_time_iterations": limit_zero_time_iterations,
            "cooldown_interval_ms": cooldown_interval_ms,
            "repeats_to_cooldown": repeats_to_cooldown, "cache_flush_bytes": cache_flush_bytes,
        }  # fmt: skip

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


def _shape(spec: TensorSpec) -> tuple[tuple[int, ...], str]:
    return spec.shape, spec.dtype


def _of(one: NDArray) -> list[Any]:
    """An array as the other side names it: memory, shape, element type."""
    return [one.memory.held, list(one.shape), str(one.dtype)]  # type: ignore[attr-defined]
