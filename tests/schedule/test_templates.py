"""Which templates there are does not depend on what happens to be imported, nor on its order."""

from __future__ import annotations

import subprocess
import sys

import pytest

LOOK = """
from tilewright import te
from tilewright.schedule.task import task_of_dag
from tilewright.schedule.template import anchor_template

mine = lambda cfg, anchored: None
if {first}:
    mine = anchor_template("mine", kinds=["llvm"], tags=["dense"])(mine)
a, b = te.placeholder((64, 32)), te.placeholder((48, 32), name="B")
k = te.reduce_axis((0, 32), "k")
attrs = {{"workload": ("dense", None, None)}}
c = te.compute((64, 48), lambda i, j: te.sum(a[i, k] * b[j, k], axis=k), tag="dense", attrs=attrs)
dag = te.ComputeDAG([a, b, c])
if not {first}:
    task_of_dag(dag, "llvm")
    anchor_template("mine", kinds=["llvm"], tags=["dense"])(mine)
print([sketch.origin for sketch in task_of_dag(dag, "llvm").sketches])
"""


def looked_up(first: bool) -> str:
    """What a new interpreter finds, which imports no operators itself; first: a template of the
    user is registered before anything is looked up."""
    command = [sys.executable, "-c", LOOK.format(first=first)]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_built_in_templates_come_first_whoever_registers_when() -> None:
    found = looked_up(first=True)
    assert found == "['template:dense.llvm', 'template:mine']\n"
    assert looked_up(first=False) == found
