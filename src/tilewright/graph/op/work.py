"""How much work one use of an operator is, before anything of it is computed.

In: a node.  Out: bytes and scalar operations, to within a small factor.  What has a budget asks:
import and constant folding.  Read next: `graph/passes/constants.py`, `models/limits.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable

from tilewright.graph.expr import Call, Expr, TupleType, Type
from tilewright.graph.op.conv import CONVOLUTIONS, TRANSPOSED
from tilewright.graph.op.pooling import ROWS as POOLING
from tilewright.graph.op.resize import taps
from tilewright.graph.op.sampling import TAPS
from tilewright.graph.traversal import op_name


def elements(kind: Type) -> int:
    """Elements of a tensor, or of all in a tuple."""
    return sum(map(elements, kind.fields)) if isinstance(kind, TupleType) else kind.size


def nbytes(kind: Type) -> int:
    return sum(map(nbytes, kind.fields)) if isinstance(kind, TupleType) else kind.nbytes


def moved(node: Expr) -> int:
    """Bytes that `node` reads and writes."""
    if not isinstance(node, Call):
        return 0
    return nbytes(node.checked_type) + sum(nbytes(a.checked_type) for a in node.args)


def work(node: Expr) -> int:
    """Operations that `node` does itself; nothing for what only names values."""
    if not isinstance(node, Call):
        return 0
    touched = max([elements(node.checked_type), *(elements(a.checked_type) for a in node.args)])
    inner = _INNER.get(op_name(node))
    return touched if inner is None else max(touched, elements(node.checked_type) * inner(node))


def _conv(node: Call) -> int:
    letters = filter(str.isalpha, str(node.attrs.kernel_layout))
    weight = zip(letters, node.args[1].shape, strict=True)
    return 2 * math.prod(e for letter, e in weight if letter not in "Oo")


def _conv_transpose(node: Call) -> int:
    """Each result sums the taps of its phase; a dilated kernel is spread with zeros."""
    a, layout = node.attrs, str(node.attrs.kernel_layout)
    weight = dict(zip(layout, node.args[1].shape, strict=True))
    image = [weight[letter] for letter in "DHW" if letter in weight]
    taps = [
        -(-((size - 1) * dilation + 1) // stride)
        for size, dilation, stride in zip(image, a.dilation, a.strides, strict=True)
    ]
    return int(2 * weight["I"] // a.groups * math.prod(taps))


def _pool(node: Call) -> int:
    return math.prod(node.attrs.pool_size)


def _resize(node: Call) -> int:
    shape = node.args[0].shape
    return 8 * taps(node.attrs, [shape[k] for k in node.attrs.axes])


def _grid_sample(node: Call) -> int:
    return int(16 * TAPS[node.attrs.method] ** (len(node.shape) - 2))


_INNER: dict[str, Callable[[Call], int]] = {  # operations for each element of the result
    "nn.dense": lambda n: 2 * n.args[0].shape[1],
    "nn.dense_narrow": lambda n: 2 * n.args[0].shape[1],
    "nn.batch_matmul": lambda n: 2 * n.args[0].shape[1 if n.attrs.transpose_a else 2],
    "image.grid_sample": _grid_sample,
    "image.resize": _resize,
    "vision.roi_align": lambda n: 64 * int(n.attrs.sample_ratio) ** 2,
    **dict.fromkeys(CONVOLUTIONS, _conv),
    **dict.fromkeys(TRANSPOSED, _conv_transpose),
    **{row.name: _pool for row in POOLING if "pool_size" in row.attrs},
}
