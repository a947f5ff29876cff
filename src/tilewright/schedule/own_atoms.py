"""Matrix instructions that users add: `register_atom`.

In: what an instruction computes, as a tensor expression; which lane holds which element; its text
in the languages of kernels.  Out: an atom of the table that `tensorize` takes by name, checked.
Read next: `ir/atoms.py`, `steps/atoms.py`.

A text is believed as little as any kernel: what is built with it is compared with the reference.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tilewright.base.doors import door
from tilewright.base.dtype import FLOAT32
from tilewright.base.errors import ScheduleError
from tilewright.ir.atoms import ALL_ATOMS, UNITS, Atom, Fragment, multiplied, places
from tilewright.ir.expr import Expr
from tilewright.schedule.tree.products import uncast
from tilewright.targets.atoms import ADDED
from tilewright.targets.kind import resolve
from tilewright.targets.limits import AtomRate
from tilewright.targets.target import Target
from tilewright.te.dag import ComputeDAG
from tilewright.te.evaluate import evaluate
from tilewright.te.tensor import ComputeOp, IterVar, Tensor, reduction_of

_NAME = re.compile(r"[A-Za-z]\w*(\.\w+)*", re.ASCII)
_BIT = re.compile(r"[mnk]\d\d?")
LANGUAGES = ("cuda", "opencl", "llvm")
_LATENCY = 8.0  # cycles, of an instruction of which no more is known
_LARGE = 1 << 20
_ROUNDS = 4  # of numbers that a behaviour is tried on


@dataclass(frozen=True)
class OwnAtom:
    """An atom, and where it is.

    needs: (kind of device, a word that `DeviceKind.has` knows): other devices of the kind lack it
    """

    atom: Atom
    needs: tuple[tuple[str, str], ...] = ()

    def rate(self, target: Target) -> AtomRate | None:
        """How fast a target runs it: a lane begins one as often as a multiply-add of float32."""
        if target.kind not in self.atom.texts:
            return None
        asked, has = dict(self.needs).get(target.kind, ""), target.device_kind.has
        if asked and not (has is not None and resolve(has)(target, asked)):
            return None
        m, n, k = self.atom.extents.values()
        rate = target.limits.rate(FLOAT32) * m * n * k / self.atom.lanes
        return AtomRate(self.atom.name, rate, _LATENCY)

    def add(self) -> None:
        """Put it, which was checked, into the table; one that is there already stays."""
        if self.atom.name not in ALL_ATOMS:
            ALL_ATOMS[self.atom.name] = self.atom
            ADDED[self.atom.name] = self


@door(ScheduleError, "register_atom")
def register_atom(
    name: str,
    behaviour: Tensor,
    a: str,
    b: str,
    sum: str,
    texts: Mapping[str, str],
    unit: str = "thread",
    needs: Mapping[str, str] | None = None,
) -> str:
    """Add a matrix instruction, which `tensorize` then takes by its name; returns that.

    behaviour: what it adds to its sums: a tensor [m, n] that sums up a[m, k] * b[k, n] over one
               axis, of two placeholders with these shapes; all extents are powers of two
    a, b, sum: which lane holds which element: the bits of its indices that are bits of the lane,
               a slash, those that are bits of the place among the elements of the lane, each the
               lowest first: "k1 k2 m0 m1 m2 / k0 m3 k3"; of a thread only the latter
    texts:     by language ("cuda", "opencl", "llvm"), the body of a function of three pointers to
               elements of one lane: `d`, the sums, to which it adds, `a` and `b`.  In LLVM they
               are %d, %a, %b, of which no more than the alignment of an element is known; lines
               that begin with `declare` come first, and there is no `ret`
    unit:      who runs it: "thread", or "warp", whose 32 lanes come to it together
    needs:     by kind of target, what a device must have: {"cuda": "sm_61", "llvm": "avx512vnni"}

    Raises ScheduleError for a behaviour that is no such sum, bits that do not name each element
    once, and an instruction that would not compute its behaviour from what its lanes hold.
    """
    place = f"register_atom({name!r})"
    if not _NAME.fullmatch(name):
        raise ScheduleError(place, "it is no name", 'Words with dots between: "dot8.int4".')
    chosen = next((u for u in UNITS.values() if u.name == unit and u.operands == u.sums), None)
    if chosen is None:
        raise ScheduleError(place, f"no unit {unit!r} holds its operands", 'Try "thread".')
    strange = [word for word in texts if word not in LANGUAGES]
    if strange or not any(text.strip() for text in texts.values()):
        raise ScheduleError(
            place, f"no kernel is written in {strange[0]!r}" if strange else "it has no text",
            f"Give a text for one of {', '.join(LANGUAGES)}.",
        )  # fmt: skip
    left, right = _operands(place, behaviour)
    left_bits, right_bits, sum_bits = (
        _fragment(f"{place}: {word}", bits, axes, of, chosen.lanes)
        for word, bits, axes, of in (
            ("a", a, "mk", left), ("b", b, "kn", right), ("sum", sum, "mn", behaviour)
        )
    )  # fmt: skip
    own = {key: _ended(text) for key, text in texts.items()}
    made = OwnAtom(
        Atom(name, left_bits, right_bits, sum_bits, texts=own), tuple(sorted((needs or {}).items()))
    )
    known = ALL_ATOMS.get(name)
    if known is not None and (known != made.atom or dict(known.texts) != made.atom.texts):
        raise ScheduleError(place, "there is another atom of that name", "Choose another.")
    others = (other for other in ALL_ATOMS if other != name)
    if alike := next((o for o in others if o.replace(".", "_") == name.replace(".", "_")), ""):
        raise ScheduleError(place, f"kernels could not tell it from {alike}", "Choose another.")
    _try(place, made.atom, behaviour)
    made.add()
    return name


def _ended(text: str) -> str:
    return text if text.endswith("\n") else f"{text}\n"


def _operands(place: str, behaviour: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices that a sum of products multiplies."""
    op = behaviour.op
    body = op.body if isinstance(op, ComputeOp) and op.num_outputs == 1 else None
    reduced = None if body is None else reduction_of(body)
    axes = (*op.axis, *op.reduce_axis) if isinstance(op, ComputeOp) else ()
    kinds = tuple(ax.kind for ax in axes)
    product = uncast(reduced.args[0]) if reduced is not None else None
    if (
        reduced is None or product is None or reduced.attr[0].name != "sum"
        or kinds != ("spatial", "spatial", "reduce") or product.op != "mul"
    ):  # fmt: skip
        raise ScheduleError(
            place, f"{behaviour.name} is no sum of products over one axis",
            "te.compute((m, n), lambda i, j: te.sum(a[i, k] * b[k, j], axis=k)).",
        )  # fmt: skip
    m, n, k = axes
    found = [uncast(factor) for factor in product.args]
    for read, wanted in zip(found, ((m, k), (k, n)), strict=True):
        if not _reads(read, wanted):
            raise ScheduleError(
                place, f"{read} is no element of a matrix [{wanted[0].name}, {wanted[1].name}]",
                "The first factor is a[m, k], the second b[k, n].",
            )  # fmt: skip
    if reduced.dtype is not behaviour.dtype:
        raise ScheduleError(
            place, f"it adds up in {reduced.dtype}, its sums are {behaviour.dtype}",
            "Leave them in the type that they are added up in.",
        )  # fmt: skip
    left, right = (read.attr for read in found)
    return left, right


def _reads(read: Expr, axes: Sequence[IterVar]) -> bool:
    if read.op != "read" or len(read.args) != len(axes) or isinstance(read.attr.op, ComputeOp):
        return False
    same = all(i is ax.var for i, ax in zip(read.args, axes, strict=True))
    return same and tuple(read.attr.shape) == tuple(ax.size for ax in axes)


def _fragment(place: str, bits: str, axes: str, of: Tensor, lanes: int) -> Fragment:
    """Raises ScheduleError unless each element of the matrix is held once."""
    lane, slash, element = bits.partition("/")
    if not slash:
        lane, element = "", bits
    words = [*lane.split(), *element.split()]
    strange = [word for word in words if not _BIT.fullmatch(word) or word[0] not in axes]
    if strange:
        raise ScheduleError(
            place, f"{strange[0]!r} is no bit of {axes[0]} or {axes[1]}",
            f"{axes[0]}0 is the lowest bit of the first index.",
        )  # fmt: skip
    for axis, size in zip(axes, of.shape, strict=True):
        own = sorted(int(word[1:]) for word in words if word[0] == axis)
        if own != list(range(len(own))) or 1 << len(own) != size:
            named = " ".join(f"{axis}{k}" for k in own) or "none"
            raise ScheduleError(
                place, f"{of.name} has {size} elements along {axis}, and the bits are {named}",
                "Name each bit of an extent, which is a power of two, once.",
            )  # fmt: skip
    if 1 << len(lane.split()) != lanes:
        raise ScheduleError(
            place, f"{lane.strip() or 'none'} are the bits of 2^{len(lane.split())} lanes, of"
            f" {lanes}",
            f"Name {lanes.bit_length() - 1} bits in front of the slash.",
        )  # fmt: skip
    return Fragment(of.dtype, axes, lane.strip(), element.strip())


def _try(place: str, atom: Atom, behaviour: Tensor) -> None:
    """Have all lanes multiply, and compare what each holds then with the behaviour."""
    rng = np.random.default_rng(0)
    dag = ComputeDAG([*behaviour.op.input_tensors, behaviour])
    parts = (atom.a, atom.b, atom.sum)
    for _ in range(_ROUNDS):
        matrices = []
        for part in parts:
            shape, kind = tuple(part.extents.values()), part.dtype
            least, greatest = (-8, 8) if kind.is_float else (int(kind.least), int(kind.greatest))
            drawn = rng.integers(
                max(least, -(1 << 20)), min(greatest, 1 << 20), shape, endpoint=True
            )
            matrices.append(drawn.astype(kind.storage))
        left, right, before = matrices
        by_tensor = dict(zip(_operands(place, behaviour), (left, right), strict=True))
        (summed,) = evaluate(dag, [by_tensor[t] for t in behaviour.op.input_tensors])
        with np.errstate(all="ignore"):
            expected = before.astype(np.float64) + summed.astype(np.float64)
            expected = expected if atom.sum.dtype.is_float else expected.astype(np.int64)
            expected = expected.astype(atom.sum.dtype.storage)
        held = [matrix[places(part)] for matrix, part in zip(matrices, parts, strict=True)]
        found = np.array(multiplied(atom, *held)).astype(atom.sum.dtype.storage)
        wrong = np.argwhere(found != expected[places(atom.sum)])
        if len(wrong):
            lane, element = wrong[0]
            row, column = (int(at[lane, element]) for at in places(atom.sum))
            raise ScheduleError(
                place, f"lane {lane} would hold {found[lane, element]} as sum [{row}, {column}],"
                f" and {behaviour.name} has {expected[row, column]} there",
                "Sums are those of exact products, in float32 or int32.",
            )  # fmt: skip
