"""The build cache: kernels that were built here before are read, not chosen and lowered again.

In: a computation, its schedule, a target, a name.  Out: the artefact that came of them, if this
state of Tilewright's code, with this compiler, made it here before.
Read next: `schedule/default.py`, `driver/cache.py`.
"""

from __future__ import annotations

from dataclasses import asdict, replace

from tilewright.base.artifact import Artifact
from tilewright.base.errors import DeviceError
from tilewright.driver.cache import default_cache
from tilewright.driver.compilers import compiler
from tilewright.measure.signatures import code_key
from tilewright.runtime import artifact_file
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.template import all_ours, anchor_templates
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG


def load(
    dag: ComputeDAG,
    schedule: Schedule | None,
    target: Target,
    name: str,
    chained: bool | str = False,
) -> Artifact | None:
    """Read what `store` was given for them; None where it was not, or where it may be another now.

    schedule: None is the default one
    chained:  as of `driver.build.generate_source`
    """
    key = _key(dag, schedule, target, name, chained)
    data = None if key is None else default_cache().kept(key)
    if data is None:
        return None
    try:
        found = artifact_file.from_bytes(data)
    except DeviceError:
        return None
    return replace(found, meta={**found.meta, "cached": True})


def store(
    artifact: Artifact, dag: ComputeDAG, schedule: Schedule | None, target: Target, name: str,
    chained: bool | str = False,
) -> None:  # fmt: skip
    """Keep what a schedule led to.  Raises TargetError without the compiler."""
    key = _key(dag, schedule, target, name, chained)
    if key is not None:
        default_cache().keep(key, artifact_file.to_bytes(artifact))


def _key(
    dag: ComputeDAG, schedule: Schedule | None, target: Target, name: str, chained: bool | str
) -> str | None:
    """Of all that the artefact depends on; None where the default schedule may come of a template
    of the user's own, whose code we do not know."""
    if schedule is None and not all_ours(anchor_templates(dag, target)):
        return None
    steps = None if schedule is None else schedule.to_json()
    return code_key(
        "built", dag.hash, steps, str(target), target.fingerprint, asdict(target.limits),
        compiler(target).identity(target), name, chained,
    )  # fmt: skip
