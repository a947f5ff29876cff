"""Matrix instructions of CPUs: the functions of atoms that bring their text.

In: an atom and the module at hand.  Out: the name of a function of the places of the sums and of
both operands, which the module then has.  Read next: `ir/atoms.py`.
"""

from __future__ import annotations

from tilewright.codegen.c_dialect import multiplies
from tilewright.codegen.llvm_text import Module, refusal
from tilewright.ir.atoms import Atom

_DEFINE = """define internal void @{name}(ptr %d, ptr %a, ptr %b) alwaysinline nounwind {{
entry:
{body}  ret void
}}
"""


def own_function(module: Module, atom: Atom) -> str:
    """Define the function unless it was.  A text may begin with what it declares."""
    name = multiplies(atom)
    if name in module.helpers:
        return name
    text = atom.texts.get("llvm")
    if text is None:
        raise refusal(str(atom), "it has no text in LLVM")
    lines = text.splitlines(keepends=True)
    for line in lines:
        if line.startswith("declare "):
            module.declarations[line.partition("@")[2].partition("(")[0]] = line.strip()
    body = "".join(line for line in lines if not line.startswith("declare "))
    module.helpers[name] = _DEFINE.format(name=name, body=body)
    return name
