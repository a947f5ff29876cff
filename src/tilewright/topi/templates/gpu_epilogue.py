"""What surrounds an anchor on a GPU: producers inlined, elementwise consumers joined to its results.

In: an anchored schedule.  Out: the stage that stores the results; what cannot share the anchor's
loops gets kernels of its own.  Read next: `gpu.py`.
"""

from __future__ import annotations

from tilewright.schedule.default import epilogue_anchor, inline_cheap_stages, schedule_stage
from tilewright.schedule.template import Anchored
from tilewright.te.tensor import ComputeOp, Tensor


def inline_around(a: Anchored) -> Tensor:
    """Inline what is cheap; the tensor whose loops the anchor shares (the anchor where there is none).

    A consumer that reads the anchor otherwise than element for element (a softmax, a pooling, a
    transposition) is computed afterwards with its default schedule.
    """
    s = a.schedule
    anchor, joined = s[a.anchor], s[a.anchor]
    inline_cheap_stages(s)
    others = [
        st
        for st in s.stages
        if isinstance(st.op, ComputeOp) and st.attach_kind == "root" and st is not anchor
    ]
    for stage in reversed(others):
        if epilogue_anchor(s, stage) is anchor:
            joined = stage
        else:
            schedule_stage(s, stage, a.target)
    return joined.tensor
