"""Computations by name: functions that declare them, and workload keys, which are JSON lists.

In: functions that return inputs and outputs.  Out: keys such as `["conv2d_layer", 1, 7, 7]`, and
tensors for a key.  Keys of computations without a function start with a hash, see
`te.ComputeDAG.workload_key`.  Read next: `search_task.py`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from typing import Any, overload

import numpy as np

from tilewright.base.doors import check_arguments, door
from tilewright.base.errors import RecordError, SpaceError
from tilewright.base.output import FileKind, beginning, write
from tilewright.schedule.workload import arguments_of, plain
from tilewright.te.dag import ComputeDAG
from tilewright.te.tensor import Tensor
from tilewright_tvm.logs.tvm_logs import parsed

Function = Callable[..., Sequence[Tensor]]

_FUNCTIONS: dict[str, Function] = {}  # functions within others by all their names: f.<locals>.g
_TENSORS: dict[str, list[Tensor]] = {}


class _Registry(MutableMapping[str, Any]):
    """All that is registered: functions by their names, tensors by their keys."""

    def _table(self, name: str) -> tuple[dict[str, Any], str]:
        known = normal(name) if name not in _FUNCTIONS and name.lstrip().startswith("[") else name
        return (_TENSORS, known) if known in _TENSORS else (_FUNCTIONS, name)

    def __getitem__(self, name: str) -> Any:
        table, known = self._table(name)
        return table[known]

    def __delitem__(self, name: str) -> None:
        table, known = self._table(name)
        del table[known]

    def __setitem__(self, name: str, value: Any) -> None:
        if callable(value):
            register_workload(name, value, override=True)
        else:
            register_workload_tensors(name, value)

    def __iter__(self) -> Iterator[str]:
        return iter([*_FUNCTIONS, *_TENSORS])

    def __len__(self) -> int:
        return len(_FUNCTIONS) + len(_TENSORS)


WORKLOAD_FUNC_REGISTRY = _Registry()


@overload
def register_workload(func_name: Function, f: None = None, override: bool = False) -> Function: ...
@overload
def register_workload(func_name: str, f: Function, override: bool = False) -> Function: ...
@overload
def register_workload(
    func_name: str, f: None = None, override: bool = False
) -> Callable[[Function], Function]: ...
def register_workload(
    func_name: Function | str, f: Function | None = None, override: bool = False
) -> Function | Callable[[Function], Function]:
    """Register a function that returns the inputs and outputs of a computation.

    Usable as `@register_workload`, `@register_workload("name")` and `register_workload("name", f)`.
    override: replace another function of that name, which is an error otherwise
    """
    if callable(func_name) and hasattr(func_name, "__name__"):
        f, func_name = func_name, func_name.__qualname__
    if not isinstance(func_name, str) or not (f is None or callable(f)):
        raise SpaceError(
            f"register_workload({func_name!r}{'' if f is None else f', {f!r}'})",
            "not a function, with or without a name",
            "Use @register_workload, or register_workload(name, function).",
        )  # fmt: skip
    if not isinstance(override, bool):
        raise SpaceError(
            f"register_workload(override={override!r})", "not True or False", "Leave it out."
        )
    name: str = func_name

    def register(function: Function) -> Function:
        known = _FUNCTIONS.get(name)
        if known is not None and not override and not _same(known, function):
            raise SpaceError(
                f"register_workload({name!r})", "another function has that name",
                "Choose another name, or pass override=True.",
            )  # fmt: skip
        _FUNCTIONS[name] = function
        return function

    return register if f is None else register(f)


def _same(known: Function, function: Function) -> bool:
    """Whether it is the function registered before, perhaps of a script that is run again."""
    return (known.__module__, known.__qualname__) == (function.__module__, function.__qualname__)


def make_workload_key(func: Function | str, args: Sequence[Any]) -> str:
    """The key of a registered function's computation: `["name", *args]`; tensors by their shape."""
    name = name_of(func)
    if name not in _FUNCTIONS:
        raise _unknown(f"make_workload_key({name!r})", "no workload is registered by that name")
    return json.dumps([name, *_checked_plain(name, _listed("make_workload_key", args))])


def register_workload_tensors(
    workload_key: str, tensors: Sequence[Tensor], override: bool = True
) -> str:
    """Say which computation a key stands for; returns the key."""
    key = normal(workload_key)
    if key in _TENSORS and not override:
        raise SpaceError(
            f"register_workload_tensors({workload_key!r})", "the key is taken",
            "Pass override=True.",
        )  # fmt: skip
    ComputeDAG(tensors)  # refuses what is no computation
    _TENSORS[key] = list(tensors)
    return workload_key


def workload_key_to_tensors(workload_key: str) -> list[Tensor]:
    """Inputs and outputs of a key's computation.  Raises SpaceError for one that nobody knows."""
    key = normal(workload_key)
    if key in _TENSORS:
        return _TENSORS[key]
    name, *args = json.loads(key)
    if name in _FUNCTIONS:
        return declared(name, arguments_of(args))
    if len(name) == 32 and not set(name) - set("0123456789abcdef"):
        raise SpaceError(
            f"workload key {workload_key}", "no computation is known by that hash",
            "Extract the tasks of the network, or call register_workload_tensors, in this process.",
        )  # fmt: skip
    raise _unknown(f"workload key {workload_key}", f"no workload {name!r} is registered")


@door(SpaceError)
def serialize_workload_registry_entry(workload_key: str) -> tuple[str, Any]:
    """What a key is registered as, as plain data for another process: a computation, or where a
    function is ("module:name").  Raises SpaceError for a key that nobody knows.

    workload_key: or the name of a function
    """
    if workload_key in _FUNCTIONS:
        return workload_key, _whereabouts(workload_key)
    key, name = normal(workload_key), parsed_key(workload_key)[0]
    if key in _TENSORS:
        return key, ComputeDAG(_TENSORS[key]).to_json()
    if name not in _FUNCTIONS:
        raise _unknown(f"workload key {workload_key}", f"no workload {name!r} is registered")
    return name, _whereabouts(name)


@door(SpaceError)
def deserialize_workload_registry_entry(data: tuple[str, Any]) -> None:
    """Register what `serialize_workload_registry_entry` gave, unless the key is known.

    A function is looked up in its module, which this process must have imported: data hold no code.
    Raises SpaceError where it is not there.
    """
    name, value = data
    if isinstance(value, str):
        if name not in _FUNCTIONS:
            _FUNCTIONS[name] = _found(name, value)
    elif normal(name) not in _TENSORS:
        _TENSORS[normal(name)] = list(ComputeDAG.from_json(value).args)


_REGISTRY = FileKind("a registry of workloads", beginning(b"[]", b'[["'))


@door(RecordError)
def save_workload_func_registry(filename: str | os.PathLike[str]) -> None:
    """Write what is registered to a file of JSON: computations, and where functions are.

    Raises RecordError where it cannot be written, or a file of another kind is there.
    """
    entries: list[Any] = [[key, ComputeDAG(tensors).to_json()] for key, tensors in _TENSORS.items()]
    entries += [[name, _whereabouts(name)] for name in _FUNCTIONS]
    place = f"file {os.fspath(filename)!r}"
    write(filename, json.dumps(entries).encode(), _REGISTRY, place, RecordError)


@door(RecordError)
def load_workload_func_registry(filename: str | os.PathLike[str]) -> None:
    """Register what `save_workload_func_registry` wrote; see `deserialize_workload_registry_entry`.

    Raises RecordError for a file that is missing, or none of these.
    """
    place = f"file {os.fspath(filename)!r}"
    try:
        entries = parsed(Path(filename).read_text(encoding="utf-8"))
        pairs = [(str(name), value) for name, value in entries]
    except (OSError, ValueError, TypeError, RecordError) as error:
        raise RecordError(
            place, f"it is no registry of workloads ({error})",
            "Give what save_workload_func_registry wrote.",
        ) from None  # fmt: skip
    for pair in pairs:
        deserialize_workload_registry_entry(pair)


def _whereabouts(name: str) -> str:
    function = _FUNCTIONS[name]
    return f"{function.__module__}:{getattr(function, '__qualname__', name)}"


def _found(name: str, where: str) -> Function:
    """The function of an imported module."""
    module, _, path = where.partition(":")
    found: Any = sys.modules.get(module)
    for part in path.split("."):
        found = getattr(found, part, None)
    if callable(found):
        function: Function = found
        return function
    raise SpaceError(
        f"workload {name!r}", f"{where} is not there in this process",
        f"Import {module} first, or register the function here.",
    )  # fmt: skip


def knows(workload_key: str) -> bool:
    """Whether `workload_key_to_tensors` has an answer."""
    key = normal(workload_key)
    return key in _TENSORS or json.loads(key)[0] in _FUNCTIONS


def declared(func: Function | str, args: Sequence[Any]) -> list[Tensor]:
    """What a workload function returns for `args`, checked.  Errors of its own pass through."""
    args, name = _listed("SearchTask", args), name_of(func)
    function = _FUNCTIONS.get(func) if isinstance(func, str) else func
    if function is None:
        raise _unknown(f"workload {name!r}", "no workload is registered by that name")
    check_arguments(function, args, f"workload {name!r}", SpaceError)
    made = function(*args)
    if isinstance(made, (list, tuple)) and made and all(isinstance(t, Tensor) for t in made):
        return list(made)
    raise SpaceError(
        f"workload {name!r}", f"it returned {_kind(made)}",
        "Return the list of its input and output tensors: [data, kernel, out].",
    )  # fmt: skip


def normal(workload_key: str) -> str:
    """The key with JSON's blanks as `make_workload_key` writes them.  Raises SpaceError."""
    return json.dumps(parsed_key(workload_key))


def parsed_key(workload_key: str) -> list[Any]:
    """The list that a key is, its name first.  Raises SpaceError."""
    try:
        found = parsed(workload_key) if isinstance(workload_key, str) else None
        if isinstance(found, list) and found and isinstance(found[0], str):
            return found
    except RecordError:
        pass
    raise SpaceError(
        f"workload key {workload_key!r}", "not a JSON list that starts with a name or a hash",
        'It looks like ["conv2d_layer", 1, 7, 7]; make_workload_key(func, args) makes one.',
    )  # fmt: skip


def name_of(func: Function | str) -> str:
    """What a function is registered as, or else its own name."""
    if isinstance(func, str):
        return func
    own = getattr(func, "__qualname__", str(func))  # a functools.partial has none
    return next((name for name, known in _FUNCTIONS.items() if known is func), own)


def _listed(call: str, args: Any) -> Sequence[Any]:
    if isinstance(args, (list, tuple)):
        return args
    raise SpaceError(
        f"{call}(args={args!r})", "not a list of arguments", "Write args=(value, ...)."
    )


def _checked_plain(name: str, args: Sequence[Any]) -> list[Any]:
    _refuse_arrays(name, args)
    values: list[Any] = plain(list(args))
    try:
        json.dumps(values, allow_nan=False)
    except ValueError as error:
        raise SpaceError(
            f"make_workload_key({name!r})", f"an argument is not JSON ({error})",
            "Use numbers, strings, tuples and tensors.",
        ) from None  # fmt: skip
    return values


def _refuse_arrays(name: str, value: Any) -> None:
    if isinstance(value, (list, tuple)):
        for v in value:
            _refuse_arrays(name, v)
    if isinstance(value, np.ndarray):
        raise SpaceError(
            f"make_workload_key({name!r})", "an argument is an array",
            "Use numbers, strings, tuples and tensors.",
        )  # fmt: skip


def _kind(made: Any) -> str:
    if isinstance(made, (list, tuple)):
        wrong = [type(t).__name__ for t in made if not isinstance(t, Tensor)]
        return f"a list with a {wrong[0]} in it" if wrong else "no tensors"
    return f"a {type(made).__name__}"


def _unknown(place: str, reason: str) -> SpaceError:
    known = ", ".join(sorted(_FUNCTIONS)) or "none"
    return SpaceError(place, reason, f"Registered with @register_workload: {known}.")
