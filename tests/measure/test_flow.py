"""The state machine of measuring, without threads or devices: any order of events, one outcome."""

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.measure.test_pipeline import TASK, named
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


def play(choose, fatal=()):
    """Run all jobs, `choose(n)` saying which of n possible events happens next."""
    heard = []
    flow = Flow(lambda record, dag: heard.append(record.trial))
    jobs = [named(letter, 1.0, k) for k, letter in enumerate(PROGRAMS)]
    slots = [flow.add(job, False) for job in jobs]
    building, trying, tries, lost = [], [], 0, set(fatal)
    while any(slot.record is None for slot in slots):
        while len(building) < 3 and (slot := flow.to_build()) is not None:
            building.append(slot)
        if not flow.doubtful and (slot := flow.to_try()) is not None:
            trying.append(slot)
        if flow.doubtful and not trying:
            flow.settle(device_was_gone=True)
            continue
        if not (building or trying):
            assert all(s.record is not None for s in slots), "nothing can happen any more"
            continue
        slot = [*building, *trying][choose(len(building) + len(trying))]
        if slot in building:
            building.remove(slot)
            flow.built(slot, built(slot.job))
            continue
        trying.remove(slot)
        tries += 1
        gone = slot.number in lost
        lost.discard(slot.number)
        flow.tried(slot, RunResult(error="run", fatal=True) if gone else tried(slot.job))
    return slots, heard, tries, flow


@given(st.lists(st.integers(0, 1000), min_size=60, max_size=60))
@settings(max_examples=30, deadline=None)
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
@settings(max_examples=30, deadline=None)
def test_a_device_lost_under_a_candidate_costs_it_nothing(order, victim):
    turns = iter(order)
    slots, heard, _, _ = play(lambda n: next(turns, 0) % n, fatal=(victim,))
    assert sorted(heard) == list(range(len(PROGRAMS)))
    assert [s.record.result.error for s in slots] == [
        "compile" if x == "d" else None for x in PROGRAMS
    ]
