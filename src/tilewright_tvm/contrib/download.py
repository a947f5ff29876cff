"""`contrib.download`, with which scripts of TVM fetch models: files that are there are taken.

In: addresses and paths.  Out: paths.  No connection is made.
"""

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError, absent

__all__ = ["download", "download_testdata"]


@door(ModelError)
def download(
    url: str, path: str | os.PathLike[str], overwrite: bool = False, size_compare: bool = False,
    retries: int = 3,
) -> None:  # fmt: skip
    """Check that the file is there.

    overwrite, size_compare, retries: accepted for TVM's spelling
    Raises ModelError, with the address, where it is not.
    """
    if not os.path.isfile(path):
        raise ModelError(
            f"download({url!r})", f"there is no file {os.fspath(path)!r}",
            "Nothing is downloaded: fetch it yourself, and put it there.",
        )  # fmt: skip


@door(ModelError)
def download_testdata(
    url: str, relpath: str, module: str | Sequence[str] | None = None, overwrite: bool = False
) -> Path:
    """Find a file in the folder of test data, `$TEST_DATA_ROOT_PATH` or `~/.tvm_test_data`.

    module: folders in it, around `relpath`
    Raises ModelError, as `download` does, where it is not there.
    """
    root = os.environ.get("TEST_DATA_ROOT_PATH") or Path.home() / ".tvm_test_data"
    folders = [module] if isinstance(module, str) else module or ()
    path = Path(root, *folders, relpath)
    download(url, path, overwrite)
    return path


def __getattr__(name: str) -> Any:
    raise absent("contrib.download", name, {})
