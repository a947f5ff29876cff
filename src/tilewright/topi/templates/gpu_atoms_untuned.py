"""What runs untuned on matrix units.

In: the sketch of a template of `gpu_atoms.py`.  Out: an index.  Read next: `untuned.py`.
"""

from __future__ import annotations

from math import prod
from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright.schedule.template import Anchored
from tilewright.topi.templates.untuned import fastest

FEW_SPLITS = (4, 8)  # of the sums of few rows
TWO = {"joined": False}  # what a join is worth depends on what runs behind it


def fallback(sketch: Sketch, a: Anchored) -> int:
    """The fastest by the machine model, the sum split as far as the device asks for."""
    space = sketch.space
    if "ahead" in space.space_map:
        return fastest_of_few(sketch)
    blocks, warps = ([e.val for e in space.space_map[k]] for k in ("split_k", "warps_k"))
    ways = [(b, w) for b in blocks for w in warps if b in (1, 4, 16) and w in (1, 4)]
    return fastest(sketch, *({"split_k": b, "warps_k": w, **TWO} for b, w in ways))


def fastest_of_few(sketch: Sketch) -> int:
    """Constants go to registers once: all rows are in one block, and in one warp, the sum is split
    over some blocks, of which the last adds it up.  The model does not see what it takes to fetch
    weights from memory."""
    knobs = sketch.space.space_map
    short = min(("tile_n", "tile_m"), key=lambda name: prod(knobs[name][0].size))
    held: dict[str, Any] = {"registers": True, "warps_k": 1, "ahead": 1, "auto_unroll_max_step": 0}
    held[short] = min(knobs[short], key=lambda e: e.size[:2]).value
    for name, wanted in (("step_k", 8), ("stages", 2)):
        held[name] = max(e.val for e in knobs[name] if e.val <= wanted)
    held["joined"] = any(e.val for e in knobs["joined"])
    splits = [e.val for e in knobs["split_k"]]
    ways = [n for n in splits if n in FEW_SPLITS] or splits[-1:]
    return fastest(sketch, *({**held, "split_k": n} for n in ways))
