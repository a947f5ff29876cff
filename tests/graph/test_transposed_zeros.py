"""A transposed convolution adds what there is: no tap that is missing multiplies an infinity."""

import itertools

import numpy as np
import pytest

from tilewright import cpu, te, topi
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.te.contraction import contraction
from tilewright.te.evaluate import evaluate
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

IMAGE = {1: "W", 2: "HW", 3: "DHW"}
BAD = (np.inf, -np.inf, np.nan)
# rank, channels in, groups, kernel, strides, dilation, padding, output padding
CASES = [
    (1, 2, 1, 3, 2, 1, 1, 1),
    (1, 1, 1, 2, 3, 1, 0, 0),
    (1, 2, 2, 3, 2, 2, 1, 0),
    (2, 1, 1, 1, 2, 1, 0, 0),
    (2, 2, 1, 3, 2, 1, 1, 1),
    (2, 2, 2, 2, 3, 1, 0, 0),
    (2, 2, 1, 2, 1, 2, 0, 0),
    (2, 4, 4, 3, 2, 1, 0, 0),
    (2, 2, 1, 4, 2, 1, 1, 0),
    (3, 1, 1, 3, 2, 1, 1, 0),
]


def scattered(x, w, groups, stride, dilation, padding, extra):
    """What each element of the data adds, where it goes; nothing else is touched."""
    rank = x.ndim - 2
    per_in, per_out = x.shape[1] // groups, w.shape[1]
    reach = [(k - 1) * dilation + 1 for k in w.shape[2:]]
    whole = [(n - 1) * stride + r + extra for n, r in zip(x.shape[2:], reach, strict=True)]
    out = np.zeros((x.shape[0], per_out * groups, *whole))
    for n, c in np.ndindex(*x.shape[:2]):
        g = c // per_in
        for at in np.ndindex(*x.shape[2:]):
            for o, *tap in np.ndindex(*w.shape[1:]):
                to = [a * stride + t * dilation for a, t in zip(at, tap, strict=True)]
                out[(n, g * per_out + o, *to)] += float(x[(n, c, *at)]) * float(w[(c, o, *tap)])
    return out[(..., *[slice(padding, e - padding) for e in whole])] if rank else out


def _case(number):
    rank, channels, groups, kernel, stride, dilation, padding, extra = CASES[number]
    rng = np.random.default_rng(number)
    x = rng.integers(1, 4, (1, channels, *[4, 3, 3][:rank])).astype("float32")
    flat = x.reshape(-1)
    flat[rng.choice(flat.size, 1)] = BAD[number % 3]
    w = rng.integers(1, 4, (channels, 2, *[kernel] * rank)).astype("float32")
    with np.errstate(all="ignore"):
        return x, w, scattered(x, w, groups, stride, dilation, padding, extra)


def _transposed(number, x, w, layout="first"):
    rank, _, groups, _, stride, dilation, padding, extra = CASES[number]
    image = IMAGE[rank]
    data = relay.var("x", shape=x.shape)
    made = data if layout == "first" else relay.transpose(data, (0, *range(2, rank + 2), 1))
    made = getattr(nn, f"conv{rank}d_transpose")(
        made, relay.const(w), strides=(stride,) * rank, padding=(padding,) * rank,
        dilation=(dilation,) * rank, output_padding=(extra,) * rank, groups=groups,
        data_layout=f"NC{image}" if layout == "first" else f"N{image}C",
    )  # fmt: skip
    back = made if layout == "first" else relay.transpose(made, (0, rank + 1, *range(1, rank + 1)))
    return relay.Function([data], back)


@pytest.mark.sampled(4)
@pytest.mark.slow
@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("layout", ["first", "last"])
def test_what_does_not_depend_on_it_stays_finite(number, layout):
    x, w, wanted = _case(number)
    assert 0 < np.isfinite(wanted).sum() < wanted.size
    f = _transposed(number, x, w, layout)
    with np.errstate(all="ignore"):
        np.testing.assert_array_equal(relay.evaluate(f, {"x": x}), wanted.astype("float32"))
    module = GraphModule(relay.build(relay.IRModule.from_expr(f), "llvm")["default"](cpu()))
    module.run(x=x)
    np.testing.assert_array_equal(module.get_output(0).numpy(), wanted.astype("float32"))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_reference_adds_the_same(number):
    """By one product where all is finite, step by step where something is not."""
    rank, _, groups, _, stride, dilation, padding, extra = CASES[number]
    x, w, wanted = _case(number)
    a, b = te.placeholder(x.shape, name="a"), te.placeholder(w.shape, name="b")
    out = topi.nn.conv_transpose(
        a, b, stride, padding, None, extra, dilation, groups, f"NC{IMAGE[rank]}"
    )
    dag = te.ComputeDAG([a, b, out])
    np.testing.assert_array_equal(evaluate(dag, [x, w])[0], wanted)
    whole = np.where(np.isfinite(x), x, 2)
    wanted = scattered(whole, w, groups, stride, dilation, padding, extra)
    np.testing.assert_array_equal(evaluate(dag, [whole, w])[0], wanted)


def test_the_product_is_fast_where_taps_are_missing():
    """A detail: the slow path gives the same."""
    a, b = te.placeholder((1, 2, 5, 5), name="a"), te.placeholder((2, 3, 3, 3), name="b")
    for dilation, stride in itertools.product((1, 2), (1, 2, 3)):
        out = topi.nn.conv_transpose(a, b, stride, 1, dilation=dilation)
        ops = [op for op in te.ComputeDAG([a, b, out]).compute_ops if op.combiner is not None]
        assert all(contraction(op) is not None for op in ops)
