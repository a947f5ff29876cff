"""Object files of kernels to a shared object, for this machine or another one.

In: artefacts whose binaries are object files of one triple.  Out: a shared object with their code
and the native code that a process needs to run it.  For another machine the linker is that of the
package `ziglang` (the extra `cross`): no toolchain is needed.
Read next: `c_interface.py`, `runtime/drivers/cpu_shared.py`, which loads it.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
import struct
import subprocess
import tempfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from tilewright.base.artifact import Artifact
from tilewright.base.concurrency import once
from tilewright.base.errors import ModelError
from tilewright.base.extras import install
from tilewright.driver.llvm import target_machine
from tilewright.runtime.drivers import cpu_native, cpu_shared
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.targets import processors

_SECONDS = 120.0
INSTALL = install("cross")
_FLAGS_AT, _HARD_FLOAT = 0x24, 0x5000400  # of a 32-bit ELF header; version 5, floats in registers


def link_bytes(
    artifacts: Sequence[Artifact], triple: str, place: str, cc: str | None = None,
    more: Sequence[bytes] = (),
) -> bytes:  # fmt: skip
    """The shared object, with more object files in it: then calls inside it stay inside, and it
    stays loaded, as threads that it started run in it.

    cc: a C compiler that links for the triple; default: `cc` for this machine, where there is one,
        else the linker of `ziglang`
    Raises ModelError without a linker, or where it refuses.
    """
    command, libraries, mark = _linker(triple, cc, place)
    with tempfile.TemporaryDirectory(prefix="tilewright-") as folder:
        path = os.path.join(folder, "made.so")
        objects = [*more, *dict.fromkeys(a.binary for a in artifacts)]
        if artifacts or not more:
            arity = max(
                [cpu_native.COMMON_ARITY]
                + [len(k.args) for a in artifacts for k in a.source.kernels]
            )  # fmt: skip
            objects.insert(0, _native_object(arity, triple))
        names = []
        for k, binary in enumerate(objects):
            names.append(os.path.join(folder, f"{k}.o"))
            Path(names[-1]).write_bytes(binary)
        flags = [mark + "-Bsymbolic", mark + "-znodelete"] if more else []
        whole = [*command, "-shared", *flags, "-o", path, *names, *libraries]
        done = run(whole, place)
        if done.returncode:
            raise ModelError(
                place, f"{command[0]} could not link it: {done.stderr.strip()[-1000:]}",
                "Name a file that ends in .tar instead.",
            )  # fmt: skip
        if processors.architecture(triple) == "arm" and triple.endswith("hf"):
            _mark_hard_float(path)
        return Path(path).read_bytes()


def run(command: Sequence[str], place: str) -> subprocess.CompletedProcess[str]:
    """Run a compiler or linker to its end.  Raises ModelError where it does not start."""
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=_SECONDS)
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ModelError(
            place, f"a shared object needs a linker, and {command[0]!r} does not run ({error})",
            f"Try {INSTALL}, name a C compiler with cc=, or a file that ends in .tar.",
            command=f"Try {INSTALL}, or name a file that ends in .tar.",
        ) from None  # fmt: skip


def compiler(triple: str, cc: str | None, place: str, folder: str) -> list[str]:
    """A command that compiles C for the triple, to be followed by options as of gcc and clang.

    folder: for files of the compiler's own, where nothing else need be writable
    Raises ModelError where there is none.
    """
    command, _, mark = _linker(triple, cc, place)
    if mark:  # a C compiler links
        return command
    system = triple.rpartition("-")[2]
    libc = system if system.startswith(("gnu", "musl")) else "gnu"
    cache = [f"ZIG_{what}_CACHE_DIR={folder}/zig" for what in ("LOCAL", "GLOBAL")]
    return [
        "env", *cache, command[0], "cc", "-target",
        f"{processors.architecture(triple)}-linux-{libc}", "-fno-sanitize=undefined",
    ]  # fmt: skip


def has_toolchain(triple: str) -> bool:
    """Whether there is something that compiles and links for the triple."""
    own = not processors.elsewhere(triple) and shutil.which("cc") is not None
    return own or importlib.util.find_spec("ziglang") is not None


def triple_of(artifacts: Sequence[Artifact], otherwise: str = "") -> str:
    """The triple of object files; where there are none, or it is not known, another, at last this
    process's."""
    known = next((a.meta["triple"] for a in artifacts if "triple" in a.meta), otherwise)
    return processors.whole(known or llvm_library().get_process_triple())


def linked(artifact: Artifact) -> Artifact:
    """The artefact with a shared object in place of its object file, for devices without LLVM.

    Raises ModelError without a linker.
    """
    place = f"link {artifact.source.entry_name}"
    return replace(artifact, binary=link_bytes([artifact], triple_of([artifact]), place))


def for_boards(artifact: Artifact, has_llvm: bool) -> Artifact:
    """Link what is sent to a device where it is for another processor, or for who has no LLVM."""
    is_object = artifact.binary and not cpu_shared.is_shared(artifact.binary)
    foreign = processors.elsewhere(artifact.meta.get("triple", ""))
    return linked(artifact) if is_object and (foreign or not has_llvm) else artifact


def _linker(triple: str, cc: str | None, place: str) -> tuple[list[str], list[str], str]:
    """The command, the libraries that it names, and what marks its options as the linker's."""
    own = not processors.elsewhere(triple)
    if cc is None and own:
        cc = shutil.which("cc")
    if cc is not None:
        return [cc], ["-lm", "-lpthread", "-ldl"], "-Wl,"
    found = importlib.util.find_spec("ziglang")
    if found is None or found.origin is None:
        raise ModelError(
            place, f"a shared object for {triple} needs a linker, and there is none",
            f"Try {INSTALL}, name a C compiler for it with cc=, or a file that ends in .tar.",
            command=f"Try {INSTALL}, or name a file that ends in .tar.",
        )  # fmt: skip
    return [str(Path(found.origin).with_name("zig")), "ld.lld"], [], ""


def _mark_hard_float(path: str) -> None:
    """lld says of ARM's objects that floats go in integer registers; loaders refuse such a file."""
    with open(path, "r+b") as file:
        file.seek(_FLAGS_AT)
        file.write(struct.pack("<I", _HARD_FLOAT))


@once
def _native_object(arity: int, triple: str) -> bytes:
    """`cpu_native.native_ir` for any processor of the triple's architecture, as an object file."""
    machine = target_machine(triple, "", "")
    module = llvm_library().parse_assembly(cpu_native.native_ir(arity, triple))
    module.triple, module.data_layout = triple, str(machine.target_data)
    return bytes(machine.emit_object(module))
