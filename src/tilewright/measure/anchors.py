"""Anchors of the computations of a log, remembered: finding them reads every computation.

In: a database and hashes of its computations, or keys of its records.  Out: of each the structure
of its anchor; the best records by that.
Read next: `schedule/template.py`, `network/schedules.py`, `search/warm_start.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tilewright.driver.cache import default_cache
from tilewright.measure.database import Database
from tilewright.measure.record import Key, Record
from tilewright.measure.signatures import code_key
from tilewright.schedule.template import anchor_key, find_anchor

Anchor = tuple[str, bool]  # what `anchor_key` gives


def anchors_of(database: Database, dags: Iterable[str]) -> dict[str, Anchor]:
    """Of those that can be read and have one."""
    hashes = sorted(dags)
    key = code_key("anchors", hashes)
    known = default_cache().kept(key)
    if known is not None:
        return {dag: (structure, constant) for dag, structure, constant in json.loads(known)}
    found: dict[str, Anchor] = {}
    complete = True
    for dag in hashes:
        computation = database.computation(dag)
        anchor = None if computation is None else find_anchor(computation)
        complete &= computation is not None  # another log may tell it
        if anchor is not None:
            found[dag] = anchor_key(anchor)
    if complete:
        default_cache().keep(key, json.dumps([(d, *a) for d, a in found.items()]).encode())
    return found


def bests_by_anchor(
    database: Database, keys: Iterable[Key]
) -> dict[str, list[tuple[bool, Record]]]:
    """The best record of each key, and whether some operand of its anchor is constant."""
    chosen = sorted(set(keys))
    anchors = anchors_of(database, {key.dag for key in chosen})
    found: dict[str, list[tuple[bool, Record]]] = {}
    for key in chosen:
        best = database.best(key)
        if best is not None and key.dag in anchors:
            structure, constant = anchors[key.dag]
            found.setdefault(structure, []).append((constant, best))
    return found
