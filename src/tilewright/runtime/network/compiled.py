"""`Compiled`: a network on a device as a function of arrays; `open`: the same from its file.

In: a `Library`, or the path of one; arrays of numpy, of PyTorch, or of others that speak DLPack.
Out: arrays of the same kind.  Nothing here imports the compiler.
Read next: `graph_executor.py`, `torch_calls.py`.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from typing import Any

import numpy as np

from tilewright.base.concurrency import cached_property, lock
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError, ModelError, TilewrightError, named, renamed
from tilewright.base.model_files import check_compiled
from tilewright.runtime.device import Device, cpu, device
from tilewright.runtime.dlpack import HOST_CODES
from tilewright.runtime.load import load_module
from tilewright.runtime.ndarray import NDArray, from_dlpack, to_numpy
from tilewright.runtime.network.archives import complete
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.ownership import Ownership
from tilewright.runtime.network.plan import TensorSpec
from tilewright.runtime.network.profile import Profile
from tilewright.runtime.network.report import BuildReport
from tilewright.runtime.network.torch_calls import current_stream, function, is_capturing
from tilewright.runtime.timing import BenchmarkResult
from tilewright.targets.target import Target

_FORK = "Give each thread states of its own, which share code and weights: run.fork()."
Back = Callable[[list[NDArray]], list[Any]]  # from buffers that the next run overwrites


class Compiled:
    """A compiled network: call it with its inputs, and it gives its outputs.

        y = run(x)              # in the order of `run.inputs`
        y = run(data=x)         # by name; run({"input.1": x}) where a name is no word of Python

    It gives one array, or a tuple where the network has several outputs: of numpy for arrays and
    lists of numpy, of PyTorch for tensors, otherwise of the library whose arrays were given, by
    DLPack.  Tensors of PyTorch on the device of the network are read where they are, and results
    are computed in tensors of PyTorch's.  Threads may share it; they take turns.  One with states
    belongs to the thread that calls it first, until that ends; `fork` gives another thread its own.

    States (`states`), such as caches of keys and values and a position, stay on the device between
    calls: they are neither given nor returned.

    library: the network for one set of input shapes or several, of which the inputs' shapes choose
    device:  where it runs; default: the first of the kind that it was built for
    """

    @door(ModelError, "Compiled")
    def __init__(self, library: Library, device: Device | None = None) -> None:
        self.library = library
        self.device = device or _first(library)
        self._on_tensors: dict[Any, Callable[[Sequence[Any]], Any] | None] = {}
        self._turn = lock()
        self._own = Ownership("a network with states", _FORK) if library.plan.states else None

    @property
    def inputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and element type of each input; of the first of several sets of shapes."""
        plan = self.library.plan
        return tuple(plan.inputs[k] for k in plan.given)

    @property
    def outputs(self) -> tuple[TensorSpec, ...]:
        """Name, shape and element type of each output, likewise."""
        plan = self.library.plan
        return tuple(plan.outputs[k][0] for k in plan.returned)

    @property
    def target(self) -> Target:
        """What it was built for."""
        return Target(self.library.target)

    @property
    def report(self) -> BuildReport:
        """What each kernel is and where its schedule is from; printable."""
        return self.library.report

    def __call__(self, /, *args: Any, **by_name: Any) -> Any:
        """Compute the outputs for these inputs.

        Floats are rounded to the element type of an input where they are of another one; integers
        are taken where it holds them.
        Raises DeviceError for another number of inputs, a name that there is not, another shape or
        a type that cannot be, each naming the input; and where the device is not there.
        """
        given = self._given("run", args, by_name)
        quick = self._call_of(given)
        if quick is not None:
            return _unpacked(quick(given))
        return _unpacked(self.computed(given, lambda buffers: _back(given)(buffers)))

    def computed(self, given: Sequence[Any], back: Back) -> list[Any]:
        """Run with these inputs, in their order; give what `back` makes of the outputs' buffers.

        Raises DeviceError as a call does.
        """
        with self._held() as module:
            self._set(module, dict(zip(self._names, given, strict=True)))
            module.run()
            return back([module.get_output(k) for k in self.library.plan.returned])

    def time(self, /, *args: Any, **by_name: Any) -> float:
        """Measure how long a run takes: the median of five repeats of 100 ms or more, in seconds.

        args, by_name: as of a call; inputs that are left out are drawn at random, of integers zeros
        What it takes to bring arrays to the device and back does not count.
        """
        return self.benchmark(*args, min_repeat_ms=100, **by_name).median

    def benchmark(
        self,
        /,
        *args: Any,
        number: int = 5,
        repeat: int = 5,
        min_repeat_ms: float = 0,
        end_to_end: bool = False,
        **by_name: Any,
    ) -> BenchmarkResult:
        """Time runs, `repeat` times the mean of `number` back to back; in seconds, printable.

        args, by_name:   as of `time`
        min_repeat_ms: `number` grows until a repeat lasts so long
        end_to_end:    also count bringing inputs to the device and outputs to host memory
        """
        with self._held() as module:
            self._set(module, self._filled("benchmark", args, by_name))
            return module.benchmark(
                self.device, repeat=repeat, number=number, min_repeat_ms=min_repeat_ms,
                end_to_end=end_to_end,
            )  # fmt: skip

    def profile(self, /, *args: Any, number: int = 5, **by_name: Any) -> Profile:
        """Time each kernel alone, at least `number` times back to back; printable.

        args, by_name: as of `time`
        """
        with self._held() as module:
            self._set(module, self._filled("profile", args, by_name))
            return module.profile(number=number)

    @property
    def states(self) -> tuple[TensorSpec, ...]:
        """Name, shape and element type of what stays on the device between calls."""
        plan = self.library.plan
        return tuple(plan.inputs[state.input] for state in plan.states)

    def reset(self) -> None:
        """Let all states begin anew."""
        with self._held() as module:
            module.reset()

    def state(self) -> dict[str, np.ndarray]:
        """Copy all states to host memory, by name; `set_state` takes them."""
        with self._held() as module:
            found: dict[str, np.ndarray] = module.state()
        return found

    @door(DeviceError)
    def set_state(self, values: Mapping[str, Any]) -> None:
        """Set states by name, as `state` gave them; others stay.

        Raises DeviceError for a name that is none, another shape or element type; then none is set.
        """
        with self._held() as module:
            module.set_state(values)

    def fork(self) -> Compiled:
        """Make another function with the same code and weights, which goes on from the same states
        by itself."""
        other = Compiled(self.library, self.device)
        with self._module as module:
            other.__dict__["_module"] = module.fork()
        return other

    @door(ModelError, "save")
    def save(self, path: str | os.PathLike[str], cc: str | None = None) -> None:
        """Write one file with code and weights, which `tilewright.open` reads without the compiler.

        path: what ends in .so is a shared object, which needs no LLVM where it is opened, and a
            linker here; .tar, or anything else, an archive
        cc: a C compiler for the target, whose linker makes the shared object
        Raises ModelError where it cannot be written, or a file of another kind is there.
        """
        name = os.fspath(path)
        inner = (name, os.path.basename(name), "net.so")
        with named(f"save({name!r})", *(f"export_library({file!r})" for file in inner)):
            self.library.export_library(path, cc=cc)

    def __repr__(self) -> str:
        told = repr(self.library).removeprefix("Library")
        return f"Compiled{told} on {self.device}"

    # -- inside ------------------------------------------------------------------------------------

    @cached_property
    def _names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.inputs)

    @cached_property
    def _as_inputs(self) -> renamed:
        return renamed(
            {f"set_input({spec.name!r})": f"input {spec.name!r}" for spec in self.inputs}
        )

    @contextmanager
    def _held(self) -> Iterator[GraphModule]:
        """The module, for this thread.

        Raises DeviceError where its states are another's, and while PyTorch records a graph, which
        would end: the module waits, on a stream of its own.
        """
        torch = sys.modules.get("torch")
        if self.device.kind == "cuda" and torch is not None and is_capturing(torch):
            raise DeviceError(
                f"{self!r}",
                "within torch.cuda.graph it takes tensors of PyTorch on its device only"
                + (", and no network with states" if self.library.plan.states else ""),
                "Give tensors, or run it outside.",
            )  # fmt: skip
        with self._own or nullcontext(), self._module as module:
            yield module

    @cached_property
    def _module(self) -> GraphModule:
        return GraphModule(self.library.load_on(self.device))

    def _given(self, call: str, args: Sequence[Any], by_name: Mapping[str, Any]) -> list[Any]:
        """The inputs in their order, each given once.  Raises DeviceError."""
        found = self._by_name(call, args, by_name)
        if missing := [str(spec) for spec in self.inputs if spec.name not in found]:
            raise DeviceError(
                f"{call}()", f"input {missing[0]} is not given", f"It takes {self._told()}."
            )
        return [found[name] for name in self._names]

    def _filled(
        self, call: str, args: Sequence[Any], by_name: Mapping[str, Any]
    ) -> dict[str, Any]:  # fmt: skip
        return complete(self._by_name(call, args, by_name), self.inputs, "random", f"{call}()")

    def _by_name(
        self, call: str, args: Sequence[Any], by_name: Mapping[str, Any]
    ) -> dict[str, Any]:  # fmt: skip
        if len(args) == 1 and isinstance(args[0], Mapping):
            by_name = {**args[0], **by_name}
            args = ()
        if len(args) > len(self._names):
            raise DeviceError(
                f"{call}()", f"{len(args)} inputs are given, the network has {len(self._names)}",
                f"It takes {self._told()}.",
            )  # fmt: skip
        found = dict(zip(self._names, args, strict=False))
        for name, value in by_name.items():
            if name not in self._names or name in found:
                reason = "is given twice" if name in found else "is none of the network"
                raise DeviceError(
                    f"{call}()", f"input {name!r} {reason}", f"It takes {self._told()}."
                )
            found[name] = value
        return found

    def _told(self) -> str:
        return ", ".join(map(str, self.inputs)) or "none"

    def _set(self, module: GraphModule, inputs: Mapping[str, Any]) -> None:
        lent = {}
        for name, value in inputs.items():
            if _speaks_dlpack(value) and not isinstance(value, NDArray):
                with named(f"input {name!r}", "from_dlpack"):
                    lent[name] = _taken(value)
        with self._as_inputs:
            module.set_inputs({**inputs, **lent} if lent else inputs)
        if lent:  # it may be gone before a device has copied it
            self.device.sync()

    def _call_of(self, given: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
        """What calls the network on the memory of these inputs; None where that cannot be."""
        torch = sys.modules.get("torch")
        if self.library.plan.states:  # which are in the memory of one module
            return None
        if torch is None or not given or not all(type(v) is torch.Tensor for v in given):
            return None
        where = given[0].device
        try:
            key = (where, *((v.device, v.layout, v.shape, v.dtype) for v in given))
        except RuntimeError:  # a nested tensor has no shape
            return None
        if key not in self._on_tensors:
            with self._turn:
                self._on_tensors[key] = self._made_call(torch, given)
        return self._on_tensors[key]

    def _made_call(self, torch: Any, given: Sequence[Any]) -> Callable[[Sequence[Any]], Any] | None:
        where = given[0].device
        here = (where.type, where.index or 0) == (self.device.kind, self.device.index)
        alike = all(v.device == where and v.layout is torch.strided and v.numel() for v in given)
        kinds = [(tuple(v.shape), str(v.dtype).removeprefix("torch.")) for v in given]
        plans = [
            plan for plan in self.library.plans
            if plan.launches and [(s.shape, s.dtype) for s in plan.inputs] == kinds
        ]  # fmt: skip
        if not (here and alike and plans):
            return None
        try:
            loaded = self.library.load_on(self.device)
            caller = Caller(loaded, current_stream(torch, where), plans[0])
        except DeviceError:  # the memory there has no addresses
            return None
        outputs = [("output", k) for k in range(len(caller.outputs))]
        return function(torch, caller, range(len(given)), outputs, where)


@door(ModelError, "open")
def open(path: str | os.PathLike[str], device: Device | None = None) -> Compiled:
    """Read what `Compiled.save` or `tilewright compile` wrote; it runs without the compiler.

    device: where it is to run; default: the first of the kind that it was built for
    Raises ModelError for a file that is missing, damaged, or no compiled network.
    """
    place = f"open({os.fspath(path)!r})"
    if not os.path.exists(path):
        raise ModelError(
            place, "there is no such file",
            "Check the path; Compiled.save and `tilewright compile` write such files.",
        )  # fmt: skip
    with named(place, *(f"{what}({os.fspath(path)!r})" for what in ("load", "load_module"))):
        check_compiled(path, place)
        library = load_module(path)
    if not isinstance(library, Library):
        raise ModelError(
            place, "it is one kernel, no network", "Use tilewright.runtime.load_module.",
            command="`tilewright compile` writes networks.",
        )  # fmt: skip
    return Compiled(library, device)


def _first(library: Library) -> Device:
    return device(Target(library.target))


def _unpacked(found: Sequence[Any]) -> Any:
    return found[0] if len(found) == 1 else tuple(found)


def _speaks_dlpack(value: Any) -> bool:
    return not isinstance(value, (np.ndarray, np.generic)) and hasattr(value, "__dlpack__")


def _taken(value: Any) -> Any:
    """An array that speaks DLPack as `GraphModule` takes it.

    Raises DeviceError for one without memory of its own.
    """
    try:
        for step in ("detach", "resolve_conj", "resolve_neg", "contiguous"):  # of PyTorch's
            value = getattr(value, step, lambda value=value: value)()
        return from_dlpack(value)
    except TilewrightError:
        raise
    except Exception as error:  # libraries raise many kinds for what is sparse, or of no device
        told = str(error).partition("\n")[0].rstrip(".")
        raise DeviceError(
            "from_dlpack", f"its elements are not one after another in memory ({told})",
            "Give a dense array with values, of PyTorch x.to_dense(), x.dequantize().",
        ) from None  # fmt: skip


def _back(given: Sequence[Any]) -> Back:
    """How to hand an output on, as the first input is that is no array of numpy."""
    first = next(filter(_speaks_dlpack, given), None)
    if first is None:
        return to_numpy
    if isinstance(first, NDArray):
        return lambda buffers: [held.copyto(held.device) for held in buffers]
    namespace = getattr(first, "__array_namespace__", None)
    library = sys.modules[type(first).__module__.partition(".")[0]]
    taken = (library if namespace is None else namespace()).from_dlpack
    on_host = first.__dlpack_device__()[0] in HOST_CODES
    to = first.device if library.__name__ == "torch" else None

    def back(held: NDArray) -> Any:
        made = taken(held.copyto(cpu() if on_host else held.device))
        return made if to is None else made.to(to)

    return lambda buffers: [back(held) for held in buffers]
