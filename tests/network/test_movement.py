"""A build tells which kernels only move elements, and what keeps each from joining another."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.network.build import build
from tilewright_tvm import relay


@pytest.mark.slow
def test_what_only_moves_is_told_with_what_reads_it() -> None:
    x, w = relay.var("x", shape=(4, 6)), relay.const(np.ones((8, 4), "float32"))
    turned = relay.transpose(x)
    made = relay.nn.softmax(relay.nn.dense(turned, w))
    body = relay.Tuple([made, relay.transpose(relay.nn.relu(made)), relay.reverse(x, 0)])
    report = build(relay.Function([x], body), "llvm", verify=False).report
    assert {(row.why, row.calls, row.nbytes) for row in report.moved} == {
        ("nn.dense reads it, more than once an element", 1, 96),
        ("it is a result of the network", 1, 96),
    }
    assert "2 launches only move elements" in str(report)


def test_a_network_without_such_kernels_says_nothing() -> None:
    x = relay.var("x", shape=(4, 6))
    report = build(relay.Function([x], relay.nn.relu(x)), "llvm", verify=False).report
    assert report.moved == () and "only move" not in str(report)
