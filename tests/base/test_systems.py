"""Systems that the package does not run on are told so where it is imported."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.parametrize(("system", "told"), [("win32", "WSL2"), ("darwin", "a Linux machine")])
def test_an_import_elsewhere_is_one_error_with_a_way_out(system: str, told: str) -> None:
    script = f"import sys; sys.platform = {system!r}; import tilewright"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    last = done.stderr.strip().splitlines()[-1]
    assert done.returncode == 1 and "import tilewright: it is made for Linux" in last
    assert told in last and "During handling" not in done.stderr
