"""Every step: the rewrite in its docstring is what it does; its golden loop nests; its spelling."""

from __future__ import annotations

import inspect
import re
import textwrap
from dataclasses import MISSING, fields
from pathlib import Path
from random import Random

import pytest

from schedule.drawing import draw_schedule
from schedule.step_cases import CASES, Case, nest, prepared, run
from strategies import matmul
from tilewright import te
from tilewright.base.errors import ScheduleError
from tilewright.schedule import steps as S
from tilewright.schedule.schedule import Schedule
from tilewright.schedule.steps.names import identifier

GOLDEN = Path(__file__).parent / "golden"
BLOCK = re.compile(r"^rewrite:  (?P<call>.*)\n(?P<text>(?:    .*\n)*)(?=\w+:)", re.MULTILINE)


def test_every_step_has_cases() -> None:
    assert set(CASES) == set(S.STEPS.values())


def test_every_step_is_drawn_at_random_and_stands_in_the_page() -> None:
    # one takes another back, some have drawings of their own: tests/lowering/test_fragments.py,
    # test_folds.py, test_bulk.py, test_joins.py
    dag, drawn = matmul(5, 7, 6, epilogue="bias_relu"), {S.ComputeRoot, S.Tensorize, S.BulkCopy}
    drawn |= {S.AccumulateAt, S.DivideLast, S.SplitSoftmax, S.Widen, S.Apart, S.Join}
    drawn |= {S.SumGroups, S.Digits}
    for seed in range(40):
        drawn |= {type(s) for s in draw_schedule(dag, Random(seed), gpu=seed % 2 > 0).steps}
    assert drawn == set(S.STEPS.values())
    page = (Path(__file__).parents[2] / "docs" / "schedules.md").read_text()
    called = (*(verb for verb in S.STEPS if verb != "annotate"), *S.ANNOTATIONS)
    assert [verb for verb in called if f"`{verb}`" not in page] == []


def rewrite(case: Case) -> str:
    s = prepared(case)
    before = nest(s)
    run(s, case.step)
    return f"{before}\n->\n{nest(s)}"


def shown(case: Case) -> str:
    """The block of a docstring."""
    return f"rewrite:  {case.step}\n" + textwrap.indent(rewrite(case), "    ") + "\n"


@pytest.mark.parametrize("step", CASES, ids=lambda cls: cls.__name__)
def test_the_rewrite_in_the_docstring_is_what_the_step_does(
    step: type[S.Step], update_golden: bool
) -> None:
    found = BLOCK.search(inspect.getdoc(step) or "")
    assert found, "a step says what it does in a block `rewrite:`, and when in `legal:`"
    case = next(c for c in CASES[step] if c.step == found["call"])
    if update_golden:
        file = Path(inspect.getfile(step))
        old, new = (textwrap.indent(t, "    ") for t in (found[0], shown(case)))
        file.write_text(file.read_text().replace(old, new))
    else:
        assert found[0] == shown(case)


@pytest.mark.parametrize("step", CASES, ids=lambda cls: cls.__name__)
def test_loop_nests_before_and_after(step: type[S.Step], update_golden: bool) -> None:
    parts = []
    for case in CASES[step]:
        parts.append("\n".join(f"# {line}" for line in (case.computation, *case.before, case.step)))
        try:
            parts.append(rewrite(case))
        except ScheduleError as error:
            parts.append(f"refused: {error}")
    text = "\n\n".join(parts) + "\n"
    path = GOLDEN / f"{step.verb}.txt"
    if update_golden:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    assert text == path.read_text(), f"--update-golden accepts the new text of {path.name}"


@pytest.mark.parametrize(
    "case", [c for cases in CASES.values() for c in cases], ids=lambda c: f"{c.step}"
)
def test_what_a_step_prints_and_stores_makes_it_again(case: Case) -> None:
    s = prepared(case)
    try:
        run(s, case.step)
    except ScheduleError:
        return
    step = s.steps[-1]
    assert S.step_from_json(step.to_json()) == step
    required = sum(f.default is MISSING for f in fields(step))
    assert 1 + required <= len(step.to_json()) <= 1 + len(fields(step))
    again = Schedule(s.dag)
    names = {identifier(name): op.output_tensor for op, name in s.dag.unique_names().items()}
    exec(s.to_python(), {"te": te}, {"s": again, **names})
    assert again.steps == s.steps and str(again) == str(s)
