"""Layers with named weights, and seeded values for the weights of any network.

In: graph values and names.  Out: calls over new variables; `(mod, params)`.  Read next:
`resnet.py`.
"""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import (
    Array,
    Expr,
    Function,
    IRModule,
    Var,
    children,
    free_vars,
    post_order,
)
from tilewright.graph.extension import extension
from tilewright.graph.functions import nn
from tilewright.graph.leaves import var
from tilewright.graph.traversal import each_function, is_call

Workload = tuple[IRModule, dict[str, Array]]
KERNEL_LAYOUT = {"NCHW": "OIHW", "NHWC": "HWIO"}
DEPTHWISE_LAYOUT = {"NCHW": "OIHW", "NHWC": "HWOI"}


def image(
    batch_size: int, image_shape: tuple[int, ...], layout: str, dtype: str, place: str
) -> Var:
    """The input of a network, called `data`.

    image_shape: (C, H, W), or (H, W, C) for NHWC; three channels first are understood in both.
    """
    if layout not in KERNEL_LAYOUT:
        raise ModelError(
            f"{place}(layout={layout!r})", "the layout is not known", "Use NCHW or NHWC."
        )
    if len(image_shape) != 3 or batch_size < 1:
        raise ModelError(
            f"{place}(batch_size={batch_size}, image_shape={image_shape})",
            "not a batch of at least 1 of images with three dimensions",
            "Example: image_shape=(3, 224, 224).",
        )  # fmt: skip
    if layout == "NHWC" and image_shape[0] == 3 and image_shape[2] != 3:
        image_shape = (*image_shape[1:], 3)
    return var("data", shape=(batch_size, *image_shape), dtype=dtype)


def conv2d(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: int | tuple[int, int],
    strides: int = 1,
    padding: int | tuple[int, int] = 0,
    groups: int = 1,
    layout: str = "NCHW",
    suffix: str = "_weight",
) -> Expr:
    """A convolution without bias, its weight called `<name><suffix>`."""
    kernel_layout = (KERNEL_LAYOUT if groups == 1 else DEPTHWISE_LAYOUT)[layout]
    return nn.conv2d(
        data, var(name + suffix, dtype=data.dtype), strides, padding, groups=groups,
        channels=channels, kernel_size=kernel_size, data_layout=layout, kernel_layout=kernel_layout,
    )  # fmt: skip


def biased_conv2d(
    data: Expr,
    name: str,
    channels: int,
    kernel_size: int,
    strides: int = 1,
    padding: int = 0,
    layout: str = "NCHW",
) -> Expr:
    """A convolution with bias."""
    made = conv2d(data, name, channels, kernel_size, strides, padding, layout=layout)
    return nn.bias_add(made, var(f"{name}_bias", dtype=data.dtype), layout.index("C"))


BATCH_NORM_NAMES = ("_gamma", "_beta", "_moving_mean", "_moving_var")


def batch_norm(
    data: Expr,
    name: str,
    layout: str = "NCHW",
    epsilon: float = 1e-5,
    scale: bool = True,
    names: tuple[str, ...] = BATCH_NORM_NAMES,
) -> Expr:
    """Normalisation along the channels with the four vectors `<name><names[k]>`."""
    gamma, beta, mean, variance = (var(name + suffix, dtype=data.dtype) for suffix in names)
    axis = layout.index("C")
    normal = nn.batch_norm(data, gamma, beta, mean, variance, axis, epsilon, scale=scale)
    return normal[0]


def active(data: Expr, name: str, layout: str = "NCHW", epsilon: float = 1e-5) -> Expr:
    """`data` normalised, and of that the positive part."""
    return nn.relu(batch_norm(data, name, layout, epsilon))


def dense(data: Expr, name: str, units: int, names: tuple[str, str] = ("_weight", "_bias")) -> Expr:
    """A dense layer with bias."""
    weight, bias = (var(name + suffix, dtype=data.dtype) for suffix in names)
    return nn.bias_add(nn.dense(data, weight, units=units), bias, axis=-1)


def network(data: Var, result: Expr) -> Function:
    """The function of `data` and of every weight that `result` reads."""
    return Function([data, *(v for v in free_vars(result) if v is not data)], result)


def create_workload(
    net: Expr,
    initializer: int | Callable[[str, Array], None] | None = None,
    seed: int = 0,
    gains: Mapping[str, float] | None = None,
) -> Workload:
    """A module with `net` as main, and random values for all its parameters but the first.

    net: a function, or an expression over variables, of which those without a type get theirs
    initializer: called with the name and an array of zeros, which it fills, for each parameter; or
        the seed

    The values keep activations of deep networks near 1: weights by He's rule, statistics near those
    of a normalised value.  A parameter's values depend on its name and `seed` only; a weight is
    drawn in OIHW order, so layouts have the same network.
    net: a function, or an expression over variables; gains: factors for the weights of some
    parameters, by name.
    """
    params = {}
    mod = each_function(IRModule.from_expr(net), extension().typed)
    net = mod["main"]
    roles = _roles(net)
    seed = initializer if isinstance(initializer, int) else seed
    for p in net.params[1:]:
        if callable(initializer):
            params[p.name_hint] = np.zeros(p.shape, p.dtype.storage)
            initializer(p.name_hint, params[p.name_hint])
            continue
        rng = np.random.default_rng([seed, zlib.crc32(p.name_hint.encode())])
        value = _draw(rng, p, *roles.get(p, ("bias", "")))
        value = value * (gains or {}).get(p.name_hint, 1.0)
        params[p.name_hint] = np.ascontiguousarray(value, p.dtype)
    return mod, params


def workload_of(
    get_net: Callable[..., Function],
    *first: str,
    weights: Callable[[Function, int], Workload] = create_workload,
) -> Callable[..., Workload]:
    """A function of the arguments of `get_net` and a `seed`, which gives the network with weights.

    first: the arguments that come before the others, where the order is another one
    weights: what draws them, of the network and the seed
    """
    own = inspect.signature(get_net).parameters
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    seed = inspect.Parameter("seed", kind, default=0, annotation="int")
    takes = {**own, "seed": seed}
    order = [takes[name] for name in dict.fromkeys((*first, *takes))]
    signature = inspect.Signature(order, return_annotation=Workload)

    @wraps(get_net)
    def get_workload(*args: Any, **kwargs: Any) -> Workload:
        given = signature.bind(*args, **kwargs).arguments
        chosen = given.pop("seed", 0)
        return weights(get_net(**given), chosen)

    get_workload.__name__ = get_workload.__qualname__ = "get_workload"
    get_workload.__signature__ = signature  # type: ignore[attr-defined]
    return get_workload


_WITH_WEIGHTS = (
    "nn.conv2d", "nn.conv3d", "nn.conv2d_transpose", "nn.conv3d_transpose", "nn.dense",
    "nn.batch_norm",
)  # fmt: skip


def _roles(net: Function) -> dict[Expr, tuple[str, str]]:
    """What each parameter is used as, and its layout if it is the weight of a convolution."""
    roles: dict[Expr, tuple[str, str]] = {
        p: ("gamma", "") for p in net.params if p.name_hint.endswith("_gamma")
    }
    for node in post_order(net.body):
        if not is_call(node, *_WITH_WEIGHTS):
            continue
        call: Any = node
        for name, arg in zip(call.op.inputs[1:], children(node)[1:], strict=True):
            roles[arg] = (name, call.attrs.get("kernel_layout", ""))
    return roles


def _draw(rng: np.random.Generator, p: Var, role: str, layout: str) -> Any:
    shape = p.shape
    if role == "weight" and layout:
        order = "OI" + "".join(k for k in layout if k not in "OI")
        ordered = [shape[layout.index(k)] for k in order]
        values = rng.standard_normal(ordered) * np.sqrt(2 / np.prod(ordered[1:]))
        return np.transpose(values, [order.index(k) for k in layout])
    if role == "weight":
        return rng.standard_normal(shape) * np.sqrt(0.25 / shape[-1])
    if role in ("gamma", "moving_var"):
        return rng.uniform(0.8, 1.2, shape)
    return rng.uniform(-0.1, 0.1, shape)
