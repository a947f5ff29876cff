"""Ctrl-C ends any command with exit code 130, at any moment and without a traceback."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
import weakref
from pathlib import Path

import pytest

import tilewright
from tilewright.base.early import is_command
from tilewright.cli.interrupt import STOPPED, heard

SOURCE = str(Path(tilewright.__file__).parents[1])


class Thing:
    """Something that can be referred to weakly."""


def press() -> None:
    signal.raise_signal(signal.SIGINT)


def in_a_destructor() -> None:
    class Dying:
        def __del__(self) -> None:
            press()

    Dying()


def in_a_weakref_callback() -> None:
    thing = Thing()
    kept = weakref.ref(thing, lambda _: press())
    del thing
    assert kept() is None


def in_what_calls_it_something_else() -> None:
    try:
        press()
    except KeyboardInterrupt:
        raise ImportError("a library could not be loaded") from None


def in_what_swallows_it_and_fails() -> None:
    try:
        press()
    except BaseException:
        sys.exit(1)


@pytest.fixture(autouse=True)
def ctrl_c_is_not_ignored():
    """As it is where the tests run in the background."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


MOMENTS = (
    press, in_a_destructor, in_a_weakref_callback, in_what_calls_it_something_else,
    in_what_swallows_it_and_fails,
)  # fmt: skip


@pytest.mark.parametrize("moment", MOMENTS, ids=lambda m: m.__name__)
def test_it_is_heard_wherever_it_arrives(moment, capsys):
    went_on = False

    def command() -> None:
        nonlocal went_on
        moment()
        end = time.monotonic() + 10
        while time.monotonic() < end:
            pass
        went_on = True

    with pytest.raises(SystemExit) as ended:
        heard(command, ends_process=False)
    assert ended.value.code == STOPPED and not went_on
    assert capsys.readouterr().err == ""


def test_other_dropped_exceptions_are_shown_and_other_errors_are_theirs(monkeypatch):
    told = []
    monkeypatch.setattr(sys, "unraisablehook", lambda what: told.append(what.exc_type))

    class Dying:
        def __del__(self) -> None:
            raise ValueError

    def command() -> None:
        Dying()
        raise KeyError("x")

    with pytest.raises(KeyError):
        heard(command, ends_process=False)
    assert told == [ValueError]


def test_handlers_are_as_they_were():
    before = [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM)]
    heard(lambda: None, ends_process=False)
    with pytest.raises(SystemExit):
        heard(press, ends_process=False)
    assert [signal.getsignal(n) for n in (signal.SIGINT, signal.SIGALRM)] == before


def test_a_command_in_the_background_goes_on_ignoring_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        heard(press, ends_process=False)
    finally:
        signal.signal(signal.SIGINT, before)


COMMANDS = {
    "tune": ["tune", "mlp", "--trials", "64", "--log", "log.jsonl"],
    "compile": ["compile", "mlp", "-o", "net.tar"],
    "bench": ["bench", "resnet-18"],
    "records": ["records", "log.jsonl"],
}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("name", COMMANDS)
@pytest.mark.parametrize("after", [0.0, 0.7])
def test_a_command_ends_from_its_first_moments_on(name, after, tmp_path):
    """Begun where the package is imported, which no handler can be in front of."""
    begin = "import tilewright.cli; print('begun', flush=True); tilewright.cli.main()"
    (tmp_path / "log.jsonl").touch()
    process = subprocess.Popen(
        [sys.executable, "-c", begin, *COMMANDS[name]], cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True,
        env=os.environ | {"TILEWRIGHT_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    try:
        assert process.stdout is not None and process.stdout.readline() == "begun\n"
        time.sleep(after + 0.05)
        if process.poll() is None:
            process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert "Traceback" not in err and "Exception ignored" not in err
    done = name == "records"  # of an empty log, which it refuses soon
    # Python's own end, which follows the command's, hears nothing: the system ends it there.
    ended = (0, 1, -signal.SIGINT) if done else ()
    assert process.returncode in (STOPPED, *ended)


# Of the process's own: presses Ctrl-C where the n-th module is looked for, counted from where
# Python's own handler, of which a traceback comes, is no longer the one in force.
PRESSER = """
import os, signal, sys
class Presser:
    left = int(os.environ["PRESS_AT"])
    def find_spec(self, name, path=None, target=None):
        if signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            self.left -= 1
            if self.left == 0:
                os.kill(os.getpid(), signal.SIGINT)
sys.meta_path.insert(0, Presser())
"""
SCRIPT = "import sys; from tilewright.cli import main; sys.exit(main())"
STARTS = {
    "tilewright": ["tilewright", "--help"],
    "-m tilewright": ["-m", "tilewright", "--help"],
    "-m tvmc": ["-m", "tilewright.driver.tvmc", "--help"],
    "-m rpc_tracker": ["-m", "tilewright_tvm.exec.rpc_tracker", "--port", "-1"],
}


def begun(folder: Path, start: list[str], at: int) -> subprocess.CompletedProcess[str]:
    (folder / "sitecustomize.py").write_text(PRESSER)
    (folder / "tilewright").write_text(SCRIPT)
    path = os.pathsep.join([str(folder), SOURCE])
    return subprocess.run(
        [sys.executable, *start], cwd=folder, capture_output=True, text=True, timeout=120,
        env=os.environ | {"PYTHONPATH": path, "PRESS_AT": str(at)},
    )  # fmt: skip


@pytest.mark.sampled(12)
@pytest.mark.slow
@pytest.mark.parametrize("at", [1, 2, 4, 8, 16, 32, 64])
@pytest.mark.parametrize("start", STARTS)
def test_a_command_that_is_still_imported_ends_quietly(start, at, tmp_path):
    """The n-th module from its first lines on, so no moment hangs on a clock."""
    done = begun(tmp_path, STARTS[start], at)
    assert (done.returncode, done.stdout, done.stderr) == (STOPPED, "", "")


@pytest.mark.parametrize(
    ("program", "typed", "whether"),
    [
        ("/bin/tilewright", ["python", "/bin/tilewright", "tune"], True),
        ("-m", ["python", "-X", "dev", "-m", "tilewright"], True),
        ("-m", ["python", "-m", "tilewright_tvm.exec.rpc_server"], True),
        ("/bin/tilewright", ["python", "-c", "from multiprocessing.spawn import"], False),
        ("-m", ["python", "-m", "mine.program", "-m", "tilewright"], False),
        ("-m", ["python", "-m", "tilewright_more"], False),
        ("mine.py", ["python", "mine.py", "tilewright"], False),
        ("-c", ["python", "-c", "import tilewright"], False),
        ("", [], False),
    ],
)
def test_other_programs_keep_their_handler(program, typed, whether):
    assert is_command(program, typed) is whether
