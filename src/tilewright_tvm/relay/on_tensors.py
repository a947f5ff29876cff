"""Operators of `relay` on `te` tensors: names of `topi` whose computation is made of others.

In: a function of `relay` and its arguments, tensors of `te` where it takes graph values.  Out: the
tensors of what it gives, one stage or a few for each operator that it is made of.  `topi` finds
these names here when they are asked for.  Read next: `network/computation.py`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tilewright import te, topi
from tilewright.base.doors import door, is_integer
from tilewright.base.errors import ExpressionError
from tilewright.graph.expr import Constant, Expr, Var, post_order
from tilewright.graph.leaves import var
from tilewright.ir import expr as E
from tilewright.network.computation import value_of
from tilewright.topi.stage import Indices, stage
from tilewright_tvm import relay

MOST_NUMBERS = 64  # of a table that is written out
_EXACT = 1 << 24  # whole numbers below it are exact in float32


def on_tensors(function: Callable[..., Any], name: str) -> Callable[..., Any]:
    """`function` of relay, of `te` tensors; name: what users call it.

    Raises ExpressionError for extents that are variables.
    """

    @functools.wraps(function)
    def operator(*args: Any, **kwargs: Any) -> Any:
        known: dict[te.Tensor, Var] = {}
        given = [_as_graph(a, known, name) for a in args]
        named = {k: _as_graph(a, known, name) for k, a in kwargs.items()}
        body = function(*given, **named)
        values: dict[Expr, Any] = {v: t for t, v in known.items()}
        for node in post_order(body):
            if node.waits:
                raise ExpressionError(
                    name, "it got a tensor where it needs numbers, of which the shape of its"
                    " result or its loops are made", "Give numbers.",
                )  # fmt: skip
            if isinstance(node, Constant) and node.data.size != 1:
                values[node] = _constant(node.data, name)
        made = value_of(body, values)
        every = [made] if isinstance(made, te.Tensor) else list(made)
        every = [topi.identity(t) if t in known else t for t in every]
        return every[0] if isinstance(made, te.Tensor) else every

    operator.__name__ = operator.__qualname__ = name.rpartition(".")[2]
    return operator


def _as_graph(value: Any, known: dict[te.Tensor, Var], place: str) -> Any:
    if isinstance(value, te.Tensor):
        if any(isinstance(n, E.Expr) for n in value.shape):
            raise ExpressionError(
                f"{place}({value.name} of shape {value.shape})", "an extent is a variable",
                "Give the tensors extents that are numbers.",
            )  # fmt: skip
        if value not in known:
            known[value] = var(f"p{len(known)}", shape=value.shape, dtype=str(value.dtype))
        return known[value]
    if isinstance(value, Expr):
        raise ExpressionError(
            f"{place}({value})", "it is a value of a network", "Use the operator's name in relay."
        )
    if isinstance(value, E.Expr) and value.op == "const":
        return value.attr
    if isinstance(value, (list, tuple)):
        return type(value)(_as_graph(v, known, place) for v in value)
    return value


def _constant(data: np.ndarray, place: str) -> te.Tensor:
    """Positions become arithmetic of indices; a few other numbers are chosen among."""
    dtype = str(data.dtype)
    if not data.size:
        return topi.full(data.shape, dtype, 0)
    slopes = _slopes(data)
    if slopes is not None:
        first = data.reshape(-1)[0].item()

        def line(i: Indices) -> E.Expr:
            terms = (x * s for x, s in zip(i, slopes, strict=True) if s)
            return te.cast(dtype, sum(terms, start=te.const(int(first), "int32")))

        return stage(data.shape, line, "T_positions", "injective")
    if data.size > MOST_NUMBERS:
        raise ExpressionError(
            place, f"a table of {data.size} numbers would be part of the kernel",
            "Make it a network's: the same operator of relay.",
        )  # fmt: skip
    numbers = data.reshape(-1).tolist()

    def chosen(i: Indices) -> E.Expr:
        flat = sum((x * s for x, s in zip(i, _steps(data.shape), strict=True)), te.const(0))
        value = te.const(numbers[-1], dtype)
        for k, number in reversed(list(enumerate(numbers[:-1]))):
            value = te.select(flat.equal(k), te.const(number, dtype), value)
        return value

    return stage(data.shape, chosen, "T_numbers", "injective")


def _steps(shape: Sequence[int]) -> list[int]:
    return [int(np.prod(shape[k + 1 :])) for k in range(len(shape))]


def _slopes(data: np.ndarray) -> list[int] | None:
    """By how much the numbers grow along each axis, where they are whole and do so evenly."""
    if data.dtype == bool or not np.all(np.abs(wide := data.astype(np.float64)) < _EXACT):
        return None
    if not np.array_equal(wide, np.floor(wide)):
        return None
    origin = (0,) * data.ndim
    slopes = []
    for k, n in enumerate(data.shape):
        second = tuple(int(j == k) for j in range(data.ndim))
        slopes.append(int(wide[second] - wide[origin]) if n > 1 else 0)
    grid = np.indices(data.shape)
    even = wide[origin] + sum(s * g for s, g in zip(slopes, grid, strict=True))
    return slopes if np.array_equal(wide, even) else None


# -- where the arguments of topi come in another order ---------------------------------------------


def flip(a: Expr, axis: int = 0) -> Any:
    """`a` with the elements along `axis` in reverse order."""
    return relay.reverse(a, axis)


def shape(array: Expr, dtype: str = "int32") -> Any:
    """The shape of a tensor, as a tensor."""
    return relay.shape_of(array, dtype)


def adv_index(data: Expr, indices: Sequence[Expr]) -> Any:
    """data[indices[0], indices[1], ...] as numpy has it: the indices broadcast."""
    return relay.adv_index([data, *indices])


def argsort(
    data: Expr, valid_count: Any = None, axis: int = -1, is_ascend: int = 1, dtype: str = "float32"
) -> Any:
    """The places of all elements along `axis` in their order."""
    if valid_count is not None:
        raise ExpressionError(
            "topi.argsort(valid_count)", "all elements are ordered", "Leave valid_count out."
        )
    return relay.cast(relay.argsort(data, axis, is_ascend), dtype)


def topk(
    data: Expr, k: int = 1, axis: int = -1, ret_type: str = "both", is_ascend: bool = False,
    dtype: str = "int64",
) -> Any:  # fmt: skip
    """The `k` greatest (is_ascend: smallest) elements along `axis`; k less than 1 means all.

    ret_type: "both" (a list of values and places), "values" or "indices"
    """
    found = relay.topk(data, k, axis, ret_type, is_ascend)
    if ret_type != "both":
        return found if ret_type == "values" else relay.cast(found, dtype)
    return relay.Tuple(
        [relay.TupleGetItem(found, 0), relay.cast(relay.TupleGetItem(found, 1), dtype)]
    )


def einsum(subscripts: str, *operand: Expr) -> Any:
    """The sum of products that `subscripts` spells, as numpy has it: "ij,jk->ik"."""
    return relay.einsum(list(operand), subscripts)


def lrn(
    data: Expr, size: int, axis: int = 1, alpha: float = 1e-4, beta: float = 0.75, bias: float = 2.0
) -> Any:
    """Normalised by the squares of `size` neighbours along `axis`."""
    return relay.nn.lrn(data, size=size, axis=axis, bias=bias, alpha=alpha, beta=beta)


def stft(
    data: Expr, n_fft: int, hop_length: int, win_length: int, window: Any, normalized: bool,
    onesided: bool, output_shape: Any = None,
) -> Any:  # fmt: skip
    """Transforms of frames of data [B, N]: [B, frequencies, frames, 2].  It needs no shape."""
    return relay.stft(data, n_fft, hop_length, win_length, window, normalized, onesided)


def prelu(x: Expr, slope: Expr, axis: int = 1) -> Any:
    """x where positive, slope * x elsewhere; slope [C] runs along `axis`."""
    return relay.nn.prelu(x, slope, axis)


def space_to_batch_nd(
    data: Expr, block_shape: Sequence[int], pad_before: Sequence[int], pad_after: Sequence[int],
    pad_value: float = 0.0,
) -> Any:  # fmt: skip
    """Blocks of the axes behind the batch become part of the batch."""
    pads = [list(p) for p in zip(pad_before, pad_after, strict=False)]
    return relay.nn.space_to_batch_nd(data, list(block_shape), pads, pad_value)


def batch_to_space_nd(
    data: Expr, block_shape: Sequence[int], crop_begin_list: Sequence[int],
    crop_end_list: Sequence[int],
) -> Any:  # fmt: skip
    """`space_to_batch_nd` undone."""
    crops = [list(c) for c in zip(crop_begin_list, crop_end_list, strict=False)]
    return relay.nn.batch_to_space_nd(data, list(block_shape), crops)


def group_norm(
    data: Expr, gamma: Expr, beta: Expr, num_groups: int, channel_axis: int,
    axes: Sequence[int], epsilon: float = 1e-5,
) -> Any:  # fmt: skip
    """Each group of channels normalised over it and `axes`, which are all but the first."""
    rest = set(range(1, len(data.shape))) - {channel_axis}
    if {a % len(data.shape) for a in axes} != rest:
        raise ExpressionError(
            f"topi.nn.group_norm(axes={list(axes)})", f"they are not {sorted(rest)}",
            "Reduce all axes but the first and that of the channels.",
        )  # fmt: skip
    return relay.nn.group_norm(data, gamma, beta, num_groups, channel_axis, epsilon)


def layer_norm(
    data: Expr, gamma: Expr, beta: Expr, axis: int | Sequence[int] = -1, epsilon: float = 1e-5
) -> Any:
    """(data - mean) / sqrt(variance + epsilon) * gamma + beta over the last axes, `axis`."""
    return _scaled(data, gamma, beta, axis, epsilon, True)


def rms_norm(
    data: Expr, weight: Expr, bias: Any = None, axis: Any = None, epsilon: float | None = None
) -> Any:
    """data / sqrt(mean square + epsilon) * weight (+ bias) over the last axes, `axis`.

    Without a bias its place may be left out: (data, weight, axis, epsilon).
    """
    if bias is not None and not isinstance(bias, Expr):
        bias, axis, epsilon = None, bias, epsilon if axis is None else axis
    over = -1 if axis is None else axis
    return _scaled(data, weight, bias, over, 1e-5 if epsilon is None else epsilon, False)


def _scaled(
    data: Expr, gamma: Expr, beta: Expr | None, axis: Any, epsilon: float, center: bool
) -> Any:
    rank = len(data.shape)
    axes = _axes("layer" if center else "rms", data, axis)
    wide = [data.shape[k] if k in axes else 1 for k in range(rank)]
    made = relay.nn.standardize(data, axes, epsilon, center) * relay.reshape(gamma, wide)
    return made if beta is None else made + relay.reshape(beta, wide)


def _axes(kind: str, data: Expr, axis: Any) -> list[int]:
    """The axes that are normalised over, counted from the first, in order."""
    rank = len(data.shape)
    given = axis if isinstance(axis, (list, tuple)) else [axis]
    place = f"topi.nn.{kind}_norm(axis={axis!r:.80})"
    if not all(map(is_integer, given)):
        raise ExpressionError(
            place, "axes are integers, a bias is a tensor", "Give the last axes, such as axis=-1."
        )
    if not given or not all(-rank <= a < rank for a in given):
        raise ExpressionError(
            place, f"these are no axes of data of shape {data.shape}",
            "Count axes from 0, or back from -1, the last.",
        )  # fmt: skip
    return sorted({a % rank for a in given})


def instance_norm(
    data: Expr, gamma: Expr, beta: Expr, axis: int | Sequence[int], epsilon: float = 1e-5
) -> Any:
    """Each channel of each image normalised over `axis`; gamma and beta are those of axis 1, or
    have an element for each of what is normalised over."""
    rank = len(data.shape)
    axes = _axes("instance", data, axis)
    if rank < 2:
        raise ExpressionError(
            f"topi.nn.instance_norm(data={data.shape})", "it has no axis of channels",
            "Give data of a batch, channels and axes that are normalised over.",
        )  # fmt: skip
    if gamma.shape != (data.shape[1],) and gamma.shape == tuple(data.shape[k] for k in axes):
        return layer_norm(data, gamma, beta, axes, epsilon)
    wide = [data.shape[1] if k == 1 else 1 for k in range(rank)]
    made = relay.nn.standardize(data, axes, epsilon)
    return made * relay.reshape(gamma, wide) + relay.reshape(beta, wide)


def _resizing(rank: int) -> Callable[..., Any]:
    resize = getattr(relay.image, f"resize{rank}d")
    name = f"resize{rank}d"
    usual = {1: "NCW", 2: "NCHW", 3: "NCDHW"}[rank]

    def operator(
        data: Expr, roi: Any, size: Any, layout: str = usual, method: str = "linear",
        coordinate_transformation_mode: str = "half_pixel", rounding_method: str = "",
        bicubic_alpha: float = -0.5, bicubic_exclude: int = 0, extrapolation_value: float = 0.0,
        out_dtype: Any = None,
    ) -> Any:  # fmt: skip
        made = resize(
            data, size, roi if roi and any(roi) else None, layout, method,
            coordinate_transformation_mode, rounding_method, bicubic_alpha, bicubic_exclude,
            extrapolation_value,
        )  # fmt: skip
        return made if out_dtype is None else relay.cast(made, out_dtype)

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"Images of another size; layout {usual}, or channels last."
    return operator


_ROOMS: dict[str, Any] = {
    "topi": relay, "topi.nn": relay.nn, "topi.image": relay.image,
    "topi.vision": relay.vision,
}  # fmt: skip
_IN_OTHER_ORDER: dict[str, tuple[Callable[..., Any], ...]] = {
    "topi": (flip, shape, adv_index, argsort, topk, einsum, stft),
    "topi.nn": (
        batch_to_space_nd, group_norm, instance_norm, layer_norm, lrn, prelu, rms_norm,
        space_to_batch_nd,
    ),
    "topi.image": (_resizing(1), _resizing(2), _resizing(3)),
    "topi.vision": (),
}  # fmt: skip


@functools.cache
def find(folder: str, name: str) -> Callable[..., Any]:
    """The function that `topi/of_networks.py` names: `FOLDER.NAME`, such as "topi.nn", "prelu"."""
    place = f"{folder}.{name}"
    other = {f.__name__: f for f in _IN_OTHER_ORDER[folder]}.get(name)
    known = getattr(_ROOMS[folder], name) if other is None else door(ExpressionError, place)(other)
    return on_tensors(known, place)
