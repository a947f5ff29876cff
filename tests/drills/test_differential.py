"""The differential drill sees planted differences, and nothing where there is none."""

import numpy as np
import pytest

from drills.differential import case as C
from drills.differential import known
from drills.differential.draw import Draw
from drills.differential.sides import present, side
from drills.differential.worker import outcome
from tilewright.base.errors import ModelError

X = np.array([1.0, -2.0, 3.0], "float32")


def judged(ours, peer=lambda data: [data[0] * 2], strict=True):
    made = C.Case("double", [X], peer, {"ours": ours}, strict)
    return C.judged(made, np.random.default_rng(0)).what


def refused(*_):
    raise C.Refused("no")


def raises(error):
    def run(*_):
        raise error

    return run


@pytest.mark.parametrize(
    ("ours", "what"),
    [
        (lambda: [X * 2], C.EQUAL),
        (lambda: [np.nextafter(X * 2, np.float32(9))], C.EQUAL),
        (lambda: [X * 2 * np.float32(1.0001)], C.DIFFERS),
        (lambda: [X[:2] * 2], C.DIFFERS),
        (lambda: [(X * 2).astype("float64")], C.DIFFERS),
        (lambda: [np.where(X == 3, np.nan, X * 2).astype("float32")], C.DIFFERS),
        (lambda: [X * 2, X], C.DIFFERS),
        (raises(KeyError("k")), C.FOREIGN),
        (raises(ModelError("place", "reason", "way out")), C.REFUSED),
    ],
)
def test_what_is_seen(ours, what):
    assert judged(ours) == what


def test_moved_elements_are_exact():
    near = np.nextafter(X, np.float32(9))
    assert judged(lambda: [near], lambda data: [data[0]]) == C.DIFFERS


def test_quotients_that_are_ones_may_round():
    over = lambda: [np.nextafter(np.sign(X), np.float32(9))]  # noqa: E731
    assert judged(over, lambda data: [np.sign(data[0])]) == C.EQUAL
    assert judged(lambda: [-np.sign(X)], lambda data: [np.sign(data[0])]) == C.DIFFERS


def test_notes_of_the_data():
    assert C.noted([X]) == ""
    assert C.noted([X, np.array([1, 1])]) == " ties"
    assert C.noted([np.array([np.nan, 1.0])]) == " NaN"


def test_refusals_of_the_peer():
    assert judged(lambda: [X], refused) == C.DIFFERS
    assert judged(lambda: [X], refused, strict=False) == C.BEYOND
    assert judged(raises(ModelError("place", "reason", "way")), refused) == C.BOTH


def test_two_ways_agree():
    ways = {"one": lambda: [X], "other": raises(ModelError("place", "reason", "way"))}
    made = C.Case("same", [X], lambda data: [data[0]], ways)
    assert C.judged(made, np.random.default_rng(0)).what == C.DIFFERS


def test_stated_differences_name_their_page():
    assert known.stated("onnx", "Clip", "Clip-18(float16[1])", "is -inf, not -65504.0")
    assert known.stated("onnx", "Clip", "Clip-18(float16[1])", "is 1.0, not 2.0") is None
    assert known.stated("torch", "Clip", "float16", "is -inf, not -65504.0") is None
    assert all(line.page.startswith("docs/") and line.reason for line in known.KNOWN)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", [n for n in present() if n != "torch"])
def test_a_line_repeats_its_case(name):
    for operator in list(side(name).operators)[:3]:
        again = [outcome((name, operator, 7, small)) for small in (False, False, True)]
        assert again[0] == again[1]
        assert again[0][1] == side(name).make(
            operator, Draw([7, *operator.encode(), *name.encode()])
        ).text  # fmt: skip
