"""Functional networks: closures, recursion, data types and `match`, references, polymorphism."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright.runtime.device import device
from tilewright_tvm import relay
from tilewright_tvm.relay.backend.interpreter import ConstructorValue, RefValue
from tilewright_tvm.relay.functional import machine
from tilewright_tvm.relay.prelude import Prelude, StaticTensorArrayOps
from tilewright_tvm.runtime.virtual_machine import VirtualMachine

KINDS = ["debug", "vm"]
INT = relay.scalar_type("int32")


def run(kind, body, *args, params=(), mod=None):
    """The value of `body`, of functions of `mod`, for arguments."""
    mod = relay.IRModule() if mod is None else mod
    mod["main"] = body if isinstance(body, relay.Function) else relay.Function(params, body)
    return relay.create_executor(kind, mod).evaluate()(*args)


def prelude():
    mod = relay.IRModule()
    lists = Prelude(mod)
    return mod, lists, *mod.get_type("List")[1:]


def listed(values, cons, nil):
    made = nil()
    for value in reversed(values):
        made = cons(value if isinstance(value, relay.Expr) else relay.const(value), made)
    return made


def numbers(value):
    """The elements of a list that a network gave, as numpy has them."""
    found = []
    while len(fields := value.fields if isinstance(value, ConstructorValue) else value):
        head, value = fields
        found.append([h.numpy() for h in head] if isinstance(head, list) else head.numpy())
    return found


def integer(name="n"):
    return relay.var(name, shape=(), dtype="int32")


# -- functions as values ---------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_reads_variables_of_the_one_around_it(kind):
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    inner = relay.Function([x], x * y + x)
    outer = relay.Function([y], inner)
    a, b = np.float32([1, 2, 3]), np.float32([4, 5, 6])
    p, q = relay.var("p", shape=(3,)), relay.var("q", shape=(3,))
    assert [v.name_hint for v in inner.free] == ["y"] and relay.analysis.free_vars(inner) == [y]
    found = run(kind, outer(p)(q), a, b, params=[p, q])
    np.testing.assert_array_equal(found.numpy(), b * a + b)


@pytest.mark.parametrize("kind", KINDS)
def test_functions_are_given_and_chosen_where_a_network_runs(kind):
    x, n = relay.var("x", shape=(2,)), integer()
    f = relay.var("f")
    twice = relay.Function([f, x], f(f(x)))
    y = relay.var("y", shape=(2,))
    step = relay.If(
        n < relay.const(3), relay.Function([y], y * relay.const(2.0)), relay.Function([y], -y)
    )
    for count, factor in ((1, 4), (5, 1)):
        found = run(kind, twice(step, x), np.int32(count), np.float32([1, -2]), params=[n, x])
        np.testing.assert_array_equal(found.numpy(), np.float32([factor, -2 * factor]))


@pytest.mark.parametrize("kind", KINDS)
def test_names_of_functions_are_values(kind):
    mod, x = relay.IRModule(), relay.var("x", shape=(2,))
    up, down = relay.GlobalVar("up"), relay.GlobalVar("down")
    mod[up], mod[down] = relay.Function([x], x + x), relay.Function([x], -x)
    flag, f = relay.var("flag", "bool"), relay.Var("f")
    net = relay.Let(f, relay.If(flag, up, down), relay.Call(f, [relay.Call(f, [x])]))
    for value, factor in ((True, 4), (False, 1)):
        found = run(kind, net, value, np.float32([1, 2]), params=[flag, x], mod=mod)
        np.testing.assert_array_equal(found.numpy(), np.float32([1, 2]) * factor)


@pytest.mark.parametrize("kind", KINDS)
def test_results_may_be_functions_of_python(kind):
    x, y = relay.var("x", shape=()), relay.var("y", shape=())
    add = run(kind, relay.Function([y], relay.Function([x], x + y)), np.float32(2))
    assert add(np.float32(5)).numpy() == 7


@pytest.mark.parametrize("kind", KINDS)
def test_a_function_calls_itself_by_the_name_of_a_let(kind):
    x, i, s = relay.var("x", shape=(2,)), integer("i"), relay.var("s", shape=(2,))
    loop = relay.var("loop")
    again = loop(i + relay.const(1), s + x)
    body = relay.Function([i, s], relay.If(i < relay.const(7), again, s))
    start = relay.zeros(shape=(2,), dtype="float32")
    net = relay.Let(loop, body, loop(relay.const(0), start))
    found = run(kind, net, np.float32([1, -3]), params=[x])
    np.testing.assert_array_equal(found.numpy(), [7, -21])


def test_calls_in_the_place_of_a_result_do_not_pile_up(monkeypatch):
    monkeypatch.setattr(machine, "MOST_FRAMES", 20)
    f, n, g = relay.GlobalVar("f"), integer(), relay.var("g", relay.FuncType([INT], INT))
    mod = relay.IRModule()
    mod[f] = relay.Function([g, n], relay.If(n < relay.const(1), n, f(g, g(n))), INT)
    i = integer("i")
    less = relay.Function([i], i - relay.const(1))
    assert run("debug", f(less, n), np.int32(300), params=[n], mod=mod).numpy() == 0
    piled = relay.Function([g, n], relay.If(n < relay.const(1), n, f(g, g(n)) + n), INT)
    mod[f.name_hint + "2"] = piled
    f.function = piled
    with pytest.raises(ModelError, match="20 calls wait for each other"):
        run("debug", f(less, n), np.int32(300), params=[n], mod=mod)


def test_a_run_that_does_not_end_is_an_error(monkeypatch):
    monkeypatch.setattr(machine, "MOST_CALLS", 100)
    f, g, x = relay.GlobalVar("f"), relay.var("g"), relay.var("x", shape=())
    mod = relay.IRModule()
    mod[f] = relay.Function([g], f(g))
    with pytest.raises(ModelError, match="it has not ended after 100 calls"):
        run("vm", f(relay.Function([x], x)), mod=mod)


# -- data types ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@examples(15)
@given(data=st.data())
def test_functions_of_lists_are_those_of_python(kind, data):
    values = data.draw(st.lists(st.integers(-5, 5), min_size=1, max_size=6))
    at = data.draw(st.integers(0, len(values) - 1))
    mod, p, cons, nil = prelude()
    xs, x, y = listed(values, cons, nil), integer("x"), integer("y")
    less = relay.Function([x, y], x - y)
    k = relay.const(at)
    cases = {
        "rev": (p.rev(xs), values[::-1]),
        "concat": (p.concat(xs, p.tl(xs)), values + values[1:]),
        "filter": (p.filter(relay.Function([x], x > relay.const(0)), xs),
                   [v for v in values if v > 0]),
        "map": (p.map(relay.Function([x], x * x), xs), [v * v for v in values]),
        "update": (p.update(xs, k, relay.const(9)), [*values[:at], 9, *values[at + 1 :]]),
        "zip": (p.zip(xs, p.tl(xs)), [list(pair) for pair in pairwise(values)]),
    }  # fmt: skip
    for name, (net, wanted) in cases.items():
        assert numbers(run(kind, net, mod=mod)) == wanted, name
    left, right = 0, 0
    for v in values:
        left -= v
    for v in reversed(values):
        right = v - right
    folds = {
        "hd": (p.hd(xs), values[0]), "nth": (p.nth(xs, k), values[at]),
        "length": (p.length(xs), len(values)), "sum": (p.sum(xs), sum(values)),
        "foldl": (p.foldl(less, relay.const(0), xs), left),
        "foldr": (p.foldr(less, relay.const(0), xs), right),
    }  # fmt: skip
    for name, (net, wanted) in folds.items():
        assert run(kind, net, mod=mod).numpy() == wanted, name


@pytest.mark.parametrize("kind", KINDS)
def test_accumulating_unfolding_iterating_and_trees(kind):
    mod, p, cons, nil = prelude()
    _, some, none = mod.get_type("Option")
    _, rose = mod.get_type("Tree")
    n, acc, x = integer(), integer("acc"), integer("x")
    down = relay.Function([n], relay.If(
        n < relay.const(1), none(), some(relay.Tuple([n - relay.const(1), n]))))  # fmt: skip
    assert numbers(run(kind, p.unfoldr(down, relay.const(3)), mod=mod)) == [3, 2, 1]
    assert numbers(run(kind, p.unfoldl(down, relay.const(3)), mod=mod)) == [1, 2, 3]
    step = relay.Function([acc, x], relay.Tuple([acc + x, acc * x]))
    xs = listed([1, 2, 3], cons, nil)
    total, seen = run(kind, p.map_accuml(step, relay.const(10), xs), mod=mod)
    assert total.numpy() == 16 and numbers(seen) == [39, 22, 10]  # the last one first
    total, seen = run(kind, p.map_accumr(step, relay.const(10), xs), mod=mod)
    assert total.numpy() == 16 and numbers(seen) == [15, 26, 30]
    double = relay.Function([x], x + x)
    assert run(kind, p.iterate(double, relay.const(4))(relay.const(3)), mod=mod).numpy() == 48
    minus = relay.Function([x, n], x - n)
    assert run(kind, p.flip(minus)(relay.const(1), relay.const(5)), mod=mod).numpy() == 4
    leaf = rose(relay.const(1), nil())
    tree = rose(relay.const(5), cons(leaf, cons(rose(relay.const(2), cons(leaf, nil())), nil())))
    assert run(kind, p.size(tree), mod=mod).numpy() == 4
    grown = run(kind, p.tmap(double, tree), mod=mod)
    root = grown.fields if kind == "debug" else grown
    assert root[0].numpy() == 10


def shapes():
    """A data type of a program's own: circles and rectangles, in a group of two."""
    mod, shape, side = relay.IRModule(), relay.GlobalTypeVar("shape"), relay.TensorType((2,))
    circle = relay.Constructor("Circle", [side], shape)
    box = relay.Constructor("Box", [side, side], shape)
    mod[shape] = relay.TypeData(shape, [], [circle, box])
    return mod, shape, circle, box


@pytest.mark.parametrize("kind", KINDS)
def test_match_takes_the_first_clause_and_computes_no_other(kind):
    mod, shape, circle, box = shapes()
    s, (r, w, h) = relay.Var("s", shape()), (relay.Var(n) for n in "rwh")
    area = relay.Function([s], relay.Match(s, [
        relay.Clause(relay.PatternConstructor(circle, [relay.PatternVar(r)]), r * r),
        relay.Clause(
            relay.PatternConstructor(box, [relay.PatternVar(w), relay.PatternVar(h)]), w * h
        ),
    ]))  # fmt: skip
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    a, b = np.float32([2, 3]), np.float32([5, 7])
    found = run(kind, area(circle(x)) + area(box(x, y)), a, b, params=[x, y], mod=mod)
    np.testing.assert_array_equal(found.numpy(), a * a + a * b)
    assert mod["main"].checked_type == relay.FuncType([x.checked_type] * 2, relay.TensorType((2,)))


@pytest.mark.parametrize("kind", KINDS)
def test_patterns_nest_and_may_have_one_variable_in_several_clauses(kind):
    mod, _, cons, nil = prelude()
    v, more = relay.Var("v"), relay.Var("more")
    wild, of, two = relay.PatternWildcard(), relay.PatternConstructor, relay.const(2)

    def second(xs):
        return relay.Match(xs, [
            relay.Clause(of(cons, [wild, of(cons, [relay.PatternVar(v), wild])]), v * two),
            relay.Clause(of(cons, [relay.PatternVar(v), relay.PatternVar(more)]), v),
            relay.Clause(of(nil), relay.const(-1)),
        ])  # fmt: skip

    nets = [second(listed(values, cons, nil)) for values in ([5, 7], [5], [])]
    found = run(kind, relay.Tuple(nets), mod=mod)
    assert [f.numpy() for f in found] == [14, 5, -1]
    pair = relay.Tuple([relay.const(3), listed([8], cons, nil)])
    head = of(cons, [relay.PatternVar(more), wild])
    net = relay.Match(
        pair, [relay.Clause(relay.PatternTuple([relay.PatternVar(v), head]), v * more)]
    )
    assert run(kind, net, mod=mod).numpy() == 24


def test_what_no_clause_looks_like_is_an_error():
    mod, p, _, nil = prelude()
    with pytest.raises(ModelError, match="no clause looks like Nil"):
        run("vm", p.tl(nil()), mod=mod)
    _, shape, circle, _ = shapes()
    with pytest.raises(ModelError, match="2 patterns for 1 fields"):
        relay.PatternConstructor(circle, [relay.PatternWildcard()] * 2)
    with pytest.raises(ModelError, match="belongs to shape"):
        relay.TypeData(relay.GlobalTypeVar("other"), [], [circle])
    with pytest.raises(ModelError, match="1 types are given, it has 0 variables"):
        shape(INT)


@pytest.mark.parametrize("kind", KINDS)
def test_values_of_data_types_go_in_and_out(kind):
    mod, p, cons, nil = prelude()
    arrays = [np.float32([k, k + 1]) for k in range(3)]
    value = ConstructorValue(nil.tag, [], nil)
    for array in reversed(arrays):
        value = ConstructorValue(cons.tag, [array, value], cons)
    same = relay.create_executor(kind, mod).evaluate(p.rev)
    found = same(value)
    np.testing.assert_array_equal(numbers(found), arrays[::-1])
    np.testing.assert_array_equal(numbers(same(found)), arrays)  # what came out goes in again
    held = relay.create_executor(kind, mod).evaluate(p.id)(RefValue(arrays[0]))
    np.testing.assert_array_equal(held.value.numpy(), arrays[0])
    with pytest.raises(ModelError, match="Cons has tag 0 and 2 fields"):
        ConstructorValue(cons.tag, [], cons)


# -- references ------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_references_are_read_and_written_in_order(kind):
    scope, x = relay.ScopeBuilder(), relay.var("x", shape=(2,))
    ref = scope.let("ref", relay.RefCreate(x))
    before = scope.let("before", relay.RefRead(ref))
    scope.let("", relay.RefWrite(ref, before * relay.const(3.0)))
    after = scope.let("after", relay.RefRead(ref))
    scope.let("", relay.RefWrite(ref, relay.zeros(shape=(2,), dtype="float32")))
    scope.ret(relay.Tuple([before, after]))
    found = run(kind, scope.get(), np.float32([1, 2]), params=[x])
    np.testing.assert_array_equal([f.numpy() for f in found], [[1, 2], [3, 6]])


@pytest.mark.parametrize("kind", KINDS)
def test_functions_share_a_reference_and_each_call_makes_its_own(kind):
    counter, one = relay.Var("counter"), relay.const(1)
    scope = relay.ScopeBuilder()
    old = scope.let("old", relay.RefRead(counter))
    scope.let("", relay.RefWrite(counter, old + one))
    scope.ret(relay.RefRead(counter))
    more = relay.Function([], scope.get())
    make = relay.Function([], relay.Let(counter, relay.RefCreate(relay.const(0)), more))
    first, second = relay.Var("first"), relay.Var("second")
    names = [relay.Var(f"v{k}") for k in range(3)]
    net = relay.Tuple(names)
    for name, value in reversed([*zip(names, (first(), first(), second()), strict=True)]):
        net = relay.Let(name, value, net)
    net = relay.Let(first, make(), relay.Let(second, make(), net))
    assert [f.numpy() for f in run(kind, net)] == [1, 2, 1]


# -- names -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", KINDS)
def test_a_name_inside_hides_the_same_name_around_it(kind):
    mod, p, cons, nil = prelude()
    v = relay.Var("v")
    inner = relay.Let(v, p.hd(listed([5], cons, nil)), v * relay.const(10))
    outer = relay.Let(v, p.hd(listed([2], cons, nil)), relay.Tuple([inner, v]))
    assert [f.numpy() for f in run(kind, outer, mod=mod)] == [50, 2]
    x = integer("x")
    shadow = relay.Function([x], relay.Let(x, p.hd(listed([7], cons, nil)), x + relay.const(1)))
    assert run(kind, shadow, np.int32(1), mod=mod).numpy() == 8


# -- how it is computed ----------------------------------------------------------------------------


@pytest.mark.slow
def test_what_nobody_asks_for_in_between_is_one_piece():
    mod, p, cons, nil = prelude()
    x, acc, w = (relay.var(n, shape=s) for n, s in (("x", (40, 40)), ("acc", (40, 40)),
                                                    ("w", (40, 40))))  # fmt: skip
    step = relay.Function([acc, w], relay.nn.relu(relay.nn.dense(acc, w)))
    rng = np.random.default_rng(0)
    weights = [rng.standard_normal((40, 40)).astype("float32") for _ in range(3)]
    net = p.foldl(step, x, listed([relay.const(a) for a in weights], cons, nil))
    mod["main"] = relay.Function([x], net)
    executable = relay.vm.compile(mod, "llvm")
    value = rng.standard_normal((40, 40)).astype("float32")
    found = VirtualMachine(executable, device("cpu")).invoke("main", value)
    wanted = value
    for a in weights:
        wanted = np.maximum(wanted @ a.T, 0)
    np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-4, atol=1e-4)
    (library,) = executable._parts.values()
    assert len(library.plan.launches) == 3


def test_trips_of_a_loop_share_their_pieces():
    f, x = relay.GlobalVar("f"), relay.var("x", shape=(50, 50))
    g = relay.var("g", relay.FuncType([x.checked_type], x.checked_type))
    mod = relay.IRModule()
    goes_on = relay.sum(x) < relay.const(1e6)
    mod[f] = relay.Function([g, x], relay.If(goes_on, f(g, g(x)), x))
    y = relay.var("y", shape=(50, 50))
    mod["main"] = relay.Function([x], f(relay.Function([y], y * relay.const(2.0)), x))
    executable = relay.vm.compile(mod, "llvm")
    found = VirtualMachine(executable, device("cpu")).invoke("main", np.ones((50, 50), "float32"))
    assert found.numpy()[0, 0] == 512
    assert len(executable._parts) <= 3


@pytest.mark.parametrize("kind", KINDS)
def test_values_decide_shapes_in_functional_networks_too(kind):
    mod, p, cons, nil = prelude()
    x, reps = relay.var("x", shape=(2,)), relay.var("reps", shape=(1,), dtype="int32")
    y = relay.var("y")
    wide = relay.Function([y], relay.argwhere(relay.tile(y, reps)))
    net = p.hd(p.map(wide, cons(x, nil())))
    found = run(kind, net, np.float32([0, 1]), np.int32([3]), params=[x, reps], mod=mod)
    np.testing.assert_array_equal(found.numpy(), [[1], [3], [5]])


@pytest.mark.parametrize("kind", KINDS)
def test_open_extents_are_those_of_each_call(kind):
    mod, p, cons, nil = prelude()
    x = relay.var("x", shape=(relay.Any(), 2))
    flat = relay.Function([x], relay.reshape(relay.reshape(x, (-1,)), (2, -1)))
    tall = relay.var("tall", shape=(relay.Any(), 2))
    rows = relay.Function([tall], relay.take(relay.shape_of(tall), relay.const(0), axis=0))
    a, b = relay.var("a", shape=(3, 2)), relay.var("b", shape=(5, 2))
    net = relay.Tuple([p.map(f, listed([a, b], cons, nil)) for f in (flat, rows)])
    given = [np.arange(n * 2, dtype="float32").reshape(n, 2) for n in (3, 5)]
    moved, counts = run(kind, net, *given, params=[a, b], mod=mod)
    for found, value in zip(numbers(moved), given, strict=True):
        np.testing.assert_array_equal(found, value.reshape(2, -1))
    assert numbers(counts) == [3, 5]
    called = flat(a)  # also where no list is in between
    assert called.checked_type == relay.TensorType((2, 3))
    np.testing.assert_array_equal(
        run("vm", called, given[0], params=[a]).numpy(), given[0].reshape(2, -1)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("shape", [(2, 3), (relay.Any(), 3)])
def test_tensor_arrays_of_one_shape(kind, shape):
    mod = relay.IRModule()
    p = Prelude(mod)
    StaticTensorArrayOps(p, "float32", shape).register()
    made = p.get_tensor_ctor_static("tensor_constructor", "float32", shape)

    def of(name):
        return p.get_global_var_static(name, "float32", shape)

    def value(net):
        found = run(kind, net, *given, params=[x, y], mod=mod)
        fields = found.fields if kind == "debug" else found
        return fields[0].numpy()

    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(2, 3))
    given = [np.random.default_rng(k).standard_normal((2, 3)).astype("float32") for k in (0, 1)]
    array = of("tensor_array")(relay.const(2))
    for k, v in enumerate((x, y)):
        array = of("tensor_array_write")(array, relay.const(k), made(v))
    one = of("tensor_array_read")(array, relay.const(1))
    np.testing.assert_array_equal(value(one), given[1])
    data = run(kind, of("tensor_get_data")(one), *given, params=[x, y], mod=mod)
    np.testing.assert_array_equal(data.numpy(), given[1])
    np.testing.assert_array_equal(value(of("tensor_array_stack")(array)), np.stack(given))
    np.testing.assert_array_equal(value(of("tensor_array_concat")(array)), np.concatenate(given))
    picked = of("tensor_array_gather")(array, relay.const(np.int32([1, 0, 1])))
    np.testing.assert_array_equal(value(picked), np.stack([given[k] for k in (1, 0, 1)]))
    part = of("tensor_take")(one, relay.const(1), relay.const(2))
    np.testing.assert_array_equal(value(part), given[1][1:2])
    first = relay.GlobalVar("hd", mod["hd"])
    row = run(kind, first(of("tensor_array_unstack")(x)), *given, params=[x, y], mod=mod)
    fields = row.fields if kind == "debug" else row
    np.testing.assert_array_equal(fields[0].numpy(), given[0][0])
    places = relay.const(np.int32([1, 0]))
    swapped = of("tensor_array_scatter")(array, places, array)
    np.testing.assert_array_equal(value(of("tensor_array_read")(swapped, relay.const(0))), given[1])


@pytest.mark.parametrize("kind", KINDS)
def test_tensor_arrays_of_any_shape(kind):
    mod = relay.IRModule()
    p = Prelude(mod)
    _, _, _, _, made, *_ = mod.get_type("tensor_float32_t")  # of rank 2

    def of(name):
        return p.get_global_var(name, "float32")

    x, y = relay.var("x", shape=(2, 3)), relay.var("y", shape=(1, 3))
    given = [np.full((n, 3), n, "float32") for n in (2, 1)]
    array = of("tensor_array")(relay.const(3))
    for k, v in enumerate((x, y)):
        array = of("tensor_array_write")(array, relay.const(k), made(v))
    both = [of("tensor_array_read")(array, relay.const(k)) for k in (0, 1)]
    joined = of("tensor_concatenate")(*both)
    found = run(kind, joined, *given, params=[x, y], mod=mod)
    fields = found.fields if kind == "debug" else found
    np.testing.assert_array_equal(fields[0].numpy(), np.concatenate(given))
    lengths = relay.const(np.int32([1, 2]))
    parts = of("tensor_array_split")(array, joined, lengths)
    read = of("tensor_array_read")(parts, relay.const(1))
    found = run(kind, read, *given, params=[x, y], mod=mod)
    fields = found.fields if kind == "debug" else found
    np.testing.assert_array_equal(fields[0].numpy(), np.concatenate(given)[1:3])
    assert "tensor_int8_t" not in map(str, mod.get_global_type_vars())  # nobody asked


@pytest.mark.slow
def test_long_lists_and_deep_calls_need_no_recursion():
    mod, p, cons, nil = prelude()
    x = integer("x")
    xs = listed(range(2000), cons, nil)
    net = p.sum(p.concat(p.map(relay.Function([x], x + x), xs), xs))
    assert run("debug", net, mod=mod).numpy() == 3 * 1999 * 1000


def test_builds_say_what_runs_it():
    mod, p, cons, nil = prelude()
    x = integer("x")
    mod["main"] = relay.Function([x], p.sum(cons(x, nil())))
    with pytest.raises(ModelError, match='functions as values, data types.*create_executor."vm"'):
        relay.build(mod, "llvm")
    with pytest.raises(ModelError, match='create_executor."vm"'):
        relay.create_executor("graph", mod).evaluate()
    mod["main"] = relay.Function([x], x + x)  # the rest of the module is in nobody's way
    assert relay.create_executor("graph", mod).evaluate()(np.int32(4)).numpy() == 8
    y = relay.var("y", shape=())
    with pytest.raises(ModelError, match="the body reads y, which is no parameter"):
        mod["f"] = relay.Function([x], y)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda cons, nil: relay.RefRead(relay.const(1)), "a tensor is no reference"),
        (lambda cons, nil: relay.Call(relay.TupleGetItem(relay.Tuple([nil()]), 0), []),
         "a List is no function"),
        (lambda cons, nil: relay.If(relay.RefRead(relay.RefCreate(nil())), nil(), nil()),
         "a List where a tensor is needed"),
        (lambda cons, nil: relay.Match(relay.RefCreate(nil()), [
            relay.Clause(relay.PatternConstructor(nil), nil())]), "a reference is no value of"),
        (lambda cons, nil: relay.Function([relay.var("f")], relay.Var("g"))(nil), "body reads g"),
    ],
)  # fmt: skip
def test_values_of_another_kind_are_refused_where_they_are_used(make, reason):
    mod, _, cons, nil = prelude()
    with pytest.raises(ModelError, match=reason):
        net = make(cons, nil)
        relay.create_executor("vm", mod).evaluate(relay.Function([], net))()


def test_walks_visit_functional_nodes_and_mutators_rebuild_them():
    mod, _, cons, nil = prelude()
    x, head = relay.var("x", shape=(), dtype="float32"), relay.Var("head")
    ref, kept = relay.Var("ref"), relay.Var("kept")
    first = relay.Clause(
        relay.PatternConstructor(cons, [relay.PatternVar(head), relay.PatternWildcard()]),
        relay.RefRead(ref) + head,
    )
    body = relay.Match(cons(relay.exp(x), nil()), [first], complete=False)
    written = relay.Let(kept, relay.RefWrite(ref, relay.tanh(x)), body)
    f = relay.Function([x], relay.Let(ref, relay.RefCreate(x), written))

    class Seen(relay.ExprVisitor):
        def visit_match(self, match):
            kinds.append(match.clauses[0].lhs.constructor)
            return self._visit_parts(match)

        def visit_ref_write(self, write):
            kinds.append(write.value.op.name)
            return self._visit_parts(write)

    class Negative(relay.ExprMutator):
        def visit_call(self, call):
            found = super().visit_call(call)
            return relay.negative(found) if getattr(call.op, "name", "") == "exp" else found

    kinds: list[object] = []
    Seen().visit(f)
    assert set(kinds) == {cons, "tanh"}
    assert relay.ExprMutator().visit(f) is f
    for function, sign in ((f, 1), (Negative().visit(f), -1)):
        mod["main"] = function
        found = relay.create_executor("debug", mod).evaluate()(0.5)
        np.testing.assert_allclose(found.numpy(), np.tanh(0.5) + sign * np.exp(0.5), 1e-6)


def test_an_imported_network_takes_definitions(tmp_path):
    onnx = pytest.importorskip("onnx")
    kind = onnx.helper.make_tensor_value_info("x", onnx.TensorProto.FLOAT, [2])
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [kind], [
        onnx.helper.make_tensor_value_info("y", onnx.TensorProto.FLOAT, [2]),
    ])  # fmt: skip
    mod, _ = relay.frontend.from_onnx(onnx.helper.make_model(graph))
    mod.import_from_std("prelude.rly")
    assert mod.get_global_var("map") in mod.get_global_vars()
