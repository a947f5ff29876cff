"""Decoders step by step: ours by torch.compile and by tilewright.load, PyTorch and engines that
serve models beside them in one run, on one model with random weights.

In: names of shapes, a type of weights.  Out: a table; with `--keep` rows in
`results/decode_DEVICE.json`, written after each, quick ones first, so that a run may be cut
anywhere (`--seconds` ends it).  Every engine goes on from the same prompt; what follows it is
compared with the model in float32.  Needs torch and transformers.

    python benchmarks/decode.py --shapes llama-1b --seconds 100
    python benchmarks/decode.py --shapes llama-8b --ours torch --peers eager --seconds 120
    python benchmarks/decode.py --shapes llama-1b --weights int4 --peers --prefill 0

"ms" is a step called as users call it, one behind the other; "graph ms" the same without the
host: in a CUDA graph that is captured here, or, of a library, its launches alone.
"""

from __future__ import annotations

import argparse
import copy
import inspect
import os
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import results_file
import serving
import torch
import transformers

import tilewright as tw
from tilewright.models.torch import compile as backend
from tilewright.network.build import build
from tilewright.runtime.device import device
from tilewright.runtime.network.graph_executor import GraphModule

_LLAMA = {"vocab_size": 128256, "num_attention_heads": 32, "num_key_value_heads": 8,
          "rope_parameters": {"rope_type": "default", "rope_theta": 5e5}}  # fmt: skip
SHAPES: dict[str, tuple[str, dict[str, Any]]] = {
    "tiny": ("llama", {
        "vocab_size": 256, "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2,
    }),
    "llama-1b": ("llama", _LLAMA | {
        "hidden_size": 2048, "intermediate_size": 8192, "num_hidden_layers": 16,
        "tie_word_embeddings": True,
    }),
    "llama-8b": ("llama", _LLAMA | {
        "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32,
        "tie_word_embeddings": False,
    }),
    "qwen3-1.7b": ("qwen3", {
        "vocab_size": 151936, "hidden_size": 2048, "intermediate_size": 6144,
        "num_hidden_layers": 28, "num_attention_heads": 16, "num_key_value_heads": 8,
        "head_dim": 128, "tie_word_embeddings": True,
    }),
    "gemma3-1b": ("gemma3_text", {
        "vocab_size": 262144, "hidden_size": 1152, "intermediate_size": 6912,
        "num_hidden_layers": 26, "num_attention_heads": 4, "num_key_value_heads": 1,
        "head_dim": 256, "query_pre_attn_scalar": 256, "sliding_window": 512,
    }),
}  # fmt: skip
OURS = ("torch", "decoder")
PEERS = {
    "eager": "", "inductor": "", "reduce-overhead": "",
    "vllm": "pip install vllm", "llama.cpp": "pip install llama-cpp-python, and name --gguf FILE",
}  # fmt: skip
NARROW = ("int8", "int4", "float8")
SHEET = {"H200": 4.8e12, "H100": 3.35e12, "A100": 2.04e12}  # bytes a second, as they are sold
BATCH = 200  # milliseconds that are timed at once
ROUNDINGS = 14  # of values on the way through a layer, one behind the other


@dataclass
class Case:
    """A model, a prompt, and what should follow it.

    next: the token behind the prompt; wanted: logits behind that, in float32; nbytes: of the
    weights that a step reads
    """

    name: str
    config: Any
    model: Any
    options: argparse.Namespace
    prompt: Any
    next: Any
    wanted: Any
    nbytes: int

    @property
    def bound(self) -> float:
        """How far logits may be off, by their size (Euclid's): each rounding of a value adds its
        own in squares, and a layer has so many."""
        layers = self.config.num_hidden_layers
        unit = float(torch.finfo(getattr(torch, self.options.dtype)).eps)
        return unit * (ROUNDINGS * layers + 2) ** 0.5

    def off(self, logits: Any) -> float:
        made = torch.as_tensor(logits).to(self.wanted).reshape(-1)
        return float((made - self.wanted).norm() / self.wanted.norm())

    def cache(self, length: int) -> Any:
        return transformers.StaticCache(config=self.config, max_cache_len=length)

    def arguments(self, cache: Any, begin: int, count: int) -> dict[str, Any]:
        """As this version of transformers wants them."""
        names = inspect.signature(self.model.base_model.forward).parameters
        if "cache" in names:
            return {"cache": cache}
        at = torch.arange(begin, begin + count, device=self.prompt.device)
        return {"past_key_values": cache, "cache_position": at}


@dataclass
class Report:
    """Rows of a run, printed and written as they come."""

    options: argparse.Namespace
    name: str
    rows: list[dict[str, Any]] = field(default_factory=list)
    began: float = field(default_factory=time.monotonic)
    turn: Any = field(default_factory=threading.Lock)

    def tell(self, text: str) -> None:
        print(f"[{time.monotonic() - self.began:5.1f}] {text}", flush=True)

    def keep(self, row: dict[str, Any]) -> None:
        with self.turn:
            self.tell(", ".join(f"{k} {v}" for k, v in row.items() if v not in ("", None)))
            again = bool(self.rows)
            self.rows.append(row)
            if self.options.keep:
                results_file.append(
                    f"decode_{self.options.device}", self.rows, self.name, again=again,
                    folder=self.options.folder, commit=self.options.commit,
                    torch=torch.__version__, transformers=transformers.__version__,
                    positions=self.options.positions, cache=self.options.cache,
                )  # fmt: skip

    def end(self) -> None:
        with self.turn:
            told = [with_ratios(row, self.rows) for row in self.rows]
            columns = list(dict.fromkeys(k for row in told for k in row))
            print(results_file.table([{k: row.get(k, "") for k in columns} for row in told]))


def with_ratios(row: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    """How many times as long as the best of ours of the same shape, what and weights this took."""
    same = [r for r in rows if all(r[k] == row[k] for k in ("shape", "what"))]
    ours = [best(r) for r in same if r["engine"].startswith("ours") and best(r)]
    ratio = round(best(row) / min(ours), 2) if ours and best(row) else ""
    return {**row, "over ours": "" if row["engine"].startswith("ours") else ratio}


def best(row: Mapping[str, Any]) -> float:
    return min((row[k] for k in ("ms", "graph ms") if row.get(k)), default=0.0)


# -- time ------------------------------------------------------------------------------------------


def synchronise() -> None:
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def milliseconds(step: Callable[[], Any], rewind: Callable[[], Any], room: int) -> float:
    """The median of five means, of as many steps as there is room for, or as take `BATCH`."""
    found = []
    count = max(min(room, 50), 1)
    for k in range(6):
        rewind()
        synchronise()
        began = time.perf_counter()
        for _ in range(count):
            step()
        synchronise()
        found.append((time.perf_counter() - began) / count * 1e3)
        if k == 0:  # of what is slow a few are enough
            count = max(min(count, int(BATCH / found[0])), 1)
    return round(statistics.median(found[1:]), 4)


def in_a_graph(step: Callable[[], Any], rewind: Callable[[], Any], room: int) -> float | None:
    """The same of the step in a CUDA graph; None where it cannot be captured."""
    if not torch.cuda.is_available():
        return None
    graph = torch.cuda.CUDAGraph()
    try:
        rewind()
        with torch.cuda.graph(graph):
            step()
    except RuntimeError:
        return None
    return milliseconds(graph.replay, rewind, room)


# -- the model -------------------------------------------------------------------------------------


def case_of(name: str, options: argparse.Namespace) -> Case:
    """A model with random weights, made where it runs."""
    kind, sizes = SHAPES[name]
    sizes = {"max_position_embeddings": 4096, **sizes}
    if options.layers:
        sizes["num_hidden_layers"] = min(options.layers, sizes["num_hidden_layers"])
    config = transformers.AutoConfig.for_model(kind, **sizes)
    config._attn_implementation = "sdpa"
    torch.manual_seed(0)
    with torch.device(options.device), in_type(getattr(torch, options.dtype)):
        model = transformers.AutoModelForCausalLM.from_config(config).eval()
    ids = torch.randint(3, min(config.vocab_size, 1000), (1, options.positions))
    prompt = ids.to(options.device)
    parameters = list({p.data_ptr(): p for p in model.parameters()}.values())
    nbytes = sum(p.numel() * p.element_size() for p in parameters)
    if not config.tie_word_embeddings:  # of whose table a step reads a row
        table = model.get_input_embeddings().weight
        nbytes -= table.numel() * table.element_size()
    made = Case(name, config, model, options, prompt, None, None, nbytes)
    wide = copy.deepcopy(model).float()
    cache = made.cache(options.cache)
    made.next = (
        wide(prompt, **made.arguments(cache, 0, options.positions)).logits[:, -1:].argmax(-1)
    )
    logits = wide(made.next, **made.arguments(cache, options.positions, 1)).logits
    made.wanted = logits[0, -1].double()
    return made


@contextmanager
def in_type(dtype: Any) -> Iterator[None]:
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def rewound(cache: Any, position: int) -> None:
    """A cache of transformers that counts for itself, at this position again."""
    for layer in cache.layers:
        if hasattr(layer, "cumulative_length"):
            layer.cumulative_length.fill_(position)
        if hasattr(layer, "cumulative_length_int"):
            layer.cumulative_length_int = position


# -- engines of PyTorch ----------------------------------------------------------------------------


def of_torch(case: Case, engine: str, run: Callable[..., Any], report: Report, graph: bool) -> None:
    """Rows of a function that is called as the model is.

    graph: whether it can be captured here
    """
    options, position = case.options, case.options.positions
    cache = case.cache(options.cache)
    case.model(case.prompt, **case.arguments(cache, 0, position))
    arguments = case.arguments(cache, position, 1)

    def step() -> Any:
        if engine == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        return run(case.next, **arguments).logits

    rewind, room = partial(rewound, cache, position), options.cache - position
    began = time.perf_counter()
    libraries: list[Any] = []
    with watched(libraries):
        logits = step()[0, -1].double()
        synchronise()
        spent = time.perf_counter() - began
        rewind()
        step()
        rewind()
        row = {"ms": milliseconds(step, rewind, room)}
        row["graph ms"] = in_a_graph(step, rewind, room) if graph else None
    library = libraries[0] if libraries else None
    keep_step(case, engine, row, logits, spent, library, report)
    if options.prefill:
        of_prompt(case, engine, run, report)


def of_prompt(case: Case, engine: str, run: Callable[..., Any], report: Report) -> None:
    count = case.options.prefill
    ids = torch.randint(3, min(case.config.vocab_size, 1000), (1, count)).to(case.prompt)
    cache = case.cache(count)
    case.model(ids[:, :1], **case.arguments(cache, 0, 1))  # which makes the cache
    arguments = case.arguments(cache, 0, count)

    def whole() -> Any:
        if engine == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        return run(ids, **arguments, logits_to_keep=1).logits

    rewind = partial(rewound, cache, 0)
    rewind()
    began = time.perf_counter()
    libraries: list[Any] = []
    with watched(libraries):
        whole()
        synchronise()
        spent = time.perf_counter() - began
        row = {"ms": milliseconds(whole, rewind, 1)}
    keep_prefill(case, engine, row, spent, libraries[0] if libraries else None, report)


@contextmanager
def watched(libraries: list[Any]) -> Iterator[None]:
    """Libraries that `torch.compile` has us build meanwhile."""
    backend.build = lambda *a, **k: libraries.append(build(*a, **k)) or libraries[-1]
    try:
        yield
    finally:
        backend.build = build


def ours_by_torch(case: Case, report: Report) -> None:
    options = case.options
    chosen: dict[str, Any] = {"cache": False, "verify": not options.unverified}
    if options.weights:
        chosen["weights"] = options.weights
    if options.log:
        chosen |= {"log": options.log, "tune_minutes": options.tune_minutes}
    torch._dynamo.reset()
    run = torch.compile(case.model, backend="tilewright", dynamic=False, options=chosen)
    of_torch(case, "ours, torch.compile", run, report, True)


def eager(case: Case, report: Report) -> None:
    of_torch(case, "eager", case.model, report, True)


def inductor(case: Case, report: Report, mode: str | None = None) -> None:
    torch._dynamo.reset()
    run = torch.compile(case.model, mode=mode, dynamic=False)
    of_torch(case, mode or "inductor", run, report, mode is None)


# -- ours by itself --------------------------------------------------------------------------------


def ours_by_load(case: Case, report: Report) -> None:
    """The model as a folder, loaded without PyTorch."""
    options, position = case.options, case.options.positions
    target = "cuda" if options.device == "cuda" else "llvm"
    with folder_of(case.model) as folder:
        sizes = {"tokens": sorted({1, min(64, position), options.prefill} - {0}),
                 "cache": max(options.cache, options.prefill)}  # fmt: skip
        net = tw.load(str(folder), shape=sizes, dtype=options.dtype)
    began = time.perf_counter()
    log, narrow = options.log or None, options.weights or None
    if options.log and options.tune_minutes:
        tw.tune(net, target, minutes=options.tune_minutes, log=log, weights=narrow)
    run = tw.compile(net, target, log, weights=narrow, verify=not options.unverified)
    spent = time.perf_counter() - began
    decoder = tw.Decoder(run)
    decoder.feed(case.prompt.cpu().numpy())
    one = case.next.cpu().numpy()
    logits = decoder.feed(one)[0]
    room = options.cache - position - 1
    rewind = lambda: decoder.back(decoder.position - position)  # noqa: E731
    row = {"ms": milliseconds(lambda: decoder.feed(one), rewind, room)}
    alone = run.benchmark(one, [position], [0], repeat=5, min_repeat_ms=50)
    row["graph ms"] = round(alone.median * 1e3, 4)
    engine = "ours, load"
    keep_step(case, engine, row, logits, spent, run.library, report)
    if options.prefill:
        ids = np.resize(case.prompt.cpu().numpy(), (1, options.prefill))
        decoder.reset()
        row = {"ms": milliseconds(lambda: decoder.feed(ids), decoder.reset, 1)}
        alone = run.benchmark(ids, [0], [options.prefill - 1], repeat=3, number=3)
        row["graph ms"] = round(alone.median * 1e3, 4)
        keep_prefill(case, engine, row, spent, None, report)


@contextmanager
def folder_of(model: Any, weights: bool = True) -> Iterator[Path]:
    """A folder with the model, in memory where there is such a place."""
    place = "/dev/shm" if os.path.isdir("/dev/shm") else None
    folder = Path(tempfile.mkdtemp(prefix="tilewright-", dir=place))
    try:
        if weights:
            model.save_pretrained(folder)
        else:
            model.config.save_pretrained(folder)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


# -- engines that serve models ---------------------------------------------------------------------


def by_vllm(case: Case, report: Report) -> None:
    """vLLM on the same shape, with random weights of its own."""
    options = case.options
    with folder_of(case.model, weights=False) as folder:
        found = serving.vllm(folder, case.prompt[0].tolist(), options.dtype, options.cache)
    keep_step(case, "vllm", {"ms": found.milliseconds}, None, found.start, None, report)


def by_llama_cpp(case: Case, report: Report) -> None:
    """llama.cpp on a file of the same shape."""
    found = serving.llama_cpp(case.options.gguf, case.prompt[0].tolist(), case.options.cache)
    keep_step(case, "llama.cpp", {"ms": found.milliseconds}, None, found.start, None, report)


# -- rows ------------------------------------------------------------------------------------------


def keep_step(
    case: Case, engine: str, row: dict[str, Any], logits: Any, spent: float, library: Any,
    report: Report,
) -> None:  # fmt: skip
    options = case.options
    ours = engine.startswith("ours")
    weights = options.weights if ours and options.weights else options.dtype
    nbytes = case.nbytes if library is None else weight_bytes(library)
    share = nbytes / (best(row) * 1e-3) / options.bandwidth if options.bandwidth else 0.0
    told: dict[str, Any] = {
        "shape": case.name + (f", {options.layers} layers" if options.layers else ""),
        "what": "step", "engine": engine, "weights": weights, **row, "GB": round(nbytes * 1e-9, 3),
        "bandwidth": f"{share:.0%}" if share else "", "launches": "", "moves": "",
        "build s": round(spent, 1), "off": "", "bound": "", "argmax": "",
    }  # fmt: skip
    if library is not None:
        told |= {"launches": len(library.plan.launches), "moves": movement(library)}
    if logits is not None:
        told["off"] = float(f"{case.off(logits):.2g}")
        same = int(torch.as_tensor(logits).argmax()) == int(case.wanted.argmax())
        told["argmax"] = "equal" if same else "another"
        if weights not in NARROW:
            inside = told["off"] <= case.bound
            told["bound"] = f"{case.bound:.2g}" + ("" if inside else " EXCEEDED")
    report.keep(told)
    if library is not None:
        told_more = library.report.moved_told() if options.report else []
        for line in (str(library.report.accuracy or ""), *told_more):
            if line:
                report.tell(f"  {line}")


def keep_prefill(
    case: Case, engine: str, row: dict[str, Any], spent: float, library: Any, report: Report
) -> None:
    options, ours = case.options, engine.startswith("ours")
    weights = options.weights if ours and options.weights else options.dtype
    report.keep(
        {
            "shape": case.name + (f", {options.layers} layers" if options.layers else ""),
            "what": f"{options.prefill} tokens", "engine": engine, "weights": weights, **row,
            "launches": "" if library is None else len(library.plan.launches),
            "build s": round(spent, 1),
        }
    )  # fmt: skip


def weight_bytes(library: Any) -> int:
    """Bytes of constants that a step reads whole: of a table it reads a row."""
    names = [kernel.name for kernel in library.report.kernels]
    whole = [n for n in library.plan.launches if not names[n.kernel].startswith("take")]
    read = {o.index for launch in whole for o in launch.operands if o.kind == "constant"}
    return sum(int(library.constants[k].nbytes) for k in read)


def movement(library: Any) -> str:
    """The part of a step's kernels that only moves elements, timed where they lie in a run."""
    labels = {row.label for row in library.report.moved}
    where = device(tw.Target(library.target).kind)
    module = GraphModule(library["default"](where))
    seconds = [statistics.median(found) for found in module.launch_seconds(5)]
    kernels = library.report.kernels
    moved = [kernels[launch.kernel].label in labels for launch in library.plan.launches]
    part = sum(s for s, m in zip(seconds, moved, strict=True) if m)
    return f"{part / sum(seconds):.1%}" if seconds else ""


ENGINES: dict[str, Callable[[Case, Report], None]] = {
    "torch": ours_by_torch, "decoder": ours_by_load, "eager": eager, "inductor": inductor,
    "reduce-overhead": partial(inductor, mode="reduce-overhead"), "vllm": by_vllm,
    "llama.cpp": by_llama_cpp,
}  # fmt: skip


def measure(options: argparse.Namespace, report: Report) -> None:
    for name in options.shapes:
        case = case_of(name, options)
        report.tell(f"{name}: {case.nbytes * 1e-9:.3f} GB of weights a step, on {report.name}")
        slow = [*options.ours, *(p for p in options.peers if p != "eager")]
        for engine in (*(p for p in options.peers if p == "eager"), *slow):
            try:
                ENGINES[engine](case, report)
            except ModuleNotFoundError as error:
                report.tell(f"{engine}: no {error.name} here ({PEERS.get(engine, '')})")
            except Exception as error:  # of one engine must not end the others
                report.tell(f"{engine}: {type(error).__name__}: {str(error)[:400]}")
            if torch.cuda.is_available():
                torch.cuda.empty_cache()


def stop(report: Report) -> None:
    """End the run where it is; what was measured is written."""
    with suppress(Exception):
        report.tell("the time is up")
        report.end()
    os._exit(0)


def parsed(words: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--shapes", nargs="+", default=["llama-1b"], choices=list(SHAPES))
    parser.add_argument("--layers", type=int, default=0, help="at most so many; 0: all")
    parser.add_argument("--ours", nargs="*", default=list(OURS), choices=OURS)
    parser.add_argument("--peers", nargs="*", default=list(PEERS), choices=list(PEERS))
    parser.add_argument("--weights", default="", choices=("", *NARROW), help="of ours")
    parser.add_argument("--dtype", default="bfloat16", choices=("bfloat16", "float16", "float32"))
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu",
                        choices=("cuda", "cpu"))  # fmt: skip
    parser.add_argument("--positions", type=int, default=128, help="in the cache before the step")
    parser.add_argument("--cache", type=int, default=256, help="positions that it holds")
    parser.add_argument("--prefill", type=int, default=512, help="tokens of a prompt; 0: none")
    parser.add_argument("--log", default="", help="of tuning, of ours")
    parser.add_argument("--tune-minutes", type=float, default=0.0, help="ours first, with --log")
    parser.add_argument("--unverified", action="store_true", help="build ours without comparing")
    parser.add_argument("--bandwidth", type=float, default=0.0, help="of memory, bytes a second")
    parser.add_argument(
        "--seconds", type=float, default=0.0, help="end after so many; 0: at the end"
    )
    parser.add_argument("--report", action="store_true", help="also list what only moves elements")
    parser.add_argument("--gguf", default="", help="file of the shape, for llama.cpp")
    parser.add_argument("--keep", action="store_true", help="write the results down, too")
    parser.add_argument("--folder", type=Path, default=None, help="where they go")
    parser.add_argument("--commit", help="what is measured, where there is no git")
    options = parser.parse_args(words)
    options.positions = min(options.positions, options.cache - 2)
    return options


def main(words: list[str] | None = None) -> Report:
    options = parsed(words)
    name = torch.cuda.get_device_name() if options.device == "cuda" else results_file.cpu_name()
    if not options.bandwidth:
        known = (rate for chip, rate in SHEET.items() if chip in name)
        options.bandwidth = next(known, 0.0)
    report = Report(options, name)
    if options.seconds:
        timer = threading.Timer(options.seconds, stop, (report,))
        timer.daemon = True
        timer.start()
    backend.register()
    transformers.utils.logging.disable_progress_bar()
    with torch.no_grad():
        measure(options, report)
    report.end()
    return report


if __name__ == "__main__":
    main()
