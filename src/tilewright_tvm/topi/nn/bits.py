"""Products of numbers of a few bits: signs in words of 32, and `bitserial_conv2d_nchw`.

In: tensors.  Out: tensors.  Words of signs are compared by counting bits.  Numbers of several bits
are multiplied as integers, which is what bit-serial products add up to.  Read next: `dense.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tilewright import te
from tilewright.ir.expr import Expr
from tilewright.te.tensor import Tensor
from tilewright.topi.elementwise import cast
from tilewright.topi.nn.conv2d import conv2d_nchw, conv2d_nhwc
from tilewright.topi.nn.dense import dense
from tilewright.topi.stage import Indices, call_text, check_tensor, normal_axis, require, stage

WORD = 32  # signs
MOST_BITS = 8


def binarize_pack(data: Tensor, axis: int | None = None, name: str = "PackedInput") -> Tensor:
    """uint32 words of the signs of 32 elements along `axis` (None: the last), the first highest; a
    bit is set where the element is not negative."""
    place = call_text("binarize_pack", data=data, axis=axis)
    k = normal_axis(-1 if axis is None else axis, data.ndim, place)
    require(
        data.shape[k] % WORD == 0, place, f"{data.shape[k]} elements do not fill words of {WORD}",
        "Pad them first.",
    )  # fmt: skip
    shape = (*data.shape[:k], data.shape[k] // WORD, *data.shape[k + 1 :])

    def body(i: Indices) -> Expr:
        word: Any = te.const(0, "uint32")
        for bit in range(WORD):
            value = data[(*i[:k], i[k] * WORD + bit, *i[k + 1 :])]
            sign = (value >= te.const(0, value.dtype)).astype("uint32")
            word = word | (sign << te.const(WORD - 1 - bit, "uint32"))
        return word  # type: ignore[no-any-return]

    return stage(shape, body, name, "binarize_pack")


def binary_dense(data: Tensor, weight: Tensor) -> Tensor:
    """Products of signs: float32 [M, N] of words [M, K] and [N, K] that `binarize_pack` made."""
    place = call_text("binary_dense", data=data, weight=weight)
    for what, tensor in (("data", data), ("weight", weight)):
        check_tensor(tensor, what, "MK", place)
        require(tensor.dtype == "uint32", place, f"{what} is {tensor.dtype}", "Give words, uint32.")
    inner = data.shape[1]
    require(
        weight.shape[1] == inner, place, f"rows of {inner} and {weight.shape[1]} words differ",
        "Give rows of one length.",
    )  # fmt: skip
    k = te.reduce_axis((0, inner), "k")
    shape = data.shape[0], weight.shape[0]

    def differing(i: Indices) -> Expr:
        return te.sum(te.popcount(data[i[0], k] ^ weight[i[1], k]).astype("int32"), axis=k)

    count = stage(shape, differing, "T_differing", "binary_dense")
    whole = WORD * inner
    return stage(shape, lambda i: (whole - count[i] * 2).astype("float32"), "T_signs", "elemwise")


def bitserial_dense(
    data: Tensor, weight: Tensor, data_bits: int, weight_bits: int, pack_dtype: str = "uint32",
    out_dtype: str = "int16", unipolar: bool = True,
) -> Tensor:  # fmt: skip
    """data [M, K] by weight [N, K], of as many low bits of each element.

    unipolar: a bit of a weight stands for 1, and for -1 where it is not set; else for 1 and 0
    pack_dtype: has no effect: nothing is packed
    """
    place = call_text("bitserial_dense", data=data, weight=weight)
    held = _held(data, data_bits, False, place), _held(weight, weight_bits, unipolar, place)
    made: Tensor = cast(dense(*held), out_dtype)
    return made


def _convolution(name: str, compute: Callable[..., Tensor], shapes: str) -> Callable[..., Tensor]:
    def operator(
        data: Tensor, kernel: Tensor, stride: Any, padding: Any, activation_bits: int,
        weight_bits: int, pack_dtype: str = "uint32", out_dtype: str = "int16",
        unipolar: bool = True,
    ) -> Tensor:  # fmt: skip
        place = call_text(name, data=data, kernel=kernel, stride=stride, padding=padding)
        own = _held(data, activation_bits, False, place)
        weights = _held(kernel, weight_bits, unipolar, place)
        made: Tensor = cast(compute(own, weights, stride, padding), out_dtype)
        return made

    operator.__name__ = operator.__qualname__ = name
    operator.__doc__ = f"""A convolution of {shapes}, of as many low bits of each element.

    unipolar, pack_dtype: as for `bitserial_dense`"""
    return operator


bitserial_conv2d_nchw = _convolution(
    "bitserial_conv2d_nchw", conv2d_nchw, "[N, CI, H, W] and [CO, CI, KH, KW]"
)
bitserial_conv2d_nhwc = _convolution(
    "bitserial_conv2d_nhwc", conv2d_nhwc, "[N, H, W, CI] and [KH, KW, CI, CO]"
)


def _held(tensor: Tensor, bits: int, signed: bool, place: str) -> Tensor:
    """int32 of the low bits of integers; signed: each bit counts as 1 or -1."""
    require(1 <= bits <= MOST_BITS, place, f"{bits} bits", f"Use 1 to {MOST_BITS}.")
    require(tensor.dtype.is_int, place, f"{tensor.dtype} has no bits", "Give integers.")
    most = (1 << bits) - 1

    def body(i: Indices) -> Expr:
        value = (tensor[i] & te.const(most, tensor.dtype)).astype("int32")
        return value * 2 - most if signed else value

    return stage(tensor.shape, body, "T_bits", "elemwise")
