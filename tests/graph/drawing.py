"""Random networks for hypothesis: convolutions, normalisation, sums read twice, pooling."""

from __future__ import annotations

import numpy as np
from hypothesis import strategies as st

from tilewright.graph.expr import Expr, Function, IRModule
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


class Draft:
    """A network being drawn: the values so far, all NCHW, in float64 to compare sharply."""

    def __init__(self, draw, seed: int) -> None:
        self.draw, self.rng = draw, np.random.default_rng(seed)
        self.data = relay.var("data", shape=(draw(st.integers(1, 2)), 4, 6, 6), dtype="float64")
        self.values: list[Expr] = [self.data]

    def pick(self) -> Expr:
        return self.draw(st.sampled_from(self.values[-3:]))

    def constant(self, *shape: int, low: float = -1.5, high: float = 1.5) -> relay.Constant:
        return relay.const(self.rng.uniform(low, high, shape))

    def channels(self, x: Expr) -> int:
        return x.shape[1]

    def conv(self, x: Expr) -> Expr:
        kernel = self.draw(st.sampled_from((1, 3)))
        groups = self.draw(st.sampled_from((1, 2, self.channels(x))))
        weight = self.constant(4, self.channels(x) // groups, kernel, kernel)
        padding = self.draw(st.sampled_from((kernel // 2, 0)))
        return nn.conv2d(
            x, weight, 1, padding if x.shape[2] >= kernel else kernel // 2, groups=groups
        )

    def norm(self, x: Expr) -> Expr:
        n = self.channels(x)
        gamma, beta, mean = (self.constant(n) for _ in range(3))
        variance = self.constant(n, low=0.5)
        return nn.batch_norm(x, gamma, beta, mean, variance, scale=self.draw(st.booleans()))[0]

    def scale(self, x: Expr) -> Expr:
        low = self.draw(st.sampled_from((-1.5, 0.5)))  # of either sign, or positive
        return x * self.constant(self.channels(x), 1, 1, low=low)

    def shift(self, x: Expr) -> Expr:
        return self.constant(self.channels(x), 1, 1) + x

    def total(self, x: Expr) -> Expr:
        fitting = [v for v in self.values if v.shape == x.shape]
        return relay.add(x, self.draw(st.sampled_from(fitting)))

    def pool(self, x: Expr) -> Expr:
        function = self.draw(st.sampled_from((nn.max_pool2d, nn.avg_pool2d)))
        return function(x, 2, 1, padding=(1, 1, 0, 0))

    def step(self) -> None:
        kinds = (self.conv, self.norm, nn.relu, self.scale, self.shift, self.total, self.pool)
        self.values.append(self.draw(st.sampled_from(kinds))(self.pick()))


@st.composite
def networks(draw) -> IRModule:
    """A module whose weights are constants already."""
    draft = Draft(draw, draw(st.integers(0, 1 << 16)))
    for _ in range(draw(st.integers(1, 9))):
        draft.step()
    x = draft.values[-1]
    if draw(st.booleans()):
        x = nn.batch_flatten(nn.global_avg_pool2d(nn.relu(draft.norm(x))))
        x = nn.bias_add(nn.dense(x, draft.constant(5, x.shape[1])), draft.constant(5))
    elif draw(st.booleans()):
        x = relay.Tuple([x, nn.relu(draft.pick())])
    return IRModule.from_expr(Function([draft.data], x))
