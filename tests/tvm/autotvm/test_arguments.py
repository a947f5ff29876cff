"""Arguments of tasks as AutoTVM's workloads have them, and the task of a transformation."""

from __future__ import annotations

import numpy as np
import pytest
from tilewright_tvm.autotvm.task.topi_integration import args_to_workload as also

from tilewright import build, te
from tilewright.base.errors import SpaceError
from tilewright_tvm import autotvm, nd


def test_arguments_of_a_workload_and_back() -> None:
    data = te.placeholder((1, 3, 8, 8), "int8", name="data")
    args = [data, (1, 1), [0, 0], "NCHW", np.int64(3), None]
    told = autotvm.task.serialize_args(args)
    assert told == (("TENSOR", (1, 3, 8, 8), "int8"), (1, 1), (0, 0), "NCHW", 3, None)
    assert hash(told) and autotvm.task.args_to_workload(args) == told
    assert also(args, "conv2d.mine") == ("conv2d.mine", *told)
    tensor, *rest = autotvm.task.deserialize_args(told)
    assert (tensor.shape, tensor.dtype) == (data.shape, "int8") and rest == list(told[1:])
    with pytest.raises(SpaceError, match="args is a"):
        autotvm.task.serialize_args(data)  # type: ignore[arg-type]


def test_a_transformation_is_a_task() -> None:
    data = te.placeholder((1, 4, 5, 5, 8), name="data")
    task = autotvm.task.create("layout_transform", (data, "NCHW8c", "NCHW16c"), "llvm")
    assert task.config_space.range_length == 1 and task.flop == -1
    assert task.workload[1][1] == [1, 4, 5, 5, 8]
    schedule = task.sketches[0].close(0)
    x = np.arange(800, dtype="float32").reshape(1, 4, 5, 5, 8)
    out = nd.empty((1, 2, 5, 5, 16))
    build(schedule, schedule.dag.args, "llvm")(nd.array(x), out)
    wanted = x.reshape(1, 2, 2, 5, 5, 8).transpose(0, 1, 3, 4, 2, 5).reshape(1, 2, 5, 5, 16)
    assert (out.numpy() == wanted).all()
