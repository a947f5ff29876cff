"""Modules compiled by `torch.compile` inside CUDA graphs that the user captures.  Needs a GPU and a
PyTorch that uses it; `python -m pytest tests/device/test_captured_graphs.py`."""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import tilewright_tvm

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
nn = torch.nn

pytestmark = [
    pytest.mark.cuda, pytest.mark.slow,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="PyTorch finds no GPU"),
]  # fmt: skip


class Network(nn.Module):
    """Several kernels with values between them, and two outputs, one a part of the other."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(48, 96), nn.Linear(96, 48)
        self.norm = nn.LayerNorm(48)

    def forward(self, x: Any) -> tuple[Any, Any]:
        y = self.norm(x + self.two(torch.softmax(self.one(x), -1)))
        return y.sum(0), torch.tanh(y @ y.transpose(0, 1) / 48)


class Step(nn.Module):
    """Writes a row of a cache at a position that is in a tensor, as a decoder does."""

    def __init__(self) -> None:
        super().__init__()
        self.proj = nn.Linear(32, 32)
        self.register_buffer("cache", torch.zeros(16, 32))

    def forward(self, x: Any, at: Any) -> Any:
        self.cache.index_copy_(0, at, self.proj(x))
        return torch.softmax(x @ self.cache.transpose(0, 1), -1) @ self.cache


@pytest.fixture(autouse=True)
def fresh(monkeypatch: Any, tmp_path: Any) -> Iterator[None]:
    from tilewright.models.torch import compile as torch_compile
    from tilewright.models.torch import told

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)  # or PyTorch is not precise
    torch.manual_seed(0)
    torch._dynamo.reset()
    told._told.clear()
    torch_compile.register()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        yield
    torch.cuda.synchronize()


def compiled(module: Any, **options: Any) -> Any:
    return torch.compile(module, backend="tilewright", **options)


def captured(call: Callable[[], Any], **how: Any) -> tuple[Any, Any]:
    """(graph, what `call` returned in it)."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **how):
        made = call()
    return graph, made


def close(found: Any, wanted: Any) -> None:
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-4)


def network() -> tuple[Any, Any, Any]:
    module = Network().cuda().eval()
    x = torch.randn(24, 48, device="cuda")
    run = compiled(module)
    close(run(x), module(x))
    return module, run, x


def test_a_replay_computes_with_new_data() -> None:
    module, run, x = network()
    graph, made = captured(lambda: run(x))
    for _ in range(5):
        x.copy_(torch.randn_like(x))
        graph.replay()
        close(made, module(x))


def test_a_stream_that_was_used_before_may_be_captured() -> None:
    module, run, x = network()
    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):  # addresses come back, so a graph of its own is made
            run(x)
    torch.cuda.current_stream().wait_stream(stream)
    graph, made = captured(lambda: run(x), stream=stream)
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))


def test_calls_between_replays_disturb_nothing() -> None:
    module, run, x = network()
    graph, made = captured(lambda: run(x))
    other = torch.cuda.Stream()
    for k in range(20):
        x.copy_(torch.randn_like(x))
        torch.cuda.synchronize()
        y = torch.randn_like(x)
        other.wait_stream(torch.cuda.current_stream())
        graph.replay()
        with torch.cuda.stream(other if k % 2 else torch.cuda.current_stream()):
            found = run(y)
        torch.cuda.synchronize()
        close(made, module(x))
        close(found, module(y))


def test_two_graphs_have_memory_of_their_own() -> None:
    module, run, x = network()
    y = torch.randn_like(x)
    first, of_x = captured(lambda: run(x))
    second, of_y = captured(lambda: run(y))
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for _ in range(20):
        x.copy_(torch.randn_like(x))
        y.copy_(torch.randn_like(y))
        torch.cuda.synchronize()
        for stream, graph in zip(streams, (first, second), strict=True):
            with torch.cuda.stream(stream):
                graph.replay()
        torch.cuda.synchronize()
        close(of_x, module(x))
        close(of_y, module(y))


def test_two_calls_in_one_graph_on_two_of_its_streams() -> None:
    module, run, x = network()
    y, side = torch.randn_like(x), torch.cuda.Stream()

    def both() -> Any:
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            of_y = run(y)
        of_x = run(x)
        torch.cuda.current_stream().wait_stream(side)
        return of_x, of_y

    graph, (of_x, of_y) = captured(both)
    for _ in range(10):
        x.copy_(torch.randn_like(x))
        y.copy_(torch.randn_like(y))
        graph.replay()
        torch.cuda.synchronize()
        close(of_x, module(x))
        close(of_y, module(y))


def test_between_operators_of_pytorch_and_from_inputs_that_lie_anywhere() -> None:
    module, run, x = network()
    wide = torch.randn(48, 25, device="cuda")  # what is read is not dense
    flat = torch.randn(24 * 48 + 1, device="cuda")  # and not aligned

    def whole() -> Any:
        a, b = run(torch.relu(wide.t()[1:]) * 2)
        a = a + run(flat[1:].view(24, 48))[0]
        first, second = run((b @ x) / 24)
        return a + first, second.exp()

    def wanted() -> Any:
        a, b = module(torch.relu(wide.t()[1:]) * 2)
        a = a + module(flat[1:].view(24, 48))[0]
        first, second = module((b @ x) / 24)
        return a + first, second.exp()

    whole()
    graph, made = captured(whole)
    for _ in range(3):
        wide.copy_(torch.randn_like(wide))
        flat.copy_(torch.randn_like(flat))
        graph.replay()
        close(made, wanted())


def test_garbage_that_is_collected_meanwhile_does_not_end_a_capture() -> None:
    import tilewright

    module, run, x = network()
    litter = [tilewright_tvm.nd.array(x.cpu().numpy(), tilewright.cuda(0)) for _ in range(3)]

    def call() -> Any:
        litter.clear()
        gc.collect()
        return run(x)

    graph, made = captured(call)
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))


def test_a_graph_outlives_what_was_compiled() -> None:
    module, run, x = network()
    graph, made = captured(lambda: run(x))
    run = None
    torch._dynamo.reset()
    gc.collect()
    litter = [torch.full((1 << 20,), 7.0, device="cuda") for _ in range(8)]
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))
    assert litter


def test_a_step_that_writes_to_a_cache() -> None:
    module = Step().cuda().eval()
    twin = Step().cuda().eval()
    twin.load_state_dict(module.state_dict())
    run = compiled(module)
    x, at = torch.randn(1, 32, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
    close(run(x, at), twin(x, at))
    graph, made = captured(lambda: run(x, at))
    for position in range(1, 8):
        x.copy_(torch.randn_like(x))
        at.fill_(position)
        graph.replay()
        close(made, twin(x, at))
        close(module.cache, twin.cache)


@pytest.mark.parametrize("layer", [nn.LSTM, nn.GRU])
def test_a_recurrent_layer(layer: Any) -> None:
    module, x = layer(16, 24, batch_first=True).cuda().eval(), torch.randn(2, 5, 16, device="cuda")
    run = compiled(lambda x: module(x)[0] * 2)
    close(run(x), module(x)[0] * 2)
    graph, made = captured(lambda: run(x))
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x)[0] * 2)


def test_callables_that_pytorch_makes_graphs_of() -> None:
    module, run, x = network()
    made = torch.cuda.make_graphed_callables(lambda x: run(x), (x.clone(),))
    for _ in range(3):
        y = torch.randn_like(x)
        close(tuple(made(y)), module(y))


def test_the_mode_with_less_overhead_is_taken() -> None:
    module, _, x = network()
    run = compiled(module, mode="reduce-overhead")
    for _ in range(4):
        y = torch.randn_like(x)
        close(run(y), module(y))
    graph, made = captured(lambda: run(x))
    graph.replay()
    close(made, module(x))


def test_a_size_that_is_new_is_recorded_as_pytorch_runs_it() -> None:
    from tilewright.models.torch.compile import TilewrightWarning

    module, run, _ = network()
    x = torch.randn(26, 48, device="cuda")
    close(run(x[:25].clone()), module(x[:25]))  # from now on the first extent may vary
    module(x)
    with pytest.warns(TilewrightWarning, match="once before"):
        graph, made = captured(lambda: run(x))
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))
    close(run(x), module(x))


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
@pytest.mark.parametrize("frozen", [False, True])
def test_each_mode_of_capturing(mode: str, frozen: bool) -> None:
    module, _, x = network()
    run = compiled(lambda x: module(x), options={"frozen": frozen})
    run(x)
    graph, made = captured(lambda: run(x), capture_error_mode=mode)
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))


def test_a_part_of_what_pytorch_records_by_itself() -> None:
    module, run, x = network()
    part = torch._dynamo.disable(lambda x: run(x)[0])
    whole = torch.compile(lambda x: torch.relu(part(x * 2)) + 1, mode="reduce-overhead")
    for _ in range(4):
        torch.compiler.cudagraph_mark_step_begin()
        x.copy_(torch.randn_like(x))
        close(whole(x), torch.relu(module(x * 2)[0]) + 1)


def test_a_compiled_network_takes_tensors_and_refuses_arrays() -> None:
    import tilewright
    from tilewright.base.errors import DeviceError

    module = Network().eval()
    x = torch.randn(24, 48)
    run = tilewright.compile(tilewright.load(module, x), target="cuda")
    module, given, x = module.cuda(), x.numpy(), x.cuda()
    close(run(x), module(x))
    graph, made = captured(lambda: run(x))
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x))
    with pytest.raises(DeviceError, match="takes tensors of PyTorch on its device only"):
        captured(lambda: run(given))
    close(run(x), module(x))


def test_a_decoders_number_of_positions_is_that_of_the_capture() -> None:
    """It is a number of Python's, which a graph keeps; the cache and tensors go on."""
    module = Step().cuda().eval()

    def step(x: Any, at: Any, count: int) -> Any:
        return module(x, at) + count

    run = compiled(step)
    x, at = torch.randn(1, 32, device="cuda"), torch.zeros(1, dtype=torch.long, device="cuda")
    for count in (1, 2):
        close(run(x, at, count), module(x, at) + count)
    graph, made = captured(lambda: run(x, at, 5))
    x.copy_(torch.randn_like(x))
    graph.replay()
    close(made, module(x, at) + 5)
