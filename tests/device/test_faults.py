"""The planted faults on OpenCL and CUDA, where such a device exists: on CI, OpenCL on the CPU."""

import time

import numpy as np
import pytest

from tilewright.base.artifact import BufferSpec, KernelInfo, Source
from tilewright.measure import (
    Job,
    LocalBuilder,
    LocalRunner,
    Pipeline,
    ReferenceStore,
    TaskId,
)

SIZE, BLOCK, LIMIT = 1024, 64, 3.0
HEADS = {
    "opencl": (
        "__kernel __attribute__((reqd_work_group_size(64, 1, 1)))\n"
        "void twice(__global float* restrict a, __global float* restrict b) {{\n"
        "  int i = get_global_id(0);\n  {body}\n}}"
    ),
    "cuda": (
        'extern "C" __global__ void __launch_bounds__(64)\n'
        "twice(float* __restrict__ a, float* __restrict__ b) {{\n"
        "  int i = blockIdx.x * 64 + threadIdx.x;\n  {body}\n}}"
    ),
}
BODIES = {
    "good": "b[i] = a[i] + a[i];",
    "wrong": "b[i] = a[i] + 1.0f;",
    "overrun": "b[i] = a[i] + a[i]; b[i + 16] = 0.0f;",
    "illegal": "b[i + (1LL << 40)] = a[i];",
    "endless": "while ({atomic}(({space}int*)b, 0) != 12345) { } b[i] = a[i];",
    "refused": "b[i] = no_such_name;",
    "memory": "b[i] = a[i] + a[i];",
    "abort": "__trap();",
    "stack": (
        "volatile float big[1 << 24]; for (int k = 0; k < 1 << 24; k += 64) big[k] = a[i]; "
        "b[i] = big[i * 64];"
    ),
    "output": 'while ({atomic}(({space}int*)b, 0) != 12345) { printf("all is well\\n"); }',
}
ATOMIC_ADD = {"opencl": "atomic_add", "cuda": "atomicAdd"}  # endless loops need a side effect
SPACE = {"opencl": "volatile __global ", "cuda": ""}
ERRORS = {
    "wrong": {"wrong"}, "overrun": {"wrong"}, "illegal": {"run"}, "endless": {"timeout"},
    "refused": {"compile"}, "memory": {"run"},
}  # fmt: skip


def source(kind: str, fault: str, comment: object = "") -> Source:
    """comment: sources that differ in it are different programs to the pipeline"""
    specs = [
        BufferSpec("a", "float32", (SIZE,), "input"), BufferSpec("b", "float32", (SIZE,), "output")
    ]  # fmt: skip
    if fault == "memory":
        specs.append(BufferSpec("w", "float32", (1 << 42,), "workspace"))
    body = BODIES[fault].replace("{atomic}", ATOMIC_ADD[kind]).replace("{space}", SPACE[kind])
    text = f"// {comment}\n" + HEADS[kind].format(body=body)
    info = KernelInfo("twice", (0, 1), (SIZE // BLOCK, 1, 1), (BLOCK, 1, 1))
    return Source(kind, text, "twice", tuple(specs), (info,))


@pytest.mark.slow
def test_each_fault_costs_only_its_candidate(on_device, kind):
    with (
        LocalBuilder(build_func="tilewright.measure.calls:build_source", n_parallel=1) as builder,
        LocalRunner(timeout=LIMIT, number=2, repeat=2) as runner,
        ReferenceStore() as store,
        Pipeline(builder, runner) as pipeline,
    ):
        target = on_device.target.on(runner.describe(on_device.target))
        task = TaskId("twice", [], "d" * 32, str(target))
        a = np.linspace(-3, 3, SIZE, dtype=np.float32)
        reference = store.put("twice", [a], [2.0 * a.astype(np.float64)], [1e-6])
        kinds = ["good", *(k for fault in ERRORS for k in (fault, "good"))]
        jobs = [
            Job(task, {"source": source(kind, k)}, reference, decisions={"k": k}, target=target)
            for k in kinds
        ]
        began = time.monotonic()
        records = list(pipeline.measure(jobs, ahead=4))
        spent = time.monotonic() - began
    for record in records:
        fault, result = record.decisions["k"], record.result
        if fault == "good":
            assert result.error is None and result.verified and result.costs, result.message
        else:
            assert result.error in ERRORS[fault] and not result.costs, (fault, result.message)
            assert result.message
    assert spent < 2 * (LIMIT + 2.0 * len(ERRORS)) + 5.0  # each is tried twice
