"""LLVM IR text to an object file, by llvmlite.

In: IR with explicit vectors.  Out: a position-independent object for the target's cpu.  The loop
and SLP vectorisers are off: the generated code says what is a vector.  Read next: `compilers.py`.
"""

from __future__ import annotations

import re
from functools import cache
from typing import Any

from tilewright.base.artifact import Artifact, Source
from tilewright.base.concurrency import importing, lock, once
from tilewright.base.errors import CompileError, TargetError
from tilewright.base.extras import installing
from tilewright.codegen.llvm_bytes import NIBBLE, by_table
from tilewright.codegen.llvm_foreign import modules_of
from tilewright.codegen.llvm_half import in_integers, is_half_helper
from tilewright.driver.llvm_lanes import MENDED, has_masked_stores, with_lanes_apart
from tilewright.runtime.drivers import cpu_features
from tilewright.runtime.drivers.cpu_llvm import prepare_library
from tilewright.runtime.drivers.cpu_names import check_known
from tilewright.runtime.drivers.cpu_native import code_model
from tilewright.targets.processors import architecture, whole
from tilewright.targets.target import Target

# Loops, vectors and registers are decided before LLVM sees them: level 3 takes 1.2 to 2.4 times as
# long and its kernels run no faster (convolutions, products, pooling, softmax).
_OPTIMISATION = 1
_PROVIDED = ("tilewright_parallel",)
_HALF_PROBE = """
define float @widen(half %x) { %y = fpext half %x to float ret float %y }
define half @narrow(float %x) { %y = fptrunc float %x to half ret half %y }
"""
_COMPILER_RT = re.compile(r"__(extendhfsf2|truncsfhf2|gnu_\w+_ieee|aeabi_\w+)")
_TABLES = "avx512f"  # what a processor has that permutes 16 floats by a vector
_lock = lock()  # target machines are shared between calls


@once
def _binding() -> Any:
    try:
        with importing:
            from llvmlite import binding
    except ImportError as error:
        raise TargetError(
            "compile for llvm", f"llvmlite is not installed ({error})",
            f"Try {installing('llvmlite')}.",
        ) from None  # fmt: skip
    binding.initialize_all_targets()
    binding.initialize_all_asmprinters()
    prepare_library(binding)
    return binding


def version() -> tuple[int, ...]:
    """Return the version of LLVM."""
    return tuple(_binding().llvm_version_info)


def identity(target: Target) -> dict[str, str]:
    """Compiler version, triple, cpu, features, and what of its faults is mended.

    `-mcpu=native` (the default) is the device's processor; this machine's where none is known.
    """
    llvm = _binding()
    check_known(dict(target.options))
    native = _native(target)
    triple = whole(target.option("mtriple") or native["mtriple"])
    cpu, features = target.option("mcpu", "native"), ""
    if cpu == "native":
        if architecture(triple) != architecture(native["mtriple"]):
            cpu = "generic"
        else:
            cpu, features = native["mcpu"], native["mattr"]
    features = ",".join(part for part in (features, target.option("mattr")) if part)
    version = ".".join(map(str, llvm.llvm_version_info))
    return {
        "compiler": f"LLVM {version} -O{_OPTIMISATION}", "triple": triple, "cpu": cpu,
        "features": features, "mended": MENDED,
    }  # fmt: skip


def about() -> str:
    return ""


def _native(target: Target) -> dict[str, str]:
    """What the device says of its processor, or this process of its own."""
    if target.device is not None and target.device.code:
        return dict(target.device.code)
    llvm = _binding()
    return {
        "mtriple": llvm.get_process_triple(),
        "mcpu": llvm.get_host_cpu_name(),
        "mattr": llvm.get_host_cpu_features().flatten(),
    }


def build(source: Source, target: Target) -> Artifact:
    about = identity(target)
    needs = cpu_features.required(about["triple"], about["cpu"], about["features"])
    with _lock:
        machine, module = _optimised(source, target, about)
        meta = {} if needs is None else {"needs": [*needs]}
        return Artifact(source, machine.emit_object(module), meta=meta)


def assembly(source: Source, target: Target) -> str:
    """The instructions of `build`'s object file, as text."""
    with _lock:
        machine, module = _optimised(source, target, identity(target))
        return str(machine.emit_assembly(module))


def _optimised(source: Source, target: Target, about: dict[str, str]) -> tuple[Any, Any]:
    """The target machine, and the module after LLVM's passes.  The lock is held."""
    llvm = _binding()
    place = f"compile {source.entry_name} for {target}"
    machine = target_machine(about["triple"], about["cpu"], about["features"])
    try:
        module = llvm.parse_assembly(source.text)
        module.triple = about["triple"]
        module.data_layout = str(machine.target_data)
        module.verify()
    except RuntimeError as error:
        reason = f"LLVM refused the text: {str(error).strip()}"
        raise CompileError(place, reason, CompileError.REPORT) from None
    _link_foreign(module, source, place)
    _link_helpers(module, about)
    if about["triple"] == llvm.get_process_triple():
        _check_externals(module, place)
    options = llvm.create_pipeline_tuning_options(speed_level=_OPTIMISATION)
    options.loop_vectorization = options.slp_vectorization = False
    builder = llvm.create_pass_builder(machine, options)
    builder.getModulePassManager().run(module, builder)
    if has_masked_stores(source.text):
        module = llvm.parse_assembly(with_lanes_apart(str(module)))
    return machine, module


def _link_foreign(module: Any, source: Source, place: str) -> None:
    """Link what others wrote, for the same processor, so that it may be inlined."""
    for text in modules_of(source.text):
        try:
            other = _binding().parse_assembly(text)
            other.triple, other.data_layout = module.triple, module.data_layout
            own = [f.name for f in other.functions if not f.is_declaration]
            module.link_in(other)
        except RuntimeError as error:
            reason = f"LLVM refused the text of a function that it calls: {str(error).strip()}"
            raise CompileError(place, reason, "Mend what import_llvm was given.") from None
        for name in own:
            module.get_function(name).linkage = "internal"


def _check_externals(module: Any, place: str) -> None:
    """Loading code that calls an unknown function would abort the process."""
    llvm = _binding()
    for function in module.functions:
        name = function.name
        if not function.is_declaration or name.startswith("llvm.") or name in _PROVIDED:
            continue
        if not llvm.address_of_symbol(name):
            raise CompileError(
                place, f"the text calls {name}, which neither the runtime nor libm provides",
                "Use LLVM intrinsics, libm or tilewright_parallel; of a function of yours, give the"
                " text by pragma import_llvm.",
            )  # fmt: skip


def _link_helpers(module: Any, about: dict[str, str]) -> None:
    """Do the conversions of float16 in integers where the machine has no instructions for them, and
    look up numbers of four bits where it has one."""
    names = [f.name for f in module.functions]
    halves = [name for name in names if is_half_helper(name)]
    triple, cpu, features = about["triple"], about["cpu"], about["features"]
    if halves and not _converts_half(triple, cpu, features):
        _link_instead(module, in_integers(halves), halves)
    if NIBBLE in names and _TABLES in (cpu_features.required(triple, cpu, features) or ()):
        _link_instead(module, by_table(), [NIBBLE])


def _link_instead(module: Any, text: str, names: list[str]) -> None:
    """Put these functions of `text` in the place of those of the module."""
    other = _binding().parse_assembly(text)
    other.triple, other.data_layout = module.triple, module.data_layout
    module.link_in(other)
    for name in names:
        module.get_function(name).linkage = "internal"


@cache
def _converts_half(triple: str, cpu: str, features: str) -> bool:
    """Whether LLVM converts `half` without a function of compiler-rt: it is asked by compiling."""
    llvm = _binding()
    machine = target_machine(triple, cpu, features)
    module = llvm.parse_assembly(_HALF_PROBE)
    module.triple, module.data_layout = triple, str(machine.target_data)
    return not _COMPILER_RT.search(machine.emit_assembly(module))


@cache
def target_machine(triple: str, cpu: str, features: str) -> Any:
    """LLVM's, for position-independent objects.  Raises TargetError for an unknown triple."""
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
        codemodel=code_model(triple),
    )
