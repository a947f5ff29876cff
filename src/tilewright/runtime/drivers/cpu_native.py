"""The native code that a process needs to run CPU kernels: thread pool, replay loop, call thunks.

In: LLVM, which compiles it, or the first shared object that brings it.  Out: `native()`, once a
process.  Read next: `cpu_pool.py` (the pool), `cpu_calls.py` (the replay), `cpu_race_check.py`.
"""

from __future__ import annotations

import ctypes
import platform
from collections.abc import Callable
from itertools import count
from typing import Any

from tilewright.base import environment
from tilewright.base.concurrency import in_forked_child, once
from tilewright.base.errors import DeviceError
from tilewright.runtime.drivers import (
    cpu_calls,
    cpu_host,
    cpu_pool,
    cpu_race_check,
)
from tilewright.runtime.drivers.cpu_llvm import llvm_library
from tilewright.targets import processors

COMMON_ARITY = 8


def default_threads() -> int:
    """TILEWRIGHT_NUM_THREADS, or else the number of cores this process may run on."""
    text = environment.num_threads()
    if text and (not text.isdigit() or int(text) < 1):
        raise DeviceError(
            f"{environment.NUM_THREADS}={text}",
            "it must be a positive integer",
            f"Try {environment.NUM_THREADS}=1, or unset it.",
        )
    threads = int(text) if text else cpu_host.cores()
    return min(threads, cpu_pool.MAX_THREADS)


def set_num_threads(threads: int, spin_ns: int = cpu_pool.SPIN_NS) -> None:
    """Use `threads` threads in the parallel loops of this process from now on.

    spin_ns: that an idle worker polls for work before it sleeps, less on a busy machine; a sleeping
    one takes some 50 us to wake
    """
    if not 1 <= threads <= cpu_pool.MAX_THREADS:
        raise DeviceError(
            f"set_num_threads({threads})", f"it must be in 1..{cpu_pool.MAX_THREADS}",
            f"Try set_num_threads({cpu_host.cores()}).",
        )  # fmt: skip
    native().limit(threads)
    native().spin(spin_ns)


def code_model(machine: str) -> str:
    """LLVM's code model for code that MCJIT loads, by the architecture's name in a triple.

    x86-64's small model has 2 GiB offsets between sections and to what they call, and MCJIT does
    not promise to put them that near; elsewhere MCJIT reserves one block for them.
    """
    return "large" if processors.architecture(machine) == "x86_64" else "small"


def engine(text: str) -> Any:
    """An MCJIT engine holding the code of `text`, ready to be asked for addresses."""
    llvm = llvm_library()
    module = llvm.parse_assembly(text)
    machine = llvm.Target.from_default_triple().create_target_machine(
        opt=2, reloc="pic", codemodel=code_model(platform.machine()), jit=True
    )
    made = llvm.create_mcjit_compiler(module, machine)
    made.finalize_object()
    return made


def native_ir(arity: int, triple: str) -> str:
    """LLVM IR of what kernels and plans need of the process; thunks for up to `arity` arguments."""
    bits = 32 if processors.architecture(triple) == "arm" else 64
    parts = [cpu_pool.pool_ir(triple), cpu_race_check.DISPATCH_IR, cpu_calls.replay_ir(bits)]
    return "\n".join([*parts, *(cpu_calls.thunk_ir(n) for n in range(1, arity + 1))])


def _compiled() -> Callable[[str], int]:
    """The addresses of `native_ir`, compiled here."""
    made = engine(native_ir(COMMON_ARITY, llvm_library().get_process_triple()))
    names = ("parallel", "replay", "pool_limit", "pool_spin", "pool_reset")
    found = {"tilewright_instead": made.get_global_value_address("tilewright_instead")}
    for name in (*names, *(f"call_{n}" for n in range(1, COMMON_ARITY + 1))):
        found[f"tilewright_{name}"] = made.get_function_address(f"tilewright_{name}")
    made.detach()  # workers run in this code until the process ends: never free it
    llvm_library().add_symbol("tilewright_parallel", found["tilewright_parallel"])
    return found.__getitem__


class Native:
    """The process's own native code: the pool, the replay loop, the call thunks.

    address: of a name in `native_ir`
    """

    def __init__(self, address: Callable[[str], int]) -> None:
        self.parallel, self.instead = address("tilewright_parallel"), address("tilewright_instead")
        self.replay = ctypes.CFUNCTYPE(
            ctypes.c_int64, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64
        )(address("tilewright_replay"))
        self.limit = ctypes.CFUNCTYPE(None, ctypes.c_int32)(address("tilewright_pool_limit"))
        self.spin = ctypes.CFUNCTYPE(None, ctypes.c_int64)(address("tilewright_pool_spin"))
        self.reset = ctypes.CFUNCTYPE(None)(address("tilewright_pool_reset"))
        self._thunks = {n: address(f"tilewright_call_{n}") for n in range(1, COMMON_ARITY + 1)}
        self._engines: list[Any] = []
        self.reset()
        self.limit(default_threads())
        in_forked_child(self.reset)

    def thunk(self, arity: int) -> int:
        """The address of the code that calls a kernel of `arity` arguments."""
        if arity not in self._thunks:
            made = engine(cpu_calls.thunk_ir(arity))
            self._engines.append(made)
            self._thunks[arity] = made.get_function_address(f"tilewright_call_{arity}")
        return int(self._thunks[arity])

    def adopt(self, address: Callable[[str], int]) -> bool:
        """Take the thunks that a shared object has for more arguments; whether there were any."""
        found: dict[int, int] = {}
        for n in count(COMMON_ARITY + 1):
            if not (at := address(f"tilewright_call_{n}")):
                break
            if n not in self._thunks:
                found[n] = at
        self._thunks |= found
        return bool(found)


_BROUGHT: list[Callable[[str], int]] = []  # the first shared object's, before anything else


@once
def native() -> Native:
    """Return that of this process, made when it is first needed."""
    return Native(_BROUGHT[0] if _BROUGHT else _compiled())


def join_pool(address: Callable[[str], int]) -> bool:
    """Loops of a shared object that brings `native_ir` run on the one pool of this process, which
    is its own where there was none.  Returns whether it must stay loaded.

    address: of a name in it
    """
    if not _BROUGHT:
        _BROUGHT.append(address)
    own = native()
    brings_pool = address("tilewright_parallel") == own.parallel
    if not brings_pool:
        ctypes.c_void_p.from_address(address("tilewright_instead")).value = own.parallel
    return own.adopt(address) or brings_pool
