"""Who is let in, and what is refused: certificates, versions, sizes, what would be unpickled."""

from __future__ import annotations

import asyncio
import json
import pickle
import resource
import ssl
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Coroutine
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from farm.processes import Farm, farm
from farm.test_commands import command
from tilewright.base.errors import DeviceError
from tilewright.farm import address, board, certificates, plain_comm, registration, wire
from tilewright.farm.client import summary
from tilewright.farm.network import OPERATION, opened
from tilewright.farm.versions import VERSION
from tilewright.measure.pool import Options, WorkerPool


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("certificates")
    certificates.make(folder)
    return folder


@pytest.fixture(scope="module")
def secure_farm(authority: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    with farm(tmp_path_factory.mktemp("farm"), ["k"], "--certificates", str(authority)) as made:
        yield made


def ask(port: int, folder: str | None) -> wire.Summary:
    return asyncio.run(summary("127.0.0.1", port, folder))


@pytest.mark.slow
def test_with_certificates_everything_is_encrypted(secure_farm: Farm, authority: Path):
    found = ask(secure_farm.port, str(authority))
    assert [(row.key, row.total) for row in found.rows] == [("k", 1)]
    assert found.members[0].address.startswith("tls://")


@pytest.mark.slow
def test_a_client_without_a_certificate_is_refused_and_logged(secure_farm: Farm):
    with pytest.raises(DeviceError, match="certificates"):
        ask(secure_farm.port, "none")
    assert "handshake failed" in secure_farm.tracker.text()


def test_a_certificate_of_another_authority_is_refused(secure_farm: Farm, tmp_path: Path):
    certificates.make(tmp_path)
    with pytest.raises(DeviceError, match="it is not of the farm's authority"):
        ask(secure_farm.port, str(tmp_path))


def test_a_clients_certificate_does_not_make_a_device(
    secure_farm: Farm, authority: Path, tmp_path: Path
):
    """Who may tune may not pose as a device to other tuners: TLS itself refuses it."""
    for name in ("ca.pem", "client.pem", "client.key"):
        to = tmp_path / name.replace("client", "server")
        to.write_bytes((authority / name).read_bytes())
    posing = certificates.credentials(certificates.SERVER, str(tmp_path))
    asking = certificates.credentials(certificates.CLIENT, str(authority))
    assert posing is not None and asking is not None

    async def handshake() -> None:
        server = await asyncio.start_server(
            lambda r, w: None, "127.0.0.1", 0, ssl=posing.context(listening=True)
        )
        port = server.sockets[0].getsockname()[1]
        await asyncio.open_connection("127.0.0.1", port, ssl=asking.context(listening=False))

    with pytest.raises(ssl.SSLError, match="purpose"):
        asyncio.run(handshake())


def test_new_certificates_keep_the_authority(tmp_path: Path):
    first = certificates.make(tmp_path)
    kept = (tmp_path / "ca.pem").read_bytes()
    second = certificates.make(tmp_path)
    assert len(first) == 6 and len(second) == 4 and (tmp_path / "ca.pem").read_bytes() == kept
    assert all(path.stat().st_mode & 0o077 == 0 for path in first)


@pytest.mark.parametrize(
    "kept", [("ca.pem", "client.pem", "client.key"), ("ca.key",), ("server.pem",)]
)
def test_certificates_of_another_authority_are_not_written_over(
    tmp_path: Path, kept: tuple[str, ...]
):
    """As on the machine of a tuner, to which the authority's key was never copied."""
    certificates.make(tmp_path)
    for path in tmp_path.iterdir():
        if path.name not in kept:
            path.unlink()
    before = {p.name: p.read_bytes() for p in tmp_path.iterdir()}
    with pytest.raises(DeviceError, match="not written over them.*folder that has ca.key"):
        certificates.make(tmp_path)
    assert {p.name: p.read_bytes() for p in tmp_path.iterdir()} == before


def test_beyond_this_machine_certificates_are_needed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.delenv("TILEWRIGHT_CERTIFICATES", raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    with pytest.raises(DeviceError, match="farm certificates"):
        address.listening("0.0.0.0", None)
    for host in ("10.0.0.1", "tls://10.0.0.1", "tls://127.0.0.1"):
        with pytest.raises(DeviceError, match="no certificates"):
            address.ways(host, 9190)
    with pytest.raises(DeviceError, match="where others may listen"):
        address.ways("tcp://10.0.0.1", 9190)
    assert address.listening("127.0.0.1", None) is None
    assert address.listening("0.0.0.0", "none") is None
    certificates.make(tmp_path / "tilewright" / "farm")
    assert address.listening("0.0.0.0", None) is not None
    ((place, context),) = address.ways("10.0.0.1", 9190)
    assert place.scheme == "tls" and context is not None
    schemes = {"tls://127.0.0.1": ["tls"], "tcp://::1": ["tcp"], "127.0.0.1": ["tcp", "tls"]}
    for host, expected in schemes.items():
        assert [way.scheme for way, _ in address.ways(host, 9190)] == expected
    with pytest.raises(DeviceError, match="http:// is not spoken here"):
        address.ways("http://127.0.0.1", 9190)


def test_a_folder_that_was_named_must_have_them(tmp_path: Path):
    with pytest.raises(DeviceError, match=r"no server\.pem"):
        address.listening("127.0.0.1", str(tmp_path))


def test_damaged_certificates_are_named(tmp_path: Path):
    certificates.make(tmp_path)
    (tmp_path / "server.key").write_text("no key")
    found = certificates.credentials(certificates.SERVER, str(tmp_path))
    assert found is not None
    with pytest.raises(DeviceError, match="cannot be used"):
        found.context(listening=True)


# -- clocks ---------------------------------------------------------------------------------------

OTHER_TIMES = {
    "certificate has expired": (2000, 2001),
    "certificate is not yet valid": (2900, 2901),
}
TRUSTING = """
from tilewright.farm import certificates
certificates._meet_itself = lambda found: None
"""


@pytest.fixture(params=OTHER_TIMES)
def other_time(
    request: pytest.FixtureRequest, authority: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> tuple[Path, str]:
    """Certificates of the same authority, for years that are not now; what is wrong with them."""
    first, last = (datetime(year, 1, 1, tzinfo=UTC) for year in OTHER_TIMES[request.param])
    for name in ("ca.pem", "ca.key"):
        (tmp_path / name).write_bytes((authority / name).read_bytes())
    with monkeypatch.context() as clock:
        clock.setattr(certificates, "_validity", lambda: (first, last))
        certificates.make(tmp_path)
    return tmp_path, request.param


@pytest.mark.parametrize("role", [certificates.SERVER, certificates.CLIENT])
def test_a_certificate_that_is_not_valid_now_is_told_before_anything_is_sent(
    other_time: tuple[Path, str], role: str
):
    folder, fault = other_time
    found = certificates.credentials(role, str(folder))
    assert found is not None
    with pytest.raises(
        DeviceError, match=rf"{role}\.pem: {fault}, by this machine's clock"
    ) as told:
        found.context(listening=role == certificates.SERVER)
    assert "Set the clock, or make new certificates" in told.value.way_out


@pytest.mark.sampled(1)
def test_a_server_whose_clock_is_wrong_says_so_and_ends(
    other_time: tuple[Path, str], secure_farm: Farm
):
    folder, fault = other_time
    done = command(
        "rpc_server", "--tracker", secure_farm.address, "--key", "k", "--certificates", str(folder)
    )
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert fault in done.stderr and "Set the clock" in done.stderr


def test_whoever_is_refused_for_the_clock_of_the_other_side_is_told(
    other_time: tuple[Path, str], secure_farm: Farm, monkeypatch: pytest.MonkeyPatch
):
    """By its own clock its certificate is valid."""
    monkeypatch.setattr(certificates, "_meet_itself", lambda found: None)
    for _ in range(3):  # TLS 1.3 may lose the reason
        with pytest.raises(DeviceError, match="does not accept the certificate of this") as told:
            ask(secure_farm.port, str(other_time[0]))
        assert "set the clock there" in told.value.way_out


@pytest.mark.sampled(1)
@pytest.mark.slow
def test_whoever_reaches_a_tracker_of_another_time_is_told(
    other_time: tuple[Path, str], authority: Path
):
    """By the tracker's clock its certificate is valid."""
    folder, fault = other_time
    made = Farm(folder, "127.0.0.1", "--certificates", str(folder), before=TRUSTING)
    try:
        with pytest.raises(DeviceError, match=f"{fault}, by this machine's clock, which says 2"):
            ask(made.port, str(authority))
    finally:
        made.stop()


def test_tls_is_asked_of_who_speaks_plainly(shared_farm: Farm, authority: Path):
    with pytest.raises(DeviceError, match="does not speak TLS.*--certificates none"):
        asyncio.run(summary("tls://127.0.0.1", shared_farm.port, str(authority)))


# -- limits ---------------------------------------------------------------------------------------


@pytest.mark.slow
def test_artefacts_run_with_limits():
    """On files and processes, besides those on memory and time that all trials have."""
    made = board.Board()
    try:
        limits = dict(made._limits)
        assert limits["RLIMIT_CORE"] == 0 and limits["RLIMIT_FSIZE"] < 1 << 40
        assert "RLIMIT_NPROC" in limits
    finally:
        made.close()
    given = (("RLIMIT_FSIZE", 4096), ("RLIMIT_NPROC", 50_000))
    with WorkerPool(1, Options(limits=given)) as pool:
        for name, value in given:
            found = pool.submit(resource.getrlimit, getattr(resource, name), timeout=60).result()
            assert found == (value, value)


# -- strangers that get a connection --------------------------------------------------------------


def places(made: Farm) -> dict[str, int]:
    servers = [p for p in made.started if p.name == "rpc_server"]
    return {"tracker": made.tracker.port, "device": servers[0].port}


def spoken(port: int, first: wire.Message | None, *more: bytes) -> str:
    """What is answered to messages, as the text of an error; "" where it hangs up."""

    async def speak() -> str:
        comm = await plain_comm.connect(f"tcp://127.0.0.1:{port}", None, 10)
        await comm.write({"op": OPERATION, "reply": False})
        sent = [] if first is None else [wire.encoded(first)]
        try:
            for data in (*sent, *more):
                await comm.write(data)
            while True:
                answer = wire.decoded(await comm.read(), "it")
                if isinstance(answer, wire.Refused):
                    return f"{answer.place}: {answer.reason}"
        except OSError:
            return ""
        finally:
            comm.abort()

    return asyncio.run(asyncio.wait_for(speak(), 60))


HELLO = wire.Hello(wire.PROTOCOL, VERSION, "test")
STRANGE: dict[str, Callable[[int], str]] = {
    "speaks protocol 99": lambda port: spoken(port, wire.Hello(99, "9.9", "test")),
    "before Hello": lambda port: spoken(port, wire.Ask()),
    "no message of this protocol": lambda port: spoken(port, HELLO, b"\xff\x00garbage"),
    "it sent no message": lambda port: spoken(
        port, HELLO, msgspec.msgpack.encode({"type": "Eval"})
    ),
}


@pytest.mark.parametrize("place", ["tracker", "device"])
@pytest.mark.parametrize("expected", STRANGE)
def test_what_is_not_understood_is_refused(shared_farm: Farm, place: str, expected: str):
    assert expected in STRANGE[expected](places(shared_farm)[place])
    ask(shared_farm.port, None)  # and it goes on


@pytest.mark.parametrize("message", [wire.Release("x"), wire.Call("eval", {}), wire.Spec])
def test_a_message_for_somebody_else_is_refused(shared_farm: Farm, message: Any):
    if message is wire.Spec:
        message = wire.Spec("llvm", "x", "y", "", (), (), ())
    place = "device" if not isinstance(message, wire.Call) else "tracker"
    assert "not for a" in spoken(places(shared_farm)[place], HELLO, wire.encoded(message))


def test_a_session_calls_nothing_but_what_sessions_have(shared_farm: Farm):
    asked = wire.encoded(wire.Call("os.system", {"command": "true"}))
    assert "no call is named 'os.system'" in spoken(places(shared_farm)["device"], HELLO, asked)


def frame(*parts: bytes) -> bytes:
    """As Dask frames a message of several parts."""
    lengths = struct.pack(f"Q{len(parts)}Q", len(parts), *map(len, parts))
    body = lengths + b"".join(parts)
    return struct.pack("Q", len(body)) + body


MARK = Path(tempfile.gettempdir()) / "tilewright-was-unpickled"


class _Evil:
    def __reduce__(self) -> Any:
        return (open, (str(MARK), "w"))


def raw(*data: bytes) -> Callable[[int], Coroutine[Any, Any, bytes]]:
    async def send(port: int) -> bytes:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for one in data:
            writer.write(one)
        await writer.drain()
        try:
            while await reader.read(1 << 16):  # its own greeting, then the end
                pass
        except ConnectionError:
            pass
        writer.close()
        return b"closed"

    return send


PICKLED = frame(
    msgspec.msgpack.encode({"op": "identity", "x": {"__Pickled__": 1}}),
    msgspec.msgpack.encode({"num-sub-frames": 0, "pickled-obj": pickle.dumps(_Evil())}),
)
RAW = {
    "an enormous message": raw(struct.pack("Q", 1 << 60)),
    "a message of a gigabyte": raw(struct.pack("Q", 1 << 30)),
    "a message of 15 million empty parts": raw(
        struct.pack("QQ", 8 + 8 * 15_000_000, 15_000_000), bytes(1 << 16)
    ),
    "a message of too many parts": raw(frame(*[b""] * 65)),
    "a message of none": raw(frame()),
    "a message with a hole": raw(struct.pack("QQQ", 16, 1, 1 << 30)),
    "what must be unpickled": raw(PICKLED),
    "another protocol": raw(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"),
    "nothing but noise": raw(bytes(range(256)) * 8),
}


@pytest.mark.parametrize("place", ["tracker", "device"])
@pytest.mark.parametrize("what", RAW)
def test_it_hangs_up_on(shared_farm: Farm, place: str, what: str):
    port = places(shared_farm)[place]
    assert asyncio.run(asyncio.wait_for(RAW[what](port), 60)) == b"closed"
    assert not MARK.exists()
    ask(shared_farm.port, None)


HANDLERS = """
import asyncio, json, os, sys
from distributed import Scheduler, Worker

async def main():
    scheduler = Scheduler(host="127.0.0.1", port=0, dashboard=False, dashboard_address=":0")
    await scheduler
    worker = Worker(scheduler.address, host="127.0.0.1", nthreads=1, dashboard_address=":0")
    await worker
    servers = (scheduler, worker)
    print(json.dumps([sorted({*s.handlers, *s.stream_handlers}) for s in servers]), flush=True)
    os._exit(0)

asyncio.run(main())
"""


@pytest.fixture(scope="module")
def dasks() -> dict[str, list[str]]:
    """All that the installed Dask would do for others."""
    done = subprocess.run([sys.executable, "-c", HANDLERS], capture_output=True, text=True)
    names = json.loads(done.stdout.splitlines()[-1])
    assert "terminate" in names[1] and "unregister" in names[0] and len(names[0]) > 50
    return dict(zip(("tracker", "device"), names, strict=True))


@pytest.mark.parametrize("place", ["tracker", "device"])
def test_dasks_own_operations_are_gone(shared_farm: Farm, place: str, dasks: dict[str, list[str]]):
    """Whoever asks for one is cut off before Dask hears of it, and all devices stay."""
    device = f"tcp://127.0.0.1:{places(shared_farm)['device']}"

    async def answer(name: str) -> Any:
        comm = await plain_comm.connect(f"tcp://127.0.0.1:{places(shared_farm)[place]}", None, 20)
        try:
            await comm.write({"op": name, "address": device, "worker": device, "reply": True})
            return await comm.read()
        except OSError:
            return "cut off"
        finally:
            comm.abort()

    async def answers() -> dict[str, Any]:
        return {name: await answer(name) for name in dasks[place] if name != "close"}

    others = {k: v for k, v in asyncio.run(answers()).items() if v != "cut off"}
    if place == "tracker":
        assert others.pop("heartbeat_worker") == {"status": "missing"}
        assert others.pop("register-worker")["status"] == "error"
    assert others == {}
    assert sum(row.total for row in ask(shared_farm.port, None).rows) == 3


# -- who poses as a device ------------------------------------------------------------------------


async def registered(at: str, context: ssl.SSLContext | None, **said: Any) -> str:
    """What a tracker answers to somebody who registers."""
    known = {
        "address": "tcp://127.0.0.1:1", "status": "running", "server_id": "x", "name": "x",
        "extra": {registration.KEY: "k"}, "metrics": {registration.TOKEN: "0" * 32},
    }  # fmt: skip
    comm = await plain_comm.connect(at, context, 20)
    try:
        await comm.write({"op": "register-worker", "reply": False, **(known | said)})
        answer = await comm.read()
        return str(answer.get("message", answer["status"]))
    finally:
        comm.abort()


STRANGE_DEVICES: dict[str, dict[str, Any]] = {
    "a long key": {"extra": {registration.KEY: "k" * 201}},
    "a key of two lines": {"extra": {registration.KEY: "a\nboard 99 99 0"}},
    "no key": {"extra": {}},
    "no token": {"metrics": {}},
    "no address": {"address": "nowhere"},
    "a host that is not there": {"address": "tcp://nowhere.invalid:1"},
    "another scheme": {"address": "tls://127.0.0.1:1"},
    "an address of two lines": {"address": "tcp://127.0.0.1:1\nx"},
}


@pytest.mark.parametrize("what", STRANGE_DEVICES)
def test_what_is_no_device_is_not_registered(shared_farm: Farm, what: str):
    at = f"tcp://127.0.0.1:{shared_farm.port}"
    said = asyncio.run(registered(at, None, **STRANGE_DEVICES[what]))
    assert "does not register as one" in said or "nobody can find it there" in said
    found = ask(shared_farm.port, None)
    assert {row.key for row in found.rows} == {"1080ti", "titanx"}


def test_nobody_takes_the_address_of_a_device_that_lives(shared_farm: Farm):
    device = f"tcp://127.0.0.1:{places(shared_farm)['device']}"
    at = f"tcp://127.0.0.1:{shared_farm.port}"
    assert "another one is there, and lives" in asyncio.run(registered(at, None, address=device))
    found = ask(shared_farm.port, None)
    assert [m.key for m in found.members if m.address == device] == ["1080ti"]


def test_a_clients_certificate_registers_no_device(secure_farm: Farm, authority: Path):
    """The devices' does."""
    for role, said in ((certificates.CLIENT, "one for tuners"), (certificates.SERVER, "OK")):
        own = certificates.credentials(role, str(authority))
        assert own is not None
        at = f"tls://127.0.0.1:{secure_farm.port}"
        context = own.context(listening=False)
        assert said in asyncio.run(registered(at, context, address="tls://127.0.0.1:1"))


def test_signs_of_life_of_somebody_else_do_not_count(shared_farm: Farm):
    async def beat(token: str) -> Any:
        comm = await plain_comm.connect(f"tcp://127.0.0.1:{shared_farm.port}", None, 20)
        try:
            device = f"tcp://127.0.0.1:{places(shared_farm)['device']}"
            metrics = {registration.TOKEN: token}
            await comm.write({"op": "heartbeat_worker", "address": device, "metrics": metrics})
            return await comm.read()
        finally:
            comm.abort()

    assert asyncio.run(beat("0" * 32)) == {"status": "missing"}
    assert asyncio.run(beat("x")) == {"status": "missing"}


@pytest.mark.parametrize("key", ["k" * 201, "a\nboard        99      99    0", ""])
def test_a_server_refuses_a_key_that_cannot_be_one(shared_farm: Farm, key: str):
    done = command("rpc_server", "--tracker", shared_farm.address, "--key", key)
    assert done.returncode == 1 and len(done.stderr.splitlines()) == 1
    assert "1 to 200 characters in one line" in done.stderr


# -- who says nothing ------------------------------------------------------------------------------

SOON = """
from tilewright.farm import bounds
bounds.STRANGER_SECONDS = bounds.VISITOR_SECONDS = 2.0
"""


@pytest.mark.slow
def test_who_says_nothing_is_cut_off(tmp_path: Path, authority: Path):
    """Before the handshake, after it, in the middle of a word; at a device after Hello, too."""
    folders = [tmp_path / name for name in ("plain", "secret")]
    for folder in folders:
        folder.mkdir()
    made = Farm(folders[0], before=SOON)
    secret = Farm(folders[1], "127.0.0.1", "--certificates", str(authority), before=SOON)
    try:
        device = made.serve_at("k", 0, before=SOON)

        async def ends(port: int, *data: bytes) -> None:
            assert await raw(*data)(port) == b"closed"

        async def visitor() -> None:
            line = await opened(f"tcp://127.0.0.1:{device.port}", None, "test")
            with pytest.raises(OSError, match="closed"):
                await line.read()

        async def together() -> None:
            ports = made.port, device.port, secret.port
            said = ((), (b"\x10",), (struct.pack("Q", 400) + b"x",))
            silent = [ends(port, *data) for port in ports for data in said]
            await asyncio.gather(*silent, visitor())

        asyncio.run(asyncio.wait_for(together(), 60))
        assert [row.total for row in ask(made.port, None).rows] == [1]
    finally:
        made.stop()
        secret.stop()


async def _opened(port: int) -> None:
    (await opened(f"tcp://127.0.0.1:{port}", None, "test")).abort()


def test_a_right_visitor_is_let_in(shared_farm: Farm):
    for port in places(shared_farm).values():
        asyncio.run(_opened(port))
