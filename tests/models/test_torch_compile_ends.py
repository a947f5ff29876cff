"""Where `torch.compile` meets what it cannot compile, what varies, and graphs of CUDA."""

from __future__ import annotations

import threading
import warnings
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from models import torch_compiled
from models.torch_compiled import compiled
from models.torch_networks import close, leaves, nn, torch
from tilewright.base.errors import DeviceError, ModelError
from tilewright.models.torch import compile as torch_compile
from tilewright.models.torch import told
from tilewright.runtime.network import compiled as compiled_network
from tilewright.runtime.network import torch_calls
from tilewright.runtime.network.caller import Output
from tilewright.runtime.network.compiled import Compiled
from tilewright.runtime.network.plan import TensorSpec
from tilewright_tvm import relay

built, fresh = torch_compiled.built, torch_compiled.fresh  # fixtures


class Recurrent(nn.Module):
    """A recurrent layer between linear ones."""

    def __init__(self, layer: Any) -> None:
        super().__init__()
        self.before, self.layer = nn.Linear(4, 4), layer
        self.after = nn.Linear(5, 3)

    def forward(self, x: Any) -> Any:
        made, _ = self.layer(torch.relu(self.before(x)))
        return self.after(made)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("layer", [
    lambda: nn.LSTM(4, 5, batch_first=True), lambda: nn.GRU(4, 5), lambda: nn.RNN(4, 5),
])  # fmt: skip
def test_recurrent_layers_and_what_surrounds_them_are_one_graph(built, layer):
    module, x = Recurrent(layer()).eval(), torch.randn(2, 3, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        close(leaves(compiled(module)(x)), module(x))
    assert len(built) == 1


def test_breaks_are_told_where_no_graph_is_left():
    module, x = Recurrent(nn.RNN(4, 5)).eval(), torch.randn(2, 3, 4)
    with torch.no_grad(), torch._dynamo.config.patch(allow_rnn=False):
        with pytest.warns(torch_compile.TilewrightWarning, match="in parts.*RNN"):
            found = compiled(lambda x: module.layer(x)[0])(x)
    close(leaves(found), module.layer(x)[0])


@pytest.mark.slow
def test_arrays_and_numbers_of_numpy_are_tensors(built):
    def mixed(x: Any, table: Any, by: Any) -> Any:
        return x * by + torch.from_numpy(table * 2)

    run, x = compiled(mixed), torch.randn(4, 8)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for seed in range(3):
            table = np.random.default_rng(seed).normal(size=(4, 8)).astype("float32")
            by = np.float32(seed)
            close(leaves(run(x, table, by)), mixed(x, table, by))
    assert len(built) == 1


@pytest.mark.slow
def test_a_result_that_is_not_computed_takes_out_one_operator(built):
    class Statistics(nn.Module):
        def forward(self, x: Any) -> Any:
            made, mean, _ = torch.native_layer_norm(torch.relu(x), [6], None, None, 1e-5)
            where = nn.functional.adaptive_max_pool2d(made, 2, return_indices=True)
            return *where, mean.exp()

    run, x = compiled(Statistics()), torch.randn(2, 5, 6)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="result 1 is not"):
        for found, wanted in zip(run(x), Statistics()(x), strict=True):
            close(leaves(found), wanted)
    assert len(built) == 2  # before it and behind it


@pytest.mark.slow
def test_a_cache_that_grows_is_compiled_for_a_few_sizes(built):
    run = compiled(lambda cache, x: torch.cat([cache, x]) * 2)
    cache, told = torch.randn(2, 4), list[str]()
    with torch.no_grad(), warnings.catch_warnings(record=True) as found:
        warnings.simplefilter("always")
        for _ in range(2):  # sizes that come back are not compiled then, either
            for length in range(2, 12):
                cache, x = torch.randn(length, 4), torch.randn(1, 4)
                close(leaves(run(cache, x)), torch.cat([cache, x]) * 2)
        told = [str(w.message) for w in found if w.category is torch_compile.TilewrightWarning]
    assert len(built) == 4  # one before PyTorch knows that it grows
    assert len(told) == 1 and "axis 0 of cache_ (3, 4, 5, 6)" in told[0] and '"sizes"' in told[0]


def test_what_varies_is_named():
    names = ["s0", "l_x_", "l_by_"]
    first, longer = (3, ((3, 4), (4, 1)), 0.5), (5, ((5, 4), (4, 1)), 0.5)
    assert told.varying(names, [first, longer]) == "axis 0 of x_ (3, 5)"
    other = (3, ((3, 4), (1, 3)), 0.75)
    assert told.varying(names, [first, other]) == "strides of x_ ((4, 1), (1, 3)); by_ (0.5, 0.75)"


def test_a_part_that_cannot_be_built_is_told(built, monkeypatch):
    def build(mod: Any, *rest: Any, **more: Any) -> Any:
        raise ModelError("here", "it cannot")

    monkeypatch.setattr(torch_compile, "build", build)
    run, x = compiled(lambda x: torch.special.bessel_j0(x * 2)), torch.ones(3)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="a part .*cannot"):
        close(leaves(run(x)), torch.special.bessel_j0(x * 2))


@pytest.mark.slow
def test_what_comes_back_often_is_compiled_for_more_sizes(built, monkeypatch):
    monkeypatch.setattr(torch_compile, "_CALLS_A_BUILD", 8)
    run = compiled(lambda x: torch.relu(x) * 2, sizes=1)
    with torch.no_grad():
        for k in range(40):
            x = torch.randn(2 + k % 3, 4)
            close(leaves(run(x)), torch.relu(x) * 2)
    assert len(built) == 4  # one before PyTorch knows that it varies
    torch._dynamo.reset()
    built.clear()
    run = compiled(lambda x: torch.relu(x) * 3, sizes=5)
    with torch.no_grad():
        for length in range(2, 9):
            run(torch.randn(length, 4))
    assert len(built) == 1 + 5


@pytest.mark.slow
@pytest.mark.parametrize("change", ["in place", "memory"])
def test_weights_that_keep_changing_cost_few_builds(built, change):
    module, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    run = compiled(module)
    with torch.no_grad(), warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        for k in range(8):
            close(leaves(run(x)), module(x))
            changed = module.bias if k < 4 else module.weight
            if change == "memory":
                changed.data = torch.randn_like(changed)
            else:
                changed.add_(1)
        close(leaves(run(x)), module(x))
    assert len(built) == 4 and len(told) == 2


def test_a_graph_that_is_recorded_takes_pytorchs_memory():
    puts, copied, recorded = list[int](), list[Any](), list[Any]()
    spec = TensorSpec("y", (16,), "float32")
    memory = SimpleNamespace(pointer=1000, offset=64)
    caller: Any = SimpleNamespace(
        turn=threading.Lock(), run=None, copy=lambda *a: copied.append(a), rooms=[256, 128],
        inputs=[puts.append], staging=[SimpleNamespace(pointer=0, nbytes=64)],
        outputs=[Output(spec, puts.append, memory), Output(spec, None, memory, room=1)],
        record=recorded.append, captured=lambda: True, bounds=[],
    )  # fmt: skip
    outputs = [("output", 0), ("output", 1)]
    run = torch_calls.function(torch, caller, [0], outputs, torch.device("cpu"))
    shifted = torch.randn(17)[1:]
    first, second = run([shifted])
    (rooms,) = recorded
    assert puts[0] != shifted.data_ptr() and not puts[0] % 64 and puts[1] == first.data_ptr()
    assert len(rooms) == 2 and copied == [(second.data_ptr(), rooms[1] + 64, 64)]


@pytest.mark.slow
def test_a_graph_that_is_new_while_somebody_captures_is_not_built(built, monkeypatch):
    run, x = compiled(nn.ReLU()), torch.randn(3)
    monkeypatch.setattr(torch_compile, "is_capturing", lambda _: True)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="once before"):
        close(leaves(run(x)), torch.relu(x))
    assert not built
    monkeypatch.setattr(torch_compile, "is_capturing", lambda _: False)
    with torch.no_grad():
        close(leaves(run(x)), torch.relu(x))
    assert len(built) == 1


def test_arrays_are_refused_while_somebody_captures(monkeypatch):
    """The host would wait for the device, which ends a capture, and PyTorch's random numbers."""
    x = relay.var("x", shape=(3,))
    net = Compiled(relay.build(relay.Function([x], x + x), "llvm", verify=False))
    monkeypatch.setattr(compiled_network, "is_capturing", lambda _: True)
    assert list(net(np.ones(3, "float32"))) == [2, 2, 2]  # a CPU is no part of it
    net.device = SimpleNamespace(kind="cuda")
    for call in (lambda: net(np.ones(3, "float32")), net.state, net.reset, net.time):
        with pytest.raises(DeviceError, match="within torch.cuda.graph it takes tensors"):
            call()


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("spectrum", ["given", "returned", "both"])
def test_complex_numbers_at_the_ends_take_out_what_touches_them(built, spectrum):
    def halves(x: Any) -> Any:
        if spectrum == "returned":
            return torch.fft.rfft(torch.tanh(x) * 2)
        made = x * 2
        return (torch.tanh(made.real) * 2, made) if spectrum == "both" else torch.tanh(made.real)

    kind = torch.float32 if spectrum == "returned" else torch.complex64
    run, x = compiled(halves), torch.randn(4, 8, dtype=kind)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="complex"):
        torch.testing.assert_close(run(x), halves(x))
    assert len(built) == 1


@pytest.mark.slow
def test_a_check_of_matrices_is_left_out(built):
    run, x = compiled(lambda x: torch.linalg.inv(x) * 2), torch.eye(3) * 4
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        close(leaves(run(x)), torch.linalg.inv(x) * 2)
    assert len(built) == 1


def test_outputs_are_on_the_device_where_pytorch_has_them():
    run = compiled(lambda x: (x + 1, torch.empty(3, device="meta")))
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="is on meta"):
        here, there = run(torch.ones(3))
    assert here.device.type == "cpu" and there.device.type == "meta"


@pytest.mark.slow
def test_autocast_inside_a_graph_counts(built):
    def mixed(x: Any) -> Any:
        with torch.autocast("cpu", torch.bfloat16):
            y = x @ x
        return y, y.float(), y.float() + x @ x

    run, x = compiled(mixed), torch.randn(4, 4)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        torch.testing.assert_close(run(x), mixed(x), rtol=2e-2, atol=2e-2)
    assert len(built) == 1
