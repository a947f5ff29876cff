"""Questions about graphs, under TVM's name `relay.analysis`.

In: expressions.  Out: lists of nodes.  Read next: `graph.py`.
"""

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright.relay.graph.expr import free_vars, post_order

__all__ = ["free_vars", "post_order"]
open_doors(globals(), __all__, ModelError)
