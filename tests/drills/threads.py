"""Eight threads call shared modules, modules of their own and shared networks, and build.

Every result is compared, exactly: all values are small whole numbers.  A network that another
thread owns must refuse.  It runs in a process that is ended when it hangs.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import tilewright as tw
from drills._processes import import_path
from drills.drill import Counts, Drill
from tilewright import te
from tilewright.base.errors import DeviceError
from tilewright.runtime import Device, Module, array, cpu, cuda, empty, opencl
from tilewright.runtime.drivers.cpu_native import set_num_threads
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

THREADS = 8
SIZE = 96
SECONDS_PER_TRY = 0.05
Try = Callable[[random.Random], bool]


def module(dev: Device, factor: int) -> Module:
    """`factor` times x in a workspace, then that plus its reverse."""
    with tw.target.Target(dev.device_kind.name):  # each thread has its own
        x = te.placeholder((SIZE,), name="x")
        scaled = te.compute((SIZE,), lambda i: x[i] * float(factor), name="scaled")
        out = te.compute((SIZE,), lambda i: scaled[i] + scaled[SIZE - 1 - i], name="out")
        s = te.create_schedule(out.op)
        for tensor in (scaled, out):
            if dev.kind == "cpu":
                s[tensor].parallel(s[tensor].op.axis[0])
            else:
                outer, inner = s[tensor].split(s[tensor].op.axis[0], factor=32)
                s[tensor].bind(outer, te.thread_axis("blockIdx.x"))
                s[tensor].bind(inner, te.thread_axis("threadIdx.x"))
        return tw.build(s, [x, out])


def call(called: Module, factor: int, rng: random.Random) -> bool:
    x = np.float32([rng.randrange(-99, 99) for _ in range(SIZE)])
    out = empty(SIZE, device=called.device)
    called(array(x, called.device), out)
    return np.array_equal(out.numpy(), factor * (x + x[::-1]))


def network(factor: int = 2) -> relay.Library:
    """`factor` times x, by two kernels: the second reads what the first left in a slot."""
    x = relay.var("x", shape=(4, SIZE))
    product = relay.nn.dense(x, relay.const(np.eye(SIZE, dtype="float32")))
    again = relay.nn.dense(product, relay.const(factor * np.eye(SIZE, dtype="float32")))
    return relay.build(relay.Function([x], again), "llvm", verify=False)


def infer(net: GraphModule, rng: random.Random, factor: int = 2) -> bool:
    x = np.float32(rng.choices(range(-99, 99), k=4 * SIZE)).reshape(4, SIZE)
    net.set_input("x", x)
    net.run()
    return np.array_equal(net.get_output(0).numpy(), factor * x)


def work(tries: int, seed: int) -> Counts:
    set_num_threads(2)
    devices = [d for d in (cpu(), opencl(), cuda()) if d.exist]
    shared = [module(dev, 3) for dev in devices]
    library = network()
    turns, stranger = (GraphModule(library["default"](cpu())) for _ in range(2))
    stranger.run()  # now it belongs to this thread
    begin = threading.Barrier(THREADS)

    def in_turn(rng: random.Random) -> bool:
        with turns:
            return infer(turns, rng)

    def thread(k: int) -> Counts:
        own = module(cpu(), k)
        net = GraphModule(library["default"](cpu()))
        kinds: list[tuple[Try, int]] = [
            *((lambda rng, m=m: call(m, 3, rng), 40) for m in shared),
            (lambda rng: call(own, k, rng), 10),
            (lambda rng: infer(net, rng), 10),
            (in_turn, 10),
            (lambda rng: infer(stranger, rng), 3),
            (lambda rng: call(module(rng.choice(devices), f := rng.randrange(1000)), f, rng), 1),
        ]
        rng, counts = random.Random(f"{seed} {k}"), Counts()
        begin.wait()
        for _ in range(k, tries, THREADS):
            (attempt,) = rng.choices([f for f, _ in kinds], [w for _, w in kinds])
            try:
                counts["right" if attempt(rng) else "wrong"] += 1
            except DeviceError as error:
                if "belongs to thread" not in str(error):
                    raise
                counts["refused"] += 1
        return counts

    with ThreadPoolExecutor(THREADS) as pool:
        return sum(pool.map(thread, range(THREADS)), Counts())


def run(tries: int, seed: int) -> Counts:
    command = [sys.executable, "-c", f"from drills.threads import main; main({tries}, {seed})"]
    try:
        ended = subprocess.run(
            command, capture_output=True, text=True, timeout=60 + tries * SECONDS_PER_TRY,
            env=os.environ | {"PYTHONPATH": import_path()},
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return Counter(hung=tries)
    if ended.returncode:
        print(ended.stderr, file=sys.stderr)
        return Counter(crashed=tries)
    return Counter(json.loads(ended.stdout.splitlines()[-1]))


def main(tries: int, seed: int) -> None:
    print(json.dumps(work(tries, seed)))


DRILL = Drill(
    name="threads",
    tried="calls and builds by 8 threads",
    run=run,
    never=("wrong", "hung", "crashed"),
    always=("right", "refused"),
    short=320,
    long=80_000,
)
