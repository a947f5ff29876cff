"""A network in OpenVINO, on the CPU.

In: a model of ONNX as bytes, inputs.  Out: a function that runs it once.  Only loaded where
OpenVINO is installed.  Read next: `engines.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np

from tilewright.graph.expr import Array


def runner(model: bytes, inputs: Mapping[str, Array], threads: int) -> Callable[[], Any]:
    """A function that runs the network once, waits for it, and gives OpenVINO's dict of outputs.

    Products of float32 are in float32 on processors, too, that have units for bfloat16.
    """
    import openvino

    core = openvino.Core()
    compiled = core.compile_model(
        core.read_model(model),
        "CPU",
        {
            "PERFORMANCE_HINT": "LATENCY",
            "INFERENCE_NUM_THREADS": threads,
            "EXECUTION_MODE_HINT": "ACCURACY",
        },
    )
    request = compiled.create_infer_request()
    for wanted in compiled.inputs:
        given = np.ascontiguousarray(inputs[wanted.any_name])
        request.set_tensor(wanted.any_name, openvino.Tensor(given, shared_memory=True))
    return partial(request.infer, share_outputs=True)
