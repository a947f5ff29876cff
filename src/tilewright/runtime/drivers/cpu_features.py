"""Which instructions code for a CPU needs, and which of them this machine lacks.

In: a triple, a processor and features as LLVM names them, or the `meta` of an artefact that was
compiled for them.  Out: names of features.  No code runs: LLVM is asked what it knows.
Read next: `cpu.py`, `driver/llvm.py`.
"""

from __future__ import annotations

import platform
from collections.abc import Iterable, Mapping
from typing import Any

from tilewright.base.concurrency import once
from tilewright.base.errors import TargetError
from tilewright.runtime.drivers import cpu_host
from tilewright.runtime.drivers.cpu_llvm import llvm_library

# Instructions of operating systems, for caches, for random numbers: LLVM uses them only where a
# program names them, and virtual machines often hide them.
_NOT_GENERATED = frozenset(
    (
        "cldemote", "clflushopt", "clwb", "clzero", "enqcmd", "fsgsbase", "hreset", "invpcid", "kl",
        "lwp", "movdir64b", "movdiri", "mwaitx", "pconfig", "pku", "prefetchi", "prfchw", "ptwrite",
        "rdpid", "rdpru", "rdrnd", "rdseed", "rtm", "serialize", "sgx", "shstk", "tsxldtrk",
        "uintr", "usermsr", "waitpkg", "wbnoinvd", "widekl", "xsave", "xsavec", "xsaveopt",
        "xsaves",
    )
)  # fmt: skip
_MODE = "64bit"  # of code, not of a processor; without it LLVM ends the process
_MARKS = str.maketrans("", "", "._-")
# Names of features that Linux calls otherwise.
_SYSTEM_NAMES = {
    "bmi": "bmi1", "crc32": "sse4_2", "lzcnt": "abm", "pclmul": "pclmulqdq",
    "sahf": "lahf_lm", "sha": "sha_ni", "sse3": "pni",
}  # fmt: skip
_OF_ALL = {"x86_64": ("cx8", "fxsr")}  # has each of 64 bits, and none that LLVM does not know


def missing(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Features that this machine lacks of those that an artefact's code was compiled for.

    meta: of the artefact: "needs", or else "triple", "cpu" and "features"
    """
    needs = meta.get("needs")
    if needs is None and "cpu" in meta:
        needs = required(meta["triple"], meta["cpu"], meta["features"])
    has = llvm_library().get_host_cpu_features()
    return tuple(name for name in needs or () if not has.get(name, True))


def missing_here(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """`missing` as Linux tells on x86-64, without LLVM; elsewhere nothing is known to be."""
    flags = {_plain(flag) for flag in cpu_host.flags()}
    if not flags or platform.machine() != "x86_64":
        return ()
    names = meta.get("needs") or ()
    return tuple(n for n in names if _plain(_SYSTEM_NAMES.get(n, n)) not in flags)


def _plain(name: str) -> str:
    """As both write it: LLVM has `sse4.1` and `avx512vnni`, Linux `sse4_1` and `avx512_vnni`."""
    return name.translate(_MARKS)


def lacks(options: Mapping[str, str]) -> tuple[str, ...]:
    """Features that this machine lacks of those that a target's own options ask for."""
    if not options.keys() & {"mcpu", "mattr"}:
        return ()
    llvm = llvm_library()
    cpu, features = options.get("mcpu", "native"), options.get("mattr", "")
    if cpu == "native":
        has = llvm.get_host_cpu_features().flatten()
        cpu, features = llvm.get_host_cpu_name(), ",".join(filter(None, (has, features)))
    return missing({"triple": llvm.get_process_triple(), "cpu": cpu, "features": features})


@once
def required(triple: str, cpu: str, features: str) -> tuple[str, ...] | None:
    """The features that code for these may use; None for another architecture than this machine's.

    Raises TargetError for a processor that LLVM does not know.
    """
    llvm = llvm_library()
    arch = triple.partition("-")[0]
    if arch != llvm.get_process_triple().partition("-")[0]:
        return None
    host = llvm.get_host_cpu_features()
    said = {part[1:]: part[0] == "+" for part in features.split(",") if part}
    names = [n for n in host if n not in _NOT_GENERATED and n != _MODE]
    found = {n for n in names if said.get(n)}
    open_ones = [n for n in names if n not in said]
    if not open_ones:
        return tuple(sorted(found))
    whole = ",".join(filter(None, (f"+{_MODE}" if _MODE in host else "", features)))
    of_all = _OF_ALL.get(arch, ())
    if len(_implied(triple, cpu, whole, of_all)) < len(of_all):
        raise TargetError(
            f"llvm -mcpu={cpu}", f"LLVM knows no 64-bit processor {cpu!r} of {arch}",
            f"Try -mcpu=native, which is {llvm.get_host_cpu_name()} here.",
        )  # fmt: skip
    return tuple(sorted(found.union(_implied(triple, cpu, whole, open_ones))))


def _implied(triple: str, cpu: str, features: str, names: Iterable[str]) -> list[str]:
    """Those of `names` that `features` of `cpu` include.

    LLVM's interface does not list them.  But it inlines a function only where the caller has all
    features of the function, so callers each of which lacks one feature tell.
    """
    llvm, asked = llvm_library(), list(names)

    def attributes(index: int, these: str) -> str:
        pair = f'"target-cpu"="{cpu}" "target-features"="{these}"'
        return f"attributes #{index} = {{ {pair} }}"

    lines = [
        "define internal i32 @all(i32 %x) #0 { %y = mul i32 %x, 77 ret i32 %y }",
        attributes(0, features),
    ]
    for k, name in enumerate(asked, 1):
        without = ",".join(filter(None, (features, f"-{name}")))
        lines += [
            f"define i32 @but{k}(i32 %x) #{k} {{ %y = call i32 @all(i32 %x) ret i32 %y }}",
            attributes(k, without),
        ]
    module = llvm.parse_assembly("\n".join(lines))
    module.triple = triple
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    texts = {k: str(module.get_function(f"but{k}")) for k in range(1, len(asked) + 1)}
    return [name for k, name in enumerate(asked, 1) if "call " in texts[k]]
