"""The step that adds up terms before what groups of them have in common is multiplied.

In: a sum of products, of sums and of a factor that only knows the group of a term.  Out: fewer
products, of longer sums.  Read next: `products.py`, `apart.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from tilewright.base.errors import ScheduleError
from tilewright.ir import expr as E
from tilewright.ir.affine import Simplifier
from tilewright.ir.expr import Expr
from tilewright.schedule.steps.names import PythonNames
from tilewright.schedule.steps.products import Product, refuse_scheduled, sum_of_products
from tilewright.schedule.steps.step import AnyState, Step, stage_of
from tilewright.te.tensor import ComputeOp, IterVar, Tensor, reduction_of


@dataclass(frozen=True)
class SumGroups(Step):
    """Terms of a sum that have the same factor are added up before they are multiplied by it.

    The terms are sums themselves, which become as many times longer as a group has terms.  Results
    differ by the order of additions, and by products that are not rounded.
    rewrite:  s.sum_groups(C)
        P: float32[2, 4] global, 8 elements, 32 bytes
          for i in 2:
            for q in 4:
              for k in 3:
                P[i, q] += A[i, q, k]
        C: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for t in 4:
              C[i] += P[i, t]*S[i, t//2]
        ->
        P: float32[2, 2] global, 4 elements, 16 bytes
          for i in 2:
            for q in 2:
              for t in 2:
                for k in 3:
                  P[i, q] += A[i, q*2 + t, k]
        C: float32[2] global, 2 elements, 8 bytes
          for i in 2:
            for t in 2:
              C[i] += P[i, t]*S[i, t]
    legal:    a sum of products of two reads along one axis, without scheduled loops; one is of a
              sum that nothing else reads and that has no loops either, at that axis itself in one
              dimension; the other knows of the axis only the quotient by a number that divides it.
    """

    verb: ClassVar[str] = "sum_groups"

    def apply(self, s: AnyState) -> Tensor:
        stage = stage_of(self, s)
        place = f"sum_groups({stage.name})"
        refuse_scheduled(self, s, stage, place)
        product = sum_of_products(self, stage, place)
        op = product.op
        (axis, *others) = op.reduce_axis
        term, factor, dim, size = _parts(product, axis, place)
        source = s[term.attr]
        inner = source.op
        reduced = reduction_of(inner.body) if isinstance(inner, ComputeOp) else None
        plain = reduced is not None and reduced.attr[0].name == "sum" and not others
        if not plain or s.readers(source) != [stage] or source.is_output:
            raise ScheduleError(
                place, f"{source.name} is no sum that only it reads, or it adds up along more axes",
                "Groups are of terms along one axis that are sums of their own.",
            )  # fmt: skip
        assert isinstance(inner, ComputeOp) and reduced is not None
        refuse_scheduled(self, s, source, place)
        group, each = IterVar(axis.name, axis.size // size, "reduce"), inner.axis[dim]
        outer = IterVar(each.name, axis.size // size)
        number = IterVar(axis.name, size, "reduce")
        value = E.substitute(reduced.args[0], {each.var: outer.var * size + number.var})
        over = (number, *reduced.attr[1])
        body = E.make("reduce", (value,), (reduced.attr[0], over), reduced.dtype)
        axes = tuple(outer if ax is each else ax for ax in inner.axis)
        summed = inner.over(axes, _instead(inner.body, reduced, body))
        s.replace_op(source, summed)
        simple = Simplifier({group.var: (0, group.size - 1)})
        index = [group.var if d == dim else i for d, i in enumerate(term.args)]
        quotients = [simple(E.substitute(i, {axis.var: group.var * size})) for i in factor.args]
        new = {term: source.tensor[tuple(index)], factor: factor.attr[tuple(quotients)]}
        whole_sum = reduction_of(op.body)
        assert whole_sum is not None
        terms = E.substitute(whole_sum.args[0], new)
        total = E.make("reduce", (terms,), (whole_sum.attr[0], (group,)), whole_sum.dtype)
        stage.restart(op.over(op.axis, _instead(op.body, whole_sum, total)))
        return source.tensor

    def python(self, names: PythonNames) -> str:
        return f"s.sum_groups({names.tensor(self.stage)})"


def _instead(body: Expr, old: Expr, new: Expr) -> Expr:
    return E.transform(body, lambda node: new if node is old else None)


def _parts(product: Product, axis: IterVar, place: str) -> tuple[Expr, Expr, int, int]:
    """The read of the terms, that of the factor, the dimension of the former that is the axis, and
    how many terms a group has."""
    for term, factor in (product.reads, product.reads[::-1]):
        dims = [d for d, i in enumerate(term.args) if axis.var in E.free_variables(i)]
        own = [i for i in factor.args if axis.var in E.free_variables(i)]
        divided = [i.args[1] for i in own if i.op == "floordiv" and i.args[0] is axis.var]
        plain = len(dims) == 1 and term.args[dims[0]] is axis.var
        if not plain or len(divided) != len(own) or len({str(d) for d in divided}) != 1:
            continue
        size = divided[0]
        if size.op == "const" and size.attr > 1 and axis.size % size.attr == 0:
            return term, factor, dims[0], int(size.attr)
    raise ScheduleError(
        place, f"no factor knows {axis.name} by its quotient alone, or none is read at it",
        "C[i] += P[i, l] * S[l // 4], where l has a multiple of 4 values.",
    )  # fmt: skip
