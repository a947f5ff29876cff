"""Passes under TVM's names: each alone on a module, in a Sequential, watched and printed."""

import functools

import numpy as np
import pytest
from hypothesis import given

from graph.drawing import networks
from graph.test_passes import compare, inputs_of, names
from tests.tiers import examples
from tilewright.base.errors import ModelError
from tilewright_tvm import instrument, relay, transform
from tilewright_tvm.relay import nn
from tilewright_tvm.relay import transform as passes

RNG = np.random.default_rng(0)
ALONE = [
    passes.InferType(), passes.SimplifyInference(), passes.CanonicalizeOps(),
    passes.FoldConstant(), passes.FoldScaleAxis(), passes.ForwardFoldScaleAxis(),
    passes.BackwardFoldScaleAxis(), passes.SimplifyExpr(), passes.DeadCodeElimination(),
    passes.EliminateCommonSubexpr(), passes.CombineParallelConv2D(2),
    passes.CombineParallelDense(2), passes.FuseOps(), passes.FuseOps(0),
    passes.Sequential([passes.SimplifyInference(), passes.FuseOps(), passes.DefuseOps()]),
    passes.RemoveUnusedFunctions(),
]  # fmt: skip


def module(body) -> relay.IRModule:
    return relay.IRModule.from_expr(body)


def same(mod: relay.IRModule, changed: relay.IRModule) -> None:
    inputs = inputs_of(mod["main"])
    compare(relay.evaluate(mod, inputs), relay.evaluate(changed, inputs))


def const(*shape: int) -> relay.Constant:
    return relay.const(RNG.uniform(-1, 1.5, shape).astype("float64"))


def image(*shape: int) -> relay.Var:
    return relay.var("x", shape=shape or (1, 4, 6, 6), dtype="float64")


@pytest.mark.slow
@given(networks())
@examples(15)
def test_each_pass_alone_keeps_the_meaning_of_random_networks(mod):
    for change in ALONE:
        same(mod, change(mod))


def test_passes_do_what_their_names_say():
    x = image()
    y = nn.relu(x)
    assert names(passes.EliminateCommonSubexpr()(module(nn.relu(x) + y))["main"].body) == [
        "nn.relu", "add",
    ]  # fmt: skip
    kept = passes.EliminateCommonSubexpr(fskip=lambda e: e.op.name == "nn.relu")
    assert names(kept(module(nn.relu(x) + y))["main"].body).count("nn.relu") == 2
    folded = passes.FoldScaleAxis()(module(nn.conv2d(x, const(3, 4, 3, 3)) * const(3, 1, 1)))
    assert names(folded["main"].body) == ["nn.conv2d"]
    fused = passes.FuseOps()(module(nn.relu(nn.conv2d(x, const(3, 4, 3, 3)))))
    assert "fused_nn_conv2d_nn_relu" in str(fused)
    assert names(passes.DefuseOps()(fused)["main"].body) == ["nn.conv2d", "nn.relu"]
    alone = passes.FuseOps(fuse_opt_level=0)(module(nn.relu(nn.relu(x) * const(4, 1, 1))))
    assert str(alone).count("fused @") == 2  # the two relu are one function


@pytest.mark.parametrize("weights", ["constants", "variables"])
def test_convolutions_of_one_value_become_one(weights):
    def weight(k: int, *shape: int):
        return (
            const(*shape)
            if weights == "constants"
            else relay.var(f"w{k}", shape=shape, dtype="float64")
        )

    x = image()
    sizes = (3, 5, 2)
    convs = [nn.conv2d(x, weight(k, n, 4, 3, 3), padding=1) for k, n in enumerate(sizes)]
    biases = [weight(k + 3, n) for k, n in enumerate(sizes)]
    convs = [nn.relu(nn.bias_add(c, b)) for c, b in zip(convs, biases, strict=True)]
    alone = nn.conv2d(x, weight(7, 3, 4, 1, 1))
    mod = module(relay.Tuple([*convs, alone]))
    made = passes.CombineParallelConv2D()(mod)
    same(mod, made)
    found = names(made["main"].body)
    assert found.count("nn.conv2d") == 2 and found.count("nn.relu") == 1
    assert names(passes.CombineParallelConv2D(4)(mod)["main"].body).count("nn.conv2d") == 4
    apart = module(relay.Tuple([nn.conv2d(x, const(2, 4, 3, 3), dilation=n) for n in (1, 2)]))
    assert names(passes.CombineParallelConv2D(2)(apart)["main"].body).count("nn.conv2d") == 2


@pytest.mark.parametrize("layout, kernel", [("NHWC", "HWIO"), ("NCHW", "OIHW")])
def test_convolutions_are_combined_in_any_layout(layout, kernel):
    extents = {"N": 1, "C": 4, "H": 6, "W": 6, "O": 5, "I": 4}
    x = image(*(extents[k] for k in layout))
    shape = [extents["O"] if k == "O" else 4 if k == "I" else 3 for k in kernel]
    convs = [
        nn.conv2d(x, const(*shape), data_layout=layout, kernel_layout=kernel) for _ in range(3)
    ]
    mod = module(relay.Tuple(convs))
    made = passes.CombineParallelConv2D()(mod)
    same(mod, made)
    assert names(made["main"].body).count("nn.conv2d") == 1


@pytest.mark.parametrize("to_batch, units", [(True, (5, 5, 5)), (False, (5, 3, 6))])
def test_dense_layers_of_one_value_become_one(to_batch, units):
    x = relay.var("x", shape=(3, 4), dtype="float64")
    layers = [nn.bias_add(nn.dense(x, const(n, 4)), const(n)) for n in units]
    mod = module(relay.Tuple(layers))
    made = passes.CombineParallelDense(3, to_batch)(mod)
    same(mod, made)
    kind = "nn.batch_matmul" if to_batch else "nn.dense"
    assert [n for n in names(made["main"].body) if n in ("nn.dense", "nn.batch_matmul")] == [kind]
    if to_batch:
        uneven = module(relay.Tuple([nn.dense(x, const(n, 4)) for n in (2, 3, 4)]))
        assert "nn.batch_matmul" not in names(passes.CombineParallelDense()(uneven)["main"].body)


def test_a_sequence_goes_by_the_levels_of_its_context():
    x = image()
    mod = module(nn.relu(x) + nn.relu(x))
    both = passes.Sequential([passes.SimplifyInference(), passes.EliminateCommonSubexpr()])
    assert names(both(mod)["main"].body) == ["nn.relu", "add"]
    with transform.PassContext(opt_level=2):
        assert names(both(mod)["main"].body).count("nn.relu") == 2
        assert names(passes.EliminateCommonSubexpr()(mod)["main"].body) == ["nn.relu", "add"]
    assert transform.Sequential is passes.Sequential
    assert transform.Sequential([], opt_level=1, name="mine").info.name == "mine"


def test_passes_are_printed_and_timed(capsys):
    mod = module(nn.relu(nn.relu(image())))
    clock = instrument.PassTimingInstrument()
    watch = [instrument.PrintBeforeAll(), instrument.PrintAfterAll(), clock]
    with transform.PassContext(instruments=watch):
        passes.Sequential([passes.DeadCodeElimination(), passes.PrintIR("then")])(mod)
    shown = capsys.readouterr().out
    before, after = shown.split("After DeadCodeElimination:")
    assert before.count("Before DeadCodeElimination:") == 1 and before.count("nn.relu") == 4
    assert after.partition("Before")[0].count("nn.relu") == 1 and "PrintIR(then)" in after
    assert [line.strip().partition(":")[0] for line in clock.render().splitlines()] == [
        "DeadCodeElimination", "PrintIR", "sequential",
    ]  # fmt: skip


class Heard:
    """An instrument that notes what it is told, and raises at the method `bad`."""

    def __init__(self, name: str, heard: list[str], bad: str = "") -> None:
        self.name, self.heard, self.bad = name, heard, bad

    def _note(self, what: str) -> None:
        if what == self.bad:
            raise ValueError(f"{self.name} at {what}")
        self.heard.append(f"{self.name} {what}")

    def enter_pass_ctx(self) -> None:
        self._note("enter")

    def exit_pass_ctx(self) -> None:
        self._note("exit")

    def run_before_pass(self, mod, info) -> None:
        self._note("before")

    def run_after_pass(self, mod, info) -> None:
        self._note("after")


def test_instruments_are_replaced_where_they_stand():
    mod, heard = module(nn.relu(image())), []
    outside = transform.PassContext.current()
    assert outside is transform.PassContext.current()
    outside.override_instruments([Heard("a", heard)])
    passes.DeadCodeElimination()(mod)
    outside.override_instruments([Heard("b", heard)])
    outside.override_instruments(None)
    passes.DeadCodeElimination()(mod)
    assert heard == ["a enter", "a before", "a after", "a exit", "b enter", "b exit"]
    with transform.PassContext(instruments=[Heard("c", heard)]) as inside:
        assert transform.PassContext.current() is inside is not outside
        inside.override_instruments([])
    assert heard[6:] == ["c enter", "c exit"]
    with pytest.raises(ModelError, match="not a list"):
        outside.override_instruments(7)
    outside.override_instruments([])


@pytest.mark.parametrize(
    "bad, wanted",
    [
        ("enter", ["0 enter", "0 exit"]),
        ("exit", ["0 enter", "1 enter", "2 enter", *["0 before", "1 before", "2 before"],
                  *["0 after", "1 after", "2 after"], "0 exit"]),
        ("before", ["0 enter", "1 enter", "2 enter", "0 before", "0 exit", "1 exit", "2 exit"]),
    ],
)  # fmt: skip
def test_an_instrument_that_raises_leaves_no_other_entered(bad, wanted):
    mod, heard = module(nn.relu(image())), []
    inside = transform.PassContext(
        instruments=[Heard(str(k), heard, bad if k == 1 else "") for k in range(3)]
    )
    with pytest.raises(ValueError, match=f"1 at {bad}"), inside:
        passes.DeadCodeElimination()(mod)
    assert heard == wanted
    assert len(inside.instruments or ()) == (3 if bad == "before" else 0)
    assert transform.PassContext.current() is not inside


def test_a_users_own_pass_is_one_like_the_others():
    @transform.module_pass(opt_level=2)
    def twice(mod, ctx):
        assert ctx.opt_level == 3
        return relay.IRModule({**mod.functions, "again": mod["main"]})

    @passes.function_pass(opt_level=1, name="Negate")
    class Negated:
        def __init__(self, sign: int) -> None:
            self.sign = sign

        def transform_function(self, function, mod, ctx):
            return relay.Function(
                function.params, function.body * relay.const(float(self.sign), "float64")
            )

    mod = module(nn.relu(image()))
    made = transform.Sequential([twice, Negated(-1)])(mod)
    assert set(made.functions) == {"main", "again"} and Negated(-1).info.name == "Negate"
    assert names(made["again"].body) == ["nn.relu", "multiply"]
    assert set(passes.RemoveUnusedFunctions()(made).functions) == {"main"}


def test_what_is_no_pass_or_no_module_is_refused():
    with pytest.raises(ModelError, match="a function is no pass"):
        transform.Sequential([lambda mod: mod])
    with pytest.raises(ModelError, match="it is no module"):
        passes.FoldConstant()(image())
    with pytest.raises(ModelError, match="it is what the pass gave"):
        transform.module_pass(lambda mod, ctx: None, name="none")(module(image()))
    with pytest.raises(ModelError, match="min_num_branches"):
        passes.CombineParallelConv2D("three")
    with pytest.raises(ModelError, match="partial"):
        transform.module_pass(functools.partial(lambda mod, ctx: None))(module(image()))
    with pytest.raises(ModelError, match="has no method transform_module"):
        transform.module_pass(type("Mine", (), {}))
    with pytest.raises(ModelError, match="pass f"):
        transform.module_pass(lambda mod: mod, name="f")
