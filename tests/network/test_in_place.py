"""Which results may lie in the memory of an input, and that nothing else is there before."""

from dataclasses import replace

import numpy as np
import pytest

from graph.case import function, tensor
from strategies import assert_computes
from tilewright import te
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Expr, IRModule
from tilewright.lowering.pipeline import lower_schedule
from tilewright.network.build import build
from tilewright.network.extract import groupings, prepare
from tilewright.network.in_place import in_place
from tilewright.network.memory import steps
from tilewright.runtime.network.library import load
from tilewright.runtime.network.plan import Pair
from tilewright.schedule.default import default_schedule
from tilewright.targets.target import Target
from tilewright_tvm import relay

ROWS, SIZE = 6, 64


def cache(name: str = "x") -> Expr:
    return tensor(name, ROWS, SIZE)


def chosen(kept: Expr, update: Expr | None = None) -> Expr:
    """`kept` with a new row, at the place that `i` says."""
    places = relay.const(np.arange(ROWS, dtype="int64").reshape(ROWS, 1))
    here = relay.equal(places, tensor("i", 1, 1, dtype="int64"))
    return relay.where(here, tensor("u", 1, SIZE) if update is None else update, kept)


def pairs(body: Expr) -> tuple[Pair, ...]:
    return in_place(prepare(function(body))["main"])


def numbers(body: Expr, name: str, result: int = 0) -> tuple[Pair, ...]:
    params = [p.name_hint for p in prepare(function(body))["main"].params]
    return (Pair(result, params.index(name)),)


def viewed() -> Expr:
    made = chosen(relay.reshape(tensor("x", SIZE, ROWS), (ROWS, SIZE)))
    return relay.reshape(made, (1, ROWS * SIZE))


def read_behind() -> Expr:
    made = chosen(cache())
    return relay.Tuple([relay.sum(made, axis=1), made])


def read_before() -> Expr:
    """Another kernel reads the input; what is written to it comes last."""
    x = cache()
    return relay.Tuple([chosen(x), relay.sum(x, axis=1)])


def made_of_it() -> Expr:
    """A kernel of its own makes what is new of all of it, before any of it is written."""
    x = cache()
    return chosen(x, relay.sum(x, axis=0, keepdims=True))


@pytest.mark.parametrize(
    ("body", "result"),
    [
        (chosen(cache()), 0),
        (viewed(), 0),
        (read_behind(), 1),
        (read_before(), 0),
        (made_of_it(), 0),
    ],
)
def test_a_choice_of_an_input_may_lie_there(body, result) -> None:
    assert pairs(body) == numbers(body, "x", result)


OTHERS = {
    "where depends on it": lambda x: relay.where(relay.less(x, relay.const(0.0)), cache("u"), x),
    "another result, too": lambda x: relay.Tuple([chosen(x), x]),
    "every element is new": lambda x: relay.add(x, relay.const(1.0)),
    "behind other steps": lambda x: chosen(relay.negative(x)),
    "moved": lambda x: chosen(relay.transpose(tensor("y", SIZE, ROWS), (1, 0))),
    "of one row": lambda x: chosen(tensor("y", 1, SIZE), cache("u")),
}


@pytest.mark.parametrize("make", OTHERS.values(), ids=OTHERS)
def test_others_may_not(make) -> None:
    found = pairs(make(cache()))
    taken = {pair.input for pair in found}
    params = [p.name_hint for p in prepare(function(make(cache())))["main"].params]
    assert not taken & {k for k, name in enumerate(params) if name in ("x", "y")}


def test_nothing_lies_there_before_it_is_read() -> None:
    """Intermediate values, whose memory is shared, keep away from the first step on."""
    x = cache()
    wide = tensor("w", ROWS, SIZE)
    first = relay.sum(relay.exp(wide), axis=0, keepdims=True)
    update = relay.nn.softmax(relay.nn.dense(first, tensor("v", SIZE, SIZE)))
    made = build(function(chosen(x, update)), Target("llvm -num-cores=2"), verify=False)
    (pair,) = made.plan.in_place
    place = made.plan.outputs[pair.output][1]
    *before, last = made.plan.launches
    assert place in last.operands and len(before) > 1
    for launch in before:
        assert all((o.kind, o.index) != ("slot", place.index) for o in launch.operands)


def test_files_say_it_and_a_wrong_one_is_refused(tmp_path) -> None:
    made = build(function(chosen(cache())), Target("llvm -num-cores=2"), verify=False)
    made.save(tmp_path / "library")
    plan = load(tmp_path / "library").plan
    assert plan.in_place == made.plan.in_place != ()
    for pair in (Pair(0, 9), Pair(1, 0), Pair(0, 0), Pair(-1, 1)):
        wrong = replace(plan, in_place=(pair,))
        assert "is to lie in" in wrong.misfit(made.kernels, made.constants)


def test_what_is_read_later_is_not_written_over() -> None:
    """A second write needs the first one's result, and the input itself."""
    x = cache()
    first = chosen(x)
    second = chosen(cache("y"), relay.sum(first + x, axis=0, keepdims=True))
    assert {pair.output for pair in pairs(relay.Tuple([first, second]))} == {1}


def keys_and_values() -> Expr:
    """Two caches that are written at one time, the first with rows that are made for it."""
    update = relay.tanh(tensor("w", 1, SIZE))
    keys, values = chosen(cache("k"), update), chosen(cache("v"))
    return relay.Tuple([relay.sum(keys + values, axis=1), keys, values])


def test_writes_at_one_time_are_one_kernel_in_place() -> None:
    body = keys_and_values()
    mod = groupings(function(body), target=Target("cuda -arch=sm_90"))[0]
    params = [p.name_hint for p in mod["main"].params]
    assert in_place(mod["main"]) == tuple(
        Pair(k, params.index(name)) for k, name in ((1, "k"), (2, "v"))
    )
    written = [c for c in steps(mod["main"].body) if c.op.attrs["name"].count("where") == 2]
    (write,) = written
    rng = np.random.default_rng(0)
    given = {p.name_hint: rng.random(p.shape, "float32") for p in mod["main"].params}
    given["i"] = np.array([[4]])
    for mine, its in zip(
        evaluate(mod, given), evaluate(IRModule({"main": function(body)}), given), strict=True
    ):
        np.testing.assert_allclose(mine, its, rtol=1e-6)
    assert write.checked_type.fields[0].shape == (ROWS, SIZE)


@pytest.mark.parametrize(("rows", "blocks"), [(6, 12), (1 << 14, 2048)])
def test_a_large_cache_has_a_few_elements_for_each_thread(rows: int, blocks: int) -> None:
    """Where it is written in place, whoever keeps its elements only asks where it is."""
    target = Target("cuda -arch=sm_90")
    x, u = te.placeholder((rows, SIZE), name="x"), te.placeholder((SIZE,), name="u")
    here = te.placeholder((rows,), "bool", name="here")

    def value(i: te.IterVar, j: te.IterVar) -> te.Expr:
        half = SIZE // 2
        turned = te.if_then_else(j < half, 0.0 - u[j + half], u[j - half])
        return te.if_then_else(here[i], turned, x[i, j])

    dag = te.ComputeDAG([x, u, here, te.compute((rows, SIZE), value)])
    program = lower_schedule(default_schedule(dag, target), target)
    (kernel,) = program.kernels
    assert [thread.extent for thread in kernel.threads if "blockIdx" in thread.tag] == [blocks]
    if rows < SIZE:
        assert_computes(program, dag, 0)


def test_a_write_comes_right_behind_the_last_that_reads_what_was_there() -> None:
    """What does not need the cache any more has its weights asked for meanwhile."""
    held = cache("k")
    summed = relay.sum(held, axis=0, keepdims=True)
    last = relay.nn.dense(relay.nn.dense(summed, tensor("a", SIZE, SIZE)), tensor("b", SIZE, SIZE))
    body = relay.Tuple([last, chosen(held, relay.tanh(tensor("w", 1, SIZE)))])
    mod = groupings(function(body), target=Target("cuda -arch=sm_90"))[0]
    names = [c.op.attrs["name"] for c in steps(mod["main"].body)]
    kinds = [next(w for w in ("where", "dense", "sum") if w in name) for name in names]
    assert kinds == ["sum", "where", "dense", "dense"]
    assert len(in_place(mod["main"])) == 1


def one_after_the_other() -> Expr:
    """What is written to the second is read from the first."""
    keys = chosen(cache("k"))
    return relay.Tuple([keys, chosen(cache("v"), relay.sum(keys, axis=0, keepdims=True))])


def test_a_write_that_needs_another_one_comes_behind_it() -> None:
    mod = groupings(function(one_after_the_other()), target=Target("cuda -arch=sm_90"))[0]
    names = [c.op.attrs["name"] for c in steps(mod["main"].body)]
    assert [name.count("where") for name in names if "where" in name] == [1, 1]
    assert len(in_place(mod["main"])) == 2
