"""Stages that the lanes of a warp hold together: operands of atoms, and what these add up.

In: an `Emission` and a stage with a fragment.  Out: the statement for one tile of an operand; a
`Reduction` whose innermost statement is an atom.  Read next: `reductions.py`, `nest.py`.

A lane computes the elements of a tile that it holds, those that lie side by side in memory as one
vector.  Atoms take no guard that differs between lanes: what lies beyond a tensor is zero in both
operands, and the stage that stores the sums drops the rest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from tilewright.base.errors import LegalityError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.atoms import ROUNDED, ROWS_OF_EIGHT, of_parts
from tilewright.ir.expr import Expr
from tilewright.ir.stmt import (
    PLACE,
    ROW,
    Buffer,
    For,
    If,
    LoadRows,
    Mma,
    MmaBegin,
    MmaEnd,
    Region,
    Seq,
    Stmt,
    Store,
    load,
    map_children,
    seq,
)
from tilewright.ir.warps import PLACES, ROWS
from tilewright.lowering.accesses import Accesses
from tilewright.lowering.emission import Emission, Renaming, guarded
from tilewright.lowering.guards import ALL, SPATIAL
from tilewright.lowering.loops import WORD, Lanes, same_for_all
from tilewright.lowering.placement import Placement
from tilewright.lowering.powers import in_powers_of_two
from tilewright.lowering.reductions import Reduction
from tilewright.schedule.tree.accumulators import first_reduction
from tilewright.schedule.tree.layout import Strided
from tilewright.schedule.tree.loop_tree import Node
from tilewright.schedule.tree.products import Operand
from tilewright.schedule.tree.rings import is_asynchronous, lag, slots
from tilewright.schedule.tree.rounding import LOADED
from tilewright.te.tensor import Combiner, IterVar, reduction_of

TURNED = 2  # bytes of elements that `LoadRows` may transpose
_WIDEST = 8  # elements of a vector
PAIR = 2  # matrices of an operand that is loaded together with its neighbour
Ranges = Mapping[Expr, tuple[int, int]]


def operand(emission: Emission, node: Node) -> Stmt:
    """The elements of one tile that a lane holds; the loops of the stage go over tiles.

    rewrite:  for m in 16: for k in 16: F[m, k] = A[m, k]
              ->   F[0..1] = A[x//4, x%4*2..x%4*2+1]; F[2..3] = A[x//4+8, x%4*2..x%4*2+1]; ..
    """
    assert node.held is not None
    held = node.held
    together = _rows(emission, node)
    if together is not None:
        return guarded(emission.guards.lanes(node, once=False), together)
    wide = min(ROW // held.fragment.dtype.bytes, held.fragment.elements, _WIDEST)
    if not emission.place.launch:  # a CPU, which has longer vectors
        wide = held.fragment.elements
    stmts: list[Stmt] = []
    done = 0
    while done < held.fragment.elements:
        width = next(w for w in range(wide, 0, -1) if not w & (w - 1) and done % w == 0)
        while (made := _elements(emission, node, done, width)) is None:
            width //= 2
        stmts.append(made)
        done += width
    return guarded(emission.guards.lanes(node, once=False), seq(*stmts))


@dataclass(frozen=True)
class _Element:
    """What a lane holds: when there is something (else zero), and what."""

    test: Expr
    value: Expr


def _element(emission: Emission, node: Node, lane: Expr, element: Expr, known: Ranges) -> _Element:
    """Of number `element`, in the tile that an iteration begins; known: ranges of variables."""
    held, place = node.held, emission.place
    assert held is not None
    simple = Simplifier({**place.simplify.ranges, **known})
    index = dict(zip(held.fragment.axes, held.fragment.place(lane, element), strict=True))
    inside = {node.op.axis[dim]: index[letter] for dim, letter in held.letters}
    values = {ax: v + inside[ax] if ax in inside else v for ax, v in place.values.items()}
    here = replace(place, values=values, simplify=simple)
    accesses, guards = emission.accesses.at(here), replace(emission.guards, place=here)
    value = accesses.value(node, node.body)
    value = in_powers_of_two(value) if _of_sums(place, node) else value
    edges = guards.edges(node, among=_zero_beyond(accesses, node))
    if of_held(place, node):  # rows beyond the end change no others, where there are tiles of them
        depth = node.op.axis[next(dim for dim, letter in held.letters if letter == "k")]
        values = {**place.values, depth: values[depth]}
        edges = replace(guards, place=replace(here, values=values)).edges(node)
    tests = [*guards.iterations(node, SPATIAL), *edges]
    tests += _within_sums(here.coordinates(node), emission, node)
    if value.op == "if_then_else" and value.args[2] is E.const(0, value.dtype):
        tests, value = [*tests, value.args[0]], value.args[1]
    return _Element(E.all_of(*dict.fromkeys(map(simple, tests))), value)


def of_held(place: Placement, node: Node) -> bool:
    """Whether a stage reads nothing but what its warp holds, so that it may read too much."""
    makers = [place.producer(n) for n in E.walk(node.body) if n.op == "read"]
    return all(maker is not None and maker.held is not None for maker in makers)


def _of_sums(place: Placement, node: Node) -> bool:
    """Whether an operand is computed of what atoms have added up."""
    reads = (n for n in E.walk(node.body) if n.op == "read")
    makers = (place.producer(read) for read in reads)
    return any(maker is not None and maker.product is not None for maker in makers)


def _zero_beyond(accesses: Accesses, node: Node) -> list[IterVar]:
    """The axes along which an operand has to be zero beyond its tensor.

    What lies beyond along the rows, columns or lines of a product is in places that nobody stores,
    so it may be what a copy left there; asynchronous ones leave zeros.
    """
    held, read = node.held, node.body
    assert held is not None
    source = accesses.place.producer(read) if read.op == "read" else None
    if source is None or source.scope != "shared":
        return list(node.op.axis)
    if not is_asynchronous(source, accesses.place.bounds):
        return list(node.op.axis)
    room = accesses.has_room(node, read)
    depth = {d for d, letter in held.letters if letter == "k"}
    free = {d for d in range(len(room)) if d not in depth and room[d]}
    return [ax for d, ax in enumerate(node.op.axis) if d not in free]


def _elements(emission: Emission, node: Node, first: int, width: int) -> Stmt | None:
    """`width` elements of a lane from `first` on; None where they are no vector."""
    held, place = node.held, emission.place
    assert held is not None
    element = E.var("element") if width > 1 else E.const(0)
    known = {element: (0, width - 1)}
    simple = Simplifier({**place.simplify.ranges, **known})
    lane, gpu = place.lane(held.atom), bool(place.launch)
    found = _element(emission, node, lane, element + first, known)
    test, value, zero = found.test, found.value, E.const(0, found.value.dtype)
    if node.rounds == LOADED:
        value = E.call(ROUNDED, value)
    (buffer,) = emission.accesses.targets(node)
    at = place.simplify(emission.accesses.tile(node) + first)
    if width > 1:
        lanes = Lanes(element, width, simple, gpu=gpu, shortest=WORD)
        vector = lanes.value(value)
        together = same_for_all(test, element, width, simple)
        if vector is None or vector.lanes == 1 or together is None:
            return None
        value, test, at = vector, together, E.ramp(at, 1, width)
    test = simple(test)
    if test.op != "const":
        value = E.if_then_else(E.broadcast(test, width), value, E.broadcast(zero, width))
    elif not test.attr:
        value = E.broadcast(zero, width)
    return Store(buffer, at, value)


def _rows(emission: Emission, node: Node) -> Stmt | None:
    """The tile by one statement of the whole warp, where it lies in rows of shared memory.

    rewrite:  F[0..1] = S[r + x//4*40 + x%4*2 ..]; F[2..3] = S[r + x//4*40 + x%4*2 + 320 ..]; ..
              ->   F[0..7] = rows of 4 from S[r + x%16*40 + x//16*8 ..]
    """
    held, place = node.held, emission.place
    assert held is not None
    if held.atom.by_thread:
        return None
    lane = place.lane(held.atom)
    sources = [place.producer(n) for n in E.walk(node.body) if n.op == "read"]
    if len(sources) != 1 or sources[0] is None or sources[0].scope != "shared":
        return None
    size = held.fragment.dtype.bytes
    width, count = PLACE // size, held.fragment.elements * size // PLACE
    g, q, j, i = (E.var(name) for name in ("row", "place", "element", "matrix"))
    known = {g: (0, ROWS - 1), q: (0, PLACES - 1), j: (0, width - 1), i: (0, count - 1)}
    simple = Simplifier({**place.simplify.ranges, **known})

    own = {g, q, j, i, lane}

    def at(lane: Expr, element: Expr) -> Expr | None:
        """Where the element lies in shared memory, if all of the tile do or none is there."""
        found = _element(emission, node, lane, element, known)
        together = not own & E.free_variables(found.test)
        plain = found.value.op == "load" and found.value.attr.scope == "shared"
        return found.value.args[0] if together and plain else None

    def is_row(first: Expr | None, step: Expr) -> bool:
        """Whether elements lie side by side, from an aligned one on."""
        if whole is None or first is None:
            return False
        apart = simple(whole - first - step)
        return apart.op == "const" and not apart.attr and simple.is_multiple(first, ROW // size)

    whole = at(g * PLACES + q, i * width + j)
    row, matrix = lane % ROWS, lane // ROWS % count
    if is_row(at(g * PLACES, i * width), q * width + j):
        index, transposed = at(row * PLACES, matrix * width), False
    elif size == TURNED and is_row(at(q, i * width + j), g):
        index, transposed = at(row // width, matrix * width + row % width), True
    else:
        return None
    assert index is not None
    found = _element(emission, node, g * PLACES + q, i * width + j, known)
    (buffer,) = emission.accesses.targets(node)
    to = Region(buffer, emission.accesses.tile(node), held.fragment.elements)
    rows = LoadRows(to, Region(found.value.attr, place.simplify(index), ROW // size), transposed)
    made = seq(rows, *(_rounded(to, k) for k in range(to.count) if node.rounds == LOADED))
    if found.test.op == "const":
        return made if found.test.attr else None
    zero = E.const(0, buffer.dtype)
    return If(found.test, made, seq(*(Store(buffer, to.index + k, zero) for k in range(to.count))))


def in_pairs(stmt: Stmt, place: Placement) -> Stmt:
    """Operands of which two tiles are loaded at once, where each is two matrices.

    rewrite:  for t in 4: F[t*4 .. ] = rows of 2 from S[t*8 + x%8*40 + x//8%2*8 ..]
              ->   for t in 2: F[t*8 .. ] = rows of 4 from S[t*16 + x//16*8 + x%8*40 + x//8%2*8 ..]
    """
    if not isinstance(stmt, For):
        return map_children(stmt, lambda s: in_pairs(s, place))
    test: Expr | None = None
    other: Stmt | None = None
    body = stmt.body
    if isinstance(body, If):
        test, other = body.condition, body.orelse
        body = body.then
    rows, *rest = body.body if isinstance(body, Seq) else (body,)
    odd = isinstance(stmt.extent, Expr) or stmt.extent % 2
    if not isinstance(rows, LoadRows) or rows.matrices != PAIR or odd:
        return replace(stmt, body=in_pairs(stmt.body, place))
    var, to, simple = stmt.var, rows.to, place.simplify
    step = simple(E.substitute(to.index, {var: var + 1}) - to.index - to.count)
    if step.op != "const" or step.attr or (test is not None and var in E.free_variables(test)):
        return stmt
    first = var * 2 if stmt.extent > PAIR else E.const(0)
    second = place.thread_var["threadIdx.x"] // (PAIR * ROWS)

    def at(stmt: Stmt, which: Expr) -> Stmt:
        tile = {var: first + which}
        return map_children(stmt, lambda s: at(s, which), lambda e: simple(E.substitute(e, tile)))

    zero, one = E.const(0), E.const(1)
    index = simple(E.substitute(rows.source.index, {var: first + second}))
    both = LoadRows(
        Region(to.buffer, simple(E.substitute(to.index, {var: first})), to.count * 2),
        replace(rows.source, index=index), rows.transposed,
    )  # fmt: skip
    body = seq(both, *(at(s, which) for which in (zero, one) for s in rest))
    if test is not None:
        zeros = None if other is None else seq(*(at(other, which) for which in (zero, one)))
        body = If(test, body, zeros)
    return replace(stmt, extent=stmt.extent // 2, body=body) if stmt.extent > PAIR else body


def _rounded(region: Region, k: int) -> Stmt:
    at = region.index + k
    return Store(region.buffer, at, E.call(ROUNDED, load(region.buffer, at)))


def _within_sums(coordinates: dict[Expr, Expr], emission: Emission, node: Node) -> list[Expr]:
    """Where terms end within an atom: both operands are zero there, whatever lies in memory."""
    place, tests = emission.place, []
    for read in node.reads:
        reader = read.reader
        assert reader.product is not None
        product = reader.product
        k, size = product.parts["k"].root, product.atom.extents["k"]
        if not isinstance(k.extent, int) or k.extent % size == 0:
            continue
        assert node.held is not None
        dim = next(d for d, letter in node.held.letters if letter == "k")
        start = E.substitute(
            read.expression.args[dim], {**place.coordinates(reader), k.var: E.const(0)}
        )
        tests.append(coordinates[node.op.axis[dim].var] - start < k.extent)
    return tests


def product(emission: Emission, node: Node) -> Reduction:
    """The sums of a stage, by an atom.

    rewrite:  for k.outer: for m in 16: for n in 8: for k in 16: C[m, n] += F[m, k] * G[k, n]
              ->   C[0..3] = 0; for k.outer: C[0..3] += F[0..7] * G[0..3]      (atom)
    """
    assert node.product is not None and node.held is not None
    _check_splits(emission, node)
    accesses, guards, atom = emission.accesses, emission.guards, node.product.atom
    (buffer,), index = accesses.targets(node), accesses.tile(node)
    lanes, first = guards.lanes(node, once=False), first_reduction(node)
    inside = guards if atom.by_group else guards.without(node, guards.edges(node))
    spatial = E.binary("and", lanes, inside.of(node, SPATIAL))

    def identity(renamed: Renaming) -> Stmt:
        zero = E.const(0, buffer.dtype)
        stores = (Store(buffer, renamed(index + k), zero) for k in range(atom.sum.elements))
        return guarded(renamed(spatial), seq(*stores))

    def region(of: Operand) -> Region:
        return Region(*accesses.tile_read(node, of), of.held.fragment.elements)

    start = emission.again(node, first, identity, "init")
    if atom.by_group:
        return _by_group(emission, node, start, buffer, index)
    update = Mma(
        atom, Region(buffer, index, atom.sum.elements), region(node.product.a),
        region(node.product.b),
    )  # fmt: skip
    # What lies beyond the tensor has a place among the sums, and operands that are zero, or what a
    # copy left there: nobody stores it, and a branch around each atom costs more.
    within = guards.without(node, guards.edges(node))
    guard = E.binary("and", lanes, within.of(node, ALL))
    if node.product.where is not None:
        guard = E.binary("and", guard, accesses.value(node, node.product.where))
    return Reduction(guarded(guard, update), {first: lambda nest: seq(start, nest)})


def terms(emission: Emission, node: Node, combiner: Combiner) -> Reduction:
    """Sums of what atoms made, element by element, by the lanes that hold them.

    rewrite:  for k in 4: for m in 16: for n in 8: C[m, n] += P[m, n]*S[k, m]
              ->   C[0..3] = 0; for k in 4: C[0] += P[0]*S[k, x//4]; ..; C[3] += P[3]*S[k, x//4+8]
    """
    assert node.held is not None
    held, place, first = node.held, emission.place, first_reduction(node)
    (buffer,), index = emission.accesses.targets(node), emission.accesses.tile(node)
    lanes, lane = emission.guards.lanes(node, once=False), place.lane(held.atom)
    reduced = reduction_of(node.body)
    assert reduced is not None
    elements = range(held.fragment.elements)

    def identity(renamed: Renaming) -> Stmt:
        stores = (Store(buffer, renamed(index + k), combiner.identity) for k in elements)
        return guarded(renamed(lanes), seq(*stores))

    stmts: list[Stmt] = []
    for k in elements:
        row, column = held.fragment.place(lane, k)
        at = dict(zip(held.fragment.axes, (row, column), strict=True))
        inside = {node.op.axis[dim]: at[letter] for dim, letter in held.letters}
        values = {ax: v + inside[ax] if ax in inside else v for ax, v in place.values.items()}
        here = replace(place, values=values)
        accesses, guards = emission.accesses.at(here), replace(emission.guards, place=here)
        tests = guards.iterations(node, ("reduce",))
        if not _all_there(accesses, node):
            tests = guards.tests(node, ALL)
        value = accesses.value(node, reduced.args[0])
        both = combiner.combine(load(buffer, place.simplify(index + k)), value)
        test = place.simplify(E.all_of(*tests))
        stmts.append(guarded(test, Store(buffer, place.simplify(index + k), both)))
    start = emission.again(node, first, identity, "init")
    return Reduction(guarded(lanes, seq(*stmts)), {first: lambda nest: seq(start, nest)})


def _all_there(accesses: Accesses, node: Node) -> bool:
    """Whether what a tile reads beyond the end is in memory of the kernel, which somebody wrote:
    nobody stores what comes of it."""
    place = accesses.place
    for read in (e for e in E.walk(node.body) if e.op == "read"):
        source = place.producer(read)
        if source is None or source.parent is None or not all(accesses.has_room(node, read)):
            return False
        if source.scope == "shared" and not is_asynchronous(source, place.bounds):
            return False
    return True


def _by_group(
    emission: Emission, node: Node, start: Stmt, buffer: Buffer, index: Expr
) -> Reduction:
    """The same by an atom of a group, which goes on beside its threads.

    start: sets the sums to zero; buffer: of the sums; index: of the first of an atom
    rewrite:  for k.outer: {wait; show; barrier; for k.inner: C += S * T}
              ->   C = 0
                   for k.outer: {wait; show; barrier; begin; for k.inner: C += S * T;
                                 if (k.outer is the last) end(0) else end(1)}
    With fewer than three slots each batch is waited for: end(0) always.  The last iteration stands
    behind the loop then, with its own wait (`Emission.iterated`).
    """
    assert node.product is not None
    guards, place, atom = emission.guards, emission.place, node.product.atom
    first, leaves = first_reduction(node), node.stage.leaf_iter_vars
    operands = node.product.a, node.product.b
    whole = Region(buffer, E.const(0), int(buffer.size))
    sums = Region(buffer, index, atom.sum.elements)
    large = [_tile_of(emission, node, of) for of in operands]
    products = [large]
    if atom.split:  # small ones first
        second = (emission.accesses.storage.second[of.node] for of in operands)
        small = [replace(r, buffer=b) for r, b in zip(large, second, strict=True)]
        products = [[small[0], large[1]], [large[0], small[1]], large]
        atom = of_parts(atom)
    update = seq(*(Mma(atom, sums, *regions) for regions in products))
    test = E.binary("and", guards.lanes(node, once=False), guards.of(node, ALL))
    at = [leaves.index(of.node.attach_axis) for of in operands if of.node.parent is node]  # type: ignore[arg-type]
    ring = max(at, default=-1)
    behind = int(lag(node, leaves[ring], place.bounds)) if ring >= 0 else 0
    inside = max(ring + 1, first)
    end: Stmt = MmaEnd(0, whole)
    if behind:
        turns = [
            place.values[leaf].equal(place.trips(node, leaf) - 1) for leaf in leaves[first:inside]
        ]
        end = If(E.all_of(*turns), end, MmaEnd(behind, whole))
    around: dict[int, Callable[[Stmt], Stmt]] = {
        inside: lambda nest: seq(MmaBegin(whole), nest, end)
    }

    def outermost(nest: Stmt) -> Stmt:
        nest = around_first(nest) if around_first is not None else nest
        return seq(start, nest)

    around_first = around.get(first)
    around[first] = outermost
    return Reduction(guarded(test, update), around)


def _tile_of(emission: Emission, node: Node, of: Operand) -> Region:
    """Where a group reads an operand.  Raises LegalityError where it would not find it there."""
    tile, place, read = getattr(of.held.atom, of.held.part), emission.place, of.node
    buffer, index = emission.accesses.tile_read(node, of)
    size, simple = buffer.dtype.bytes, place.simplify
    (depth,) = (d for d, letter in of.held.letters if letter == "k")
    (across,) = (d for d, letter in of.held.letters if letter != "k")
    layout = emission.accesses.storage.layouts[read]
    assert isinstance(layout, Strided) and node.product is not None
    row = buffer.swizzle // size
    shape = [place.extent(ax) for ax in read.op.axis]
    k = node.product.parts["k"].root.extent
    rows, columns = tile.shape
    begins = row and simple(index // row % ROWS_OF_EIGHT), row and simple(index % row % columns)
    fits = (
        bool(slots(read, place.bounds)) and is_asynchronous(read, place.bounds)
        and layout.strides[depth] == 1 and row >= columns
        and layout.strides[across] == shape[depth] == row and shape[across] % rows == 0
        and isinstance(k, int) and k % columns == 0
        and all(isinstance(x, Expr) and x.op == "const" and not x.attr for x in begins)
    )  # fmt: skip
    if not fits:
        raise LegalityError(
            f"tensorize({node.name}, {of.held.atom})",
            f"{read.name}, {shape} in rows of {layout.strides[across]} elements swizzled by"
            f" {buffer.swizzle} bytes, is no asynchronous copy of whole {tile.shape} tiles",
            f"Slices of k of 128 bytes, s[{read.name}].swizzle(128) and .pipeline(n), s.pad to"
            " whole atoms.",
        )  # fmt: skip
    return Region(buffer, index, tile.span(buffer.swizzle))


def _check_splits(emission: Emission, node: Node) -> None:
    """Raise LegalityError where atoms would overlap, as masks do for whoever asks them."""
    assert node.product is not None
    bounds, atom = emission.place.bounds, node.product.atom
    for letter, part in node.product.parts.items():
        factors = [(split.parent.name, bounds.factor[split]) for split in part.splits]
        for name, factor in [*factors, (part.leaf.name, bounds.extent[part.leaf])]:
            wanted = atom.extents[letter]
            if factor % wanted:
                raise LegalityError(
                    f"split of {node.name}.{name}",
                    f"it is split by {factor}, and {letter} of {atom} is {wanted}",
                    f"Split by a multiple of {wanted}.",
                )
