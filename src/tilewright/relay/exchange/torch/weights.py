"""The weights of a graph of PyTorch, and whether they are what they were.

In: graphs and tensors of PyTorch.  Out: a question that is asked at every call, so it has to be
quick.  Read next: `compile.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any

Question = Callable[[Sequence[Any]], bool]


def attributes(gm: Any) -> list[Any]:
    """What the nodes of a graph take from its module: tensors where PyTorch made weights part of
    the graph."""
    return [attrgetter(str(n.target))(gm) for n in gm.graph.nodes if n.op == "get_attr"]


def unchanged(torch: Any, tensors: Sequence[Any]) -> Question:
    """Whether others are `tensors` as they are now: the same memory, not written to since.

    PyTorch counts what is written through a tensor and its views, not what is written through
    `.data`, and nothing for tensors that were made in inference mode.
    """
    held = [t.detach() for t in tensors]  # while they are, no other tensor gets their addresses
    address, version = torch.Tensor.data_ptr, attrgetter("_version")
    addresses, places = list(map(address, held)), list(range(len(held)))
    at_once = getattr(torch._C, "_tensors_data_ptrs_at_indices_equal", None)  # with CUDA only

    def same_memory(given: Sequence[Any]) -> bool:
        if at_once is not None and held:
            return bool(at_once(list(given), addresses, places))
        return list(map(address, given)) == addresses

    if any(t.is_inference() for t in tensors):
        return same_memory
    versions = list(map(version, tensors))
    return lambda given: list(map(version, given)) == versions and same_memory(given)
