"""Anchors of the computations of a log, remembered: finding them reads every computation.

In: a database and hashes of its computations.  Out: of each the structure of its anchor.
Read next: `schedule/template.py`, `schedules.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from tilewright.driver.cache import default_cache
from tilewright.measure.database import Database
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
