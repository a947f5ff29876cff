"""Slices of keys that a mask hides from all rows of a block: they are brought, but not multiplied.

In: a kernel with a running softmax, whose scores are chosen by where keys and rows are, as a prompt
over a cache has it: `key < row + position`, or the same by `<=`, `>`, `>=` or `not`.  Out: the same
with that part of its loop over slices under a condition, which is one for all threads of a block.
Read next: `running.py`, which makes such loops; `unseen_keys.py`, of scores in shared memory.

rewrite:  for s: {copies; M = max(M, select(key(s) < row, score, lowest)); T += exp(.. - M); ..}
          ->  for s: {copies; if (least key(s) < last row, or the first key is not seen by all): ..}

A hidden score is the lowest number of its type, far below all others, so its exponential is 0, and
sums stay what they are, once a row has seen a key.  Those of the first slice are seen, where that
is asked for at run time; with a second mask, inside the first or added, nobody knows, and all
slices are multiplied.  Numbers that are not finite, in keys and values that no row sees, are
left alone so, where 0 times them would be no number.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.loops import loop_ranges
from tilewright.ir.stmt import (
    Allocate,
    Buffer,
    Exchange,
    For,
    If,
    Kernel,
    LoadRows,
    Mma,
    Seq,
    Stmt,
    Store,
    children,
    lane,
    map_children,
    seq,
    statements,
)

LOWEST = -1e30  # a hidden score is less: no score of a product of floats comes near
BLOCKS = ("blockIdx.x", "blockIdx.y", "blockIdx.z")


def skip_unseen(kernel: Kernel) -> Kernel:
    """`kernel` with products of slices that no row sees left out; itself where there are none."""
    if not any(isinstance(s, Exchange) for s in statements(kernel.body)):
        return kernel
    ranges = loop_ranges(kernel)
    blocks = {t.var for t in kernel.threads if t.tag in BLOCKS}

    def visit(stmt: Stmt) -> Stmt:
        stmt = map_children(stmt, visit)
        if not isinstance(stmt, For) or stmt.kind != "serial" or not isinstance(stmt.extent, int):
            return stmt
        body = _guarded(stmt, ranges, blocks) if stmt.extent > 1 else None
        return stmt if body is None else replace(stmt, body=body)

    body = visit(kernel.body)
    return kernel if body is kernel.body else replace(kernel, body=body)


def _guarded(loop: For, ranges: dict[Expr, tuple[int, int]], blocks: set[Expr]) -> Stmt | None:
    """The body of a loop with what it computes under a condition; None where that is not known to
    be a running softmax."""
    around: list[Buffer] = []
    body = loop.body
    while isinstance(body, Allocate):
        around.append(body.buffer)
        body = body.body
    parts = body.body if isinstance(body, Seq) else (body,)
    count = next((k for k, s in enumerate(reversed(parts)) if not _is_computing(s)), len(parts))
    tail = parts[len(parts) - count :]
    tests = _Softmax(set(around)).tests(tail)
    condition = _condition(tests, loop.var, ranges, blocks) if tests else None
    if condition is None:
        return None
    made = seq(*parts[: len(parts) - count], If(condition, seq(*tail)))
    for buffer in reversed(around):
        made = Allocate(buffer, made)
    return made


def _is_computing(stmt: Stmt) -> bool:
    """Whether it only computes in registers, with no copy and no barrier inside."""
    inside = isinstance(stmt, (Store, Mma, Exchange, LoadRows, For, If, Seq, Allocate))
    if isinstance(stmt, Store) and stmt.buffer.scope != "local":
        return False
    if isinstance(stmt, Allocate) and stmt.buffer.scope != "local":
        return False
    return inside and all(map(_is_computing, children(stmt)))


@dataclass(frozen=True)
class _Softmax:
    """own: buffers that live in an iteration; filled: what is stored to them; other: buffers that
    are filled by something else than products and stores"""

    own: set[Buffer]
    filled: dict[Buffer, list[Expr]] = field(default_factory=dict)
    other: set[Buffer] = field(default_factory=set)

    def tests(self, tail: Sequence[Stmt]) -> list[Expr]:
        """What chooses the scores, of each of them; [] where a statement is none of a running
        softmax, so that it might do something for a slice of the lowest scores."""
        every = [s for stmt in tail for s in statements(stmt)]
        self.own.update(s.buffer for s in every if isinstance(s, Allocate))
        stores = [s for s in every if isinstance(s, Store)]
        for s in stores:
            self.filled.setdefault(s.buffer, []).append(s.value)
        self.other.update(s.to.buffer for s in every if isinstance(s, (Exchange, LoadRows)))
        largest = {s.buffer for s in stores if self._score_of_largest(s) is not None}
        found: list[Expr] = []
        ones = self._ones(stores, largest)
        hidden = set[Buffer]()  # of 0 where all scores are hidden
        for s in stores:
            chosen = self._exponential(s.value, largest)
            if s.buffer in self.own and chosen is not None:
                found.append(chosen)
                hidden.add(s.buffer)
        for s in stores:
            if s.buffer in self.own:
                if s.buffer in hidden and self._exponential(s.value, largest) is None:
                    return []
                continue
            test = self._outer(s, largest, ones)
            if test is None:
                return []
            found += test
        for m in (s for s in every if isinstance(s, Mma)):
            if m.sum.buffer not in self.own and m.a.buffer not in hidden:
                return []
        moved = (s.to.buffer for s in every if isinstance(s, (Exchange, LoadRows)))
        if not largest or not hidden or not all(b in self.own and b not in hidden for b in moved):
            return []
        return [lane(t, k) for t in found for k in range(t.lanes)]

    def _ones(self, stores: Sequence[Store], largest: set[Buffer]) -> set[Buffer]:
        """Buffers of exp(before - M), before: what M was."""
        values = [(s.buffer, s.value) for s in stores if s.buffer in self.own]
        before = {b for b, v in values if v.op == "load" and v.attr in largest}
        found = set[Buffer]()
        for buffer, value in values:
            power = power_of(value)
            if power is not None and all(n.op == "load" for n in power.args):
                old, new = (n.attr for n in power.args)
                found |= {buffer} if old in before and new in largest else set()
        only = before | found
        twice = {b for b, v in values if b in only and (power_of(v) is None) != (b in before)}
        return found - twice

    def _outer(
        self, s: Store, largest: set[Buffer], ones: set[Buffer]
    ) -> list[Expr] | None:  # fmt: skip
        """The tests of a store to what lives on; None where it might change it."""
        if s.buffer in largest:
            test = self._score_of_largest(s)
            if test is not None:
                return [test]
            other = other_side(s, "max")
            exchanged = other is not None and other.op == "load" and other.attr in self.own
            return [] if exchanged else None
        factor = other_side(s, "mul")
        if factor is not None:  # of the step of the maximum, which is 1
            return [] if factor.op == "load" and factor.attr in ones else None
        term = other_side(s, "add")
        test = None if term is None else self._exponential(term, largest)
        return None if test is None else [test]

    def _score_of_largest(self, s: Store) -> Expr | None:
        other = None if s.buffer in self.own else other_side(s, "max")
        return None if other is None else self._chosen(other)

    def _exponential(self, value: Expr, largest: set[Buffer]) -> Expr | None:
        """The test of 2 ** ((select(test, score, lowest) - M) * c), c > 0."""
        power = power_of(value)
        if power is None:
            return None
        score, most = power.args
        most = most.args[0] if most.op == "broadcast" else most
        known = most.op == "load" and most.attr in largest
        return self._chosen(score) if known else None

    def _chosen(self, score: Expr) -> Expr | None:
        """The test of a choice between products and the lowest number."""
        found = choice_of(score)
        return found[0] if found is not None and self._is_product(found[1], set()) else None

    def _is_product(self, score: Expr, known: set[Buffer]) -> bool:
        """Whether it comes of products and constants only: another mask, inside this one or added
        as data, could make a score that is seen as low as those that are hidden."""
        for node in E.walk(score):
            if node.op in ("select", "if_then_else"):
                return False
            if node.op == "const" and not node.attr > LOWEST:
                return False
            if node.op != "load" or node.attr in known:
                continue
            if node.attr not in self.own or node.attr in self.other:
                return False
            known.add(node.attr)
            if not all(self._is_product(v, known) for v in self.filled.get(node.attr, ())):
                return False
        return True


def choice_of(node: Expr) -> tuple[Expr, Expr] | None:
    """The test and the score of select(test, score, lowest), or of select(not test, lowest,
    score)."""
    if node.op not in ("select", "if_then_else"):
        return None
    test, score, lowest = node.args
    if _is_lowest(score):
        test, score, lowest = E.logical_not(test), lowest, score
    return (test, score) if _is_lowest(lowest) else None


def _is_lowest(node: Expr) -> bool:
    node = node.args[0] if node.op == "broadcast" else node
    return node.op == "const" and node.dtype.is_float and node.attr <= LOWEST


def power_of(value: Expr) -> Expr | None:
    """a - b, of exp(a - b) or 2 ** ((a - b) * c), c > 0, in whatever type of floats, or of that or
    0."""
    while (value.op == "cast" and value.dtype.is_float) or _is_or_zero(value):
        value = value.args[value.op != "cast"]
    if value.op != "call" or value.attr not in ("exp", "two_to"):
        return None
    (power,) = value.args
    if power.op == "mul":
        power, scale = power.args
        scale = scale.args[0] if scale.op == "broadcast" else scale
        if scale.op != "const" or scale.attr <= 0:
            return None
    return power if power.op == "sub" else None


def _is_or_zero(value: Expr) -> bool:
    if value.op not in ("select", "if_then_else"):
        return False
    zero = value.args[2].args[0] if value.args[2].op == "broadcast" else value.args[2]
    return zero.op == "const" and zero.attr == 0


def other_side(s: Store, op: str) -> Expr | None:
    """What is put together with the element that is there: x in `b[i] = b[i] op x`."""
    if s.value.op != op:
        return None
    own, other = s.value.args
    if own.op != "load" or own.attr is not s.buffer or own.args[0] is not s.index:
        return None
    return other


def _condition(
    tests: Sequence[Expr], slices: Expr, ranges: dict[Expr, tuple[int, int]], blocks: set[Expr]
) -> Expr | None:
    """Whether a row of the block may see a key of the slice, or the first key is not seen by all.

    None where keys and rows are not apart in the tests.
    """
    simple = Simplifier(ranges)
    kept = {slices, *blocks}
    parts = [comparisons(t) for t in tests]
    if any(len(each) != 1 for each in parts):
        return None
    keys = [Side.of(c.a, simple, kept) for (c,) in parts]
    rows = [Side.of(c.b, simple, kept, c.more) for (c,) in parts]
    if None in keys or None in rows:
        return None
    key, row = list(filter(None, keys)), list(filter(None, rows))
    if len({k.kept for k in key}) > 1 or len({r.kept for r in row}) > 1:
        return None
    moving, standing = dict(key[0].kept), row[0].kept
    if set(moving) != {slices} or moving[slices] <= 0:
        return None
    if any(slices in E.free_variables(atom) for atom, _ in standing):
        return None
    least, dtype = min(k.least for k in key), str(parts[0][0].a.dtype)
    at = E.binary("mul", E.cast(dtype, slices), E.const(moving[slices], dtype))
    base = E.const(0, dtype)
    for atom, c in standing:
        base = base + E.cast(dtype, atom) * E.const(c, dtype)
    # constants stay with keys, which are few: a row may be at an end of its type
    seen = at + (least - max(r.most for r in row)) < base
    first = E.const(least - min(r.least for r in row), dtype) < base
    return E.any_of(seen, E.logical_not(first))


@dataclass(frozen=True)
class Less:
    """a < b + more, of integers that never wrap around.

    more: 1 where they may be equal; b + 1 may be beyond the type
    """

    a: Expr
    b: Expr
    more: int


_LESS = {"lt": (False, 0), "le": (False, 1), "gt": (True, 0), "ge": (True, 1)}  # swapped, more


def comparisons(test: Expr, holds: bool = True) -> list[Less]:
    """All of which a test is the conjunction, or what it says where it does not hold; [] where it
    is something else."""
    if test.op in _LESS:
        a, b = test.args
        swapped, more = _LESS[test.op]
        if not holds:
            swapped, more = not swapped, 1 - more
        return [Less(b, a, more) if swapped else Less(a, b, more)] if a.dtype.is_index else []
    parts = list[tuple[Expr, bool]]()
    if test.op == "not":
        parts = [(test.args[0], not holds)]
    elif test.op == ("and" if holds else "or"):
        parts = [(part, holds) for part in test.args]
    elif test.op in ("select", "if_then_else"):
        condition, *values = test.args
        for value, other, first in zip(values, reversed(values), (True, False), strict=True):
            if other.op == "const" and bool(other.attr) != holds:
                parts = [(condition, first), (value, holds)]
    found = [comparisons(*part) for part in parts]
    return [c for each in found for c in each] if all(found) else []


@dataclass(frozen=True)
class Side:
    """Of a whole number: terms that are the same for a block and a slice, and the least and the
    greatest of the rest."""

    kept: tuple[tuple[Expr, int], ...]
    least: int
    most: int

    @staticmethod
    def of(node: Expr, simple: Simplifier, kept: set[Expr], more: int = 0) -> Side | None:
        """more: of the number and this one"""
        form = simple.linear(node)
        same, least, most = list[tuple[Expr, int]](), form.constant + more, form.constant + more
        for atom, c in form.terms.items():
            if E.free_variables(atom) <= kept:
                same.append((atom, c))
                continue
            if any(n.op == "load" for n in E.walk(atom)) or E.free_variables(atom) & kept:
                return None
            ends = [c * end for end in simple.interval(atom)]
            least, most = least + int(min(ends)), most + int(max(ends))
        return Side(tuple(same), least, most)
