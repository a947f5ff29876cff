"""To integers and back, as PyTorch's quantisers write it: `quantized_decomposed`.

In: a call with a scale and a zero point, of a tensor or of each channel.  Out: elementwise
operators.  A convolution of such values is one of floats, whose factors are multiples of integers:
`graph/passes/whole_numbers.py` finds that.  Read next: `graph/functions/quantized.py`.
"""

from __future__ import annotations

from tilewright.graph.expr import Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.quantized import centred, placed
from tilewright.graph.leaves import const
from tilewright.models.torch.node import Converter, Node, as_type


def _place(n: Node, name: str, data: Expr, dtype: str) -> Expr:
    """A scale or zero point, of the whole or along `axis`, beside the data."""
    value = n.get(name)
    if isinstance(value, (int, float)):
        return const(value, dtype)
    return placed(as_type(n[name], dtype), data, n.integer("axis", -1))


def _limit(n: Node, name: str) -> float:
    value = n.get(name)
    if isinstance(value, Expr):
        known = n.static_of(value)
        n.require(known is not None and known.size == 1, f"{name} is computed by the network")
        assert known is not None
        return float(known.reshape(-1)[0])
    return float(value)


def _named(n: Node, several: str, one: str) -> str:
    return several if several in n.args else one


def _quantize(n: Node) -> Expr:
    """round(x * (1 / scale)) + zero, halves to even, within the limits."""
    data = as_type(n["input"], "float32")
    scale = _place(n, _named(n, "scales", "scale"), data, "float32")
    zero = _place(n, _named(n, "zero_points", "zero_point"), data, "float32")
    steps = tensor.round(data * (const(1.0, "float32") / scale)) + zero
    limits = _limit(n, "quant_min"), _limit(n, "quant_max")
    return tensor.cast(tensor.clip(steps, *limits), n.dtype)


def _dequantize(n: Node) -> Expr:
    """(x - zero) * scale."""
    data = n["input"]
    scale = _place(n, _named(n, "scales", "scale"), data, "float32")
    name = _named(n, "zero_points", "zero_point")
    steps: Expr = tensor.cast(data, "int32")
    if n.optional(name) is not None:
        steps = centred(data, _place(n, name, data, "int32"))
    return as_type(tensor.cast(steps, "float32") * scale, n.dtype)


CONVERTERS: dict[str, Converter] = {
    f"quantized_decomposed.{verb}_per_{what}.{overload}": converter
    for verb, converter in (("quantize", _quantize), ("dequantize", _dequantize))
    for what, overloads in (("tensor", ("default", "tensor", "tensor2")), ("channel", ("default",)))
    for overload in overloads
}
