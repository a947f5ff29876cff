"""What stands before a network or behind it: features counted, picked, compared."""

from __future__ import annotations

import numpy as np

from tilewright.graph.expr import Array, Expr
from tilewright.graph.functions import tensor
from tilewright.graph.functions.indexing import take
from tilewright.graph.functions.linear import product
from tilewright.graph.leaves import const
from tilewright.models.onnx.node import Converter, Node

MODES = ("TF", "IDF", "TFIDF")


def _extract(n: Node) -> Expr:
    """Elements of the last axis."""
    data = n[0] if len(n[0].shape) > 1 else tensor.expand_dims(n[0], 0)
    n.require(bool(n[0].shape), "its data is one number", "Give it an axis.")
    return take(data, tensor.as_shape(n[1], (-1,)), len(data.shape) - 1)


def _binarizer(n: Node) -> Expr:
    data = n[0]
    limit = const(np.asarray(n.attr("threshold", 0.0)).astype(data.dtype.storage))
    return tensor.cast(tensor.greater(data, limit), data.dtype)


def _grams(n: Node) -> list[tuple[Array, Array]]:
    """By length: n-grams [count, length], and which result each is."""
    pool, starts = n.attr("pool_int64s"), n.attr("ngram_counts")
    n.require(
        not n.attr("pool_strings"), "its n-grams are text", "Number the words, outside the network."
    )
    n.require(bool(starts), "its ngram_counts are empty", "Give where each length starts.")
    places, first, found = np.array(n.attr("ngram_indexes"), "int64"), 0, []
    ends = [*starts[1:], len(pool or ())]
    for length, (begin, end) in enumerate(zip(starts, ends, strict=True), 1):
        count, rest = divmod(end - begin, length)
        n.require(
            0 <= begin <= end <= len(pool or ()) and rest == 0 and first + count <= len(places),
            f"ngram_counts {starts} do not divide its {len(pool or ())} numbers",
            "The model is damaged; export it again.",
        )  # fmt: skip
        grams = np.array(pool[begin:end] if pool else (), "int64").reshape(count, length)
        found.append((grams, places[first : first + count]))
        first += count
    return found


def _windows(extent: int, length: int, skips: int) -> Array:
    """Positions [windows, length] whose neighbours leave out up to `skips` elements."""
    most = (extent - 1) // (length - 1) if length > 1 else 1
    steps = range(1, max(min(skips + 1, most), 1) + 1)
    return np.concatenate([
        np.arange(max(extent - (length - 1) * step, 0))[:, None] + np.arange(length) * step
        for step in steps
    ])  # fmt: skip


def _tfidf(n: Node) -> Expr:
    """How often each n-gram occurs in a row."""
    data, mode = n[0], n.attr("mode")
    n.require(mode in MODES, f"mode={mode} is not known", f"Use {', '.join(MODES)}.")
    n.require(len(data.shape) in (1, 2), f"its data has shape {data.shape}", "Give [C] or [N, C].")
    rows = data if len(data.shape) == 2 else tensor.expand_dims(data, 0)
    least, most = int(n.attr("min_gram_length")), int(n.attr("max_gram_length"))
    skips, groups = int(n.attr("max_skip_count")), _grams(n)
    given = n.attr("weights")
    width = 1 + max((int(p.max()) for _, p in groups if p.size), default=-1)
    n.require(
        width >= 1 and min(int(p.min()) for _, p in groups if p.size) >= 0 and skips >= 0,
        "its n-grams have no places", "The model is damaged; export it again.",
    )  # fmt: skip
    n.room(4 * width * (1 + rows.shape[0]))
    weights = np.ones(width, "float32")
    if given and mode != "TF":
        order = np.concatenate([p for _, p in groups])
        n.require(len(given) == len(order), f"{len(given)} weights", f"Give {len(order)}.")
        weights[order] = given
    total: Expr = const(np.zeros((rows.shape[0], width), "float32"))
    for length, (grams, places) in enumerate(groups, 1):
        windows = _windows(rows.shape[1], length, skips)
        if not least <= length <= most or not grams.size or not windows.size:
            continue
        n.room(4 * len(grams) * width + rows.shape[0] * windows.size * len(grams))
        read = tensor.expand_dims(take(rows, const(windows), 1), 2)  # [N, windows, 1, length]
        same = tensor.equal(read, const(grams.astype(rows.dtype.storage)))
        met = tensor.min(tensor.cast(same, "float32"), axis=3)
        where = np.zeros((len(grams), width), "float32")
        where[np.arange(len(grams)), places] = 1
        total = tensor.add(total, product(tensor.sum(met, axis=1), const(where)))
    if mode == "IDF":
        total = tensor.minimum(total, const(1.0, "float32"))
    made = tensor.multiply(total, const(weights)) if mode != "TF" else total
    return made if len(data.shape) == 2 else tensor.as_shape(made, (width,))


CONVERTERS: dict[str, Converter] = {"TfIdfVectorizer": _tfidf}
LEARNING: dict[str, Converter] = {
    "ArrayFeatureExtractor": _extract,
    "Binarizer": _binarizer,
}
