"""What is true of integer expressions wherever they are evaluated: sums, equal lanes, risks.

In: expressions of one program.  Out: `Linear` forms over numbered slots, kept by identity, so that
each expression is looked at once however often an unrolled loop repeats it.
Read next: `llvm_index.py`.
"""

from __future__ import annotations

from tilewright.ir.expr import Expr, free_variables, rebuild

# constant, sum of (slot in `Facts.slots`, coefficient), step from one lane to the next
Linear = tuple[int, tuple[tuple[int, int], ...], int]

EXACT_OPS = frozenset(("var", "const", "add", "sub", "mul", "floordiv", "floormod", "min", "max"))


class Facts:
    """What is true of expressions wherever they are evaluated; kept per program.

    Tables are keyed by identity, the fastest key; `_alive` keeps every key from being reused.
    slots: the expressions that sums are made of, numbered in the order they were met
    """

    def __init__(self) -> None:
        self.slots: list[Expr] = []
        self._alive: list[Expr] = []
        self._slot: dict[int, int] = {}
        self._linear: dict[int, Linear | None] = {}
        self._uniform: dict[int, Expr | None] = {}
        self._loads: dict[int, bool] = {}
        self._risky: dict[int, bool] = {}
        self._dependents: dict[int, list[int]] = {}

    def slot(self, atom: Expr) -> int:
        found = self._slot.get(id(atom))
        if found is None:
            found = self._slot[id(atom)] = len(self.slots)
            self.slots.append(atom)
            if atom.op != "var":
                for v in free_variables(atom):
                    self._dependents.setdefault(self.slot(v), []).append(found)
        return found

    def dependents(self, variable: int) -> list[int]:
        """Slots of what is computed from the variable in this slot."""
        return self._dependents.get(variable, [])

    def linear(self, node: Expr) -> Linear | None:
        """An integer expression as a sum; scalars always have one, vectors if lanes are a ramp."""
        key = id(node)
        if key in self._linear:
            return self._linear[key]
        self._alive.append(node)
        found = self._linear[key] = self._find_linear(node)
        return found

    def uniform(self, node: Expr) -> Expr | None:
        """The scalar that every lane of `node` holds, if its form shows that they are equal."""
        if node.lanes == 1:
            return node
        key = id(node)
        if key in self._uniform:
            return self._uniform[key]
        self._alive.append(node)
        found = self._uniform[key] = self._find_uniform(node)
        return found

    def loads(self, node: Expr) -> bool:
        found = self._loads.get(id(node))
        if found is None:
            self._alive.append(node)
            found = self._loads[id(node)] = node.op == "load" or any(map(self.loads, node.args))
        return found

    def risky(self, node: Expr) -> bool:
        """Whether evaluating `node` where its value is not wanted could fault."""
        found = self._risky.get(id(node))
        if found is None:
            self._alive.append(node)
            divides = node.op in ("floordiv", "floormod") and not node.dtype.is_float
            found = node.op == "load" or any(map(self.risky, node.args))
            found = self._risky[id(node)] = found or (divides and not self._constant(node.args[1]))
        return found

    def is_index(self, node: Expr) -> bool:
        """Whether 64-bit arithmetic gives its value; what comes from memory wraps at its width."""
        if not node.dtype.is_index or self.loads(node):
            return False
        return node.op in EXACT_OPS or (node.op == "cast" and node.args[0].dtype.is_index)

    def _constant(self, node: Expr) -> bool:
        scalar = self.uniform(node)
        return scalar is not None and scalar.op == "const" and scalar.attr != 0

    def _find_uniform(self, node: Expr) -> Expr | None:
        if node.op == "broadcast":
            return node.args[0]
        if node.op == "ramp" or not node.args:
            return None
        args = tuple(s for a in node.args if (s := self.uniform(a)) is not None)
        return rebuild(node, args) if len(args) == len(node.args) else None

    def _find_linear(self, node: Expr) -> Linear | None:
        op, args = node.op, node.args
        if op == "const":
            return int(node.attr), (), 0
        if op == "broadcast":
            return self.linear(args[0])
        exact = node.dtype.is_index  # what wraps is no sum of its parts
        if op == "cast" and exact and args[0].dtype.is_index:
            return self.linear(args[0])
        if op in ("add", "sub", "mul", "ramp") and exact:
            a, b = self.linear(args[0]), self.linear(args[1])
            if a is None or b is None:
                return None
            if op == "ramp":
                if not b[1]:
                    return a[0], a[1], b[0]
            elif op != "mul":
                return _merge(a, b, 1 if op == "add" else -1)
            elif not b[1] and not b[2]:
                return _merge((0, (), 0), a, b[0])
            elif not a[1] and not a[2]:
                return _merge((0, (), 0), b, a[0])
        return (0, ((self.slot(node), 1),), 0) if node.lanes == 1 else None


def _merge(a: Linear, b: Linear, scale: int) -> Linear:
    merged = dict(a[1])
    for slot, k in b[1]:
        merged[slot] = merged.get(slot, 0) + scale * k
    terms = tuple((s, k) for s, k in merged.items() if k)
    return a[0] + scale * b[0], terms, a[2] + scale * b[2]
