"""Which instructions code for a CPU needs, and which of them this machine lacks.

In: a triple, a processor and features as LLVM names them, or the `meta` of an artefact that was
compiled for them.  Out: names of features.  No code runs: LLVM is asked what it knows.
Read next: `cpu.py`, `driver/llvm.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any

from tilewright.base.concurrency import once
from tilewright.base.dtype import INT32
from tilewright.base.errors import TargetError
from tilewright.runtime.drivers import cpu_host
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.runtime.drivers.cpu_names import check_known
from tilewright.targets import processors
from tilewright.targets.limits import AtomRate

if TYPE_CHECKING:
    from tilewright.targets.target import Target

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
_EXAMPLES = {"aarch64": "cortex-a72"}
_MODE = "64bit"  # of code, not of a processor; without it LLVM ends the process
_DOT_LATENCY = 5  # cycles
# Columns of an instruction for bytes -> the ways to have it.
_DOTS = {
    16: (("avx512vnni",),),
    8: (("avxvnni",), ("avx512vnni", "avx512vl")),
    4: (("avxvnni",), ("avx512vnni", "avx512vl")),
}
_MARKS = str.maketrans("", "", "._-")
# What Linux calls otherwise, or by its parts: those of AVX10.1, which adds no instruction.
_SYSTEM_NAMES = {
    "avx10.1": (
        "avx512f", "avx512cd", "avx512bw", "avx512dq", "avx512vl", "avx512vbmi", "avx512vbmi2",
        "avx512ifma", "avx512vnni", "avx512bf16", "avx512fp16", "avx512bitalg", "avx512vpopcntdq",
    ),
    "bmi": ("bmi1",), "crc32": ("sse4_2",), "lzcnt": ("abm",), "pclmul": ("pclmulqdq",),
    "sahf": ("lahf_lm",), "sha": ("sha_ni",), "sse3": ("pni",),
}  # fmt: skip
# What each of 64 bits has, and none that LLVM does not know.
_OF_ALL = {"x86_64": ("cx8", "fxsr"), "aarch64": ("fp-armv8",)}
# Of x86-64, beyond what each has.
_GAINS = (
    "sse4.2", "avx", "f16c", "fma", "avx2", "bmi2", "avx512f", "avx512bw", "avx512dq", "avx512vl",
    "avx512vnni",
)  # fmt: skip
# LLVM's name -> its bit in the two words by which Linux tells a process of the processor, for what
# generated code may use: of ciphers and the like, boards lack what LLVM thinks that they have.
_WORDS = {
    "aarch64": {
        "fp-armv8": 0, "neon": 1, "lse": 8, "fullfp16": 10, "rdm": 12, "complxnum": 14, "rcpc": 15,
        "dotprod": 20, "sve": 22, "fp16fml": 23, "sve2": 33, "i8mm": 45, "bf16": 46, "sme": 55,
    },
    "arm": {
        "vfp2": 6, "neon": 12, "vfp3": 13, "vfp4": 16, "hwdiv-arm": 17, "hwdiv": 18, "d32": 19,
        "dotprod": 24,
    },
}  # fmt: skip


def missing(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """Features that this machine lacks of those that an artefact's code was compiled for.

    meta: of the artefact: "needs", or else "triple", "cpu" and "features"
    """
    needs = meta.get("needs")
    if needs is None and "cpu" in meta:
        needs = required(meta["triple"], meta["cpu"], meta["features"])
    has = llvm_library().get_host_cpu_features()
    return tuple(name for name in needs or () if not has.get(name, True))


def refusal(meta: Mapping[str, Any]) -> str:
    """Why code cannot run here, as Linux tells without LLVM; "" where nothing speaks against it."""
    triple = meta.get("triple", "")
    if processors.elsewhere(triple):
        return f"it was compiled for {triple}, and this is {cpu_host.triple()}"
    if lacks := missing_here(meta):
        return f"it was compiled for a processor with {', '.join(lacks)}, which this one lacks"
    return ""


def missing_here(meta: Mapping[str, Any]) -> tuple[str, ...]:
    """`missing` as Linux tells, without LLVM; where it tells nothing, nothing is known to be."""
    names, arch = meta.get("needs") or (), processors.here()
    if bits := _WORDS.get(arch):
        has = cpu_host.capabilities()
        return tuple(n for n in names if has and n in bits and not has >> bits[n] & 1)
    flags = {_plain(flag) for flag in cpu_host.flags()}
    if not flags or arch != "x86_64":
        return ()
    return tuple(n for n in names if not flags.issuperset(map(_plain, _as_told(n))))


def unfit(meta: Mapping[str, Any], code: Mapping[str, str]) -> str:
    """Why code cannot run on a processor elsewhere; "" where nothing speaks against it.

    meta: of an artefact, as `missing` has it; code: what the processor says of itself, as
    `DeviceSpec.code` has it: features with + and -, or only those with + that `told` knows
    """
    triple, own = meta.get("triple", ""), code.get("mtriple", "")
    arch = processors.architecture(own)
    if not triple or not own:
        return ""
    if processors.architecture(triple) != arch:
        return f"its code is for {triple}, and the device is {own}"
    features = code.get("mattr", "").split(",")
    told = {f[1:] for f in features if f[:1] == "+"}
    lacking = {f[1:] for f in features if f[:1] == "-"} or {*_WORDS.get(arch, _GAINS)} - told
    lacks = [n for n in meta.get("needs") or () if n in lacking] if told else []
    return f"its code needs {', '.join(lacks)}, which the device lacks" if lacks else ""


def told() -> tuple[str, ...]:
    """Features of this processor that code gains by, in LLVM's names, as Linux tells."""
    if bits := _WORDS.get(processors.here()):
        return tuple(n for n, bit in bits.items() if cpu_host.capabilities() >> bit & 1)
    lacking = missing_here({"needs": _GAINS})
    return tuple(n for n in _GAINS if n not in lacking) if cpu_host.flags() else ()


def told_as(triple: str, name: str) -> tuple[int | None, tuple[str, ...]]:
    """How Linux on a processor of this triple tells that it has a feature: by a bit of the two
    words of capabilities, or by flags, here without marks; (None, ()): not at all."""
    arch = processors.architecture(triple)
    if bits := _WORDS.get(arch):
        return bits.get(name), ()
    return None, tuple(map(_plain, _as_told(name))) if arch == "x86_64" else ()


def _as_told(name: str) -> tuple[str, ...]:
    """What Linux says of a feature."""
    return _SYSTEM_NAMES.get(name, (name,))


def _plain(name: str) -> str:
    """As both write it: LLVM has `sse4.1` and `avx512vnni`, Linux `sse4_1` and `avx512_vnni`."""
    return name.translate(_MARKS)


def atoms(target: Target) -> tuple[AtomRate, ...]:
    """List instructions of a target that add up products of bytes."""
    rate = 4 * target.limits.rate(INT32) / target.limits.vector_bytes
    return tuple(
        AtomRate(f"m1n{n}k4.uint8.int8", rate * 4 * n, _DOT_LATENCY)
        for n, ways in _DOTS.items()
        if 4 * n <= target.limits.vector_bytes
        and any(all(has(target, word) for word in way) for way in ways)
    )


def has(target: Target, word: str) -> bool:
    """Tell whether a target's processor has some instructions, by LLVM's name for them."""
    options = dict(target.options)
    code = target.device.code if target.device is not None else None
    own = dict(code) if code else {}
    asked = (options.get(name, "") for name in ("mtriple", "mcpu", "mattr"))
    said = (own.get(name, "") for name in ("mtriple", "mcpu", "mattr"))
    return word in _features(*asked, *said)


@cache
def _features(
    triple: str, cpu: str, more: str, own_triple: str, own_cpu: str, own_features: str
) -> frozenset[str]:
    """Those of a processor that a target names, or a device says it has, or of this machine."""
    llvm = llvm_library()
    here, features = llvm.get_process_triple(), ""
    asked = processors.whole(triple or own_triple or here)
    native = own_triple or here
    if cpu in ("", "native"):
        if processors.architecture(asked) != processors.architecture(native):
            cpu = "generic"
        else:
            cpu = own_cpu or llvm.get_host_cpu_name()
            features = own_features or llvm.get_host_cpu_features().flatten()
    features = ",".join(filter(None, (features, more)))
    return frozenset(required(asked, cpu, features) or ())


def lacks(options: Mapping[str, str]) -> tuple[str, ...]:
    """Features that this machine lacks of those that a target's own options ask for."""
    if not options.keys() & {"mcpu", "mattr"}:
        return ()
    check_known(options)
    llvm = llvm_library()
    cpu, features = options.get("mcpu", "native"), options.get("mattr", "")
    if cpu == "native":
        has = llvm.get_host_cpu_features().flatten()
        cpu, features = llvm.get_host_cpu_name(), ",".join(filter(None, (has, features)))
    return missing({"triple": llvm.get_process_triple(), "cpu": cpu, "features": features})


@once
def required(triple: str, cpu: str, features: str) -> tuple[str, ...] | None:
    """The features that code for these may use; None where their names are not known: of x86-64
    only LLVM on such a machine lists them.

    Raises TargetError for a processor that LLVM does not know.
    """
    llvm = llvm_library()
    arch = processors.architecture(triple)
    host: Mapping[str, Any] = _WORDS.get(arch, {})
    if not host and arch != processors.architecture(llvm.get_process_triple()):
        return None
    host = host or llvm.get_host_cpu_features()
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
            "Leave -mcpu out, or name one that it knows, such as -mcpu="
            + _EXAMPLES.get(arch, llvm.get_host_cpu_name()) + ".",
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
    llvm.initialize_all_targets()  # it may be another architecture, before anything is compiled
    machine = llvm.Target.from_triple(triple).create_target_machine(cpu=cpu, features=features)
    builder = llvm.create_pass_builder(machine, llvm.create_pipeline_tuning_options(speed_level=2))
    builder.getModulePassManager().run(module, builder)
    texts = {k: str(module.get_function(f"but{k}")) for k in range(1, len(asked) + 1)}
    return [name for k, name in enumerate(asked, 1) if "call " in texts[k]]
