"""Keys that a mask hides from all rows of a block: they are neither brought nor multiplied.

In: a kernel whose scores lie in shared memory, as attention of few rows has them, and are chosen by
where keys and rows are (`key < row + position`, and in windows `row + position - width < key`;
`<=`, `>`, `>=`, `not` and scores that are filled where they are hidden say the same).
Out: the same, where each thread leaves out copies and products of keys that no row sees.
Read next: `masked_scores.py`, which finds what is needed; `unseen.py`, of running softmaxes.

rewrite:  copy K[key], V[key]; S[key] += q * K[key]
          P[key] = exp(select(key < row + position, S[key], lowest) - M); O += P[key] * V[key]
          ->  last = greatest row + position - 1; if key <= last: copy ..; if key <= last: S[key] ..

The score of a hidden key is not looked at, whatever it is, and its exponential is 0, once the row
sees a key.  That is asked for at run time, of the first key, or in windows of a row's own; else all
keys are computed.  Where the last of several blocks joins them, one of them may see nothing: what
it found counts exp(lowest - M) there, which is 0.  Copies are left out where nothing else reads
what they bring: numbers in shared memory that nobody wrote would be NaN times 0.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilewright.ir import expr as E
from tilewright.ir.affine import Linear
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    Allocate,
    AsyncCopy,
    Buffer,
    Exchange,
    For,
    If,
    Kernel,
    Region,
    Seq,
    Stmt,
    Store,
    expressions,
    load,
    map_children,
    read_buffers,
    seq,
    statements,
)
from tilewright.lowering.masked_scores import (
    Keys,
    Scores,
    Seen,
    is_load,
    probabilities,
    same,
    scores_of,
)
from tilewright.lowering.unseen import other_side

Wrap = Callable[[Linear, Stmt], Stmt]
_COMPUTING = (Store, For, If, Seq, Allocate)


def skip_unseen_keys(kernel: Kernel) -> Kernel:
    """`kernel` with such keys left out; itself where it is no such attention."""
    if not any(isinstance(s, Exchange) for s in statements(kernel.body)):
        return kernel
    scores = scores_of(kernel)
    if scores is None or not scores.are_products():
        return kernel
    keys = Keys.of(scores)
    seen = None if keys is None else Seen.of(scores, keys)
    if keys is None or seen is None:
        return kernel
    return _Rewrite(scores, keys, seen).kernel()


class _Rewrite:
    """probabilities: see `probabilities`; read: buffers that products read of, each index with its
    key; fed: registers that only these read, of one key"""

    def __init__(self, scores: Scores, keys: Keys, seen: Seen) -> None:
        self.scores, self.keys, self.seen = scores, keys, seen
        self.simple = scores.simple
        self.probabilities = probabilities(scores)
        self.threads = {t.var for t in scores.kernel.threads}
        self.read: dict[Buffer, list[tuple[Expr, Linear]]] = {}
        self.fed: dict[Buffer, Linear] = {}
        dtype = seen.last.dtype
        name = scores.buffer.name
        self.first = Buffer(f"{name}.first", dtype, 1, "local")
        self.last = Buffer(f"{name}.last", dtype, 1, "local")

    def kernel(self) -> Kernel:
        """The kernel itself where there is nothing to leave out."""
        body = self.scores.kernel.body
        rest = self._products(body, set(), set(), lambda key, s: seq())
        if rest is body:
            return self.scores.kernel
        others = read_buffers(rest)
        for b, read in self.read.items():
            alike = all(same(key, read[0][1]) for _, key in read)
            if b.scope == "local" and b not in others and alike:
                self.fed[b] = read[0][1]
        others = read_buffers(self._products(body, set(), set(), lambda key, s: seq()))
        self.read.clear()
        body = self._products(body, set(), set(), self._where_seen)
        shared = {b for b in self.read if b.scope == "shared" and b not in others}
        copied = {b for b in shared if self._row_of(b) is not None}
        body = self._copies(body, copied)
        for buffer, value in ((self.last, self.seen.last), (self.first, self.seen.first)):
            if value is not None:
                body = Allocate(buffer, seq(Store(buffer, E.const(0), value), body))
        return replace(self.scores.kernel, body=body)

    def _where_seen(self, key: Linear, stmt: Stmt) -> Stmt:
        at = self.simple.to_expr(key, self.last.dtype)
        seen = at <= load(self.last, E.const(0))
        if self.seen.first is not None:
            seen = E.all_of(seen, load(self.first, E.const(0)) <= at)
        return If(seen, stmt)

    # -- products ----------------------------------------------------------------------------------
    def _products(
        self, stmt: Stmt, bound: set[Expr], lately: set[Buffer], wrap: Wrap
    ) -> Stmt:  # fmt: skip
        """bound: variables of the loops around; lately: what was allocated inside the last"""
        key = self._key_of(stmt, bound, lately)
        if key is not None:
            for node in E.walk(*expressions(stmt)):
                if node.op == "load":
                    self.read.setdefault(node.attr, []).append((node.args[0], key))
            return wrap(key, stmt)
        if isinstance(stmt, For):
            bound, lately = bound | {stmt.var}, set()
        if isinstance(stmt, Allocate):
            lately = lately | {stmt.buffer}
        return map_children(stmt, lambda s: self._products(s, bound, lately, wrap))

    def _key_of(self, stmt: Stmt, bound: set[Expr], lately: set[Buffer]) -> Linear | None:
        """The one key of all that a statement adds up; None where it does something else, or for
        several."""
        every = list(statements(stmt))
        if not all(isinstance(s, _COMPUTING) for s in every):
            return None
        own = {s.buffer for s in every if isinstance(s, Allocate)}
        found: list[Linear] = []
        for s in every:
            if not isinstance(s, Store) or s.buffer in own:
                continue
            key = self._key_of_sum(s, bound, lately)
            if key is None:
                return None
            found.append(key)
        if not found or not all(same(key, found[0]) for key in found):
            return None
        free = set[Expr]().union(*(E.free_variables(atom) for atom in found[0].terms))
        return found[0] if free <= self.threads | bound else None

    def _key_of_sum(self, s: Store, bound: set[Expr], lately: set[Buffer]) -> Linear | None:
        anew = not bound or s.buffer in lately  # for each key
        if s.buffer in self.fed:
            return self.fed[s.buffer] if anew else None
        term = other_side(s, "add")
        if term is None or term.op != "mul" or s.buffer.scope != "local":
            return None
        if s.buffer in self.scores.sums:
            end = self.scores.sums[s.buffer]
            return self.keys.of_place(self.scores.place(end, end.index)) if anew else None
        for factor in term.args:
            factor = factor.args[0] if factor.op == "cast" else factor
            if is_load(factor, self.probabilities) and factor.lanes == 1:
                return self.keys.of_place(self.scores.place(s, factor.args[0]))
        return None

    # -- copies ------------------------------------------------------------------------------------
    def _row_of(self, buffer: Buffer) -> int | None:
        """How many elements from a key to the next one, where all reads keep to theirs."""
        read = [(i.args[0] if i.op == "ramp" else i, i.lanes, key) for i, key in self.read[buffer]]
        at, _, key = read[0]
        forms = self.simple.linear(at).terms, key.terms
        steps = {forms[0][v] // forms[1][v] for v in forms[0].keys() & forms[1].keys()}
        for row in sorted(step for step in steps if step > 0):
            if all(self._keeps_to(first, lanes, own, row, buffer) for first, lanes, own in read):
                return row
        return None

    def _keeps_to(self, first: Expr, count: int, key: Linear, row: int, buffer: Buffer) -> bool:
        """Whether neighbours are in the row of a key.  Where more threads than keys come under a
        guard, keys may be remainders, and rows too, if the buffer has no more of them."""
        whole = isinstance(buffer.size, int) and buffer.size <= row * self.scores.count
        forms = [self._key_at(first, count, row, wraps) for wraps in (False, True)[: 1 + whole]]
        return any(own is not None and same(own, key) for own in forms)

    def _key_at(self, first: Expr, count: int, row: int, wraps: bool = False) -> Linear | None:
        """Of `count` neighbours, if they are in one row.  wraps: as a remainder"""
        places = [(first + k) // row for k in (0, count - 1)]
        own, last = (self.simple.linear(p % self.scores.count if wraps else p) for p in places)
        return self.keys.of_place(own) if same(own, last) else None

    def _copies(self, stmt: Stmt, copied: set[Buffer]) -> Stmt:
        if isinstance(stmt, AsyncCopy):
            to = stmt.to
        elif isinstance(stmt, Store) and stmt.value.op == "load":
            first = stmt.index.args[0] if stmt.index.op == "ramp" else stmt.index
            to = Region(stmt.buffer, first, stmt.index.lanes)
        else:
            return map_children(stmt, lambda s: self._copies(s, copied))
        row = self._row_of(to.buffer) if to.buffer in copied else None
        key = None if row is None else self._key_at(to.index, to.count, row)
        return stmt if key is None else self._where_seen(key, stmt)
