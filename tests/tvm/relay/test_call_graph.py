"""Which functions of a module call which."""

import pytest

from tilewright.base.errors import ModelError
from tilewright_tvm import relay


def _var(name: str) -> relay.Var:
    return relay.var(name, shape=(2,))


def test_who_calls_whom() -> None:
    mod = relay.IRModule({})
    inner, outer = relay.GlobalVar("inner"), relay.GlobalVar("outer")
    x = _var("x")
    mod[inner] = relay.Function([x], x + x)
    y = _var("y")
    mod[outer] = relay.Function([y], inner(inner(y)))
    p, q = _var("p"), _var("q")
    own = relay.Function([q], inner(q))  # no function of the module
    mod["main"] = relay.Function([p], outer(p) * own(p))
    graph = relay.analysis.CallGraph(mod)
    assert graph.module is mod
    assert [graph.ref_count(n) for n in (inner, outer, "main")] == [2, 1, 0]
    assert [graph.global_call_count(n) for n in (inner, outer, "main")] == [0, 1, 2]
    assert not any(map(graph.is_recursive, (inner, outer, "main")))
    assert graph.print_var("outer") == "@outer #refs = 1\n  calls @inner"
    assert str(graph).splitlines()[-3:] == ["@main #refs = 0", "  calls @outer", "  calls @inner"]
    with pytest.raises(ModelError, match="there is no such function"):
        graph.ref_count("other")


def test_a_function_that_calls_itself() -> None:
    mod, count = relay.IRModule({}), relay.GlobalVar("count")
    i = relay.var("i", shape=(), dtype="int32")
    one = relay.const(1, "int32")
    mod[count] = relay.Function([i], relay.If(i < one, i, count(i - one) + one))
    j = relay.var("j", shape=(), dtype="int32")
    mod["main"] = relay.Function([j], count(j))
    graph = relay.analysis.CallGraph(mod)
    assert graph.is_recursive(count) and not graph.is_recursive("main")
    assert graph.ref_count(count) == 2 and graph.global_call_count(count) == 1
