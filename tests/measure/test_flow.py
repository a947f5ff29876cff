"""The state machine of measuring, without threads or devices: any order of events, one outcome."""

from hypothesis import given
from hypothesis import strategies as st

from tests.measure.test_pipeline import TASK, named
from tests.tiers import examples
from tilewright.base.artifact import Artifact, Source
from tilewright.measure.flow import Flow
from tilewright.measure.jobs import Built, RunResult

PROGRAMS = "aabcdbca"  # job k has the program of this letter; "d" cannot be built


def built(job):
    letter = job.decisions["x"]
    if letter == "d":
        return Built(error="compile", message="no")
    return Built(Artifact(Source("llvm", letter, "f", (), ()), b""))


def tried(job):
    return RunResult(costs=(1.0 + ord(job.decisions["x"]),), verified=True)


def play(choose, fatal=(), builds=None, trials=None, trouble=False):
    """Run all jobs, `choose(n)` saying which of n possible events happens next.

    fatal: jobs whose first trial loses the device
    builds, trials: by job, the causes of the failures that it has before it succeeds
    trouble: controls fail before one works
    """
    builds, trials = ({k: list(v) for k, v in (f or {}).items()} for f in (builds, trials))
    heard = []
    flow = Flow(lambda record, dag: heard.append(record.trial))
    jobs = [named(letter, 1.0, k) for k, letter in enumerate(PROGRAMS)]
    slots = [flow.add(job, False) for job in jobs]
    building, trying, tries, lost = [], [], 0, set(fatal)
    while any(slot.record is None for slot in slots):
        while len(building) < 3 and (slot := flow.to_build()) is not None:
            building.append(slot)
            assert not flow.doubtful
            assert len(building) == 1 or not any(s.failures for s in building)  # alone
        if (slot := flow.to_try()) is not None:
            trying.append(slot)
            assert not flow.doubtful
        if flow.doubtful and not (trying or building):
            flow.settle(trouble=bool(fatal) or trouble)
            continue
        if not (building or trying):
            assert all(s.record is not None for s in slots), "nothing can happen any more"
            continue
        slot = [*building, *trying][choose(len(building) + len(trying))]
        if slot in building:
            building.remove(slot)
            if causes := builds.get(slot.number):
                flow.built(slot, Built(None, "compile", "?", cause=causes.pop(0)))
            else:
                flow.built(slot, built(slot.job))
            continue
        trying.remove(slot)
        if causes := trials.get(slot.number):
            flow.tried(slot, RunResult(error="run", message="?", cause=causes.pop(0)))
            continue
        tries += 1
        gone = slot.number in lost
        lost.discard(slot.number)
        flow.tried(slot, RunResult(error="run", fatal=True) if gone else tried(slot.job))
    return slots, heard, tries, flow


@given(st.lists(st.integers(0, 1000), min_size=60, max_size=60))
@examples(30)
def test_any_order_of_events_gives_the_same_records(order):
    turns = iter(order)
    slots, heard, tries, flow = play(lambda n: next(turns, 0) % n)
    assert sorted(heard) == list(range(len(PROGRAMS))) and not flow.doubtful
    assert [s.record.result.error for s in slots] == [
        "compile" if x == "d" else None for x in PROGRAMS
    ]
    costs = [s.record.result.costs for s in slots if s.record.result.ok]
    assert costs == [tried(s.job).costs for s in slots if s.record.result.ok]
    assert tries == len(set(PROGRAMS) - {"d"})  # equal programs run once
    assert flow.incumbents[TASK.key].job.decisions["x"] == "a"
    assert all(s.built.artifact is None for s in slots)  # nothing is kept that is not needed


@given(st.lists(st.integers(0, 1000), min_size=60, max_size=60), st.integers(0, 7))
@examples(30)
def test_a_device_lost_under_a_candidate_costs_it_nothing(order, victim):
    turns = iter(order)
    slots, heard, _, _ = play(lambda n: next(turns, 0) % n, fatal=(victim,))
    assert sorted(heard) == list(range(len(PROGRAMS)))
    assert [s.record.result.error for s in slots] == [
        "compile" if x == "d" else None for x in PROGRAMS
    ]


ENOUGH = {"candidate": 1, "unclear": 2, "killed": 4}  # failures until a candidate is to blame
order_of_events = st.lists(st.integers(0, 1000), min_size=60, max_size=60)


@given(
    order_of_events, st.sampled_from(["builds", "trials"]), st.integers(0, 7),
    st.sampled_from(["unclear", "killed", "machine"]), st.integers(1, 6), st.booleans(),
)  # fmt: skip
@examples(40)
def test_a_candidate_is_blamed_after_controls_that_worked(
    order, where, victim, cause, times, trouble
):
    turns = iter(order)
    failures = {where: {victim: [cause] * times}}
    slots, heard, _, flow = play(lambda n: next(turns, 0) % n, trouble=trouble, **failures)
    assert sorted(heard) == list(range(len(PROGRAMS))) and not flow.doubtful
    guilty = cause != "machine" and not trouble and times >= ENOUGH[cause]
    for slot in slots:
        letter, error = PROGRAMS[slot.number], slot.record.result.error
        if letter == "d" or (slot.number == victim and where == "builds" and guilty):
            assert error == "compile"
        elif letter != PROGRAMS[victim] or not guilty or where == "builds":
            assert error is None
    if where == "trials" and guilty and PROGRAMS[victim] != "d":
        of_the_program = [s for s in slots if PROGRAMS[s.number] == PROGRAMS[victim]]
        # it was tried first of its program, and its twins share the blame; or another was, and it
        # never ran
        errors = {s.record.result.error for s in of_the_program}
        assert errors in ({"run"}, {None})


def test_a_build_that_failed_once_is_not_held_against_the_trial():
    once = {k: ["unclear"] for k in range(8)}
    slots, _, _, _ = play(lambda n: 0, builds=once, trials=once)
    assert [s.record.result.error for s in slots] == [
        "compile" if x == "d" else None for x in PROGRAMS
    ]


@given(order_of_events, st.integers(0, 7))
@examples(20)
def test_what_is_certain_needs_no_control(order, victim):
    turns = iter(order)
    slots, _, _, _ = play(lambda n: next(turns, 0) % n, builds={victim: ["candidate"]})
    assert slots[victim].record.result.error == "compile" and slots[victim].failures == 0


def test_what_is_forgotten_in_doubt_is_no_record():
    heard = []
    flow = Flow(lambda record, dag: heard.append(record))
    flow.add(named("a", 1.0, 0), False)
    slot = flow.to_build()
    flow.forget()
    flow.built(slot, Built(None, "timeout", "?", cause="unclear"))
    assert heard == [] and not flow.doubtful and flow.building == 0
