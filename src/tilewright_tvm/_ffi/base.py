"""`_ffi.base.TVMError`: any of Tilewright's errors.  Read next: `error.py`."""

from tilewright_tvm.error import TVMError

__all__ = ["TVMError"]
