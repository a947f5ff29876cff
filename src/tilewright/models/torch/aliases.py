"""Which outputs of a graph of PyTorch's lie in the memory of its inputs, or of other outputs.

In: an exported program.  Out: how such outputs are made of these: views, which nobody
computes, so that what is written to one later is seen in the other.  Needs PyTorch.
Read next: `compile.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilewright.base.errors import ModelError

Shared = tuple[str, Any]


def results_of(ep: Any) -> list[Any]:
    """What it returns, as PyTorch has it while it traces."""
    (output,) = (n for n in ep.graph.nodes if n.op == "output")
    return [n.meta.get("val") if hasattr(n, "meta") else n for n in output.args[0]]


def shared(torch: Any, ep: Any, place: str) -> dict[int, Shared]:
    """By output: ("input", position) for an argument itself, ("input_view", (position, shape,
    strides, offset)) for a view of one, and ("output_view", ...) for one of another output, which
    holds all of that memory in order.  offset: from where the viewed one begins.

    ep: as torch.export gives it, not decomposed: what its values are views of is noted there
    Raises ModelError for outputs that share memory in another way.
    """
    values = {n.name: n.meta.get("val") for n in ep.graph.nodes}
    names = [s.arg.name for s in ep.graph_signature.input_specs if s.kind.name == "USER_INPUT"]
    given = [values.get(name) for name in names]
    before: dict[Any, list[int]] = {}
    for k, tensor in enumerate(given):
        if _is(torch, tensor):
            before.setdefault(_memory(tensor), []).append(k)
    results = results_of(ep)
    found: dict[int, Shared] = {}
    groups: dict[Any, list[int]] = {}
    for k, tensor in enumerate(results):
        if not _is(torch, tensor) or not _is_known(tensor):
            continue
        if _memory(tensor) not in before:
            groups.setdefault(_memory(tensor), []).append(k)
            continue
        position, *others = before[_memory(tensor)]
        if others:
            raise ModelError(place, "an output is a view of inputs that share memory",
                             "Return a copy: .clone().")  # fmt: skip
        found[k] = "input_view", _view(tensor, position, given[position], place)
        if found[k][1] == _view(given[position], position, given[position], place):
            found[k] = "input", position
    for members in groups.values():
        base = max(members, key=lambda k: results[k].numel())
        if len(members) > 1 and _holds_all(results[base]):
            found |= {k: ("output_view", _view(results[k], base, results[base], place))
                      for k in members if k != base}  # fmt: skip
        elif len(members) > 1 and _overlap(torch, [results[k] for k in members]):
            raise ModelError(place, "its outputs are views of one memory that overlap",
                             "Return what they are views of as well.")  # fmt: skip
    return found


def _is(torch: Any, value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided


def _memory(tensor: Any) -> Any:
    return tensor.untyped_storage()._cdata


def _is_known(tensor: Any) -> bool:
    """Whether it has elements, and its shape is numbers."""
    return all(isinstance(n, int) and n > 0 for n in tensor.shape)


def _view(tensor: Any, which: int, base: Any, place: str) -> tuple[int, list[int], list[int], int]:
    if tensor.dtype != base.dtype or tensor.is_conj() or tensor.is_neg():
        raise ModelError(place, "an output reads memory of another value as another element type",
                         "Return a copy: .clone().")  # fmt: skip
    offset = tensor.storage_offset() - base.storage_offset()
    return which, list(tensor.shape), list(tensor.stride()), offset


def _holds_all(tensor: Any) -> bool:
    size = tensor.untyped_storage().nbytes() // tensor.element_size()
    return bool(tensor.is_contiguous()) and tensor.numel() == size


def _overlap(torch: Any, tensors: Sequence[Any]) -> bool:
    """Whether an element is in more than one of them, which are views of one memory."""
    with torch._C._DisableTorchDispatch():
        size = tensors[0].untyped_storage().nbytes() // tensors[0].element_size()
        seen = torch.zeros(size, dtype=torch.bool)
        for t in tensors:
            mine = seen.as_strided(t.shape, t.stride(), t.storage_offset())
            if mine.any():
                return True
            mine.fill_(True)
    return False


__all__ = ["results_of", "shared"]
