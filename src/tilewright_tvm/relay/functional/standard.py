"""Lists, optionals, trees and natural numbers, and the functions on them that Relay comes with.

In: a module.  Out: the module, with data types and functions in it; `prelude.Prelude` gives them
names of Python.  Types and the order of elements are those of TVM's prelude.
Read next: `../prelude.py`, `tensor_arrays.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tilewright.graph.expr import Expr, Function, GlobalVar, Tuple, TupleGetItem, Var
from tilewright.graph.leaves import const
from tilewright.graph.types import AnyType, FuncType, TupleType, scalar_type
from tilewright_tvm.relay.functional.data_types import GlobalTypeVar, TypeData, TypeVar
from tilewright_tvm.relay.functional.definitions import IRModule
from tilewright_tvm.relay.functional.nodes import (
    Clause,
    Constructor,
    Match,
    NamedFunction,
    PatternConstructor,
    PatternVar,
    make_call,
    make_function,
)
from tilewright_tvm.relay.functional.scope import If

INT = scalar_type("int32")
BOOL = scalar_type("bool")


def define_data(
    mod: IRModule, name: str, variables: Sequence[TypeVar], fields: Mapping[str, Sequence[AnyType]],
    header: GlobalTypeVar | None = None,
) -> list[Constructor]:  # fmt: skip
    """A data type of the module; its constructors, in order."""
    header = header or GlobalTypeVar(name)
    constructors = [Constructor(c, types, header) for c, types in fields.items()]
    mod[header] = TypeData(header, variables, constructors)
    return constructors


def define(
    mod: IRModule, name: str, params: Mapping[str, AnyType], result: AnyType,
    body: Callable[..., Expr], variables: Sequence[TypeVar] = (),
) -> GlobalVar:  # fmt: skip
    """A function of the module, which may call itself: body(itself, *parameters)."""
    itself = GlobalVar(name)
    given = [Var(n, t) for n, t in params.items()]
    mod[itself] = make_function(given, body(itself, *given), result, variables)
    return itself


def case(value: Expr, *cases: tuple[Constructor, Callable[..., Expr]]) -> Match:
    """`match`: what a function of the fields gives, for the constructor that made the value."""
    clauses = []
    for constructor, result in cases:
        count = len(constructor.inputs)
        fields = [Var(f"{constructor.name_hint.lower()}{k}") for k in range(count)]
        pattern = PatternConstructor(constructor, [PatternVar(f) for f in fields])
        clauses.append(Clause(pattern, result(*fields)))
    return Match(value, clauses, complete=False)


def call(op: str, *args: Expr, **attrs: Any) -> Expr:
    """An operator of the table."""
    from tilewright.graph.op import call as called

    return called(op, *args, **attrs)


def _first(pair: Expr) -> Expr:
    return TupleGetItem(pair, 0)


def _second(pair: Expr) -> Expr:
    return TupleGetItem(pair, 1)


def add_functions(mod: IRModule) -> None:
    """What needs no data type: `id`, `compose`, `flip`."""
    a, b, c = (TypeVar(n) for n in "ABC")
    define(mod, "id", {"x": a}, a, lambda me, x: x, [a])

    def composed(me: GlobalVar, f: Expr, g: Expr) -> Expr:
        x = Var("x", a)
        return make_function([x], make_call(f, [make_call(g, [x])]), c)

    functions = {"f": FuncType([b], c), "g": FuncType([a], b)}
    define(mod, "compose", functions, FuncType([a], c), composed, [a, b, c])

    def flipped(me: GlobalVar, f: Expr) -> Expr:
        x, y = Var("y", b), Var("x", a)
        return make_function([x, y], make_call(f, [y, x]), c)

    result = FuncType([b, a], c)
    define(mod, "flip", {"f": FuncType([a, b], c)}, result, flipped, [a, b, c])


def add_lists(mod: IRModule) -> None:
    """`List` with Cons and Nil, `Option` with Some and None."""
    a, b, c = (TypeVar(n) for n in "ABC")
    header = GlobalTypeVar("List")
    cons, nil = define_data(mod, "List", [a], {"Cons": [a, header(a)], "Nil": []}, header)
    some, none = define_data(mod, "Option", [a], {"Some": [a], "None": []})
    many, other, third = header(a), header(b), header(c)
    option, zero, one = some.belong_to, const(0), const(1)

    define(mod, "hd", {"xs": many}, a, lambda me, xs: case(xs, (cons, lambda h, t: h)), [a])
    define(mod, "tl", {"xs": many}, many, lambda me, xs: case(xs, (cons, lambda h, t: t)), [a])
    define(
        mod, "nth", {"xs": many, "n": INT}, a,
        lambda me, xs, n: case(xs, (cons, lambda h, t: If(
            call("equal", n, zero), h, me(t, call("subtract", n, one))))), [a],
    )  # fmt: skip
    define(
        mod, "update", {"xs": many, "n": INT, "v": a}, many,
        lambda me, xs, n, v: case(xs, (cons, lambda h, t: If(
            call("equal", n, zero), cons(v, t), cons(h, me(t, call("subtract", n, one), v))))), [a],
    )  # fmt: skip
    define(
        mod, "map", {"f": FuncType([a], b), "xs": many}, other,
        lambda me, f, xs: case(
            xs, (cons, lambda h, t: cons(f(h), me(f, t))), (nil, lambda: nil())
        ), [a, b],
    )  # fmt: skip
    foldl = define(
        mod, "foldl", {"f": FuncType([a, b], a), "acc": a, "xs": other}, a,
        lambda me, f, acc, xs: case(
            xs, (cons, lambda h, t: me(f, f(acc, h), t)), (nil, lambda: acc)
        ), [a, b],
    )  # fmt: skip
    foldr = define(
        mod, "foldr", {"f": FuncType([a, b], b), "acc": b, "xs": many}, b,
        lambda me, f, acc, xs: case(
            xs, (cons, lambda h, t: f(h, me(f, acc, t))), (nil, lambda: acc)
        ), [a, b],
    )  # fmt: skip
    define(
        mod, "foldr1", {"f": FuncType([a, a], a), "xs": many}, a,
        lambda me, f, xs: case(xs, (cons, lambda h, t: case(
            t, (nil, lambda: h), (cons, lambda _, __: f(h, me(f, t)))))), [a],
    )  # fmt: skip
    _add_counting(mod, header, a, foldl)
    define(
        mod, "concat", {"xs": many, "ys": many}, many,
        lambda me, xs, ys: foldr(_function(lambda h, t: cons(h, t), a, many), ys, xs), [a],
    )  # fmt: skip
    define(
        mod, "filter", {"f": FuncType([a], BOOL), "xs": many}, many,
        lambda me, f, xs: case(
            xs, (cons, lambda h, t: If(f(h), cons(h, me(f, t)), me(f, t))), (nil, lambda: nil())
        ), [a],
    )  # fmt: skip
    define(
        mod, "zip", {"xs": many, "ys": other}, header(TupleType((a, b))),
        lambda me, xs, ys: case(
            xs, (nil, lambda: nil()),
            (cons, lambda x, more: case(
                ys, (nil, lambda: nil()),
                (cons, lambda y, rest: cons(Tuple([x, y]), me(more, rest))))),
        ), [a, b],
    )  # fmt: skip
    define(
        mod, "rev", {"xs": many}, many,
        lambda me, xs: foldl(_function(lambda done, x: cons(x, done), many, a), nil(), xs), [a],
    )  # fmt: skip
    step = {"f": FuncType([b, a], TupleType((b, c))), "acc": b, "xs": many}
    gives = TupleType((b, third))

    def accumulated(f: Expr, done: Expr, x: Expr) -> Expr:
        made = f(_first(done), x)
        return Tuple([_first(made), cons(_second(made), _second(done))])

    define(
        mod, "map_accuml", step, gives,
        lambda me, f, acc, xs: foldl(
            _function(lambda done, x: accumulated(f, done, x), gives, a), Tuple([acc, nil()]), xs
        ), [b, a, c],
    )  # fmt: skip
    define(
        mod, "map_accumr", step, gives,
        lambda me, f, acc, xs: foldr(
            _function(lambda x, done: accumulated(f, done, x), a, gives), Tuple([acc, nil()]), xs
        ), [b, a, c],
    )  # fmt: skip
    unfold = {"f": FuncType([a], option(TupleType((a, b)))), "seed": a}
    define(
        mod, "unfoldr", unfold, other,
        lambda me, f, seed: case(
            f(seed), (some, lambda pair: cons(_second(pair), me(f, _first(pair)))),
            (none, lambda: nil()),
        ), [a, b],
    )  # fmt: skip
    unfolded = define(
        mod, "_unfoldl_onto", {**unfold, "done": other}, other,
        lambda me, f, seed, done: case(
            f(seed), (some, lambda pair: me(f, _first(pair), cons(_second(pair), done))),
            (none, lambda: done),
        ), [a, b],
    )  # fmt: skip
    define(mod, "unfoldl", unfold, other, lambda me, f, seed: unfolded(f, seed, nil()), [a, b])


def _add_counting(mod: IRModule, header: GlobalTypeVar, a: TypeVar, foldl: GlobalVar) -> None:
    """`sum` of a list of int32, `length`, `iterate`."""
    zero, one = const(0), const(1)
    plus = _function(lambda total, x: call("add", total, x), INT, INT)
    more = _function(lambda total, _: call("add", total, one), INT, a)
    define(mod, "sum", {"xs": header(INT)}, INT, lambda me, xs: foldl(plus, zero, xs))
    define(mod, "length", {"xs": header(a)}, INT, lambda me, xs: foldl(more, zero, xs), [a])
    same, compose = mod.get_global_var("id"), mod.get_global_var("compose")
    step = FuncType([a], a)
    define(
        mod, "iterate", {"f": step, "n": INT}, step,
        lambda me, f, n: If(
            call("equal", n, zero), NamedFunction(same),
            compose(f, me(f, call("subtract", n, one))),
        ), [a],
    )  # fmt: skip


def add_trees(mod: IRModule) -> None:
    """`Tree` with Rose: a value and a list of trees."""
    a, b = TypeVar("A"), TypeVar("B")
    header, many = GlobalTypeVar("Tree"), mod.get_global_type_var("List")
    (rose,) = define_data(mod, "Tree", [a], {"Rose": [a, many(header(a))]}, header)
    over, foldl = mod.get_global_var("map"), mod.get_global_var("foldl")

    def mapped(me: GlobalVar, f: Expr, tree: Expr) -> Expr:
        one = _function(lambda t: me(f, t), header(a))
        return case(tree, (rose, lambda value, trees: rose(f(value), over(one, trees))))

    step = {"f": FuncType([a], b), "t": header(a)}
    define(mod, "tmap", step, header(b), mapped, [a, b])

    def counted(me: GlobalVar, tree: Expr) -> Expr:
        more = _function(lambda total, t: call("add", total, me(t)), INT, header(a))
        return case(tree, (rose, lambda value, trees: foldl(more, const(1), trees)))

    define(mod, "size", {"t": header(a)}, INT, counted, [a])


def add_numbers(mod: IRModule) -> None:
    """`nat` with Z and S: natural numbers by what comes before them."""
    header = GlobalTypeVar("nat")
    z, s = define_data(mod, "nat", [], {"Z": [], "S": [header()]}, header)
    nat, a = header(), TypeVar("A")
    define(mod, "nat_id", {"x": nat}, nat, lambda me, x: x)
    define(
        mod, "nat_add", {"x": nat, "y": nat}, nat,
        lambda me, x, y: case(x, (s, lambda less: s(me(less, y))), (z, lambda: y)),
    )  # fmt: skip
    define(
        mod, "nat_double", {"x": nat}, nat,
        lambda me, x: case(x, (s, lambda less: s(s(me(less)))), (z, lambda: z())),
    )  # fmt: skip
    same, compose = mod.get_global_var("id"), mod.get_global_var("compose")
    step = FuncType([a], a)
    define(
        mod, "nat_iterate", {"f": step, "n": nat}, step,
        lambda me, f, n: case(
            n, (s, lambda less: compose(f, me(f, less))), (z, lambda: NamedFunction(same))
        ), [a],
    )  # fmt: skip


def add_prelude(mod: IRModule) -> None:
    """All but natural numbers; what is there already stays."""
    if "id" not in mod:
        add_functions(mod)
    if GlobalTypeVar("List") not in mod.type_definitions:
        add_lists(mod)
        add_trees(mod)


def add_nat(mod: IRModule) -> None:
    """Natural numbers, and the prelude that they need; what is there already stays."""
    add_prelude(mod)
    if GlobalTypeVar("nat") not in mod.type_definitions:
        add_numbers(mod)


def _function(body: Callable[..., Expr], *types: AnyType) -> Function:
    params = [Var(f"x{k}", t) for k, t in enumerate(types)]
    return make_function(params, body(*params))


FILES: dict[str, Callable[[IRModule], None]] = {
    "prelude.rly": add_prelude, "core.rly": add_functions, "nat.rly": add_nat,
}  # fmt: skip
