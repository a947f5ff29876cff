"""Names of TVM's relay: modules, walks, questions about graphs, options of passes."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import tilewright
import tilewright_tvm
import tilewright_tvm._ffi
from graph.small import residual
from tilewright import te
from tilewright.base.errors import ModelError
from tilewright_tvm import relay, transform, tvmc
from tilewright_tvm.relay import analysis


def scaled(name: str = "x", by: float = 2.0) -> relay.Function:
    x = relay.var(name, shape=(2, 3))
    return relay.Function([x], relay.exp(x) * by + x)


# -- modules, functions, types ---------------------------------------------------------------------


def test_names_are_where_tvm_has_them():
    assert (
        tilewright_tvm.ir.IRModule is relay.IRModule
        and tilewright_tvm.ir.TensorType is relay.TensorType
    )
    assert tilewright_tvm.ir.structural_equal is analysis.structural_equal
    assert tilewright_tvm.ir.transform is transform and tilewright_tvm.ir.Op is relay.op.Op
    assert relay.op.add is relay.op.tensor.add is relay.add and relay.op.op is relay.op
    assert relay.op.nn.conv2d is relay.nn.conv2d
    assert relay.op.image.resize2d is relay.image.resize2d
    assert relay.transform.transform.InferType is relay.transform.InferType
    tvm_error = tilewright_tvm.TVMError
    assert tvm_error is tilewright_tvm._ffi.base.TVMError is tilewright_tvm.error.TVMError
    assert tilewright_tvm.ir.Span is relay.Span
    assert relay.backend.te_compiler.get().clear() is None
    n = te.var("n")
    assert isinstance(n, tilewright_tvm.tir.Var) and not isinstance(n + 1, tilewright_tvm.tir.Var)
    assert not isinstance(3, tilewright_tvm.tir.Var)
    assert tilewright_tvm.tir.Var("m", "int32").name == tilewright_tvm.tir.SizeVar("m").name == "m"


def test_a_wrapped_tuple_counts_and_indexes_as_the_tuple():
    x = relay.var("x", shape=(3, 4))
    pair = relay.topk(x, k=2)
    wrapped = relay.expr.TupleWrapper(pair, 2)
    values, places = wrapped
    assert len(wrapped) == 2 and wrapped.astuple() is pair and wrapped.astext() == pair.astext()
    assert values.checked_type == pair[0].checked_type and places.dtype == wrapped[-1].dtype
    with pytest.raises(ModelError, match="the tuple has 2 values"):
        relay.expr.TupleWrapper(pair, 3)


def test_a_constant_takes_arrays_of_any_kind():
    held = relay.Constant(tilewright_tvm.nd.array(np.arange(3, dtype="int32")))
    assert held.checked_type == relay.TensorType((3,), "int32") and held.span is None
    np.testing.assert_array_equal(held.data, [0, 1, 2])
    with pytest.raises(ModelError, match="it holds no numbers"):
        relay.Constant("three")


def test_older_spellings_of_passes():
    with relay.build_config(opt_level=1, disabled_pass=["FuseOps"]) as held:
        assert isinstance(held, transform.PassContext) and held.opt_level == 1
    mod = relay.transform.DeadCodeElimination(inline_once=True)(relay.IRModule.from_expr(scaled()))
    assert analysis.structural_equal(mod["main"], scaled())


def test_functions_of_a_module_have_names():
    mod = relay.IRModule.from_expr(scaled())
    main = mod.get_global_var("main")
    assert (main.name_hint, main, len(mod)) == ("main", "main", 1)
    assert mod[main] is mod["main"] is mod.functions[relay.GlobalVar("main")]
    mod.update(relay.IRModule({"other": scaled("y")}))
    assert mod.get_global_vars() == ["main", "other"]
    copy = mod.shallow_copy()
    copy.update_func("other", scaled("z"))
    assert copy["other"].params[0].name_hint == "z" and mod["other"].params[0].name_hint == "y"
    with pytest.raises(ModelError, match="mod\\['third'\\].*main, other"):
        mod.get_global_var("third")


def test_a_function_has_a_type():
    kind = relay.TensorType((2, 3))
    found = scaled().checked_type
    assert found == relay.FuncType([kind], kind) and found.arg_types[0].concrete_shape == (2, 3)
    assert relay.ty.TupleType([kind, relay.scalar_type("int8")]).fields[1].shape == ()
    assert relay.var("n", "int32").checked_type == relay.scalar_type("int32")
    with pytest.raises(ModelError, match="a function where a tensor is needed"):
        relay.exp(scaled())
    with pytest.raises(ModelError, match="Give a list of TensorType"):
        relay.TupleType([3])


def test_a_variable_of_te_is_an_open_extent():
    n, m = te.var("n"), te.var("m")
    x = relay.var("x", relay.TensorType((n, 4, m)))
    assert x.open_extents == {0: "n", 2: "m"}
    assert relay.transpose(x, (2, 1, 0)).checked_type == relay.TensorType((m, 4, n))
    twice = relay.TensorType((n * 2, m // 4, n - 1))
    assert twice.shape == (2 * x.shape[0], x.shape[2] // 4, x.shape[0] - 1)
    flat = relay.reshape(relay.var("y", shape=(n, m, n, m, 5)), (-1, 5))
    assert flat.shape[0] > 2**31
    net = relay.with_sizes(relay.Function([x], relay.nn.relu(x)), {"n": 2, "m": 3})
    assert net["main"].ret_type == relay.TensorType((2, 4, 3))


def test_comparisons_and_conversions():
    x = relay.var("x", shape=(3,))
    value = np.float32([-1, 0, 1])
    for made, want in ((x < 0, value < 0), (x <= 0, value <= 0), (x > 0, value > 0),
                       (x >= 0, value >= 0), (x.astype("int8"), np.int8([-1, 0, 1]))):  # fmt: skip
        found = relay.evaluate(made, {"x": value})
        np.testing.assert_array_equal(found, want)
        assert found.dtype == want.dtype
    assert x and len(relay.split(x, 3)) == len(relay.split(x, 3).astuple()) == 3
    with pytest.raises(ModelError, match="one tensor, not a tuple"):
        len(x)


# -- names for values ------------------------------------------------------------------------------


def test_let_and_bind_put_values_in_the_place_of_variables():
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    made = relay.Let(y, relay.exp(x), y + y)
    assert relay.free_vars(made) == [x]
    bound = relay.bind(relay.Function([x, y], x * y), {y: relay.const(np.float32([1, 2, 3]))})
    assert bound.params == (x,)
    np.testing.assert_array_equal(relay.evaluate(bound, {"x": [1, 1, 1]}), [1, 2, 3])
    with pytest.raises(ModelError, match=r"relay.Let\(y\).*Leave the variable's type out"):
        relay.Let(y, relay.var("z", shape=(4,)), y)


def test_a_scope_gives_values_back():
    scope = relay.ScopeBuilder()
    x = relay.var("x", shape=(3,))
    scope.ret(scope.let("twice", x + x) * 2.0)
    np.testing.assert_array_equal(relay.evaluate(scope.get(), {"x": [1, 2, 3]}), [4, 8, 12])
    with pytest.raises(ModelError, match="Return once"):
        scope.ret(x)
    with pytest.raises(ModelError, match="nothing was returned"):
        relay.ScopeBuilder().get()


def halved_until_small(x, limit):
    """`limit` and more stay as they are; what is less is doubled, twice if it is negative."""
    scope = relay.ScopeBuilder()
    with scope.if_scope(relay.less(x, limit)):
        inner = relay.ScopeBuilder()
        with inner.if_scope(relay.less(x, relay.const(0.0))):
            inner.ret(x * 4.0)
        with inner.else_scope():
            inner.ret(x * 2.0)
        scope.ret(inner.get())
    with scope.else_scope():
        scope.ret(x)
    return scope.get()


@pytest.mark.parametrize(("value", "wanted"), [(-1, -4), (3, 6), (20, 20)])
def test_scopes_of_a_condition_are_branches(value, wanted):
    x = relay.var("x", shape=())
    f = relay.Function([x], halved_until_small(x, relay.const(10.0)))
    for kind in ("vm", "debug"):
        assert relay.create_executor(kind).evaluate(f)(np.float32(value)).numpy() == wanted


def test_branches_that_are_not_whole_are_refused():
    x = relay.var("x", shape=())
    scope = relay.ScopeBuilder()
    with pytest.raises(ModelError, match="no if_scope ended before it"), scope.else_scope():
        pass
    with pytest.raises(ModelError, match=r"if_scope: nothing was returned"), scope.if_scope(x):
        pass
    open_ = relay.ScopeBuilder()
    with open_.if_scope(x):
        open_.ret(x)
    with pytest.raises(ModelError, match="has no else_scope.*right behind"):
        open_.get()


def sums_up(total):
    """@total(n) = n + @total(n - 1), and 0 of 0."""
    n = relay.var("n", shape=(), dtype="int32")
    scope = relay.ScopeBuilder()
    with scope.if_scope(relay.equal(n, relay.const(0))):
        scope.ret(n)
    with scope.else_scope():
        scope.ret(relay.Call(total, [n - relay.const(1)]) + n)
    return relay.Function([n], scope.get())


@pytest.mark.parametrize("kind", ["vm", "debug"])
def test_a_function_calls_itself_by_name(kind):
    mod, total = relay.IRModule(), relay.GlobalVar("total")
    mod[total] = sums_up(total)
    n = relay.var("n", shape=(), dtype="int32")
    mod["main"] = relay.Function([n], mod.get_global_var("total")(n) * relay.const(2))
    assert "@total(%1)" in str(mod)
    run = relay.create_executor(kind, mod=mod).evaluate()
    for count in (0, 1, 7):
        assert run(np.int32(count)).numpy() == count * (count + 1)
    with pytest.raises(ModelError, match="values decide which branch is taken.*vm"):
        relay.build(mod, "llvm")


def test_a_function_that_no_module_has_is_refused():
    x = relay.var("x", shape=())
    mod = relay.IRModule.from_expr(relay.Function([x], relay.GlobalVar("nowhere")(x)))
    with pytest.raises(ModelError, match=r"@nowhere: no module has that function"):
        relay.create_executor("vm", mod=mod).evaluate()(np.float32(1))


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ([], "0 arguments for 1 parameters"), ([relay.const(1.5)], "the argument .*float32"),
        ([relay.const(1), relay.const(1)], "2 arguments"),
    ],
)  # fmt: skip
def test_arguments_of_functions_called_by_name_fit(given, reason):
    mod, total = relay.IRModule(), relay.GlobalVar("total")
    mod["main"] = relay.Function([], total(*given))
    mod[total] = sums_up(total)
    with pytest.raises(ModelError, match=reason):
        relay.create_executor("vm", mod=mod).evaluate()()


def test_functions_of_a_module_call_each_other():
    x, y = relay.var("x", shape=(3,)), relay.var("y", shape=(3,))
    mod, twice = relay.IRModule(), relay.GlobalVar("twice")
    mod[twice] = relay.Function([x], x + x)
    mod["main"] = relay.Function([y], twice(twice(y)))
    assert mod["main"].ret_type == relay.TensorType((3,))
    found = relay.create_executor("graph", mod=mod).evaluate()(np.float32([1, 2, 3]))
    np.testing.assert_array_equal(found.numpy(), [4, 8, 12])


def test_calls_of_functions_are_one_kernel_with_their_surroundings():
    f, y = scaled(), relay.var("y", shape=(2, 3))
    g = relay.Function([y], relay.nn.relu(f(f(y))))
    value = np.random.default_rng(0).standard_normal((2, 3)).astype("float32")
    library = relay.build(g, "llvm")
    assert len(library.plan.launches) == 1
    found = relay.create_executor("graph").evaluate(g)(value)
    np.testing.assert_allclose(found.numpy(), relay.evaluate(g, {"y": value}), rtol=1e-5)


# -- walks -----------------------------------------------------------------------------------------


class Exponents(relay.ExprMutator):
    """exp becomes tanh."""

    def visit_call(self, call):
        made = super().visit_call(call)
        return relay.tanh(made.args[0]) if made.op.name == "exp" else made


class Calls(relay.ExprVisitor):
    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def visit_call(self, call):
        super().visit_call(call)
        self.names.append(call.op.name)


def test_a_mutator_rebuilds_what_changed():
    f = scaled()
    changed = Exponents().visit(f)
    value = np.float32([[0.5, 1, 2], [0, -1, 1]])
    want = np.tanh(value) * 2 + value
    np.testing.assert_allclose(relay.evaluate(changed, {"x": value}), want, rtol=1e-6)
    x = relay.var("x", shape=(2,))
    kept = relay.Function([x], relay.nn.relu(x))
    assert Exponents().visit(kept) is kept


def test_a_visitor_sees_each_node_once_however_deep():
    x = relay.var("x", shape=(2,))
    value = x
    for _ in range(3000):
        value = value + value
    limit, seen = sys.getrecursionlimit(), Calls()
    seen.visit(relay.Function([x], value))
    assert seen.names == ["add"] * 3000 and sys.getrecursionlimit() == limit
    with pytest.raises(ModelError, match="no value of relay"):
        seen.visit("x")


# -- questions -------------------------------------------------------------------------------------


def test_graphs_are_equal_by_structure():
    assert analysis.structural_equal(scaled("x"), scaled("y"))
    assert analysis.structural_hash(scaled("x")) == analysis.structural_hash(scaled("y"))
    assert not analysis.structural_equal(scaled(by=2.0), scaled(by=3.0))
    with pytest.raises(ValueError, match="constants"):
        analysis.assert_structural_equal(scaled(by=2.0), scaled(by=3.0))
    x, y = relay.var("x", shape=(2,)), relay.var("y", shape=(2,))
    assert not analysis.structural_equal(x + y, y + x)
    assert analysis.structural_equal(x + y, y + x, map_free_vars=True)
    assert not analysis.structural_equal(x + x, x + y, map_free_vars=True)
    assert not analysis.structural_equal(relay.sum(x), relay.sum(x, 0, keepdims=True))
    mod = relay.IRModule.from_expr(scaled())
    assert analysis.structural_equal(mod, relay.IRModule.from_expr(scaled("z")))


def test_calls_of_functions_give_variables_their_types():
    f = scaled("x")
    y = relay.var("y")
    assert f(y).checked_type == f.ret_type and y.checked_type == f.params[0].checked_type


def test_lists_and_dicts_are_equal_where_what_they_hold_is():
    assert analysis.structural_equal([1, "a", {"f": scaled("x")}], (1, "a", {"f": scaled("y")}))
    for lhs, rhs, words in (
        ([1, 2], [1, 2, 3], "2 and 3 values"), ([1], [1.0], "values 1 and 1.0"),
        ({"a": 1}, {"b": 1}, "keys a and b"), ({"a": [2]}, {"a": [3]}, "in a: values 2 and 3"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=words):
            analysis.assert_structural_equal(lhs, rhs)


def test_numbers_of_float32_are_attributes_like_the_decimals_they_stand_for():
    x, s = relay.var("x", shape=(2, 3)), relay.var("s", shape=(3,))
    exact, through, other = (
        relay.nn.batch_norm(x, s, s, s, s, epsilon=e)[0]
        for e in (1e-5, float(np.float32(1e-5)), 1.1e-5)
    )
    assert analysis.structural_equal(exact, through)
    assert not analysis.structural_equal(exact, other)


def test_questions_about_a_network():
    mod, _ = residual()
    assert analysis.count_layers(mod, ["nn.conv2d"]) == 7
    assert analysis.list_op_freqs(mod)["nn.conv2d"] == 8
    x, w = relay.var("x", shape=(4, 8)), relay.var("w", shape=(16, 8))
    assert analysis.get_total_mac_number(relay.nn.dense(x, w)) == 4 * 8 * 16
    seen: list[relay.Expr] = []
    analysis.post_order_visit(mod["main"], seen.append)
    assert seen[-1] is mod["main"] and len(seen) == len(set(seen))
    params = list(mod["main"].params)
    assert analysis.all_vars(mod["main"]) == analysis.bound_vars(mod["main"]) == params
    assert analysis.free_vars(mod["main"]) == []
    first = analysis.extract_intermdeiate_expr(mod, 0)["main"].body
    assert first.op.name == "nn.conv2d"
    groups = analysis.extract_fused_functions(mod)
    assert all(analysis.structural_hash(group) == key for key, group in groups.items())
    assert analysis.check_constant(relay.const(1)) and not analysis.check_constant(x)
    assert analysis.well_formed(mod)


# -- options of passes -----------------------------------------------------------------------------


def kernels(**options) -> int:
    mod, params = relay.testing.synthetic.get_workload((1, 2, 4, 4))
    with transform.PassContext(**options):
        return len(relay.build(mod, "llvm", params, verify=False).plan.launches)


@pytest.mark.slow
def test_passes_are_disabled_and_required_by_name():
    fused, apart = kernels(), kernels(opt_level=0)
    assert fused < kernels(disabled_pass=["FuseOps"]) <= apart
    assert kernels(opt_level=1, required_pass=["FuseOps"]) == fused
    assert kernels(disabled_pass=["AlterOpLayout"]) == fused
    x = relay.var("x", shape=(1, 8))
    weights = [relay.const(np.full((4, 8), k, "float32")) for k in (1, 2, 3)]
    mod = relay.Function([x], relay.concatenate([relay.nn.dense(x, w) for w in weights], 1))
    with transform.PassContext(required_pass=["CombineParallelDense"]):
        joined = relay.build(mod, "llvm", verify=False)
    assert "batch_matmul" in str(joined.report)


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"disabled_pass": ["FuseOp"]}, ("no such pass", "FuseOps")),
        ({"required_pass": ["AlterOpLayout"]}, ("relay.build has no such pass",)),
        ({"disabled_pass": ["SimplifyInference"]}, ("without it", "Leave it out")),
        ({"disabled_pass": "FuseOps"}, ("no list of names",)),
        ({"required_pass": [3]}, ("no list of names",)),
    ],
)
def test_names_that_are_no_passes(options, parts):
    with pytest.raises(ModelError) as caught:
        kernels(**options)
    for part in parts:
        assert part in str(caught.value)


# -- what there is not -----------------------------------------------------------------------------


def test_backends_that_there_are_not():
    mod, params = relay.testing.synthetic.get_workload((1, 2, 4, 4))
    executor, runtime = relay.backend.Executor("graph"), relay.backend.Runtime("cpp")
    built = relay.build(mod, "llvm", params, verify=False, executor=executor, runtime=runtime)
    assert built.get_lib() is built
    with pytest.raises(ModelError, match="it has no options"):
        relay.backend.Runtime("cpp", {"system-lib": True})
    for make in (lambda: relay.backend.Executor("aot"), lambda: relay.backend.Runtime("crt", {})):
        with pytest.raises(ModelError, match="the only one there is"):
            make()


@pytest.mark.parametrize(
    ("owner", "name", "part"),
    [
        (relay.prelude, "lists", "no attribute"), (relay.parser, "SpanCheck", "not kept"),
        (relay.backend, "graph_executor_codegen", "relay.build"),
        (relay.vm, "VMExecutor", "create_executor"), (relay.ty, "TypeRelation", "type rules"),
        (relay.testing, "to_python", "numpy"), (relay.expr, "Match", "relay.Match"),
        (relay.build_module, "GraphExecutor", "create_executor"),
        (relay.op, "relu", "relay.nn.relu"), (relay.op, "register_compute", "TABLE"),
        (relay.op, "register", "TABLE"),
        (tilewright_tvm.ir, "register_intrin_lowering", "te.compute"),
        (tilewright_tvm._ffi, "registry", "use Python"),
        (tvmc, "micro", "no target"), (tilewright_tvm.contrib, "tedd", "shows the loops"),
    ],
)  # fmt: skip
def test_other_names_say_what_to_use(owner, name, part):
    with pytest.raises(AttributeError, match=part):
        getattr(owner, name)


def test_helpers_of_tests():
    f = scaled()
    assert relay.testing.run_infer_type(f) is f
    folded = relay.testing.run_opt_pass(
        relay.const(np.float32(1)) + relay.const(np.float32(2)), relay.transform.FoldConstant()
    )
    assert isinstance(folded, relay.Constant) and folded.data == 3
    assert ("llvm", "cpu(0)") in [(t, str(dev)) for t, dev in relay.testing.ctx_list()]
    assert relay.testing.rand("float16", 2, 3).dtype == "float16"
    with pytest.raises(ModelError, match="its shape is not known"):
        relay.testing.run_infer_type(relay.var("x"))
    k = relay.var("k", shape=(), dtype="int32")
    five = relay.build_module.bind_params_by_name(relay.Function([k], k + k), {"k": 5})
    assert five.body.args[0].data == 5 and five.body.dtype == "int32"
    with pytest.raises(ModelError, match="the parameter int32"):
        relay.build_module.bind_params_by_name(relay.Function([k], k + k), {"k": 2**40})
    with pytest.raises(ModelError, match="the parameter int32"):
        relay.build_module.bind_params_by_name(relay.Function([k], k + k), {"k": 0.5})
    bound = relay.build_module.bind_params_by_name(f, {"x": np.ones((2, 3), "float32")})
    assert not bound.params


def test_a_functor_without_a_method_says_which():
    class Nothing(relay.ExprFunctor):
        def visit_function(self, fn):
            return self.visit(fn.body)

    with pytest.raises(ModelError, match="it has no visit_call"):
        Nothing().visit(scaled())


def test_walks_meet_branches_and_mutators_rebuild_them():
    cond = relay.var("c", shape=(), dtype="bool")
    x = relay.var("x", shape=(3,), dtype="float32")
    f = relay.Function([cond, x], relay.If(cond, relay.exp(x), relay.tanh(x)) + x)

    class Seen(relay.ExprVisitor):
        def visit_if(self, branch):
            self.branch = branch
            super().visit_if(branch)

        def visit_call(self, call):
            called.append(call.op.name)
            super().visit_call(call)

    class Negative(relay.ExprMutator):
        def visit_call(self, call):
            call = super().visit_call(call)
            return relay.negative(call.args[0]) if call.op.name == "exp" else call

    called: list[str] = []
    walk = Seen()
    walk.visit(f)
    assert called == ["add", "exp", "tanh"] and walk.branch.cond is cond
    assert walk.branch.true_branch.op.name == "exp"
    assert walk.branch.false_branch.op.name == "tanh"
    assert relay.ExprMutator().visit(f) is f
    changed = tilewright.IRModule.from_expr(Negative().visit(f))
    run = relay.create_executor("vm", changed).evaluate()
    data = np.array([1, -2, 3], "float32")
    assert np.array_equal(run(np.array(True), data).numpy(), np.zeros(3, "float32"))
    np.testing.assert_allclose(run(np.array(False), data).numpy(), np.tanh(data) + data, 1e-5)


# -- passes and walks of a user's own --------------------------------------------------------------


def test_an_instrument_may_leave_passes_out_and_see_where_a_context_begins():
    seen = []

    @tilewright_tvm.instrument.pass_instrument
    class Watch:
        def should_run(self, mod, info):
            return info.name != "FoldConstant"

        def enter_pass_ctx(self):
            seen.append("enter")

        def exit_pass_ctx(self):
            seen.append("exit")

        def run_after_pass(self, mod, info):
            seen.append(info.name)

    two = relay.IRModule.from_expr(relay.const(1.0) + relay.const(1.0))
    run = transform.Sequential([relay.transform.FoldConstant(), relay.transform.InferType()])
    with transform.PassContext(instruments=[Watch()]):
        made = run(two)
    assert seen == ["enter", "InferType", "sequential", "exit"] and "add" in str(made)
    kept = transform.module_pass(lambda mod, ctx: mod, name="kept")
    assert isinstance(kept, transform.ModulePass) and not isinstance(kept, transform.FunctionPass)


def test_constants_are_folded_and_nothing_else_is_changed():
    x = relay.var("x", shape=(3,))
    one = relay.const(np.float32([1, 2, 3]))
    made = relay.transform.FoldConstant()(relay.IRModule.from_expr((one + one) + x))
    wanted = relay.IRModule.from_expr(relay.const(np.float32([2, 4, 6])) + x)
    tilewright_tvm.ir.assert_structural_equal(made, wanted)


def test_a_walk_without_a_method_is_not_implemented():
    for value in (relay.const(1.0), relay.GlobalVar("f")):
        with pytest.raises(NotImplementedError, match="it has no visit_"):
            relay.ExprFunctor().visit(value)
    assert relay.ExprMutator().visit(relay.GlobalVar("f")) == "f"
    assert relay.ExprVisitor().visit(relay.GlobalVar("f")) is None


def test_places_are_given_as_floats_too():
    x = relay.var("x", shape=(2, 5))
    data = np.random.default_rng(0).random((2, 5)).astype("float32")
    found = relay.evaluate(relay.argsort(x, dtype="float64"), {"x": data})
    np.testing.assert_array_equal(found, np.argsort(data, kind="stable").astype("float64"))
    values, places = relay.evaluate(relay.topk(x, 2, dtype="float32"), {"x": data})
    assert places.dtype == "float32"
    np.testing.assert_array_equal(np.take_along_axis(data, places.astype(int), 1), values)


def test_devices_have_dlpacks_numbers():
    assert [d.device_type for d in (tilewright.cpu(), tilewright.cuda(1), tilewright.opencl())] == [
        1, 2, 4,
    ]  # fmt: skip
    assert tilewright.cuda(1).device_id == 1


def test_the_text_of_a_pool_tells_its_window():
    x = relay.var("x", shape=(1, 3, 8, 8))
    for pool in (relay.nn.max_pool2d, relay.nn.avg_pool2d):
        assert "pool_size=[1, 1]" in pool(x, pool_size=(1, 1)).astext()
