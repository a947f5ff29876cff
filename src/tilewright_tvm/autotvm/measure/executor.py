"""`autotvm.measure.executor`: what runs functions elsewhere and gives futures, by AutoTVM's names.

In: functions.  Out: futures of what they give.  Read next: `local_executor.py`; what measures
candidates here is `measure/local.py`.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from tilewright.base.errors import absent

__all__ = ["ExecutionError", "Executor", "Future", "FutureError", "TimeoutError"]


class FutureError(RuntimeError):
    """A future gives no result."""


class TimeoutError(FutureError):  # as AutoTVM calls it
    """The deadline passed before there was a result."""


class ExecutionError(FutureError):
    """The process ended without a result."""


class Future(ABC):
    """A result that may not be there yet."""

    @abstractmethod
    def done(self) -> bool:
        """Whether `get` answers at once."""

    @abstractmethod
    def get(self, timeout: float | None = None) -> Any:
        """The result.  timeout: seconds to wait, then TimeoutError; None: as long as it takes"""


class Executor(ABC):
    """Subclass it and define `submit`."""

    @abstractmethod
    def submit(self, func: Callable[..., Any], *args: Any, **kwargs: Any) -> Future:
        """Call `func(*args, **kwargs)` some time; its future."""


def __getattr__(name: str) -> Any:
    raise absent("autotvm.measure.executor", name, {})
