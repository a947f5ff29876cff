"""What a call through `torch.compile` costs the host: our backend, one that does nothing, and our
library called directly; with PyTorch's guards, and without those on modules.

In: nothing; the device is cuda where PyTorch has one, else the CPU.  Out: a table; with --keep
`results/torch_compile_overhead.json`.  "host": until the call returns; else until the device is
done.  Needs torch and torchvision.

PYTHONPATH=src:benchmarks python benchmarks/bench_torch_compile.py [--preload MODULE] [--keep]
"""

from __future__ import annotations

import argparse
import copy
import importlib
import statistics
import time
from collections.abc import Callable
from typing import Any

import torch
from results_file import append, table

from tilewright.models.torch import compile as backend
from tilewright.runtime.device import Device, device
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor

WARM, CALLS = 20, 300


class Elementwise(torch.nn.Module):
    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.tanh(x) * y + x.exp()


def networks() -> list[tuple[str, torch.nn.Module, tuple[torch.Tensor, ...]]]:
    from torchvision import models

    image = torch.randn(1, 3, 224, 224)
    return [
        ("elementwise", Elementwise(), (torch.randn(64, 64), torch.randn(64, 64))),
        ("resnet18", models.resnet18(weights=None), (image,)),
        ("mobilenet_v2", models.mobilenet_v2(weights=None), (image,)),
    ]


def empty(gm: Any, args: Any) -> Callable[..., Any]:
    """A backend that computes once."""
    made = [x.clone() for x in gm(*args)]
    return lambda *_: made


def microseconds(call: Callable[[], Any], sync: Callable[[], Any]) -> tuple[float, float]:
    """Medians: until the call returns, and until what it started is done."""
    for _ in range(WARM):
        call()
        sync()
    host, whole = [], []
    for _ in range(CALLS):
        begin = time.perf_counter()
        call()
        host.append(time.perf_counter() - begin)
        sync()
        whole.append(time.perf_counter() - begin)
    return statistics.median(host) * 1e6, statistics.median(whole) * 1e6


def directly(module: torch.nn.Module, args: tuple[torch.Tensor, ...], dev: Device) -> Any:
    """The same network as a library of ours, its inputs set."""
    mod, params = relay.frontend.from_exported_program(torch.export.export(module, args))
    library = relay.build(mod, "llvm" if dev.kind == "cpu" else "cuda", params)
    made = graph_executor.GraphModule(library["default"](dev))
    names = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
    for name, value in zip(names, args, strict=True):
        made.set_input(name, value.numpy())
    return made


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--preload", metavar="MODULE", help="import this first")
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    options = parser.parse_args()
    if options.preload:
        importlib.import_module(options.preload)
    backend.register()
    torch.set_grad_enabled(False)
    cuda = torch.cuda.is_available()
    dev = device("cuda" if cuda else "cpu")
    sync = torch.cuda.synchronize if cuda else (lambda: None)
    ways: dict[str, dict[str, Any]] = {
        "empty backend": {"backend": empty},
        "ours": {"backend": "tilewright"},
        "ours, frozen": {"backend": "tilewright", "options": {"frozen": True}},
    }
    if unguarded := getattr(torch.compiler, "skip_guard_on_inbuilt_nn_modules_unsafe", None):
        ways["ours, modules unguarded"] = {
            "backend": "tilewright", "options": {"guard_filter_fn": unguarded}
        }  # fmt: skip
        ways["ours, frozen and unguarded"] = {
            "backend": "tilewright", "options": {"guard_filter_fn": unguarded, "frozen": True}
        }  # fmt: skip
    rows = []
    for name, module, args in networks():
        module.eval()
        row: dict[str, Any] = {"network": name}
        own = directly(module, args, dev)
        host, whole = microseconds(own.run, lambda: dev.sync())
        there = [x.to("cuda" if cuda else "cpu") for x in args]
        module.to(there[0].device)
        for label, how in ways.items():
            torch._dynamo.reset()
            compiled = torch.compile(module, **copy.deepcopy(how))  # which changes the options
            compiled(*there)
            spent = microseconds(lambda f=compiled, x=there: f(*x), sync)
            row |= {f"{label} host us": round(spent[0], 1), f"{label} us": round(spent[1], 1)}
        row |= {"direct host us": round(host, 1), "direct us": round(whole, 1)}
        rows.append(row)
        print(row, flush=True)
    print(table(rows))
    if options.keep:
        append("torch_compile_overhead", rows, dev.name)


if __name__ == "__main__":
    main()
