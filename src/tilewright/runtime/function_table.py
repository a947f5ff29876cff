"""Python functions by names: what stages of `tir.call_packed` call.

In: a name and a function, from a script.  Out: the function, where the module is that calls it.
Read next: `calls.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright.base import plugins
from tilewright.base.concurrency import lock
from tilewright.base.doors import door
from tilewright.base.errors import DeviceError

_LOCK = lock()
_KNOWN: dict[str, Callable[..., Any]] = {}


@door(DeviceError)
def register_func(
    func_name: str | Callable[..., Any],
    f: Callable[..., Any] | None = None,
    override: bool = False,
) -> Callable[..., Any]:
    """Make a function known by a name: `register_func("my.add", add)`, or as a decorator.

    func_name: or the function itself, whose own name is taken
    f:         the function; None gives a decorator
    override:  whether it may take the place of another one
    Returns the function, or the decorator.  Raises DeviceError for a name that is taken.
    """
    if callable(func_name):
        f, func_name = func_name, getattr(func_name, "__name__", "")
    name = func_name

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        place = f"register_func({name!r})"
        if not callable(function):
            raise DeviceError(place, f"{function!r:.60} is no function", "Give one.")
        if not name:
            raise DeviceError(place, "it has no name", 'Give one: register_func("my.add", f).')
        with _LOCK:
            if not override and _KNOWN.get(name, function) is not function:
                raise DeviceError(
                    place, "the name is taken", "Give override=True, or use another name."
                )
            _KNOWN[name] = function
        return function

    return register if f is None else register(f)


@door(DeviceError)
def get_global_func(name: str, allow_missing: bool = False) -> Callable[..., Any] | None:
    """The function that was registered by a name.

    Raises DeviceError where there is none, or returns None if `allow_missing`.
    """
    found = _KNOWN.get(name)
    if found is None:
        found = plugins.find("functions", name)
    if found is None and not allow_missing:
        raise DeviceError(
            f"get_global_func({name!r})", "no function of this name was registered in this process",
            f"Call tilewright.register_func({name!r}, f) first.",
        )  # fmt: skip
    return found
