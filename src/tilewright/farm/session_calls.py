"""What a session may call on the device's side; it runs in a process of the session's own.

In: the name of a call, the session's folder, plain arguments.  Out: plain values.  Memory,
libraries and networks stay in the process, under numbers; the other side holds the numbers.
Read next: `session.py` (the other side), `board.py`.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import astuple
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import DeviceError
from tilewright.farm import bounds
from tilewright.runtime.device import Device, device
from tilewright.runtime.drivers import Memory
from tilewright.runtime.load import load_module
from tilewright.runtime.module import Module
from tilewright.runtime.ndarray import NDArray
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.runtime.network.library import Library
from tilewright.runtime.timing import BenchmarkResult

_numbers = itertools.count(1)
_held: dict[int, Any] = {}


def call(name: str, folder: str, arguments: dict[str, Any]) -> Any:
    """Raises DeviceError where the arguments are not those of the call."""
    try:
        return CALLS[name](Path(folder), **arguments)
    except (TypeError, ValueError, KeyError, IndexError, AttributeError) as error:
        raise DeviceError(f"call {name}", f"its arguments do not fit ({error})") from None


def plain_name(name: str) -> str:
    """`name`, which is a file's in the session's folder and nowhere else.  Raises DeviceError."""
    if Path(name).name != name or name in ("", ".", "..") or "\0" in name:
        raise DeviceError(f"file {name!r}", "it is no plain name", "Leave out folders.")
    return name


def _hold(thing: Any) -> int:
    if len(_held) >= bounds.HELD:
        raise DeviceError(
            "session", f"the device holds {bounds.HELD} arrays and modules for it",
            "Let go of those that are not needed.",
        )  # fmt: skip
    number = next(_numbers)
    _held[number] = thing
    return number


def _device(kind: str, index: int) -> Device:
    found = device(kind, index)
    reason = found.why_not()
    if reason is not None:
        raise reason
    return found


def _describe(folder: Path, kind: str, index: int) -> dict[str, Any]:
    found = _device(kind, index)
    return {"name": found.name, "limits": {k: v for k, v in found.limits.items()}}


def _files(folder: Path) -> list[str]:
    return sorted(p.name for p in folder.iterdir() if not p.name.startswith("part-"))


def _remove(folder: Path, name: str) -> None:
    (folder / plain_name(name)).unlink(missing_ok=True)


def _drop(folder: Path, held: int) -> None:
    _held.pop(held, None)


# -- memory ----------------------------------------------------------------------------------------


def _allocate(folder: Path, kind: str, index: int, nbytes: int) -> int:
    found = _device(kind, index)
    return _hold((found, found.driver.allocate(nbytes)))


def _write(folder: Path, held: int, data: bytes, offset: int) -> None:
    found, memory = _memory(held)
    _check_range(memory, offset, len(data))
    found.driver.write(memory, np.frombuffer(data, np.uint8), offset)


def _read(folder: Path, held: int, offset: int, nbytes: int) -> bytes:
    found, memory = _memory(held)
    _check_range(memory, offset, nbytes)
    out = np.empty(nbytes, np.uint8)
    found.driver.read(memory, out, offset)
    return out.tobytes()


def _copy(folder: Path, source: int, target: int, nbytes: int) -> None:
    found, memory = _memory(source)
    _, into = _memory(target)
    _check_range(memory, 0, nbytes)
    _check_range(into, 0, nbytes)
    found.driver.copy(memory, into, nbytes)


def _sync(folder: Path, kind: str, index: int) -> None:
    _device(kind, index).sync()


def _memory(held: int) -> tuple[Device, Memory]:
    found, memory = _held[held]
    return found, memory


def _check_range(memory: Memory, offset: int, nbytes: int) -> None:
    if offset < 0 or nbytes < 0 or offset + nbytes > memory.nbytes:
        raise DeviceError("memory of a session", f"it has {memory.nbytes} bytes only")


def _array(held: int, shape: list[int], dtype: str) -> NDArray:
    found, memory = _memory(held)
    return NDArray(tuple(shape), DType(dtype), found, memory)


# -- modules and networks --------------------------------------------------------------------------


def _load(folder: Path, name: str) -> dict[str, Any]:
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


def _graph(folder: Path, held: int, kind: str, index: int) -> dict[str, Any]:
    library: Library = _held[held]
    made = GraphModule(library["default"](_device(kind, index)))
    return {
        "held": _hold(made),
        "inputs": [_about(spec.name, spec) for spec in library.plan.inputs],
        "outputs": [_about(str(k), spec) for k, (spec, _) in enumerate(library.plan.outputs)],
    }


def _about(name: str, spec: Any) -> list[Any]:
    return [name, list(spec.shape), str(spec.dtype)]


def _set_input(folder: Path, held: int, key: str | int, of: list[Any]) -> None:
    _held[held].set_input(key, _array(*of))


def _use_input(folder: Path, held: int, key: str | int, of: list[Any]) -> None:
    _held[held].set_input_zero_copy(key, _array(*of))


def _run(folder: Path, held: int) -> None:
    module: GraphModule = _held[held]
    module.run()


def _get(folder: Path, held: int, what: str, key: str | int) -> list[Any]:
    module: GraphModule = _held[held]
    array = module.get_output(int(key)) if what == "output" else module.get_input(key)
    return [_hold((array.device, array.memory)), list(array.shape), str(array.dtype)]


def _benchmark(folder: Path, held: int, options: dict[str, Any]) -> list[float]:
    module: GraphModule = _held[held]
    return _seconds(module.benchmark(module.device, **options))


def _profile(folder: Path, held: int, number: int) -> list[Any]:
    module: GraphModule = _held[held]
    found = module.profile(number)
    return [[list(astuple(k)) for k in found.launches], found.seconds, found.call_seconds]


def _call_module(folder: Path, held: int, arrays: list[list[Any]]) -> None:
    module: Module = _held[held]
    module(*[_array(*of) for of in arrays])


def _time_module(
    folder: Path, held: int, arrays: list[list[Any]], options: dict[str, Any]
) -> list[float]:
    module: Module = _held[held]
    timed = module.time_evaluator(module.entry_name, module.device, **options)
    return _seconds(timed(*[_array(*of) for of in arrays]))


def _seconds(result: BenchmarkResult) -> list[float]:
    return list(result.results)


CALLS: dict[str, Callable[..., Any]] = {
    "describe": _describe, "files": _files, "remove": _remove, "drop": _drop,
    "allocate": _allocate, "write": _write, "read": _read, "copy": _copy, "sync": _sync,
    "load": _load, "graph": _graph, "set_input": _set_input, "use_input": _use_input, "run": _run,
    "get": _get, "benchmark": _benchmark, "profile": _profile, "call_module": _call_module,
    "time_module": _time_module,
}  # fmt: skip
