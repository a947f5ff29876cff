"""`_ffi.base.TVMError`: any of Tilewright's errors; how texts of C become Python's.

Read next: `error.py`.
"""

from tilewright_tvm.error import TVMError

__all__ = ["TVMError", "py_str"]

string_types = (str,)


def py_str(x: bytes) -> str:
    """A text of bytes."""
    return x.decode("utf-8")
