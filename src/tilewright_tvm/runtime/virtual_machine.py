"""`VirtualMachine`: functions that take arrays and give arrays, where `GraphModule` has steps.

In: a `Library`, or what builds one for the shapes that it is given (`relay.vm.compile`).  Out:
arrays of their own.  Read next: `graph_executor.py`.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.timing import BenchmarkResult, measure

Run = Callable[[Library, Sequence[Any]], Sequence[Any]]  # a library on the values of its inputs
MOST_LOADED = 64  # libraries that one machine has on its device
Nesting = tuple[Any, ...] | None  # of a result: None for one array, else that of each of several


class Builder(Protocol):
    """input_names: of "main", in order; nesting: of its result; tensors: of inputs, some of which
    may be tuples; waits: values decide shapes, so `staged` runs it in parts, each a library;
    program: of a functional network, which `called` runs likewise."""

    @property
    def input_names(self) -> tuple[str, ...]: ...
    @property
    def nesting(self) -> Nesting: ...
    def tensors(self, values: Sequence[Any]) -> list[Any]: ...
    @property
    def waits(self) -> bool: ...
    @property
    def program(self) -> Any: ...
    def library_for(self, shapes: Sequence[tuple[int, ...]]) -> Library: ...
    def staged(self, values: Sequence[Any], run: Run) -> tuple[list[Any], Nesting]: ...
    def called(self, values: Sequence[Any], run: Run, device: Device) -> Any: ...


class VirtualMachine:
    """Runs "main" of a network; one `GraphModule` for each library that shapes have asked for."""

    @door(DeviceError)
    def __init__(self, exe: Any, device: Device) -> None:
        self.device = device
        self._built: Builder = _Finished(exe) if isinstance(exe, Library) else exe
        if not hasattr(self._built, "library_for"):
            raise DeviceError(
                f"VirtualMachine({type(exe).__name__})", "it is no compiled network",
                "Give what relay.vm.compile, relay.build or runtime.load_module gave.",
            )  # fmt: skip
        self._modules: OrderedDict[Library, GraphModule] = OrderedDict()
        self._now: GraphModule | _Staged | _Called | None = None
        self._given: dict[str, Any] = {}  # inputs that were set one by one

    def set_input(self, func_name: str, *args: Any, **named: Any) -> None:
        """The inputs of "main", in order or by name: all of them.

        Raises DeviceError for another function, a missing or unknown input and wrong shapes.
        """
        place = f"VirtualMachine.set_input({func_name!r})"
        if func_name != "main":
            raise DeviceError(place, "there is no such function", 'Use "main".')
        given = ordered(self._built.input_names, args, named, place)
        if self._built.program is not None:
            self._now = _Called(self._built, given, self._computed, self.device)
            return
        values = self._built.tensors(given)
        if self._built.waits:
            self._now = _Staged(self._built, values, self._computed)
            return
        self._now = self._loaded(self._built.library_for([shape_of(v) for v in values]), values)

    def set_one_input(self, func_name: str, *args: Any, **named: Any) -> None:
        """One input of "main": its position or name, and the value; or name=value.  `invoke`
        without arguments runs when all are set.

        Raises DeviceError for another function, an unknown input and wrong shapes.
        """
        place = f"VirtualMachine.set_one_input({func_name!r})"
        names = self._built.input_names
        if len(args) == 2 and not named:
            tag, value = args
        elif len(named) == 1 and not args:
            ((tag, value),) = named.items()
        else:
            raise DeviceError(place, "it is not one input", 'Give ("main", name, value).')
        if isinstance(tag, int) and 0 <= tag < len(names):
            tag = names[tag]
        if tag not in names:
            raise DeviceError(place, f"{tag} is no input", f"Use one of {', '.join(names)}.")
        self._given[tag] = value
        if len(self._given) == len(names):
            self.set_input(func_name, **self._given)
            self._given = {}

    def _loaded(self, library: Library, values: Sequence[Any]) -> GraphModule:
        if library not in self._modules:
            self._modules[library] = GraphModule(library["default"](self.device))
            if len(self._modules) > MOST_LOADED:
                self._modules.popitem(last=False)
        self._modules.move_to_end(library)
        module = self._modules[library]
        for k, value in enumerate(values):
            module.set_input(k, value)
        return module

    def _computed(self, library: Library, values: Sequence[Any]) -> list[NDArray]:
        """The results of a part of the network."""
        module = self._loaded(library, values)
        module.run()
        return [module.get_output(k).copyto(self.device) for k in range(module.get_num_outputs())]

    def run(self, *args: Any, **named: Any) -> Any:
        """`invoke("main", ...)`; without arguments what was set."""
        if args or named or not self._built.input_names:
            return self.invoke("main", *args, **named)
        self.invoke_stateful("main")
        return self._result()

    def invoke(self, func_name: str, *args: Any, **named: Any) -> Any:
        """The result for these inputs, or those that were set: an NDArray, or a list of them where
        there are several."""
        if args or named or self._now is None:
            self.set_input(func_name, *args, **named)
        self.invoke_stateful(func_name)
        return self._result()

    def invoke_stateful(self, func_name: str, *args: Any, **named: Any) -> None:
        """`invoke`, of which `get_outputs` gives the result."""
        if args or named:
            self.set_input(func_name, *args, **named)
        self._ready("invoke_stateful").run()

    def invoke_with_outputs(
        self, func_name: str, input_args: Mapping[str, Any], output_args: Sequence[NDArray]
    ) -> None:
        """`invoke` for inputs by name, which puts its results into `output_args`.

        Raises DeviceError for another number of results.
        """
        self.invoke_stateful(func_name, **input_args)
        found = self.get_outputs()
        if len(found) != len(output_args):
            raise DeviceError(
                "VirtualMachine.invoke_with_outputs",
                f"{len(output_args)} arrays for {len(found)} results", "Give one for each.",
            )  # fmt: skip
        for result, there in zip(found, output_args, strict=True):
            result.copyto(there)

    def get_outputs(self) -> list[NDArray]:
        """Copies of all results of the last run."""
        module = self._ready("get_outputs")
        if isinstance(module, _Called):
            return module.result if isinstance(module.result, list) else [module.result]
        if isinstance(module, _Staged):
            return [
                out.copyto(self.device) if isinstance(out, NDArray) else array(out, self.device)
                for out in module.outputs
            ]
        return [module.get_output(k).copyto(self.device) for k in range(module.get_num_outputs())]

    @door(DeviceError)
    def get_input_index(self, input_name: str, func_name: str = "main") -> int:
        """The position of an input, -1 where there is none of that name."""
        names = self._built.input_names
        return names.index(input_name) if input_name in names else -1

    def benchmark(
        self,
        device: Device,
        *args: Any,
        func_name: str = "main",
        repeat: int = 5,
        number: int = 5,
        min_repeat_ms: float | None = None,
        end_to_end: bool = False,
        **named: Any,
    ) -> BenchmarkResult:
        """Seconds of one run with these inputs; options as for `GraphModule.benchmark`."""
        self.set_input(func_name, *args, **named)
        module = self._ready("benchmark")
        if isinstance(module, _Timed):
            return measure(module, number, repeat, min_repeat_ms or 0)
        return module.benchmark(
            device, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms, end_to_end=end_to_end
        )

    def _ready(self, what: str) -> GraphModule | _Staged | _Called:
        if self._now is None:
            raise DeviceError(
                f"VirtualMachine.{what}", "no input was set", 'Call set_input("main", ...) first.'
            )
        return self._now

    def _result(self) -> Any:
        if isinstance(self._now, _Called):
            return self._now.result
        outputs = self.get_outputs()
        now = self._ready("get_outputs")
        nesting = now.nesting if isinstance(now, _Staged) else self._built.nesting
        return nested(iter(outputs), nesting)


class _Timed:
    """What runs by itself, in parts."""

    def run(self) -> None:
        raise NotImplementedError

    def seconds(self, number: int, flush_bytes: int = 0) -> float:
        """Of one run, on average, by the clock of this machine."""
        began = time.perf_counter()
        for _ in range(number):
            self.run()
        return (time.perf_counter() - began) / number


class _Called(_Timed):
    """One call of a functional network."""

    def __init__(self, built: Builder, values: Sequence[Any], run: Run, device: Device) -> None:
        self.result: Any = None
        self._built, self._values, self._run, self._device = built, values, run, device

    def run(self) -> None:
        self.result = self._built.called(self._values, self._run, self._device)


class _Staged(_Timed):
    """One call of a network that is built for the values it is called with."""

    def __init__(self, built: Builder, values: Sequence[Any], run: Run) -> None:
        self.outputs: list[Any] = []
        self.nesting: Nesting = None
        self._built, self._values, self._run = built, values, run

    def run(self) -> None:
        self.outputs, self.nesting = self._built.staged(self._values, self._run)


class _Finished:
    """A library as a `Builder`: there is one for all shapes."""

    def __init__(self, library: Library) -> None:
        self.library, self.waits, self.program = library, False, None
        self.input_names = tuple(spec.name for spec in library.plan.inputs)
        count = len(library.plan.outputs)
        self.nesting: Nesting = None if count == 1 else (None,) * count

    def tensors(self, values: Sequence[Any]) -> list[Any]:
        return list(values)

    def library_for(self, shapes: Sequence[tuple[int, ...]]) -> Library:
        return self.library

    def staged(self, values: Sequence[Any], run: Run) -> tuple[list[Any], Nesting]:
        return list(run(self.library, values)), self.nesting

    def called(self, values: Sequence[Any], run: Run, device: Device) -> Any:
        return nested(iter(run(self.library, values)), self.nesting)


def nested(outputs: Iterator[NDArray], nesting: Nesting) -> Any:
    """A flat list of results as lists in lists."""
    return next(outputs) if nesting is None else [nested(outputs, part) for part in nesting]


def ordered(
    names: Sequence[str], args: Sequence[Any], named: Mapping[str, Any], place: str
) -> list[Any]:
    """The values of inputs, in the order of `names`.  Raises DeviceError unless each has one."""
    given = dict(zip(names, args, strict=False))
    unknown = [name for name in named if name not in names or name in given]
    missing = [name for name in names if name not in given and name not in named]
    if len(args) > len(names) or unknown or missing:
        wrong = (
            f"{unknown[0]} is no input, or given twice" if unknown
            else f"{missing[0]} is missing" if missing else f"{len(args)} inputs are given"
        )  # fmt: skip
        raise DeviceError(place, wrong, f"Give {', '.join(names) or 'nothing'}.")
    return [given[name] if name in given else named[name] for name in names]


def shape_of(value: Any) -> tuple[int, ...]:
    return tuple(value.shape) if hasattr(value, "shape") else np.shape(value)
