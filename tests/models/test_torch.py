"""Modules of PyTorch, imported, against PyTorch itself.  Skipped without it."""

from __future__ import annotations

from typing import Any

import pytest

import tilewright
from models.torch_networks import IMAGE, NETWORKS, TOKENS, VIEWS, Memory, close, network, nn, torch
from tilewright.base.errors import ModelError
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_an_exported_program_computes_the_same_evaluated_and_built(name):
    module, x = network(name)
    mod, params = relay.frontend.from_exported_program(torch.export.export(module, (x,)))
    data = mod["main"].params[0].name_hint
    close(relay.evaluate(mod, {**params, data: x.numpy()}), module(x))
    lib = relay.build(mod, "llvm", params)
    run = graph_executor.GraphModule(lib["default"](tilewright.cpu()))
    run.run(**{data: x.numpy()})
    close([run.get_output(k).numpy() for k in range(run.get_num_outputs())], module(x))


@pytest.mark.sampled(1)
@pytest.mark.parametrize("form", ["module", "scripted", "traced"])
def test_from_pytorch_takes_modules_in_every_form(form):
    module, x = network("block")
    given = {
        "module": lambda: module,
        "scripted": lambda: torch.jit.script(module),
        "traced": lambda: torch.jit.trace(module, x),
    }[form]()
    mod, params = relay.frontend.from_pytorch(given, [("input0", IMAGE)])
    assert mod["main"].params[0].name_hint == "input0" and "conv.weight" in params
    close(relay.evaluate(mod, {**params, "input0": x.numpy()}), module(x))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize(
    "options", [{}, {"num_layers": 2, "bidirectional": True, "batch_first": True},
                {"proj_size": 2}],
    ids=str,
)  # fmt: skip
def test_the_states_that_an_lstm_leaves_have_pytorchs_shapes(options):
    module, x = nn.LSTM(16, 4, **options).eval(), torch.randn(TOKENS)
    mod, params = relay.frontend.from_exported_program(torch.export.export(module, (x,)))
    made, (state, cell) = module(x)
    found = relay.evaluate(mod, {**params, mod["main"].params[0].name_hint: x.numpy()})
    close(found, (made, state, cell))
    with torch.no_grad():
        made, left = torch.compile(module, backend="tilewright")(x)
    close([v.numpy() for v in (made, *left)], (*module(x)[:1], state, cell))


@pytest.mark.slow
def test_what_pytorch_cannot_decompose_is_one_sentence():
    module, x = nn.CrossMapLRN2d(3), torch.randn(1, 4, 5, 5)
    program = torch.export.export(module.eval(), (x,), strict=False)
    with pytest.raises(ModelError, match="PyTorch cannot decompose the program"):
        relay.frontend.from_exported_program(program)


@pytest.mark.slow
def test_weights_share_memory_and_tied_ones_are_one():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(4, 4), nn.Linear(4, 4)
            self.b.weight = self.a.weight

        def forward(self, x: Any) -> Any:
            return self.b(self.a(x))

    module = Tied().eval()
    _, params = relay.frontend.from_pytorch(module, [("x", (2, 4))])
    assert sorted(params) == ["a.bias", "a.weight", "b.bias"]
    assert params["a.weight"].ctypes.data == module.a.weight.data_ptr()


def test_bfloat16_weights_arrive():
    module = nn.Linear(4, 3).eval().to(torch.bfloat16)
    mod, params = relay.frontend.from_pytorch(module, [("x", ((2, 4), "bfloat16"))])
    assert {str(p.dtype) for p in params.values()} == {"bfloat16"}
    assert str(mod["main"].body.dtype) == "bfloat16"


def test_the_mode_of_the_module_stays():
    module = nn.Sequential(nn.Dropout(0.5), nn.BatchNorm1d(4)).train()
    relay.frontend.from_pytorch(module, [("x", (2, 4))])
    assert all(m.training for m in module.modules())


def test_what_is_no_program_is_refused():
    with pytest.raises(ModelError, match="no ExportedProgram"):
        relay.frontend.from_exported_program(nn.Linear(2, 2))
    with pytest.raises(ModelError, match="no torch.nn.Module"):
        relay.frontend.from_pytorch(lambda x: x, [("x", (2,))])
    with pytest.raises(ModelError, match="is not understood"):
        relay.frontend.from_pytorch(nn.ReLU(), ["x"])
    with pytest.raises(ModelError, match="no element type"):
        relay.frontend.from_pytorch(nn.ReLU(), [("x", ((2,), "floaty"))])
    with pytest.raises(ModelError, match="torch.export refuses"):
        relay.frontend.from_pytorch(nn.Linear(3, 3), [("x", (2, 4))])


def test_a_module_that_writes_its_buffers_is_refused():
    class Counter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("calls", torch.zeros(3))

        def forward(self, x: Any) -> Any:
            self.calls.add_(1)
            return x + self.calls

    with pytest.raises(ModelError, match="writes to calls"):
        relay.frontend.from_pytorch(Counter(), [("x", (3,))])


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_the_memory_of_a_view_is_refused(view):
    with pytest.raises(ModelError, match="it reads the memory of a view"):
        exported = torch.export.export(Memory(view), (torch.arange(12.0).reshape(3, 4),))
        relay.frontend.from_exported_program(exported)


def test_memory_of_dense_tensors_is_that_of_their_elements():
    module, x = Memory(lambda x: x * 2), torch.arange(6.0).reshape(3, 2)
    mod, params = relay.frontend.from_exported_program(torch.export.export(module, (x,)))
    (name,) = (p.name_hint for p in mod["main"].params if p.name_hint not in params)
    close(relay.evaluate(mod, {**params, name: x.numpy()}), module(x))


def test_an_open_batch_is_refused():
    module = nn.Linear(4, 4).eval()
    batch = torch.export.Dim("batch", min=2, max=64)
    program = torch.export.export(module, (torch.randn(3, 4),), dynamic_shapes=({0: batch},))
    with pytest.raises(ModelError, match="is open.*without dynamic_shapes"):
        relay.frontend.from_exported_program(program)


class Chosen(nn.Module):
    """What data decide: how many rows are kept, how often a loop of slices is long."""

    def forward(self, x: Any) -> Any:
        kept = x[x[:, 0] > 0] * 2
        rest = torch.cat([kept, kept.new_zeros(1, x.shape[1])])
        kinds, which = torch.unique((x * 2).int(), return_inverse=True)
        return kept.sum(0), rest, torch.arange(kept.shape[0]), kinds, which, kept.sort(0)[0]


@pytest.mark.slow
def test_what_data_decide_runs_in_stages():
    mod, params = relay.frontend.from_pytorch(Chosen(), [("x", (5, 3))])
    run = relay.create_executor("vm", mod=mod, target="llvm", params=params).evaluate()
    for shift in (0.0, -9.0, 9.0):
        x = torch.randn(5, 3) + shift
        for found, wanted in zip(run(x.numpy()), Chosen()(x), strict=True):
            assert found.dtype == str(wanted.dtype).removeprefix("torch.")
            close([found.numpy()], wanted)


class Signed(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.sum() > 0:  # noqa: SIM108
            y = x * 2
        else:
            y = x.sin()
        return y + 1


class Branched(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda v: self.layer(v), lambda v: v.cos(), (x,)) + 1


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("make", [lambda: torch.jit.script(Signed()), Branched])
def test_branches_run_in_stages(make):
    module = make()
    mod, params = relay.frontend.from_pytorch(module, [("x", (2, 3))])
    run = relay.create_executor("vm", mod=mod, target="llvm", params=params).evaluate()
    for sign in (1, -1):
        x = torch.rand(2, 3) * sign
        close([run(x.numpy()).numpy()], module(x))


@pytest.mark.slow
def test_a_truth_that_is_read_decides_a_branch():
    class Read(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.cond((x.sum() > 0).item(), lambda v: v * 2, lambda v: v.cos(), (x,))

    mod, params = relay.frontend.from_pytorch(Read(), [("x", (2, 3))])
    for sign in (1, -1):
        x = torch.rand(2, 3) * sign
        close([relay.evaluate(mod, {**params, "x": x.numpy()})], x * 2 if sign > 0 else x.cos())


@pytest.mark.slow
def test_none_among_results_is_left_out():
    attention = nn.MultiheadAttention(8, 2, batch_first=True).eval()

    class Attended(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.attention = attention

        def forward(self, x: Any) -> Any:
            return self.attention(x, x, x, need_weights=False)

    x = torch.randn(2, 3, 8)
    mod, params = relay.frontend.from_pytorch(Attended(), [("x", (2, 3, 8))])
    close(relay.evaluate(mod, {**params, "x": x.numpy()}), Attended().eval()(x)[0])


@pytest.mark.slow
def test_a_module_may_write_to_its_inputs():
    class Filled(nn.Module):
        def forward(self, x: Any) -> Any:
            x[0] = 7
            return x.clamp_(max=5) + 1

    x = torch.randn(2, 3)
    mod, params = relay.frontend.from_pytorch(Filled(), [("x", (2, 3))])
    close([relay.evaluate(mod, {**params, "x": x.numpy()})], Filled()(x.clone()))
