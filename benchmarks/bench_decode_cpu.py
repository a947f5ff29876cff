"""A decoder on CPUs: one step by each kind of weights, a prompt, beside PyTorch in the same run.

In: a named size, all of its layers or some.  Out: a table; rows in `results/decode_cpu.json`,
written after each, so that a run may be cut anywhere.  Every row is a process of its own, so that
its memory is what it needs alone.  Weights are random; peers need torch and transformers.

    PYTHONPATH=src python benchmarks/bench_decode_cpu.py --size llama-1b
    PYTHONPATH=src python benchmarks/bench_decode_cpu.py --layers 2 --kinds int8 --modes step

A step goes on from 128 positions in caches of 256, a prompt fills 512 of 640.  "share" is what a
step reads of weights in a second, by what a plain read of a gigabyte gets from memory in the same
process with as many threads, the best of some before and behind the steps.  "resident_gb" is the
memory of the process before it reads plainly.  Times are by the clock: nothing else may run.  With
`--shared` all run on one thread, and its own processor time counts, the least of each: shares can
then be told on a machine that others use, too.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import results_file

KINDS = ("int8", "int4", "float8", "bfloat16", "float32")
NARROW = KINDS[:3]
PEERS = {
    "eager": ("bfloat16", "float32"), "inductor": ("bfloat16", "float32"), "dynamic": ("int8",),
    "onnxruntime": ("float32",), "llama.cpp": (),
}  # fmt: skip
MODES = {"step": (128, 256), "prefill": (512, 640)}  # positions that are fed, those of the caches
READ_BYTES = 1 << 30
LARGEST = 2 << 30  # bytes of a file for onnxruntime
TOKEN = 7


def seconds(run: Callable[[], object], number: int, shared: bool) -> list[float]:
    """Of each call, one behind the other."""
    clock, taken = time.thread_time if shared else time.perf_counter, []
    for _ in range(number):
        start = clock()
        run()
        taken.append(clock() - start)
    return taken


def target_of(shared: bool) -> str:
    return "llvm -num-cores=1" if shared else "llvm"


def plain_read(shared: bool) -> Callable[[], float]:
    """A function that reads a gigabyte on all threads: bytes a second, the best of some."""
    from tilewright import te
    from tilewright.driver.build import build
    from tilewright.runtime.device import cpu
    from tilewright.runtime.ndarray import array

    steps, vectors, lanes = 4096, 4, 16
    shape = (READ_BYTES // (4 * steps * vectors * lanes), vectors, steps, lanes)
    data = te.placeholder(shape, "float32", "data")
    step = te.reduce_axis((0, steps), "step")
    out = te.compute(
        (shape[0], vectors, lanes), lambda i, v, n: te.sum(data[i, v, step, n], step), "sums"
    )
    s = te.create_schedule(out)
    local = s[s.cache_write(out, "local")]
    part, vector, lane = s[out].op.axis
    if not shared:
        s[out].parallel(part)
    s[out].unroll(vector)
    s[out].vectorize(lane)
    local.compute_at(s[out], part)
    one, vector, lane = local.op.axis
    local.reorder(one, local.op.reduce_axis[0], vector, lane)
    local.unroll(vector)
    local.vectorize(lane)
    module = build(s, [data, out], target_of(shared))
    given, sums = (array(np.ones(t.shape, "float32"), cpu()) for t in (data, out))
    return lambda: READ_BYTES / min(seconds(lambda: module(given, sums), 8, shared))


def resident() -> float:
    """Gigabytes of memory that this process has."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(x.split()[1]) for x in lines if x.startswith("VmRSS:")) * 1024e-9


def shape_of(size: str, layers: int) -> Any:
    from tilewright.models.decoders.config import NAMED

    whole = NAMED[size]()
    return replace(whole, layers=whole.layers[: layers or None])


def ours(kind: str, mode: str, o: argparse.Namespace) -> dict[str, Any]:
    import tilewright as tw
    from tilewright.models.decoders.config import NAMED

    fed, length = MODES[mode]
    name = f"{o.size}/{o.layers}" if o.layers else o.size
    NAMED.setdefault(name, lambda: shape_of(o.size, o.layers))
    dtype, weights = (o.rows, kind) if kind in NARROW else (kind, None)
    counts = [1] if mode == "step" else [1, fed]
    net = tw.load(name, shape={"tokens": counts, "cache": length}, dtype=dtype)
    start = time.perf_counter()
    run = tw.compile(net, target_of(o.shared), o.log, weights=weights, verify=not o.unverified)
    built = time.perf_counter() - start
    del net
    decoder = tw.Decoder(run)
    found = run.report.accuracy
    row = {"build_seconds": built, "outputs_off": None if found is None else found.outputs}
    plan = next(p for p in run.library.plans if p.inputs[p.given[0]].shape[1] == counts[-1])
    names = [kernel.name for kernel in run.report.kernels]  # of a table a step reads a row
    whole = [launch for launch in plan.launches if not names[launch.kernel].startswith("take")]
    read = {a.index for launch in whole for a in launch.operands if a.kind == "constant"}
    nbytes = sum(run.library.constants[k].nbytes for k in read)
    prompt = [[TOKEN] * fed]

    def again() -> None:
        decoder.reset()
        decoder.feed(prompt)

    if mode == "prefill":
        return row | timed(again, fed, nbytes, o, 1)
    for _ in range(fed):
        decoder.feed([[TOKEN]])
    return row | timed(lambda: decoder.feed([[TOKEN]]), 1, nbytes, o, o.steps)


def timed(
    run: Callable[[], object], tokens: int, nbytes: int, o: argparse.Namespace, number: int
) -> dict[str, Any]:
    """Time a step or a prompt between two plain reads."""
    held = resident()
    reading = plain_read(o.shared)
    before = reading()
    run()
    taken = seconds(run, max(number, 3), o.shared)
    best = max(before, reading())
    each = min(taken) if o.shared else statistics.median(taken)
    row = {
        "ms": each * 1e3, "least_ms": min(taken) * 1e3, "tokens_per_second": tokens / each,
        "weights_gb": nbytes * 1e-9, "gb_per_second": nbytes / each * 1e-9,
        "plain_gb_per_second": best * 1e-9, "share": nbytes / each / best, "resident_gb": held,
    }  # fmt: skip
    return row if tokens == 1 else row | {"gb_per_second": None, "share": None}


def peer(engine: str, kind: str, mode: str, o: argparse.Namespace) -> dict[str, Any]:
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

    torch.set_num_threads(1 if o.shared else len(os.sched_getaffinity(0)))
    fed, length = MODES[mode]
    c = shape_of(o.size, o.layers)
    config = LlamaConfig(
        vocab_size=c.vocabulary, hidden_size=c.width, intermediate_size=c.wide,
        num_hidden_layers=len(c.layers), num_attention_heads=c.heads,
        num_key_value_heads=c.shared, head_dim=c.size, tie_word_embeddings=True,
    )  # fmt: skip
    if engine == "onnxruntime":
        return exported(mode, o)
    torch.manual_seed(0)
    torch.set_default_dtype(torch.bfloat16 if kind == "bfloat16" else torch.float32)
    model: Any = LlamaForCausalLM(config).eval()
    nbytes = sum(p.numel() * p.element_size() for p in model.parameters())
    if kind == "int8":
        model = torch.ao.quantization.quantize_dynamic(model, {torch.nn.Linear}, torch.qint8)
        nbytes //= 4
    cache = StaticCache(config=config, max_cache_len=length)
    start = time.perf_counter()
    call = torch.compile(model) if engine == "inductor" else model
    prompt = torch.full((1, fed), TOKEN)
    one, at = torch.tensor([[TOKEN]]), torch.tensor([fed])
    with torch.no_grad():

        def fill() -> None:
            cache.reset()
            call(prompt, past_key_values=cache, cache_position=torch.arange(fed), logits_to_keep=1)

        def step() -> None:
            call(one, past_key_values=cache, cache_position=at)

        if mode == "prefill":
            fill()
            built = time.perf_counter() - start
            return {"build_seconds": built} | timed(fill, fed, nbytes, o, 1)
        model(prompt, past_key_values=cache, cache_position=torch.arange(fed))
        step()
        built = time.perf_counter() - start
        return {"build_seconds": built} | timed(step, 1, nbytes, o, o.steps)


def exported(mode: str, o: argparse.Namespace) -> dict[str, Any]:
    """onnxruntime on what our exporter writes: caches go in and out of every call."""
    import tilewright as tw
    from tilewright.models.decoders.config import NAMED
    from tilewright.models.peers.engines import onnxruntime_benchmark
    from tilewright.targets.target import Target

    fed, length = MODES[mode]
    NAMED["exported"] = lambda: shape_of(o.size, o.layers)
    counts = [1] if mode == "step" else [fed]
    net = tw.load("exported", shape={"tokens": counts, "cache": length})
    nbytes = sum(value.nbytes for value in net.params.values())
    if nbytes > LARGEST:
        raise ValueError(f"{nbytes * 1e-9:.1f} GB are more than a file of ONNX holds: --layers 2")
    found = onnxruntime_benchmark(net.modules[0], net.params, Target(target_of(o.shared)).native())
    if found.result is None:
        raise ValueError(found.note)
    each = found.result.median
    return {"ms": each * 1e3, "least_ms": found.result.min * 1e3,
            "tokens_per_second": counts[0] / each, "resident_gb": resident()}  # fmt: skip


def apart(engine: str, kind: str, mode: str, rest: list[str]) -> dict[str, Any]:
    """A row, by a process of its own."""
    head = {"mode": mode, "engine": engine, "weights": kind}
    if engine == "llama.cpp":
        return head | {"note": "needs a GGUF file, which random weights have not"}
    command = [sys.executable, __file__, *rest, "--one", engine, kind, mode]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    last = made.stdout.strip().splitlines()[-1:] or [""]
    if made.returncode or not last[0].startswith("{"):
        told = (made.stderr.strip().splitlines() or ["no word"])[-1]
        return head | {"note": told[:200]}
    return head | json.loads(last[0])


COLUMNS = (
    "mode", "engine", "weights", "ms", "tokens_per_second", "gb_per_second", "plain_gb_per_second",
    "share", "resident_gb", "build_seconds", "note",
)  # fmt: skip


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--size", default="llama-1b")
    parser.add_argument("--layers", type=int, default=0, help="the first of them; 0: all")
    parser.add_argument("--kinds", nargs="*", default=KINDS[:4], choices=KINDS)
    parser.add_argument("--peers", nargs="*", default=["eager", "inductor", "dynamic"])
    parser.add_argument("--modes", nargs="*", default=list(MODES), choices=list(MODES))
    parser.add_argument("--steps", type=int, default=16, help="that are timed")
    parser.add_argument("--rows", default="float32", choices=("float32", "bfloat16"),
                        help="values and caches of those with narrow weights, which take twice as "
                        "much memory to build in float32")  # fmt: skip
    parser.add_argument("--shared", action="store_true", help="one thread, its processor time")
    parser.add_argument(
        "--unverified", action="store_true", help="kernels are not compared: sooner"
    )
    parser.add_argument("--log", default=None, help="records of a search")
    parser.add_argument("--folder", type=Path, default=None, help="where the result goes")
    parser.add_argument("--one", nargs=3, default=None, help=argparse.SUPPRESS)
    o = parser.parse_args()
    if o.one:
        engine, kind, mode = o.one
        row = ours(kind, mode, o) if engine == "tilewright" else peer(engine, kind, mode, o)
        print(json.dumps(row))
        return
    rest = ["--size", o.size, "--layers", str(o.layers), "--steps", str(o.steps), "--rows", o.rows]
    rest += ["--log", o.log] if o.log else []
    rest += [flag for flag in ("--shared", "--unverified") if getattr(o, flag[2:])]
    asked = [("tilewright", kind) for kind in o.kinds]
    asked += [(name, kind) for name in o.peers for kind in PEERS.get(name) or ("",)]
    rows: list[dict[str, Any]] = []
    for mode in o.modes:
        for engine, kind in asked:
            rows.append(apart(engine, kind, mode, rest))
            cells = (f"{k} {v:.4g}" if isinstance(v, float) else f"{k} {v}" for k, v in
                     rows[-1].items() if v is not None)  # fmt: skip
            print("  ".join(cells), flush=True)
            results_file.append(
                "decode_cpu", rows, folder=o.folder, again=len(rows) > 1,
                command=" ".join(sys.argv),
                threads=1 if o.shared else len(os.sched_getaffinity(0)),
            )  # fmt: skip
    print(results_file.table([{k: row.get(k) if row.get(k) is not None else "" for k in COLUMNS}
                              for row in rows]))  # fmt: skip


if __name__ == "__main__":
    main()
