"""The calls of a session, with whatever a stranger may give them: one error, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, get_type_hints

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tilewright import te
from tilewright.base.errors import DeviceError, TilewrightError
from tilewright.driver.build import build
from tilewright.farm.session_calls import CALLS, call
from tilewright.schedule.schedule import create_schedule

ON = {"kind": "cpu", "index": 0}
ODD = [-1, -(2**63), 2**41, 2**63, 2**64, 1.5, float("nan"), True, None, "x", "-1", b"x", [], {},
       [[]], "../x", "\0", "\ud800"]  # fmt: skip
TIMING = {
    "number": 1, "repeat": 1, "min_repeat_ms": 0, "limit_zero_time_iterations": 1,
    "cooldown_interval_ms": 0, "repeats_to_cooldown": 1,
}  # fmt: skip


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, dict[str, Any]]]:
    """The session's folder, and arguments with which each call works that needs no network."""
    folder = tmp_path_factory.mktemp("session")
    a = te.placeholder((4,), name="A")
    b = te.compute((4,), lambda i: a[i] + 1, name="B")
    build(create_schedule([b.op]), [a, b], "llvm").save(folder / "m.tw")
    where = str(folder)
    one, two, three = (call("allocate", where, {**ON, "nbytes": 16}) for _ in range(3))
    module = call("load", where, {"name": "m.tw"})["held"]
    arrays = [[one, [4], "float32"], [two, [4], "float32"]]
    return where, {
        "describe": ON, "files": {}, "remove": {"name": "none"}, "drop": {"held": three},
        "allocate": {**ON, "nbytes": 0}, "write": {"held": one, "data": b"1234", "offset": 12},
        "read": {"held": one, "offset": 12, "nbytes": 4},
        "copy": {"source": one, "target": two, "nbytes": 16}, "sync": ON, "load": {"name": "m.tw"},
        "call_module": {"held": module, "arrays": arrays},
        "time_module": {
            "held": module, "arrays": arrays, "options": {**TIMING, "cache_flush_bytes": 0},
        },
    }  # fmt: skip


def test_every_call_says_what_it_takes() -> None:
    for name, function in CALLS.items():
        hints = get_type_hints(function, include_extras=True)
        taken = {k: v for k, v in hints.items() if k not in ("folder", "return")}
        assert not {Any, int, str, list, dict, list[Any]} & {*map(_plain, taken.values())}, name


def _plain(hint: Any) -> Any:
    return hint if hint in (Any, int, str, list, dict, list[Any]) else None


def test_sound_arguments_work(sound: tuple[str, dict[str, dict[str, Any]]]) -> None:
    folder, calls = sound
    for name, arguments in calls.items():
        call(name, folder, arguments)


@pytest.mark.parametrize("name, arguments", [
    ("allocate", {**ON, "nbytes": -1}), ("allocate", {**ON, "nbytes": 1 << 62}),
    ("allocate", {"kind": "cpu", "index": -1, "nbytes": 1}), ("write", {"offset": -4}),
    ("write", {"offset": 13}), ("read", {"nbytes": -1}), ("read", {"offset": 1 << 70}),
    ("copy", {"nbytes": 17}), ("copy", {"nbytes": -1}), ("load", {"name": "../m.tw"}),
    ("load", {"name": "/etc/passwd"}), ("remove", {"name": ".."}), ("allocate", {"more": 1}),
])  # fmt: skip
def test_what_is_out_of_bounds_is_refused(sound, name: str, arguments: dict[str, Any]) -> None:
    folder, calls = sound
    with pytest.raises(DeviceError):
        call(name, folder, calls[name] | arguments)


@pytest.mark.parametrize("shape, dtype", [
    ([5], "float32"), ([4], "float64"), ([-4], "float32"), ([2**40, 2**40], "float32"),
    ([4], "no type"), ([1] * 40, "float32"),
])  # fmt: skip
def test_an_array_lies_within_its_memory(sound, shape: list[int], dtype: str) -> None:
    folder, calls = sound
    given = calls["call_module"]
    first, second = given["arrays"]
    with pytest.raises(TilewrightError):
        call("call_module", folder, given | {"arrays": [[first[0], shape, dtype], second]})


odd = st.recursive(
    st.sampled_from(ODD) | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=5,
)


@pytest.mark.slow
@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_whatever_a_stranger_gives(sound, data: st.DataObject) -> None:
    folder, calls = sound
    name = data.draw(st.sampled_from(sorted({*calls} - {"drop"})))
    arguments: Any = {**calls[name]}
    for key in data.draw(st.sets(st.sampled_from([*arguments, "more"]), min_size=1)):
        value = data.draw(odd)
        if key in ("number", "nbytes") and isinstance(value, int) and 0 <= value <= 1 << 40:
            value = -1  # within the bounds, but not within this machine
        arguments[key] = value
    before = sorted(os.listdir(Path(folder).parent))
    try:
        call(name, folder, arguments)
    except TilewrightError as error:
        assert error.reason
    assert sorted(os.listdir(Path(folder).parent)) == before
