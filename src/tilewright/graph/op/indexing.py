"""Rows of operators whose indices are data.

In: tensors, of which one holds integers.  Out: rows for `op/__init__.py`.  What an index outside
means is said in `topi/gather.py` and `topi/scatter.py`; nothing outside is ever read or written.
Read next: `ranking.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import topi
from tilewright.graph.expr import Array, Attrs, TensorType, Type
from tilewright.graph.op.row import Op, Pattern, Site

MODES = ("clip", "wrap")
REDUCTIONS = ("update", "add", "mul", "min", "max")


def _indices(site: Site, index: int = 1) -> TensorType:
    found = site.tensor(index)
    site.require(
        found.dtype.is_int, f"{site.op.inputs[index]} of type {found.dtype} are no integers",
        'Cast them to int32.',
    )  # fmt: skip
    return found


def _something(site: Site, extents: Sequence[int], chosen: Sequence[int]) -> None:
    """extents: of the axes that indices choose along; chosen: the shape of all that they choose."""
    nothing = 0 in extents and 0 not in chosen
    site.require(not nothing, "there is nothing to choose from", "Leave it out.")


# -- reading ---------------------------------------------------------------------------------------


def _take_type(site: Site) -> Type:
    data, indices, a = site.tensor(0), _indices(site), site.attrs
    axis, batch = site.axis(a.axis, len(data.shape)), a.batch_dims
    site.require(a.mode in MODES, f"the mode {a.mode!r}", f"Use one of {', '.join(MODES)}.")
    site.require(
        0 <= batch <= min(axis, len(indices.shape)) and data.shape[:batch] == indices.shape[:batch],
        f"the first {batch} axes are not common to both, before the axis",
        "Use batch_dims=0, or equal leading extents.",
    )
    shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
    _something(site, data.shape[axis : axis + 1], shape)
    return TensorType(shape, data.dtype)


def _take_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    data, indices = arrays
    axis, batch = attrs.axis % data.ndim, attrs.batch_dims
    if not data.size:
        shape = (*data.shape[:axis], *indices.shape[batch:], *data.shape[axis + 1 :])
        return np.zeros(shape, data.dtype)
    if not batch:
        return np.asarray(np.take(data, indices, axis, mode=attrs.mode))
    extents = data.shape[:batch]
    rows = [
        np.take(data[at], indices[at], axis - batch, mode=attrs.mode) for at in np.ndindex(extents)
    ]
    return np.reshape(rows, (*extents, *rows[0].shape))


def _fits_type(site: Site) -> TensorType:
    """The indices of gather and scatter, which lie along the axes of the data."""
    data, indices = site.tensor(0), _indices(site)
    axis = site.axis(site.attrs.axis, len(data.shape))
    _something(site, data.shape[axis : axis + 1], indices.shape)
    pairs = zip(indices.shape, data.shape, strict=False)
    site.require(
        len(indices.shape) == len(data.shape)
        and all(n <= m for k, (n, m) in enumerate(pairs) if k != axis),
        f"indices of shape {indices.shape} do not fit {data.shape}",
        f"They have as many axes, and no larger ones but axis {axis}.",
    )
    return indices


def _gather_type(site: Site) -> Type:
    return TensorType(_fits_type(site).shape, site.tensor(0).dtype)


def _gather_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    data, indices = arrays
    if not indices.size:
        return np.zeros(indices.shape, data.dtype)
    axis = attrs.axis % data.ndim
    at: list[Any] = list(np.ix_(*map(range, indices.shape)))
    at[axis] = indices.astype(np.int64) % data.shape[axis]
    return np.asarray(data[tuple(at)])


def _points(site: Site) -> tuple[TensorType, int, tuple[int, ...]]:
    """The data, how many of its axes are chosen along, and the extents of the points."""
    data, indices = site.tensor(0), _indices(site)
    site.require(
        len(indices.shape) >= 1 and indices.shape[0] >= 1, "the indices name no axis",
        "Give [M, ..], M being at least 1.",
    )  # fmt: skip
    return data, indices.shape[0], indices.shape[1:]


def _gather_nd_type(site: Site) -> Type:
    data, chosen, points = _points(site)
    batch = site.attrs.batch_dims
    site.require(
        0 <= batch <= len(points) and batch + chosen <= len(data.shape),
        f"{chosen} indices behind {batch} common axes do not fit {data.shape}",
        "The first axis of indices is as long as the axes of data that they choose along.",
    )
    site.require(
        points[:batch] == data.shape[:batch], "the common axes differ", "Give equal extents."
    )
    shape = (*points, *data.shape[batch + chosen :])
    _something(site, data.shape[batch : batch + chosen], shape)
    return TensorType(shape, data.dtype)


def _gather_nd_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    data, indices = arrays
    batch, points = attrs.batch_dims, indices.shape[1:]
    if not data.size:
        return np.zeros((*points, *data.shape[batch + len(indices) :]), data.dtype)
    common = np.indices(points)[:batch]
    chosen = [i.astype(np.int64) % n for i, n in zip(indices, data.shape[batch:], strict=False)]
    at = (*common, *chosen)
    return np.asarray(data[at] if at else np.broadcast_to(data, (*points, *data.shape)))


# -- writing ---------------------------------------------------------------------------------------


def _reduction(site: Site, updates: TensorType, shape: tuple[int, ...]) -> Type:
    data, reduction = site.tensor(0), site.attrs.reduction
    site.require(
        updates.shape == shape, f"updates have shape {updates.shape}, not {shape}",
        "Give one update for each index.",
    )  # fmt: skip
    site.require(
        reduction in REDUCTIONS, f"reduction={reduction!r}",
        f"Use one of {', '.join(REDUCTIONS)}.",
    )  # fmt: skip
    site.same_dtype(data, updates)
    if reduction != "update":
        site.number_dtype(data, updates)
    return data


def _scatter_elements_type(site: Site) -> Type:
    indices = _fits_type(site)
    return _reduction(site, site.tensor(2), indices.shape)


def _scatter_nd_type(site: Site) -> Type:
    data, chosen, points = _points(site)
    site.require(
        chosen <= len(data.shape), f"{chosen} indices for {len(data.shape)} axes",
        "The first axis of indices is as long as the axes of data that they choose along.",
    )  # fmt: skip
    put = (*points, *data.shape[chosen:])
    _something(site, data.shape[:chosen], put)
    return _reduction(site, site.tensor(2), put)


_AT: dict[str, Callable[..., Any]] = {
    "add": np.add.at,
    "mul": np.multiply.at,
    "min": np.minimum.at,
    "max": np.maximum.at,
}


def _put(data: Array, at: Sequence[Array], updates: Array, reduction: str) -> Array:
    """at: for each of the first axes, an index for every place of the first axes of `updates`."""
    made = data.copy()
    places = [i + np.where(i < 0, n, 0) for i, n in zip(at, data.shape, strict=False)]
    bounded = zip(places, data.shape, strict=False)
    inside = np.logical_and.reduce([(i >= 0) & (i < n) for i, n in bounded])
    kept = tuple(i[inside] for i in places)
    if reduction == "update":
        made[kept] = updates[inside]
    else:
        _AT[reduction](made, kept, updates[inside])
    return made


def _scatter_elements_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    data, indices, updates = arrays
    at = list(np.indices(indices.shape))
    at[attrs.axis % data.ndim] = indices.astype(np.int64)
    return _put(data, at, updates, attrs.reduction)


def _scatter_nd_numpy(arrays: Sequence[Any], attrs: Attrs) -> Array:
    data, indices, updates = arrays
    return _put(data, list(indices.astype(np.int64)), updates, attrs.reduction)


ROWS = (
    Op(
        "take", ("data", "indices"), Pattern.INJECTIVE, _take_type, _take_numpy,
        lambda t, attrs, result: topi.take(t[0], t[1], attrs.axis, attrs.batch_dims, attrs.mode),
        "The slices of data at `indices` along `axis`.",
        {"axis": 0, "batch_dims": 0, "mode": "clip"}, ("Gather",),
    ),
    Op(
        "gather", ("data", "indices"), Pattern.INJECTIVE, _gather_type, _gather_numpy,
        lambda t, attrs, result: topi.gather(t[0], attrs.axis, t[1]),
        "The elements of data at `indices` along `axis`.", {"axis": 0}, ("GatherElements",),
    ),
    Op(
        "gather_nd", ("data", "indices"), Pattern.INJECTIVE, _gather_nd_type, _gather_nd_numpy,
        lambda t, attrs, result: topi.gather_nd(t[0], t[1], attrs.batch_dims),
        "The elements of data at the points that the first axis of `indices` spells.",
        {"batch_dims": 0}, ("GatherND",),
    ),
    Op(
        "scatter_elements", ("data", "indices", "updates"), Pattern.OPAQUE,
        _scatter_elements_type, _scatter_elements_numpy,
        lambda t, attrs, result: topi.scatter_elements(
            t[0], t[1], t[2], attrs.axis, attrs.reduction
        ),
        "data with updates at `indices` along `axis`.",
        {"axis": 0, "reduction": "update"}, ("ScatterElements", "Scatter"),
    ),
    Op(
        "scatter_nd", ("data", "indices", "updates"), Pattern.OPAQUE,
        _scatter_nd_type, _scatter_nd_numpy,
        lambda t, attrs, result: topi.scatter_nd(t[0], t[1], t[2], attrs.reduction),
        "data with updates at the points that the first axis of `indices` spells.",
        {"reduction": "update"}, ("ScatterND",),
    ),
)  # fmt: skip
