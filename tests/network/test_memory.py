"""The memory planner: values alive together never share; the plan is close to what is needed."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from graph.cases import function, tensor
from tilewright.graph.passes import fuse
from tilewright.network.memory import Lifetime, lifetimes, plan_memory
from tilewright.runtime.drivers import ALIGNMENT
from tilewright_tvm import relay
from tilewright_tvm.relay import nn


@st.composite
def values(draw) -> list[Lifetime]:
    found = []
    for k in range(draw(st.integers(0, 12))):
        first, kept = draw(st.integers(0, 10)), draw(st.booleans())
        last = 15 if kept else first + draw(st.integers(0, 5))
        found.append(Lifetime(f"v{k}", draw(st.integers(0, 300)), first, last, kept))
    return found


@pytest.mark.slow
@given(values())
def test_values_alive_together_never_share(found):
    plan = plan_memory(found)
    for a in found:
        slot, begin = plan.place_of[a.name]
        assert begin % ALIGNMENT == 0 and begin + a.nbytes <= plan.slot_bytes[slot]
        assert not a.kept or (begin, plan.slot_bytes[slot]) == (0, a.nbytes)
        for b in found:
            other, at = plan.place_of[b.name]
            apart = slot != other or begin >= at + b.nbytes or at >= begin + a.nbytes
            assert a is b or apart or a.first > b.last or b.first > a.last
    assert plan.peak_bytes <= plan.planned_bytes <= plan.unshared_bytes + ALIGNMENT * len(found)


def test_a_chain_needs_two_buffers():
    chain = [Lifetime(f"v{k}", 100, k, k + 1) for k in range(10)]
    plan = plan_memory(chain)
    assert plan.slot_bytes == (2 * 128,)  # at multiples of 64 bytes
    assert (plan.unshared_bytes, plan.peak_bytes) == (1000, 200)
    assert str(plan).startswith("10 values: ")
    assert plan == plan_memory(list(reversed(chain)))


def test_a_result_takes_in_what_is_gone_before_it_is_made():
    plan = plan_memory([Lifetime("early", 640, 0, 1), Lifetime("result", 1280, 2, 3, kept=True)])
    assert plan.slot_bytes == (1280,) and plan.place_of["early"] == (0, 0)


def lives(body) -> list[tuple[int, int, int]]:
    f = fuse(relay.IRModule.from_expr(function(body)))["main"]
    return [(v.first, v.last, v.nbytes) for v in lifetimes(f).values()]


def test_lifetimes_follow_the_readers():
    x = tensor("x", 2, 3)
    a = nn.softmax(x)  # softmax fuses with nothing, so each call is a step
    b = nn.softmax(a)
    assert lives(nn.softmax(b) + a) == [(0, 3, 24), (1, 2, 24), (2, 3, 24), (3, 3, 24)]


def test_reading_a_view_reads_its_source():
    x = tensor("x", 2, 3)
    a = nn.softmax(x)
    view = relay.reshape(a, (6, 1))
    c = nn.softmax(nn.softmax(x))
    found = lives(relay.Tuple([c, nn.softmax(view, axis=0)]))
    assert found == [(0, 1, 24), (1, 3, 24), (2, 3, 24), (3, 3, 24)]  # c, c, a, its reader


def test_results_live_to_the_end():
    x = tensor("x", 2, 3)
    a = nn.softmax(x)
    found = lives(relay.Tuple([relay.reshape(a, (6,)), nn.softmax(nn.softmax(a))]))
    assert found[0] == (0, 2, 24)
    assert found[-1] == (2, 2, 24)


@pytest.mark.slow
def test_a_network_needs_a_fraction_of_its_values():
    mod, params = relay.testing.get_network("resnet-18-v1", image_shape=(3, 64, 64))
    main = relay.optimize(mod, params)["main"]
    plan = plan_memory(list(lifetimes(main).values()))
    assert plan.planned_bytes <= 1.1 * plan.peak_bytes
    assert plan.planned_bytes * 2 < plan.unshared_bytes


@pytest.mark.slow
@given(values())
def test_the_most_bytes_alive_at_once(found):
    steps = range(20)
    alive = [sum(v.nbytes for v in found if v.first <= t <= v.last) for t in steps]
    assert plan_memory(found).peak_bytes == max(alive)


@pytest.mark.slow
def test_a_long_network_is_planned_at_once():
    chain = [Lifetime(f"v{k}", 100 + 64 * (k % 7), k, k + 1) for k in range(20_000)]
    began = time.process_time()
    plan = plan_memory(chain)
    assert plan.planned_bytes < 1.2 * plan.peak_bytes
    assert time.process_time() - began < 3
