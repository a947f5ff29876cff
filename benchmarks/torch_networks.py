"""Networks of torchvision, timm and transformers by name, and how long PyTorch takes for them.

In: a name.  Out: a module with random weights and its inputs; timers of eager PyTorch and of
torch.compile.  Nothing is downloaded.  Read next: `network.py`.
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

SHORT = {
    "mobilenet-v2": "torchvision/mobilenet_v2",
    "efficientnet-b0": "torchvision/efficientnet_b0",
    "densenet-121": "torchvision/densenet121",
    "inception-v3": "torchvision/inception_v3@299",
    "vit-b-16": "torchvision/vit_b_16",
    "bert-base-128": "transformers/bert@128",
}
IMAGE_SIZE, TOKENS = 224, 128
HOW_TO = (
    f"one of {', '.join(SHORT)}, or torchvision/NAME, timm/NAME (@SIZE: of images, default "
    f"{IMAGE_SIZE}), transformers/MODEL_TYPE (@TOKENS, default {TOKENS})"
)


@dataclass(frozen=True)
class Network:
    """module: in evaluation mode, on the CPU; inputs: one batch of one, on the CPU."""

    module: Any
    inputs: tuple[Any, ...]


@dataclass(frozen=True)
class Peer:
    """
    tf32:  whether products may round their factors
    mode:  of torch.compile, if any
    graph: on a GPU it runs in a CUDA graph made here (that of max-autotune is its own)
    last:  images and their weights lie with channels last
    """

    name: str
    tf32: bool = False
    mode: str = ""
    graph: bool = True
    last: bool = False

    def how(self, cuda: bool) -> str:
        way = f'torch.compile(mode="{self.mode}")' if self.mode else "eager"
        graph = ", CUDA graph" if cuda and self.graph else ""
        return way + graph + (", TF32" if cuda and self.tf32 else "") + ", NHWC" * self.last


PEERS = {
    peer.name: peer
    for peer in (
        Peer("eager"),
        Peer("eager-last", last=True),
        Peer("eager-tf32", tf32=True),
        Peer("compile", mode="max-autotune", graph=False),
        Peer("compile-tf32", tf32=True, mode="max-autotune", graph=False),
        Peer("compile-graph", mode="max-autotune-no-cudagraphs"),
        Peer("compile-graph-last", mode="max-autotune-no-cudagraphs", last=True),
        Peer("compile-graph-tf32", tf32=True, mode="max-autotune-no-cudagraphs"),
    )
}


def is_known(name: str) -> bool:
    return SHORT.get(name, name).split("/")[0] in _SOURCES


def load(name: str) -> Network:
    """The network of that name; the same name gives the same weights."""
    import torch

    source, _, rest = SHORT.get(name, name).partition("/")
    which, _, size = rest.partition("@")
    torch.manual_seed(0)
    module, inputs = _SOURCES[source](which, int(size) if size else None)
    with torch.no_grad():
        for weight in module.parameters():
            if not weight.any():  # zeros would hide what is computed before them
                weight.normal_(std=0.02)
    return Network(module.eval(), inputs)


def _torchvision(name: str, size: int | None) -> tuple[Any, tuple[Any, ...]]:
    import torchvision

    options = {"init_weights": True} if name in ("googlenet", "inception_v3") else {}
    return torchvision.models.get_model(name, weights=None, **options), _image(size or IMAGE_SIZE)


def _timm(name: str, size: int | None) -> tuple[Any, tuple[Any, ...]]:
    import timm

    return timm.create_model(name, pretrained=False), _image(size or IMAGE_SIZE)


def _transformers(kind: str, size: int | None) -> tuple[Any, tuple[Any, ...]]:
    """The configuration that the library gives a model of this type."""
    import torch
    import transformers

    config = transformers.AutoConfig.for_model(kind)
    config.return_dict = config.use_cache = False
    module = transformers.AutoModel.from_config(config)
    if module.main_input_name == "pixel_values":
        return module, _image(size or config.image_size)
    return module, (torch.randint(0, config.vocab_size, (1, size or TOKENS)),)


_SOURCES = {"torchvision": _torchvision, "timm": _timm, "transformers": _transformers}


def _image(size: int) -> tuple[Any, ...]:
    import torch

    return (torch.randn(1, 3, size, size),)


def tensors(result: Any) -> list[Any]:
    """The tensors that a module returned, in order."""
    from torch.utils import _pytree

    return [leaf for leaf in _pytree.tree_leaves(result) if hasattr(leaf, "detach")]


def expected(network: Network) -> list[np.ndarray]:
    """What eager PyTorch computes on the CPU in float64, or in float32 where it cannot."""
    import torch

    with torch.inference_mode():
        try:
            exact = copy.deepcopy(network.module).double()
            given = [x.double() if x.is_floating_point() else x for x in network.inputs]
            return [t.numpy() for t in tensors(exact(*given))]
        except RuntimeError:  # somewhere in it a type is written down
            return [t.numpy() for t in tensors(network.module(*network.inputs))]


def measure(
    network: Network, peer: Peer, cuda: bool, number: int, repeat: int, dtype: str = "float32"
) -> tuple[list[np.ndarray], list[float]]:
    """What the peer computes, and seconds of one run: `repeat` means of `number` runs in a row.

    dtype: of weights, images and all that is computed of them
    """
    import torch

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = peer.tf32
    torch.backends.cudnn.benchmark = True
    torch.compiler.reset()
    where, kind = "cuda" if cuda else "cpu", getattr(torch, dtype)
    module = copy.deepcopy(network.module).to(where, kind)
    given = [x.to(where, kind if x.is_floating_point() else None) for x in network.inputs]
    if peer.last:
        module, given = module.to(memory_format=torch.channels_last), [_last(x) for x in given]
    function = torch.compile(module, mode=peer.mode) if peer.mode else module
    with torch.no_grad():
        for _ in range(4):  # the first calls compile, and record a graph
            found = function(*given)
        run = partial(function, *given)
        if cuda and peer.graph:
            graph, found = _captured(run)
            run = graph.replay
            run()
        seconds = _timed(run, torch.cuda.synchronize if cuda else _nothing, number, repeat)
        return [t.float().cpu().numpy() for t in tensors(found)], seconds


def _last(x: Any) -> Any:
    import torch

    return x.to(memory_format=torch.channels_last) if x.dim() == 4 else x


def _nothing() -> None: ...


def _captured(run: Callable[[], Any]) -> tuple[Any, Any]:
    """The CUDA graph of one run, and its results."""
    import torch

    stream = torch.cuda.Stream()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        run()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        found = run()
    return graph, found


def _timed(
    run: Callable[[], Any], wait: Callable[[], None], number: int, repeat: int
) -> list[float]:
    wait()
    found = []
    for _ in range(repeat):
        began = time.perf_counter()
        for _ in range(number):
            run()
        wait()
        found.append((time.perf_counter() - began) / number)
    return found
