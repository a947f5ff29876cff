"""`relay.qnn.transform`: what TVM's scripts run on quantised networks before they build them.

A quantised operator is written in plain operators when it is made (`arithmetic.py`), so no module
holds one that is still to be rewritten: both passes give the module back.
"""

from tilewright.base.doors import open_doors
from tilewright.base.errors import ModelError
from tilewright_tvm.relay.transform.transform import RelayPass


class CanonicalizeOps(RelayPass):
    """Quantised operators are plain ones as soon as they are made: this gives the module back."""


class Legalize(RelayPass):
    """No target has quantised operators of its own: this gives the module back."""


__all__ = ["CanonicalizeOps", "Legalize"]
open_doors(globals(), __all__, ModelError)
