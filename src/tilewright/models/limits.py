"""What an imported model may cost, checked before any of it is allocated or computed.

In: a function.  Out: nothing, or a ModelError with the limit that is passed and how to raise it.
Read next: `onnx/importer.py`.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, post_order
from tilewright.graph.op.work import moved, nbytes, work
from tilewright.graph.traversal import op_name


class BeyondLimit(ModelError):
    """A model that costs more than it may."""


@dataclass(frozen=True)
class Limits:
    """Limits of one model.

    The defaults let networks pass at batches of some tens of images.  A build verifies each kernel
    on arrays of its sizes, in float64, so it may need eight times `step`.

    nodes:      operators of the file
    unrolled:   operators in copies of the body of a loop whose end shows only on the way
    constants:  bytes of arrays that the file does not hold but has import make
    step:       bytes that one operator reads and writes
    total:      bytes of all inputs, weights and intermediate values, each counted once
    operations: scalar operations of one run
    """

    nodes: int = 50_000
    unrolled: int = 8_000
    constants: int = 1 << 31
    step: int = 1 << 30
    total: int = 1 << 36
    operations: int = 10**12

    def check(self, what: str, found: int, place: str = "from_onnx") -> None:
        """what: a field.  Raises ModelError if `found` is beyond it."""
        most = getattr(self, what)
        if found > most:
            raise BeyondLimit(
                place, f"{found} {_MEANING[what]}, the limit is {most}",
                f"If that is meant, take tilewright.relay.frontend.from_onnx("
                f"model, limits=relay.frontend.Limits({what}={found})).",
                command="If that is meant, import it in Python, by "
                f"tilewright.relay.frontend.from_onnx, with {found} as the limit called {what}.",
            )  # fmt: skip

    def check_graph(self, body: Expr) -> None:
        """Raises ModelError for a graph with too large values or too much work."""
        nodes = [node for node in post_order(body) if not node.waits]
        for node in nodes:
            self.check("step", moved(node), f"from_onnx: {op_name(node)}")
        self.check("total", sum(nbytes(n.checked_type) for n in nodes))
        self.check("operations", sum(map(work, nodes)))


_MEANING = {
    "nodes": "nodes",
    "unrolled": "nodes of a loop that has not ended",
    "constants": "bytes of computed constants",
    "step": "bytes that one operator reads and writes",
    "total": "bytes of values",
    "operations": "operations in one run",
}
