"""What a session may call on the device's side; it runs in a process of the session's own.

In: the name of a call, the session's folder, plain arguments, of the types and within the bounds
that the call declares.  Out: plain values.  Memory, libraries and networks stay in the process,
under numbers; the other side holds the numbers.
Read next: `session.py` (the other side), `board.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import astuple
from functools import cache
from math import prod
from pathlib import Path
from typing import Annotated, Any, get_type_hints

import msgspec
import numpy as np
from msgspec import Meta
from msgspec.structs import asdict

from tilewright.base import names
from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError
from tilewright.farm import bounds
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import Memory
from tilewright.runtime.load import load_module
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray, array
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.timing import BenchmarkResult

Held = Annotated[int, Meta(ge=1, le=1 << 53)]  # a number that the other side was given
Bytes = Annotated[int, Meta(ge=0, le=1 << 40)]
Index = Annotated[int, Meta(ge=0, le=1 << 20)]
Runs = Annotated[int, Meta(ge=1, le=1 << 20)]
Milliseconds = Annotated[float, Meta(ge=0, le=1e6)]
Name = Annotated[str, Meta(max_length=200)]
Shape = Annotated[list[Bytes], Meta(max_length=32)]
Of = tuple[Held, Shape, Name]  # an array: its memory, shape and type
Arrays = Annotated[list[Of], Meta(max_length=4096)]
Names = Annotated[list[Name], Meta(max_length=4096)]


class Timing(msgspec.Struct, forbid_unknown_fields=True):
    """Options of `benchmark` and of `time_evaluator`."""

    number: Runs
    repeat: Runs
    min_repeat_ms: Milliseconds | None
    limit_zero_time_iterations: Index
    cooldown_interval_ms: Milliseconds
    repeats_to_cooldown: Runs


class Benchmark(Timing, forbid_unknown_fields=True):
    end_to_end: bool
    func_name: Name


class Evaluator(Timing, forbid_unknown_fields=True):
    cache_flush_bytes: Bytes


_numbers = itertools.count(1)
_held: dict[int, Any] = {}


def call(name: str, folder: str, arguments: dict[str, Any]) -> Any:
    """Raises DeviceError where the arguments are not those of the call."""
    try:
        checked = msgspec.convert(arguments, _arguments_of(name))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise DeviceError(f"call {name}", f"its arguments do not fit ({error})") from None
    try:
        given = {field: getattr(checked, field) for field in checked.__struct_fields__}
        return CALLS[name](Path(folder), **given)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise DeviceError(f"call {name}", f"its arguments do not fit ({error})") from None


@cache
def _arguments_of(name: str) -> type[msgspec.Struct]:
    """What a call takes behind the folder, as its function declares it."""
    hints = get_type_hints(CALLS[name], include_extras=True)
    fields = [(n, kind) for n, kind in hints.items() if n not in ("folder", "return")]
    return msgspec.defstruct(name, fields, forbid_unknown_fields=True)


def plain_name(name: str) -> str:
    """`name`, which is a file's in the session's folder and nowhere else.  Raises DeviceError."""
    return names.plain_name(name, f"file {name[:80]!r}", DeviceError)


def _hold(thing: Any) -> int:
    if len(_held) >= bounds.HELD:
        raise DeviceError(
            "session", f"the device holds {bounds.HELD} arrays and modules for it",
            "Let go of those that are not needed.",
        )  # fmt: skip
    number = next(_numbers)
    _held[number] = thing
    return number


def _device(kind: Name, index: Index) -> Device:
    found = device(kind, index)
    reason = found.why_not()
    if reason is not None:
        raise reason
    return found


def _describe(folder: Path, kind: Name, index: Index) -> dict[str, Any]:
    found = _device(kind, index)
    return {"name": found.name, "limits": {k: v for k, v in found.limits.items()}}


def _files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("part-"))


def _remove(folder: Path, name: Name) -> None:
    (folder / plain_name(name)).unlink(missing_ok=True)


def _drop(folder: Path, held: Held) -> None:
    _held.pop(held, None)


# -- memory ----------------------------------------------------------------------------------------


def _allocate(folder: Path, kind: Name, index: Index, nbytes: Bytes) -> int:
    found = _device(kind, index)
    return _hold((found, found.driver.allocate(max(nbytes, 1))))


def _write(folder: Path, held: Held, data: bytes, offset: Bytes) -> None:
    found, memory = _memory(held)
    _check_range(memory, offset, len(data))
    found.driver.write(memory, np.frombuffer(data, np.uint8), offset)


def _read(folder: Path, held: Held, offset: Bytes, nbytes: Bytes) -> bytes:
    found, memory = _memory(held)
    _check_range(memory, offset, nbytes)
    out = np.empty(nbytes, np.uint8)
    found.driver.read(memory, out, offset)
    return out.tobytes()


def _copy(folder: Path, source: Held, target: Held, nbytes: Bytes) -> None:
    found, memory = _memory(source)
    _, into = _memory(target)
    _check_range(memory, 0, nbytes)
    _check_range(into, 0, nbytes)
    found.driver.copy(memory, into, nbytes)


def _sync(folder: Path, kind: Name, index: Index) -> None:
    _device(kind, index).sync()


def _memory(held: Held) -> tuple[Device, Memory]:
    found, memory = _held[held]
    return found, memory


def _check_range(memory: Memory, offset: Bytes, nbytes: Bytes) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
        raise DeviceError("memory of a session", f"it has {memory.nbytes} bytes only")


def _array(held: Held, shape: Shape, dtype: Name) -> NDArray:
    found, memory = _memory(held)
    kind = DType(dtype)
    _check_range(memory, 0, prod(shape) * kind.bytes)
    return NDArray(tuple(shape), kind, found, memory)


# -- modules and networks --------------------------------------------------------------------------


def _load(folder: Path, name: Name) -> dict[str, Any]:
    path = folder / plain_name(name)
    if not path.exists():
        raise DeviceError(
            f"load_module({name!r})", "there is no such file in the session", "Upload it first."
        )
    loaded = load_module(path)
    about = {"held": _hold(loaded), "about": repr(loaded)}
    if isinstance(loaded, Library):
        return about | {"network": True, "kind": device(loaded.target).kind}
    return about | {"network": False, "kind": loaded.device.kind, "entry": loaded.entry_name}


def _graph(folder: Path, held: Held, kind: Name, index: Index) -> dict[str, Any]:
    library: Library = _held[held]
    made = GraphModule(library["default"](_device(kind, index)))
    return {
        "held": _hold(made),
        "inputs": [_about(spec.name, spec) for spec in library.plan.inputs],
        "outputs": [_about(str(k), spec) for k, (spec, _) in enumerate(library.plan.outputs)],
        "states": [spec.name for spec in made.states],
    }


def _reset(folder: Path, held: Held) -> None:
    module: GraphModule = _held[held]
    module.reset()


def _state(folder: Path, held: Held) -> list[Any]:
    module: GraphModule = _held[held]
    found = {name: array(value, module.device) for name, value in module.state().items()}
    return [[name, _hold((a.device, a.memory))] for name, a in found.items()]


def _set_state(folder: Path, held: Held, names: Names, arrays: Arrays) -> None:
    module: GraphModule = _held[held]
    module.set_state({n: _array(*of) for n, of in zip(names, arrays, strict=True)})


def _fork(folder: Path, held: Held) -> int:
    module: GraphModule = _held[held]
    return _hold(module.fork())


def _about(name: str, spec: Any) -> list[Any]:
    return [name, list(spec.shape), str(spec.dtype)]


def _set_input(folder: Path, held: Held, key: Name | Index, of: Of) -> None:
    _held[held].set_input(key, _array(*of))


def _use_input(folder: Path, held: Held, key: Name | Index, of: Of) -> None:
    _held[held].set_input_zero_copy(key, _array(*of))


def _run(folder: Path, held: Held) -> None:
    module: GraphModule = _held[held]
    module.run()


def _get(folder: Path, held: Held, what: Name, key: Name | Index) -> list[Any]:
    module: GraphModule = _held[held]
    found = module.get_output(int(key)) if what == "output" else module.get_input(key)
    return [_hold((found.device, found.memory)), list(found.shape), str(found.dtype)]


def _benchmark(folder: Path, held: Held, options: Benchmark) -> list[float]:
    module: GraphModule = _held[held]
    return _seconds(module.benchmark(module.device, **asdict(options)))


def _profile(folder: Path, held: Held, number: Runs) -> list[Any]:
    module: GraphModule = _held[held]
    found = module.profile(number)
    return [[list(astuple(k)) for k in found.launches], found.seconds, found.call_seconds]


def _launch_seconds(folder: Path, held: Held, number: Runs) -> list[list[float]]:
    module: GraphModule = _held[held]
    return module.launch_seconds(number)


def _call_module(folder: Path, held: Held, arrays: Arrays) -> None:
    module: Module = _held[held]
    module(*[_array(*of) for of in arrays])


def _time_module(folder: Path, held: Held, arrays: Arrays, options: Evaluator) -> list[float]:
    module: Module = _held[held]
    timed = module.time_evaluator(module.entry_name, module.device, **asdict(options))
    return _seconds(timed(*[_array(*of) for of in arrays]))


def _seconds(result: BenchmarkResult) -> list[float]:
    return list(result.results)


CALLS: dict[str, Callable[..., Any]] = {
    "describe": _describe, "files": _files, "remove": _remove, "drop": _drop,
    "allocate": _allocate, "write": _write, "read": _read, "copy": _copy, "sync": _sync,
    "load": _load, "graph": _graph, "set_input": _set_input, "use_input": _use_input, "run": _run,
    "reset": _reset, "state": _state, "set_state": _set_state, "fork": _fork,
    "get": _get, "benchmark": _benchmark, "profile": _profile, "launch_seconds": _launch_seconds,
    "call_module": _call_module, "time_module": _time_module,
}  # fmt: skip
