"""What packages above this one add to it, by names: readers of logs, tuners, templates, ...

A package tells where its things are ("module:attribute"), when it is imported or when it is found:
distributions name a function that tells it in the entry point group `tilewright.plugins`.  Nothing
is looked for before somebody asks for a name that is not known, and nothing is imported before it
is used, so neither costs anything at a start.
In: places by kind and name.  Out: what is there.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base import errors
from tilewright.base.concurrency import lock

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "tilewright.plugins"
_OURS = __name__.partition(".")[0]
_PLACES: dict[str, dict[str, str]] = {}  # kind -> name -> place
_looking, _looked = lock(), False


def register(kind: str, places: Mapping[str, str]) -> None:
    """Tell where things are.

    kind: "absent names", "argument names", "devices", "device kinds", "functions", "logs",
          "members", "names of te", "networks", "offered templates", "other names",
          "pragmas", "target options", "templates" or "tuners":
          who asks for them says what each is
    places: name -> "module:attribute", or "module" for what importing it registers
    """
    _PLACES.setdefault(kind, {}).update(places)


def known(kind: str) -> list[Any]:
    """All of a kind that were registered so far; nothing is looked for."""
    return [_at(place) for place in list(_PLACES.get(kind, {}).values())]


def placed(kind: str, name: str) -> Any:
    """What was registered so far; None where nobody has it.  Nothing is looked for."""
    place = _PLACES.get(kind, {}).get(name)
    return None if place is None else _at(place)


def absent(kind: str, name: str, owner: str = "") -> AttributeError:
    """Give what `__getattr__` of a class raises, with what is told of the name so far.

    kind: of the object, among "absent names": name -> what to use instead
    owner: what users call the object; default: `kind`
    """
    return errors.absent(owner or kind, name, placed("absent names", kind) or {})


def member(owner: object, name: str, called: str = "") -> Any:
    """Give what a higher package adds to an object of ours, for the `__getattr__` of its class.

    It registers classes among "members", by the names of ours: methods and properties of one are
    those of ours, too.
    called: what users call the object; default: its class.  Raises AttributeError for other names.
    """
    kinds = [base.__name__ for base in type(owner).__mro__]
    for kind in [] if name.startswith("_") else kinds:
        added = vars(find("members", kind) or object).get(name)
        if added is not None:
            return added.__get__(owner, type(owner))
    known = next((kind for kind in kinds if kind in _PLACES.get("absent names", {})), kinds[0])
    raise absent(known, name, called)


def find(kind: str, name: str) -> Any:
    """What was registered, by whatever distribution; None where nobody has it."""
    if name not in _PLACES.get(kind, {}):
        _look_around()
    return placed(kind, name)


def every(kind: str) -> list[Any]:
    """All of a kind, as they were registered."""
    _look_around()
    return known(kind)


def names(kind: str) -> list[str]:
    """Of all of a kind."""
    _look_around()
    return list(_PLACES.get(kind, {}))


def _at(place: str) -> Any:
    module, _, attribute = place.partition(":")
    found = import_module(module)
    return getattr(found, attribute) if attribute else found


def _look_around() -> None:
    """Let every distribution register what it has, once.  One that fails costs a warning."""
    global _looked
    with _looking:
        if _looked:
            return
        _looked = True  # what is imported now may ask in its turn
        for entry in _entries():
            try:
                entry.load()()
            except Exception as error:  # the distribution may be anybody's
                warnings.warn(
                    f"plugin {entry.name} ({entry.value}) is left out: {type(error).__name__}: "
                    f"{error}", RuntimeWarning, stacklevel=2,
                )  # fmt: skip


def _entries() -> Iterable[EntryPoint]:
    """Of all distributions; of this one also where it is a source tree that was not installed."""
    from importlib import metadata

    found = {e.name: e for e in metadata.entry_points(group=GROUP)}
    tree = Path(__file__).parents[3] / "pyproject.toml"
    if tree.is_file():
        import tomllib

        project = tomllib.loads(tree.read_text()).get("project", {})
        if project.get("name") == _OURS:
            told = project.get("entry-points", {}).get(GROUP, {})
            found = {n: metadata.EntryPoint(n, place, GROUP) for n, place in told.items()} | found
    return found.values()
