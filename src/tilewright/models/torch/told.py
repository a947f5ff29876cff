"""What `torch.compile(backend="tilewright")` tells its user: what runs in PyTorch, each thing once.

In: texts, and what Dynamo counts.  Out: warnings.  Read next: `compile.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from typing import Any

PLACE = 'torch.compile(backend="tilewright")'
_EXAMPLES = 3  # extents in a warning
_told: set[str] = set()  # warnings, and breaks of graphs
_graphs = 0  # that came


class TilewrightWarning(UserWarning):
    """Something runs in PyTorch, not in Tilewright."""


def warn(text: str) -> None:
    if text not in _told:
        _told.add(text)
        warnings.warn(f"{PLACE}: {text}", TilewrightWarning, stacklevel=2)


def tell_breaks(torch: Any, came: bool = True) -> None:
    """Graph breaks since the last time: what lies between two graphs runs in PyTorch.

    came: a graph did.  If nothing came of a function, what Dynamo could not trace in it counts, too
    """
    global _graphs
    _graphs += came
    counters = torch._dynamo.utils.counters
    kinds = ("graph_break",) if came else ("graph_break", "unimplemented")
    every = [str(r).splitlines()[0] for kind in kinds for r in counters[kind]]
    if new := [r for r in dict.fromkeys(every) if r not in _told]:
        _told.update(new)
        warn(f"the model is compiled in parts; between them PyTorch runs: {'; '.join(new[:10])}")


def follow(torch: Any, backend: Callable[..., Any]) -> None:
    """Have Dynamo's work for `backend` followed, so that breaks are told where no graph is left.

    Dynamo does not say for whom it works: where other backends are in use, too, only a graph that
    comes tells of breaks before it.
    """
    handler = getattr(torch._dynamo.callback, "callback_handler", None)
    if handler is None or any(getattr(c, "tells", False) for c in handler.end_callbacks):
        return
    before = _graphs

    def tell(*_: Any) -> None:
        nonlocal before
        cached = getattr(torch._dynamo.eval_frame, "cached_backends", {}).values()
        used = [u for u in cached if u is not None]  # None: where Dynamo is switched off
        if _graphs == before and all(getattr(u, "compiler_fn", u) is backend for u in used):
            tell_breaks(torch, came=False)
        before = _graphs

    tell.tells = True  # type: ignore[attr-defined]
    handler.register_end_callback(tell)


def varying(names: Sequence[str], keys: Sequence[Any]) -> str:
    """Which extents and numbers differ between calls, and what they were.

    keys: for each call what `names` stood for: (shape, strides), or a number
    """
    axes, others = list[str](), list[str]()
    for name, *given in zip((n.removeprefix("l_") for n in names), *keys, strict=True):
        if not isinstance(given[0], tuple):
            others += _if_several(name, given)
            continue
        extents = zip(*(shape for shape, _ in given), strict=True)
        found = [t for k, e in enumerate(extents) for t in _if_several(f"axis {k} of {name}", e)]
        axes += found
        others += [] if found else _if_several(f"strides of {name}", [s for _, s in given])
    told = axes or others  # what has such an axis comes with its extent as a number
    return "; ".join(told[:_EXAMPLES]) + (
        f"; {len(told) - _EXAMPLES} more" if told[_EXAMPLES:] else ""
    )


def _if_several(name: str, values: Sequence[Any]) -> list[str]:
    several = list(dict.fromkeys(values))
    return [f"{name} ({', '.join(map(str, several))})"] if len(several) > 1 else []


__all__ = ["PLACE", "TilewrightWarning", "follow", "tell_breaks", "varying", "warn"]
