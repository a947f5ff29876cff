"""Commands under the names TVM users know: `python -m tilewright_tvm.exec.rpc_tracker` and others.

In: a command line.  Read next: `farm/command.py`.
"""

from typing import Any

from tilewright_tvm.elsewhere import find


def __getattr__(name: str) -> Any:
    return find(__name__, name, {})
