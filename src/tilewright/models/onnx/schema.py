"""What one operator of an ONNX file may look like.

In: nothing.  Out: `Schema`.  Read next: `checks.py`, which compares nodes with it; `foreign.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Schema:
    """One operator in one version.

    types:    of each attribute, as numbers of AttributeProto
    required: attributes
    inputs, outputs: least and greatest number of them
    needed:   which inputs may not be left out
    accepts:  element types of each input, in this version or the newest; the last row is that of
              all further ones; no rows where any type will do
    """

    types: Mapping[str, int]
    required: tuple[str, ...]
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    needed: tuple[bool, ...]
    accepts: tuple[frozenset[str], ...]
