"""`GraphModule`: runs a compiled network on a device, every kernel through one `LaunchSequence`.

In: `lib["default"](dev)` and arrays.  Out: arrays, latencies.  Inputs, outputs and intermediate
values live in buffers that are allocated once.  Read next: `library.py`, `profile.py`.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from tilewright.base.doors import door, is_integer
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError
from tilewright.runtime.device import Device
from tilewright.runtime.ndarray import NDArray, converted, overwrite, to_numpy
from tilewright.runtime.network.functions import Functions, by_name
from tilewright.runtime.network.instance import Instance, slots_of
from tilewright.runtime.network.loaded import LoadedLibrary
from tilewright.runtime.network.ownership import Ownership
from tilewright.runtime.network.param_dict import load_param_dict
from tilewright.runtime.network.plan import TensorSpec
from tilewright.runtime.network.profile import KernelTime, Profile
from tilewright.runtime.network.states import States
from tilewright.runtime.timing import BenchmarkResult

_MAX_NUMBER = 1 << 20
_ROUNDS = 3  # of a profile: what else the machine does changes between them
_LEAST_MS = 0.5  # of a launch's window: shorter ones say more of a GPU's clock than of the kernel
_ONE_EACH = (
    'Give each thread its own GraphModule(lib["default"](dev)), which share code and weights, or '
    "write `with module:` around set_input, run and get_output."
)


class GraphModule:
    """A network ready to run.  Two modules of one library share code and weights, nothing else.

    A library for several batch sizes runs the one that the shape of an input asks for.  Where it
    was built with `partial_batches=True`, a batch between two sizes runs in the greater one, filled
    up with zeros, and outputs have as many samples as were given.

    Inputs and outputs are its state, so it belongs to the thread that uses it first, until that
    thread ends.  Threads that share one write `with module:` around what belongs together, from
    `set_input` to reading the outputs, and then take turns.  Otherwise another thread's call raises
    DeviceError.
    """

    def __new__(cls, module: LoadedLibrary, *_: Any, **__: Any) -> Any:
        elsewhere = getattr(module, "graph_module", None)  # it is loaded on another machine
        return super().__new__(cls) if elsewhere is None else elsewhere()

    def __init__(self, module: LoadedLibrary) -> None:
        module = getattr(module, "loaded", module)  # of another one: it has the network
        if not isinstance(module, LoadedLibrary):
            raise DeviceError(
                f"GraphModule({type(module).__name__})",
                "the network is not on a device yet" if hasattr(module, "load_on")
                else "it is no compiled network",
                'Write GraphModule(lib["default"](dev)).',
            )  # fmt: skip
        self.loaded, self.device = module, module.device
        self._own = Ownership("GraphModule", _ONE_EACH)
        self._index = {spec.name: k for k, spec in enumerate(module.library.plan.inputs)}
        self._slots = slots_of(module)
        self._instances: dict[int, Instance] = {}  # by plan; those whose shapes were given
        self._unset: set[int] = set()  # inputs whose value has the shape of another plan
        self._given: dict[int, int] = {}  # samples of inputs that have fewer than their shape says
        self._bounds = {bound.input: bound for bound in module.library.plan.bounds}
        self._now = self._instance(0)
        self._states = States(self._now)
        # Of states, such as a position that the network counts itself: to look at one on a GPU, the
        # host would wait for it.
        kept = {s.input for s in module.library.plan.states} & self._bounds.keys()
        counts = {k: self._bounds.pop(k) for k in kept}
        self._counts = counts if self.device.kind == "cpu" else {}

    # -- inputs and outputs ------------------------------------------------------------------------

    def set_input(self, key: str | int | None = None, value: Any = None, **params: Any) -> None:
        """Copy `value` (numpy array, NDArray, nested list) into input `key`, by name or position.

        params: further inputs by name
        Numbers of another element type are converted as by `NDArray.copyfrom`.  Weights by the
        names of `lib.get_params()` are in the library already: equal ones may be given again.
        Raises DeviceError for an unknown input, another shape, and numbers that the type of the
        input does not hold.
        """
        with self._own:
            if key is not None:
                self._set(key, value)
            for name, item in params.items():
                self._set(name, item)

    def set_inputs(self, values: Mapping[str, Any]) -> None:
        """`set_input` of inputs by name, whatever they are called."""
        with self._own:
            fitting = [(k, v) for n, v in values.items() if (k := self._fits(n, v)) is not None]
            if len(fitting) == len(values):
                self._set_fitting(fitting)
                return
            for name, value in values.items():
                self._set(name, value)

    def set_input_zero_copy(
        self, key: str | int | None = None, value: Any = None, **params: Any
    ) -> None:
        """Let input `key` be the array `value` itself: runs read what it holds then.

        value: an NDArray on this device, of the shape and element type of the input
        Another array than before prepares the launches anew, which takes about as long as to make
        a `GraphModule`.  Raises DeviceError for what cannot be used where it is.
        """
        with self._own:
            given: list[tuple[str | int, Any]] = [] if key is None else [(key, value)]
            for name, item in (*given, *params.items()):
                self._use(self._position("set_input_zero_copy", name), item)

    @door(DeviceError)
    def load_params(self, params_bytes: bytes | bytearray) -> None:
        """Set inputs, and compare weights, by what `runtime.save_param_dict` wrote."""
        with self._own:
            for name, value in load_param_dict(params_bytes).items():
                self._set(name, value)

    @door(DeviceError)
    def share_params(self, other: GraphModule, params_bytes: bytes | bytearray) -> None:
        """Weights are shared by all modules of a library: this checks that `other` is one.

        params_bytes: the weights, as for `load_params`
        Raises DeviceError for a module of another library.
        """
        if other.loaded.library is not self.loaded.library:
            raise DeviceError(
                "share_params", "the other module is of another library",
                "Make both of one: GraphModule(lib[\"default\"](dev)).",
            )  # fmt: skip
        self.load_params(params_bytes)

    def run(self, **inputs: Any) -> None:
        """Set `inputs` and run.  On a GPU this enqueues; reading an output waits for it."""
        with self._own:
            for name, value in inputs.items():
                self._set(name, value)
            self._run()

    def get_output(self, index: int, out: NDArray | None = None) -> NDArray:
        """Output `index`: the buffer that the next run overwrites, or its copy in `out`."""
        self._check_index("get_output", index, self.get_num_outputs(), "outputs")
        with self._own:
            found = self._now.outputs[index]
            for count in self._given.values():  # they are equal
                shape = count, *found.shape[1:]
                found = NDArray(shape, found.dtype, found.device, found.memory)
                break
            return found if out is None else found.copyto(out)

    def get_input(self, key: str | int, out: NDArray | None = None) -> NDArray:
        """The buffer of an input, or its copy in `out`."""
        with self._own:
            found = self._now.inputs[self._position("get_input", key)]
            return found if out is None else found.copyto(out)

    def __enter__(self) -> GraphModule:
        self._own.take()
        return self

    def __exit__(self, *_: object) -> None:
        self._own.leave()

    def get_num_inputs(self) -> int:
        return len(self._now.plan.inputs)

    def get_num_outputs(self) -> int:
        return len(self._now.plan.outputs)

    @door(DeviceError)
    def get_input_index(self, name: str) -> int:
        """The position of an input, -1 where there is none of that name."""
        return self._index.get(name, -1)

    def get_input_info(self) -> tuple[dict[str, tuple[int, ...]], dict[str, str]]:
        """Shapes and element types of the inputs, by name."""
        specs = self._now.plan.inputs
        return {s.name: s.shape for s in specs}, {s.name: str(s.dtype) for s in specs}

    def __getitem__(self, name: str) -> Any:
        """`module["run"]`: a method by its name, as TVM's modules have them."""
        return by_name(self, name)

    @property
    def module(self) -> Functions:
        """What TVM has below: functions by name, `time_evaluator`; and the network it runs."""
        return Functions(self, self.loaded)

    @property
    def planned_bytes(self) -> int:
        """Device memory of all intermediate values, for any plan of the library."""
        return sum(held.nbytes for held in self._slots)

    # -- states ------------------------------------------------------------------------------------

    @property
    def states(self) -> tuple[TensorSpec, ...]:
        """What stays on the device: inputs whose next value each run computes."""
        plan = self.loaded.library.plan
        return tuple(plan.inputs[state.input] for state in plan.states)

    def reset(self) -> None:
        """Let all states begin anew."""
        with self._own:
            self._states.reset()

    def state(self) -> dict[str, np.ndarray]:
        """Copy all states to host memory, by name; `set_state` takes them."""
        with self._own:
            return {name: held.numpy() for name, held in self._states.arrays().items()}

    @door(DeviceError)
    def set_state(self, values: Mapping[str, Any]) -> None:
        """Set states by name, as `state` gave them; others stay.

        Raises DeviceError for a name that is none, another shape or element type; then none is set.
        """
        with self._own:
            self._states.set(values, "set_state")

    def fork(self) -> GraphModule:
        """Make another module of the library, which goes on from the same states by itself."""
        other = GraphModule(self.loaded)
        with self._own:
            other._states.set(self._states.arrays(), "fork")
        return other

    @contextmanager
    def _unchanged(self) -> Iterator[None]:
        """Runs that only take time leave the states as they were."""
        before = self._states.arrays()
        try:
            yield
        finally:
            self._states.set(before, "set_state")

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
        with self._own, self._unchanged():
            self.set_input(**inputs)
            if end_to_end:
                return self._end_to_end(repeat, number, min_repeat_ms or 0)
            self._check_set()
            if self._now.sequence is None:
                raise DeviceError(
                    place, "the network has no kernel to time",
                    "It only hands its inputs on; time one that computes.",
                )  # fmt: skip
            return self._now.sequence.time(
                number, repeat, min_repeat_ms or 0,
                limit_zero_time_iterations=limit_zero_time_iterations,
                cooldown_interval_ms=cooldown_interval_ms, repeats_to_cooldown=repeats_to_cooldown,
            )  # fmt: skip

    def profile(self, number: int = 5, **inputs: Any) -> Profile:
        """Each launch timed alone, at least `number` times back to back, whole runs, and calls from
        host memory to host memory; of three rounds the medians.  Printable.

        inputs: set before
        """
        library = self.loaded.library
        with self._own, self._unchanged():
            self.set_input(**inputs)
            self._check_set()
            launches, whole = self._now.plan.launches, self._now.sequence
            alone = [self._now.sequence_of(calls) for calls in self._now.launches]
            rounds: list[list[float]] = []
            for _ in range(_ROUNDS):
                runs = 0.0 if whole is None else whole.time(number, min_repeat_ms=_LEAST_MS).median
                call = self._end_to_end(1, number, _LEAST_MS).median
                each = [one.time(number, min_repeat_ms=_LEAST_MS).median for one in alone]
                rounds.append([runs, call, *each])
        run, call, *seconds = (statistics.median(each) for each in zip(*rounds, strict=True))
        found = []
        for launch, taken in zip(launches, seconds, strict=True):
            buffers = library.kernels[launch.kernel].source.buffers
            nbytes = sum(b.nbytes for b in buffers if b.role in ("input", "output"))
            told = library.report.kernels[launch.kernel]
            found.append(
                KernelTime(
                    told.name, taken, told.flop, nbytes, told.label, launch.layers, told.least,
                    told.limit,
                )
            )  # fmt: skip
        return Profile(tuple(found), run, str(self.device), call)

    def launch_seconds(self, rounds: int) -> list[list[float]]:
        """Time each launch, one figure a round: where it lies in a run, after those before it."""
        with self._own, self._unchanged():
            self._check_set()
            each = [self._now.sequence_of(calls) for calls in self._now.launches]
            for sequence in each:  # its first run takes longer on some devices
                sequence.run()
            self.device.sync()
            taken = [[sequence.once() for sequence in each] for _ in range(rounds)]
        return [list(of_one) for of_one in zip(*taken, strict=True)]

    def _end_to_end(self, repeat: int, number: int, min_repeat_ms: float) -> BenchmarkResult:
        hosts = [held.numpy() for held in self._now.inputs]
        if repeat < 1 or number < 1:
            raise DeviceError(
                f"benchmark(repeat={repeat}, number={number})", "both must be at least 1",
                "Try repeat=5, number=5.",
            )  # fmt: skip

        def once() -> None:
            for held, host in zip(self._now.inputs, hosts, strict=True):
                held.copyfrom(host)
            self._run()
            to_numpy(self._now.outputs)

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

    def _instance(self, index: int) -> Instance:
        if index not in self._instances:
            plan = self.loaded.library.plans[index]
            first = self._instances.get(0)
            self._instances[index] = Instance(self.loaded, plan, self._slots, first)
        return self._instances[index]

    def _run(self) -> None:
        self._check_set()
        self._check_counts()
        if self._now.sequence is not None:
            self._now.sequence.run()
        self._states.advance()

    def _use(self, k: int, value: Any) -> None:
        spec = self._now.plan.inputs[k]
        place = f"set_input_zero_copy({spec.name!r})"
        if not isinstance(value, NDArray) or value.device != self.device:
            raise DeviceError(
                place, f"the value is no array on {self.device}",
                "Make one with nd.array(value, device), or use set_input.",
            )  # fmt: skip
        if value.shape != spec.shape or value.dtype != spec.dtype:
            raise DeviceError(
                place, f"the value is {value.dtype}{list(value.shape)}, the input "
                f"{spec.dtype}{list(spec.shape)}", "Use set_input, which converts and copies.",
            )  # fmt: skip
        self._now.use_input(k, value)
        self._unset.discard(k)
        self._given.pop(k, None)

    def _fits(self, key: Any, value: Any) -> int | None:
        """The number of an input, named, whose value is like the one it has: as nearly always."""
        k = self._index.get(key)
        if k is None or not isinstance(value, np.ndarray):
            return None
        held = self._now.inputs[k]
        return k if value.dtype == held.dtype.storage and value.shape == held.shape else None

    def _set_fitting(self, values: Sequence[tuple[int, np.ndarray]]) -> None:
        for k, value in values:
            self._check_bound(k, value)
        overwrite([(self._now.inputs[k], value) for k, value in values])
        for k, _ in values:
            self._unset.discard(k)
            self._given.pop(k, None)

    def _set(self, key: str | int, value: Any) -> None:
        fitting = self._fits(key, value)
        if fitting is not None:
            self._set_fitting([(fitting, value)])
            return
        if isinstance(key, str) and key not in self._index and self._is_weight(key, value):
            return
        k = self._position("set_input", key)
        spec = self._now.plan.inputs[k]
        place = f"set_input({spec.name!r})"
        if not isinstance(value, NDArray):
            value = _host_array(value, spec, place)
        if str(value.dtype) != spec.dtype:
            source = value.numpy() if isinstance(value, NDArray) else value
            value = converted(source, DType(spec.dtype), place)
        if k in self._bounds:
            self._check_bound(k, value.numpy() if isinstance(value, NDArray) else value)
        if tuple(value.shape) != spec.shape:
            self._take_plan(k, tuple(value.shape))
            spec = self._now.plan.inputs[k]
        given = tuple(value.shape)
        if self._now.plan.partial and _is_part(given, spec.shape):
            value = _filled_up(value, spec.shape)
        if tuple(value.shape) != spec.shape:
            raise DeviceError(
                place,
                f"the value is {value.dtype}{list(value.shape)}, the input "
                f"{spec.dtype}{self._shapes(k)}",
                "Reshape it, or build the network for that shape.",
            )  # fmt: skip
        self._now.inputs[k].copyfrom(value)
        self._unset.discard(k)
        self._given.pop(k, None)
        if given != spec.shape:
            self._given[k] = given[0]

    def _check_bound(self, k: int, value: np.ndarray) -> None:
        """Raises DeviceError for numbers that input `k` may not have."""
        bound = self._bounds.get(k)
        wrong = None if bound is None else bound.wrong(value)
        if bound is not None and wrong is not None:
            name = self._now.plan.inputs[k].name
            raise DeviceError(
                f"set_input({name!r})", f"{wrong} is not from {bound.least} to {bound.most}",
                "Give numbers from there: nothing was written.",
            )  # fmt: skip

    def _check_counts(self) -> None:
        """Raises DeviceError for states with which a run would write beyond others."""
        for k, bound in self._counts.items():
            if (wrong := bound.wrong(self._now.inputs[k].numpy())) is not None:
                name = self._now.plan.inputs[k].name
                raise DeviceError(
                    "run()", f"state {name!r} is {wrong}, not from {bound.least} to {bound.most}",
                    "Begin anew with reset(), or set it with set_state(): nothing was written.",
                )  # fmt: skip

    def _take_plan(self, k: int, shape: tuple[int, ...]) -> None:
        """Run the plan whose input `k` has this shape from now on, if there is one; or the smallest
        that such a batch is a part of.

        Inputs that have the same shape in it keep their values, the others are to be set anew.
        """
        plans = self.loaded.library.plans
        shapes = {i: p.inputs[k].shape for i, p in enumerate(plans)}
        larger = [i for i, s in shapes.items() if plans[i].partial and _is_part(shape, s)]
        fitting = [i for i, s in shapes.items() if s == shape] or larger
        index = min(fitting, key=lambda i: shapes[i][:1], default=None)
        if index is None or self._instance(index) is self._now:
            return
        before, self._now = self._now, self._instance(index)
        self._states.of(self._now)
        for i, (old, new) in enumerate(zip(before.inputs, self._now.inputs, strict=True)):
            if old is new:  # a state
                continue
            if old.shape == new.shape and i not in self._unset:
                old.copyto(new)
            else:
                self._unset.add(i)
                self._given.pop(i, None)

    def _check_set(self) -> None:
        if self._unset:
            missing = ", ".join(str(self._now.plan.inputs[k]) for k in sorted(self._unset))
            raise DeviceError(
                "run()", f"the inputs set since belong to other shapes than {missing}",
                "Set every input for the new shapes before a run.",
            )  # fmt: skip
        if not self._given:
            return
        specs = enumerate(self._now.plan.inputs)
        counts = {self._given.get(k, next(iter(spec.shape), 0)) for k, spec in specs}
        if len(counts) > 1:
            raise DeviceError(
                "run()", f"the inputs have {' and '.join(map(str, sorted(counts)))} samples",
                "Set every input for as many.",
            )  # fmt: skip

    def _shapes(self, k: int) -> str:
        """Every shape that input `k` may have."""
        shapes = dict.fromkeys(p.inputs[k].shape for p in self.loaded.library.plans)
        return " or ".join(str(list(shape)) for shape in shapes)

    def _position(self, what: str, key: str | int) -> int:
        if isinstance(key, str):
            if key in self._index:
                return self._index[key]
            raise DeviceError(f"{what}({key!r})", *self._unknown(key))
        self._check_index(what, key, self.get_num_inputs(), "inputs")
        return int(key)

    def _is_weight(self, name: str, value: Any) -> bool:
        """Whether it is a weight of the library, given once more.  Raises for another value."""
        known = self.loaded.library.get_params().get(name)
        if known is None:
            return False
        given = np.asarray(value.numpy() if hasattr(value, "numpy") else value)
        raw = np.ascontiguousarray(given).reshape(-1).view(np.uint8)
        if given.shape != known.shape or not np.array_equal(raw, known.reshape(-1).view(np.uint8)):
            raise DeviceError(
                f"set_input({name!r})", "it is a weight of the library, which has another value",
                "Build the network with the new weights, or leave them out of its params when it "
                "is built, to set them before a run.",
            )  # fmt: skip
        return True

    def _unknown(self, name: str) -> tuple[str, str]:
        if name in self.loaded.library.plan.bound:
            return (
                "this parameter became a constant when the network was built",
                "Leave it out of its params when it is built, to set it before each run.",
            )
        listed = ", ".join(map(str, self._now.plan.inputs)) or "none"
        return "the network has no such input", f"Its inputs: {listed}."

    def _check_index(self, what: str, index: Any, count: int, kind: str) -> None:
        if not is_integer(index) or not 0 <= index < count:
            raise DeviceError(
                f"{what}({index!r})", f"the network has {count} {kind}",
                f"Use 0 to {count - 1}." if count else "",
            )  # fmt: skip

    def __repr__(self) -> str:
        return f"GraphModule({self.loaded!r})"


def _is_part(shape: tuple[int, ...], whole: tuple[int, ...]) -> bool:
    """Whether there are fewer samples than in `whole`, but some."""
    return len(shape) > 0 and shape[1:] == whole[1:] and 0 < shape[0] < whole[0]


def _filled_up(value: NDArray | np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """`value` and zeros behind it."""
    given = value.numpy() if isinstance(value, NDArray) else value
    whole = np.zeros(shape, given.dtype)
    whole[: len(given)] = given
    return whole


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
