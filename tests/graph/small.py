"""A residual network small enough to compile in a second, and records for its tasks."""

from __future__ import annotations

from functools import cache

import numpy as np

from tilewright import cpu
from tilewright.graph.expr import Array, IRModule
from tilewright.measure.database import Database
from tilewright.measure.record import Result, make_record
from tilewright.models.zoo import layers
from tilewright.models.zoo.resnet import residual_unit
from tilewright.schedule.task import Task
from tilewright.search.jobs import task_id
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.relay import nn

SHAPE = (1, 3, 12, 12)


@cache
def residual() -> tuple[IRModule, dict[str, Array]]:
    """Three residual units, pooling, a dense layer and softmax; every kind of fused group."""
    data = relay.var("data", shape=SHAPE)
    x = layers.conv2d(data, "conv0", 8, 3, 1, 1)
    x = nn.max_pool2d(nn.relu(layers.batch_norm(x, "bn0")), 3, 2, padding=1)
    x = residual_unit(x, "unit1", 8, 1, False, False, "NCHW")
    x = residual_unit(x, "unit2", 8, 1, False, False, "NCHW")
    x = residual_unit(x, "unit3", 16, 2, True, False, "NCHW")
    x = nn.relu(layers.batch_norm(x, "bn1"))
    x = nn.batch_flatten(nn.global_avg_pool2d(x))
    x = nn.softmax(layers.dense(x, "fc", 10))
    return layers.create_workload(layers.network(data, x), seed=1)


def image(seed: int = 0, shape: tuple[int, ...] = SHAPE) -> Array:
    return np.random.default_rng(seed).standard_normal(shape).astype("float32")


def wanted(mod: IRModule, params: dict[str, Array], data: Array) -> Array:
    """What the network computes, in float64."""
    return relay.evaluate(mod, {**params, "data": data}, "float64")


def close_to_reference(lib: relay.Library) -> None:
    """The library of `residual` computes it."""
    mod, params = residual()
    data = image()
    module = graph_executor.GraphModule(lib["default"](cpu()))
    module.run(data=data)
    assert np.allclose(module.get_output(0).numpy(), wanted(mod, params, data), 1e-4, 1e-5)


def database_of(
    tasks: list[Task], seconds: float = 1e-3, verified: bool = True, seed: int = 0
) -> Database:
    """A legal, random candidate of the first template of each task, as if it had been measured."""
    database = Database()
    rng = np.random.default_rng(seed)
    for task in tasks:
        sketch = task.sketches[0]
        drawn = sketch.space.sample(64, rng)
        index = int(drawn[sketch.legal(drawn)][0])
        database.append(
            make_record(
                task_id(task), Result(costs=(seconds,), verified=verified), origin=sketch.origin,
                decisions={k: e.value for k, e in sketch.space.get(index).items()},
                steps=sketch.close(index).to_json(),
            ),
            task.dag.to_json(),
        )  # fmt: skip
    return database
