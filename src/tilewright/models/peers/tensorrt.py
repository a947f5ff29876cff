"""A network in TensorRT, as one CUDA graph.

In: a model of ONNX as bytes, inputs.  Out: a function that runs it once.  Only loaded where
TensorRT is installed; memory, stream and graph are those of this package's driver.
Read next: `engines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from tilewright.base.errors import ModelError
from tilewright.graph.expr import Array
from tilewright.runtime.device import device
from tilewright.runtime.ndarray import NDArray, array, empty

_PLACE = "TensorRT"


def runner(model: bytes, inputs: Mapping[str, Array]) -> Callable[[], list[NDArray]]:
    """A function that runs the network once, waits for it, and gives its outputs on the device.

    TF32 is off; other types are those of the model.  Raises ModelError for what TensorRT refuses.
    """
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.ERROR)
    engine = trt.Runtime(logger).deserialize_cuda_engine(_plan(trt, logger, model))
    context = engine.create_execution_context()
    where = device("cuda")
    values = {}
    for k in range(engine.num_io_tensors):
        name = engine.get_tensor_name(k)
        if name in inputs:
            values[name] = array(inputs[name], where)
        else:
            dtype = _TYPES[engine.get_tensor_dtype(name).name]
            values[name] = empty(tuple(engine.get_tensor_shape(name)), dtype, where)
        context.set_tensor_address(name, values[name].memory.pointer)
    driver: Any = where.driver
    driver.enter()
    call = _Call(context)
    call.enqueue(driver.stream)  # what it allocates at its first run cannot be captured
    driver.sync()
    graph = driver.capture([call], 1)

    def run() -> list[NDArray]:
        driver.launch_graph(graph)
        driver.sync()
        return [value for name, value in values.items() if name not in inputs]

    return run


class _Call:
    """A call as the driver captures it."""

    def __init__(self, context: Any) -> None:
        self._context = context

    def enqueue(self, stream: Any) -> None:
        if not self._context.execute_async_v3(int(stream)):
            raise ModelError(_PLACE, "it refuses to run", "See what it printed.")


_TYPES = {
    "FLOAT": "float32", "HALF": "float16", "BF16": "bfloat16", "INT32": "int32", "INT64": "int64",
    "INT8": "int8", "UINT8": "uint8", "BOOL": "bool",
}  # fmt: skip


def _plan(trt: Any, logger: Any, model: bytes) -> Any:
    builder = trt.Builder(logger)
    typed = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED)
    network = builder.create_network(typed)
    parser = trt.OnnxParser(network, logger)
    if not parser.parse(model):
        said = str(parser.get_error(0)) if parser.num_errors else "it cannot be read"
        raise ModelError(_PLACE, said, "Compare with onnxruntime instead.")
    config = builder.create_builder_config()
    config.clear_flag(trt.BuilderFlag.TF32)
    plan = builder.build_serialized_network(network, config)
    if plan is None:
        raise ModelError(_PLACE, "it cannot build the network", "See what it printed.")
    return plan
