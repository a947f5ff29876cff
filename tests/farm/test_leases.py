"""Who gets which device: the state machine of the tracker, in time that a test makes up."""

from __future__ import annotations

import random

import pytest

from tilewright.farm.leases import Grant, Leases


def leases(*addresses: str, key: str = "k") -> Leases:
    made = Leases()
    for address in addresses:
        made.join(address, key)
    return made


def given(made: Leases, now: float) -> list[tuple[str, str]]:
    return [(g.holder, g.device) for g in made.grants(now)]


def test_who_wants_devices_gets_as_many_as_are_free():
    made = leases("a", "b", "c")
    made.want("me", "k", 2, 0)
    assert list(made.grants(0)) == [Grant("me", "k", "a"), Grant("me", "k", "b")]
    assert given(made, 0) == []
    (row,) = made.rows()
    assert (row.total, row.free, row.pending) == (3, 1, 0)


def test_a_device_of_another_key_is_not_given():
    made = leases("a", key="other")
    made.want("me", "k", 1, 0)
    assert given(made, 0) == []
    assert [(r.key, r.total, r.free, r.pending) for r in made.rows()] == [
        ("k", 0, 0, 1), ("other", 1, 1, 0),
    ]  # fmt: skip


def test_a_holder_gets_back_the_device_it_had():
    made = leases("a", "b")
    made.want("me", "k", 2, 0)
    assert len(given(made, 0)) == 2
    made.release("me", "b", 1)
    made.release("me", "a", 2)
    made.join("c", "k")
    made.want("me", "k", 1, 3)
    assert given(made, 3) == [("me", "b")]


def test_devices_that_are_no_use_are_not_given():
    made = leases("a", "b")
    made.want("me", "k", 2, 0, without=["a"])
    assert given(made, 0) == [("me", "b")]
    made.want("you", "k", 1, 0)
    assert given(made, 0) == [("you", "a")]


def test_leases_end_with_their_holder():
    made = leases("a", "b")
    made.want("me", "k", 3, 0)
    assert len(given(made, 0)) == 2
    made.gone("me", 5)
    made.want("you", "k", 2, 5)
    assert [device for _, device in given(made, 5)] == ["a", "b"]


def test_a_silent_device_is_given_to_nobody_until_it_speaks():
    made = leases("a")
    made.want("me", "k", 1, 0)
    assert given(made, 0) == [("me", "a")]
    assert made.fall_silent("a", 5) == "me"
    made.release("me", "a", 6)
    made.want("me", "k", 1, 6)
    assert given(made, 6) == [] and made.total("k") == 0
    made.speak("a")
    assert given(made, 7) == [("me", "a")]


def test_whose_a_device_was_that_goes():
    made = leases("a", "b")
    made.want("me", "k", 1, 0)
    assert given(made, 0) == [("me", "a")]
    assert made.leave("a", 1) == "me" and made.leave("b", 1) is None
    assert made.leave("b", 1) is None
    assert made.rows() == ()


def test_priority_goes_first():
    made = leases("a")
    made.want("me", "k", 1, 0)
    made.want("you", "k", 1, 0, priority=2)
    assert given(made, 0) == [("you", "a")]


@pytest.mark.parametrize("devices", [1, 3])
@pytest.mark.parametrize("lengths", [(1.0, 1.0), (1.0, 5.0)])
def test_two_holders_get_half_of_the_time_each(devices, lengths):
    """Whatever their trials last; who comes late gets no more than who was there."""
    made = leases(*map(str, range(devices)))
    per_trial = {"me": lengths[0], "you": lengths[1]}
    run(made, per_trial, until=200, joins={"you": 50})
    before = 50 * devices
    mine, yours = made.used("me", "k", 200), made.used("you", "k", 200)
    assert yours == pytest.approx(mine, rel=0.05)  # by the account, in which both began at 50
    assert mine == pytest.approx(before + 150 * devices / 2, rel=0.06)


def run(made: Leases, per_trial: dict[str, float], until: float, joins: dict[str, float]) -> None:
    """Holders that always want as many as there are, with a step of 0.1."""
    ends: list[tuple[float, str, str]] = []
    for step in range(int(until * 10)):
        now = step / 10
        for at, holder, device in [e for e in ends if e[0] <= now]:
            ends.remove((at, holder, device))
            made.release(holder, device, now)
        for holder in per_trial:
            if now >= joins.get(holder, 0):
                made.want(holder, "k", 4, now)
        for grant in made.grants(now):
            ends.append((now + per_trial[grant.holder], grant.holder, grant.device))


def test_any_order_of_events_keeps_the_books():
    """A device has at most one holder, is free or held or silent, and free ones are given."""
    draw = random.Random(0)
    made, now, names, holders = Leases(), 0.0, [f"d{i}" for i in range(6)], ["x", "y", "z"]
    for _ in range(3000):
        now += draw.random()
        name, holder = draw.choice(names), draw.choice(holders)
        known = name in made.devices
        event = draw.randrange(7)
        if event == 0 and not known:
            made.join(name, draw.choice("kl"))
        elif event == 1:
            made.leave(name, now)
        elif event == 2 and known:
            made.fall_silent(name, now)
        elif event == 3 and known:
            made.speak(name)
        elif event == 4:
            made.want(holder, draw.choice("kl"), draw.randrange(4), now)
        elif event == 5:
            made.release(holder, name, now)
        elif draw.random() < 0.1:
            made.gone(holder, now)
        for grant in made.grants(now):
            assert made.devices[grant.device].holder == grant.holder
        for row in made.rows():
            devices = [d for d in made.devices.values() if d.key == row.key and not d.silent]
            assert row.free == sum(d.holder is None for d in devices)
            assert not (row.free and row.pending)
