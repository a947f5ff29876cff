"""`contrib.ndk.create_shared`: what scripts of TVM hand to `export_library`.

In: nothing.  Out: a name.  Read next: `driver/linking.py`, which links for the target.
"""

from typing import Any

from tilewright.base.errors import ModelError, absent

__all__ = ["create_shared"]


def create_shared(*args: Any, **kwargs: Any) -> None:
    """Pass it to `lib.export_library(path, ndk.create_shared)`, where it changes nothing.

    Raises ModelError when called.
    """
    raise ModelError(
        "contrib.ndk.create_shared", "there are no object files to link by hand",
        "Use lib.export_library(path).",
    )  # fmt: skip


def __getattr__(name: str) -> Any:
    raise absent("contrib.ndk", name, {})
