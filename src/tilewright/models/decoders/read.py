"""A decoder by its folder or its name: graphs for each number of positions, weights, states.

In: a folder with config.json and safetensors, or a name of `config.NAMED`; sizes.  Out: modules,
weights, states and bounds of inputs for `network/build.py`.  Read next: `graph.py`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilewright.base.doors import is_integer
from tilewright.base.errors import ModelError
from tilewright.base.model_files import DECODER, kind_of
from tilewright.graph.expr import Array, IRModule
from tilewright.graph.layers import name_by_weights
from tilewright.models.decoders import config, weights
from tilewright.models.decoders.config import NAMED, Decoder
from tilewright.models.decoders.graph import LAST, POSITION, TOKENS, caches, function
from tilewright.network.build import State

LENGTH, COUNTS = 2048, (1, 64)  # of caches, and positions at once, where nobody says more
MOST = 64  # texts at once


@dataclass(frozen=True)
class Read:
    """modules: one for each number of positions; bounds: least and greatest number of an input"""

    modules: tuple[IRModule, ...]
    params: dict[str, Array]
    states: dict[str, State]
    bounds: dict[str, tuple[int, int]]


def is_decoder(model: str) -> bool:
    """Whether it is the name or the folder of one."""
    return model in NAMED or kind_of(Path(model)) == DECODER


def load(
    model: str, batch: Sequence[int], shape: Mapping[str, Any] | None, dtype: str
) -> Read:  # fmt: skip
    """Read a decoder.

    batch: how many texts at once, one number; none: 1
    shape: "tokens": numbers of positions at once, of which a run takes what its tokens are;
           "cache": how many positions the caches hold.  Default: 1 and 64, and 2048, or what the
           other one and the model allow
    dtype: of weights, values and caches; sums are float32
    Raises ModelError for a model or sizes that cannot be.
    """
    place = f"load({model!r})"
    decoder = NAMED[model]() if model in NAMED else config.read(Path(model))
    counts, length = sizes_of(place, decoder, shape or {})
    if len(batch) > 1 or min(batch, default=1) > MOST:
        raise ModelError(
            f"{place}, batch=", f"caches are for one number of texts, of at most {MOST}",
            "Give one: batch=(4,).",
        )  # fmt: skip
    many = batch[0] if batch else 1
    functions = [function(decoder, many, n, length, dtype) for n in counts]
    given = {TOKENS, POSITION, LAST, *caches(decoder)}
    shapes = {p.name_hint: p.shape for p in functions[0].params if p.name_hint not in given}
    if model in NAMED:
        params = weights.random(decoder, shapes, dtype)
    else:
        params = weights.read(Path(model), decoder, shapes, dtype)
    for made in functions:
        name_by_weights(made.body)
    return Read(
        tuple(map(IRModule.from_expr, functions)), params,
        {name: State(k) for k, name in enumerate(caches(decoder))},
        {
            TOKENS: (0, decoder.vocabulary - 1), POSITION: (0, length - 1),
            LAST: (0, max(counts) - 1),
        },
    )  # fmt: skip


def sizes_of(place: str, decoder: Decoder, shape: Mapping[str, Any]) -> tuple[tuple[int, ...], int]:
    """Positions at once, ascending, and those of the caches."""
    for name in shape:
        if name not in ("tokens", "cache"):
            raise ModelError(
                f"{place}, shape=", f"a decoder has no size {name!r}",
                "Give how many tokens at once and positions in the caches: "
                'shape={"tokens": [1, 64], "cache": 2048}.',
            )  # fmt: skip
    asked: Any = shape.get("tokens")
    cache: Any = shape.get("cache")
    given: list[Any] = list(asked) if isinstance(asked, list | tuple | range) else [asked]
    numbers = ([] if asked is None else given) + ([] if cache is None else [cache])
    if not given or not all(is_integer(n) and int(n) >= 1 for n in numbers):
        raise ModelError(
            f"{place}, shape=", "tokens and cache are not whole numbers of at least 1",
            'Example: shape={"tokens": [1, 64], "cache": 2048}.',
        )  # fmt: skip
    if asked is None:  # what the caches hold
        most = decoder.positions if cache is None else min(int(cache), decoder.positions)
        given = [n for n in COUNTS if n <= most]
    counts = sorted({int(n) for n in given})
    length = min(max(LENGTH, counts[-1]), decoder.positions) if cache is None else int(cache)
    if not counts[-1] <= length <= decoder.positions:
        raise ModelError(
            f"{place}, shape=", f"caches of {length} positions and {counts[-1]} at once, for a "
            f"model of {decoder.positions}", "tokens <= cache <= what the model has.",
        )  # fmt: skip
    return tuple(counts), length
