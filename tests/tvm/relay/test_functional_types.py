"""Types of functional networks, passes on them, and their text."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.relay.prelude import Prelude

INT, BOOL = relay.scalar_type("int32"), relay.scalar_type("bool")
A, B = relay.TypeVar("a"), relay.TypeVar("b")


def prelude():
    mod = relay.IRModule()
    lists = Prelude(mod)
    return mod, lists, *mod.get_type("List")


def function(*args, to, of=()):
    return relay.FuncType(args, to, of)


def test_bound_type_variables_may_have_any_name():
    x, y = relay.TypeVar("x"), relay.TypeVar("y")
    assert function(A, B, to=A, of=[A, B]) == function(x, y, to=x, of=[x, y])
    assert function(A, B, to=A, of=[A, B]) != function(x, y, to=y, of=[x, y])
    assert function(A, to=B, of=[A]) != function(x, to=y, of=[x])  # b and y are others
    assert relay.RefType(INT) == relay.RefType(INT) != relay.RefType(BOOL)
    assert str(function(A, to=relay.RefType(A), of=[A])) == "fn [a](a) -> ref(a)"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("hd", lambda xs, ys: function(xs(A), to=A, of=[A])),
        ("map", lambda xs, _: function(function(A, to=B), xs(A), to=xs(B), of=[A, B])),
        ("foldl", lambda xs, _: function(function(A, B, to=A), A, xs(B), to=A, of=[A, B])),
        ("foldr", lambda xs, _: function(function(A, B, to=B), B, xs(A), to=B, of=[A, B])),
        ("filter", lambda xs, _: function(function(A, to=BOOL), xs(A), to=xs(A), of=[A])),
        ("zip", lambda xs, _: function(
            xs(A), xs(B), to=xs(relay.TupleType([A, B])), of=[A, B])),
        ("sum", lambda xs, _: function(xs(INT), to=INT)),
        ("iterate", lambda _, __: function(
            function(A, to=A), INT, to=function(A, to=A), of=[A])),
        ("size", lambda _, tree: function(tree(A), to=INT, of=[A])),
    ],
)  # fmt: skip
def test_functions_of_the_prelude_have_the_types_that_tvm_tells(name, make):
    mod, _, xs, *_ = prelude()
    wanted = make(xs, mod.get_global_type_var("Tree"))
    assert mod[name].checked_type == wanted
    assert relay.transform.InferType()(mod)[name].checked_type == wanted


def test_types_follow_from_what_variables_are_used_for():
    mod, p, xs, cons, nil = prelude()
    x, y, f = relay.Var("x"), relay.Var("y"), relay.Var("f")
    assert relay.Function([x, y], cons(p.sum(x), y)).checked_type.arg_types == (xs(INT),) * 2
    told = relay.Function([f], f(relay.const(1)), INT).checked_type
    assert told == function(function(INT, to=INT), to=INT)
    n = relay.Var("n")
    body = relay.Match(
        n, [relay.Clause(relay.PatternConstructor(cons, [relay.PatternVar(x),
                                                         relay.PatternVar(y)]), x + relay.const(1)),
            relay.Clause(relay.PatternWildcard(), p.hd(n))],
    )  # fmt: skip
    mod["main"] = relay.Function([n], relay.Let(f, p.rev(cons(relay.const(2), n)), body))
    typed = relay.transform.InferType()(mod)["main"]
    assert typed.checked_type == function(xs(INT), to=INT)
    assert typed.params[0].checked_type == xs(INT) and typed.body.checked_type == INT
    run = relay.create_executor("debug", relay.IRModule({**mod.functions, "main": typed}))
    from tilewright_tvm.relay.backend.interpreter import ConstructorValue

    empty = ConstructorValue(nil.tag, [], nil)
    given = ConstructorValue(cons.tag, [np.int32(4), empty], cons)
    assert run.evaluate()(given).numpy() == 5


def test_polymorphic_functions_are_of_each_type_that_they_are_called_with():
    x, y, f = relay.Var("x", A), relay.Var("y", B), relay.Var("f", function(B, to=B))
    same = relay.Function([x], x, A, [A])
    apply = relay.Function([f, y], f(y), B, [B])
    assert apply(same, relay.const(0)).checked_type == INT
    both = relay.Tuple([same(relay.const(1)), same(relay.Tuple([]))])
    assert both.checked_type == relay.TupleType([INT, relay.TupleType([])])
    assert relay.Function([], same, function(B, to=B), [B]).checked_type == function(
        to=function(B, to=B), of=[B]
    )
    found = relay.create_executor("vm").evaluate(apply(same, relay.const(3)))
    assert found.numpy() == 3


def test_operators_tell_their_types_as_soon_as_they_know_them():
    mod, p, _, cons, nil = prelude()
    x = relay.var("x", shape=(2, 3))
    wide = relay.reshape(p.hd(cons(x, nil())), (3, 2))
    assert wide.checked_type == relay.TensorType((3, 2))
    y = relay.Var("y")
    flat = relay.Function([y], relay.nn.batch_flatten(relay.expand_dims(y, 0)))
    net = p.map(flat, cons(x, nil()))
    assert net.checked_type == mod.get_global_type_var("List")(relay.TensorType((1, 6)))
    mod["main"] = relay.Function([x], net)
    relay.transform.InferType()(mod)


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda p, cons, nil: cons(relay.const(1), cons(relay.const(1.0), nil())),
         "argument 1 of Cons: it has type .*float32.*int32.* is asked for"),
        (lambda p, cons, nil: p.hd(relay.const(1)), "argument 0 of @hd"),
        (lambda p, cons, nil: cons(nil()), "1 arguments for 2 parameters"),
        (lambda p, cons, nil: p.sum(cons(relay.const(1.5), nil())), "List.float32."),
        (lambda p, cons, nil: relay.RefRead(nil()), "what relay.RefRead reads"),
        (lambda p, cons, nil: relay.Call(nil(), []), "a value of type List.* is called"),
    ],
)  # fmt: skip
def test_what_does_not_fit_together_is_an_error_of_inference(make, reason):
    mod, p, _, cons, nil = prelude()
    mod["main"] = relay.Function([], make(p, cons, nil))
    with pytest.raises(ModelError, match=reason):
        relay.transform.InferType()(mod)


def test_what_nothing_tells_a_type_is_named():
    mod = relay.IRModule()
    f, x = relay.Var("f"), relay.Var("x")
    mod["main"] = relay.Function([f, x], f(x))
    with pytest.raises(ModelError, match="%f, %x: its type does not follow"):
        relay.transform.InferType()(mod)


# -- passes ----------------------------------------------------------------------------------------


def closures():
    """A module whose main calls closures, and itself by the name of a let."""
    mod = relay.IRModule()
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    i, s, loop = relay.var("i", "int32"), relay.var("s", shape=(2,)), relay.Var("loop")
    add = relay.Function([y], relay.Function([x], x + y))
    z = relay.var("z", shape=(2,))
    again = loop(i - relay.const(1), s * z)
    body = relay.Function([i, s], relay.If(relay.const(0) < i, again, s))
    net = add(z)(relay.Let(loop, body, loop(relay.const(3), z)))
    mod["main"] = relay.Function([z], net)
    return mod


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_lifted_functions_are_the_same_functions(kind):
    mod, value = closures(), np.float32([2, 3])
    lifted = relay.transform.LambdaLift()(relay.transform.InferType()(mod))
    assert sorted(lifted.functions) == ["lifted_0", "lifted_1", "lifted_2", "main"]
    for module in (mod, lifted):
        found = relay.create_executor(kind, module).evaluate()(value)
        np.testing.assert_array_equal(found.numpy(), value**4 + value)


def test_values_that_are_called_get_functions_around_them():
    mod, p, _, cons, nil = prelude()
    _, some, _ = mod.get_type("Option")
    step = relay.GlobalVar("step")
    n = relay.var("n", "int32")
    mod[step] = relay.Function([n], n + relay.const(1))
    numbers = cons(relay.const(1), nil())
    mod["main"] = relay.Function([], relay.Tuple([p.map(some, numbers), p.map(step, numbers)]))
    assert "@map(Some, %1)" in str(mod) and "@map(@step, %1)" in str(mod)
    for names in (True, False):
        made = relay.transform.EtaExpand(expand_constructor=not names, expand_global_var=names)(mod)
        text = str(made["main"])
        assert ("@map(Some, " in text) is names and ("@map(@step, " in text) is not names
        assert made["main"].checked_type == mod["main"].checked_type
        _, found = relay.create_executor("vm", made).evaluate()()
        assert found[0].numpy() == 2


def test_unused_functions_are_removed_and_called_ones_are_not():
    mod, p, _, cons, nil = prelude()
    mod["main"] = relay.Function([], p.length(p.map(p.id, cons(relay.const(1), nil()))))
    left = relay.transform.RemoveUnusedFunctions()(mod)
    assert sorted(left.functions) == ["foldl", "id", "length", "main", "map"]
    assert relay.create_executor("vm", left).evaluate()().numpy() == 1
    kept = relay.transform.RemoveUnusedFunctions(["hd", "sum"])(mod)
    assert sorted(kept.functions) == ["foldl", "hd", "sum"]


def test_other_passes_leave_functional_functions_as_they_are():
    mod, _, _, _, _ = prelude()
    x = relay.var("x", shape=(2,))
    mod["main"] = relay.Function([x], relay.nn.relu(x + relay.const(1.0)) * relay.const(2.0))
    fused = relay.transform.FuseOps(2)(mod)
    assert fused["map"] is mod["map"] and fused["main"] is not mod["main"]
    assert fused.get_type("List") == mod.get_type("List")


# -- text ------------------------------------------------------------------------------------------


def test_text_shows_blocks_matches_types_and_references():
    mod, p, _, cons, nil = prelude()
    ref = relay.Var("ref")
    net = relay.Let(ref, relay.RefCreate(p.sum(cons(relay.const(1), nil()))), relay.RefRead(ref))
    mod["main"] = relay.Function([], net)
    text = str(mod)
    for part in (
        "type List[A] {\n  Cons(A, List[A]),\n  Nil,\n}",
        "def @foldl[A, B](%f: fn (A, B) -> A, %acc: A, %xs: List[B]) -> A {\n  match? (%xs) {\n"
        "    Cons(%cons0, %cons1) => {\n      %0 = %f(%acc, %cons0);\n"
        "      @foldl(%f, %0, %cons1)\n    },\n    Nil => {\n      %acc\n    },\n  }\n}",
        "  let %ref = ref(%2);\n  ref_read(%ref)\n}",
    ):
        assert part in text
    assert "@lifted_0(%z)" in str(relay.transform.LambdaLift()(closures()))
    assert str(net).endswith("ref_read(%ref)")


# -- which values have no clause -------------------------------------------------------------------


def case(constructor, *patterns):
    return relay.PatternConstructor(constructor, [p or relay.PatternWildcard() for p in patterns])


def matched(*patterns):
    value = relay.Var("value")
    return relay.Match(value, [relay.Clause(p, relay.const(1)) for p in patterns])


def test_unmatched_cases_are_told_as_patterns():
    from tilewright_tvm.relay.functional.unmatched import pattern_text

    mod, _, _, cons, nil = prelude()
    _, some, none = mod.get_type("Option")

    def left(*patterns):
        return [pattern_text(p) for p in relay.analysis.unmatched_cases(matched(*patterns))]

    assert left(relay.PatternVar(relay.Var("x"))) == []
    assert left() == ["_"]
    assert left(case(cons, None, None)) == ["Nil"]
    assert left(case(cons, None, case(nil))) == ["Cons(_, Cons(_, _))", "Nil"]
    assert left(case(nil), case(cons, None, case(cons, None, None))) == ["Cons(_, Nil)"]
    assert left(case(nil), case(cons, case(some, None), None)) == ["Cons(None, _)"]
    pairs = [relay.PatternTuple([case(some, None), relay.PatternWildcard()]),
             relay.PatternTuple([relay.PatternWildcard(), case(none)])]  # fmt: skip
    assert left(*pairs) == ["(None, Some(_))"]
    assert left(*pairs, relay.PatternWildcard()) == []


def test_a_match_that_is_said_to_be_complete_has_to_be():
    mod, _, _, cons, nil = prelude()
    clause = relay.Clause(case(cons, None, None), relay.const(1))
    mod["main"] = relay.Function([], relay.Match(nil(), [clause]))
    with pytest.raises(ModelError, match="no clause looks like Nil.*complete=False"):
        relay.transform.InferType()(mod)
    mod["main"] = relay.Function([], relay.Match(nil(), [clause], complete=False))
    assert relay.transform.InferType()(mod)["main"].checked_type == function(to=INT)


# -- equality --------------------------------------------------------------------------------------


def doubled(var="v", at=1, factor=2, many=False, kind="a"):
    """A polymorphic module's function, with names, or one thing in it, as one likes."""
    _, _, xs, cons, _ = prelude()
    t = relay.TypeVar(kind)
    v, x, f = relay.Var(var), relay.Var("x" + var, xs(t)), relay.Var("f" + var)
    rest = relay.PatternVar(relay.Var("rest")) if many else relay.PatternWildcard()
    fields = [relay.PatternVar(v), rest] if at else [relay.PatternWildcard(), relay.PatternVar(v)]
    clauses = [
        relay.Clause(relay.PatternConstructor(cons, fields), v if at else relay.const(factor)),
        relay.Clause(relay.PatternWildcard(), relay.const(factor)),
    ]
    body = relay.Let(f, relay.RefCreate(x), relay.Match(relay.RefRead(f), clauses))
    return relay.Function([x], body, None, [t])


def test_functional_graphs_are_equal_whatever_they_call_things():
    one, other = doubled(), doubled("w", kind="b")
    relay.analysis.assert_structural_equal(one, other)
    assert relay.analysis.structural_hash(one) == relay.analysis.structural_hash(other)
    for changed in (doubled(at=0), doubled(factor=3), doubled(many=True)):
        assert not relay.analysis.structural_equal(one, changed)
    mod, again = (prelude()[0] for _ in range(2))
    for name in mod.functions:
        assert relay.analysis.structural_equal(mod[name], again[name]), name
    assert not relay.analysis.structural_equal(mod["hd"], mod["tl"])
    assert not relay.analysis.structural_equal(mod["foldl"], mod["foldr"])


# -- reading ---------------------------------------------------------------------------------------


def test_functional_text_reads_back():
    mod, p, _, cons, nil = prelude()
    mod.import_from_std("nat.rly")
    ref = relay.Var("ref")
    counted = relay.Let(
        ref, relay.RefCreate(p.sum(cons(relay.const(1), nil()))), relay.RefRead(ref)
    )
    mod["main"] = relay.Function([], relay.Tuple([counted, counted]))
    for module in (mod, closures(), relay.transform.LambdaLift()(closures())):
        text = module.astext()
        back = relay.parse(text)
        relay.analysis.assert_structural_equal(module, back)
        assert back.astext() == text
        assert list(back.type_definitions) == list(module.type_definitions)
        for name, function in module.functions.items():
            assert back[name].checked_type == function.checked_type
    found = relay.create_executor("vm", relay.parse(mod.astext())).evaluate()()
    assert [f.numpy() for f in found] == [1, 1]


TREES = """
type Tree[A] {
  Leaf,
  Node(Tree[A], A, Tree[A]),
}
def @fold[A, B](%f: fn (B, A, B) -> B, %of: B, %t: Tree[A]) -> B {
  match (%t) {
    Leaf => %of,
    Node(%l, %x, %r) => { %f(@fold(%f, %of, %l), %x, @fold(%f, %of, %r)) }
  }
}
def @even(%n: int32) -> bool { if (%n == 0) { True } else { @odd(%n - 1) } }
def @odd(%n: int32) -> bool { if (%n == 0) { False } else { @even(%n - 1) } }
def @main(%x: Tensor[(2), float32], %n: int32) {
  let %t = Node(Node(Leaf, %x, Leaf), %x * %x, Leaf);
  let %seen = ref(%x);
  let %sum = @fold(fn (%l, %a: Tensor[(2), float32], %r) {
    let %u = ref_write(%seen, %a);
    %l + %a + %r
  }, zeros(shape=[2], dtype="float32"), %t);
  let %up = fn (%k: int32, %y: Tensor[(2), float32]) -> Tensor[(2), float32] {
    if (%k == 0) { %y } else { %up(%k - 1, %y + 1f) }
  };
  match? ((@even(%n), %up(%n, ref_read(%seen)))) {
    (%is, %last) => (%sum, %is, %last)
  }
}
"""


@pytest.mark.parametrize("kind", ["debug", "vm"])
def test_programs_are_written_as_text(kind):
    mod = relay.parse(TREES)
    assert relay.parse(mod.astext()).astext() == mod.astext()
    x = np.float32([3, 4])
    total, even, last = relay.create_executor(kind, mod).evaluate()(x, np.int32(5))
    np.testing.assert_array_equal(total.numpy(), x + x * x)
    assert not even.numpy()
    np.testing.assert_array_equal(last.numpy(), x * x + 5)
    with pytest.raises(ModelError, match="@fold: 0 arguments|0 arguments for 3"):
        relay.transform.InferType()(relay.parse(TREES.replace("@even(%n), %up", "@fold(), %up")))


def test_text_names_data_types_of_a_module_that_it_is_given():
    mod, *_ = prelude()
    source = "def @main(%x: List[int32]) { match? (%x) { Cons(%h, _) => @length(%x) + %h } }"
    made = relay.parse(source, init_module=mod)
    assert made["main"].checked_type.ret_type == INT and made.get_type("List") == mod.get_type(
        "List"
    )
