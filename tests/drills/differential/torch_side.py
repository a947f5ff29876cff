"""PyTorch's operators, exported and imported, and in PyTorch.

In: the samples with which PyTorch tests its operators, with other data and other numbers now and
then.  Out: a module of one call for each, run by both.  Read next: `case.py`.
"""

from __future__ import annotations

import logging
import sys
import types
import unittest
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch.utils import _pytree as pytree

from drills.differential.built import both_ways
from drills.differential.case import Case, NoAnswer, Refused, eps_of, noted
from drills.differential.draw import Array, Draw
from drills.differential.sides import Side
from tilewright.base.errors import ModelError
from tilewright.models.torch.export import as_numpy
from tilewright_tvm import relay


def _operators() -> list[Any]:
    """Of PyTorch's own tests, whose helpers ask for a package that only their texts need."""
    if "expecttest" not in sys.modules:
        stub = types.ModuleType("expecttest")
        stub.TestCase = unittest.TestCase  # type: ignore[attr-defined]
        sys.modules["expecttest"] = stub
    from torch.testing._internal.common_methods_invocations import op_db

    return list(op_db)


logging.disable(logging.CRITICAL)  # what PyTorch tells of calls that it refuses

# of random results, of memory as it lies, of other kinds of tensors, of functions that no network
# computes: whatever begins so, and whole names
PREFIXES = (
    "rand", "normal.", "normal_", "bernoulli", "multinomial", "nn.functional.dropout", "empty",
    "new_empty", "as_strided", "sparse", "jiterator", "cauchy", "log_normal", "exponential",
    "geometric", "uniform", "resize", "_refs", "to_sparse", "complex", "fft", "polar", "view_as_",
    "nested", "linalg", "cholesky", "svd", "pca", "lu_", "geqrf", "ormqr", "triangular", "inverse",
    "pinverse", "logdet", "lobpcg", "hash_tensor", "__", "allclose", "histogram", "stft", "istft",
    "torch.", "nn.functional.scaled", "nn.functional.ctc", "nn.functional.rrelu", "special.",
    "polygamma", "mvlgamma", "igamma", "lgamma", "digamma", "cdist", "gradient", "householder",
    "matrix_exp", "trap", "cov", "corrcoef", "nn.functional.alpha_dropout", "arange",
    "combinations", "nn.functional.feature_alpha", "nn.functional.fractional", "broadcast_shapes",
    "signal.",
)  # fmt: skip
NAMES = ("normal", "real", "imag", "lu", "qr", "eig", "item", "to", "equal", "data", "chalf",
         "cdouble", "cfloat", "linspace", "logspace", "full", "ones", "zeros", "eye")  # fmt: skip
TYPES = (torch.float32,) * 6 + (torch.float64, torch.int64, torch.int32, torch.bool, torch.float16,
                                torch.bfloat16)  # fmt: skip
KINDS = (*TYPES, torch.int8, torch.uint8, torch.int16)
JUMPS = ("floor_divide", "div.floor_rounding", "div.trunc_rounding", "fmod")  # of exact operands
DATA, NUMBERS = 0.4, 0.12  # shares of samples with other data, and with another number


def _known() -> dict[str, Any]:
    found: dict[str, Any] = {}
    for info in _operators():
        name = info.name + (f".{info.variant_test_name}" if info.variant_test_name else "")
        if not info.name.startswith(PREFIXES) and info.name not in NAMES:
            found.setdefault(name.replace(" ", ""), info)
    return found


_INFO = _known()


def make(operator: str, draw: Draw) -> Case:
    info = _INFO[operator]
    wanted = draw.pick(TYPES)
    dtype = wanted if wanted in info.dtypes else torch.float32
    torch.manual_seed(draw.integer(0, 1 << 30))
    try:
        samples = list(info.sample_inputs("cpu", dtype))
    except Exception as error:  # of the tests' own helpers
        return _no_case(operator, f"no samples: {error}")
    if not samples:
        return _no_case(operator, "no samples")
    sample = draw.pick(samples[: 2 + len(samples) // 2] if draw.small else samples)
    leaves, spec = pytree.tree_flatten((sample.input, sample.args, sample.kwargs))
    leaves = _other_data(leaves, draw) if draw.chance(DATA) else leaves
    leaves = _in_order(operator, leaves)
    if operator in JUMPS and draw.chance(DATA):
        leaves = _near_multiples(leaves)
    leaves = _other_number(leaves, draw) if draw.chance(NUMBERS) else leaves
    at = [k for k, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
    if not at or any(leaves[k].dtype not in KINDS or leaves[k].layout != torch.strided for k in at):
        return _no_case(operator, "no tensor, or one of a kind that networks do not have")

    def called(tensors: Sequence[Any]) -> Any:
        held = list(leaves)
        for k, t in zip(at, tensors, strict=True):
            held[k] = t
        first, args, kwargs = pytree.tree_unflatten(held, spec)
        found = info.op(first, *args, **kwargs)
        return [v for v in pytree.tree_leaves(found) if isinstance(v, torch.Tensor)]

    class Call(torch.nn.Module):
        def forward(self, *tensors: Any) -> Any:
            return called(tensors)

    tensors = [leaves[k].detach().clone() for k in at]

    def peer(data: Sequence[Array]) -> list[Array]:
        given = [_tensor(a, t.dtype) for a, t in zip(data, tensors, strict=True)]
        try:
            with torch.no_grad():
                found = called(given)
        except NotImplementedError as error:
            raise NoAnswer(str(error)) from None
        except Exception as error:
            if "not implemented" in str(error):
                raise NoAnswer(str(error)) from None
            raise Refused(f"{type(error).__name__}: {error}") from None
        if any(v.dtype not in KINDS for v in found):
            raise NoAnswer("results of a type that networks here do not have")
        return [as_numpy(v) for v in found]

    exported: list[Any] = []

    def export() -> Any:
        if not exported:
            given = tuple(t.clone() for t in tensors)
            try:
                with torch.no_grad():
                    exported.append(torch.export.export(Call(), given))
            except Exception as error:  # nothing for us to import
                raise ModelError("torch.export", type(error).__name__) from None
        return exported[0]

    def can(data: Sequence[Array]) -> list[Array]:
        found = peer(data)
        try:
            export()
        except ModelError as error:
            raise NoAnswer(f"not exported: {error}") from None
        return found

    names: list[str] = []

    def imported() -> Any:
        made = relay.frontend.from_exported_program(export())
        mod = made[0] if isinstance(made, tuple) else made
        names[:] = [p.name_hint for p in mod["main"].params]
        return made

    feeds = {f"tensors_{k}": as_numpy(t) for k, t in enumerate(tensors)}
    shown = [
        f"{str(v.dtype)[6:]}{list(v.shape)}" if isinstance(v, torch.Tensor) else repr(v)
        for v in leaves
    ]  # fmt: skip
    data = [as_numpy(t) for t in tensors]
    return Case(
        f"{operator}({', '.join(shown)}) {list(sample.kwargs)}{noted(data)}",
        [] if operator in JUMPS else data,  # moving them would excuse a wrong step
        lambda moved: can(moved or data),
        both_ways(imported, feeds, draw), strict=False, absolute=_off(operator, data),
    )  # fmt: skip


def _no_case(operator: str, why: str) -> Case:
    def peer(data: Sequence[Array]) -> list[Array]:
        raise NoAnswer(why)

    return Case(operator, [], peer, {})


def _tensor(array: Array, dtype: Any) -> Any:
    if dtype == torch.bfloat16:
        array = array.astype(np.float32)
    return torch.from_numpy(np.array(array)).to(dtype).reshape(array.shape)


def _other_data(leaves: list[Any], draw: Draw) -> list[Any]:
    """Floats of another style, the same for all tensors."""
    style = draw.pick(["far", "special", "whole", "small"])
    return [
        torch.from_numpy(draw.floats(tuple(v.shape), "float64", style)).to(v.dtype)
        if isinstance(v, torch.Tensor) and v.is_floating_point() and v.layout == torch.strided
        else v
        for v in leaves
    ]


def _in_order(operator: str, leaves: list[Any]) -> list[Any]:
    """What is searched in holds no NaN and is sorted, or has a `sorter` that sorts it."""
    k = {"searchsorted": 0, "bucketize": 1}.get(operator)
    if k is None:
        return leaves
    edges, changed = leaves[k], list(leaves)
    if edges.is_floating_point():
        edges = edges.nan_to_num(torch.inf, torch.inf, -torch.inf)
    sorters = [at for at, v in enumerate(leaves) if at > 1 and isinstance(v, torch.Tensor)]
    changed[k] = edges if sorters else edges.sort(-1).values
    return [edges.argsort(-1) if at in sorters else v for at, v in enumerate(changed)]


def _off(operator: str, data: Sequence[Array]) -> float:
    """How far results may be off because PyTorch rounds places among tens of elements."""
    held = np.abs(np.nan_to_num(data[0].astype("float64"), posinf=0, neginf=0))
    smooth = operator.endswith("_aa") and held.size and data[0].dtype.kind in "fV"
    return float(64 * eps_of(data[0].dtype) * held.max()) if smooth else 0.0


def _near_multiples(leaves: list[Any]) -> list[Any]:
    """The first of whole numbers, all others of tenths: 5 by 0.1, which no binary number is."""
    tensors = [v for v in leaves if isinstance(v, torch.Tensor) and v.is_floating_point()]
    first = tensors[0] if tensors else None
    return [
        v if not any(v is t for t in tensors) else v.round() if v is first else v.round() / 10
        for v in leaves
    ]


def _other_number(leaves: list[Any], draw: Draw) -> list[Any]:
    at = [k for k, v in enumerate(leaves) if isinstance(v, int) and not isinstance(v, bool)]
    if not at:
        return leaves
    k = draw.pick(at)
    n = leaves[k]
    changed = list(leaves)
    changed[k] = draw.pick([n - 1, n + 1, -n, 0, -1, n + 7, -100])
    return changed


SIDE = Side(dict.fromkeys(_INFO, 1), make)
