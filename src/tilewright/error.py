"""Errors under the name that TVM's scripts catch: `error.TVMError` is any of Tilewright's."""

from tilewright.base.errors import TilewrightError

TVMError = TilewrightError

__all__ = ["TVMError"]
