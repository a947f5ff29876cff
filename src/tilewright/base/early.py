"""Ctrl-C while the command is still being imported ends it with 130 and without a traceback.

Imported before all else, and it imports next to nothing: `cli/interrupt.py` takes over once that
is there.  Programs that import the package keep Python's handler.
In: how the process was started.  Out: its handler of SIGINT.
"""

import os
import signal
import sys

_COMMAND = "tilewright"
_STOPPED = 130


def is_command(program: str, typed: list[str]) -> bool:
    """Whether a process with this `sys.argv[0]` and `sys.orig_argv` is a command of ours.

    Python calls a module that is still being looked for `-m`: modules inside our packages, of which
    the names of all begin alike, are commands; another package itself may run anybody's script.
    Processes that multiprocessing spawns have the program's name too, but nobody typed it.
    """
    if program != "-m":
        return os.path.basename(program) == _COMMAND and program in typed
    rest = typed[typed.index("-m") + 1 :] if "-m" in typed else []
    package, _, module = "".join(rest[:1]).partition(".")
    return package == _COMMAND or (package.startswith(_COMMAND) and module != "")


def _end(*_: object) -> None:
    os._exit(_STOPPED)  # nothing is open yet; an exception may be dropped, or change on its way


if (
    signal.getsignal(signal.SIGINT) is signal.default_int_handler  # neither ignored nor taken
    and is_command("".join(sys.argv[:1]), sys.orig_argv)
):
    signal.signal(signal.SIGINT, _end)
