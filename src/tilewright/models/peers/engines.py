"""Networks in other engines: what they compute, and how long they take.

In: a network with its weights.  Out: reference outputs, `PeerTime`s.  Peers run the exported,
unoptimised graph, so all compute the same.  Read next: `pytorch.py`, `openvino.py`,
`tensorrt.py`, `models/onnx/export.py`.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.base.extras import install
from tilewright.graph.evaluate import evaluate
from tilewright.graph.expr import Array, Function, IRModule
from tilewright.graph.samples import sample_inputs
from tilewright.models.onnx.export import to_onnx
from tilewright.models.peers import openvino, pytorch, tensorrt
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

    onnxruntime on the exported graph where it is installed and runs it, else numpy in float64.
    """
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    with suppress(Exception):  # whatever a foreign engine fails with must not end the bench
        session = _session(module, params, "CPUExecutionProvider", 0)
        given = {i.name: np.asarray(inputs[i.name]) for i in session.get_inputs()}
        return Reference(tuple(session.run(None, given)), f"onnxruntime {_version()}")
    found = evaluate(module, {**(params or {}), **inputs}, "float64")
    outputs = found if isinstance(found, tuple) else (found,)
    return Reference(outputs, "numpy float64")


def peer_times(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "llvm",
    number: int = 5,
    repeat: int = 5,
) -> Iterator[PeerTime]:
    """Each engine that people would take otherwise on the device of the target."""
    on_cuda = Target(target).native().kind == "cuda"
    here = (tensorrt_benchmark, torch_compile_benchmark) if on_cuda else (openvino_benchmark,)
    for benchmark in (onnxruntime_benchmark, *here, torch_benchmark):
        yield benchmark(mod, params, target, number, repeat)


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


def openvino_benchmark(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "llvm",
    number: int = 5,
    repeat: int = 5,
) -> PeerTime:
    """OpenVINO's latency on the CPU, with as many threads as the target has cores."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)
    threads = cpu_threads(Target(target).native())

    def measured() -> PeerTime:
        _needed("openvino", "openvino")
        import openvino as package

        run = openvino.runner(_model(module, params), sample_inputs(module, params), threads)
        version = package.__version__.partition("-")[0]
        return PeerTime(f"OpenVINO {version}", timed(run, number, repeat), f"{threads} threads")

    return _tried("OpenVINO", measured)


def tensorrt_benchmark(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "cuda",
    number: int = 5,
    repeat: int = 5,
) -> PeerTime:
    """TensorRT's latency on the GPU, in a CUDA graph; without TF32.  Building takes minutes."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)

    def measured() -> PeerTime:
        _needed("tensorrt", "tensorrt")
        import tensorrt as package

        run = tensorrt.runner(_model(module, params), sample_inputs(module, params))
        return PeerTime(f"TensorRT {package.__version__}", timed(run, number, repeat), "CUDA graph")

    return _tried("TensorRT", measured)


def torch_compile_benchmark(
    mod: IRModule | Function,
    params: Mapping[str, Any] | None,
    target: str | Target = "cuda",
    number: int = 5,
    repeat: int = 5,
) -> PeerTime:
    """The latency of `torch.compile(mode="reduce-overhead")` on the GPU; without TF32."""
    module = mod if isinstance(mod, IRModule) else IRModule.from_expr(mod)

    def measured() -> PeerTime:
        torch = _torch(on_cuda=True)
        inputs = sample_inputs(module, params)
        with pytorch.compiled(module, params, inputs, mode="reduce-overhead") as run:
            result = timed(run, number, repeat)
        return PeerTime(f"torch.compile {torch.__version__}", result, "reduce-overhead")

    return _tried("torch.compile", measured)


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
        torch = _torch(on_cuda)
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


def timed(run: Callable[[], object], number: int, repeat: int) -> BenchmarkResult:
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


def _needed(package: str, extra: str) -> None:
    """Raises _Missing where a package is not installed."""
    try:
        import_module(package)
    except ImportError:
        raise _Missing(f"not installed: {install(extra)}") from None


def _torch(on_cuda: bool) -> Any:
    _needed("torch", "torch")
    import torch

    if on_cuda and not torch.cuda.is_available():
        raise _Missing("this PyTorch has no CUDA")
    return torch


def _model(mod: IRModule, params: Mapping[str, Any] | None) -> bytes:
    """The exported graph."""
    _needed("onnx", "onnx")
    return bytes(to_onnx(mod, params).SerializeToString())


def _session(mod: IRModule, params: Mapping[str, Any] | None, provider: str, threads: int) -> Any:
    """threads: 0 leaves the choice to onnxruntime."""
    _needed("onnxruntime", "onnx")
    import onnxruntime

    model = _model(mod, params)
    if provider not in onnxruntime.get_available_providers():
        raise _Missing(f"this onnxruntime has no {provider}")
    options = onnxruntime.SessionOptions()
    options.log_severity_level = _ERRORS_ONLY
    options.intra_op_num_threads = threads
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
