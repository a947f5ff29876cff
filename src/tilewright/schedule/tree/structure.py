"""The structure of a schedule: stored stages, loops, attachment, scopes and reads.

In: a `ScheduleState`, its decisions open or closed.  Out: `Structure`, which holds no number of it.
Read next: `bounds.py` (the numbers), `loop_tree.py` (both together).
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tilewright.base.concurrency import cached_property
from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.ir.symbols import last, ranges
from tilewright.ir.tuples import parts
from tilewright.schedule.copies import source_of, why_no_copy
from tilewright.schedule.scopes import FRAGMENT, INSIDE, SCOPE_RANK, tag_rank
from tilewright.schedule.space.decision import same
from tilewright.schedule.state import FuseRelation, ScheduleState, SplitRelation, StageState
from tilewright.schedule.tree.access import Access, affine_access, simplified_indices
from tilewright.schedule.tree.boxes import View, view_of
from tilewright.schedule.tree.layout import Held
from tilewright.schedule.tree.products import Fold, Product, find_products
from tilewright.schedule.tree.rounding import find_rounding
from tilewright.schedule.tree.running import Scaled, running
from tilewright.te.opaque import OpaqueOp
from tilewright.te.tensor import ComputeOp, IterVar, PlaceholderOp, Tensor


@dataclass(frozen=True, eq=False)
class Read:
    """`reader` reads the tensor of `producer`; an index is None where it is not affine.

    expression: where its body does
    """

    reader: Node
    indices: tuple[Access | None, ...]
    expression: Expr


@dataclass(eq=False)
class Node:
    """A stage that is stored (not inlined), with its expression after inlining.

    simple:  knows the ranges of its axes
    product: what its atom multiplies, if it has one; fold: what lanes reduce of sums, if they do
    running: what is added up of a maximum that is not complete, and so has to follow it
    held:    how a warp holds its buffer, if one does
    view:    what bulk copies bring to it, if they do
    rounds:  when its elements are rounded for atoms that cut, if they are: see `rounding.py`
    rounded: whether they are afterwards; parts: numbers that there are for each then
    """

    stage: StageState
    body: Expr
    scope: str = "global"
    parent: Node | None = None
    attach_axis: IterVar | None = None
    children: list[Node] = field(default_factory=list)
    reads: list[Read] = field(default_factory=list)  # by its readers
    points: frozenset[IterVar] = frozenset()
    carried: frozenset[IterVar] = frozenset()  # axes around it whose guards its statements repeat
    simple: Simplifier = field(default_factory=lambda: Simplifier({}))
    product: Product | None = None
    fold: Fold | None = None
    running: tuple[Scaled, ...] = ()
    held: Held | None = None
    view: View | None = None
    rounds: str = ""
    rounded: bool = False
    parts: int = 1

    @property
    def op(self) -> ComputeOp:
        assert isinstance(self.stage.op, ComputeOp)
        return self.stage.op

    @property
    def name(self) -> str:
        return self.stage.name

    @property
    def joined(self) -> bool:
        """Whether blocks of its own compute it inside a loop over blocks: see `joins.py`."""
        return self.stage.joined and self.parent is not None

    @property
    def root(self) -> Node:
        return self if self.parent is None else self.parent.root

    def __repr__(self) -> str:
        return f"node({self.name})"


class Structure:
    """What holds for a schedule whatever its decisions.

    nodes:  the stages that are stored, producers first
    opaque: stages of statements, with what is computed there; they have no loops here, and are to
            their readers as inputs are

    Raises ScheduleError for a schedule that is not finished: a stage that is computed where a
    reader does not find it, or in a scope that ends too early.
    """

    def __init__(self, schedule: ScheduleState[StageState]) -> None:
        self.schedule = schedule
        bodies = inlined_bodies(schedule)
        self.opaque = {st: st.op for st in schedule.stages if isinstance(st.op, OpaqueOp)}
        self.nodes = [Node(st, body) for st, body in bodies.items() if st not in self.opaque]
        self.of_stage = {node.stage: node for node in self.nodes}
        self.stage_of_axis = {ax: n for n in self.nodes for ax in n.stage.all_iter_vars}
        self.relation_under: dict[IterVar, SplitRelation | FuseRelation] = {}
        self.leaves_under: dict[IterVar, frozenset[IterVar]] = {}
        for node in self.nodes:
            self._index_axes(node.stage)
        self._attach()
        self._collect_reads()
        self.tag_of: dict[IterVar, str] = {
            ax: t for n in self.nodes for ax, t in n.stage.binds.items()
        }
        for stage in self.opaque:
            _check_stays(stage)
        for node in self.nodes:
            node.scope = self._scope(node)
            self._check_binds(node)
        find_products(self.nodes)
        for node in self.nodes:
            node.points = self._points(node)
        for node in reversed(self.nodes):
            node.carried = self._carried(node)
        for node in self.nodes:
            self._check_attachment(node)
            self._check_copies(node)
        find_rounding(self.nodes, {n.op.output_tensor: n for n in self.nodes})

    @property
    def roots(self) -> list[Node]:
        """Nodes computed on their own at run time, in order: each is one kernel, but for those
        without elements."""
        return [n for n in self.nodes if self._is_alone(n) and 0 not in n.op.shape]

    @property
    def stored_alone(self) -> list[StageState]:
        """Stages with a buffer of their own while the program runs, in order."""
        alone = {n.stage for n in self.nodes if self._is_alone(n)}.union(self.opaque)
        return [stage for stage in self.schedule.stages if stage in alone]

    def _is_alone(self, node: Node) -> bool:
        return node.parent is None and node not in self.prepacked

    @cached_property
    def prepacked(self) -> dict[Node, Tensor]:
        """Packed constants -> the constant: packed before the program runs, without a kernel.  Not
        what is computed in a loop, from the constant, nor what has gaps in memory."""
        found: dict[Node, Tensor] = {}
        for node in self.nodes:
            constant = node.op.tag == "pack" and node.op.input_tensors[0].op.constant
            if constant and node.parent is None and not node.stage.aligned:
                found[node] = node.op.input_tensors[0]
        return found

    def subtree(self, root: Node) -> list[Node]:
        """`root` and everything computed inside it, producers first."""
        return [n for n in self.nodes if n.root is root]

    def path(self, node: Node) -> list[tuple[Node, IterVar]]:
        """The loops around `node`'s attach point, innermost first."""
        result: list[tuple[Node, IterVar]] = []
        while node.parent is not None:
            leaves = node.parent.stage.leaf_iter_vars
            assert node.attach_axis is not None
            upto = leaves[: leaves.index(node.attach_axis) + 1]
            result += [(node.parent, ax) for ax in reversed(upto)]
            node = node.parent
        return result

    def _index_axes(self, stage: StageState) -> None:
        for r in stage.relations:
            if isinstance(r, SplitRelation):
                self.relation_under[r.parent] = r
            else:
                self.relation_under[r.outer] = self.relation_under[r.inner] = r

        def under(axis: IterVar) -> frozenset[IterVar]:
            done = self.leaves_under.get(axis)
            if done is None:
                r = self.relation_under.get(axis)
                if r is None:
                    done = frozenset((axis,))
                elif isinstance(r, SplitRelation):
                    done = under(r.outer) | under(r.inner)
                else:
                    done = under(r.fused)
                self.leaves_under[axis] = done
            return done

        for ax in stage.all_iter_vars:
            under(ax)

    def pieces(self, axis: IterVar) -> frozenset[IterVar]:
        """What `axis` is made of, such that axes without a common piece vary without each other:
        what it was split into, up to where pieces were fused with others.  A fused axis, and what
        it was split into, has the pieces of all that was fused."""
        stage = self.stage_of_axis[axis].stage
        over: dict[IterVar, SplitRelation | FuseRelation] = {}
        for r in stage.relations:
            made = (r.outer, r.inner) if isinstance(r, SplitRelation) else (r.fused,)
            over |= dict.fromkeys(made, r)
        made_by = over.get(axis)
        while isinstance(made_by, SplitRelation):
            made_by = over.get(made_by.parent)
        if made_by is not None:
            return self.pieces(made_by.outer) | self.pieces(made_by.inner)
        below = self.relation_under.get(axis)
        if isinstance(below, SplitRelation):
            return self.pieces(below.outer) | self.pieces(below.inner)
        return frozenset((axis,))

    def _attach(self) -> None:
        for node in self.nodes:
            if node.stage.attach_kind != "scope":
                continue
            assert node.stage.attach is not None
            parent, axis = node.stage.attach
            if axis not in parent.leaf_iter_vars:
                raise ScheduleError(
                    f"compute_at({node.name}, {parent.name}.{axis.name})",
                    f"{axis.name} is no loop of {parent.name}",
                )
            node.parent, node.attach_axis = self.of_stage[parent], axis
            node.parent.children.append(node)

    def _collect_reads(self) -> None:
        for reader in self.nodes:
            axes = {ax.var: ax for ax in (*reader.op.axis, *reader.op.reduce_axis)}
            known = ranges(self.schedule.dag.extent_symbols)
            # an axis of one element is one of a tile, where lanes hold what is read
            least = int(any(s.scope == FRAGMENT for s in self._sources(reader)))
            limits = {v: (0, max(last(ax.size), least)) for v, ax in axes.items()}
            simple = Simplifier(known | limits)
            reader.simple = simple
            reader.body = simplified_indices(reader.body, simple)
            for e in dict.fromkeys(n for n in E.walk(reader.body) if n.op == "read"):
                producer = self.of_stage.get(self.schedule[e.attr])
                if producer is not None:
                    indices = tuple(affine_access(simple.linear(i), axes, simple) for i in e.args)
                    producer.reads.append(Read(reader, indices, e))

    def _sources(self, node: Node) -> list[StageState]:
        """The stages that a node reads."""
        return [self.schedule[e.attr] for e in E.walk(node.body) if e.op == "read"]

    def _scope(self, node: Node) -> str:
        """The stage's own scope, or the one its attach point implies."""
        if node.parent is None:
            _check_stays(node.stage)
            return "global"
        if node.stage.scope in INSIDE or node.joined:
            return node.stage.scope
        tags = [self.tag_of.get(ax, "") for _, ax in self.path(node)]
        if node.stage.scope == "global" and any(tags):
            raise ScheduleError(
                f"stage {node.name}",
                "a global buffer inside blocks or threads would be written by all of them",
                "Use scope shared or local.",
            )  # fmt: skip
        if any(t.startswith("threadIdx") or t == "vthread" for t in tags):
            return "local"
        return "shared" if any(tags) else "local"  # on a CPU: scratch of the loop's own

    def _reducing(self, node: Node) -> dict[str, IterVar]:
        """Thread indices that share the reduction of `node`, with its loops."""
        return {tag: ax for ax, tag in node.stage.binds.items() if ax.kind == "reduce"}

    def _check_binds(self, node: Node) -> None:
        """Lanes that do not share the node's buffer must not share the work of filling it, and
        those that share a reduction must reduce the same element."""
        reducing = self._reducing(node)
        for _, ax in self.path(node):
            if self.tag_of.get(ax) in reducing:
                tag = self.tag_of[ax]
                raise ScheduleError(
                    f"bind({node.name}.{reducing[tag].name}, {tag})",
                    f"{node.name} is computed at or inside {ax.name}, which is {tag} too: each of "
                    "the threads would reduce another element",
                    "Bind the reduction to another index, or attach the stage further out.",
                )  # fmt: skip
        for ax, tag in node.stage.binds.items():
            if tag == "vthread" or ax.kind == "reduce":
                continue
            if SCOPE_RANK[node.scope] > tag_rank(tag) or node.scope == FRAGMENT:
                kind = tag.partition("Idx")[0]
                other = ", or use scope shared" if kind == "thread" else ""
                raise ScheduleError(
                    f"bind({node.name}.{ax.name}, {tag})",
                    f"the buffer is {node.scope}: each {kind} would fill a part of its own copy",
                    f"Leave the loop unbound{other}.",
                )  # fmt: skip

    def _points(self, node: Node) -> frozenset[IterVar]:
        """Loop axes with one known value while `node` is computed: those around it, and thread
        indices of its kernel, except those that share its reduction."""
        rank = SCOPE_RANK[node.scope]
        inside = {ax for _, ax in self.path(node)}
        if node.joined:  # tiles have places of their own
            return frozenset(inside)
        shared = {"vthread", *self._reducing(node)}
        inside |= {
            ax for ax, t in self.tag_of.items() if t not in shared and self._same_kernel(ax, node)
        }
        return frozenset(
            ax for ax in inside if ax not in self.tag_of or rank > tag_rank(self.tag_of[ax])
        )

    def _carried(self, node: Node) -> frozenset[IterVar]:
        """Split axes of the stages around `node` that are points there, so that an overhanging
        iteration need not compute it: nothing outside their guards reads it."""
        result: set[IterVar] = set()
        owner = node.parent
        while owner is not None:
            for r in owner.stage.relations:
                if isinstance(r, SplitRelation) and self.leaves_under[r.parent] <= node.points:
                    readers = [read.reader for read in node.reads]
                    if all(reader is owner or r.parent in reader.carried for reader in readers):
                        result.add(r.parent)
            owner = owner.parent
        return frozenset(result)

    def _same_kernel(self, axis: IterVar, node: Node) -> bool:
        owner = self.stage_of_axis[axis]
        return owner is not node and owner.root is node.root and node.parent is not None

    def _check_attachment(self, node: Node) -> None:
        if node.parent is None:
            return
        if node.stage.along is not None:
            self._check_running(node, node.parent)
            return
        place = f"compute_at({node.name}, {node.parent.name}.{node.attach_axis.name})"  # type: ignore[union-attr]
        here = (node.parent, node.attach_axis)
        for read in node.reads:
            around = [(read.reader, ax) for ax in reversed(read.reader.stage.leaf_iter_vars)]
            if here not in around + self.path(read.reader):
                raise ScheduleError(
                    place, f"{read.reader.name} reads {node.name} outside that loop",
                    "Attach the reader inside it, or attach at an outer loop.",
                )  # fmt: skip

    def _check_running(self, node: Node, host: Node) -> None:
        """What reads a reduction that goes along with a loop: inside the loop, or where the host
        is computed, behind it."""
        place = f"accumulate_at({node.name}, {host.name}.{node.attach_axis.name})"  # type: ignore[union-attr]
        leaves = host.stage.leaf_iter_vars
        if leaves[0] is not node.attach_axis or host.parent is None or node.fold is None:
            raise ScheduleError(
                place, "the loop is not the outermost of a stage inside a kernel",
                f"Reorder {host.name}, or compute the stage at once, by compute_at.",
            )  # fmt: skip
        for read in node.reads:
            inside = (host, node.attach_axis) in self._around(read.reader)
            if not inside and read.reader is not host.parent:
                raise ScheduleError(
                    place, f"{read.reader.name} reads {node.name} outside of that loop and of"
                    f" {host.parent.name}",
                    f"What reads the whole is {host.parent.name}.",
                )  # fmt: skip
        node.running = running(node, host, [n for n in self.nodes if n.parent is host])

    def _around(self, node: Node) -> list[tuple[Node, IterVar]]:
        """All loops around the statements of a stage."""
        return [(node, ax) for ax in reversed(node.stage.leaf_iter_vars)] + self.path(node)

    def _check_copies(self, node: Node) -> None:
        """What steps could not know: the scope may have changed, and producers be inlined."""
        if not node.stage.is_copied:
            return
        why = why_no_copy(node.body)
        found = source_of(node.body)
        if found is not None and not why:
            producer = self.of_stage.get(self.schedule[found[1].attr])
            if producer is not None and producer.parent is not None:
                why = f"{producer.name} is computed in the same kernel"
            if node.stage.is_bulk and not why:
                why = self._find_view(node)
        if node.scope != "shared":
            why = f"its buffer is {node.scope}, not shared"
        if why:
            raise ScheduleError(
                f"pipeline({node.name})", why,
                "Asynchronous copies go from tensors in global memory to shared memory.",
            )  # fmt: skip

    def _find_view(self, node: Node) -> str:
        """Why bulk copies cannot fill the stage's buffer; "" where they can."""
        if node.stage.is_scheduled or node.stage.aligned:
            return "its loops are split, bound or marked, or its rows moved apart"
        found = view_of(node.body, node.op.axis, self.storage_order(node), node.simple)
        if isinstance(found, str):
            return found
        source = self.schedule[found.tensor]
        if source.aligned or source.order:
            return f"{source.name} is stored in another order, or with gaps"
        node.view = found
        return self._why_no_loaders(node)

    def _why_no_loaders(self, node: Node) -> str:
        """Why warps of their own cannot load for the loop; "" where they can, or need not."""
        if same(node.stage.loaders, 0):
            return ""
        assert node.parent is not None and node.attach_axis is not None
        if any(tag == "vthread" for tag in self.tag_of.values()):
            return "warps of their own load beside no virtual threads"
        if any(other.joined for other in self.subtree(node.root)):
            return "warps of their own load beside no sums that the last block adds up"
        for other in self.nodes:
            at = [(other.parent, other.attach_axis), *self.path(other)]
            inside = other is not node and (node.parent, node.attach_axis) in at
            if inside and other.scope == "shared" and not other.stage.is_bulk:
                return f"warps of their own load, and {other.name} is shared, too, and in that loop"
        rings = {(n.parent, n.attach_axis) for n in self.subtree(node.root) if n.stage.is_bulk}
        if len(rings) > 1:
            return "warps of their own load for one loop of a kernel"
        return ""

    def storage_order(self, node: Node) -> list[int]:
        """Dimensions of the node's buffer, outermost first.

        Where no step has said it, a local buffer keeps its vectorized dimension innermost, whatever
        the tensor's own order, so that registers are whole vectors.
        """
        if node.stage.order:
            return list(node.stage.order)
        order = list(range(len(node.op.axis)))
        if node.parent is not None and node.scope == "local":
            for ax, how in node.stage.annotations.items():
                if how == "vectorize":
                    inner = [d for d in order if ax in self.leaves_under[node.op.axis[d]]]
                    order = [d for d in order if d not in inner] + inner
        return order


def _check_stays(stage: StageState) -> None:
    """Raises ScheduleError where the buffer of a stage on its own would end before it is read."""
    if stage.scope in INSIDE:
        raise ScheduleError(
            f"stage {stage.name}",
            f"a {stage.scope} buffer ends with its kernel, but the stage is computed on its own",
            "Attach it with compute_at, or use scope global.",
        )


def inlined_bodies(schedule: ScheduleState[StageState]) -> dict[StageState, Expr]:
    """Bodies of stored stages, with reads of inlined stages replaced by their expressions."""
    inlined: dict[Tensor, tuple[ComputeOp, Expr]] = {}  # tensor -> its own value
    bodies: dict[StageState, Expr] = {}
    stands_for = schedule.stands_for

    def rule(node: Expr) -> Expr | None:
        if node.op == "read" and node.attr in stands_for:
            return stands_for[node.attr][node.args]
        if node.op != "read" or node.attr not in inlined:
            return None
        op, body = inlined[node.attr]
        return E.substitute(body, {ax.var: i for ax, i in zip(op.axis, node.args, strict=True)})

    for stage in schedule.stages:
        if isinstance(stage.op, PlaceholderOp):
            continue
        body = E.transform(stage.op.body, rule) if inlined or stands_for else stage.op.body
        if stage.attach_kind == "inline":
            values = zip(stage.tensors, parts(body), strict=True)
            inlined |= {tensor: (stage.op, value) for tensor, value in values}
        else:
            bodies[stage] = body
    return bodies
