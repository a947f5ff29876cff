"""LLVM IR text to an object file, by llvmlite.

In: IR with explicit vectors.  Out: a position-independent object for the target's cpu.  The loop
and SLP vectorisers are off: the generated code says what is a vector.  Read next: `compilers.py`.
"""

from __future__ import annotations

import threading
from functools import cache
from typing import Any

from tilewright.base.artifact import Artifact, Source
from tilewright.base.errors import CompileError, TargetError
from tilewright.runtime.drivers.cpu import code_model, load_math_library
from tilewright.targets.target import Target

# Loops, vectors and registers are decided before LLVM sees them: level 3 takes 1.2 to 2.4 times as
# long and its kernels run no faster (convolutions, products, pooling, softmax).
_OPTIMISATION = 1
_PROVIDED = ("tilewright_parallel",)
_lock = threading.Lock()  # target machines are shared between calls


@cache
def _binding() -> Any:
    try:
        from llvmlite import binding
    except ImportError as error:
        raise TargetError(
            "compile for llvm", f"llvmlite is not installed ({error})", "Try pip install llvmlite."
        ) from None
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    return binding


def identity(target: Target) -> dict[str, str]:
    """Compiler version, triple, cpu and features.  `-mcpu=native` (the default) asks the host."""
    llvm = _binding()
    host = llvm.get_process_triple()
    triple = target.option("mtriple") or host
    cpu, features = target.option("mcpu", "native"), ""
    if cpu == "native":
        if triple.split("-")[0] != host.split("-")[0]:
            cpu = "generic"
        else:
            cpu, features = llvm.get_host_cpu_name(), llvm.get_host_cpu_features().flatten()
    features = ",".join(part for part in (features, target.option("mattr")) if part)
    version = ".".join(map(str, llvm.llvm_version_info))
    return {
        "compiler": f"LLVM {version} -O{_OPTIMISATION}", "triple": triple, "cpu": cpu,
        "features": features,
    }  # fmt: skip


def build(source: Source, target: Target) -> Artifact:
    llvm = _binding()
    about = identity(target)
    place = f"compile {source.entry_name} for {target}"
    with _lock:
        machine = _machine(about["triple"], about["cpu"], about["features"])
        try:
            module = llvm.parse_assembly(source.text)
            module.triple = about["triple"]
            module.data_layout = str(machine.target_data)
            module.verify()
        except RuntimeError as error:
            reason = f"LLVM refused the text: {str(error).strip()}"
            raise CompileError(place, reason, CompileError.REPORT) from None
        if about["triple"] == llvm.get_process_triple():
            _check_externals(module, place)
        options = llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
        options.loop_vectorization = options.slp_vectorization = False
        builder = llvm.create_pass_builder(machine, options)
        builder.getModulePassManager().run(module, builder)
        return Artifact(source, machine.emit_object(module))


def _check_externals(module: Any, place: str) -> None:
    """Loading code that calls an unknown function would abort the process."""
    llvm = _binding()
    load_math_library(llvm)
    for function in module.functions:
        name = function.name
        if not function.is_declaration or name.startswith("llvm.") or name in _PROVIDED:
            continue
        if not llvm.address_of_symbol(name):
            raise CompileError(
                place, f"the text calls {name}, which neither the runtime nor libm provides",
                "Use LLVM intrinsics, libm or tilewright_parallel.",
            )  # fmt: skip


@cache
def _machine(triple: str, cpu: str, features: str) -> Any:
    llvm = _binding()
    try:
        chosen = llvm.Target.from_triple(triple)
    except RuntimeError as error:
        raise TargetError(
            f"compile for llvm -mtriple={triple}", f"LLVM knows no target {triple!r} ({error})",
            "Try -mtriple=aarch64-linux-gnu.",
        ) from None  # fmt: skip
    return chosen.create_target_machine(
        cpu=cpu,
        features=features,
        opt=_OPTIMISATION,
        reloc="pic",
        codemodel=code_model(triple.split("-")[0]),
    )
