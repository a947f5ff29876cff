"""Rows of pooling over images of one, two and three axes.

In: tensors; attributes as `graph/functions/pooling.py` normalises them.  Out: rows for
`op/__init__.py`. Read next: `window.py`, their values on arrays; `graph/functions/pooling.py`, what
users call.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.base.dtype import DType
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op import window
from tilewright.graph.op.row import Op, Pattern, Site


def pool_type(site: Site, index: int = 0) -> Type:
    """index: which argument is the data"""
    a, rank = site.attrs, len(site.attrs.strides)
    layout = window.check_layout(site, a.get("layout", window.channels_first(rank)), rank)
    d = _extents(site, layout, index)
    image = window.IMAGE[rank]
    sizes = window.image_size(site, [d[k] for k in image], a.pool_size)
    reach = window.reaches(a.pool_size, a.dilation)
    site.require(
        all(p < r for p, r in zip(a.padding, reach * 2, strict=True)),
        f"with padding {a.padding} a window of {tuple(reach)} can lie wholly outside",
        "Pad by less.",
    )
    d |= dict(zip(image, sizes, strict=True))
    return TensorType(tuple(d[x] for x in layout), site.number_dtype())


def _float_pool_type(site: Site) -> Type:
    site.float_dtype()
    return pool_type(site)


def _lp_pool_type(site: Site) -> Type:
    p = site.attrs.p
    site.require(p > 0, f"p={p} is not positive", "Use p=2, the Euclidean norm.")
    return _float_pool_type(site)


def _indices_type(site: Site) -> Type:
    found = pool_type(site)
    assert isinstance(found, TensorType)
    return TensorType(found.shape, DType("int64"))


def _pool_te(kind: str) -> Any:
    def compute(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
        function = getattr(topi.nn, f"pool{len(a.strides)}d")
        return function(
            tensors[0], a.pool_size, a.strides, a.dilation, a.padding, kind, a.ceil_mode, a.layout,
            a.get("count_include_pad", True), beyond=False,
        )  # fmt: skip

    return compute


def _lp_pool_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    return topi.nn.lp_pool(
        tensors[0], a.pool_size, a.strides, a.dilation, a.padding, a.p, a.ceil_mode, a.layout
    )


def _indices_te(tensors: Sequence[Any], a: Attrs, result: Type) -> Any:
    return topi.nn.max_pool_indices(
        tensors[0], a.pool_size, a.strides, a.dilation, a.padding, a.ceil_mode,
        bool(a.storage_order),
    )  # fmt: skip


def _resized(site: Site, size: Sequence[int]) -> Type:
    layout = window.check_layout(site, site.attrs.layout, len(size))
    d = _extents(site, layout) | dict(zip(window.IMAGE[len(size)], size, strict=True))
    return TensorType(tuple(d[x] for x in layout), site.tensor(0).dtype)


def _extents(site: Site, letters: str, index: int = 0) -> dict[str, int]:
    """The data's extents by letter."""
    data = site.tensor(index, len(letters), letters)
    if "c" in letters:
        window.check_blocks(site, site.attrs.layout, data.shape)
    return dict(zip(letters, data.shape, strict=True))


def _adaptive_type(rank: int, kind: str) -> Any:
    def type_rule(site: Site) -> Type:
        size = tuple(site.attrs.output_size)
        words = "a pair of sizes" if rank == 2 else f"{rank} sizes"
        site.require(
            len(size) == rank and min(size) >= 1,
            f"output_size {size} is not {words}",
            f"Use output_size={(1,) * rank}, or larger.",
        )
        made = _resized(site, size)
        _ = site.float_dtype() if kind == "avg" else site.number_dtype()
        return made

    return type_rule


def _global_type(rank: int, kind: str) -> Any:
    def type_rule(site: Site) -> Type:
        made = _resized(site, (1,) * rank)
        _ = site.float_dtype() if kind == "avg" else site.number_dtype()
        return made

    return type_rule


def _global_numpy(kind: str) -> Any:
    def evaluate(arrays: Sequence[Any], a: Attrs) -> Array:
        letters = filter(str.isalpha, a.layout)
        axes = tuple(k for k, letter in enumerate(letters) if letter not in "NCc")
        return np.asarray(window.folded(arrays[0], axes, kind), arrays[0].dtype)

    return evaluate


def _global_te(kind: str) -> Any:
    return lambda t, a, result: topi.nn.global_pool(t[0], kind, a.layout)


def _adaptive_te(kind: str) -> Any:
    return lambda t, a, result: topi.nn.adaptive_pool(t[0], a.output_size, kind, a.layout)


def _adaptive_numpy(fold: str) -> Any:
    return lambda arrays, a: window.adaptive_pool(arrays, a, fold)


def _rows(rank: int) -> tuple[Op, ...]:
    layout = window.channels_first(rank)
    base = {"pool_size": (), **window.defaults(rank), "ceil_mode": False}
    placed = {**base, "layout": layout}
    sized = {"output_size": (1,) * rank, "layout": layout}
    data, anchor = ("data",), Pattern.ANCHOR
    kinds = {"avg": ("mean", "Mean", "Average"), "max": ("max", "Greatest element", "Max")}
    return (
        Op(
            f"nn.max_pool{rank}d", data, anchor, pool_type, window.max_pool, _pool_te("max"),
            "Greatest element of each window.", placed, ("MaxPool",),
        ),
        Op(
            f"nn.max_pool{rank}d_indices", data, anchor, _indices_type, window.max_pool_indices,
            _indices_te,
            "Where in the flattened data the first greatest element of each window lies.",
            {**base, "storage_order": 0}, ("MaxPool",),
        ),
        Op(
            f"nn.avg_pool{rank}d", data, anchor, _float_pool_type, window.avg_pool,
            _pool_te("avg"),
            "Mean of each window; count_include_pad: padding counts as elements.",
            {**placed, "count_include_pad": False}, ("AveragePool",),
        ),
        Op(
            f"nn.lp_pool{rank}d", data, anchor, _lp_pool_type, window.lp_pool, _lp_pool_te,
            "The p-norm of each window: (sum of |x|^p)^(1/p).", {**placed, "p": 2}, ("LpPool",),
        ),
        *(
            Op(
                f"nn.global_{kind}_pool{rank}d", data, anchor, _global_type(rank, kind),
                _global_numpy(fold), _global_te(kind), f"{words} of each image.",
                {"layout": layout}, (f"Global{onnx}Pool",),
            )
            for kind, (fold, words, onnx) in kinds.items()
        ),
        *(
            Op(
                f"nn.adaptive_{kind}_pool{rank}d", data, anchor, _adaptive_type(rank, kind),
                _adaptive_numpy(fold), _adaptive_te(kind),
                f"{words} of each of as many windows as `output_size` asks for.", sized,
            )
            for kind, (fold, words, _) in kinds.items()
        ),
    )  # fmt: skip


ROWS = tuple(row for rank in window.RANKS for row in _rows(rank))
