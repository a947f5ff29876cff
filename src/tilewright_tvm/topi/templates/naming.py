"""How a template by TVM's name is registered.

In: its name, computation and schedule.  Out: an entry that only tasks by its name have, and the
re-instantiation of what was recorded with it.  Read next: `workloads.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright.schedule.space.trace import MAX_PARTS
from tilewright.schedule.template import Anchored, anchor_template
from tilewright.te.tensor import Tensor
from tilewright.topi.templates.untuned import fastest

GPU, CPU = ("cuda", "opencl"), ("llvm",)


def by_name(
    name: str,
    kinds: Sequence[str],
    tags: Sequence[str],
    compute: Callable[..., Tensor],
    schedule: Callable[[Any, Anchored], None],
    structures: int = MAX_PARTS,
    held: Mapping[str, Any] | None = None,
) -> None:
    """held: knobs that the untuned configuration has at these values, where it has many structures;
    see `RegisteredAnchor` for the others"""

    def fallback(sketch: Sketch, _: Anchored) -> int:
        return fastest(sketch, held or {})

    anchor_template(
        name, kinds=kinds, tags=tags, fallback=fallback, compute=compute, offered=False,
        structures=structures,
    )(schedule)  # fmt: skip
