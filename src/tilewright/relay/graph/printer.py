"""Graphs as text: one line per call with its attributes and type; fused groups are printed once.

In: expressions, functions, modules.  Out: readable text, in which equal structure gives equal
lines.
Read next: `expr.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright.relay.graph.expr import (
    Call,
    Constant,
    Expr,
    Function,
    IRModule,
    Tuple,
    TupleGetItem,
    Var,
    post_order,
)
from tilewright.relay.graph.later import Later

WIDTH = 120  # a longer list of parameters is printed one a line


def module_text(mod: IRModule) -> str:
    """All functions of a module; each distinct fused group once, in front of its first user."""
    parts: list[str] = []
    groups: dict[str, str] = {}
    for name, function in mod.functions.items():
        for node in post_order(function.body):
            if isinstance(node, Call) and isinstance(node.op, Function):
                _name_group(node.op, groups, parts)
        parts.append(_function_text(f"def @{name}", function, groups))
    return "\n\n".join(parts)


def expression_text(expr: Expr) -> str:
    """One expression: a function with its body, or the calls that make a value."""
    if isinstance(expr, Function):
        return module_text(IRModule({str(expr.attrs.get("name", "main")): expr}))
    if isinstance(expr, (Var, Constant)):
        return _leaf(expr)
    return "\n".join(_body_lines(expr, {}))


def structural_key(function: Function) -> str:
    """Text that is equal for functions of equal structure, whatever their names."""
    return _function_text("fn", function, {}, names=[f"p{k}" for k in range(len(function.params))])


def _name_group(function: Function, groups: dict[str, str], parts: list[str]) -> None:
    key = structural_key(function)
    if key in groups:
        return
    base = str(function.attrs.get("name", "fn"))
    used = set(groups.values())
    name, k = base, 0
    while name in used:
        k += 1
        name = f"{base}_{k}"
    groups[key] = name
    parts.append(_function_text(f"fused @{name}", function, groups))


def _function_text(
    head: str, function: Function, groups: dict[str, str], names: list[str] | None = None
) -> str:
    shown = names or [p.name_hint for p in function.params]
    listed = [
        f"%{n}: {p.checked_type}" if p.is_typed else f"%{n}"
        for n, p in zip(shown, function.params, strict=True)
    ]
    params = ", ".join(listed)
    if len(params) > WIDTH:
        params = "".join(f"\n    {text}," for text in listed) + "\n"
    renamed = dict(zip(function.params, shown, strict=True))
    lines = "\n".join(f"  {line}" for line in _body_lines(function.body, groups, renamed))
    return f"{head}({params}){_type_text(function.body, ' -> ')} {{\n{lines}\n}}"


def _body_lines(
    body: Expr, groups: dict[str, str], renamed: dict[Var, str] | None = None
) -> list[str]:
    names: dict[Expr, str] = {v: f"%{n}" for v, n in (renamed or {}).items()}
    lines: list[str] = []
    count = 0
    for node in post_order(body):
        if isinstance(node, Call):
            text = f"{_call_text(node, names, groups)};{_type_text(node, '  // ')}"
            names[node] = f"%{count}"
            count += 1
            lines.append(text if node is body else f"{names[node]} = {text}")
        elif isinstance(node, Tuple):
            names[node] = f"({', '.join(names[f] for f in node.fields)})"
        elif isinstance(node, TupleGetItem):
            names[node] = f"{names[node.tuple_value]}.{node.index}"
        elif isinstance(node, Later):
            names[node] = f"%{count}"
            count += 1
            read = ", ".join(names[p] for p in node.parts)
            text = f"{node.error.place.removeprefix('relay.')}({read});{_type_text(node, '  // ')}"
            lines.append(text if node is body else f"{names[node]} = {text}")
        elif node not in names:
            names[node] = _leaf(node)
    if not isinstance(body, (Call, Later)):
        lines.append(names[body])
    return lines


def _type_text(node: Expr, lead: str) -> str:
    """The type behind `lead`; nothing where it is not known yet."""
    if node.waits:
        return f"{lead}what values decide" if isinstance(node, Later) else ""
    return f"{lead}{node.checked_type}"


def _call_text(node: Call, names: dict[Expr, str], groups: dict[str, str]) -> str:
    args = [names[a] for a in node.args]
    if isinstance(node.op, Function):
        name = groups.get(structural_key(node.op), node.op.attrs.get("name", "fn"))
        return f"@{name}({', '.join(args)})"
    args += [f"{k}={_attr(v)}" for k, v in node.attrs.items() if v != node.op.attrs.get(k)]
    args += [f"{k}={_attr(v)}" for k, v in node.attrs.derived.items()]
    return f"{node.op.name}({', '.join(args)})"


def _attr(value: Any) -> str:
    if isinstance(value, tuple):
        return f"[{', '.join(map(_attr, value))}]"
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _leaf(node: Expr) -> str:
    if isinstance(node, Var):
        return f"%{node.name_hint}"
    if isinstance(node, Constant):
        if node.data.size == 1:
            return f"{node.data.reshape(-1)[0]!s}{list(node.data.shape) or ''}"
        return f"const({node.checked_type})"
    return "fn" if isinstance(node, Function) else type(node).__name__
