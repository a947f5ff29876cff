"""The generator of DCGAN (Radford et al., 2015): transposed convolutions from a code to an image.

In: batch, size of the code.  Out: `(mod, params)` with seeded weights.  Read next: `lstm.py`.
"""

from __future__ import annotations

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Expr, Function
from tilewright.graph.functions import nn, tensor
from tilewright.graph.leaves import var
from tilewright.models.zoo.layers import batch_norm, network, workload_of

KERNEL, STRIDE, SIZE = 4, 2, 64
START = SIZE // STRIDE**4
EPSILON = 1e-5 + 1e-12


def _grow(data: Expr, name: str, channels: int) -> Expr:
    """A transposed convolution that doubles height and width."""
    pad = (KERNEL - 1) // 2
    more = (STRIDE * data.shape[2] + 2 * pad - KERNEL) % STRIDE
    return nn.conv2d_transpose(
        data, var(f"{name}_weight", dtype=data.dtype), (STRIDE, STRIDE), (pad, pad),
        channels=channels, kernel_size=(KERNEL, KERNEL), output_padding=(more, more),
    )  # fmt: skip


def get_net(
    batch_size: int = 1,
    random_len: int = 100,
    oshape: tuple[int, ...] = (3, 64, 64),
    ngf: int = 128,
    dtype: str = "float32",
) -> Function:
    """The function data (a code) -> image, in (-1, 1).

    oshape: (C, 64, 64); ngf: channels of the last layer but one; random_len: numbers of a code
    """
    if len(oshape) < 3 or tuple(oshape[-2:]) != (SIZE, SIZE):
        raise ModelError(
            f"relay.testing.dcgan(oshape={oshape})", "it makes images of 64x64",
            "Example: oshape=(3, 64, 64).",
        )  # fmt: skip
    data = var("data", shape=(batch_size, random_len), dtype=dtype)
    x: Expr = nn.dense(data, var("dense_weight", dtype=dtype), units=START * START * ngf * 8)
    x = tensor.reshape(nn.relu(x), (-1, ngf * 8, START, START))
    for k, widen in enumerate((4, 2, 1), 2):
        x = _grow(x, f"g{k}_deconv", ngf * widen)
        x = nn.relu(batch_norm(x, f"g{k}_batch_norm", epsilon=EPSILON, scale=False))
    return network(data, tensor.tanh(_grow(x, "g5_deconv", oshape[-3])))


get_workload = workload_of(get_net, "batch_size", "oshape", "ngf")
