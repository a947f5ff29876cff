"""The name of TVM's template-free scheduler: importing it says what to use instead.

`from tilewright import auto_scheduler` would otherwise report a missing name and nothing else.
"""

from tilewright import __getattr__ as _missing

try:
    _missing("auto_scheduler")
except AttributeError as _error:
    raise ImportError(str(_error)) from None
