"""What becomes of each trial: the state machine of a tuner, with devices that a test makes up."""

from __future__ import annotations

import random

from tilewright.farm.dispatch import LOSSES, MISSES, STRIKES, Dispatch


def dispatch(total: int) -> Dispatch:
    made = Dispatch()
    made.total = total
    return made


def test_work_is_done_in_the_order_in_which_it_came():
    made = dispatch(2)
    for work in "abc":
        made.add(work)
    assert made.wanted == (3, frozenset())
    assert [made.granted(d).work for d in ("x", "y")] == ["a", "b"]
    (settled,) = made.done("y", 1, failed=False)
    assert settled.ticket.work == "b" and settled.opinion.value == 1
    assert made.granted("y").work == "c"
    assert made.granted("y") is None  # it has work


def test_what_a_lost_device_was_doing_is_done_again_first():
    made = dispatch(2)
    for work in "abc":
        made.add(work)
    made.granted("x")
    assert list(made.lost("x", "killed")) == []
    assert made.granted("y").work == "a"
    assert "x is lost (killed)" in made.notices[0]


def test_work_that_loses_device_after_device_is_suspected():
    made = dispatch(9)
    made.add("a")
    for number in range(LOSSES - 1):
        made.granted(str(number))
        assert list(made.lost(str(number), "killed")) == []
    made.granted("last")
    (settled,) = made.lost("last", "killed")
    assert settled.opinion is None and "lost" in settled.why


def test_a_failure_counts_when_another_device_confirms_it():
    made = dispatch(2)
    made.add("a")
    made.granted("x")
    assert list(made.done("x", "wrong", failed=True)) == []
    assert made.wanted == (1, frozenset({"x"}))
    assert made.granted("x") is None
    made.granted("y")
    (settled,) = made.done("y", "wrong", failed=True)
    assert settled.confirmed and settled.opinion.device == "y"


def test_a_device_that_contradicts_others_is_left_out():
    made = dispatch(3)
    for number in range(STRIKES):
        made.add(number)
        made.granted("liar")
        assert list(made.done("liar", "wrong", failed=True)) == []
        made.granted("y")
        (settled,) = made.done("y", "right", failed=False)
        assert settled.opinion.value == "right" and not settled.confirmed
    assert set(made.left_out) == {"liar"} and "contradicts" in made.notices[0]
    made.add("next")
    assert made.granted("liar") is None and made.useful == 2
    made.forgive()
    assert made.granted("liar") is not None


def test_alone_a_device_is_believed():
    made = dispatch(1)
    made.add("a")
    made.granted("x")
    (settled,) = made.done("x", "wrong", failed=True)
    assert settled.opinion.failed and not settled.confirmed


def test_who_would_confirm_may_go():
    made = dispatch(2)
    made.add("a")
    made.granted("x")
    assert list(made.done("x", "wrong", failed=True)) == []
    assert list(made.alone()) == []
    made.total = 1
    (settled,) = made.alone()
    assert settled.opinion.device == "x" and made.wanted == (0, frozenset())


def test_the_opinion_of_a_device_that_was_left_out_counts_for_nothing():
    made = dispatch(2)
    made.add("a")
    made.granted("x")
    assert list(made.done("x", "wrong", failed=True)) == []
    made.leave_out("x", "it lies")
    assert list(made.alone()) == []
    made.granted("y")
    (settled,) = made.done("y", "right", failed=False)
    assert settled.opinion.value == "right"


def test_what_needs_no_confirmation():
    made = dispatch(2)
    made.add("a", twice=False)
    made.granted("x")
    (settled,) = made.done("x", "wrong", failed=True)
    assert settled.opinion.failed


def test_leaving_a_device_out_blames_nobody():
    made = dispatch(2)
    made.add("a")
    made.granted("x")
    made.leave_out("x", "its disk is full")
    assert list(made.done("x", 1, failed=False)) == []  # it came too late
    assert made.granted("y").losses == 0
    assert made.notices == ["x is left out: its disk is full"]


def test_a_device_that_does_not_listen_rests_and_blames_nobody():
    made = dispatch(2)
    made.add("a")
    for _ in range(MISSES - 1):
        made.granted("x")
        made.unreached("x", "refused")
        assert made.granted("x") is None and made.wanted == (1, frozenset({"x"}))
        made.resting.discard("x")
    made.granted("x")
    made.unreached("x", "refused")
    assert "cannot be reached from here (refused)" in made.notices[1]
    assert made.notices[0] == "x cannot be reached (refused); it is tried again."
    ticket = made.granted("y")
    assert ticket.work == "a" and ticket.losses == 0


def test_giving_up_settles_everything_that_waits():
    made = dispatch(0)
    made.add("a")
    made.add("b")
    assert [s.why for s in made.give_up("no device")] == ["no device"] * 2
    assert made.wanted == (0, frozenset())


def test_any_order_of_events_settles_each_piece_once():
    draw = random.Random(1)
    made = dispatch(5)
    devices = [f"d{i}" for i in range(5)]
    settled: list[int] = []
    for number in range(400):
        made.add(number)
        for _ in range(4):
            device = draw.choice(devices)
            event = draw.randrange(8)
            if event < 4:
                made.granted(device)
            elif event == 4:
                settled += [s.ticket.work for s in made.lost(device, "x")]
            else:
                settled += [s.ticket.work for s in made.done(device, 0, draw.random() < 0.3)]
    made.forgive()
    while made.wanted[0] or made.doing:
        for device in devices:
            made.granted(device)
            settled += [s.ticket.work for s in made.done(device, 0, failed=False)]
    assert sorted(settled) == list(range(400))
