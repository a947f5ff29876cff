"""What a schedule means, as text: stages, loops, statements with real indices, guards, buffers.

In: the state of a schedule, with its structure and bounds as far as they are known.  Out: text.
Statements name elements of whole tensors, whatever part of them a buffer holds.  What depends on
open decisions is an expression of them, or "?".
"""

from __future__ import annotations

from collections.abc import Mapping

from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.printer import infix_text
from tilewright.ir.symbols import last
from tilewright.ir.tuples import parts
from tilewright.schedule.space.decision import Choice, Size, ceil_div, choice_text, same
from tilewright.schedule.state import FuseRelation, ScheduleState, StageState
from tilewright.schedule.tree.access import simplified_indices
from tilewright.schedule.tree.bounds import Bounds
from tilewright.schedule.tree.chains import chains
from tilewright.schedule.tree.recurrence import steps_of
from tilewright.schedule.tree.structure import Structure, inlined_bodies
from tilewright.te.opaque import OpaqueOp
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, reduction_of

_KIND = {"vectorize": "vectorized", "unroll": "unrolled"}
_UNKNOWN = E.var("?")


def place_text(stage: StageState) -> str:
    """Say where a stage is computed."""
    if stage.attach is None:
        return "inlined" if stage.attach_kind == "inline" else "computed on its own"
    host, axis = stage.attach
    how = "at" if stage.along is None else "added up along"
    return f"{how} {host.name}.{axis.name}"


def loops_text(stage: StageState) -> str:
    """The loops of a stage in one line, each with what marks it."""
    marked = ((ax.name, stage.mark(ax)) for ax in stage.leaf_iter_vars)
    return " ".join(f"{name}({mark})" if mark else name for name, mark in marked) or "none"


def nest_text(
    schedule: ScheduleState[StageState],
    tree: Structure | None = None,
    bounds: Bounds | None = None,
) -> str:
    """Every stage: its buffer, its loops with attached stages inside, its statement.

    tree: None for a schedule that is not finished; bounds: None while decisions are open
    """
    return "\n".join(_Writer(schedule, tree, bounds).lines)


class _Writer:
    def __init__(
        self, schedule: ScheduleState[StageState], tree: Structure | None, bounds: Bounds | None
    ) -> None:
        self.schedule, self.tree, self.bounds = schedule, tree, bounds
        self.bodies = inlined_bodies(schedule)
        self.loops: dict[IterVar, Expr] = {}
        self.extent: dict[IterVar, Size | None] = {}
        for stage in reversed(schedule.stages):  # hosts before what is computed inside them
            around = {self.loops[ax].attr for _, ax in _around(stage)}
            for ax in stage.leaf_iter_vars:
                clash = ax.name in around
                self.loops[ax] = E.var(f"{stage.name}.{ax.name}" if clash else ax.name)
            self.extent |= _open_extents(stage)
        if bounds is not None:
            self.extent |= {ax: _sized(n) for ax, n in bounds.extent.items()}  # type: ignore[arg-type, misc]
        self.lines: list[str] = []
        for stage in schedule.stages:
            self._stage(stage)

    def _stage(self, stage: StageState) -> None:
        if isinstance(stage.op, PlaceholderOp):
            role = "constant" if stage.op.constant else "input"
            self._line(0, f"{stage.name}: {_type(stage.op.dtype, stage.op.shape)} {role}")
        elif stage.attach_kind == "inline":
            readers = ", ".join(reader.name for reader in self.schedule.readers(stage))
            self._line(0, f"{stage.name}: inlined into {readers or 'nothing'}")
        elif isinstance(stage.op, OpaqueOp):
            types = ", ".join(_type(t.dtype, t.shape) for t in stage.tensors)
            scope = stage.scope if self.tree is None else "global"
            self._line(0, f"{stage.name}: {types} {scope}, statements")
            for line in str(stage.op.call or stage.op.script).splitlines():
                self._line(1, line)
        elif stage.attach_kind == "root":
            self._nest(stage, 0)

    def _line(self, indent: int, text: str) -> None:
        self.lines.append("  " * indent + text)

    def _nest(self, stage: StageState, indent: int) -> None:
        self._line(indent, self._buffer(stage))
        for ax in stage.leaf_iter_vars:
            indent += 1
            mark = stage.mark(ax) or ""
            kind = f"{_KIND.get(mark, mark)} " if mark else ""
            hints = [f"{key} {value}" for key, (at, value) in stage.pragmas.items() if at is ax]
            comment = f"  # {', '.join(hints)}" if hints else ""
            self._line(indent, f"{kind}for {self.loops[ax].attr} in {self._size(ax)}:{comment}")
            for child in self.schedule.attached(stage, ax):
                self._nest(child, indent + 1)
        self._statement(stage, indent + 1)

    def _size(self, axis: IterVar) -> str:
        extent = self.extent.get(axis)
        return "?" if extent is None else str(extent)

    # -- buffers -----------------------------------------------------------------------------------
    def _buffer(self, stage: StageState) -> str:
        """The line that opens a stage: type and scope of its buffer, its size, its place."""
        node = self.tree.of_stage[stage] if self.tree is not None else None
        scope = node.scope if node is not None else stage.scope
        assert isinstance(stage.op, ComputeOp)
        op = stage.op
        shape = [self._size(ax) for ax in op.axis]
        types = ", ".join(_type(dtype, shape) for dtype in op.dtypes)
        parts = [f"{stage.name}: {types} {scope}".rstrip()]
        if self.bounds is not None and node is not None:
            count = _sized(self.bounds.elements(node))  # type: ignore[arg-type]
            several = isinstance(count, Expr) or count != 1
            size = op.bytes if node.product is None else op.accumulator.bytes
            of = " of a lane" if node.held is not None else ""
            parts.append(f"{count} element{'s' * several}, {count * size} bytes{of}")
            copies = int(self.bounds.replicas(node))
            if copies > 1:
                parts.append(f"{copies} copies (vthread)")
        for dim, (factor, offset) in stage.aligned.items():
            stride = f" {self.bounds.strides(node)[dim]}" if self.bounds and node else ""
            parts.append(f"stride of {op.axis[dim].name}{stride} ({factor}n + {offset})")
        if stage.order:
            parts.append(f"stored as {', '.join(op.axis[dim].name for dim in stage.order)}")
        if not same(stage.swizzled, 0):
            parts.append(f"swizzled by {stage.swizzled} bytes")
        if op.accumulator is not op.dtype:
            parts.append(f"accumulated in {op.accumulator}")
        if self.bounds is not None and node is not None:
            made = [stage.leaf_iter_vars[b.at] for b in chains(node, self.bounds).blocks if b.made]
            if made:
                parts.append(f"added up in blocks from {', '.join(ax.name for ax in made)} inwards")
        if how := _copied(stage):
            parts.append(how)
        if stage.joined:
            parts.append("read by the last block")
        if stage.attach is not None:
            parts.append(place_text(stage))
        if node is not None and self.tree is not None and node in self.tree.prepacked:
            parts.append("packed before the program runs")
        for key, (axis, value) in stage.pragmas.items():
            if axis not in stage.leaf_iter_vars:
                parts.append(f"{key} {value} in {axis.name}")
        return ", ".join(parts)

    # -- statements --------------------------------------------------------------------------------
    def _statement(self, stage: StageState, indent: int) -> None:
        body = self.bodies[stage]
        values = self._values(stage)
        simple = Simplifier(
            {
                self.loops[ax]: (0, last(n))
                for ax, n in self.extent.items()
                if ax in self.loops and isinstance(n, (int, Expr))
            }
        )
        place = self._place(stage, values)
        index = {ax: simple(self._coordinate(stage, ax, values, place)) for ax in values}
        mapping = {ax.var: e for ax, e in index.items()}
        node = reduction_of(body)
        sign, value = ("=", body) if node is None else (node.attr[0].sign, node.args[0])
        value = simplified_indices(E.substitute(value, mapping), simple)
        guard = simple(E.all_of(*self._guards(stage, values, place)))
        if guard.op != "const":
            self._line(indent, f"if {infix_text(guard)}:")
            indent += 1
        at = ", ".join(infix_text(index[ax]) for ax in stage.op.axis)
        left = ", ".join(f"{name}[{at}]" for name in stage.buffer_names)
        self._line(indent, f"{left} {sign} {', '.join(map(infix_text, parts(value)))}")

    def _values(self, stage: StageState) -> dict[IterVar, Expr]:
        """Axes of the stage, and of what shares its kernel, as expressions of loops around it or of
        thread indices."""
        inside = {*stage.leaf_iter_vars, *(ax for _, ax in _around(stage))}
        values: dict[IterVar, Expr] = {}
        for st in self.schedule.stages:
            if st.attach_kind == "inline":
                continue
            loops = {}
            for ax in st.leaf_iter_vars:
                tag = st.binds.get(ax)
                loops[ax] = self.loops[ax] if ax in inside or tag is None else E.var(tag)
                if same(self.extent[ax], 1):
                    loops[ax] = E.const(0)
            inner = {r.inner: _sized(self.extent[r.inner]) for r in st.relations}
            values |= st.axis_values(loops, inner)
        return values

    def _place(self, stage: StageState, values: Mapping[IterVar, Expr]) -> list[Expr]:
        """Where the part that is computed begins, per dimension."""
        rank = len(stage.op.axis)
        if stage.attach is None:
            return [E.const(0)] * rank
        if self.bounds is None or self.tree is None:
            return [_UNKNOWN] * rank
        return [b.expression(values) for b in self.bounds.base[self.tree.of_stage[stage]]]

    def _coordinate(
        self, stage: StageState, axis: IterVar, values: Mapping[IterVar, Expr], place: list[Expr]
    ) -> Expr:
        if axis not in stage.op.axis:
            known = self.bounds is not None and axis in self.bounds.begins
            begin = self.bounds.begins[axis].expression(values) if known else 0  # type: ignore[union-attr]
            return values[axis] + begin
        return place[stage.op.axis.index(axis)] + values[axis]

    def _guards(
        self, stage: StageState, values: Mapping[IterVar, Expr], place: list[Expr]
    ) -> list[Expr]:
        """What must hold for an iteration to count, where the loops do not say so."""
        if self.bounds is None or self.tree is None:
            return []
        bounds, node = self.bounds, self.tree.of_stage[stage]
        steps = steps_of(self.tree)
        begun = steps.begun(node)
        guarded = [ax for ax, flag in bounds.guards[node].items() if flag]
        owner = node.parent
        while owner is not None:
            guarded += [
                ax for ax, flag in bounds.guards[owner].items() if flag and ax in node.carried
            ]
            owner = owner.parent
        tests = [values[ax] < _sized(bounds.extent[ax]) for ax in guarded]  # type: ignore[arg-type]
        tests += [values[begun[0]] >= begun[1]] if begun is not None else []
        if node in steps.late:
            at = self._coordinate(stage, node.op.axis[0], values, place)
            tests.append(at >= steps.late[node])
        for ax, (below, above) in zip(node.op.axis, bounds.outside[node], strict=True):
            at = self._coordinate(stage, ax, values, place)
            tests += [at >= 0] if below else []
            tests += [at < ax.size] if above else []
        return tests


def _copied(stage: StageState) -> str:
    """How a copy into shared memory is made, where its threads do not load and store."""
    if not stage.is_copied:
        return ""
    alone = same(stage.slots, 1)
    how = "asynchronous" if alone else f"ring of {stage.slots} slots"
    if not stage.is_bulk:
        return how
    own = "" if same(stage.loaders, 0) else f" by {stage.loaders} warps of their own"
    return ("bulk copies" if alone else f"{how} of bulk copies") + own


def _type(dtype: object, shape: object) -> str:
    return f"{dtype}[{', '.join(map(str, shape))}]"  # type: ignore[call-overload]


def _around(stage: StageState) -> list[tuple[StageState, IterVar]]:
    """The loops around a stage, innermost first."""
    result: list[tuple[StageState, IterVar]] = []
    while stage.attach is not None:
        stage, axis = stage.attach
        upto = stage.leaf_iter_vars[: stage.leaf_iter_vars.index(axis) + 1]
        result += [(stage, ax) for ax in reversed(upto)]
    return result


def _open_extents(stage: StageState) -> dict[IterVar, Size | None]:
    """Extents as far as the splits of the stage alone tell them; None where they do not."""
    known = stage.attach is None
    extent: dict[IterVar, Size | None] = {
        ax: ax.size if known or ax.kind == "reduce" else None
        for ax in (*stage.op.axis, *stage.op.reduce_axis)
    }
    extent |= dict.fromkeys(stage.units, 1)
    for r in stage.relations:
        if isinstance(r, FuseRelation):
            outer, inner = extent[r.outer], extent[r.inner]
            extent[r.fused] = None if outer is None or inner is None else outer * inner
            continue
        n = extent[r.parent]
        given = r.factor if r.factor is not None else r.nparts
        other = None if n is None else ceil_div(n, given)
        extent[r.outer], extent[r.inner] = (other, given) if r.nparts is None else (given, other)
    return extent


def _sized(size: Size | None) -> int | Expr:
    """An extent as an operand of index arithmetic."""
    if size is None:
        return _UNKNOWN
    if isinstance(size, Expr):
        return size
    return E.var(choice_text(size, 9)) if isinstance(size, Choice) else int(size)
