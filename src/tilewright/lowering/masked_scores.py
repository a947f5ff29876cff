"""Scores in shared memory that a mask chooses by where keys and rows are.

In: a kernel.  Out: the scores, which key each of them is of, which keys some row of a block sees,
and the buffers of exponentials, which are 0 where a mask hides a key; None for all else, where
leaving something out might change a result.  Read next: `unseen_keys.py`, which leaves out.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass

from tilewright.base.concurrency import cached_property
from tilewright.ir import expr as E
from tilewright.ir.affine import Linear, Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.loops import loop_ranges
from tilewright.ir.stmt import (
    AsyncCopy,
    Buffer,
    Exchange,
    For,
    If,
    Join,
    Kernel,
    Stmt,
    Store,
    children,
    expressions,
    load,
    map_children,
    read_buffers,
    seq,
    statements,
    written_buffers,
    written_regions,
)
from tilewright.lowering.unseen import (
    BLOCKS,
    LOWEST,
    Side,
    choice_of,
    comparisons,
    other_side,
    power_of,
)


@dataclass(frozen=True)
class Scores:
    """choices: each with its test and what is made of an element of `buffer` where that holds"""

    kernel: Kernel
    buffer: Buffer
    choices: Mapping[Expr, tuple[Expr, Expr]]

    @cached_property
    def stores(self) -> list[Store]:
        return [s for s in statements(self.kernel.body) if isinstance(s, Store)]

    @cached_property
    def simple(self) -> Simplifier:
        return Simplifier(loop_ranges(self.kernel))

    @cached_property
    def where(self) -> dict[Stmt, Simplifier]:
        """What holds where a store or a copy runs."""
        return _assumed(self.kernel.body, self.simple)

    @property
    def count(self) -> int:
        """Scores of a row."""
        return int(self.buffer.shape[-1])

    @cached_property
    def blocks(self) -> set[Expr]:
        return {t.var for t in self.kernel.threads if t.tag in BLOCKS}

    def place(self, at: Store, index: Expr) -> Linear:
        """In its row, of an element that a statement writes or reads."""
        return self.places(at, index)[0]

    def places(self, at: Store, index: Expr) -> list[Linear]:
        """The same in each form that it may have: of more threads than keys, under a guard, some
        are written as remainders."""
        simple, rest = self.where[at], index % self.count
        least, most = simple.interval(index)
        inside = [simple.linear(index)] if least >= 0 and most < self.count else []
        return [*inside, simple.linear(rest), self.simple.linear(rest)]

    @cached_property
    def chosen(self) -> list[tuple[Store, Expr, Linear]]:
        """Each choice, where it is made, and the place of its score, in the form that its test has
        where there is one."""
        found = list[tuple[Store, Expr, Linear]]()
        for s in self.stores:
            for choice in (n for n in E.walk(s.value) if n in self.choices):
                (score,) = (n for n in E.walk(self.choices[choice][1]) if n.op == "load")
                forms = self.places(s, score.args[0])
                fits = (f for f in forms if any(map(len, self.keys_at(s, choice, f))))
                found.append((s, choice, next(fits, forms[0])))
        return found

    def keys_at(self, at: Store, choice: Expr, place: Linear) -> list[list[Linear]]:
        """For each comparison of a choice the sides that are the place, and what is the same for a
        block: that."""
        simple, found = self.where[at], list[list[Linear]]()
        for test in comparisons(self.choices[choice][0]):
            sides = (simple.linear(_plain(a)).add(place, -1) for a in (test.a, test.b))
            found.append([f for f in sides if all(_is_of(atom, self.blocks) for atom in f.terms)])
        return found

    @cached_property
    def sums(self) -> dict[Buffer, Store]:
        """Registers that scores are added up in, and where these are stored."""
        own = [s for s in self.stores if s.buffer is self.buffer]
        return {s.value.attr: s for s in own if s.value.op == "load"}

    def are_products(self) -> bool:
        """Whether nothing but a sum of products is in the buffer, so that none is as low as a
        hidden score, and nobody reads the sums besides."""
        for s in self.stores:
            if s.buffer is self.buffer:
                if s.value.op != "load" or s.value.attr.scope != "local" or s.index.lanes > 1:
                    return False
                if self.sums[s.value.attr] is not s:
                    return False
            elif s.buffer in self.sums:
                term = other_side(s, "add")
                if s.value.op != "const" and (term is None or term.op != "mul"):
                    return False
            elif any(n.op == "load" and n.attr in self.sums for n in E.walk(s.value)):
                return False
        return bool(self.sums)


def scores_of(kernel: Kernel) -> Scores | None:
    """The one buffer of scores of which each read is a choice."""
    roots = list(expressions(kernel.body))
    choices = {n: c for n in E.walk(*roots) if (c := _choice(n)) is not None}
    inside = {score for _, score in choices.values()}
    buffers = {m.attr for score in inside for m in E.walk(score) if m.op == "load"}
    if len(buffers) != 1:
        return None
    (buffer,) = buffers
    shape = buffer.shape
    if buffer.scope != "shared" or not shape or not isinstance(shape[-1], int):
        return None
    if any(n.op == "load" and n.attr is buffer for n in _walk_around(roots, inside)):
        return None
    others = [s for s in statements(kernel.body) if not isinstance(s, Store)]
    if any(buffer in _read_itself(s) | _moved_to(s) for s in others):
        return None
    return Scores(kernel, buffer, choices)


def _assumed(stmt: Stmt, simple: Simplifier) -> dict[Stmt, Simplifier]:
    if isinstance(stmt, (Store, AsyncCopy)):
        return {stmt: simple}
    found = dict[Stmt, Simplifier]()
    for child in children(stmt):
        if isinstance(stmt, If) and child is stmt.then:
            found |= _assumed(child, simple.assuming(stmt.condition))
        else:
            found |= _assumed(child, simple)
    return found


def _choice(node: Expr) -> tuple[Expr, Expr] | None:
    """The test and the score of a choice by places."""
    found = choice_of(node) if node.lanes == 1 else None
    if found is None or not comparisons(found[0]):
        return None
    inside = list(E.walk(found[1]))
    known = (
        sum(n.op == "load" for n in inside) == 1
        and not any(n.op in ("select", "if_then_else") for n in inside)
        and all(n.attr > LOWEST for n in inside if n.op == "const")
    )
    return found if known else None


def _walk_around(roots: Iterable[Expr], hidden: set[Expr]) -> Iterable[Expr]:
    """All nodes that are reached by another way than through one of `hidden`."""
    waiting, seen = list(roots), set[Expr]()
    while waiting:
        node = waiting.pop()
        if node in seen or node in hidden:
            continue
        seen.add(node)
        yield node
        waiting += node.args


def _read_itself(stmt: Stmt) -> set[Buffer]:
    return read_buffers(map_children(stmt, lambda _: seq()))


def _moved_to(stmt: Stmt) -> set[Buffer]:
    return {region.buffer for region in written_regions(stmt)}


def same(a: Linear, b: Linear) -> bool:
    return a.constant == b.constant and a.terms == b.terms


@dataclass(frozen=True)
class Keys:
    """The key of an element of a row of scores: `first`, the same for a block, and its place

    joined: blocks' variables of which one more block puts together what all found
    """

    scores: Scores
    first: Linear
    joined: frozenset[Expr]

    @staticmethod
    def of(scores: Scores) -> Keys | None:
        sides = [own for each in scores.chosen for own in scores.keys_at(*each)]
        if not all(len(own) == 1 and same(own[0], sides[0][0]) for own in sides):
            return None
        return Keys(scores, sides[0][0], _joined(scores.kernel, scores.blocks))

    def of_place(self, place: Linear) -> Linear:
        return self.first.add(place)

    @property
    def ends(self) -> tuple[Linear, Linear]:
        """The first of the keys that are one row's for all blocks, and the first one behind."""
        own = {a: c for a, c in self.first.terms.items() if a not in self.joined}
        apart = Linear({a: c for a, c in self.first.terms.items() if a in self.joined})
        simple = self.scores.simple
        least, most = map(int, simple.interval(simple.to_expr(apart, "int32")))
        first = Linear(own, self.first.constant + least)
        return first, first.add(Linear({}, most - least + self.scores.count))


def _plain(node: Expr) -> Expr:
    while node.op == "cast" and node.args[0].dtype.is_index:
        (node,) = node.args
    return node


def _is_of(atom: Expr, variables: set[Expr]) -> bool:
    return E.free_variables(atom) <= variables and not any(n.op == "load" for n in E.walk(atom))


def _joined(kernel: Kernel, blocks: set[Expr]) -> frozenset[Expr]:
    """The variables of blocks that a join puts together, each times exp(its maximum - that of
    all)."""
    joins = [s for s in statements(kernel.body) if isinstance(s, Join)]
    if len(joins) != 1:
        return frozenset()
    own = [s for s in statements(joins[0].body) if isinstance(s, Store)]
    outside = [s for s in statements(kernel.body) if isinstance(s, Store) and s not in own]
    given = {s.buffer for s in outside if s.buffer.scope == "global"}
    given &= read_buffers(joins[0].body)
    for s in outside:
        if s.buffer in given and any(n.op in ("mul", "div") for n in _values(s.value)):
            return frozenset()
    for s in own:
        if s.value.op == "load" and s.value.attr in given:
            given.add(s.buffer)
            continue
        largest = other_side(s, "max")
        if largest is not None and largest.op == "load":
            continue
        if not _is_rescaled(s.value, given):
            return frozenset()
    return frozenset(blocks - E.free_variables(joins[0].index)) if given else frozenset()


def _values(node: Expr) -> Iterable[Expr]:
    """What the number is made of: no index, no test."""
    yield node
    for arg in node.args[1:] if node.op in ("select", "if_then_else") else node.args:
        yield from _values(arg) if node.op != "load" else ()


def _is_rescaled(value: Expr, given: set[Buffer]) -> bool:
    """Whether each element of `given` in it is multiplied by exp(given - maximum)."""
    if value.op == "load":
        return value.attr not in given
    if value.op == "mul":
        powers = [p for p in map(power_of, value.args) if p is not None]
        if any(p.args[0].op == "load" and p.args[0].attr in given for p in powers):
            return True
    return all(_is_rescaled(a, given) for a in value.args)


@dataclass(frozen=True)
class Seen:
    """Of the keys that some row of the block sees the first one (None: that of all) and the last
    one; or all keys, where a row may see none."""

    first: Expr | None
    last: Expr

    @staticmethod
    def of(scores: Scores, keys: Keys) -> Seen | None:
        above, below = list[Side](), list[Side]()
        for at, choice, place in scores.chosen:
            simple, key = scores.where[at], keys.of_place(place)
            upper, lower = list[Linear](), list[Linear]()
            for test in comparisons(scores.choices[choice][0]):
                behind = same(simple.linear(_plain(test.a)), key)
                other, more = (test.b, test.more) if behind else (test.a, -test.more)
                own = Side.of(other, simple, scores.blocks, more)
                if own is None:
                    return None
                (above if behind else below).append(own)
                (upper if behind else lower).append(simple.linear(other).add(Linear({}, more)))
            if len(upper) != 1 or len(lower) > 1:
                return None
            if lower:
                wide = upper[0].add(lower[0], -1)
                if wide.terms or wide.constant < 2:  # a row's window has a key
                    return None
        if below and len(below) != len(above):
            return None
        if any(len({s.kept for s in sides}) > 1 for sides in (above, below)):
            return None
        return Seen._within(scores, keys, above, below)

    @staticmethod
    def _within(
        scores: Scores, keys: Keys, above: list[Side], below: list[Side]
    ) -> Seen | None:  # fmt: skip
        simple, (least, behind) = scores.simple, keys.ends
        test, _ = next(iter(scores.choices.values()))
        dtype = str(comparisons(test)[0].a.dtype)
        known, written = dict[Expr, Expr](), written_buffers(scores.kernel.body)
        for atom, _ in (*above[0].kept, *(below[0].kept if below else ())):
            for n in E.walk(atom):
                if n.op == "load":
                    source = n if n.attr.scope == "global" else _source(scores, n.attr)
                    if source is None or source.attr in written:
                        return None
                    known[n] = source

        def expression(form: Linear) -> Expr:
            return E.substitute(simple.to_expr(form, dtype), known)

        def row(sides: Sequence[Side], more: int = 0) -> Expr:
            return expression(Linear(dict(sides[0].kept), more))

        def key(form: Linear, more: int) -> Expr:
            return expression(form.add(Linear({}, more)))

        # constants stay with keys, which are few: a row may be at an end of its type; what is seen
        # is within it
        is_known = key(least, -min(s.least for s in above)) < row(above)
        if below:
            has_key = row(below) < key(behind, -1 - max(s.most for s in below))
            is_known = E.all_of(is_known, has_key)
        ends = [simple.interval(simple.to_expr(form, dtype)) for form in (least, behind)]
        last = row(above, max(s.most for s in above) - 1)
        last = E.select(is_known, last, E.const(int(ends[1][1]) - 1, dtype))
        if not below:
            return Seen(None, last)
        first = row(below, min(s.least for s in below) + 1)
        return Seen(E.select(is_known, first, E.const(int(ends[0][0]), dtype)), last)


def _source(scores: Scores, buffer: Buffer) -> Expr | None:
    """The element of global memory that one of shared memory is a copy of; None for others."""
    found = list[tuple[Stmt, Expr]]()
    for s in statements(scores.kernel.body):
        if isinstance(s, AsyncCopy) and s.to.buffer is buffer and s.condition.op == "const":
            found.append((s, load(s.source.buffer, s.source.index)))
        elif isinstance(s, Store) and s.buffer is buffer:
            found.append((s, s.value))
    if buffer.size != 1 or len(found) != 1 or found[0][1].op != "load":
        return None
    ((s, copied),) = found
    memory, at = copied.attr, scores.where[s](copied.args[0])
    known = memory.scope == "global" and _is_of(at, scores.blocks)
    return load(memory, at) if known else None


def probabilities(scores: Scores) -> set[Buffer]:
    """Buffers of which each element is exp(a choice - a maximum of its row), at the place of its
    key: those of hidden keys are 0."""
    largest = _maxima(scores)
    places = {(at, choice): place for at, choice, place in scores.chosen}
    found, other = set[Buffer](), set[Buffer]()
    for s in scores.stores:
        power, shape = power_of(s.value), s.buffer.shape
        place = None if power is None else places.get((s, power.args[0]))
        known = power is not None and is_load(power.args[1], largest)
        if place is None or not known or not shape or shape[-1] != scores.count:
            other.add(s.buffer)
        else:
            own = scores.places(s, s.index)
            (found if any(same(form, place) for form in own) else other).add(s.buffer)
    moved = {b for s in statements(scores.kernel.body) for b in _moved_to(s)}
    return {b for b in found - other - moved if b.scope == "shared"}


def is_load(node: Expr, buffers: set[Buffer]) -> bool:
    return node.op == "load" and node.attr in buffers


def _maxima(scores: Scores) -> set[Buffer]:
    """Buffers of nothing but the greatest of all choices of a row, of what lanes exchange of
    that, and of copies."""
    around = _loops_around(scores.kernel.body, ())
    stores = [(s, other_side(s, "max")) for s in scores.stores]
    found = set[Buffer]()
    over = set[Expr]()  # what the keys depend on
    for s, other in stores:
        inside = () if other is None else E.walk(other)
        choice = next((n for n in inside if n in scores.choices), None)
        if other is None or choice is None:
            continue
        rest = {n for n in E.walk(other) if n.op == "max"}
        if other is choice or (rest == {other} and any(a.op == "const" for a in other.args)):
            place = next(p for at, c, p in scores.chosen if at is s and c is choice)
            simple = scores.where[s]
            at = simple.to_expr(place, "int32")
            if simple.interval(at) == (0, scores.count - 1):
                over |= E.free_variables(at)
                found.add(s.buffer)
    while True:
        moved = {
            x.to.buffer for x in statements(scores.kernel.body)
            if isinstance(x, Exchange) and x.source.buffer in found
        }  # fmt: skip
        copies = {s.buffer for s, _ in stores if is_load(s.value, found)}
        if copies | moved <= found:
            break
        found |= copies | moved
    for s, other in stores:
        if s.buffer not in found:
            continue
        fresh = s.value.op == "const" or is_load(s.value, found)
        if not fresh and not (other is not None and _is_greater(other, found, scores.choices)):
            return set()
        if is_load(s.value, found) and over & (around[s] | E.free_variables(s.index)):
            return set()  # of a part of the keys
    return found


def _is_greater(other: Expr, found: set[Buffer], choices: Container[Expr]) -> bool:
    inner = [a for a in other.args if a.op != "const"] if other.op == "max" else [other]
    return all(is_load(a, found) or a in choices for a in inner)


def _loops_around(stmt: Stmt, loops: tuple[Expr, ...]) -> dict[Store, set[Expr]]:
    if isinstance(stmt, Store):
        return {stmt: set(loops)}
    found = dict[Store, set[Expr]]()
    inside = (*loops, stmt.var) if isinstance(stmt, For) else loops
    for child in children(stmt):
        found |= _loops_around(child, inside)
    return found
