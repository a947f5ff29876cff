"""Networks of torchvision, timm and transformers, exported and taken in, against their references.

In: names of networks; random weights, nothing is downloaded.  Out: a table, and an entry in
`results/import_networks.json`: how far each came, exported both ways to ONNX (PyTorch's exporter of
today and the older one) or as a program of torch.export, imported, built untuned for the CPU, and
how the results compare with onnxruntime's, or PyTorch's where there is no ONNX file.

python benchmarks/import_networks.py [WORD...] [--exporter new old program] [--no-build]
    [--form plain basic static dynamic] [--models FOLDER] [--preload MODULE] [--record]
    [--missing] [--minutes N]

--form: the file as exported; as onnxruntime saves it after its basic optimisations; quantised by
onnxruntime with QDQ pairs; with dynamic quantisation.
Each network is tried in a process of its own.  Needs torch, torchvision, timm, transformers,
onnxscript, onnxruntime.  Read next: exported_networks.py.
"""

from __future__ import annotations

import argparse
import importlib
import json
import math
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import results_file
from exported_networks import NETWORKS, Network

LIMIT = 900  # seconds for one network
# In messages: colours, and folders of this machine.
NOISE = re.compile(r"\x1b\[\d*m|/(?:[\w.+-]+/)+(?=[\w.+-]+\.py\b)")
# Of the largest value of a result.  Rounding to 8 bits turns a last bit into a step of 1/255.
ERROR = {"plain": 2e-3, "basic": 2e-3, "static": 5e-2, "dynamic": 5e-2}


@dataclass(frozen=True)
class Outcome:
    """
    stage: the last that was reached: "export", "import", "build", "compare" where the reference
           itself fails, "right" or "wrong"; a process without a result "crashed" or "hung"
    why:   what stopped it, empty if nothing did
    """

    name: str
    exporter: str
    form: str
    stage: str
    why: str = ""


@dataclass
class Attempt:
    """One network, one exporter.

    stage:  what is being done
    folder: of exported files
    """

    network: Network
    exporter: str
    form: str
    build: bool
    folder: Path
    stage: str = "export"

    def run(self) -> Outcome:
        """Nothing is raised."""
        try:
            why = self._program() if self.exporter == "program" else self._file()
            self.stage = "wrong" if why else "right"
        except Exception as error:
            why = NOISE.sub("", f"{type(error).__name__}: {error}")
        return Outcome(self.network.name, self.exporter, self.form, self.stage, why)

    def _file(self) -> str:
        from tilewright_tvm import relay

        folder = self.folder / self.network.name.replace("/", "-") / self.exporter
        path = folder / "net.onnx"
        if not path.is_file():
            folder.mkdir(parents=True, exist_ok=True)
            export(self.network, self.exporter, path)
        path = as_form(path, self.form)
        self.stage = "import"
        mod, params = relay.frontend.from_onnx(path)
        inputs = _inputs(mod, params)
        found = self._results(mod, params, inputs)
        return _difference(found, _by_onnxruntime(path, inputs), ERROR[self.form])

    def _program(self) -> str:
        import torch

        from tilewright_tvm import relay

        net, given = self.network.make()
        net.eval()
        with torch.no_grad():
            program = torch.export.export(net, given)
            wanted = _tensors(net(*given))
        self.stage = "import"
        mod, params = relay.frontend.from_exported_program(program)
        names = [p.name_hint for p in mod["main"].params if p.name_hint not in params]
        arrays = [t.numpy() for t in given if t is not None]
        found = self._results(mod, params, dict(zip(names, arrays, strict=True)))
        return _difference(found, wanted, ERROR["plain"])

    def _results(self, mod: Any, params: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
        self.stage = "build"
        found = (_built if self.build else _evaluated)(mod, params, inputs)
        self.stage = "compare"
        return found


def export(network: Network, exporter: str, path: Path) -> None:
    import torch

    torch.backends.mha.set_fastpath_enabled(False)  # an operator that the older one does not know
    net, inputs = network.make()
    net.eval()
    with torch.no_grad():
        torch.onnx.export(net, inputs, str(path), dynamo=exporter == "new")


def as_form(path: Path, form: str) -> Path:
    """The file at `path`, or one made of it beside it."""
    made = path.with_name(f"{form}.onnx")
    if form == "plain":
        return path
    if made.is_file():
        return made
    if form == "basic":
        _session(path, made)
        return made
    import onnx
    from onnxruntime import quantization

    if form == "dynamic":
        quantization.quantize_dynamic(path, made)
        return made
    prepared = path.with_name("prepared.onnx")
    quantization.quant_pre_process(onnx.load(path), prepared, skip_symbolic_shape=True)
    quantization.quantize_static(prepared, made, _Calibration(prepared))
    return made


class _Calibration:
    """Two batches of random inputs, in the way onnxruntime.quantization reads them."""

    def __init__(self, path: Path) -> None:
        from tilewright_tvm import relay

        mod, params = relay.frontend.from_onnx(path)
        self.left = [_inputs(mod, params, seed) for seed in (0, 1)]

    def get_next(self) -> dict[str, Any] | None:
        return self.left.pop() if self.left else None


def _session(path: Path, saved: Path | None = None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_BASIC
    if saved is not None:
        options.optimized_model_filepath = str(saved)
    return onnxruntime.InferenceSession(path, options)


def _by_onnxruntime(path: Path, inputs: dict[str, Any]) -> list[Any]:
    session = _session(path)
    return list(session.run(None, {i.name: inputs[i.name] for i in session.get_inputs()}))


def _tensors(value: Any) -> list[Any]:
    """The tensors in what a module gives, as arrays."""
    import torch

    leaves = torch.utils._pytree.tree_leaves(value)
    return [t.detach().numpy() for t in leaves if isinstance(t, torch.Tensor)]


def _inputs(mod: Any, params: dict[str, Any], seed: int = 0) -> dict[str, Any]:
    """Random numbers and words; masks hide nothing."""
    rng = np.random.default_rng(seed)
    made = {}
    for p in mod["main"].params:
        if p.name_hint in params:
            continue
        shown = 1 if "mask" in p.name_hint else rng.integers(0, 90, p.shape)
        numbers = rng.standard_normal(p.shape) if p.dtype.is_float else shown
        made[p.name_hint] = np.broadcast_to(numbers, p.shape).astype(p.dtype)
    return made


def _evaluated(mod: Any, params: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    from tilewright_tvm import relay

    found = relay.evaluate(mod, {**params, **inputs})
    return list(found) if isinstance(found, tuple) else [found]


def _built(mod: Any, params: dict[str, Any], inputs: dict[str, Any]) -> list[Any]:
    import tilewright
    from tilewright_tvm import relay
    from tilewright_tvm.contrib import graph_executor

    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    for name, value in inputs.items():
        module.set_input(name, value)
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def _difference(found: list[Any], wanted: list[Any], most: float) -> str:
    """How the results differ, by more than `most` of the largest value; else empty."""
    for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
        if a.shape != b.shape or a.dtype != b.dtype:
            return f"result {k} is {a.dtype}{a.shape}, not {b.dtype}{b.shape}"
        scale = max(float(np.abs(b).max(initial=0)), 1e-6) if b.dtype.kind == "f" else 1
        error = float(np.abs(a.astype("float64") - b).max(initial=0)) / scale
        if not error < most:
            return f"result {k} is off by {error:.1e} of its largest value"
    return ""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("words", nargs="*", help="only networks with one of these in their name")
    parser.add_argument("--exporter", nargs="+", default=["new", "old"],
                        choices=["new", "old", "program"])  # fmt: skip
    parser.add_argument("--form", nargs="+", default=["plain"], choices=list(ERROR))
    parser.add_argument("--no-build", action="store_true", help="evaluate with numpy instead")
    parser.add_argument("--record", action="store_true", help="add the outcomes to the results")
    parser.add_argument("--models", type=Path, help="keep the exported files here, and use them")
    parser.add_argument("--missing", action="store_true", help="those without a recorded outcome")
    parser.add_argument("--minutes", type=float, default=math.inf,
                        help="begin no other after so many")  # fmt: skip
    parser.add_argument("--preload", action="append", default=[], metavar="MODULE",
                        help="import this first")  # fmt: skip
    parser.add_argument("--one", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print("\n" + json.dumps(asdict(_one(options))), flush=True)
        return 0
    outcomes: list[Outcome] = []
    until = time.monotonic() + 60 * options.minutes
    for network, exporter, form in _chosen(options):
        began = time.monotonic()
        if began > until:
            break
        outcomes.append(o := _in_a_process(network, exporter, form, options))
        seconds, why = time.monotonic() - began, " ".join(o.why.split())[:600]
        print(f"{o.name:42} {o.exporter:7} {o.form:7} {o.stage:7} {seconds:5.0f} s  {why}",
              flush=True)  # fmt: skip
    counts = Counter((o.exporter, o.form) for o in outcomes)
    right = Counter((o.exporter, o.form) for o in outcomes if o.stage == "right")
    for exporter, form in counts:
        print(f"{exporter}, {form}: {right[exporter, form]} of {counts[exporter, form]} right")
    if options.record:
        results_file.append(
            "import_networks", [asdict(o) for o in outcomes],
            by="relay.evaluate" if options.no_build else "relay.build", versions=_versions(),
        )  # fmt: skip
    return 0


def _chosen(options: argparse.Namespace) -> list[tuple[Network, str, str]]:
    """What is to be tried: networks, exporters, forms."""
    recorded = results_file.RESULTS / "import_networks.json"
    known = set()
    if options.missing and recorded.is_file():
        rows = [r for entry in json.loads(recorded.read_text()) for r in entry["rows"]]
        known = {(r["name"], r["exporter"], r.get("form", "plain")) for r in rows}
    return [
        (network, exporter, form)
        for network in NETWORKS
        if not options.words or any(w in network.name for w in options.words)
        for exporter in options.exporter
        for form in (options.form if exporter != "program" else ["plain"])
        if (network.name, exporter, form) not in known
    ]


def _one(options: argparse.Namespace) -> Outcome:
    for name in options.preload:
        importlib.import_module(name)
    (network,) = (n for n in NETWORKS if n.name == options.words[0])
    with tempfile.TemporaryDirectory() as fresh:
        folder = options.models or Path(fresh)
        return Attempt(
            network, options.exporter[0], options.form[0], not options.no_build, folder
        ).run()


def _in_a_process(
    network: Network, exporter: str, form: str, options: argparse.Namespace
) -> Outcome:
    command = [sys.executable, __file__, network.name, "--one", "--exporter", exporter]
    command += ["--form", form]
    command += ["--no-build"] if options.no_build else []
    command += ["--models", str(options.models)] if options.models else []
    command += [word for name in options.preload for word in ("--preload", name)]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT)
        return Outcome(**json.loads(done.stdout.strip().splitlines()[-1]))
    except subprocess.TimeoutExpired:
        return Outcome(network.name, exporter, form, "hung", f"no result after {LIMIT} s")
    except (ValueError, IndexError):
        return Outcome(network.name, exporter, form, "crashed", done.stderr[-300:])


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    packages = ("torch", "torchvision", "timm", "transformers", "onnx", "onnxruntime")
    return {name: version(name) for name in packages}


if __name__ == "__main__":
    sys.exit(main())
