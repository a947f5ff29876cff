"""Modules of PyTorch, compiled by `torch.compile`, against PyTorch itself.  Skipped without it."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import warnings
import weakref
from typing import Any

import numpy as np
import pytest

from models import torch_compiled
from models.torch_compiled import compiled
from models.torch_networks import NETWORKS, VIEWS, Memory, close, leaves, network, nn, torch
from tilewright.base.errors import TilewrightError
from tilewright.models.torch import compile as torch_compile
from tilewright.models.torch.weights import unchanged
from tilewright.network.build import build

fresh = torch_compiled.fresh  # a fixture


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("name", NETWORKS)
def test_a_compiled_module_computes_the_same(name):
    module, x = network(name)
    run = compiled(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        close(leaves(run(x)), module(x))
        again = torch.randn_like(x)
        first, second = run(again), run(x)
        close(leaves(first), module(again))  # outputs are the caller's: the next call keeps them
        close(leaves(second), module(x))


@pytest.mark.slow
def test_other_shapes_are_compiled_too():
    module, _ = network("block")
    run = compiled(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for batch in (1, 2, 3):
            x = torch.randn(batch, 3, 8, 8)
            close(leaves(run(x)), module(x))


@pytest.mark.slow
def test_inputs_that_are_strided_or_not_aligned_are_copied():
    module, x = network("block")
    run = compiled(module)
    with torch.no_grad():
        close(leaves(run(x.permute(0, 1, 3, 2).contiguous().permute(0, 1, 3, 2))), module(x))
        buffer = torch.empty(x.numel() + 1)
        buffer[1:] = x.reshape(-1)
        close(leaves(run(buffer[1:].view(x.shape))), module(x))


SKIPPED = getattr(torch.compiler, "skip_guard_on_inbuilt_nn_modules_unsafe", None)


@pytest.mark.slow
@pytest.mark.parametrize("options", [{}, {"guard_filter_fn": SKIPPED}] if SKIPPED else [{}])
def test_changed_weights_count(options):
    module = nn.Linear(4, 4).eval()
    run, x = compiled(module, **options), torch.randn(2, 4)
    with torch.no_grad():
        run(x)
        module.bias.add_(1.0)
        with pytest.warns(torch_compile.TilewrightWarning, match="weights have changed"):
            found = run(x)
        close(leaves(found), module(x))
        module.weight.data = torch.randn(4, 4)
        close(leaves(run(x)), module(x))
        if not options:  # else the user said that modules stay as they are
            module.weight = nn.Parameter(torch.randn(4, 4))
            close(leaves(run(x)), module(x))


@pytest.mark.slow
def test_calls_pass_no_weights_and_guards_tell_modules_apart(monkeypatch):
    passed = []
    call = torch_compile._Graph.__call__
    monkeypatch.setattr(
        torch_compile._Graph, "__call__",
        lambda self, *args: passed.append(len(args)) or call(self, *args),
    )  # fmt: skip
    one, two, x = nn.Linear(4, 4).eval(), nn.Linear(4, 4).eval(), torch.randn(2, 4)

    @torch.compile(backend="tilewright", options={"frozen": True})
    def run(module: Any, x: Any) -> Any:
        return module(x)

    with torch.no_grad():
        for module in (one, two, one):
            close(leaves(run(module, x)), module(x))
        one.weight = nn.Parameter(torch.randn(4, 4))
        close(leaves(run(one, x)), one(x))
    assert set(passed) == {1}


@pytest.mark.slow
def test_weights_that_stay_inputs_are_watched_too(monkeypatch):
    monkeypatch.setattr(torch_compile, "bind", lambda *_: None)  # as where it can do nothing
    module, x = nn.Linear(4, 4).eval(), torch.randn(2, 4)
    graph = torch_compile._Graph

    def made(torch: Any, gm: Any, options: Any) -> Any:
        found = graph(torch, gm, options)
        assert len(found.static) == 2
        return found

    monkeypatch.setattr(torch_compile, "_Graph", made)
    run = compiled(module)
    with torch.no_grad():
        close(leaves(run(x)), module(x))
        module.bias.add_(1.0)
        close(leaves(run(x)), module(x))
        module.weight = nn.Parameter(torch.randn(4, 4))
        close(leaves(run(x)), module(x))


def test_new_weights_do_not_get_the_addresses_of_old_ones():
    memory = np.ones((4, 4), "float32")
    freed = weakref.ref(memory)
    weight = nn.Parameter(torch.from_numpy(memory))
    same = unchanged(torch, [weight])
    assert same([weight])
    del memory
    weight.data = torch.ones(4, 4)
    assert not same([weight]) and freed() is not None
    del same
    assert freed() is None


@pytest.mark.slow
@pytest.mark.parametrize("as_cuda", [False, True])
def test_weights_that_pytorch_made_part_of_the_graph_are_watched(monkeypatch, as_cuda):
    def at_once(tensors: list[Any], addresses: list[int], places: list[int]) -> bool:
        return all(tensors[k].data_ptr() == addresses[k] for k in places)

    if as_cuda:  # where PyTorch can tell all addresses at once
        monkeypatch.setattr(torch._C, "_tensors_data_ptrs_at_indices_equal", at_once, raising=False)
    module = nn.Linear(4, 4).eval()
    run, x = compiled(module), torch.randn(2, 4)
    with torch.no_grad(), torch._dynamo.config.patch(prepare_freezing=True):
        close(leaves(run(x)), module(x))
        module.bias.add_(1.0)
        close(leaves(run(x)), module(x))
        module.weight.data = torch.randn(4, 4)
        close(leaves(run(x)), module(x))


class Written(nn.Module):
    """Writes to a buffer, to an input, and to the statistics of a layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("cache", torch.zeros(3, 4))

    def forward(self, x: Any, at: Any) -> Any:
        x.mul_(2)
        self.cache.index_copy_(0, at, x[:1])
        return self.norm(x) + self.cache.sum(0)


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("inference", [False, True])
def test_what_a_graph_writes_to_is_written_to(inference):
    module = Written().train()
    twin = copy.deepcopy(module)
    run = compiled(module)
    with (torch.inference_mode if inference else torch.no_grad)(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for k in range(3):
            given = torch.randn(5, 4)
            mine, its, at = given.clone(), given.clone(), torch.tensor([k])
            close(leaves(run(mine, at)), twin(its, at))
            assert torch.equal(mine, its)
            for name, value in twin.state_dict().items():
                torch.testing.assert_close(module.state_dict()[name], value)


@pytest.mark.slow
def test_new_weights_count_before_a_graph_writes():
    module = Written().train()
    run, x, at = compiled(module), torch.randn(5, 4), torch.tensor([1])
    with torch.no_grad():
        run(x.clone(), at)
        module.norm.weight.add_(1)
        twin = copy.deepcopy(module)
        with pytest.warns(torch_compile.TilewrightWarning, match="weights have changed"):
            close(leaves(run(x.clone(), at)), twin(x.clone(), at))
        torch.testing.assert_close(module.state_dict(), twin.state_dict())


@pytest.mark.slow
def test_a_graph_writes_to_memory_that_another_input_shares_as_pytorch_does():
    def shifted(a: Any, b: Any) -> Any:
        a.add_(1)
        return a * b

    run, whole = compiled(shifted), torch.arange(5.0)
    with torch.no_grad():
        close(leaves(run(torch.ones(4), torch.ones(4))), 2 * torch.ones(4))
        twin = whole.clone()
        close(leaves(run(whole[:4], whole[1:])), shifted(twin[:4], twin[1:]))
        assert torch.equal(whole, twin)


@pytest.mark.slow
def test_outputs_lie_where_pytorch_has_them():
    def parts(x: Any, y: Any) -> tuple[Any, ...]:
        made = y + 1
        x.mul_(2)
        return x, x[1:].t(), made, made[:, 1], made * 2, y.view(-1)

    run = compiled(parts)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for _ in range(2):
            wide = torch.randn(4, 5)
            mine, its, y = wide.clone()[:3, 1:], wide.clone()[:3, 1:], torch.randn(2, 3)
            found, wanted = run(mine, y), parts(its, y)
            for k in (0, 2, 5):  # what is written to one shows in the others
                found[k].add_(1)
                wanted[k].add_(1)
                close(leaves(found), wanted)
                y.zero_()
            assert found[0] is mine and torch.equal(mine, its)


@pytest.mark.slow
def test_outputs_that_nothing_computes_are_tensors_of_their_own():
    def made(x: Any) -> tuple[Any, ...]:
        return x + 1, x * 1, torch.arange(4.0) * 2, torch.arange(4.0) * 2, 1 + x, x.clone() + 0

    for function in (made, lambda x: (x * 1, x * 1)):
        run, x = compiled(function), torch.randn(3)
        with torch.no_grad(), warnings.catch_warnings():
            warnings.simplefilter("error", torch_compile.TilewrightWarning)
            for _ in range(2):
                found, wanted = run(x), function(x)
                for k in range(len(found)):
                    close(leaves(found), wanted)
                    found[k].add_(1)
                    wanted[k].add_(1)


@pytest.mark.slow
def test_strides_of_inputs_decide_what_views_of_them_are():
    def turned(x: Any) -> tuple[Any, Any]:
        return x.t(), x + 1

    whole = torch.arange(20.0).reshape(4, 5)
    with torch.no_grad():
        for x in (whole[:3, :3], whole[1:, ::2], whole[:3, :3].clone(), whole[:3, :3].t()):
            close(leaves(compiled(turned)(x)), turned(x))
            torch._dynamo.reset()  # so that it comes from disk where it may


def test_views_of_inputs_that_share_memory_run_in_pytorch():
    run, x = compiled(lambda a, b: (a[1:], a + b)), torch.ones(4)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="share memory"):
        found, _ = run(x[:3], x[1:])
        found.zero_()
    assert x.tolist() == [1, 0, 0, 1]


@pytest.mark.slow
def test_outputs_that_overlap_run_in_pytorch():
    def windows(x: Any) -> tuple[Any, Any]:
        made = torch.cat([x, x])
        return made[:3], made[1:]

    run, x = compiled(windows), torch.ones(4)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="overlap"):
        first, second = run(x)
        first.zero_()
        assert second[:2].tolist() == [0, 0]
        halves = compiled(lambda x: (x + 1).chunk(2))(x)
        close(leaves(halves), (x + 1).chunk(2))


@pytest.mark.slow
def test_extents_that_are_marked_dynamic_are_compiled_for_each_size():
    module, _ = network("block")
    run = compiled(module)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for batch in (2, 3):
            x = torch.randn(batch, *network("block")[1].shape[1:])
            torch._dynamo.mark_dynamic(x, 0)
            close(leaves(run(x)), module(x))


@pytest.mark.slow
def test_floats_that_are_dynamic_are_compiled_for_each_value():
    class Scaled(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.BatchNorm1d(4)

        def forward(self, x: Any, by: float) -> Any:
            return self.norm(x) * by

    module = Scaled().eval()
    run = torch.compile(module, backend="tilewright", dynamic=True)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error", torch_compile.TilewrightWarning)
        for by in (0.5, 1.5):
            x = torch.randn(3, 4)
            close(leaves(run(x, by)), module(x, by))


@pytest.mark.slow
def test_autocast_around_the_call_counts():
    module, x = nn.Linear(4, 4), torch.randn(2, 4)
    run = compiled(module)
    with torch.no_grad():
        close(leaves(run(x)), module(x))
        with torch.autocast("cpu", torch.bfloat16):
            found, wanted = run(x), module(x)
    assert found.dtype == wanted.dtype == torch.bfloat16
    torch.testing.assert_close(found, wanted, rtol=2e-2, atol=2e-2)


@pytest.mark.slow
def test_branches_run_in_pytorch_with_one_warning():
    def branched(x: Any) -> Any:
        return torch.cond(x.sum() > 0, lambda v: v.sin(), lambda v: v.cos(), (x,))

    run = compiled(branched)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="branch"):
        close(leaves(run(torch.ones(3))), torch.ones(3).sin())
        close(leaves(run(-torch.ones(3))), torch.ones(3).cos())


@pytest.mark.slow
@pytest.mark.parametrize("view", VIEWS)
def test_what_reads_the_memory_of_a_view_runs_in_pytorch(view):
    module, x = Memory(view), torch.arange(12.0).reshape(3, 4)
    with pytest.warns(torch_compile.TilewrightWarning, match="a graph runs in PyTorch"):
        made = compiled(module)(x)
    assert torch.equal(made, module(x))


def test_gradients_stay_pytorchs_with_one_warning():
    module = nn.Linear(4, 4)
    run, x = compiled(module), torch.randn(2, 4)
    with pytest.warns(torch_compile.TilewrightWarning, match="no_grad") as told:
        run(x).sum().backward()
        run(torch.randn(3, 4)).sum().backward()
    assert module.weight.grad is not None
    assert sum("no_grad" in str(w.message) for w in told) == 1


@pytest.mark.slow
def test_what_cannot_be_imported_runs_in_pytorch_with_one_warning():
    class Strange(nn.Module):
        def forward(self, x: Any) -> Any:
            return torch.special.bessel_j0(x), torch.linalg.det(x)

    run, x = compiled(Strange()), torch.randn(3, 3)
    with pytest.warns(torch_compile.TilewrightWarning, match="bessel") as told:
        close(leaves(run(x)), Strange()(x))
        run(x)
    assert len(told) == 1


@pytest.mark.slow
def test_what_surrounds_such_operators_is_compiled(monkeypatch):
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(3, 3)
            self.register_buffer("shift", torch.ones(3))

        def forward(self, x: Any) -> Any:
            y = torch.special.bessel_j0(torch.relu(self.fc(x)))
            return torch.tanh(y + self.shift), 4

    built = []
    monkeypatch.setattr(torch_compile, "build", lambda *a, **k: built.append(a) or build(*a, **k))
    module, x = Mixed().eval(), torch.randn(3, 3)
    run = compiled(module)
    with torch.no_grad(), pytest.warns(torch_compile.TilewrightWarning, match="bessel"):
        found, number = run(x)
        close(leaves(found), module(x)[0])
        close(leaves(run(x + 1)[0]), module(x + 1)[0])
    assert number == 4 and len(built) == 2


@pytest.mark.slow
def test_graph_breaks_are_told_once():
    class Broken(nn.Module):
        def forward(self, x: Any) -> Any:
            y = torch.relu(x) + 1
            torch._dynamo.graph_break()
            return y * 2

    run, x = compiled(Broken()), torch.randn(3, 3)
    with pytest.warns(torch_compile.TilewrightWarning, match="in parts") as told:
        close(leaves(run(x)), Broken()(x))
    assert len(told) == 1


@pytest.mark.slow
def test_a_graph_that_was_built_before_comes_from_disk(monkeypatch):
    module, x = network("block")
    with torch.no_grad():
        close(leaves(compiled(module)(x)), module(x))
        torch._dynamo.reset()

        def fail(*_: Any, **__: Any) -> Any:
            raise AssertionError("it is built again")

        monkeypatch.setattr(torch_compile, "build", fail)
        close(leaves(compiled(module)(x)), module(x))
        module.head.bias.add_(1.0)  # another network
        torch._dynamo.reset()
        with pytest.raises(Exception, match="built again"):
            compiled(module)(x)


@pytest.mark.slow
def test_a_graph_that_was_built_with_a_log_comes_from_disk(monkeypatch, tmp_path):
    module, x = network("block")
    with torch.no_grad():
        compiled(module, log=str(tmp_path / "log.jsonl"))(x)
        torch._dynamo.reset()
        monkeypatch.setattr(torch_compile, "build", None)
        close(leaves(compiled(module, log=str(tmp_path / "log.jsonl"))(x)), module(x))


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({"scheduler": None, "trials": 20000, "opt_level": 3}, None),
        ({"scheduler": "default"}, None),
        ({"scheduler": "meta_schedule", "trials": 64, "log": "x"}, (64, None)),
        ({"scheduler": "auto_scheduler", "tune_minutes": 2, "log": "x"}, (None, 120)),
        ({"trials": 7, "log": "x"}, (7, None)),
        ({"scheduler": "auto_scheduler"}, "without an end.*trials"),
        ({"scheduler": "metaschedule", "trials": 3}, "no scheduler 'metaschedule'.*one search"),
        ({"scheduler": "meta_schedule", "trials": 3}, "trials needs a log"),
        ({"opt_level": 2}, "opt_level 3. Leave it out"),
    ],
)
def test_options_of_the_backend_tvm_are_understood(given, wanted):
    from tilewright.models.torch.compile import Options

    if isinstance(wanted, str):
        with pytest.raises(TilewrightError, match=wanted):
            Options.of(given)
        return
    budget = Options.of(given).budget
    assert (budget and (budget.trials, budget.seconds)) == wanted


@pytest.mark.slow
def test_a_script_for_tvm_gets_ours_by_the_name_tvm(tmp_path):
    script = tmp_path / "script.py"
    script.write_text(
        "import torch\n"
        "m, x = torch.nn.Linear(4, 3).eval(), torch.randn(2, 4)\n"
        "options = {'scheduler': None, 'trials': 20000, 'opt_level': 3}\n"
        "with torch.no_grad():\n"
        "    y = torch.compile(m, backend='tvm', options=options)(x)\n"
        "    print(torch.allclose(y, m(x), atol=1e-5), 'tvm' in torch._dynamo.list_backends())\n"
    )
    done = subprocess.run(
        [sys.executable, "-m", "tilewright_tvm", str(script)],
        capture_output=True, text=True, timeout=300,
        env=os.environ | {"TILEWRIGHT_CACHE": str(tmp_path / "cache")},
    )  # fmt: skip
    assert done.stdout.split() == ["True", "True"], done.stderr
    assert "runs in PyTorch" not in done.stderr


def test_options_are_checked():
    with pytest.raises(Exception, match="no option .*speed"):
        compiled(nn.ReLU(), speed=1)(torch.randn(2))
    with pytest.raises(Exception, match="needs a log"):
        compiled(nn.ReLU(), tune_minutes=1)(torch.randn(2))
    for wrong, words in (
        ({"precision": "fp8"}, "no precision 'fp8'"), ({"precision": 5}, "no precision 5"),
        ({"target": "gpu"}, "unknown kind 'gpu'"), ({"weights": "int3"}, "no such weights"),
        ({"target": "llvm", "precision": "tf32"}, "llvm has no instruction for it"),
    ):  # fmt: skip
        with pytest.raises(Exception, match=words):
            compiled(nn.ReLU(), **wrong)(torch.randn(2))


@pytest.mark.slow
def test_tuning_writes_the_log(tmp_path):
    log = tmp_path / "model.jsonl"
    module, x = nn.Linear(16, 16).eval(), torch.randn(2, 16)
    with torch.no_grad():
        run = compiled(module, log=str(log), tune_minutes=0.05)
        close(leaves(run(x)), module(x))
    assert log.stat().st_size
