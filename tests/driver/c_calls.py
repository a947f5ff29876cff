"""Libraries of networks by the functions of `tilewright.h`: in this process, in programs in C."""

from __future__ import annotations

import ctypes
import shutil
import subprocess
from pathlib import Path

import numpy as np

from tilewright.driver.c_interface import HEADER

CC, CXX = shutil.which("cc"), shutil.which("c++")
OK, INVALID, WRONG_VERSION, WRONG_THREAD, _, FILE, DEVICE = range(7)


class Tensor(ctypes.Structure):
    _fields_ = (
        ("name", ctypes.c_char_p), ("type", ctypes.c_int), ("rank", ctypes.c_int),
        ("shape", ctypes.POINTER(ctypes.c_int64)), ("bytes", ctypes.c_size_t),
        ("data", ctypes.c_void_p),
    )  # fmt: skip


class Options(ctypes.Structure):
    _fields_ = (("threads", ctypes.c_int), ("device", ctypes.c_int))


class Interface:
    """A library's functions by ctypes; `net` is what `open` gave."""

    def __init__(self, path: Path) -> None:
        self.lib = ctypes.CDLL(str(path))
        for name in ("error", "version", "target"):
            getattr(self.lib, f"tilewright_{name}").restype = ctypes.c_char_p
        self.net = ctypes.c_void_p()

    def __call__(self, name: str, *args: object) -> int:
        return int(getattr(self.lib, f"tilewright_{name}")(*args))

    def open(self, options: Options | None = None) -> int:
        return self("open", 2, options and ctypes.byref(options), ctypes.byref(self.net))

    @property
    def error(self) -> str:
        return str(self.lib.tilewright_error().decode())

    def tensor(self, which: str, index: int = 0) -> Tensor:
        found = Tensor()
        assert self(which, self.net, index, ctypes.byref(found)) == OK, self.error
        return found

    def of(self, which: str, values: np.ndarray) -> Tensor:
        """The tensor that it tells of, at the array's memory."""
        found = self.tensor(which)
        found.data = values.ctypes.data
        return found


def compiled(*args: object, cc: str | None = CC) -> None:
    done = subprocess.run(
        [str(cc), "-Wall", "-Wextra", "-Werror", f"-I{HEADER.parent}", *map(str, args)],
        capture_output=True, text=True, timeout=100,
    )  # fmt: skip
    assert not done.returncode, done.stderr
