"""Functions that worker processes run in the tests: good, slow, crashing, hanging."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import threading
import time

import numpy as np

from tilewright.base.errors import DeviceError, ScheduleError
from tilewright.measure import calls

_warm = False


def echo(value):
    return value


def pid():
    return os.getpid()


def pid_after(seconds):
    time.sleep(seconds)
    return os.getpid()


def prints():
    print("to standard output")
    os.write(1, b"straight to the descriptor\n")
    return "printed"


def raises():
    raise KeyError("stage")


def refuses():
    raise ScheduleError("split", "no such axis", "Try i.")


def gives_a_lock():
    return threading.Lock()


def crashes():
    os.write(2, b"LLVM ERROR: no registers left\n")
    os.abort()


def exits(code):
    os._exit(code)


def killed():
    os.kill(os.getpid(), signal.SIGKILL)


def killed_some_times(folder, times, name, *args):
    """Killed in that many calls, each in a process of its own; then `calls.NAME(*args)`."""
    if len(os.listdir(folder)) < times:
        os.close(os.open(os.path.join(folder, str(os.getpid())), os.O_CREAT))
        killed()
    return getattr(calls, name)(*args)


def sleeps():
    time.sleep(60)


def spins_in_native_code():
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    module = binding.parse_assembly(
        "define void @f(ptr %p) {\nentry:\n br label %l\nl:\n"
        " store volatile i32 0, ptr %p\n br label %l\n}"
    )
    machine = binding.Target.from_default_triple().create_target_machine()
    engine = binding.create_mcjit_compiler(module, machine)
    engine.finalize_object()
    buffer = ctypes.create_string_buffer(64)
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p)(engine.get_function_address("f"))
    function(ctypes.addressof(buffer))


def stops_itself():
    os.kill(os.getpid(), signal.SIGSTOP)
    time.sleep(60)


def dies_soon():
    threading.Timer(0.1, lambda: os._exit(9)).start()
    return os.getpid()


def takes_memory(size):
    return int(np.ones(size, np.uint8).size)


def open_device_if(path):
    """What a worker runs first where a device may be lost: the file says what became of it."""
    with open(path) as f:
        state = f.read()
    if state == "dead":  # the driver brings its process down
        os._exit(7)
    if state == "gone":
        from tilewright.runtime.drivers import cpu

        def open_device(index):
            raise DeviceError("cpu(0)", "it fell off the bus", "Reboot.")

        cpu.open_device = open_device


def warm():
    global _warm
    _warm = "numpy" in sys.modules


def is_warm():
    return _warm


def shouts():
    """Endless output, as a kernel that prints may make."""
    while True:
        os.write(2, b"x" * 65536)
