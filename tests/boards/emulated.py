"""Boards with ARM processors, emulated: Debian's Python for them, run by qemu in user mode.

`python tests/boards/emulated.py FOLDER` makes them of Debian's packages and, for a farm's server,
of wheels; it installs nothing: half a minute.  Tests use them where EMULATED_BOARDS names the
folder.
In: a folder.  Out: `BOARDS`, each of which runs Python.  Read next: `test_boards.py`.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import venv
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


# Of a server, beside numpy.  pip reads conditions of dependencies for the Python that runs it, so
# what Python 3.11 needs and newer ones do not is named here.
_WHEELS = ("distributed", "msgspec", "importlib_metadata")
# Python of a board as one file, which starts processes of its own by that name.
_LAUNCHER = """\
#!/bin/sh
root=${{0%/usr/bin/python3}}
there=$root/usr/lib/{libraries}
exec "${{root%/*}}/qemu/qemu-{qemu}-static" -L "$root" -0 "$0" \\
  -E "LD_LIBRARY_PATH=$there/blas:$there/lapack" "$root/usr/bin/python3.11" "$@"
"""


@dataclass(frozen=True)
class Board:
    """name: of its processor; debian, qemu: what these call it; libraries: its folder of them.

    wheels: for which platforms there are some that it can use
    """

    name: str
    debian: str
    qemu: str
    libraries: str
    target: str
    wheels: tuple[str, ...] = ()

    def root(self, folder: Path) -> Path:
        return folder / self.debian

    def python(self, folder: Path) -> Path:
        return self.root(folder) / "usr/bin/python3"

    def packages(self, folder: Path) -> Path:
        """What a farm's server needs besides numpy; absent where it could not be had."""
        return self.root(folder) / "packages"

    def run(
        self,
        folder: Path,
        args: Sequence[object],
        path: Sequence[object] = (),
        environment: Mapping[str, str] | None = None,
    ) -> subprocess.CompletedProcess[str]:
        """Run its Python with these arguments; path: where it imports from, besides numpy."""
        known = {"PYTHONPATH": os.pathsep.join(map(str, path)), "OMP_NUM_THREADS": "1"}
        return subprocess.run(
            [self.python(folder), *map(str, args)], capture_output=True, text=True,
            timeout=_SECONDS, env={**os.environ, **known, **(environment or {})},
        )  # fmt: skip


BOARDS = (
    Board("aarch64", "arm64", "aarch64", "aarch64-linux-gnu",
          "llvm -mtriple=aarch64-linux-gnu -mcpu=cortex-a72 -mattr=+neon",
          ("manylinux2014_aarch64", "manylinux_2_28_aarch64")),
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
        launcher = _LAUNCHER.format(libraries=board.libraries, qemu=board.qemu)
        board.python(folder).write_text(launcher)
        board.python(folder).chmod(0o755)
    shutil.rmtree(host)


def add_wheels(folder: Path) -> None:
    """What a server needs, for boards that have wheels; where it cannot be had, that is said."""
    home = folder / "pip"
    for board in (b for b in BOARDS if b.wheels):
        to = board.packages(folder)
        pip = [
            home / "bin/python", "-m", "pip", "install", "-q", "--target", to,
            "--only-binary=:all:", "--python-version=3.11",
            *(f"--platform={name}" for name in board.wheels), *_WHEELS,
        ]  # fmt: skip
        try:
            venv.create(home, with_pip=True)
            subprocess.run(pip, check=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(to, ignore_errors=True)
            print(f"{board.name}: tests of a farm's server are skipped, no packages: {error}")
    shutil.rmtree(home, ignore_errors=True)


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
        add_wheels(folder)
    except (OSError, subprocess.CalledProcessError) as error:
        sys.exit(f"no emulated boards: {error}")
    for board in BOARDS:
        done = board.run(folder, ["-c", "import numpy; print(numpy.__version__)"])
        if done.returncode:
            sys.exit(f"no emulated boards: {board.name} does not run: {done.stderr[-500:]}")
        print(f"{board.name}: Python with numpy {done.stdout.strip()}")


if __name__ == "__main__":
    main()
