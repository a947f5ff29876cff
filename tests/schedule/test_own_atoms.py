"""`register_atom`: what is added, what is refused, and that other processes get it."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from typing import Any

import pytest

from lowering.thread_products import Dots, dots
from tilewright import register_atom, te
from tilewright.base.errors import ScheduleError
from tilewright.codegen import generate
from tilewright.ir.atoms import ALL_ATOMS, ATOMS, places
from tilewright.lowering.pipeline import lower_schedule
from tilewright.measure.worker import with_atoms
from tilewright.targets.atoms import ADDED
from tilewright.targets.target import Target
from tilewright.te.tensor import Tensor

TEXT = "  for (int k = 0; k < 4; ++k) d[0] += a[k] * b[k];\n"
NAME = "mine.dot4"


@pytest.fixture(autouse=True)
def forgotten() -> Iterator[None]:
    before = set(ALL_ATOMS)
    yield
    for name in set(ALL_ATOMS) - before:
        del ALL_ATOMS[name], ADDED[name]


def tile(m: int, n: int, k: int, kind: str = "int8", total: str = "int32") -> Tensor:
    a, b = te.placeholder((m, k), kind, name="a"), te.placeholder((k, n), kind, name="b")
    r = te.reduce_axis((0, k), name="k")

    def term(i: Any, j: Any) -> Any:
        return a[i, r].astype(total) * b[r, j].astype(total)

    return te.compute((m, n), lambda i, j: te.sum(term(i, j), axis=r), name="c")


def add(**changed: Any) -> str:
    given = {
        "name": NAME, "behaviour": tile(1, 1, 4), "a": "k0 k1", "b": "k0 k1", "sum": "",
        "texts": {"cuda": TEXT}, "needs": {"cuda": "sm_70"},
    }  # fmt: skip
    return register_atom(**(given | changed))


def test_kernels_call_its_text_where_the_device_is_new_enough() -> None:
    assert add() == NAME == add()
    old, new = Target("cuda -arch=sm_61"), Target("cuda -arch=sm_75")
    assert new.has(NAME) and not old.has(NAME) and not Target("opencl").has(NAME)
    schedule, args = dots(Dots(atom=NAME), gpu=True)
    text = generate(lower_schedule(schedule, new, args=args), new).text
    assert "void tw_dot_mine_dot4(int* d, const signed char* a, const signed char* b)" in text
    assert TEXT in text and "tw_dot_mine_dot4(&C" in text


def test_lanes_of_a_warp_hold_what_the_bits_say() -> None:
    bits = {"a": "k1 k2 m0 m1 m2 / k0 m3 k3", "b": "k1 k2 n0 n1 n2 / k0 k3"}
    add(
        behaviour=tile(16, 8, 16, "float16", "float32"), unit="warp", **bits,
        sum="n1 n2 m0 m1 m2 / n0 m3",
    )  # fmt: skip
    mine, known = ALL_ATOMS[NAME], ATOMS["m16n8k16.float16"]
    for part in ("a", "b", "sum"):
        own, theirs = (places(getattr(atom, part)) for atom in (mine, known))
        assert all((x == y).all() for x, y in zip(own, theirs, strict=True))


def test_another_process_gets_it() -> None:
    add()
    sent = pickle.dumps(list(ADDED.values()))
    del ALL_ATOMS[NAME], ADDED[NAME]
    assert with_atoms(pickle.loads(sent), ALL_ATOMS.__contains__, (NAME,))
    assert ALL_ATOMS[NAME].texts == {"cuda": TEXT}


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"a": "k0"}, "a has 4 elements along k, and the bits are k0"),
        ({"a": "k0 k2"}, "the bits are k0 k2"), ({"a": "k0 k1 k1"}, "the bits are k0 k1 k1"),
        ({"a": "k0 n1"}, "'n1' is no bit of m or k"), ({"sum": "m0"}, "has 1 elements along m"),
        ({"unit": "warp"}, r"are the bits of 2\^0 lanes, of 32"),
        ({"unit": "group"}, "no unit 'group' holds its operands"),
        ({"texts": {}}, "it has no text"), ({"texts": {"c": TEXT}}, "no kernel is written in 'c'"),
        ({"name": "m1n1k4.int8"}, "another atom of that name"), ({"name": "a b"}, "is no name"),
        ({"name": "m1n1k4_int8"}, "kernels could not tell it from m1n1k4.int8"),
        ({"behaviour": tile(1, 1, 4, "float16", "float16")}, "adds up in float32"),
        ({"behaviour": te.compute((1, 1), lambda i, j: i + j)}, "no sum of products over one axis"),
    ],
)  # fmt: skip
def test_one_that_is_wrong(changed: dict[str, Any], why: str) -> None:
    with pytest.raises(ScheduleError, match=why):
        add(**changed)
    assert NAME not in ALL_ATOMS


def test_a_behaviour_that_reads_the_second_factor_the_other_way_round() -> None:
    a, b = te.placeholder((2, 4), "int8", name="a"), te.placeholder((2, 4), "int8", name="b")
    r = te.reduce_axis((0, 4), name="k")
    c = te.compute((2, 2), lambda i, j: te.sum(
        a[i, r].astype("int32") * b[j, r].astype("int32"), axis=r), name="c")  # fmt: skip
    with pytest.raises(ScheduleError, match="is no element of a matrix"):
        add(behaviour=c, a="k0 k1 m0", b="k0 k1 n0", sum="n0 m0")
