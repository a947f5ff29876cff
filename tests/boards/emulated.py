"""Boards with ARM processors, emulated: Debian's Python for them, run by qemu in user mode.

`python tests/boards/emulated.py FOLDER` makes them of Debian's packages and installs nothing: half
a minute.  Tests use them where EMULATED_BOARDS names the folder.
In: a folder.  Out: `boards()`, each of which runs Python.  Read next: `test_boards.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

FOLDER = "EMULATED_BOARDS"
_SECONDS = 600.0
_PACKAGES = (
    "python3.11-minimal", "libpython3.11-minimal", "libpython3.11-stdlib", "libc6", "zlib1g",
    "libexpat1", "libgcc-s1", "libstdc++6", "libffi8", "libssl3", "libbz2-1.0", "liblzma5",
    "libuuid1", "python3-numpy", "libblas3", "liblapack3", "libgfortran5",
)  # fmt: skip


@dataclass(frozen=True)
class Board:
    """name: of its processor; debian, qemu: what these call it; libraries: its folder of them."""

    name: str
    debian: str
    qemu: str
    libraries: str
    target: str

    def root(self, folder: Path) -> Path:
        return folder / self.debian

    def command(self, folder: Path, args: Sequence[object]) -> list[str]:
        """Python on the board."""
        root = self.root(folder)
        there = root / "usr/lib" / self.libraries
        paths = os.pathsep.join(str(there / name) for name in ("blas", "lapack"))
        return [
            str(folder / "qemu" / f"qemu-{self.qemu}-static"), "-L", str(root),
            "-E", f"LD_LIBRARY_PATH={paths}", str(root / "usr/bin/python3.11"), *map(str, args),
        ]  # fmt: skip

    def run(
        self,
        folder: Path,
        args: Sequence[object],
        path: Sequence[object] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run it with these arguments; path: where it imports from, besides numpy."""
        packages = self.root(folder) / "usr/lib/python3/dist-packages"
        known = {"PYTHONPATH": os.pathsep.join(map(str, (*path, packages))), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            self.command(folder, args), capture_output=True, text=True, timeout=_SECONDS,
            env={**os.environ, **known, **(environment or {})},
        )  # fmt: skip


BOARDS = (
    Board("aarch64", "arm64", "aarch64", "aarch64-linux-gnu",
          "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon"),
    Board("armv7", "armhf", "arm", "arm-linux-gnueabihf",
          "llvm -mtriple=armv7l-linux-gnueabihf -mattr=+neon"),
)  # fmt: skip


def made() -> Path | None:
    """The folder that holds them, where the environment names one."""
    folder = Path(os.environ.get(FOLDER, ""))
    return folder if os.environ.get(FOLDER) and (folder / "qemu").is_dir() else None


def make(folder: Path) -> None:
    """Download and unpack.  Raises CalledProcessError where a package cannot be had."""
    folder.mkdir(parents=True, exist_ok=True)
    host = folder / "host"
    subprocess.run(["apt-get", "-qq", "update"], check=False)
    _unpack(host, ["apt-get", "-qq", "-oAPT::Sandbox::User=root"], ["qemu-user-static"])
    (folder / "qemu").mkdir(exist_ok=True)
    for board in BOARDS:
        name = f"qemu-{board.qemu}-static"
        shutil.move(host / "usr/bin" / name, folder / "qemu" / name)
        state = folder / f"{board.debian}.apt"
        for each in ("lists/partial", "cache/archives/partial"):
            (state / each).mkdir(parents=True, exist_ok=True)
        apt = [
            "apt-get", "-qq", "-oAPT::Sandbox::User=root",
            f"-oAPT::Architecture={board.debian}", f"-oAPT::Architectures={board.debian}",
            f"-oDir::State::Lists={state}/lists", "-oDir::State::status=/dev/null",
            f"-oDir::Cache={state}/cache",
        ]  # fmt: skip
        subprocess.run([*apt, "update"], check=False)  # one list of several may be missing
        _unpack(board.root(folder), apt, _PACKAGES)
        shutil.rmtree(state)
    shutil.rmtree(host)


def _unpack(root: Path, apt: Sequence[str], packages: Sequence[str]) -> None:
    root.mkdir(exist_ok=True)
    subprocess.run([*apt, "download", *packages], cwd=root, check=True)
    for file in root.glob("*.deb"):
        subprocess.run(["dpkg", "-x", file.name, "."], cwd=root, check=True)
        file.unlink()


def main() -> None:
    folder = Path(sys.argv[1]).resolve()
    try:
        make(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no emulated boards: {error}")
    for board in BOARDS:
        done = board.run(folder, ["-c", "import numpy; print(numpy.__version__)"])
        if done.returncode:
            sys.exit(f"no emulated boards: {board.name} does not run: {done.stderr[-500:]}")
        print(f"{board.name}: Python with numpy {done.stdout.strip()}")


if __name__ == "__main__":
    main()
