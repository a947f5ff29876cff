"""Lists of tensors whose shapes differ, or are not known: TensorFlow's tensor arrays.

In: a module with the prelude.  Out: the module, with a data type of tensors and functions on lists
of them.  A tensor array is a `List` of such values; what was not written is nil.
Read next: `standard.py`, `../prelude.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from typing import Any

from tilewright.graph.expr import Expr, GlobalVar, Var, check_dtype
from tilewright.graph.leaves import const
from tilewright.graph.types import AnyType, TensorType
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    Constructor,
    Match,
    PatternConstructor,
    PatternVar,
)
from tilewright_tvm.relay.functional.scope import If
from tilewright_tvm.relay.functional.standard import INT, define, define_data

RANKS = range(7)  # of tensors whose shapes are not known


def _ops() -> Any:
    """The operators, as users call them."""
    return import_module("tilewright_tvm.relay")


def _open(rank: int) -> list[Any]:
    return [_ops().Any() for _ in range(rank)]


def _tensors(shape: Any, dtype: str) -> TensorType:
    """Tensors of a shape that may have open extents."""
    return TensorType(shape, check_dtype(dtype, "relay.prelude"))


def _held(value: Expr, cases: Sequence[tuple[Constructor, Callable[[Var], Expr]]]) -> Expr:
    """What a function of the tensor gives, for the constructor that holds it."""
    clauses = []
    for constructor, result in cases:
        t = Var("t")
        pattern = PatternConstructor(constructor, [PatternVar(t)])
        clauses.append(Clause(pattern, result(t)))
    return Match(value, clauses, complete=False)


class Arrays:
    """Functions on lists of one data type of tensors, whatever holds them.

    suffix: of the functions' names; nil: the constructor of what was not written
    """

    def __init__(self, mod: IRModule, suffix: str, nil: Constructor) -> None:
        self.mod, self.suffix, self.nil = mod, suffix, nil
        self.tensor: AnyType = nil.belong_to()
        self.header, self.cons, self.empty = mod.get_type("List")
        self.many = self.header(self.tensor)

    def define(
        self, name: str, params: dict[str, AnyType], to: AnyType, body: Callable[..., Expr]
    ) -> GlobalVar:
        """A function, under its name with the suffix; the one that is there, if there is one."""
        full = f"{name}_{self.suffix}"
        if full in self.mod:
            return self.mod.get_global_var(full)
        return define(self.mod, full, params, to, body)

    def basics(self) -> None:
        """tensor_array, tensor_array_read, tensor_array_write, tensor_array_scatter."""
        nth, update = (self.mod.get_global_var(n) for n in ("nth", "update"))
        many, one, relay = self.many, const(1), _ops()
        self.define(
            "tensor_array", {"n": INT}, many,
            lambda me, n: If(
                relay.equal(n, const(0)), self.empty(),
                self.cons(self.nil(), me(relay.subtract(n, one))),
            ),
        )  # fmt: skip
        self.define(
            "tensor_array_read", {"ta": many, "n": INT}, self.tensor,
            lambda me, ta, n: nth(ta, n),
        )  # fmt: skip
        self.define(
            "tensor_array_write", {"ta": many, "n": INT, "v": self.tensor}, many,
            lambda me, ta, n, v: update(ta, n, v),
        )  # fmt: skip
        indices = _tensors(_open(1), "int32")
        params = {"ta": many, "k": INT, "indices": indices, "updates": many}

        def scattered(me: GlobalVar, ta: Expr, k: Expr, places: Expr, updates: Expr) -> Expr:
            written = update(ta, relay.take(places, k, axis=0), nth(updates, k))
            end = relay.take(relay.shape_of(places), const(0), axis=0)
            return If(relay.equal(k, end), ta, me(written, relay.add(k, one), places, updates))

        steps = self.define("_tensor_array_scatter_from", params, many, scattered)
        self.define(
            "tensor_array_scatter", {"ta": many, "indices": indices, "updates": many}, many,
            lambda me, ta, places, updates: steps(ta, const(0), places, updates),
        )  # fmt: skip

    def unstacked(self, name: str, kind: AnyType, held: Constructor) -> None:
        """A list of the slices of a tensor along its first axis, each in `held`."""
        relay, one = _ops(), const(1)
        many = self.header(held.belong_to())

        def slices(me: GlobalVar, k: Expr, t: Expr) -> Expr:
            end = relay.take(relay.shape_of(t), const(0), axis=0)
            first = held(relay.take(t, k, axis=0))
            more = self.cons(first, me(relay.add(k, one), t))
            return If(relay.equal(k, end), self.empty(), more)

        steps = self.define(f"_{name}_from", {"k": INT, "t": kind}, many, slices)
        self.define(name, {"t": kind}, many, lambda me, t: steps(const(0), t))

    def split(self, take: Callable[[Expr, Expr, Expr], Expr], parts: AnyType) -> None:
        """tensor_array_split: writes slices of a value, of these lengths, in order.

        take: of a value what is from one place to another; parts: the type of that
        """
        relay, one = _ops(), const(1)
        update = self.mod.get_global_var("update")
        lengths = _tensors(_open(1), "int32")
        many = self.header(parts)
        params = {"ta": many, "value": self.tensor, "lengths": lengths}

        def written(me: GlobalVar, ta: Expr, value: Expr, lengths: Expr, k: Expr, at: Expr) -> Expr:
            to = relay.add(at, relay.take(lengths, k, axis=0))
            there = update(ta, k, take(value, at, to))
            end = relay.take(relay.shape_of(lengths), const(0), axis=0)
            more = me(there, value, lengths, relay.add(k, one), to)
            return If(relay.equal(k, end), ta, more)

        inner = {**params, "k": INT, "at": INT}
        steps = self.define("_tensor_array_split_from", inner, many, written)
        self.define(
            "tensor_array_split", params, many,
            lambda me, ta, value, lengths: steps(ta, value, lengths, const(0), const(0)),
        )  # fmt: skip


class TensorArrayOps:
    """Tensors of any shape of up to six axes: `tensor_DTYPE_t`, with tensor_nil, tensor0, tensor1,
    ..., by their ranks."""

    def __init__(self, prelude: Any, dtype: str) -> None:
        self.prelude, self.dtype = prelude, str(check_dtype(dtype, "relay.prelude"))

    def register(self) -> None:
        """Add the data type and its functions to the module, once."""
        mod, dtype = self.prelude.mod, self.dtype
        header = GlobalTypeVar(f"tensor_{dtype}_t")
        if header not in mod.type_definitions:
            fields: dict[str, list[AnyType]] = {f"tensor_nil_{dtype}": []}
            for r in RANKS:
                fields[f"tensor{r}_{dtype}"] = [_tensors(_open(r), dtype)]
            define_data(mod, header.name_hint, [], fields, header)
        if f"tensor_array_{dtype}" not in mod:
            self._functions()

    def _functions(self) -> None:
        relay, mod = _ops(), self.prelude.mod
        _, nil, *of_rank = mod.get_type(f"tensor_{self.dtype}_t")
        arrays = Arrays(mod, self.dtype, nil)
        tensor, many = arrays.tensor, arrays.many
        arrays.basics()

        def joined(me: GlobalVar, x: Expr, y: Expr) -> Expr:
            def with_other(r: int) -> Callable[[Var], Expr]:
                return lambda s: _held(
                    y, [(of_rank[r], lambda t: of_rank[r](relay.concatenate([s, t], axis=0)))]
                )

            return _held(x, [(of_rank[r], with_other(r)) for r in RANKS[1:]])

        def changed(change: Callable[[Var], Expr], more: int) -> list[Any]:
            ranks = RANKS[1 - more : len(RANKS) - more]
            return [
                (of_rank[r], lambda t, r=r: of_rank[r + more](change(t))) for r in ranks
            ]  # fmt: skip

        def taken(x: Expr, lower: Expr, upper: Expr) -> Expr:
            places = relay.arange(lower, upper, dtype="int32")
            return _held(x, changed(lambda t: relay.take(t, places, axis=0), 0))

        expand = arrays.define(
            "tensor_expand_dims", {"x": tensor}, tensor,
            lambda me, x: _held(x, changed(lambda t: relay.expand_dims(t, axis=0), 1)),
        )  # fmt: skip
        concatenate = arrays.define(
            "tensor_concatenate", {"x": tensor, "y": tensor}, tensor, joined
        )
        take = arrays.define(
            "tensor_take", {"x": tensor, "lower": INT, "upper": INT}, tensor,
            lambda me, x, lower, upper: taken(x, lower, upper),
        )  # fmt: skip
        arrays.split(take, tensor)
        all_of, mapped = _folded(mod, concatenate), mod.get_global_var("map")
        arrays.define("tensor_array_concat", {"ta": many}, tensor, lambda me, ta: all_of(ta))
        arrays.define(
            "tensor_array_stack", {"ta": many}, tensor, lambda me, ta: all_of(mapped(expand, ta))
        )
        for r in RANKS[1:]:
            kind = of_rank[r].inputs[0]
            arrays.unstacked(f"tensor_array_unstack_tensor{r}", kind, of_rank[r - 1])


def shape_name(shape: Sequence[Any]) -> str:
    """A shape as part of a name: 2_3, any_3; scalar."""
    dims = [str(n) if isinstance(n, int) else "any" for n in shape]
    return "_".join(dims) or "scalar"


class StaticTensorArrayOps:
    """Tensors of one shape, of which extents may be `relay.Any()`: `static_tensor_DTYPE_SHAPE_t`,
    with tensor_nil and tensor_constructor.

    Functions whose results are of other shapes give tensors of those data types.
    """

    def __init__(self, prelude: Any, dtype: str, shape: Sequence[Any]) -> None:
        self.prelude, self.shape = prelude, list(shape)
        self.dtype = str(check_dtype(dtype, "relay.prelude"))
        self.suffix = f"{self.dtype}_{shape_name(self.shape)}"

    def register(self) -> None:
        """Add the data type and its functions to the module, once."""
        if f"tensor_get_data_{self.suffix}" not in self.prelude.mod:
            self._functions()

    def get_name(self, canonical: str) -> str:
        """What the data type ("tensor_t"), a constructor or a function is called."""
        if canonical == "tensor_t":
            return f"static_tensor_{self.suffix}_t"
        return f"{canonical}_{self.suffix}"

    def get_global_var(self, canonical: str) -> GlobalVar:
        """A function: "tensor_array_read".  Raises ModelError."""
        found: GlobalVar = self.prelude.mod.get_global_var(self.get_name(canonical))
        return found

    def constructors(self) -> tuple[Constructor, Constructor]:
        """Of what was not written, and of a tensor."""
        mod, header = self.prelude.mod, GlobalTypeVar(self.get_name("tensor_t"))
        if header not in mod.type_definitions:
            kind = _tensors(self.shape, self.dtype)
            names = (self.get_name("tensor_nil"), self.get_name("tensor_constructor"))
            define_data(mod, header.name_hint, [], {names[0]: [], names[1]: [kind]}, header)
        _, nil, held = mod.get_type(header.name_hint)
        return nil, held

    def define_tensor_array_scatter(
        self, indices_shape: Sequence[Any], force_update: bool = False
    ) -> None:
        """tensor_array_scatter, which takes as many indices as there are: it is of any shape."""
        self._arrays().basics()

    def define_tensor_array_split(
        self, value_shape: Any = None, lengths_shape: Any = None, force_update: bool = False
    ) -> None:
        """tensor_array_split, which takes as many lengths as there are: it is of any shape."""
        self._split()

    def _of(self, shape: Sequence[Any]) -> StaticTensorArrayOps:
        return StaticTensorArrayOps(self.prelude, self.dtype, shape)

    def _arrays(self) -> Arrays:
        return Arrays(self.prelude.mod, self.suffix, self.constructors()[0])

    def _to(
        self, name: str, shape: Sequence[Any], change: Callable[..., Expr], **more: AnyType
    ) -> GlobalVar:
        """A function of a tensor, and numbers, that gives a tensor of another shape."""
        held, (nil, made) = self.constructors()[1], self._of(shape).constructors()
        return self._arrays().define(
            name, {"x": held.belong_to(), **more}, nil.belong_to(),
            lambda me, x, *others: _held(x, [(held, lambda t: made(change(t, *others)))]),
        )  # fmt: skip

    def _concatenation(self) -> GlobalVar:
        """tensor_concatenate: of two tensors of this shape."""
        relay, first = _ops(), self.shape[0]
        held = self.constructors()[1]
        rows = 2 * first if isinstance(first, int) else first
        made = self._of([rows, *self.shape[1:]]).constructors()[1]
        tensor = held.belong_to()
        return self._arrays().define(
            "tensor_concatenate", {"x": tensor, "y": tensor}, made.belong_to(),
            lambda me, x, y: _held(x, [(held, lambda s: _held(y, [
                (held, lambda t: made(relay.concatenate([s, t], axis=0)))]))]),
        )  # fmt: skip

    def _split(self) -> None:
        relay, opened = _ops(), [_ops().Any(), *self.shape[1:]]

        def taken(t: Expr, lower: Expr, upper: Expr) -> Expr:
            made: Expr = relay.take(t, relay.arange(lower, upper, dtype="int32"), axis=0)
            return made

        take = self._to("tensor_take", opened, taken, lower=INT, upper=INT)
        self._arrays().split(take, self._of(opened).constructors()[0].belong_to())

    def _functions(self) -> None:
        relay, mod, arrays = _ops(), self.prelude.mod, self._arrays()
        nil, held = self.constructors()
        kind = held.inputs[0]
        arrays.basics()

        def expanded(t: Expr) -> Expr:
            made: Expr = relay.expand_dims(t, axis=0)
            return made

        self._to("tensor_expand_dims", [1, *self.shape], expanded)
        stacked = self._of([relay.Any(), *self.shape])
        rows = self._to("_tensor_row", stacked.shape, expanded)
        all_of = _folded(mod, stacked._concatenation())
        many, tensors = arrays.many, stacked.constructors()[0].belong_to()
        mapped = mod.get_global_var("map")
        stack = arrays.define(
            "tensor_array_stack", {"ta": many}, tensors, lambda me, ta: all_of(mapped(rows, ta))
        )
        indices = _tensors(_open(1), "int32")
        nth, end = mod.get_global_var("nth"), relay.shape_of

        def picked(me: GlobalVar, ta: Expr, places: Expr, k: Expr) -> Expr:
            one = nth(ta, relay.take(places, k, axis=0))
            more = arrays.cons(one, me(ta, places, relay.add(k, const(1))))
            count = relay.take(end(places), const(0), axis=0)
            return If(relay.equal(k, count), arrays.empty(), more)

        params = {"ta": many, "indices": indices}
        pick = arrays.define("_tensor_array_pick", {**params, "k": INT}, many, picked)
        arrays.define(
            "tensor_array_gather", params, tensors,
            lambda me, ta, places: stack(pick(ta, places, const(0))),
        )  # fmt: skip
        if self.shape:
            self._of_rows(arrays, kind)
        arrays.define(
            "tensor_get_data", {"x": nil.belong_to()}, kind,
            lambda me, x: _held(x, [(held, lambda t: t)]),
        )  # fmt: skip

    def _of_rows(self, arrays: Arrays, kind: AnyType) -> None:
        """What tensors with a first axis have."""
        self._concatenation()
        self._split()
        arrays.unstacked("tensor_array_unstack", kind, self._of(self.shape[1:]).constructors()[1])
        joined = self._of([_ops().Any(), *self.shape[1:]])
        opened = self._to("_tensor_opened", joined.shape, lambda t: t)
        all_of = _folded(arrays.mod, joined._concatenation())
        mapped, tensor = arrays.mod.get_global_var("map"), joined.constructors()[0].belong_to()
        arrays.define(
            "tensor_array_concat", {"ta": arrays.many}, tensor,
            lambda me, ta: all_of(mapped(opened, ta)),
        )  # fmt: skip


def _folded(mod: IRModule, concatenate: GlobalVar) -> Callable[[Expr], Expr]:
    """What makes one tensor of a list of them."""
    foldl, hd, tl = (mod.get_global_var(n) for n in ("foldl", "hd", "tl"))

    def all_of(values: Expr) -> Expr:
        made: Expr = foldl(concatenate, hd(values), tl(values))
        return made

    return all_of
