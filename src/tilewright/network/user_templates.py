"""Implementations of operators that users registered: computations of their own.

In: the function of a group.  Out: the group with the one operator that has a template of a user's
computed by that template, if it gives the same.
Read next: `alternatives.py`, `tilewright_tvm/autotvm/topi_integration.py`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Call, Function, TensorType, Type, post_order
from tilewright.graph.op import Op, Pattern
from tilewright.network.alternatives import Alternative
from tilewright.network.computation import Instead, compute_dag
from tilewright.schedule.template import RegisteredAnchor, registered_computations
from tilewright.schedule.workload import TENSOR
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate_with_tolerance, random_inputs
from tilewright.te.tensor import Tensor

logger = logging.getLogger("autotvm")
_SAME: dict[tuple[str, str, str], bool] = {}  # template, computations: compared, and equal


def registered(
    function: Function, constant: Sequence[bool], target: Target
) -> Iterator[Alternative]:
    """Give the group with its anchor computed by each template of a user's that is for it.

    Raises ModelError for a template that computes something else.
    """
    templates = registered_computations(target)
    calls = [n for n in post_order(function.body) if isinstance(n, Call)]
    anchors = [n for n in calls if isinstance(n.op, Op) and n.op.pattern is Pattern.ANCHOR]
    if not templates or len(anchors) != 1:
        return
    own = compute_dag(function, constant)
    workloads = [op.attrs["workload"] for op in own.compute_ops if "workload" in op.attrs]
    workload: list[Any] = workloads[0] if workloads else [""]
    for template in templates:
        if template.name.partition(".")[0] != workload[0]:
            continue
        instead = Instead(anchors[0], {}, _Lower(template, tuple(workload[1:])))
        try:
            other = compute_dag(function, constant, instead)
        except Exception as error:  # the computation is the user's
            logger.warning("template %s is not for %s: %s", template.name, workload, error)
            continue
        if other.hash != own.hash:
            _check(template.name, own, other)
            yield Alternative(other, {})


@dataclass(frozen=True)
class _Lower:
    """What a template computes of a call's tensors, in the place of those of the workload."""

    template: RegisteredAnchor
    args: tuple[Any, ...]

    def __call__(self, tensors: Sequence[Any], result: Type) -> Tensor:
        left = iter(tensors)
        given = [next(left) if _is_tensor(a) else a for a in self.args]
        assert self.template.compute is not None
        made = self.template.compute(*given)
        if TensorType(made.shape, made.dtype) != result:
            raise ModelError(
                f"template {self.template.name!r}",
                f"it gives {list(made.shape)} {made.dtype}, the operator {result}",
                "Compute what the operator does.",
            )  # fmt: skip
        return made


def _is_tensor(argument: Any) -> bool:
    return isinstance(argument, (list, tuple)) and len(argument) == 3 and argument[0] == TENSOR


def _check(name: str, own: ComputeDAG, other: ComputeDAG) -> None:
    """Compare what both compute of random inputs."""
    key = name, own.hash, other.hash
    if key not in _SAME:
        inputs = random_inputs(own, 0)
        expected, tolerance = evaluate_with_tolerance(own, inputs)
        found, _ = evaluate_with_tolerance(other, inputs)
        pairs = zip(expected, found, tolerance, strict=True)
        _SAME[key] = all(bool(np.all(np.abs(e - f) <= 2 * t)) for e, f, t in pairs)
    if not _SAME[key]:
        raise ModelError(
            f"template {name!r}", "it computes something else than its operator",
            "Compute what the operator does, or register it under another operator's name.",
        )  # fmt: skip
