"""The learned part of a prediction: trees on log(measured / machine model).

In: features, the machine model's seconds and measured seconds, as arrays.  Out: predicted log
seconds.  One model may serve all tasks of a run.  Read next: `proposers.py`.
"""

from __future__ import annotations

import os
from collections import deque
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from importlib import import_module
from itertools import repeat
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import numpy.typing as npt

from tilewright.base.concurrency import importing
from tilewright.base.errors import ModelError
from tilewright.base.output import FileKind, beginning, write
from tilewright.cost.features import FEATURES, PLAIN, Matrix, Vector, with_atoms
from tilewright.knowledge.trees import Trees
from tilewright.search.propose.losses import Loss, relevance
from tilewright.search.propose.prior import Prior, is_known

_MODEL = FileKind("a cost model", beginning(b'{"learner"'))

MIN_ROWS = 16  # below this the machine model alone is better
FAILED = 2.0  # a failure counts this many times slower than the slowest success of its task
RECENT = 128  # rows the reported correlation looks back on


@dataclass(frozen=True)
class Options:
    """trees, depth, rate: of the boosted trees; subsample: share of rows and columns a tree sees

    loss:    "reg": they learn log seconds; "rank", "rank-binary": the order within a task
    threads: that train; builds need the others
    """

    trees: int = 150
    depth: int = 6
    rate: float = 0.1
    subsample: float = 0.8
    seed: int = 0
    loss: Loss = "reg"
    threads: int = 1


@dataclass
class _Rows:
    """Measured rows of one task."""

    features: list[Matrix] = field(default_factory=list)
    machine: list[Vector] = field(default_factory=list)
    measured: list[Vector] = field(default_factory=list)

    def join(self) -> tuple[Matrix, Vector, Vector]:
        """The three as one array each, instead of one for each result; machine seconds above 0."""
        features, machine = np.concatenate(self.features), np.concatenate(self.machine)
        measured = np.concatenate(self.measured)
        self.features, self.machine, self.measured = [features], [machine], [measured]
        return features, np.maximum(machine, 1e-12), measured


@dataclass(frozen=True)
class Lesson:
    """What trees are trained on.  groups: rows of each task, one after the other

    margin: what is predicted without them, where they learn an order
    """

    features: Matrix
    labels: Vector
    weights: Vector
    groups: list[int]
    margin: Vector


def begin_import() -> None:
    """Begin to import what trees are made by, which takes up to two seconds, in a thread."""
    Thread(target=_import, name="import", daemon=True).start()


def _import() -> None:
    with suppress(ImportError), importing:  # who needs it tells why it is missing
        import_module("xgboost")


class CostModel:
    """Predicts seconds; learns from what was measured.  With a ranking loss what it predicts is an
    order: of no meaning but beside other candidates of the task.

    The correlation it reports is between predictions made before a row was measured and what was
    measured then, so no row is ever judged by a model that has seen it.
    """

    def __init__(self, options: Options | None = None) -> None:
        self.options = options or Options()
        self._tasks: dict[str, _Rows] = {}
        self._added: list[tuple[str, Matrix, Vector, Vector]] = []
        self._rows = 0
        self._booster: Any = None
        self._prior: Prior | None = None
        self._pending: Future[Any] | None = None
        self._pool: ThreadPoolExecutor | None = None
        self._judged: deque[tuple[str, float, float]] = deque(maxlen=RECENT)

    def __len__(self) -> int:
        """Rows measured so far."""
        return self._rows

    @property
    def trained(self) -> bool:
        return self._booster is not None or self._prior is not None

    @property
    def booster(self) -> Any:
        """The trees that this model learned itself; None before the first fit."""
        return self._booster

    def begin_with(self, trees: Trees | Prior) -> None:
        """Let trees that were trained elsewhere refine the machine model; this model learns what is
        left.  Raises ModelError for trees on features that rows do not have, and where rows are
        known already."""
        if not is_known(trees.trees if isinstance(trees, Prior) else trees):
            raise ModelError(
                "cost model", "the trees to begin with are of a version with other features",
                "Publish them again with this version.",
            )  # fmt: skip
        if self._rows:
            raise ModelError(
                "cost model", "it has rows, which trees to begin with would change",
                "Give the trees to a new model.",
            )  # fmt: skip
        self._prior = trees if isinstance(trees, Prior) else Prior(trees)

    @property
    def state(self) -> tuple[object, object]:
        """What `base` and `learned` follow: they change only where a part of it is another one."""
        return self._prior, self._booster

    def _refined(self, features: Matrix, machine: Vector) -> Vector:
        """The machine model's seconds, as the trees to begin with correct them."""
        if self._prior is None or not len(features):
            return machine
        return machine * np.exp(self._prior.predict(features))

    def predict(self, features: Matrix, machine: Vector) -> Vector:
        """log of the predicted seconds, [n]; before the first fit those of the machine model."""
        return self.base(features, machine) + self.learned(features)

    def base(self, features: Matrix, machine: Vector) -> Vector:
        """log of the seconds that are predicted without what was measured here, [n]."""
        return np.asarray(np.log(np.maximum(self._refined(features, machine), 1e-12)))

    def learned(self, features: Matrix) -> Vector:
        """What the trees of this model add to `base`, [n]: 0 before the first fit."""
        if self._booster is None or not len(features):
            return np.zeros(len(features))
        known = _columns(features, self._booster.num_features())
        found = self._booster.inplace_predict(known, predict_type="margin")
        return np.asarray(found, np.float64) * (1 if self.options.loss == "reg" else -1)

    def add(self, task: str, features: Matrix, machine: Vector, measured: Vector) -> None:
        """Add measured rows; infinite seconds mean that the candidate failed."""
        if len(features):
            self._added.append((task, features, machine, measured))
            self._rows += len(features)

    def _take_in(self) -> None:
        """Judge what was added by the model that was in force then, all at once: a call of the
        trees takes a millisecond whatever it is asked."""
        added, self._added = self._added, []
        if not added:
            return
        rows, machine = (np.concatenate([each[k] for each in added]) for k in (1, 2))
        refined = self._refined(rows, machine)
        predicted = self.predict(rows, machine) if self.trained else None
        begin = 0
        for task, features, _, measured in added:
            mine = slice(begin, begin := begin + len(features))
            if predicted is not None:
                told = zip(repeat(task), predicted[mine].tolist(), measured.tolist(), strict=False)
                self._judged.extend(told)
            known = self._tasks.setdefault(task, _Rows())
            known.features.append(features)
            known.machine.append(refined[mine])
            known.measured.append(measured)

    def forget(self, task: str) -> None:
        """Drop the rows of a task, on all devices, before they are told again."""
        self._take_in()
        for key in [k for k in self._tasks if k == task or k.startswith(f"{task} ")]:
            self._rows -= sum(map(len, self._tasks.pop(key).measured))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trees; rows are not kept.

        Raises ModelError where there are none yet, where the file cannot be written, and where one
        of another kind is there.
        """
        if self._booster is None:
            raise ModelError(
                f"cost model {os.fspath(path)!r}", f"there is nothing to save: it has {self._rows} "
                f"rows, and learns from {MIN_ROWS} on", "Measure some candidates first.",
            )  # fmt: skip
        self._booster.set_attr(loss=self.options.loss)
        data = bytes(self._booster.save_raw("json"))
        write(path, data, _MODEL, f"cost model {os.fspath(path)!r}", ModelError)

    def load(self, path: str | os.PathLike[str]) -> None:
        """Use the trees that `save` wrote until the next fit.  Raises ModelError."""
        import xgboost

        booster = xgboost.Booster()
        try:
            data = Path(path).read_bytes()
            if not data:  # of which xgboost would end the process
                raise ValueError("empty")
            booster.load_model(bytearray(data))
            fits = booster.num_features() in (len(PLAIN), len(FEATURES))
        except (OSError, ValueError, xgboost.core.XGBoostError) as error:
            why = error.strerror if isinstance(error, OSError) else "these are no trees"
            raise ModelError(
                f"cost model {os.fspath(path)!r}", f"it cannot be read ({why})",
                "Give a file that save wrote.",
            ) from None  # fmt: skip
        loss = booster.attr("loss") or "reg"
        if not fits or loss != self.options.loss:
            why = "it is of a version with other features" if not fits else f"its loss is {loss!r}"
            raise ModelError(
                f"cost model {os.fspath(path)!r}", why, "Train it again from a log."
            )  # fmt: skip
        self._take_in()
        self._booster = booster

    def fit(self) -> None:
        """Learn from all rows so far."""
        self.start_fit(background=False)
        self.finish_fit()

    def start_fit(self, *, background: bool = True) -> None:
        """Begin to learn from the rows known now; `finish_fit` puts the new model in force."""
        self.finish_fit()
        if self._rows < MIN_ROWS:
            return
        lesson = self._lesson()
        if lesson is None:
            return
        if not background:
            self._pending = Future()
            self._pending.set_result(train(lesson, self.options))
            return
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="cost-model")
        self._pending = self._pool.submit(train, lesson, self.options)

    def finish_fit(self) -> bool:
        """Wait for the fit that was started, if any; returns whether there was one."""
        if self._pending is None:
            return False
        self._take_in()
        self._booster = self._pending.result()
        self._pending = None
        return True

    def close(self) -> None:
        if self._pool is not None:
            self._pool.shutdown(cancel_futures=True)
            self._pool = None

    def correlation(self) -> float | None:
        """Rank correlation within tasks, over rows that were predicted before they were measured.

        None with fewer than 8 such rows of a task.
        """
        self._take_in()
        if not self._judged:
            return None
        groups, predicted, seen = map(np.array, zip(*self._judged, strict=True))
        total, weight = 0.0, 0
        for name in dict.fromkeys(groups.tolist()):
            mine = (groups == name) & np.isfinite(seen)
            count = int(mine.sum())
            if count >= 8:
                total += rank_correlation(predicted[mine], seen[mine]) * count
                weight += count
        return total / weight if weight else None

    def _lesson(self) -> Lesson | None:
        """All rows; None where there is no order to learn from."""
        self._take_in()
        parts = [_part(rows, self.options.loss) for rows in self._tasks.values()]
        told = [part for part in parts if part is not None]
        if not told:
            return None
        features, labels, weights, margin = map(np.concatenate, zip(*told, strict=True))
        if not with_atoms(features).any():  # what is 0 throughout would only blur what trees draw
            features = _columns(features, len(PLAIN))
        return Lesson(features, labels, weights, [len(part[0]) for part in told], margin)


def _columns(rows: Matrix, count: int) -> Matrix:
    """The first ones, as many as a model knows."""
    return rows if rows.shape[1] == count else np.ascontiguousarray(rows[:, :count])


def _part(rows: _Rows, loss: Loss) -> tuple[Matrix, Vector, Vector, Vector] | None:
    """Features, labels, weights and margins of a task; the fast candidates count most.

    None where an order is to be learned, and there are no two valid results of different speed.
    """
    features, machine, measured = rows.join()
    good = np.isfinite(measured)
    slowest = measured[good].max() if good.any() else float(machine.max())
    best = measured[good].min() if good.any() else slowest
    seconds = np.where(good, measured, np.maximum(slowest, machine) * FAILED)
    weights = np.clip((best / seconds) ** 0.5, 0.15, 1.0)
    margin = -np.log(machine)
    if loss == "reg":
        return features, np.clip(np.log(seconds) + margin, -8, 8), weights, margin
    if best == slowest:
        return None
    return features, relevance(loss, np.where(good, best / seconds, 0.0)), weights, margin


def train(lesson: Lesson, options: Options) -> Any:
    """A booster; the same for the same arguments."""
    import xgboost

    data = xgboost.DMatrix(lesson.features, label=lesson.labels, nthread=options.threads)
    parameters = {
        "max_depth": options.depth, "eta": options.rate, "subsample": options.subsample,
        "colsample_bytree": options.subsample, "min_child_weight": 0.5, "lambda": 1.0,
        "tree_method": "hist", "max_bin": 64, "nthread": options.threads, "seed": options.seed,
        "verbosity": 0,
    }  # fmt: skip
    if options.loss == "reg":
        data.set_weight(lesson.weights)
        mean = float(np.average(lesson.labels, weights=lesson.weights))
        parameters |= {"objective": "reg:squarederror", "base_score": mean}
    else:
        data.set_group(lesson.groups)
        data.set_base_margin(lesson.margin)
        parameters |= {
            "objective": "rank:pairwise", "lambdarank_pair_method": "mean", "base_score": 0.0,
        }  # fmt: skip
    return xgboost.train(parameters, data, options.trees)


def rank_correlation(a: npt.ArrayLike, b: npt.ArrayLike) -> float:
    """Spearman's, with ties sharing their mean rank; 0 where one side is constant."""
    x, y = _ranks(np.asarray(a)), _ranks(np.asarray(b))
    x, y = x - x.mean(), y - y.mean()
    scale = float(np.sqrt((x @ x) * (y @ y)))
    return float(x @ y) / scale if scale > 0 else 0.0


def _ranks(values: npt.NDArray[Any]) -> Vector:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return np.asarray((last - (counts - 1) / 2)[inverse], np.float64)
