"""How kernels of a network stand beside each other, where each begins before the one before ends.

In: a network by name, what its weights become; a device.  Out: the time of its launches in one
graph, and without each of its kernels; and for each kernel when its blocks begin, when they are
past the wait, when they end, by the device's clock, from the end of the kernel before: medians over
blocks and launches, and the last block's.  What one kernel gains the next one may lose, so kernels
of a chain are judged here, not one by one.

    PYTHONPATH=src:benchmarks python benchmarks/h200/chain.py llama-1b --weights int4 --cache 256

Results of networks are written apart from what they keep elements of, and inputs are made up.
"""

from __future__ import annotations

import argparse
import ctypes
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from cuda.bindings import driver as cu

import tilewright as tw
from tilewright.base.artifact import Source
from tilewright.driver.nvrtc import build
from tilewright.targets.target import Target

ROUNDS, NUMBER, SKIPPED = 5, 12, 4  # launches that are stamped, less the first and last ones
POINTS = ("begin", "past the wait", "end")
MOST_BLOCKS = 8192
CLOCK = """
#define tw_stamp(k) do { if (threadIdx.x + threadIdx.y + threadIdx.z == 0) { \\
  unsigned long long t_; asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(t_)); \\
  tw_stamps[((blockIdx.z * gridDim.y + blockIdx.y) * gridDim.x + blockIdx.x) * 3 + k] = t_; } \\
} while (0)
"""


@dataclass
class Call:
    """One launch of a kernel, of what its source is; name: in reports"""

    function: Any
    info: Any
    arguments: tuple[int, ...]
    name: str
    source: Source


def checked(result: tuple[Any, ...]) -> Any:
    error, *values = result
    if int(error):
        raise SystemExit(f"the driver reports {error}")
    return values[0] if len(values) == 1 else values


def function(binary: bytes, info: Any) -> Any:
    module = checked(cu.cuModuleLoadData(binary))
    found = checked(cu.cuModuleGetFunction(module, info.name.encode()))
    shared = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    checked(cu.cuFuncSetAttribute(found, shared, info.shared_bytes))
    return found


class Memory:
    """What launches read and write: constants and inputs of small numbers, slots of zeros."""

    def __init__(self, slots: Sequence[int], position: int) -> None:
        self.held: dict[tuple[str, int], int] = {}
        self.slots, self.position = slots, position

    def at(self, operand: Any, buffer: Any) -> int:
        key = operand.kind, operand.index
        if key not in self.held:
            nbytes = math.prod(buffer.shape) * buffer.dtype.bytes
            if operand.kind == "slot":
                made = np.zeros(self.slots[operand.index], "uint8")
            elif str(buffer.dtype) == "int64":
                made = np.full(buffer.shape, self.position, "int64")
            else:
                made = np.random.default_rng(0).integers(0, 60, nbytes, dtype="uint8")
            self.held[key] = int(checked(cu.cuMemAlloc(made.nbytes)))
            checked(cu.cuMemcpyHtoD(self.held[key], made, made.nbytes))
        return self.held[key] + operand.offset


def calls_of(library: Any, position: int) -> list[Call]:
    memory = Memory(library.plan.slot_bytes, position)
    functions: dict[Any, Any] = {}
    calls = []
    for launch in library.plan.launches:
        artifact = library.kernels[launch.kernel]
        for info in artifact.source.kernels:
            key = launch.kernel, info.name
            if key not in functions:
                functions[key] = function(bytes(artifact.binary), info)
            buffers = artifact.source.buffers
            places = [memory.at(launch.operands[k], buffers[k]) for k in info.args]
            name = library.report.kernels[launch.kernel].label
            calls.append(Call(functions[key], info, tuple(places), name, artifact.source))
    return calls


def graph(calls: Sequence[Call], stream: Any) -> Any:
    mode = cu.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    checked(cu.cuStreamBeginCapture(stream, mode))
    for call in calls:
        config = cu.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = call.info.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = call.info.block
        config.sharedMemBytes, config.hStream = call.info.shared_bytes, stream
        early = cu.CUlaunchAttribute()
        early.id = cu.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
        value = cu.CUlaunchAttributeValue()
        value.programmaticStreamSerializationAllowed = 1
        early.value = value
        config.attrs, config.numAttrs = [early], 1
        kinds = (ctypes.c_void_p,) * len(call.arguments)
        checked(cu.cuLaunchKernelEx(config, call.function, (call.arguments, kinds), 0))
    return checked(cu.cuGraphInstantiate(checked(cu.cuStreamEndCapture(stream)), 0))


def microseconds(calls: Sequence[Call], stream: Any) -> float:
    made = graph(calls, stream)
    begin, end = (checked(cu.cuEventCreate(0)) for _ in range(2))
    found = []
    for _ in range(ROUNDS):
        checked(cu.cuGraphLaunch(made, stream))
        checked(cu.cuEventRecord(begin, stream))
        for _ in range(NUMBER):
            checked(cu.cuGraphLaunch(made, stream))
        checked(cu.cuEventRecord(end, stream))
        checked(cu.cuEventSynchronize(end))
        found.append(checked(cu.cuEventElapsedTime(begin, end)) * 1e3 / NUMBER)
    checked(cu.cuGraphExecDestroy(made))
    return float(np.median(found))


def stamped(text: str, name: str) -> str:
    """The kernel with the clock where its blocks begin, have waited, and end."""
    lines = text.split("\n")
    head = next(k for k, line in enumerate(lines) if "__global__" in line and f" {name}(" in line)
    tail = max(k for k, line in enumerate(lines) if line == "}")
    waits = [k for k, line in enumerate(lines) if re.match(r"\s+tw_await_kernel\w*\(\);", line)]
    lines[tail] = "  tw_stamp(2);\n}"
    after = waits[0] if waits else head
    lines[after] += "\n  tw_stamp(1);"
    lines[head] = lines[head].replace(") {", ", unsigned long long* tw_stamps) {")
    lines[head] += "\n  tw_stamp(0);"
    return CLOCK + "\n".join(lines)


def beside(calls: Sequence[Call], stream: Any, target: Target) -> dict[str, list[float]]:
    """Of each kernel: medians of its points, and the end of its last block, in microseconds."""
    room = MOST_BLOCKS * len(POINTS) * 8
    stamps = int(checked(cu.cuMemAlloc(room * len(calls))))
    functions: dict[str, Any] = {}
    own = []
    for k, call in enumerate(calls):
        if call.info.name not in functions:
            source = replace(call.source, text=stamped(call.source.text, call.info.name))
            functions[call.info.name] = function(bytes(build(source, target).binary), call.info)
        arguments = (*call.arguments, stamps + k * room)
        own.append(Call(functions[call.info.name], call.info, arguments, call.name, call.source))
    made = graph(own, stream)
    for _ in range(3):
        checked(cu.cuGraphLaunch(made, stream))
    checked(cu.cuStreamSynchronize(stream))
    raw = np.empty((len(calls), MOST_BLOCKS, len(POINTS)), "uint64")
    checked(cu.cuMemcpyDtoH(raw, stamps, raw.nbytes))
    sizes = [math.prod(call.info.grid) for call in calls]
    ends = [raw[k, :n, 2].max() for k, n in enumerate(sizes)]
    found: dict[str, list[list[float]]] = {}
    for k in range(SKIPPED, len(calls) - SKIPPED):
        times = (raw[k, : sizes[k]].astype("int64") - int(ends[k - 1])) / 1e3
        row = [*np.median(times, axis=0), times[:, 2].max()]
        found.setdefault(calls[k].name, []).append(row)
    return {name: list(np.median(rows, axis=0)) for name, rows in found.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("network")
    parser.add_argument("--weights", default="")
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--cache", type=int, default=256)
    parser.add_argument("--position", type=int, default=128)
    args = parser.parse_args()
    shape = {"tokens": [1], "cache": args.cache}
    network = tw.load(args.network, shape=shape, dtype=args.dtype)
    asked = {"weights": args.weights} if args.weights else {}
    built = tw.compile(network, "cuda", verify=False, **asked)
    checked(cu.cuInit(0))
    context = checked(cu.cuDevicePrimaryCtxRetain(checked(cu.cuDeviceGet(0))))
    checked(cu.cuCtxSetCurrent(context))
    stream = checked(cu.cuStreamCreate(1))
    calls = calls_of(built.library, args.position)
    whole = microseconds(calls, stream)
    points = beside(calls, stream, Target(built.library.target))
    print(f"{len(calls)} launches: {whole:.1f} us")
    words = ("calls", "less us without", *POINTS, "last end", "kernel")
    print("  ".join(f"{word:>15}" for word in words[:-1]) + f"  {words[-1]}")
    for name in dict.fromkeys(call.name for call in calls):
        others = [call for call in calls if call.name != name]
        less = whole - microseconds(others, stream) if others else whole
        row = points.get(name, [math.nan] * 4)
        numbers = [f"{len(calls) - len(others):15d}", *(f"{v:15.2f}" for v in (less, *row))]
        print("  ".join(numbers) + f"  {name[:60]}")


if __name__ == "__main__":
    main()
