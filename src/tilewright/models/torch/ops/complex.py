"""Operators on complex numbers, which networks have as two tensors of real ones.

In: the converters of real tensors.  Out: those that are used where an argument or a result is
complex: what only moves or adds elements does so with both parts.
Read next: `graph/functions/fourier.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.fourier import transform
from tilewright.models.torch.node import PARTS, Complex, Converter, Node, as_type, number
from tilewright.models.torch.ops.movement import part, reshaped
from tilewright.models.torch.program import Spec

_OPERANDS = ("self", "other", "tensors", "src")
# Operators that do the same with both parts.
_LINEAR = (
    "add.Tensor", "alias.default", "cat.default", "clone.default", "constant_pad_nd.default",
    "contiguous.default", "detach.default", "expand.default", "flip.default", "index.Tensor",
    "index_select.default", "mean.dim", "neg.default", "permute.default", "repeat.default",
    "reshape.default", "roll.default", "select.int", "slice.Tensor", "split.Tensor",
    "split_with_sizes.default", "squeeze.default", "squeeze.dim", "squeeze.dims", "stack.default",
    "sub.Tensor", "sum.dim_IntList", "t.default", "transpose.int", "unbind.int",
    "unsqueeze.default", "view.default", "_unsafe_view.default",
)  # fmt: skip


def _complex(n: Node, name: str) -> Complex:
    """Argument `name`; a real one has no imaginary part."""
    value = n.args.get(name)
    return value if isinstance(value, Complex) else Complex(n[name], None)


def _imag(value: Complex) -> Expr:
    if value.imag is not None:
        return value.imag
    return tensor.broadcast_to(number(0, str(value.real.dtype)), value.real.shape)


def _real_specs(n: Node) -> tuple[Spec | None, ...]:
    return tuple(
        None if s is None else Spec(s.shape, PARTS.get(s.dtype, s.dtype)) for s in n.results
    )


def _with(n: Node, picked: Callable[[Any], Any]) -> Node:
    """The call as one of real tensors: of its operands what is picked of each."""

    def given(value: Any) -> Any:
        if isinstance(value, list):
            return [given(v) for v in value]
        return picked(value) if isinstance(value, (Complex, Expr, int, float)) else value

    args = {k: given(v) if k in _OPERANDS else v for k, v in n.args.items()}
    return replace(n, args=args, results=_real_specs(n))


def _real_part(value: Any) -> Any:
    return value.real if isinstance(value, Complex) else value


def _imag_part(value: Any) -> Any:
    if isinstance(value, (int, float)):
        return 0
    return _imag(value if isinstance(value, Complex) else Complex(value, None))


def _linear(converter: Converter) -> Converter:
    def convert(n: Node) -> Any:
        real, imag = (converter(_with(n, p)) for p in (_real_part, _imag_part))
        if isinstance(real, (list, tuple)):
            return [Complex(a, b) for a, b in zip(real, imag, strict=True)]
        return Complex(real, imag)

    return convert


def _product(a: Complex, b: Complex) -> Complex:
    real = tensor.multiply(a.real, b.real)
    if a.imag is None and b.imag is None:
        return Complex(real, None)
    if a.imag is None or b.imag is None:
        return Complex(real, tensor.multiply(_or(a.imag, a.real), _or(b.imag, b.real)))
    return Complex(
        tensor.subtract(real, tensor.multiply(a.imag, b.imag)),
        tensor.add(tensor.multiply(a.real, b.imag), tensor.multiply(a.imag, b.real)),
    )


def _or(imag: Expr | None, real: Expr) -> Expr:
    return real if imag is None else imag


def _operands(n: Node) -> tuple[Complex, Complex]:
    """Both of a product, in the element type of its parts."""
    kind = PARTS[n.dtype]
    a, b = (_complex(n, name) for name in ("self", "other"))
    typed = [
        Complex(as_type(v.real, kind), None if v.imag is None else as_type(v.imag, kind))
        for v in (a, b)
    ]
    return typed[0], typed[1]


def _quotient(n: Node) -> Complex:
    a, b = _operands(n)
    if b.imag is None:
        return Complex(
            tensor.divide(a.real, b.real),
            None if a.imag is None else tensor.divide(a.imag, b.real),
        )
    made, size = _product(a, Complex(b.real, tensor.negative(b.imag))), _square(b)
    return Complex(tensor.divide(made.real, size), tensor.divide(_imag(made), size))


def _square(z: Complex) -> Expr:
    """Its absolute value, squared."""
    real = tensor.multiply(z.real, z.real)
    return real if z.imag is None else tensor.add(real, tensor.multiply(z.imag, z.imag))


def _converted(n: Node) -> Complex | Expr:
    value = _complex(n, "self")
    return value if n.dtype in PARTS else value.real


def _conjugate(n: Node) -> Complex:
    value = _complex(n, "self")
    return Complex(value.real, None if value.imag is None else tensor.negative(value.imag))


def _pairs(value: Complex) -> Expr:
    """[.., 2]"""
    return tensor.concatenate(
        [tensor.expand_dims(v, len(v.shape)) for v in (value.real, _imag(value))], -1
    )


def _of_pairs(pairs: Expr) -> Complex:
    axis = len(pairs.shape) - 1
    real, imag = (reshaped(part(pairs, axis, k, k + 1), pairs.shape[:-1]) for k in (0, 1))
    return Complex(real, imag)


def _polar(n: Node) -> Complex:
    size, angle = n["abs"], n["angle"]
    return Complex(
        tensor.multiply(size, tensor.cos(angle)), tensor.multiply(size, tensor.sin(angle))
    )


# -- Fourier transforms ----------------------------------------------------------------------------


def _scale(n: Node, points: int) -> float:
    """points: of all transformed axes"""
    kind = n.integer("normalization")
    n.require(kind in (0, 1, 2), f"normalization={kind}")
    return (1.0, 1 / math.sqrt(max(points, 1)), 1 / max(points, 1))[kind]


def _transformed(n: Node, value: Complex, axis: int, size: int, inverse: bool) -> Complex:
    """Along one axis, not divided by its size."""
    real = tensor.expand_dims(value.real, len(value.real.shape))
    signal = real if value.imag is None else _pairs(value)
    scale = float(size) if inverse else 1.0
    return _of_pairs(transform(signal, axis, size, n.place, n.room, inverse=inverse, scale=scale))


def _scaled(n: Node, value: Complex, factor: float) -> Complex:
    if factor == 1:
        return value
    return _product(value, Complex(number(factor, str(value.real.dtype)), None))


def _axes(n: Node, value: Complex) -> list[int]:
    rank = len(value.real.shape)
    return [a % rank for a in n.ints("dim")]


def _to_complex(n: Node) -> Complex:
    value = _complex(n, "self")
    shape = value.real.shape
    axes = _axes(n, value)
    for axis in axes:
        value = _transformed(n, value, axis, shape[axis], not n.get("forward", True))
    return _scaled(n, value, _scale(n, math.prod(shape[a] for a in axes)))


def _from_real(n: Node) -> Complex:
    value = _complex(n, "self")
    shape = value.real.shape
    *others, last = axes = _axes(n, value)
    half = transform(
        tensor.expand_dims(value.real, len(shape)), last, shape[last], n.place, n.room,
        onesided=bool(n.get("onesided", True)),
    )  # fmt: skip
    value = _of_pairs(half)
    for axis in others:
        value = _transformed(n, value, axis, shape[axis], False)
    return _scaled(n, value, _scale(n, math.prod(shape[a] for a in axes)))


def _to_real(n: Node) -> Expr:
    value, size = _complex(n, "self"), n.integer("last_dim_size")
    shape = value.real.shape
    *others, last = _axes(n, value)
    for axis in others:
        value = _transformed(n, value, axis, shape[axis], True)
    value = _scaled(n, value, _scale(n, math.prod(shape[a] for a in others) * size))
    made = transform(
        _pairs(value), last, size, n.place, n.room, inverse=True, onesided=True, scale=float(size)
    )
    return reshaped(made, n.shape)


def converters(of_real: Mapping[str, Converter]) -> dict[str, Converter]:
    """of_real: the converters of real tensors"""
    return {
        **{name: _linear(of_real[name]) for name in _LINEAR if name in of_real},
        "_conj.default": _conjugate,
        "_conj_physical.default": _conjugate,
        "_fft_c2c.default": _to_complex,
        "_fft_c2r.default": _to_real,
        "_fft_r2c.default": _from_real,
        "_to_copy.default": _converted,
        "abs.default": lambda n: tensor.sqrt(_square(_complex(n, "self"))),
        "complex.default": lambda n: Complex(
            *(tensor.broadcast_to(n[name], n.shape) for name in ("real", "imag"))
        ),
        "div.Tensor": _quotient,
        "imag.default": lambda n: _imag(_complex(n, "self")),
        "mul.Tensor": lambda n: _product(*_operands(n)),
        "polar.default": _polar,
        "real.default": lambda n: _complex(n, "self").real,
        "view_as_complex.default": lambda n: _of_pairs(n["self"]),
        "view_as_real.default": lambda n: _pairs(_complex(n, "self")),
    }
