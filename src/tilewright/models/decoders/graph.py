"""A decoder as a graph over its caches: some positions at once, one or many.

In: a `Decoder`, numbers.  Out: a function of tokens, the position of the first of them, which of
them counts last, caches and weights; its results are the caches, then logits.  Weights have the
names that models of transformers have for Llama, whatever the family.
Read next: `config.py`, `weights.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from tilewright.graph.expr import Expr, Function, Tuple, Var
from tilewright.graph.functions import activations, indexing, nn, normalize, tensor
from tilewright.graph.functions.attention import Mask, between, probabilities, scores, weighted
from tilewright.graph.leaves import const, var
from tilewright.models.decoders.config import Decoder, Layer
from tilewright.models.decoders.rotary import Rotary

EVERY = 16  # positions at once of which all have logits; of more only one each
TOKENS, POSITION, LAST = "tokens", "position", "last"  # inputs

ACTIVATIONS: dict[str, Callable[[Expr], Expr]] = {
    "silu": activations.silu,
    "gelu": activations.gelu,
    "gelu_tanh": lambda x: activations.gelu(x, "tanh"),
    "relu": nn.relu,
}


def caches(decoder: Decoder) -> list[str]:
    """Names of the caches: keys and values of each layer."""
    return [f"{what}{k}" for k in range(len(decoder.layers)) for what in ("keys", "values")]


def function(decoder: Decoder, batch: int, count: int, length: int, dtype: str) -> Function:
    """`count` positions at once, for `batch` texts, each at a position of its own.

    length: of the caches, [batch, shared, length, size]
    Its inputs: tokens [batch, count]; position [batch], where the first of them stands; last
    [batch], which of them has logits where there are more than 16.  Its results: the caches, as
    `caches` lists them; logits [batch, count or 1, vocabulary] in float32.
    """
    return _Graph(decoder, batch, count, length, dtype).function()


@dataclass
class _Graph:
    decoder: Decoder
    batch: int
    count: int
    length: int
    dtype: str
    weights: dict[str, Var] = field(default_factory=dict)
    rotated: dict[Rotary, tuple[Expr, Expr]] = field(default_factory=dict)
    masks: dict[int | None, Expr] = field(default_factory=dict)
    which: tuple[Expr, Expr] | None = None  # places of a cache that are written, and rows for all

    def function(self) -> Function:
        d, b = self.decoder, self.batch
        self.tokens = var(TOKENS, shape=(b, self.count), dtype="int64")
        self.position = var(POSITION, shape=(b,), dtype="int64")
        last = var(LAST, shape=(b,), dtype="int64")
        kept = [
            var(n, shape=(b, d.shared, self.length, d.size), dtype=self.dtype) for n in caches(d)
        ]
        table = self.weight("model.embed_tokens.weight", d.vocabulary, d.width)
        x: Expr = indexing.take(table, self.tokens, axis=0)
        if d.scale != 1:
            x = x * const(np.asarray(d.scale).astype(x.tensor_type.dtype.storage))
        if d.learned:
            rows = self.weight("model.embed_positions.weight", d.positions, d.width)
            x = x + indexing.take(rows, self.places(), axis=0)
        results: list[Expr] = []
        for k, layer in enumerate(d.layers):
            x, *new = self.layer(x, layer, f"model.layers.{k}", kept[2 * k], kept[2 * k + 1])
            results += new
        if self.count > EVERY:
            x = self.chosen(x, last)
        x = self.norm(x, "model.norm", d.norm)
        head = table if d.tied else self.weight("lm_head.weight", d.vocabulary, d.width)
        logits: Expr = self.product(x, head)
        if "head" in d.biases:
            logits = logits + self.weight("lm_head.bias", d.vocabulary)
        logits = tensor.cast(logits, "float32")
        if d.logit_scale != 1:
            logits = logits * d.logit_scale
        if d.caps[1]:
            logits = tensor.tanh(logits * (1 / d.caps[1])) * d.caps[1]
        params = [self.tokens, self.position, last, *kept, *self.weights.values()]
        return Function(params, Tuple([*results, logits]))

    def weight(self, name: str, *shape: int) -> Var:
        if name not in self.weights:
            self.weights[name] = var(name, shape=shape, dtype=self.dtype)
        return self.weights[name]

    def places(self) -> Expr:
        """[batch, count]: where each position stands."""
        first = tensor.reshape(self.position, (self.batch, 1))
        return first + const(np.arange(self.count, dtype="int64").reshape(1, -1))

    def chosen(self, x: Expr, last: Expr) -> Expr:
        """[batch, 1, width]: of each text the position that counts last."""
        width = x.shape[-1]
        begins = const(np.arange(self.batch, dtype="int64") * self.count)
        rows = indexing.take(tensor.reshape(x, (-1, width)), begins + last, axis=0)
        return tensor.reshape(rows, (self.batch, 1, width))

    def layer(self, x: Expr, layer: Layer, name: str, keys: Expr, values: Expr) -> tuple[Expr, ...]:
        """What follows the layer, and its caches."""
        d = self.decoder
        normed = self.norm(x, f"{name}.input_layernorm", d.norm) if d.before else x
        mixed, keys, values = self.attention(normed, layer, f"{name}.self_attn", keys, values)
        if d.parallel:
            return x + mixed + self.dense(normed, f"{name}.mlp"), keys, values
        if d.after:
            mixed = self.norm(mixed, f"{name}.post_attention_layernorm", d.norm)
        x = x + self.times(mixed, d.added)
        before = "pre_feedforward_layernorm" if d.after else "post_attention_layernorm"
        normed = self.norm(x, f"{name}.{before}", d.norm) if d.before else x
        made = self.dense(normed, f"{name}.mlp")
        if d.after:
            made = self.norm(made, f"{name}.post_feedforward_layernorm", d.norm)
        return x + self.times(made, d.added), keys, values

    def times(self, x: Expr, factor: float) -> Expr:
        """By a number that is not rounded to the type of values."""
        if factor == 1:
            return x
        return tensor.cast(tensor.cast(x, "float32") * factor, self.dtype)

    def norm(self, x: Expr, name: str, kind: str) -> Expr:
        """Along the last axis; in float32, and rounded once more than its scale is."""
        width, epsilon = x.shape[-1], self.decoder.epsilon
        gamma: Expr = self.weight(f"{name}.weight", width)
        if kind == "layer":
            return normalize.layer_norm(x, gamma, self.weight(f"{name}.bias", width), -1, epsilon)
        if kind == "layer alone":
            return normalize.layer_norm(x, gamma, gamma, -1, epsilon, center=False)
        return normalize.rms_norm(x, gamma, -1, epsilon)

    def linear(self, x: Expr, name: str, units: int, biased: bool) -> Expr:
        made = self.product(x, self.weight(f"{name}.weight", units, x.shape[-1]))
        return made + self.weight(f"{name}.bias", units) if biased else made

    def product(self, x: Expr, weight: Expr) -> Expr:
        made = nn.dense(tensor.reshape(x, (-1, x.shape[-1])), weight)
        return tensor.reshape(made, (*x.shape[:-1], weight.shape[0]))

    def dense(self, x: Expr, name: str) -> Expr:
        """The dense layers."""
        d, act = self.decoder, ACTIVATIONS[self.decoder.activation]
        biased = "dense" in d.biases
        up = self.linear(x, f"{name}.up_proj", d.wide, biased)
        if d.gated:
            up = act(self.linear(x, f"{name}.gate_proj", d.wide, biased)) * up
        return self.linear(up if d.gated else act(up), f"{name}.down_proj", d.width, biased)

    # -- attention ---------------------------------------------------------------------------------

    def attention(
        self, x: Expr, layer: Layer, name: str, keys: Expr, values: Expr
    ) -> tuple[Expr, Expr, Expr]:
        """Of these positions over the caches, which they are written to before."""
        d = self.decoder
        q = self.split(x, f"{name}.q_proj", d.heads)
        k = self.split(x, f"{name}.k_proj", d.shared)
        v = self.split(x, f"{name}.v_proj", d.shared)
        if d.head_norms:
            q, k = (self.norm(h, f"{name}.{n}_norm", d.norm) for h, n in ((q, "q"), (k, "k")))
        if layer.rotary is not None:
            q, k = (self.turned(h, layer.rotary) for h in (q, k))
        keys, values = self.written(keys, k), self.written(values, v)
        if self.count == 1:  # heads that share keys are rows that meet the same ones
            q = tensor.reshape(q, (self.batch, d.shared, -1, d.size))
        scale = d.attention_scale or d.size**-0.5
        seen = Mask(self.mask(layer.window))  # each position sees itself at least
        made = weighted(probabilities(scores(q, keys, scale, d.caps[0]), seen), values)
        if self.count > 1:
            made = tensor.transpose(made, (0, 2, 1, 3))
        flat = tensor.reshape(made, (self.batch, self.count, d.heads * d.size))
        return self.linear(flat, f"{name}.o_proj", d.width, "out" in d.biases), keys, values

    def split(self, x: Expr, name: str, heads: int) -> Expr:
        """[batch, heads, count, size]"""
        d = self.decoder
        made = self.linear(x, name, heads * d.size, "qkv" in d.biases)
        if d.whole_norms and not name.endswith("v_proj"):
            made = self.norm(made, name.replace("_proj", "_norm"), d.norm)
        parts = tensor.reshape(made, (self.batch, self.count, heads, d.size))
        return tensor.transpose(parts, (0, 2, 1, 3))

    def turned(self, x: Expr, rotary: Rotary) -> Expr:
        """Pairs of elements of each head, of which one lies half of them behind the other, turned
        by an angle that grows with the position."""
        if rotary not in self.rotated:
            self.rotated[rotary] = self.waves(rotary)
        cos, sin = self.rotated[rotary]
        size, turns = x.shape[-1], 2 * len(rotary.frequencies)

        def part(begin: int, end: int) -> Expr:
            return indexing.strided_slice(x, [begin], [end], axes=[3])

        head = x if turns == size else part(0, turns)
        other = tensor.concatenate(
            [tensor.negative(part(turns // 2, turns)), part(0, turns // 2)], axis=3
        )
        made = head * cos + other * sin
        return made if turns == size else tensor.concatenate([made, part(turns, size)], axis=3)

    def waves(self, rotary: Rotary) -> tuple[Expr, Expr]:
        """Cosine and sine, [batch, 1, count, twice the pairs]."""
        steps = np.asarray(rotary.over(self.length), "float32")
        steps = np.concatenate([steps, steps]).reshape(1, 1, 1, -1)
        places = tensor.reshape(self.places(), (self.batch, 1, self.count, 1))
        angle = tensor.cast(places, "float32") * const(steps)
        made: list[Expr] = [f(angle) for f in (tensor.cos, tensor.sin)]
        if rotary.factor != 1:
            made = [wave * rotary.factor for wave in made]
        cos, sin = (tensor.cast(wave, self.dtype) for wave in made)
        return cos, sin

    def written(self, cache: Expr, new: Expr) -> Expr:
        """The cache with `new`, [batch, shared, count, size], from the position on.  Elementwise:
        nothing is moved, and what would be behind its end is not written."""
        places = const(np.arange(self.length, dtype="int64").reshape(1, 1, -1, 1))
        first = tensor.reshape(self.position, (self.batch, 1, 1, 1))
        if self.count == 1:
            return tensor.where(tensor.equal(places, first), new, cache)
        if self.which is None:
            self.which = self.chosen_rows(places - first)
        inside, row = self.which
        if self.batch == 1:
            rows = indexing.take(new, tensor.reshape(row, (-1,)), axis=2)
        else:
            rows = indexing.gather(new, 2, tensor.broadcast_to(row, cache.shape))
        return tensor.where(inside, rows, cache)

    def chosen_rows(self, row: Expr) -> tuple[Expr, Expr]:
        """Which rows of a cache are written, by their numbers from the position on; and the number
        of a new one for each."""
        known = tensor.less(row, const(self.count, "int64"))
        inside = tensor.where(tensor.less(row, const(0, "int64")), const(False), known)
        return inside, tensor.clip(row, 0, self.count - 1)

    def mask(self, window: int | None) -> Expr:
        """bool [batch, 1, count, length]: the keys that each position sees."""
        if window is not None and window >= self.length:
            window = None
        if window not in self.masks:
            before = None if window is None else window - 1
            self.masks[window] = between(self.count, self.length, before, 0, self.position)
        return self.masks[window]
