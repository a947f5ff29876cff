"""Masked stores of one known lane, written as what they are: the store of one element.

In: a module of LLVM, as text, after its passes.  Out: the same with such stores replaced.  LLVM 22
writes too many bytes for them on processors with AVX-512: where the vector is a truncated one, it
stores the element before its truncation, over the neighbours.  Read next: `llvm.py`.
"""

from __future__ import annotations

import re

MENDED = "stores of one lane"  # part of what a kept object is known by: older ones may be wrong
_STORE = re.compile(
    r"^(?P<indent> *)(?:tail )?call void @llvm\.masked\.store\.\S+"
    r"\((?P<vector><\d+ x (?P<element>\w+)>) (?P<value>.+), "
    r"ptr (?P<attributes>[^%@]*)(?P<to>[%@].*), "
    r"<\d+ x i1> <(?P<mask>i1 (?:true|false)(?:, i1 (?:true|false))+)>\)",
    re.MULTILINE,
)
_ALIGNMENT = re.compile(r"align (\d+)")


def has_masked_stores(text: str) -> bool:
    return "@llvm.masked.store." in text


def with_lanes_apart(text: str) -> str:
    """The text, each masked store of one constant lane made a store of its element."""
    made = 0

    def apart(store: re.Match[str]) -> str:
        nonlocal made
        lanes = [lane.endswith("true") for lane in store["mask"].split(", ")]
        if sum(lanes) != 1:
            return store[0]
        made += 1
        lane, element, name = lanes.index(True), store["element"], f"%one.lane{made}"
        indent, vector = store["indent"], f"{store['vector']} {store['value']}"
        aligned = _ALIGNMENT.search(store["attributes"])
        # What the vector promises holds for its first element; others are aligned as elements are.
        align = f", align {aligned[1]}" if aligned and (lane == 0 or aligned[1] == "1") else ""
        return (
            f"{indent}{name} = extractelement {vector}, i64 {lane}\n"
            f"{indent}{name}.to = getelementptr {element}, ptr {store['to']}, i64 {lane}\n"
            f"{indent}store {element} {name}, ptr {name}.to{align}"
        )

    return _STORE.sub(apart, text)
