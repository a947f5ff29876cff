"""Values that are computed a second time for the gradient instead of being kept.

In: a graph with `relay.annotation.checkpoint`.  Out: for each node the one that rules read: itself,
or, behind a checkpoint, a copy that is made of what checkpoints gave.  Read next: `backward.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Call, Expr, Tuple, TupleGetItem, children, post_order
from tilewright.graph.traversal import is_call, twin, with_children
from tilewright_tvm.relay.gradients.branches import Branches

CHECKPOINT = "annotation.checkpoint"


class Again:
    """`again(node)`: the value of `node` that is not kept from the first time.

    What is read outside of checkpoints, too, is kept anyway.
    """

    def __init__(self, branches: Branches) -> None:
        body, read = branches.body, branches.read
        inside = any(is_call(n, CHECKPOINT) for n in post_order(body, read))
        kept = post_order(body, lambda n: () if is_call(n, CHECKPOINT) else read(n))
        self._kept = set(kept) if inside else None
        self._made: dict[Expr, Expr] = {}

    def __call__(self, node: Expr) -> Expr:
        if self._kept is None:
            return node
        for part in post_order(node, self._copied):
            if part not in self._made:
                self._made[part] = self._copy(part)
        return self._made[node]

    def _copied(self, node: Expr) -> tuple[Expr, ...]:
        """What a copy of `node` is made of; nothing where there is none."""
        assert self._kept is not None
        is_new = isinstance(node, (Call, Tuple, TupleGetItem)) and node not in self._kept
        return () if not is_new or is_call(node, CHECKPOINT) else children(node)

    def _copy(self, node: Expr) -> Expr:
        parts = self._copied(node)
        if not parts:
            return node
        made = with_children(node, tuple(self._made[p] for p in parts))
        return made if made is not node else twin(node)
