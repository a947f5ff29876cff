"""What a farm takes from whoever reaches its ports: every bound, and nothing is without one."""

from __future__ import annotations

import inspect
import random
import re
import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

from tilewright.base.errors import DeviceError
from tilewright.farm import bounds, file_store, registration, wire
from tilewright.farm.admission import (
    DEVICE,
    STRANGER,
    TUNER,
    VISITOR,
    Gate,
    Places,
    devices_places,
    trackers_places,
)
from tilewright.farm.file_store import Arrivals, Incoming, Store
from tilewright.farm.leases import Leases

ROOT = Path(__file__).parents[2]

# -- messages -------------------------------------------------------------------------------------

# Any: checked where it is used, and no larger than a message.  Limits: numbers of 64 bits.
FREE = {"Call.arguments.value", "Answer.value", "Spec.limits", "Build.limits"}


def unbounded(kind: Any, place: str) -> list[str]:
    """Places in a type where a stranger decides how much there is."""
    if place in FREE:
        return []
    match kind:
        case msgspec.inspect.IntType():
            ends = (kind.ge, kind.gt), (kind.le, kind.lt)
            return [] if all(any(e is not None for e in end) for end in ends) else [place]
        case msgspec.inspect.FloatType():
            ends = (kind.ge, kind.gt), (kind.le, kind.lt)
            return [] if all(any(e is not None for e in end) for end in ends) else [place]
        case msgspec.inspect.StrType():
            closed = re.fullmatch(r"\^(\[[^]]+\]\{[^,]*,?\d+\}|\([a-z|]+\))\\Z", kind.pattern or "")
            return [] if kind.max_length is not None or closed else [place]
        case msgspec.inspect.BytesType():
            return [] if kind.max_length is not None else [place]
        case msgspec.inspect.VarTupleType():
            own = [] if kind.max_length is not None else [place]
            return own + unbounded(kind.item_type, f"{place}.item")
        case msgspec.inspect.TupleType():
            return [x for one in kind.item_types for x in unbounded(one, f"{place}.item")]
        case msgspec.inspect.DictType():
            own = [] if kind.max_length is not None else [place]
            inner = unbounded(kind.key_type, f"{place}.key")
            return own + inner + unbounded(kind.value_type, f"{place}.value")
        case msgspec.inspect.UnionType():
            return [x for one in kind.types for x in unbounded(one, place)]
        case msgspec.inspect.StructType():
            name = kind.cls.__name__
            return [x for f in kind.fields for x in unbounded(f.type, f"{name}.{f.name}")]
        case msgspec.inspect.BoolType() | msgspec.inspect.NoneType():
            return []
    return [place]


def test_every_field_of_every_message_has_a_bound():
    found = [*msgspec.inspect.type_info(wire.MESSAGES).types]  # type: ignore[attr-defined]
    found.append(msgspec.inspect.type_info(registration._Registration))
    found.append(msgspec.inspect.type_info(registration.Token))
    assert len(found) == len(wire.Message.__subclasses__()) + 2
    assert [place for kind in found for place in unbounded(kind, "")] == []


def test_what_has_no_bound_is_found():
    class Loose(msgspec.Struct):
        text: str
        number: int
        data: bytes
        listed: tuple[wire.Name, ...]
        named: dict[wire.Name, wire.Count]
        seconds: float
        anything: Any

    found = unbounded(msgspec.inspect.type_info(Loose), "")
    assert len(found) == 7


CONTROL = ["a\nb", "a\r", "\x1b[2J", "a\x00", "a\x85", "a\u2028", "\u202ea", "a\n"]


@pytest.mark.parametrize("text", [*CONTROL, "x" * 201])
def test_a_name_is_one_line_of_bounded_length(text: str):
    """So that nothing that is printed or logged looks like a line of somebody else."""
    said = [
        wire.Hello(1, "1", text), wire.Want(text, 1), wire.Release(text), wire.Granted("k", text),
        wire.Summary((wire.Row(text, 1, 1, 0),), ()), wire.Devices(text, 1),
        wire.Summary((), (wire.Member(text, "k", 0.0),)), wire.Describe(text),
        wire.Part(text, 0, 1, b"x"),
    ]  # fmt: skip
    for message in said:
        with pytest.raises(DeviceError, match="no message of this protocol"):
            wire.decoded(wire.encoded(message), "it")
    with pytest.raises(DeviceError, match="in one line"):
        wire.check_key(text, "--key")


def test_an_empty_key_is_none():
    with pytest.raises(DeviceError, match="1 to 200"):
        wire.check_key("", "--key")
    wire.check_key("1080ti", "--key")
    wire.check_key("ボード 1", "--key")


@pytest.mark.parametrize("priority", [1 << 31, -(1 << 31) - 1, 10**30])
def test_a_priority_that_no_tracker_reads_is_told_before_it_is_sent(priority: int):
    with pytest.raises(DeviceError, match="32 bits"):
        wire.check_wish("k", priority)


# -- places ---------------------------------------------------------------------------------------


def gate(**places: tuple[int, int]) -> Gate:
    return Gate({name: Places(*of) for name, of in places.items()})


def test_a_stranger_too_many_costs_the_oldest_of_the_address_with_most():
    made, cut = gate(stranger=(4, 3), tuner=(2, 2)), []
    for n, address in enumerate("aaab"):
        made.enter(address, lambda n=n: cut.append(n))
    made.enter("c", lambda: cut.append("c"))
    assert cut == [0]
    made.enter("b", lambda: cut.append("late"))
    assert cut == [0, 1] and made.count(STRANGER) == 4


def test_one_address_has_its_own_bound():
    made, cut = gate(stranger=(10, 2)), []
    for n in range(3):
        made.enter("a", lambda n=n: cut.append(n))
    assert cut == [0] and made.count(STRANGER) == 2


def test_strangers_take_no_place_of_others():
    made, cut = gate(stranger=(2, 2), tuner=(1, 1), device=(1, 1)), []
    known = made.enter("a", lambda: cut.append("known"))
    assert known.admit(DEVICE)
    for _ in range(100):
        made.enter("a", lambda: cut.append("stranger"))
    assert "known" not in cut and made.count(DEVICE) == 1 and made.count(STRANGER) == 2
    late = made.enter("a", lambda: None)
    assert late.admit(TUNER) and late.admit(TUNER)


def test_who_is_busy_keeps_his_place():
    made, cut = gate(stranger=(5, 5), visitor=(2, 2)), []
    guests = [made.enter("a", lambda n=n: cut.append(n)) for n in range(4)]
    assert guests[0].admit(VISITOR) and guests[1].admit(VISITOR)
    guests[0].busy = True
    guests[1].spoke()
    assert guests[2].admit(VISITOR) and cut == [1]
    guests[2].busy = True
    assert not guests[3].admit(VISITOR)
    made.leave(guests[0])
    assert guests[3].admit(VISITOR)


def test_who_has_gone_gets_no_place():
    made = gate(stranger=(1, 1), tuner=(1, 1))
    gone = made.enter("a", lambda: None)
    made.enter("a", lambda: None)
    assert not gone.admit(TUNER)
    made.leave(gone)
    assert made.count(STRANGER) == 1 and made.count(TUNER) == 0


@pytest.mark.parametrize("files", [64, 100, 256, 1024, 8192])
def test_all_places_together_are_fewer_than_the_files_that_may_be_open(files: int):
    """So that a device always finds a descriptor, and the process itself has some."""
    for places in (trackers_places(files), devices_places(files), devices_places(files, 100)):
        assert sum(of.total for of in places.values()) <= max(files - bounds.OWN_FILES, 16)
        assert all(1 <= of.of_address <= of.total for of in places.values())
    if files >= 256:
        assert trackers_places(files)[DEVICE].total >= files // 4


def test_any_order_of_events_keeps_the_places():
    draw, places = random.Random(0), {STRANGER: (5, 3), TUNER: (3, 2), DEVICE: (2, 2)}
    made, there = gate(**places), []
    for _ in range(5000):
        event = draw.randrange(5)
        if event == 0 or not there:
            guest = made.enter(draw.choice("ab"), lambda: None)
            guest.cut = lambda guest=guest: there.remove(guest)
            there.append(guest)
            continue
        guest = draw.choice(there)
        if event == 1:
            guest.admit(draw.choice([TUNER, DEVICE]))
        elif event == 2:
            guest.busy = not guest.busy
        elif event == 3:
            guest.spoke()
        else:
            made.leave(guest)
            there.remove(guest)
        for role, (total, of_address) in places.items():
            here = [g.address for g in there if g.role == role]
            assert len(here) == made.count(role) <= total
            assert all(here.count(a) <= of_address for a in "ab")


# -- what is wanted -------------------------------------------------------------------------------


@pytest.mark.long
def test_nothing_is_kept_of_keys_that_nobody_has_or_wants():
    made = Leases()
    empty = {name: len(value) for name, value in vars(made).items()}
    draw, known = random.Random(1), 0
    for n in range(2000):
        made.join(f"d{n}", f"k{n}")
        made.want(f"h{n % 7}", f"k{draw.randrange(n + 1)}", draw.randrange(2), n)
        made.used("nobody", f"no{n}", n), made.total(f"no{n}"), made.release("nobody", "no", n)
        known += len(list(made.grants(n)))
        made.rows()
    assert known > 10
    for n in range(2000):
        made.leave(f"d{n}", n)
    for n in range(7):
        made.gone(f"h{n}", n)
    list(made.grants(0))
    assert {name: len(value) for name, value in vars(made).items()} == empty


def test_an_event_costs_what_it_touches(monkeypatch: pytest.MonkeyPatch):
    """However many keys others want."""
    made, looked = Leases(), []
    for n in range(3000):
        made.want("many", f"k{n}", 1, 0)
    list(made.grants(0))
    grants = Leases._grants_of
    monkeypatch.setattr(
        Leases, "_grants_of", lambda self, key, now: looked.append(key) or grants(self, key, now)
    )
    made.want("one", "k", 1, 0)
    made.join("d", "k")
    assert [g.holder for g in made.grants(0)] == ["one"]
    assert looked == ["k"]
    made.gone("one", 1)
    list(made.grants(1))
    assert looked == ["k", "k"]


# -- what devices say -----------------------------------------------------------------------------


def test_of_what_a_device_says_dask_gets_bounded_numbers_only():
    workers = {f"w{k}": (1, 1) for k in range(9)}
    evil: dict[str, Any] = {"bandwidth": {"total": 1, "workers": workers}, "spilled_bytes": 7}
    evil |= {"memory": {"x": 1}, "cpu": 10**30, "x" * 100: 1, "text": "x" * 10**6}
    found = registration.figures({"metrics": evil})
    assert found["bandwidth"] == {"total": 1, "workers": {}, "types": {}}
    assert found["memory"] == 0 and found["cpu"] == 0 and "text" not in found
    assert found["spilled_bytes"] == {"memory": 0, "disk": 0}
    assert registration.figures({"metrics": 3})["memory"] == 0
    many = registration.figures({"metrics": {f"m{k}": k for k in range(1000)}})
    assert len(many) == len(registration._NEEDED)


# -- files ----------------------------------------------------------------------------------------


@pytest.fixture
def arrivals(tmp_path: Path) -> Arrivals:
    return Arrivals(tmp_path)


def send(made: Arrivals, folder: Path, name: str, total: int, data: bytes = b"") -> Incoming:
    incoming = made.begin(folder, wire.Part(name, 0, total, b""))
    incoming.write(wire.Part(name, 0, total, data))
    if incoming.is_complete:
        made.end(incoming)
        incoming.move(folder / name)
    return incoming


def test_files_of_a_session_are_bounded_in_number_and_size(
    arrivals: Arrivals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(bounds, "SESSION_FILES", 3)
    monkeypatch.setattr(bounds, "SESSION_BYTES", 100)
    monkeypatch.setattr(bounds, "SESSIONS_BYTES", 150)
    one, two = tmp_path / "session-1", tmp_path / "session-2"
    one.mkdir(), two.mkdir()
    send(arrivals, one, "a", 60, b"x" * 60)
    with pytest.raises(DeviceError, match="those of a session"):
        send(arrivals, one, "b", 41)
    send(arrivals, one, "a", 90, b"x" * 90)  # instead of the one before
    under_way = send(arrivals, two, "c", 60, b"x")
    with pytest.raises(DeviceError, match="all sessions"):
        send(arrivals, two, "d", 1)
    arrivals.end(under_way), under_way.drop()
    for name in ("d", "e", "f"):
        send(arrivals, two, name, 1, b"x")
    with pytest.raises(DeviceError, match="at most 3 files"):
        send(arrivals, two, "g", 1)
    shutil.rmtree(one)  # the session has ended
    send(arrivals, two, "d", 95, b"x" * 95)


def test_a_file_leaves_some_of_the_disk_free(
    arrivals: Arrivals, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """What others have begun to send counts as well."""
    free = SimpleNamespace(free=bounds.FREE_BYTES + 100)
    monkeypatch.setattr(file_store.shutil, "disk_usage", lambda path: free)
    (tmp_path / "session-1").mkdir()
    send(arrivals, tmp_path, "0" * 64, 60)
    with pytest.raises(DeviceError, match="device's disk.*Free some space"):
        send(arrivals, tmp_path / "session-1", "a", 41)
    send(arrivals, tmp_path / "session-1", "a", 40)


def test_a_store_forgets_the_oldest_files_and_folders(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(bounds, "STORED_FILES", 5)
    monkeypatch.setattr(bounds, "STORED_FOLDERS", 3)
    made = Store()
    try:
        arrivals, names = Arrivals(made.path), []
        for n in range(9):
            data = str(n).encode()
            names.append(file_store.hash_of(data))
            incoming = arrivals.begin(made.path, wire.Part(names[n], 0, 1, b""))
            incoming.write(wire.Part(names[n], 0, 1, data))
            arrivals.end(incoming)
            made.add(names[n], incoming)
        assert [name in made for name in names] == [False] * 4 + [True] * 5
        folders = [made.folder([(f"{k}-x0.npy", names[-1])]) for k in range(6)]
        assert [path.exists() for path in folders] == [False] * 3 + [True] * 3
    finally:
        made.close()


# -- the page -------------------------------------------------------------------------------------


def test_the_page_has_every_bound_as_it_is():
    text = (ROOT / "docs" / "reliability.md").read_text()
    table = text.partition("<!-- bounds -->")[2].partition("<!-- end of bounds -->")[0]
    said = dict(re.findall(r"^\| `([A-Z_]+)` \| ([^|]+) \|", table, re.M))
    known = {
        name: value for name, value in vars(bounds).items()
        if name.isupper() and isinstance(value, (int, float))
    }  # fmt: skip
    assert said == {name: shown(name, value) for name, value in known.items()}


def shown(name: str, value: float) -> str:
    if name.endswith(("SECONDS", "PAUSE")):
        return f"{value:g} s"
    if "BYTES" in name:
        unit = next(u for u in ("GiB", "MiB", "KiB") if value >= SIZES[u])
        return f"{value / SIZES[unit]:g} {unit}" + ("/s" if name.endswith("A_SECOND") else "")
    return f"{value:,}"


SIZES = {"GiB": 1 << 30, "MiB": 1 << 20, "KiB": 1 << 10}


def test_each_bound_is_used():
    """A number that nothing reads bounds nothing."""
    import tilewright.farm as farm

    folder = Path(inspect.getfile(farm)).parent
    code = "".join(path.read_text() for path in folder.glob("*.py") if path.name != "bounds.py")
    names = [n for n in vars(bounds) if n.isupper()]
    assert [n for n in names if f"bounds.{n}" not in code] == []
