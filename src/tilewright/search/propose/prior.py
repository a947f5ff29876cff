"""Trees that were trained before: taken out of a cost model, and put in front of another.

In: a booster, or `knowledge.Trees`.  Out: the other.  What comes from a file is data that was
checked; the booster is made here of it, so that no file of a stranger reaches xgboost.
Read next: `cost_model.py`, `knowledge/trees.py`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from contextlib import suppress
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.base.concurrency import cached_property
from tilewright.cost.features import ATOM_COLUMNS, FEATURES, PLAIN, Matrix, Vector, with_atoms
from tilewright.knowledge.trees import Trees

_LEAF = -1


def trees_of(booster: Any) -> Trees:
    """The trees of a booster on the first of `FEATURES`, as many as it has."""
    learner = json.loads(bytes(booster.save_raw("json")))["learner"]
    parts, begin = [], 0
    for tree in learner["gradient_booster"]["model"]["trees"]:
        left, right = (np.array(tree[f"{side}_children"], np.int64) for side in ("left", "right"))
        leaf = left == _LEAF
        order = _parents_first(~leaf, left, right)
        place = np.empty(len(left), np.int64)
        place[order] = begin + np.arange(len(order))
        said = np.array(tree["split_conditions"], np.float32)
        parts.append(
            (
                np.where(leaf, _LEAF, np.array(tree["split_indices"]))[order],
                np.where(leaf, 0, said)[order],
                np.where(leaf, 0, place[left])[order],
                np.where(leaf, 0, place[right])[order],
                np.where(leaf, said, 0)[order],
            )
        )
        begin += len(order)
    sizes = [len(p[0]) for p in parts]
    arrays = (np.concatenate(column) for column in zip(*parts, strict=True))
    base = float(str(learner["learner_model_param"]["base_score"]).strip("[]"))
    roots = np.cumsum([0, *sizes[:-1]])
    feature, threshold, left, right, value = arrays
    known = FEATURES[: booster.num_features()]
    return Trees(feature, threshold, left, right, value, roots, base, known)


def _parents_first(
    inner: np.ndarray, left: np.ndarray, right: np.ndarray, root: int = 0
) -> list[int]:
    """The nodes that are reached from a root, each behind its parent, children side by side."""
    order = [root]
    for node in order:  # which grows
        if inner[node]:
            order += [int(left[node]), int(right[node])]
    return order


def by_kind(plain: Trees | None, atoms: Trees | None) -> Trees:
    """Trees for all rows: `plain` tell of those without matrix instructions, `atoms` of the others.

    rewrite:  a tree of plain   ->   log_atoms < 0.5 ? tree : 0       (and the other way round)
    """
    parts = [
        part
        for trees, gate in ((plain, True), (atoms, False))
        for part in (_gated(trees, gate) if trees is not None else ())
    ]
    sizes, begin = [len(part[0]) for part in parts], 0
    moved = []
    for size, (feature, threshold, left, right, value) in zip(sizes, parts, strict=True):
        inner = feature != _LEAF
        moved.append(
            (
                feature,
                threshold,
                *(np.where(inner, side + begin, 0) for side in (left, right)),
                value,
            )
        )
        begin += size
    arrays = (np.concatenate(column) for column in zip(*moved, strict=True))
    feature, threshold, left, right, value = arrays
    roots = np.cumsum([0, *sizes[:-1]])
    return Trees(feature, threshold, left, right, value, roots, 0.0, FEATURES)


def both_of(first: Trees, second: Trees) -> Trees:
    """Trees that say the sum of what two say."""
    begin, roots = len(first.feature), len(first.roots)
    joined = {
        name: np.concatenate([getattr(first, name), getattr(second, name)])
        for name in ("threshold", "value", "feature", "left", "right", "roots")
    }
    for trees, mine in ((first, slice(0, begin)), (second, slice(begin, None))):
        place = np.array([FEATURES.index(name) for name in trees.features])
        inner = trees.feature != _LEAF
        joined["feature"][mine] = np.where(inner, place[np.where(inner, trees.feature, 0)], _LEAF)
    inner = second.feature != _LEAF
    for side in ("left", "right"):
        joined[side][begin:] += np.where(inner, begin, 0).astype(joined[side].dtype)
    joined["roots"][roots:] += begin
    return Trees(**joined, base=first.base + second.base, features=_all_of(first, second))


def _all_of(*every: Trees) -> tuple[str, ...]:
    """The columns of all, as a beginning of FEATURES."""
    return FEATURES if any(map(knows_atoms, every)) else PLAIN


_Nodes = tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray, np.ndarray]


def _gated(trees: Trees, below: bool) -> Iterator[_Nodes]:
    """Each tree, and one of what all are added to, behind a node that asks for matrix instructions;
    children are counted from the first node of their tree.

    below: whether the tree tells of rows without them
    """
    place = np.array([FEATURES.index(name) for name in trees.features])
    asked = FEATURES.index("log_atoms")
    leaf = np.array([_LEAF]), np.zeros(1), np.zeros(1, int), np.zeros(1, int)
    ends = [*trees.roots[1:].tolist(), len(trees.feature)]
    told: list[_Nodes] = [(*leaf, np.array([trees.base]))]
    for begin, end in zip(trees.roots.tolist(), ends, strict=True):
        mine = slice(begin, end)
        feature = trees.feature[mine]
        inner = feature != _LEAF
        left, right = (np.where(inner, s[mine] - begin, 0) for s in (trees.left, trees.right))
        asks = np.where(inner, place[np.where(inner, feature, 0)], _LEAF)
        told.append((asks, trees.threshold[mine], left, right, trees.value[mine]))
    for feature, threshold, left, right, value in told:
        inner = feature != _LEAF
        # the node that asks, a leaf of 0, the tree
        yield (
            np.append([asked, _LEAF], feature),
            np.append([0.5, 0.0], threshold),
            np.append([2 if below else 1, 0], np.where(inner, left + 2, 0)),
            np.append([1 if below else 2, 0], np.where(inner, right + 2, 0)),
            np.append([0.0, 0.0], value),
        )


def booster_of(trees: Trees) -> Any:
    """A booster that predicts what `trees` say, for rows of `trees.features`."""
    import xgboost

    width = len(trees.features)
    some = xgboost.DMatrix(np.zeros((2, width), np.float32), label=np.zeros(2), nthread=1)
    alone = {"max_depth": 1, "nthread": 1}
    form = json.loads(bytes(xgboost.train(alone, some, 1).save_raw("json")))
    learner = form["learner"]
    model = learner["gradient_booster"]["model"]
    blank, count = model["trees"][0], len(trees.roots)
    model["trees"] = [_tree(trees, blank, k, begin) for k, begin in enumerate(trees.roots.tolist())]
    model["tree_info"] = [0] * count
    model["iteration_indptr"] = list(range(count + 1))
    model["gbtree_model_param"]["num_trees"] = str(count)
    held = learner["learner_model_param"]
    held["base_score"] = f"[{trees.base}]" if held["base_score"][:1] == "[" else str(trees.base)
    made = xgboost.Booster({"nthread": 1})
    made.load_model(bytearray(json.dumps(form).encode()))
    return made


def _tree(trees: Trees, blank: dict[str, Any], number: int, root: int) -> dict[str, Any]:
    """One tree in the form that xgboost reads; what it does not predict by is empty.

    Its nodes are numbered anew: xgboost takes the node behind a left child for the right one.
    """
    order = _parents_first(trees.feature != _LEAF, trees.left, trees.right, root)
    inner = trees.feature[order] != _LEAF
    parents = [2**31 - 1, *np.repeat(np.flatnonzero(inner), 2).tolist()]
    left = np.where(inner, 2 * np.cumsum(inner) - 1, _LEAF)
    right = np.where(inner, left + 1, _LEAF)
    nodes = len(order)
    return blank | {
        "id": number,
        "left_children": left.tolist(),
        "right_children": right.tolist(),
        "parents": parents,
        "split_indices": np.where(inner, trees.feature[order], 0).tolist(),
        "split_conditions": np.where(inner, trees.threshold[order], trees.value[order]).tolist(),
        "base_weights": np.where(inner, 0, trees.value[order]).tolist(),
        "default_left": [0] * nodes,
        "loss_changes": [0.0] * nodes,
        "split_type": [0] * nodes,
        "sum_hessian": [1.0] * nodes,
        "tree_param": blank["tree_param"] | {"num_nodes": str(nodes)},
    }


def import_alone() -> None:
    """Import xgboost without scikit-learn, to which it offers its classes if that is there: in a
    process of ours, where nobody asks for them, that saves two seconds of importing."""
    if "xgboost" in sys.modules or "sklearn" in sys.modules:
        return
    sys.modules["sklearn"] = None  # type: ignore[assignment]  # an import of it fails
    try:
        with suppress(ImportError):  # who needs it tells why it is missing
            import_module("xgboost")
    finally:
        del sys.modules["sklearn"]


class Prior:
    """Trees that were trained elsewhere, for rows of `FEATURES`.

    They look at the columns that they name, wherever these are.  Of rows with something that they
    have no columns for, such as matrix instructions, they say nothing: they saw no such kernel.
    """

    def __init__(self, trees: Trees) -> None:
        self.trees = trees
        columns = [FEATURES.index(name) for name in trees.features]
        self._columns = None if columns == list(range(len(FEATURES))) else columns
        self._knows_atoms = knows_atoms(trees)

    @cached_property
    def booster(self) -> Any:
        """Made when it is first asked for, which takes most of a second."""
        return booster_of(self.trees)

    def predict(self, rows: Matrix) -> Vector:
        """log of what measured seconds are by those of the machine model, [n]."""
        seen = rows
        if self._columns is not None:
            seen = np.ascontiguousarray(rows[:, self._columns])
        found: Vector = np.asarray(self.booster.inplace_predict(seen), np.float64)
        return found if self._knows_atoms else np.where(with_atoms(rows), 0.0, found)


def is_known(trees: Trees) -> bool:
    """Tell whether rows have all columns that the trees look at; they may have more."""
    return set(trees.features) <= set(FEATURES)


def knows_atoms(trees: Trees) -> bool:
    """Tell whether the trees saw kernels with matrix instructions."""
    return set(ATOM_COLUMNS) <= set(trees.features)


def predict(trees: Trees, rows: Matrix) -> Vector:
    """What the trees add up to, row by row: the meaning of a file, spelled out."""
    total = np.full(len(rows), trees.base)
    numbers = np.arange(len(rows))
    for root in trees.roots.tolist():
        node = np.full(len(rows), root)
        while (inner := trees.feature[node] != _LEAF).any():
            below = rows[numbers, trees.feature[node]] < trees.threshold[node]
            node = np.where(inner, np.where(below, trees.left[node], trees.right[node]), node)
        total += trees.value[node]
    return total
