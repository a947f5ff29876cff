"""Calls of compiled networks on the memory of PyTorch's tensors: no copy goes in or out.

In: PyTorch, a `Caller`, and what is to be returned.  Out: a function of tensors.
Read next: `caller.py`, `compiled.py`; `torch.compile` calls its graphs so, too.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import ALIGNMENT
from tilewright.runtime.network.caller import Caller
from tilewright.runtime.network.plan import Bound

Run = Callable[[Sequence[Any]], Any]  # of the arguments of a graph


def function(
    torch: Any, caller: Caller, inputs: Sequence[int], outputs: Sequence[Any], where: Any
) -> Run:
    """The call, with everything bound that can be known before it.

    While the current stream is captured into a graph of the user's, what is written lies in memory
    of PyTorch's, whose pool for that graph keeps it for replays.
    What is written to an argument is computed there where `Output.over` says that it may be.
    """
    turn, compute, copy = caller.turn, caller.run, caller.copy
    capturing = caller.captured
    rooms = [partial(torch.empty, n, dtype=torch.uint8, device=where) for n in caller.rooms]
    puts = list(zip(inputs, caller.inputs, caller.staging, strict=True))
    makers = [
        (o.put, _maker(torch, o.spec.shape, getattr(torch, o.spec.dtype), where), o)
        for o in caller.outputs
    ]
    over = _computed_in_place(caller, inputs, outputs)
    bounds = _looked_at(caller, inputs, where)
    plain = [kind for kind, _ in outputs] == ["output"] * len(makers) and all(
        o.put is not None for o in caller.outputs
    )

    def run(args: Sequence[Any]) -> Any:
        for k, name, bound in bounds:
            _check(args[k], name, bound)
        with turn:
            kept, given = [], []  # until the kernels are enqueued
            recorded = capturing is not None and capturing()
            for k, put, stage in puts:
                tensor = args[k]
                if tensor.is_neg() or tensor.is_conj():  # what is stored is the negative
                    tensor = tensor.resolve_conj().resolve_neg()
                    kept.append(tensor)
                if not tensor.is_contiguous():
                    tensor = tensor.contiguous()
                    kept.append(tensor)
                pointer = tensor.data_ptr()
                if pointer % ALIGNMENT:
                    if recorded:
                        kept.append(tensor := tensor.clone())
                        pointer = tensor.data_ptr()
                    else:
                        copy(stage.pointer, pointer, stage.nbytes)
                        pointer = stage.pointer
                put(pointer)
                given.append(pointer)
            made: list[Any] = []
            for k, (place, make, _) in enumerate(makers):
                at = over.get(k)  # of that argument as it is, or of a copy of it
                own = at is not None and given[at] == args[inputs[at]].data_ptr()
                tensor = args[inputs[at]] if own and at is not None else make()
                if place is not None:
                    place(tensor.data_ptr())
                made.append(tensor)
            if recorded:
                kept += (held := [make() for make in rooms])
                apart = [t.data_ptr() for t in held]
                caller.record(apart)
            else:
                compute()
            if plain:
                return made
            for tensor, (place, _, output) in zip(made, makers, strict=True):
                if place is None:
                    source = output.memory.pointer
                    if recorded and output.room is not None:
                        source = apart[output.room] + output.memory.offset
                    if output.same is not None:
                        source = made[output.same].data_ptr()
                    elif output.given is not None:
                        source = given[output.given]
                    copy(tensor.data_ptr(), source, tensor.nbytes)
            return given_back(outputs, made, args)

    return run


def _looked_at(caller: Caller, inputs: Sequence[int], where: Any) -> list[tuple[int, str, Bound]]:
    """Arguments with bounds, such as positions of a cache.  To look at one on a GPU, the host would
    wait for it."""
    if where.type != "cpu":
        return []
    return [(inputs[bound.input], name, bound) for name, bound in caller.bounds]


def _check(tensor: Any, name: str, bound: Bound) -> None:
    """Raises DeviceError for numbers that an argument may not have, before anything is written."""
    ends = tensor.aminmax() if tensor.numel() > 1 else (tensor, tensor)
    least, most = (int(end) for end in ends)
    if least < bound.least or most > bound.most:
        wrong = least if least < bound.least else most
        raise DeviceError(
            f"torch.compile: {name!r}", f"{wrong} is not from {bound.least} to {bound.most}, the "
            "places of what is written",
            "Use a longer cache, or begin it anew: nothing was written.",
        )  # fmt: skip


def _computed_in_place(
    caller: Caller, inputs: Sequence[int], outputs: Sequence[Any]
) -> dict[int, int]:
    """Of what is only written to an argument, and may be computed there, the number of that among
    the inputs."""
    found = {}
    results = [tuple(item[1:]) if kind == "write" else (kind, item) for kind, item in outputs]
    for kind, item in outputs:
        if kind != "write" or item[1] != "output" or results.count(("output", item[2])) > 1:
            continue
        at = caller.outputs[item[2]].over
        copied = [i[0] for k, i in outputs if k == "write" and tuple(i[1:]) == ("input", item[0])]
        if at is None or inputs[at] != item[0] or copied:
            continue
        if caller.outputs[item[2]].put is not None:
            found[item[2]] = at
    return found


def given_back(outputs: Sequence[Any], made: Sequence[Any], args: Sequence[Any]) -> list[Any]:
    """What a graph returns, after it has written to its arguments.

    made: what was computed
    """

    def value(kind: str, item: Any) -> Any:
        return made[item] if kind == "output" else args[item] if kind == "input" else item

    given = [(kind, item) for kind, item in outputs if kind != "write"]
    found = [value(kind, item) for kind, item in given]
    written = [(item[0], value(*item[1:])) for kind, item in outputs if kind == "write"]
    if written:
        _write([(args[position], tensor) for position, tensor in written])
    for k, (kind, item) in enumerate(given):
        if kind.endswith("_view"):
            which, shape, strides, offset = item
            base = args[which] if kind == "input_view" else found[which]
            found[k] = base.as_strided(shape, strides, base.storage_offset() + offset)
    return found


def _write(written: Sequence[tuple[Any, Any]]) -> None:
    """Copy what was not computed in place; values of GPUs in one launch where they are alike."""
    import torch

    apart = [(there, made) for there, made in written if made is not there]
    if len(apart) > 1 and all(there.is_cuda for there, _ in apart):
        torch._foreach_copy_([there for there, _ in apart], [made for _, made in apart])
    else:
        for there, made in apart:
            there.copy_(made)
    for there, made in written:
        if made is there:
            _count_write(there)


def _count_write(tensor: Any) -> None:
    """Have PyTorch know that `tensor` has other elements now: who holds it as a weight asks."""
    import torch

    if not tensor.is_inference():  # which have no count
        torch.autograd.graph.increment_version(tensor)


def _maker(torch: Any, shape: tuple[int, ...], kind: Any, where: Any) -> Callable[[], Any]:
    """Makes a new tensor.  PyTorch has a function for its own compilers that takes a third of the
    time of `torch.empty`, on CPUs."""
    quick = getattr(torch._C._dynamo.guards, "_empty_strided_cpu", None)
    if quick is None or where.type != "cpu":
        return partial(torch.empty, shape, dtype=kind, device=where)
    strides = tuple(math.prod(shape[k + 1 :]) for k in range(len(shape)))
    return partial(quick, shape, strides, kind)


def current_stream(torch: Any, where: Any) -> Callable[[], int]:
    """The handle of the caller's current stream; a CPU has none."""
    if where.type != "cuda":
        return int
    return partial(torch._C._cuda_getCurrentRawStream, where.index or 0)


def is_capturing(torch: Any) -> bool:
    """Whether PyTorch's current stream is recorded into a graph."""
    return bool(torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing())


__all__ = ["Run", "current_stream", "function", "given_back", "is_capturing"]
