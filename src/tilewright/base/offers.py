"""What a room finds in later rooms: names, and where each of them is.

A room imports only rooms before it; what it offers of later ones (`te.create_schedule`, the
templates that come with the package) is said here by those who know both: `tilewright/__init__.py`,
which runs before any room, and packages beside this one when they are imported.  Nothing is loaded
before it is asked for, so what is found does not depend on what a script imported before.
In: names with the modules that have them.  Out: what they name.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

_KNOWN: dict[str, dict[str, str]] = {}  # what is offered, or the module -> name -> where it is


def offer(what: str, places: Mapping[str, str]) -> None:
    """Say where things are: "module", or "module:attribute"."""
    _KNOWN.setdefault(what, {}).update(places)


def offered(what: str) -> Mapping[str, str]:
    """Where things are, by name."""
    return _KNOWN.get(what, {})


def load(place: str) -> Any:
    """The module or attribute at a place."""
    home, _, attribute = place.partition(":")
    module = import_module(home)
    return getattr(module, attribute) if attribute else module
