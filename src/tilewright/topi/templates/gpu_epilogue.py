"""What surrounds an anchor on a GPU: producers inlined, elementwise consumers joined to it.

In: an anchored schedule; what follows its anchor is elementwise.  Out: the tensor whose loops the
anchor shares.  Read next: `gpu.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from tilewright.schedule.default import inline_cheap_stages, schedule_roots
from tilewright.schedule.schedule import Stage
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import Tensor


def inline_around(a: Anchored, last: Tensor | None = None, inside: Sequence[Stage] = ()) -> Tensor:
    """Inline the epilogue and what is cheap; other producers get kernels of their own.

    last:   whose loops the anchor shares where that is not `a.output`
    inside: producers that the anchor's kernel computes, which are left as they are
    Returns the output, which is the anchor itself where nothing follows.
    """
    s = a.schedule
    shared = a.output if last is None else last
    anchor, output = s[a.anchor], s[shared]
    for stage in s.stages:
        if stage is not output and s.reaches(anchor, stage) and s.reaches(stage, output):
            stage.compute_inline()
    # The output's loops are those that the anchor shares, also where others follow.
    inline_cheap_stages(s, [output, *inside])
    schedule_roots(s, a.target, done=(anchor, output, *inside))
    return shared
