"""What of a graph is known already at import.

In: graph values.  Out: their arrays, by the numpy rule of each operator, where they depend on
weights and constants only; what that may cost is bounded.  Read next: `importer.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Array, Constant, Expr, Tuple, Var, children, post_order
from tilewright.graph.op.work import nbytes, work

# Operations and bytes of what is computed at once, so that chains stay short; what is larger waits
# until somebody asks, or for `graph/passes/constants.py`.
AT_ONCE = 1 << 16
MOST = 1 << 28


class Folder:
    """
    params: arrays of variables, by name
    room:   asks for bytes of constants
    """

    def __init__(self, params: Mapping[str, Array], room: Callable[[int, str], None]) -> None:
        self.params, self.room = params, room
        self._open: dict[Expr, bool] = {}
        self._arrays: dict[Expr, Array] = {}

    def is_open(self, root: Expr) -> bool:
        """Whether `root` depends on an input of the network."""
        waiting = [root]
        while waiting:
            node = waiting[-1]
            parts = children(node)
            if todo := [c for c in parts if c not in self._open] if node not in self._open else []:
                waiting += todo
                continue
            waiting.pop()
            if node not in self._open:
                own = isinstance(node, Var) and node.name_hint not in self.params
                is_leaf = not parts and not isinstance(node, (Var, Constant, Tuple))
                self._open[node] = own or is_leaf or any(self._open[c] for c in parts)
        return self._open[root]

    def array(self, value: Expr, place: str, most: int = MOST) -> Array | None:
        """The array of `value`; None where it is open or costs more than `most`."""
        if isinstance(value, Constant):
            return value.data
        if isinstance(value, Var):
            return self.params.get(value.name_hint)
        if value in self._arrays:
            return self._arrays[value]
        if self.is_open(value):
            return None
        nodes = post_order(value)
        if sum(max(work(node), nbytes(node.checked_type)) for node in nodes) > most:
            return None
        self.room(nbytes(value.checked_type), place)
        found = np.asarray(evaluate(value, self.params))
        self._arrays[value] = found
        return found
