"""Networks in other engines: what they compute, and how long they take.

In: a network with its weights.  Out: reference outputs, `PeerTime`s.  Peers run the exported,
unoptimised graph, so all compute the same.  Read next: `pytorch.py`, `models/onnx/export.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.base.extras import install
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Array, Function, IRModule
from tilewright.graph.samples import sample_inputs
from tilewright.models.onnx.export import to_onnx
from tilewright.models.peers import pytorch
from tilewright.runtime.timing import BenchmarkResult
from tilewright.targets.target import Target

_ERRORS_ONLY = 3  # of onnxruntime's log levels


@dataclass(frozen=True)
class Reference:
    """outputs: what the network computes; engine: who says so."""

    outputs: tuple[Array, ...]
    engine: str


@dataclass(frozen=True)
class PeerTime:
    """Another engine's latency.  result: None where it cannot run; note: why, or how it ran."""

    engine: str
    result: BenchmarkResult | None
    note: str = ""


def reference(
    mod: IRModule | Function, params: Mapping[str, Any] | None, inputs: Mapping[str, Any]
) -> Reference:
    """What the network computes, by code that shares nothing with the compiler.

    onnxruntime on the exported graph where it is installed, else numpy in float64.
    """
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    try:
        session = _session(module, params, "CPUExecutionProvider", 0)
    except _Missing:
        found = evaluate(module, {**(params or {}), **inputs}, "float64")
        outputs = found if isinstance(found, tuple) else (found,)
        return Reference(outputs, "numpy float64")
    given = {i.name: np.asarray(inputs[i.name]) for i in session.get_inputs()}
    return Reference(tuple(session.run(None, given)), f"onnxruntime {_version()}")


def onnxruntime_benchmark(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "llvm",
    number: int = 5,
    repeat: int = 5,
) -> PeerTime:
    """onnxruntime's latency on the processor of the target, with as many threads as it has cores.

    Arrays stay on the device.  OpenCL devices are no concern of onnxruntime: it uses the CPU.
    """
    chosen = Target(target).native()
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    on_cuda = chosen.kind == "cuda"
    provider = "CUDAExecutionProvider" if on_cuda else "CPUExecutionProvider"
    threads = cpu_threads(chosen)

    def measured() -> PeerTime:
        session = _session(module, params, provider, threads)
        run = _bound_run(session, sample_inputs(module, params), "cuda" if on_cuda else "cpu")
        how = "CUDA provider" if on_cuda else f"{threads} threads"
        return PeerTime(f"onnxruntime {_version()}", timed(run, number, repeat), how)

    return _tried("onnxruntime", measured)


def torch_benchmark(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "llvm",
    number: int = 5,
    repeat: int = 5,
) -> PeerTime:
    """PyTorch's latency: traced and frozen; fp32 without TF32, and in a CUDA graph on CUDA."""
    chosen = Target(target).native()
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    on_cuda, threads = chosen.kind == "cuda", cpu_threads(chosen)

    def measured() -> PeerTime:
        try:
            import torch
        except ImportError:
            raise _Missing(f"not installed: {install('torch')}") from None
        if on_cuda and not torch.cuda.is_available():
            raise _Missing("this PyTorch has no CUDA")
        inputs = sample_inputs(module, params)
        with pytorch.runner(module, params, inputs, on_cuda, threads) as run:
            result = timed(run, number, repeat)
        how = "CUDA graph" if on_cuda else f"{threads} threads"
        return PeerTime(f"PyTorch {torch.__version__}", result, f"traced, frozen, {how}")

    return _tried("PyTorch", measured)


def _tried(engine: str, measured: Callable[[], PeerTime]) -> PeerTime:
    """What is measured, or why it cannot be."""
    try:
        return measured()
    except (_Missing, TilewrightError) as error:  # the graph has no form there
        return PeerTime(engine, None, str(error))
    except Exception as error:  # whatever a foreign engine fails with must not end the bench
        return PeerTime(engine, None, f"it failed: {type(error).__name__}: {error}")


def cpu_threads(target: Target) -> int:
    """Threads that a peer on the CPU may use: the target's cores, or all of this process's."""
    return target.limits.cores if target.kind == "llvm" else len(os.sched_getaffinity(0))


def timed(run: Callable[[], None], number: int, repeat: int) -> BenchmarkResult:
    """Wall seconds of `run`, which returns when the work is done; two runs to warm up."""
    run()
    run()
    results = []
    for _ in range(repeat):
        began = time.perf_counter()
        for _ in range(number):
            run()
        results.append((time.perf_counter() - began) / number)
    return BenchmarkResult(tuple(results))


class _Missing(Exception):
    """An engine, or a part of it, is not installed; the message says which and what to do."""


def _session(mod: IRModule, params: Mapping[str, Any] | None, provider: str, threads: int) -> Any:
    """threads: 0 leaves the choice to onnxruntime."""
    try:
        import onnx  # noqa: F401 - the graph is exported with it
        import onnxruntime
    except ImportError as error:
        raise _Missing(f"{error.name} is not installed: {install('onnx')}") from None
    if provider not in onnxruntime.get_available_providers():
        raise _Missing(f"this onnxruntime has no {provider}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
    model = to_onnx(mod, params).SerializeToString()
    return onnxruntime.InferenceSession(model, options, providers=[provider])


def _bound_run(session: Any, inputs: Mapping[str, Array], where: str) -> Callable[[], None]:
    """A run whose inputs and outputs stay on the device."""
    import onnxruntime

    binding = session.io_binding()
    for wanted in session.get_inputs():
        value = onnxruntime.OrtValue.ortvalue_from_numpy(inputs[wanted.name], where, 0)
        binding.bind_ortvalue_input(wanted.name, value)
    for made in session.get_outputs():
        binding.bind_output(made.name, where)

    def run() -> None:
        session.run_with_iobinding(binding)
        binding.synchronize_outputs()

    return run


def _version() -> str:
    import onnxruntime

    return str(onnxruntime.__version__)
