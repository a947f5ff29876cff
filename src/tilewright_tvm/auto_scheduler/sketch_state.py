"""`SketchState`: a sketch that rules derived, as a state whose stages and loops can be looked at.

In: a `Sketch`.  Out: a `State` of its structure, with the sketch's own attributes.
Read next: `search_policy.py`, `search/rules/derive.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.schedule.sketch import Sketch
from tilewright_tvm.auto_scheduler.loop_state import State


class SketchState(State):
    """What rules derived, before loops are marked: tiles and places.  Lengths, which are open, are
    those of the first configuration.

    sketch: with its space; `origin`, `space`, `close`, `legal` and so on are here, too
    """

    def __init__(self, sketch: Sketch) -> None:
        super().__init__(sketch.outline())
        self.sketch = sketch

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_") or name == "sketch":
            raise AttributeError(name)
        return getattr(self.sketch, name)

    def __str__(self) -> str:
        return f"{self.sketch}\n{self.schedule}"
