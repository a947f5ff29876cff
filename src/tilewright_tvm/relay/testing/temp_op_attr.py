"""An attribute of an operator for a while, under TVM's name `relay.testing.temp_op_attr`.

In: an operator's name, an attribute's and its value.  Out: a context in which it is registered.
Read next: `../op_attributes.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright.graph.op import get
from tilewright_tvm.relay import op_attributes as registered


class TempOpAttr:
    """`with TempOpAttr("nn.conv2d", "FTVMLegalize", function):`; what was there comes back after.

    Raises ModelError for an operator that is none.
    """

    @door(ModelError, "TempOpAttr")
    def __init__(self, op_name: str, attr_key: str, attr_value: Any) -> None:
        if (op_name, attr_key) not in registered.ROWLESS:
            op_name = get(op_name).name
        self.op_name, self.attr_key, self.attr_value = op_name, attr_key, attr_value
        self.older_attr: Any = None

    def __enter__(self) -> TempOpAttr:
        self.older_attr = registered.attribute(self.op_name, self.attr_key)
        self._set(self.attr_value)
        return self

    def __exit__(self, *_: object) -> None:
        self._set(self.older_attr)

    def _set(self, value: Any) -> None:
        registered.reset_attribute(self.op_name, self.attr_key)
        if value is not None:
            registered.set_attribute(self.op_name, self.attr_key, value)


__all__ = ["TempOpAttr"]
