"""What a matrix instruction computes for a stage, and who holds its operands.

In: the stages of a loop tree with their bodies and reads.  Out: a `Product` for each stage with an
atom; for that stage, and for those that bring its operands, how a warp holds their buffers.
Read next: `layout.py`, `lowering/fragments.py`.

A product is a sum over k (and over further reduction loops, outside the atom) of a[.., m, .., k] *
b[.., k, .., n].  In the dimension that follows an axis of the atom the index is this axis plus what
is the same all through an atom.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tilewright.base.dtype import join
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.atoms import ALL_ATOMS, PAIR, Atom, has_pairs, names
from tilewright.ir.expr import Expr
from tilewright.schedule.atoms import LETTERS, Part, innermost_part
from tilewright.schedule.scopes import FRAGMENT
from tilewright.schedule.tree.layout import PAIRS, Held
from tilewright.te.tensor import IterVar, reduction_of

if TYPE_CHECKING:
    from tilewright.schedule.tree.structure import Node, Read


@dataclass(frozen=True, eq=False)
class Operand:
    """read: where the body of the product reads it, over root axes; node: who brings it"""

    read: Expr
    node: Node
    held: Held


@dataclass(frozen=True, eq=False)
class Product:
    """parts: the loops inside the atom, by its names of them
    where: a condition over root axes, the same all through an atom, without which it adds nothing
    """

    atom: Atom
    parts: Mapping[str, Part]
    a: Operand
    b: Operand
    where: Expr | None = None


@dataclass(frozen=True, eq=False)
class Fold:
    """What the lanes of a warp reduce of sums that they hold: each row to one value.

    source: how these sums are held; row: the axis that follows their rows; column: the innermost
    part of the reduction axis that follows their columns
    """

    source: Held
    row: IterVar
    column: Part

    @property
    def width(self) -> int:
        """Columns of an atom."""
        return self.source.atom.sum.extents["n"]


def find_products(nodes: Iterable[Node]) -> None:
    """Tell each node with an atom what it multiplies, and each fragment how it is held.

    Raises ScheduleError for a stage that is no such product, and for a fragment that no atom reads.
    """
    nodes = list(nodes)
    for node in nodes:
        if node.stage.atom is not None and node.stage.atom[0] in ALL_ATOMS:
            node.product = _product(node, nodes)
    found = [n.product for n in nodes if n.product is not None and n.product.atom.by_thread]
    of_threads = {operand.node for product in found for operand in (product.a, product.b)}
    brought: set[Node] = set()
    for node in nodes:
        if node.product is not None:
            node.held = _of_sums(node, node.product)
        elif (node.scope == FRAGMENT and node.op.combiner is None) or node in of_threads:
            node.held = _of_operand(node)
            brought.add(node)
    for node in nodes:
        if node.scope == FRAGMENT and node.held is None:
            node.held = _of_terms(node, nodes)
        if node.scope == FRAGMENT and node.held is None:
            node.fold = _fold(node, nodes)
            dim = node.op.axis.index(node.fold.row)
            node.held = Held(node.fold.source.atom, "rows", ((dim, "m"),), node.op.dtype)
    for node in nodes:
        if node.parent is not None and node.parent in brought:
            _refuse_within(node)


def _refuse_within(node: Node) -> None:
    """Nothing is computed inside the loops of an operand: its lanes fetch elements at once."""
    parent, axis = node.parent, node.attach_axis
    assert parent is not None and axis is not None
    raise ScheduleError(
        f"compute_at({node.name}, {parent.name}.{axis.name})",
        f"{parent.name} is an operand of a matrix instruction, and is not fetched loop by loop",
        f"Compute {node.name} where {parent.name} is computed.",
    )  # fmt: skip


def _place(node: Node) -> str:
    assert node.stage.atom is not None
    name, axis = node.stage.atom
    return f"tensorize({node.name}.{axis.name}, {name})"


def _product(node: Node, nodes: list[Node]) -> Product:
    assert node.stage.atom is not None
    atom, place = ALL_ATOMS[node.stage.atom[0]], _place(node)
    parts: dict[str, Part] = {}
    for leaf, letter in zip(node.stage.inside, LETTERS, strict=True):
        part = innermost_part(node.stage, leaf)
        assert part is not None
        parts[letter] = part
    roots = {part.root: letter for letter, part in parts.items()}
    shared = next((tag for ax, tag in node.stage.binds.items() if ax.kind == "reduce"), "")
    if shared or node.stage.aligned:
        raise ScheduleError(
            place, f"{shared} shares its terms" if shared else "its rows are padded",
            "s.rfactor gives each warp a sum of its own; lanes hold sums in no rows.",
        )  # fmt: skip
    reduced = reduction_of(node.body)
    if reduced is None or reduced.attr[0].name != "sum" or reduced.dtype != atom.sum.dtype:
        raise ScheduleError(
            place, f"{node.name} adds up in {node.op.accumulator}, the atom in {atom.sum.dtype}",
            "Cast the operands or the product to it.",
        )  # fmt: skip
    product, where = _condition(uncast(reduced.args[0]))
    inside = {ax.var for ax in roots}
    if where is not None and (atom.by_group or inside & E.free_variables(where)):
        raise ScheduleError(
            place, f"whether it adds a product depends on {where}",
            "A warp may skip a whole atom, where the condition depends on none of m, n, k; what"
            " does belongs to the stage that brings an operand, as a zero.",
        )  # fmt: skip
    factors = [uncast(a) for a in product.args] if product.op == "mul" else []
    if len(factors) != 2 or any(f.op != "read" for f in factors):
        raise ScheduleError(
            place, f"it adds up {reduced.args[0]}, no product of two tensors",
            "What is done to an operand belongs to the stage that brings it, s.cache_read(..).",
        )  # fmt: skip
    found: dict[str, Operand] = {}
    for read in factors:
        letters = _letters(place, read, node, roots)
        which = {"m": "a", "n": "b"}.get(next((x for x in letters.values() if x != "k"), ""), "")
        if sorted(letters.values()) not in (["k", "m"], ["k", "n"]) or which in found:
            raise ScheduleError(
                place, f"{read} depends on {' and '.join(letters.values()) or 'none'} of m, n, k",
                "One factor follows m and k, the other k and n, each longer than 1.",
            )  # fmt: skip
        held = Held(atom, which, tuple(letters.items()))
        found[which] = Operand(read, _bringer(place, read, node, nodes, held), held)
    return Product(atom, parts, found["a"], found["b"], where)


def _condition(value: Expr) -> tuple[Expr, Expr | None]:
    """What is added, and when, where a condition chooses between it and zero."""
    if value.op != "if_then_else" or value.args[2] is not E.const(0, value.dtype):
        return value, None
    test, added, _ = value.args
    plain = all(e.op != "read" for e in E.walk(test))
    return (uncast(added), test) if plain else (value, None)


def uncast(value: Expr) -> Expr:
    """`value` without conversions that keep every number."""
    while value.op == "cast" and join(value.dtype, value.args[0].dtype) is value.dtype:
        (value,) = value.args
    return value


def _letters(place: str, read: Expr, node: Node, roots: Mapping[IterVar, str]) -> dict[int, str]:
    """The dimensions that follow an axis of the atom."""
    found: dict[int, str] = {}
    for dim, index in enumerate(read.args):
        variables = E.free_variables(index)
        names = [letter for ax, letter in roots.items() if ax.var in variables]
        if not names:
            continue
        root = next(ax for ax, letter in roots.items() if letter == names[0])
        rest = E.substitute(index, {root.var: 0})
        left = node.simple(index - rest - root.var)
        plain = left.op == "const" and left.attr == 0
        if len(names) > 1 or not plain or names[0] in found.values():
            raise ScheduleError(
                place, f"{read}: {index} is no axis of the atom plus what does not depend on it",
                "Take axes that operands step through one by one; split, do not fuse them.",
            )  # fmt: skip
        found[dim] = names[0]
    return found


def _bringer(place: str, read: Expr, node: Node, nodes: list[Node], held: Held) -> Node:
    name = read.attr.name
    found = next((n for n in nodes if read.attr in n.stage.tensors), None)
    wanted = held.atom.unit.operands
    if found is None or found.scope != wanted:
        scope = "global" if found is None else found.scope
        what = f"an atom what its {held.atom.unit.name} holds"
        what = "a group what lies in scope shared" if held.atom.by_group else what
        raise ScheduleError(
            place, f"it reads {name} in scope {scope}, and {what}",
            f's.cache_read({name}, "{wanted}", [{node.name}]), computed at one of its loops.',
        )  # fmt: skip
    multiplied = (held.atom.a if held.part == "a" else held.atom.b).dtype
    if read.attr.dtype is not multiplied:
        raise ScheduleError(
            place, f"{name} is {read.attr.dtype}, the atom multiplies {multiplied}",
            f"The atoms are {names()}.",
        )  # fmt: skip
    return found


def _of_sums(node: Node, product: Product) -> Held:
    axes = node.op.axis
    pairs = ((axes.index(product.parts[letter].root), letter) for letter in "mn")
    return Held(product.atom, "sum", tuple(sorted(pairs)))


def _of_terms(node: Node, nodes: list[Node]) -> Held | None:
    """How sums over more than one atom's, each element of those of one atom, are held: alike; and
    how sums of what is computed of two neighbours, by who holds both."""
    op, stage = node.op, node.stage
    made = {t: n for n in nodes if n.product is not None for t in n.stage.tensors}
    reads = [e for e in E.walk(node.body) if e.op == "read" and e.attr in made]
    if not reads or len({read.attr for read in reads}) > 1 or op.combiner is None:
        return None
    held = made[reads[0].attr].held
    assert held is not None
    axes = {ax.var: d for d, ax in enumerate(op.axis)}
    pairs: list[tuple[int | None, str]] = []
    part = held.part
    for dim, letter in held.letters:
        places = {node.simple(read.args[dim]) for read in reads}
        if len(places) == 1:
            pairs.append((axes.get(places.pop()), letter))
            continue
        for ax in op.axis:
            both = {node.simple(ax.var * PAIR + k) for k in range(PAIR)}
            if places == both and letter == "n" and has_pairs(held.fragment):
                pairs.append((axes[ax.var], letter))
                part = PAIRS
    own = [(d, letter) for d, letter in pairs if d is not None]
    if len(own) < len(held.letters):
        return None
    marks = [how for how in stage.annotations.values() if how != "unroll"]
    whole = all(ax in stage.leaf_iter_vars for ax in op.axis)
    large = op.dtype.bits != held.fragment.dtype.bits
    if not whole or stage.binds or marks or stage.aligned or large:
        raise ScheduleError(
            f"stage {node.name}", "lanes add up what they hold tile by tile, but its rows are"
            " split, or loops are bound or marked, or its type has another size",
            "Leave its loops as they are, or split the reduction; s.cache_write(..) gives a type.",
        )  # fmt: skip
    return Held(held.atom, part, tuple(sorted(own)))


def _fold(node: Node, nodes: list[Node]) -> Fold:
    """What a reduction in fragments reduces."""
    stage, op, place = node.stage, node.op, f"stage {node.name}"
    made = {t: n for n in nodes if n.product is not None for t in n.stage.tensors}
    reads = dict.fromkeys(e for e in E.walk(node.body) if e.op == "read" and e.attr in made)
    axes = {ax.var: ax for ax in (*op.axis, *op.reduce_axis)}
    found: dict[tuple[Held, IterVar | None, IterVar | None], None] = {}
    for read in reads:
        held = made[read.attr].held
        assert held is not None
        of = {letter: axes.get(node.simple(read.args[dim])) for dim, letter in held.letters}
        found[held, of["m"], of["n"]] = None
    known = next(iter(found)) if len(found) == 1 else None
    if known is None or known[1] not in op.axis or (known[2],) != op.reduce_axis:
        raise ScheduleError(
            place, "it reduces no rows of sums that its warp holds",
            'Tensorize what it reads, or s.cache_write(..) what it reads in scope "fragment"; its'
            " one reduction axis follows the columns.",
        )  # fmt: skip
    held, row, column = known
    assert row is not None and column is not None
    leaves = stage.leaf_iter_vars
    part = next((p for p in (innermost_part(stage, ax) for ax in leaves)
                 if p is not None and p.root is column), None)  # fmt: skip
    marks = [how for how in stage.annotations.values() if how != "unroll"]
    whole = part is not None and all(ax in leaves for ax in op.axis)
    if part is None or not whole or stage.binds or marks or stage.aligned:
        raise ScheduleError(
            place, "the lanes of a warp reduce it tile by tile, but its rows are split, or loops"
            " are bound or marked",
            "Leave its loops as they are, or split the reduction by a factor.",
        )  # fmt: skip
    inside = leaves[leaves.index(part.leaf) :]
    if op.num_outputs > 1 or op.accumulator is not op.dtype or row in inside:
        raise ScheduleError(
            place, "lanes reduce one value for each row, in its own type, with the columns of a"
            " row innermost",
            "Reduce several values one after the other; s.cache_write(..) gives the type of"
            " partial results.",
        )  # fmt: skip
    return Fold(held, row, part)


def _of_operand(node: Node) -> Held:
    stage, place = node.stage, f"stage {node.name}"
    found: dict[Held, None] = {}
    for read in node.reads:
        found[_wanted(node, read)] = None
    if len(found) != 1:
        raise ScheduleError(
            place, "one atom reads it as another part than the other does",
            f'Give each its own: s.cache_read(.., "{node.scope}", [..]).',
        )  # fmt: skip
    marks = [how for how in stage.annotations.values() if how != "unroll"]
    if stage.relations or stage.binds or marks or stage.aligned or node.op.combiner is not None:
        raise ScheduleError(
            place, "the lanes of a warp fill it tile by tile, as its atom says, but its own loops"
            " are split, bound or marked, or it is a reduction",
            "Leave its loops as they are.",
        )  # fmt: skip
    return next(iter(found))


def _wanted(node: Node, read: Read) -> Held:
    """How a reader wants `node` to be held."""
    product = read.reader.product
    for operand in (product.a, product.b) if product is not None else ():
        if operand.node is node and operand.read is read.expression:
            return operand.held
    raise ScheduleError(
        f"stage {node.name}", f"{read.reader.name} reads this fragment without an atom",
        f"Tensorize {read.reader.name}; other readers take it from where it comes from.",
    )  # fmt: skip
