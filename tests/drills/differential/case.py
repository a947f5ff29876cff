"""One case: the same call here and of a peer, and how the two are compared.

In: a seed.  Out: one word for what happened, and a line that repeats it.  Read next: `known.py`.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from drills.differential.draw import Array
from tilewright.base.errors import TilewrightError

EQUAL, REFUSED, BOTH = "equal", "refused with a sentence", "refused by both"
BEYOND, STATED, SKIPPED = "accepted beyond the peer", "stated difference", "peer has no answer"
DIFFERS, FOREIGN, HANGS = "differs", "foreign exception", "hangs or dies"
FAULTS = (DIFFERS, FOREIGN, HANGS)

NEAR = 32  # eps of inputs whose effect on the result is rounding
DRAWS = 4


class Refused(Exception):
    """The peer refuses these arguments by its standard."""


class NoAnswer(Exception):
    """The peer has no kernel for them, or is not asked."""


@dataclass(frozen=True, eq=False)
class Case:
    """
    text:   operator and arguments, to be read
    data:   what the results follow from smoothly, and where it is moved to see how much they follow
    peer:   what the peer gives for such data; raises Refused or NoAnswer
    ours:   by name, what we give for the data
    strict: what the peer refuses is to be refused
    absolute: how far results may be apart whatever their size
    """

    text: str
    data: list[Array]
    peer: Callable[[Sequence[Array]], list[Array]]
    ours: dict[str, Callable[[], list[Array]]]
    strict: bool = True
    absolute: float = 0.0


@dataclass(frozen=True)
class Outcome:
    what: str
    why: str = ""
    notes: list[str] = field(default_factory=list)


def judged(case: Case, rng: np.random.Generator) -> Outcome:
    """What became of it."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        return _judged(case, rng)


def _judged(case: Case, rng: np.random.Generator) -> Outcome:
    refusal, want = "", None
    try:
        want = case.peer(case.data)
    except NoAnswer as error:
        return Outcome(SKIPPED, str(error))
    except Refused as error:
        refusal = " ".join(str(error).split())
    slack: list[Array] | None = None
    sentences = []
    for way, run in case.ours.items():
        try:
            got = run()
        except TilewrightError as error:
            sentences.append(f"{way}: {error}")
            continue
        except Exception as error:
            return Outcome(FOREIGN, f"{way}: {type(error).__name__}: {error}")
        if want is None:
            what = DIFFERS if case.strict else BEYOND
            return Outcome(what, f"{way} accepts; peer: {refusal}; ours {_shown(got)}")
        slack = slack if slack is not None else tolerances(case, want, rng)
        wrong = compared(want, got, slack)
        if wrong:
            return Outcome(DIFFERS, f"{way}: {wrong}")
    if want is None:
        return Outcome(BOTH, f"{sentences[0]} | peer: {refusal}")
    if sentences and len(sentences) < len(case.ours):
        return Outcome(DIFFERS, f"one way refuses, another does not: {sentences[0]}")
    return Outcome(REFUSED, sentences[0]) if sentences else Outcome(EQUAL)


def tolerances(case: Case, want: Sequence[Array], rng: np.random.Generator) -> list[Array]:
    """How far each element may be: what its inputs' last bits decide, and its own.

    Results that hold nothing but elements of the data, zeros and ones were moved, and are exact;
    of ones and zeros alone, they may as well be quotients.
    """
    held = np.concatenate([np.ravel(_wide(x)) for x in case.data] or [np.zeros(0)])
    ones = [0.0, 1.0, -1.0]
    slack = []
    for w in want:
        inexact = w.dtype.kind in "fV"
        finite = _wide(w)[np.isfinite(_wide(w))]
        moved = inexact and bool(np.isin(finite, [*held, *ones]).all())
        moved &= not finite.size or not bool(np.isin(finite, ones).all())
        eps = 0.0 if moved or not inexact else eps_of(w.dtype)
        slack.append(np.abs(_wide(w)) * 64 * eps + case.absolute / 4)
    if not any(x.dtype.kind in "fV" for x in case.data):
        return [s + 1e-30 if w.dtype.kind in "fV" else s for s, w in zip(slack, want, strict=True)]
    for _ in range(DRAWS):
        near = [_moved(x, rng) for x in case.data]
        try:
            there = case.peer(near)
        except (Refused, NoAnswer):
            break
        for k, (w, t) in enumerate(zip(want, there, strict=True)):
            if w.shape == t.shape and slack[k].any():
                away = np.abs(_wide(t) - _wide(w))
                same = (_wide(t) == _wide(w)) | (np.isnan(_wide(t)) & np.isnan(_wide(w)))
                slack[k] = np.maximum(slack[k], np.where(same, 0, np.nan_to_num(away, nan=np.inf)))
            elif w.dtype.kind in "biu" and w.shape == t.shape:
                slack[k] = np.maximum(slack[k], np.where(w != t, np.inf, 0))
    return [s * 4 + (1e-30 if w.dtype.kind in "fV" else 0)
            for s, w in zip(slack, want, strict=True)]  # fmt: skip


def eps_of(dtype: Any) -> float:
    return 2.0**-7 if dtype.kind == "V" or dtype.name == "bfloat16" else float(np.finfo(dtype).eps)


def _moved(x: Array, rng: np.random.Generator) -> Array:
    if x.dtype.kind not in "fV":
        return x
    by = 1 + NEAR * eps_of(x.dtype) * rng.uniform(-1, 1, x.shape)
    return np.asarray(x.astype(np.float64) * by).astype(x.dtype)


def _wide(x: Array) -> Array:
    if x.dtype.kind == "b":
        return x.astype(np.uint8)
    return x if x.dtype.kind in "iuc" else x.astype(np.float64)


def compared(want: Sequence[Array], got: Sequence[Array], slack: Sequence[Array]) -> str:
    """What differs, empty if nothing."""
    if len(want) != len(got):
        return f"{len(got)} results, not {len(want)}"
    for k, (w, g, s) in enumerate(zip(want, got, slack, strict=True)):
        if w.shape != g.shape:
            return f"result {k} has shape {g.shape}, not {w.shape}"
        if w.dtype != g.dtype:
            return f"result {k} has type {g.dtype}, not {w.dtype}"
        a, b = _wide(w), _wide(g)
        same = a == b
        if w.dtype.kind in "fVc":
            same |= np.isnan(a) & np.isnan(b)
            same |= np.isfinite(a) & np.isfinite(b) & (np.abs(a - b) <= s)
        same |= np.isinf(s)  # a step of the function lies within the inputs' rounding
        if not same.all():
            at = tuple(int(i) for i in np.argwhere(~same)[0])
            return (
                f"result {k}{list(at)} is {b[at]!r}, not {a[at]!r} (may be off by {s[at]:.3g}); "
                f"{int((~same).sum())} of {same.size}"
            )
    return ""


def noted(data: Sequence[Array]) -> str:
    """What decides where peers may differ, for the text of a case."""
    wide = [_wide(x) for x in data if x.dtype.kind != "b"]
    notes = {
        "NaN": any(x.dtype.kind == "f" and np.isnan(x).any() for x in wide),
        "ties": any(np.unique(x).size < x.size for x in wide),
    }
    return "".join(f" {note}" for note, holds in notes.items() if holds)


def _shown(results: Sequence[Array]) -> str:
    return ", ".join(f"{r.dtype}{list(r.shape)}" for r in results)
