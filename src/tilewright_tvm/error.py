"""Errors under the names that TVM's scripts catch: `error.TVMError` is any of Tilewright's, what
`relay.parse` refuses is a `DiagnosticError`."""

from tilewright.base.errors import ModelError, TilewrightError

TVMError, DiagnosticError = TilewrightError, ModelError

__all__ = ["DiagnosticError", "TVMError"]
