"""`verify`: does an artefact compute what a DAG means?  On this device, in this process.

In: a DAG, an artefact of any schedule of it, a device.  Out: a `TrialResult`.  What may crash or
hang is given to workers with a deadline instead: `local.py`.  Read next: `te/cases.py`.
"""

from __future__ import annotations

from tilewright.base.artifact import Artifact
from tilewright.runtime.device import Device
from tilewright.runtime.trial import TrialResult, trial
from tilewright.te.cases import cases
from tilewright.te.dag import ComputeDAG


def verify(
    dag: ComputeDAG, artifact: Artifact, device: Device, *, seed: int = 0, repeat: int = 1
) -> TrialResult:
    """Compare with the reference on all cases of `dag`, then time `repeat` single runs.

    `error` of the result is None where it is right.  seed: of the inputs.
    Raises ExpressionError for a computation that reads out of bounds.
    """
    timed, *also = cases(dag, seed)
    return trial(
        artifact, device, timed.inputs, timed.expected, timed.tolerance, also=also,
        number=1, repeat=repeat, race=False,
    )  # fmt: skip
