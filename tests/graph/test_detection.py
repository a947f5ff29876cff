"""Operators that choose among boxes, against loops over them, evaluated and as kernels."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright import cpu, opencl
from tilewright.base.errors import ModelError
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay
from tilewright_tvm.relay import vision

rng = np.random.default_rng(3)
DEVICES = [d for d in (cpu(), opencl()) if d.exist]


def of(function, arrays, dev=None):
    """What an operator makes of arrays: by the evaluator, or as kernels on a device."""
    inputs = [relay.var(f"x{k}", shape=a.shape, dtype=str(a.dtype)) for k, a in enumerate(arrays)]
    given = {v.name_hint: a for v, a in zip(inputs, arrays, strict=True)}
    whole = relay.Function(inputs, function(*inputs))
    if dev is None:
        made = relay.evaluate(whole, given)
        return list(made) if isinstance(made, (tuple, list)) else [made]
    module = GraphModule(relay.build(whole, dev.target)["default"](dev))
    module.run(**given)
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def boxes(*shape):
    """Corners in any order."""
    first = rng.uniform(0, 1, (*shape, 2))
    return np.concatenate([first, first + rng.uniform(-0.4, 0.4, (*shape, 2))], -1).astype(
        "float32"
    )


def overlap(a, b, extra=0.0):
    ends = [(np.minimum(x[:2], x[2:]), np.maximum(x[:2], x[2:]) + extra) for x in (a, b)]
    sides = np.minimum(ends[0][1], ends[1][1]) - np.maximum(ends[0][0], ends[1][0])
    common = np.prod(np.maximum(sides, 0))
    union = sum(np.prod(high - low) for low, high in ends) - common
    return common / union if union > 0 else 0.0


def greedy(corners, scores, labels, threshold, most=-1):
    """The kept boxes, best first."""
    kept = []
    for k in np.argsort(-scores, kind="stable"):
        if scores[k] <= 0 or len(kept) == most:
            continue
        others = (j for j in kept if labels[j] == labels[k])
        if all(overlap(corners[j], corners[k]) < threshold for j in others):
            kept.append(k)
    return kept


def rows_of(count, classes=3):
    """Rows of class, score and corners."""
    labels = rng.integers(0, classes, (2, count, 1))
    scores = rng.permutation(2 * count).reshape(2, count, 1) / count - 0.3  # no two alike
    return np.concatenate([labels, scores, boxes(2, count)], 2).astype("float32")


@pytest.mark.slow
@pytest.mark.sampled(1)
@pytest.mark.parametrize("dev", [None, *DEVICES], ids=str)
@pytest.mark.parametrize("most", [-1, 3])
def test_non_max_suppression(dev, most):
    data, counts = rows_of(50), np.array([50, 23], "int32")
    origins = rng.permutation(100).reshape(2, 50).astype("int32")

    def network(d, c, o):
        chosen = vision.non_max_suppression(d, c, o, most, 0.3)
        in_order = vision.non_max_suppression(d, c, o, most, 0.3, return_indices=False)
        front = vision.non_max_suppression(
            d, c, o, most, 0.3, return_indices=False, invalid_to_bottom=True
        )
        return relay.Tuple([*chosen.fields, in_order, front])

    kept, number, in_order, front = of(network, [data, counts, origins], dev)
    for b in range(2):
        valid = data[b, : counts[b]]
        wanted = greedy(valid[:, 2:], valid[:, 1], valid[:, 0], 0.3, most)
        left = 50 - len(wanted)
        assert number[b, 0] == len(wanted) > (1 if most > 0 else 16 if b == 0 else 1)
        assert kept[b].tolist() == [*origins[b, wanted], *[-1] * left]
        np.testing.assert_array_equal(front[b], [*valid[wanted], *[[-1.0] * 6] * left])
        order = np.argsort(-valid[:, 1], kind="stable")
        gaps = [valid[k] if k in wanted else [-1.0] * 6 for k in order]
        gaps += [[-1.0] * 6] * (50 - len(gaps))
        np.testing.assert_array_equal(in_order[b], gaps)


def test_how_many_are_kept_may_be_data():
    data, counts = rows_of(20), np.array([20, 20], "int32")
    origins = np.tile(np.arange(20, dtype="int32"), (2, 1))
    for most in (-1, 0, 2):
        kept, number = of(
            lambda d, c, o, m: vision.non_max_suppression(d, c, o, m, 0.3, top_k=9),
            [data, counts, origins, np.array(most, "int32")],
        )
        for b in range(2):
            best = np.argsort(-data[b, :, 1], kind="stable")[:9]
            inner = greedy(data[b, best, 2:], data[b, best, 1], data[b, best, 0], 0.3, most)
            assert number[b, 0] == len(inner)
            assert kept[b].tolist() == [*best[inner], *[-1] * (20 - len(inner))]


def test_without_a_threshold_boxes_stay():
    data, counts = rows_of(6), np.array([4, 0], "int32")
    origins = np.tile(np.arange(6, dtype="int32"), (2, 1))
    kept, number = of(
        lambda d, c, o: vision.non_max_suppression(d, c, o, -1, 0.0), [data, counts, origins]
    )
    assert kept.tolist() == [[0, 1, 2, 3, -1, -1], [-1] * 6] and number.tolist() == [[4], [0]]


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("dev", [None, *DEVICES], ids=str)
def test_all_classes(dev):
    corners = boxes(2, 30)
    scores = (rng.permutation(180).reshape(2, 3, 30) / 180).astype("float32")
    found, number = of(
        lambda b, s: vision.all_class_non_max_suppression(b, s, 5, 0.25, 0.4),
        [corners, scores],
        dev,
    )
    assert found.shape == (180, 3) and found.dtype == np.int64
    wanted = []
    for b, c in np.ndindex(2, 3):
        kept = greedy(corners[b], np.where(scores[b, c] > 0.4, scores[b, c], 0), [0] * 30, 0.25, 5)
        wanted += [[b, c, k] for k in kept]
    assert number.tolist() == [len(wanted)]
    assert found.tolist() == wanted + [[-1] * 3] * (180 - len(wanted))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("dev", [None, *DEVICES], ids=str)
@pytest.mark.parametrize("clip", [False, True])
def test_boxes_that_were_moved(dev, clip):
    chances, moves = rng.uniform(0, 1, (2, 4, 7)), rng.uniform(-1, 1, (2, 28))
    anchors = np.sort(rng.uniform(0, 1, (1, 7, 2, 2)), 2).reshape(1, 7, 4)
    how = 0.6, (0.1, 0.2, 0.3, 0.4)
    rows, counts = of(
        lambda *x: vision.multibox_transform_loc(*x, clip, *how),
        [a.astype("float32") for a in (chances, moves, anchors)], dev,
    )  # fmt: skip
    for b in range(2):
        wanted = []
        for n in range(7):
            best = int(np.argmax(chances[b, 1:, n]))
            if chances[b, best + 1, n] < 0.6:
                continue
            move, anchor = moves[b, 4 * n : 4 * n + 4] * how[1], anchors[0, n]
            size, center = anchor[2:] - anchor[:2], (anchor[2:] + anchor[:2]) / 2
            center, half = move[:2] * size + center, np.exp(move[2:]) * size / 2
            ends = [*(center - half), *(center + half)]
            ends = np.clip(ends, 0, 1) if clip else ends
            wanted.append([best, chances[b, best + 1, n], *ends])
        assert counts[b] == len(wanted)
        expected = [*wanted, *[[-1.0] * 6] * (7 - len(wanted))]
        np.testing.assert_allclose(rows[b], expected, rtol=1e-5, atol=1e-5)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("dev", [None, *DEVICES], ids=str)
def test_proposals(dev):
    """Two boxes for each element, corners moved by pixels; fewer kept than asked for come again."""
    chances = rng.permutation(64).reshape(2, 4, 2, 4).astype("float32") / 64
    moves = rng.uniform(-4, 4, (2, 8, 2, 4)).astype("float32")
    images = np.array([[32, 48, 1], [32, 64, 2]], "float32")
    how = {
        "scales": (0.5, 1.0), "ratios": (1.0,), "feature_stride": 16, "threshold": 0.1,
        "rpn_pre_nms_top_n": 12, "rpn_post_nms_top_n": 9, "rpn_min_size": 7, "iou_loss": True,
    }  # fmt: skip
    (made,) = of(lambda *x: vision.proposal(*x, **how), [chances, moves, images], dev)
    assert made.shape == (18, 5)
    for b, (height, width, scale) in enumerate(images):
        found = []
        for y, x, k in np.ndindex(2, 4, 2):
            side = 16 * how["scales"][k]
            ends = [7.5 + s * (side - 1) / 2 + 16 * p for s in (-1, 1) for p in (x, y)]
            ends = [e + moves[b, 4 * k + n, y, x] for n, e in enumerate(ends)]
            ends = np.clip(ends, 0, [width - 1, height - 1] * 2)
            small = np.min(ends[2:] - ends[:2] + 1) < 7 * scale
            outside = y >= height // 16 or x >= width // 16
            if small:
                ends = ends + 7 * scale / 2 * np.array([-1, -1, 1, 1])
            found.append((-1.0 if small or outside else chances[b, 2 + k, y, x], ends))
        kept = []
        for _, ends in sorted(found, key=lambda f: -f[0])[:12]:
            if len(kept) < 9 and all(overlap(o, ends, 1.0) <= 0.1 for o in kept):
                kept.append(ends)
        expected = [[b, *kept[t % len(kept)]] for t in range(9)]
        assert len(kept) < 9
        np.testing.assert_allclose(made[9 * b : 9 * b + 9], expected, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x, c, i: vision.non_max_suppression(x, c, i, coord_start=3), "has 6 numbers"),
        (lambda x, c, i: vision.non_max_suppression(i, c, i), "no rows of boxes"),
        (lambda x, c, i: vision.non_max_suppression(x, c, c), "indices have shape"),
        (
            lambda x, c, i: vision.all_class_non_max_suppression(x, x), "do not belong together",
        ),
        (
            lambda x, c, i: vision.all_class_non_max_suppression(
                relay.var("b", shape=(1, 3, 4)), relay.var("s", shape=(1, 2, 3)),
                output_format="tensorflow",
            ),
            "is not there",
        ),
        (lambda x, c, i: vision.multibox_transform_loc(x, c, i), "do not belong together"),
        (lambda x, c, i: vision.get_valid_counts(x, 0.5, 9), "has 6 numbers"),
        (
            lambda x, c, i: vision.proposal(x, x, x, (1,), (1,), 16, 0.5, 9, 9, 1, False),
            "do not belong to 1 boxes",
        ),
        (
            lambda x, c, i: vision.non_max_suppression(
                relay.var("x", shape=(1, 9000, 6)), relay.var("c", shape=(1,), dtype="int32"),
                relay.var("i", shape=(1, 9000), dtype="int32"),
            ),
            "9000 boxes would be decided.*top_k",
        ),
    ],
)  # fmt: skip
def test_refusals(call, message):
    x, c = relay.var("x", shape=(1, 5, 6)), relay.var("c", shape=(1,), dtype="int32")
    with pytest.raises(ModelError, match=message):
        call(x, c, relay.var("i", shape=(1, 5), dtype="int32"))
