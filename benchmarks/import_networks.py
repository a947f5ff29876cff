"""Networks of torchvision, timm and transformers, exported to ONNX and taken in.

In: names of networks; random weights, nothing is downloaded.  Out: a table: what was exported both
ways (PyTorch's exporter of today and the older one), imported, built untuned for the CPU, and how
the results compare with onnxruntime's.

python benchmarks/import_networks.py [WORD...] [--exporter new old] [--no-build] [--json FILE]
    [--models FOLDER] [--preload MODULE]

Each network is tried in a process of its own.  Needs torch, torchvision, timm, transformers,
onnxscript, onnxruntime.
"""

from __future__ import annotations

import argparse
import importlib
import json
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

LIMIT = 900  # seconds for one network


@dataclass(frozen=True)
class Network:
    """make: gives the module and its example inputs."""

    name: str
    make: Callable[[], tuple[Any, tuple[Any, ...]]]


@dataclass(frozen=True)
class Outcome:
    """
    stage: the last that was reached: "export", "import", "build", "right" or "wrong"
    why:   what stopped it, empty if nothing did
    """

    name: str
    exporter: str
    stage: str
    why: str = ""
    seconds: float = 0.0


def _image(size: int, frames: int = 0) -> Any:
    import torch

    torch.manual_seed(0)
    return torch.randn(*((1, 3, frames, size, size) if frames else (1, 3, size, size)))


def _torchvision(name: str, size: int = 64, frames: int = 0, **options: Any) -> Network:
    def make() -> tuple[Any, tuple[Any, ...]]:
        from torchvision import models

        net = models.get_model(name, weights=None, **options)
        return net, (_image(size, frames),)

    return Network(f"torchvision/{name}", make)


def _timm(name: str, size: int = 64, **options: Any) -> Network:
    def make() -> tuple[Any, tuple[Any, ...]]:
        import timm

        return timm.create_model(name, pretrained=False, **options), (_image(size),)

    return Network(f"timm/{name}", make)


SMALL = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
         "intermediate_size": 128, "vocab_size": 100, "max_position_embeddings": 64}  # fmt: skip


def _transformers(name: str, config: str, vision: int = 0, **options: Any) -> Network:
    """A small one: `options` of its configuration."""

    def make() -> tuple[Any, tuple[Any, ...]]:
        import torch
        import transformers

        settings = getattr(transformers, config)(**options)
        net = transformers.AutoModel.from_config(settings)
        net.config.return_dict, net.config.use_cache = False, False
        if vision:
            return net, (_image(vision),)
        return net, (torch.arange(16).reshape(1, 16) % 90,)

    return Network(f"transformers/{name}", make)


VISION = {"hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4,
          "intermediate_size": 128, "image_size": 32, "patch_size": 8}  # fmt: skip
NETWORKS = (
    _torchvision("alexnet"), _torchvision("vgg11"), _torchvision("vgg16_bn"),
    _torchvision("resnet18"), _torchvision("resnet50"), _torchvision("resnext50_32x4d"),
    _torchvision("wide_resnet50_2"), _torchvision("densenet121"), _torchvision("googlenet"),
    _torchvision("inception_v3", 96), _torchvision("squeezenet1_0"), _torchvision("squeezenet1_1"),
    _torchvision("mobilenet_v2"), _torchvision("mobilenet_v3_small"),
    _torchvision("mobilenet_v3_large"), _torchvision("mnasnet1_0"),
    _torchvision("shufflenet_v2_x1_0"), _torchvision("efficientnet_b0"),
    _torchvision("efficientnet_v2_s"), _torchvision("regnet_y_400mf"),
    _torchvision("regnet_x_400mf"), _torchvision("convnext_tiny"),
    _torchvision("vit_b_16", 64, image_size=64), _torchvision("swin_t"),
    _torchvision("swin_v2_t"), _torchvision("maxvit_t", 64, input_size=(64, 64)),
    _torchvision("fcn_resnet50", weights_backbone=None),
    _torchvision("deeplabv3_resnet50", weights_backbone=None),
    _torchvision("deeplabv3_mobilenet_v3_large", weights_backbone=None),
    _torchvision("lraspp_mobilenet_v3_large", weights_backbone=None),
    _torchvision("r3d_18", 32, 8), _torchvision("mc3_18", 32, 8),
    _torchvision("r2plus1d_18", 32, 8), _torchvision("s3d", 64, 16),
    _torchvision("swin3d_t", 32, 8),
    _timm("resnet18d"), _timm("efficientnet_lite0"), _timm("ghostnet_100"), _timm("mobilevit_xxs"),
    _timm("mixer_s32_224", img_size=64), _timm("deit_tiny_patch16_224", img_size=64),
    _timm("convnextv2_atto"), _timm("regnety_002"), _timm("res2net50_26w_4s"),
    _timm("tf_efficientnet_b0"), _timm("dla34"), _timm("hrnet_w18_small"),
    _timm("xcit_nano_12_p8_224"),
    _timm("poolformer_s12"), _timm("edgenext_xx_small"), _timm("pvt_v2_b0"),
    _timm("cspresnet50"),
    _transformers("bert", "BertConfig", **SMALL),
    _transformers("roberta", "RobertaConfig", **SMALL),
    _transformers("distilbert", "DistilBertConfig", dim=64, n_layers=2, n_heads=4, hidden_dim=128,
                  vocab_size=100, max_position_embeddings=64),
    _transformers("albert", "AlbertConfig", embedding_size=32, **SMALL),
    _transformers("electra", "ElectraConfig", embedding_size=32, **SMALL),
    _transformers("mpnet", "MPNetConfig", **SMALL),
    _transformers("deberta-v2", "DebertaV2Config", **SMALL),
    _transformers("gpt2", "GPT2Config", n_embd=64, n_layer=2, n_head=4, vocab_size=100,
                  n_positions=64),
    _transformers("opt", "OPTConfig", hidden_size=64, num_hidden_layers=2, num_attention_heads=4,
                  ffn_dim=128, vocab_size=100, max_position_embeddings=64, word_embed_proj_dim=64),
    _transformers("llama", "LlamaConfig", num_key_value_heads=2, **SMALL),
    _transformers("qwen2", "Qwen2Config", num_key_value_heads=2, **SMALL),
    _transformers("t5-encoder", "T5Config", d_model=64, d_kv=16, d_ff=128, num_layers=2,
                  num_heads=4, vocab_size=100, is_encoder_decoder=False),
    _transformers("vit", "ViTConfig", 32, **VISION),
    _transformers("deit", "DeiTConfig", 32, **VISION),
    _transformers("beit", "BeitConfig", 32, **VISION),
    _transformers("dinov2", "Dinov2Config", 32, **VISION),
    _transformers("convnext", "ConvNextConfig", 32, hidden_sizes=[16, 32, 48, 64],
                  depths=[1, 1, 1, 1]),
    _transformers("segformer", "SegformerConfig", 64, hidden_sizes=[16, 32, 40, 64],
                  depths=[1, 1, 1, 1]),
    _transformers("mobilevit", "MobileViTConfig", 64, image_size=64),
)  # fmt: skip


def export(network: Network, exporter: str, path: Path) -> None:
    import torch

    net, inputs = network.make()
    net.eval()
    with torch.no_grad():
        torch.onnx.export(net, inputs, str(path), dynamo=exporter == "new")


def attempt(network: Network, exporter: str, build: bool, models: Path | None) -> Outcome:
    """One network, one exporter; nothing is raised.

    models: a folder of what was exported before
    """
    began, stage = time.monotonic(), "export"
    try:
        with tempfile.TemporaryDirectory() as fresh:
            folder = (models or Path(fresh)) / network.name.replace("/", "-") / exporter
            path = folder / "net.onnx"
            if not path.is_file():
                folder.mkdir(parents=True, exist_ok=True)
                export(network, exporter, path)
            began, stage = time.monotonic(), "import"
            from tilewright import relay

            mod, params = relay.frontend.from_onnx(path)
            inputs = _inputs(mod, params)
            stage = "build"
            found = _built(mod, params, inputs) if build else _evaluated(mod, params, inputs)
            stage = "wrong"
            difference = _difference(path, inputs, found)
        stage = "wrong" if difference else "right"
        return Outcome(network.name, exporter, stage, difference, time.monotonic() - began)
    except Exception as error:
        text = f"{type(error).__name__}: {error}"
        return Outcome(network.name, exporter, stage, text, time.monotonic() - began)


def _inputs(mod: Any, params: dict[str, Any]) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    made = {}
    for p in mod["main"].params:
        if p.name_hint not in params:
            numbers = (
                rng.standard_normal(p.shape) if p.dtype.is_float else rng.integers(0, 90, p.shape)
            )
            made[p.name_hint] = np.asarray(numbers).astype(p.dtype)
    return made


def _evaluated(mod: Any, params: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    from tilewright import relay

    found = relay.evaluate(mod, {**params, **inputs})
    return list(found) if isinstance(found, tuple) else [found]


def _built(mod: Any, params: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    import tilewright
    from tilewright import relay
    from tilewright.contrib import graph_executor

    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def _difference(path: Path, inputs: dict[str, Any], found: list[Any]) -> str:
    """How the results differ from onnxruntime's; empty if only by rounding."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    session = onnxruntime.InferenceSession(path, options)
    wanted = session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()})
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        scale = max(float(np.abs(b).max(initial=0)), 1e-6) if b.dtype.kind == "f" else 1
        error = float(np.abs(a.astype("float64") - b).max(initial=0)) / scale
        if not error < 2e-3:
            return f"result {k} is off by {error:.1e} of its largest value"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only networks with one of these in their name")
    parser.add_argument("--exporter", nargs="+", default=["new", "old"], choices=["new", "old"])
    parser.add_argument("--no-build", action="store_true", help="evaluate with numpy instead")
    parser.add_argument("--json", type=Path, help="write the outcomes to this file")
    parser.add_argument("--models", type=Path, help="keep the exported files here, and use them")
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE",
                        help="import this first")  # fmt: skip
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        for name in options.preload:
            importlib.import_module(name)
        (network,) = (n for n in NETWORKS if n.name == options.words[0])
        outcome = attempt(network, options.exporter[0], not options.no_build, options.models)
        print("\n" + json.dumps(asdict(outcome)), flush=True)
        return 0
    chosen = [n for n in NETWORKS if not options.words or any(w in n.name for w in options.words)]
    outcomes = []
    for network in chosen:
        for exporter in options.exporter:
            outcomes.append(_in_a_process(network, exporter, options))
            o = outcomes[-1]
            why = " ".join(o.why.split())[:600]
            print(f"{o.name:42} {o.exporter:4} {o.stage:7} {o.seconds:5.0f} s  {why}", flush=True)
    for exporter in options.exporter:
        counts = Counter(o.stage for o in outcomes if o.exporter == exporter)
        listed = ", ".join(f"{n} {stage}" for stage, n in counts.most_common())
        print(f"{exporter}: {sum(counts.values())} networks: {listed}")
    if options.json:
        options.json.write_text(json.dumps([asdict(o) for o in outcomes], indent=1) + "\n")
    return 0


def _in_a_process(network: Network, exporter: str, options: argparse.Namespace) -> Outcome:
    command = [sys.executable, __file__, network.name, "--one", "--exporter", exporter]
    command += ["--no-build"] if options.no_build else []
    command += ["--models", str(options.models)] if options.models else []
    command += [word for name in options.preload for word in ("--preload", name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        return Outcome(**json.loads(done.stdout.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return Outcome(network.name, exporter, "hung", f"no result after {LIMIT} s")
    except (ValueError, IndexError):
        return Outcome(network.name, exporter, "crashed", done.stderr[-300:])


if __name__ == "__main__":
    sys.exit(main())
