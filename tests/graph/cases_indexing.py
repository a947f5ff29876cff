"""Cases of operators that move, choose and order elements."""

from __future__ import annotations

from graph.case import Case, tensor
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


def at(below: int, *shape: int, dtype: str = "int32") -> relay.Var:
    """Positions below a number."""
    return tensor(f"at{below}", *shape, dtype=dtype)


def x(*shape: int) -> relay.Var:
    return tensor("x", *shape)


def _scattered(reduction: str) -> relay.Call:
    return relay.scatter_elements(x(5, 6), at(6, 4, 3), tensor("u", 4, 3), 1, reduction)


INDEXING: tuple[Case, ...] = (
    Case("take", lambda: relay.take(x(5, 6), at(6, 3, 2), 1)),
    Case("take", lambda: relay.take(x(5, 6), at(30, 4), mode="wrap"), "flat"),
    Case("take", lambda: relay.take(x(5, 6), at(5, dtype="int64"), 0, mode="wrap"), "one"),
    Case("gather", lambda: relay.gather(x(5, 6), 1, at(6, 4, 8))),
    Case("gather_nd", lambda: relay.gather_nd(x(5, 6, 2), at(5, 2, 4, 3))),
    Case("gather_nd", lambda: relay.gather_nd(x(3, 6, 5), at(5, 2, 3, 4), 1), "batch"),
    Case("scatter_elements", lambda: _scattered("update")),
    Case("scatter_elements", lambda: _scattered("add"), "add"),
    Case("scatter_elements", lambda: _scattered("mul"), "mul"),
    Case(
        "scatter_nd", lambda: relay.scatter_nd(x(5, 6, 2), at(5, 2, 4), tensor("u", 4, 2))
    ),
    Case(
        "scatter_nd",
        lambda: relay.scatter_nd(x(5, 6), at(5, 1, 2, 3), tensor("u", 2, 3, 6), "add"), "add",
    ),
    Case("argmax", lambda: relay.argmax(x(3, 4, 5), 1)),
    Case("argmax", lambda: relay.argmax(x(3, 4), -1, True, select_last_index=True), "last"),
    Case("argmin", lambda: relay.argmin(x(3, 4, 5), -1, keepdims=True)),
    Case("topk", lambda: relay.topk(x(3, 9), 4, ret_type="indices")),
    Case("topk", lambda: relay.topk(x(9, 3), 2, 0, "indices", True, "int64"), "smallest"),
    Case("cumsum", lambda: relay.cumsum(x(3, 70), 1)),
    Case("cumsum", lambda: relay.cumsum(x(9, 2), 0, exclusive=True, reverse=True), "exclusive"),
    Case("cumprod", lambda: relay.cumprod(x(3, 5), 1)),
    Case("cumprod", lambda: relay.cumprod(x(3, 5, 2), 1, None, True, True), "exclusive"),
    Case("strided_slice", lambda: relay.strided_slice(x(7, 6), (5, 1), (0, 6), (-2, 3))),
    Case("strided_slice", lambda: relay.reverse(x(3, 4), 1), "reverse"),
    Case(
        "strided_set",
        lambda: relay.strided_set(x(7, 6), tensor("v", 3, 2), (5, 1), (0, 6), (-2, 3)),
    ),
    Case("nn.mirror_pad", lambda: nn.mirror_pad(x(3, 4), ((1, 2), (3, 0)), "REFLECT")),
    Case("nn.mirror_pad", lambda: nn.pad(x(3, 4), ((1, 5), (3, 0)), pad_mode="edge"), "edge"),
)  # fmt: skip
