"""What `tune` and `bench` do with a network, by calls into the rooms below.

In: the name or file of a model, a target, a database.  Out: more records; a `BenchReport`.
Read next: the rooms `search` and `relay`.
"""

from __future__ import annotations

import difflib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilewright.base.errors import ModelError
from tilewright.base.target import Target

if TYPE_CHECKING:
    from tilewright.cli.progress import Progress
    from tilewright.cli.tables import BenchReport
    from tilewright.measure.database import Database


def check_model(model: str) -> None:
    """Raises ModelError for a name that is no network and a file that is not there."""
    from tilewright.relay.testing import NETWORKS

    place = f"model {model!r}"
    if model in NETWORKS:
        return
    if not model.endswith(".onnx"):
        near = difflib.get_close_matches(model, NETWORKS, 1)
        hint = f"Did you mean {near[0]}?  " if near else ""
        raise ModelError(
            place, "there is no such network",
            f"{hint}Use one of {', '.join(NETWORKS)}, or a file ending in .onnx.",
        )  # fmt: skip
    if not Path(model).is_file():
        raise ModelError(place, "there is no such file", "Check the path.")


def load_model(model: str) -> tuple[Any, dict[str, Any]]:
    """The network as `(mod, params)`.  Raises ModelError."""
    from tilewright.relay import frontend, testing

    if model.endswith(".onnx"):
        return frontend.from_onnx(model)
    return testing.get_network(model)


def real_target(target: Target) -> Target:
    """`target` with what the device reports.  Raises TargetError or DeviceError without one."""
    from tilewright.measure.local import LocalRunner

    with LocalRunner() as runner:
        return runner.resolve(target)


def tune(
    model: str,
    target: Target,
    database: Database,
    *,
    trials: int | None,
    seconds: float | None,
    tuner: str,
    seed: int,
    progress: Progress,
) -> None:
    """Tune every task of the network until `trials` candidates or `seconds` are spent.

    Calls `progress.start(rows)` once and `progress.record(index, record)` for each result.
    """
    from tilewright.search.network import tune_network

    mod, params = load_model(model)
    tune_network(
        mod, params, target, database,
        trials=trials, seconds=seconds, tuner=tuner, seed=seed, progress=progress,
    )  # fmt: skip


def bench(model: str, target: Target, database: Database | None) -> BenchReport:
    """Time the network untuned, with the best records, and in onnxruntime and PyTorch if there."""
    from tilewright.cli.bench import bench_network

    mod, params = load_model(model)
    return bench_network(model, mod, params, target, database)
