"""Ctrl-C, heard from the first moment of a command to its end, wherever it arrives.

In: what the command does.  Out: exit code 130.  Python raises KeyboardInterrupt between any two
lines of the main thread.  Inside a destructor, or a callback of a library, it drops it with a
message; there it is raised again a moment later.  Read next: `app.py`.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Callable
from typing import Any

STOPPED = 130
_AGAIN_SECONDS = 0.01  # until it is raised again; destructors are short


def heard(command: Callable[[], None], ends_process: bool) -> None:
    """Run `command`; after Ctrl-C it exits with 130, whatever became of the exception.

    ends_process: nothing follows but the end of the process, where Ctrl-C ends it at once
    """
    ours = threading.current_thread() is threading.main_thread()
    if not ours or signal.getsignal(signal.SIGINT) in (signal.SIG_IGN, None):
        command()
        return
    interrupted = False

    def interrupt(*_: object) -> None:
        nonlocal interrupted
        interrupted = True
        raise KeyboardInterrupt

    def dropped(what: Any) -> None:
        if not issubclass(what.exc_type, KeyboardInterrupt):
            hook(what)
        elif interrupted:
            signal.setitimer(signal.ITIMER_REAL, _AGAIN_SECONDS)

    before = {n: signal.signal(n, interrupt) for n in (signal.SIGINT, signal.SIGALRM)}
    hook, sys.unraisablehook = sys.unraisablehook, dropped
    try:
        command()
    except SystemExit as ended:
        if interrupted and ended.code not in (None, 0):  # its error may follow from the interrupt
            sys.exit(STOPPED)
        raise
    except BaseException as error:
        if not interrupted and not isinstance(error, KeyboardInterrupt):
            raise
        sys.exit(STOPPED)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        for number, handler in before.items():
            signal.signal(number, handler)
        sys.unraisablehook = hook
        if ends_process:
            signal.signal(signal.SIGINT, lambda *_: os._exit(STOPPED))
