"""The environment variables of Tilewright, all of them, each read here and nowhere else.

Out: their values, read anew at each call.  `docs/environment.md` says what they mean; a test keeps
it complete.
"""

from __future__ import annotations

import os

ASK_AHEAD = "TILEWRIGHT_ASK_AHEAD"
CACHE = "TILEWRIGHT_CACHE"
CERTIFICATES = "TILEWRIGHT_CERTIFICATES"
DEBUG = "TILEWRIGHT_DEBUG"
DEPENDENT_LAUNCH = "TILEWRIGHT_DEPENDENT_LAUNCH"
DUMP = "TILEWRIGHT_DUMP"
KNOWLEDGE = "TILEWRIGHT_KNOWLEDGE"
NUM_THREADS = "TILEWRIGHT_NUM_THREADS"


def ask_ahead() -> bool:
    """Whether a network on a GPU asks for weights before the kernels that read them; by default."""
    return os.environ.get(ASK_AHEAD, "").lower() not in ("off", "0", "no")


def cache() -> str:
    """Where compiled kernels are kept; "" is the platform's cache directory."""
    return os.environ.get(CACHE, "")


def certificates() -> str:
    """The folder with the certificates of a farm; "none": speak plainly; "": not said."""
    return os.environ.get(CERTIFICATES, "")


def debug_level() -> int:
    """0 where it is not set, or no number."""
    text = os.environ.get(DEBUG, "")
    return int(text) if text.isdigit() else 0


def dependent_launch(usual: str = "on") -> str:
    """When a network's kernels may begin: "on", when all blocks of the one before have ended,
    "early", when all of them have begun; "": when it is over.

    usual: where nobody says
    """
    text = os.environ.get(DEPENDENT_LAUNCH, "").lower() or usual
    return "" if text in ("off", "0", "no") else "early" if text == "early" else "on"


def dump_directory() -> str:
    """Where kernels are written after each pass; "": nowhere."""
    return os.environ.get(DUMP, "")


def knowledge() -> str:
    """Folders of knowledge, as a search path; "off": none, not even what ships; "": not said."""
    return os.environ.get(KNOWLEDGE, "")


def num_threads() -> str:
    """Threads of CPU kernels, as given; "": one per core."""
    return os.environ.get(NUM_THREADS, "")


def tracker_host() -> str:
    """Of the farm, where a script does not say; "": not set."""
    return os.environ.get("TVM_TRACKER_HOST", "")


def tracker_port() -> str:
    return os.environ.get("TVM_TRACKER_PORT", "")
