"""Kernels with several results: what reads a kernel's result element by element joins it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import IRModule
from tilewright.graph.layers import layers_of, name_by_weights
from tilewright.graph.passes import join_readers
from tilewright.network import extract
from tilewright.network.build import build
from tilewright.network.extract import fused_groups, groupings
from tilewright.network.memory import lifetimes, made_in, steps
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright.targets.target import Target
from tilewright_tvm import relay
from tilewright_tvm.relay import nn

GPU = Target("cuda -arch=sm_90")


def weight(*shape: int) -> relay.Constant:
    rng = np.random.default_rng(shape)
    return relay.const(rng.integers(-1, 2, shape).astype("float32"))


def image() -> relay.Var:
    return relay.var("x", shape=(1, 8, 6, 6))


def conv(x: Any, channels: int = 8) -> Any:
    return nn.conv2d(x, weight(channels, 8, 3, 3), padding=1)


def norms_first() -> Any:
    """Residual units whose biases and activations come before convolutions."""
    total = image()
    for _ in range(3):
        total = conv(nn.relu(conv(nn.relu(total + weight(8, 1, 1))))) + total
    return total


def two_made_of_one() -> Any:
    """Nobody but the two reads the convolution."""
    x = conv(image())
    return relay.Tuple([conv(nn.relu(x)), conv(relay.tanh(x * relay.const(0.125)))])


def results_are_kept() -> Any:
    x = conv(image())
    y = nn.relu(x + weight(8, 1, 1))
    return relay.Tuple([x, y, conv(y)])


def other_comes_later() -> Any:
    """The other operand needs the sum itself, in a kernel of its own."""
    x = conv(image()) + weight(8, 1, 1)
    return conv(x) * relay.const(2.0) + nn.relu(x + nn.softmax(x, axis=1))


def narrower() -> Any:
    x = conv(image())
    return relay.Tuple([nn.max_pool2d(x), relay.cast(nn.relu(x), "float16")])


NETWORKS: dict[str, tuple[Callable[[], Any], int]] = {  # with how many kernels fewer
    "norms first": (norms_first, 2),
    "two made of one": (two_made_of_one, 2),
    "results": (results_are_kept, 1),
    "the other comes later": (other_comes_later, 0),
    "another type": (narrower, 1),
}


def module(made: Any) -> IRModule:
    return IRModule.from_expr(made)


@pytest.mark.parametrize("name", NETWORKS)
def test_readers_join_and_the_network_computes_the_same(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a CPU, which usually has no such kernels."""
    make, fewer = NETWORKS[name]
    mod = module(make())
    (usual, *_), (joined, *_) = groupings(mod), groupings(mod, target=GPU)
    before, after = (len(steps(m["main"].body)) for m in (usual, joined))
    rng = np.random.default_rng(0)
    x = rng.integers(-2, 3, (1, 8, 6, 6)).astype("float32")
    monkeypatch.setattr(extract, "ways_to_group", lambda m, last, target: [join_readers(last(m))])
    library = build(mod, "llvm", schedules=[], use_knowledge=False)
    assert before - sum(k.count for k in library.report.kernels) == before - after == fewer
    net = GraphModule(library["default"](device("llvm")))
    net.run(x=x)
    wanted = evaluate(mod, {"x": x})
    wanted = wanted if isinstance(wanted, tuple) else (wanted,)
    for k, array in enumerate(wanted):
        np.testing.assert_allclose(net.get_output(k).numpy(), array, rtol=1e-4, atol=1e-3)


def test_each_result_has_a_life_of_its_own() -> None:
    (way, *_) = groupings(module(norms_first()), target=GPU)
    main = way["main"]
    first = next(c for c in steps(main.body) if len(made_in(main.body)[c]) == 2)
    total, behind = made_in(main.body)[first]
    alive = lifetimes(main)
    assert alive[total].first == alive[behind].first
    assert alive[behind].last < alive[total].last  # the residual is read later
    assert alive[total].name != alive[behind].name


def test_a_kernel_has_one_stage_for_its_results() -> None:
    (way, *_) = groupings(module(norms_first()), target=GPU)
    several = [g for g in fused_groups(way["main"]) if len(g.dag.outputs) > 1]
    assert several
    for group in several:
        assert len({t.op for t in group.dag.outputs}) == 1
        assert group.name == "conv2d_nchw+add+add+relu"


def test_what_may_be_written_in_place_stays_by_itself() -> None:
    """An update of a cache keeps the elements of an input; see `network/in_place.py`."""
    x, mask = relay.var("x", shape=(4, 8)), relay.var("mask", shape=(4, 8), dtype="bool")
    y = x * relay.const(2.0)
    kept = relay.where(mask, y, relay.var("cache", shape=(4, 8)))
    mod = module(relay.Tuple([y, kept, nn.softmax(y)]))
    (usual, *_), (joined, *_) = groupings(mod), groupings(mod, target=GPU)
    assert len(steps(usual["main"].body)) == len(steps(joined["main"].body))


def test_a_batch_that_is_filled_up_goes_through_kernels_with_two_results(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(extract, "ways_to_group", lambda m, last, target: [join_readers(last(m))])
    library = build(
        module(norms_first()), "llvm", schedules=[], use_knowledge=False,
        batch_sizes=[1, 4], partial_batches=True,
    )  # fmt: skip
    net = GraphModule(library["default"](device("llvm")))
    x = np.random.default_rng(0).integers(-2, 3, (3, 8, 6, 6)).astype("float32")
    net.run(x=x)
    wanted = [evaluate(module(norms_first())["main"], {"x": x[k : k + 1]}) for k in range(3)]
    np.testing.assert_allclose(net.get_output(0).numpy(), np.concatenate(wanted), rtol=1e-4)


def test_a_kernel_is_of_the_layers_of_all_that_joined() -> None:
    x = relay.var("x", shape=(1, 8, 6, 6))
    kernel, bias = (
        relay.var("unit.conv.weight", shape=(8, 8, 3, 3)),
        relay.var("norm.bias", shape=(8, 1, 1)),
    )
    total = nn.conv2d(x, kernel, padding=1)
    behind = nn.relu(total + bias)
    mod = module(relay.Tuple([nn.max_pool2d(total), nn.max_pool2d(behind)]))
    name_by_weights(mod["main"].body)
    (way, *_) = groupings(mod, target=GPU)
    (group,) = (g for g in fused_groups(way["main"]) if len(g.dag.outputs) > 1)
    assert layers_of(group.calls[0]) == ("unit.conv", "norm")
