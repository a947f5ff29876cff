"""Arrays behind a text, `#[metadata]`, in TVM's form: JSON whose arrays are bytes in base64.

In: constants.  Out: text, and constants again.  What is read may come from anyone: nothing is
larger than its text.  Read next: `runtime/network/param_dict.py` (an array as bytes).
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from tilewright.base.errors import DeviceError, ModelError
from tilewright.graph.expr import Constant
from tilewright.runtime.network.param_dict import array_of_bytes, bytes_of_array

KEY = "relay.Constant"
_WAY_OUT = "Give the whole text that astext(show_meta_data=True) has printed."


def metadata_text(constants: Sequence[Constant]) -> str:
    """What follows a text that has `meta[relay.Constant][k]`; empty where there are none."""
    if not constants:
        return ""
    count = len(constants)
    nodes: list[dict[str, Any]] = [
        {"type_key": ""},
        {"type_key": "Map", "keys": [KEY], "data": [2]},
        {"type_key": "Array", "data": list(range(3, 3 + count))},
        *(
            {
                "type_key": KEY,
                "attrs": {"_checked_type_": "0", "data": str(k), "span": "0"},
            }
            for k in range(count)
        ),
    ]
    held = [base64.b64encode(bytes_of_array(c.data)).decode() for c in constants]
    graph = {"root": 1, "nodes": nodes, "b64ndarrays": held, "attrs": {"tvm_version": "0.8.0"}}
    return f"\n\n#[metadata]\n{json.dumps(graph, indent=1)}"


def read_metadata(text: str) -> Mapping[str, Sequence[Any]]:
    """The constants by kind and number.  Raises ModelError for text that is no such thing."""
    if not text.strip():
        return {}
    try:
        graph = json.loads(text)
        nodes, held = graph["nodes"], graph.get("b64ndarrays", [])
        root = nodes[graph["root"]]
        at = dict(zip(root["keys"], root["data"], strict=True))
        listed = nodes[at[KEY]]["data"] if KEY in at else []
        places = [int(nodes[k]["attrs"]["data"]) for k in listed]
        arrays = [base64.b64decode(held[k], validate=True) for k in places]
    except (ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        raise ModelError("#[metadata]", f"it is damaged ({error!s:.80})", _WAY_OUT) from None
    try:
        return {KEY: [Constant(array_of_bytes(a)) for a in arrays]}
    except DeviceError as error:
        raise ModelError("#[metadata]", error.reason, _WAY_OUT) from None


def referred(tables: Sequence[Mapping[str, Sequence[Any]]], reference: str) -> Constant:
    """What `meta[kind][k]` is, in the first table that has it.  Raises ModelError."""
    kind, _, number = reference.removeprefix("meta[").removesuffix("]").partition("][")
    if kind != KEY:
        raise ModelError(reference, f"a {kind} is not read", "Constants are: meta[relay.Constant].")
    for table in tables:
        if len(number) < 10 and int(number) < len(table.get(kind, ())):
            held = table[kind][int(number)]
            return held if isinstance(held, Constant) else Constant(held)
    raise ModelError(
        reference, "the text does not hold that constant",
        "Print with astext(show_meta_data=True), or give init_meta_table=.",
    )  # fmt: skip
