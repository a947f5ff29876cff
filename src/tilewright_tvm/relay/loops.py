"""`relay.loops`: loops by TVM's name.

In: functions of Python.  Out: a function of graph values.  Read next: `graph/functions/dynamic.py`.
"""

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.graph.functions.dynamic import while_loop

__all__ = ["while_loop"]
open_doors(globals(), __all__, ModelError)
