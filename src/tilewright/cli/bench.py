"""`tilewright bench`: one network untuned, tuned and in other engines, in one run.

In: the network, a target, the log's records.  Out: a `BenchReport`.  Every engine computes the same
exported, unoptimised graph on the same inputs.  Read next: `tables.py`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from tilewright.cli.tables import BenchReport, KernelLine, Latency
from tilewright.targets.target import Target

if TYPE_CHECKING:
    from tilewright.measure.database import Database

NUMBER, REPEAT = 5, 20
# Of the network's largest output: sqrt(additions) * eps along a path, with room for depth.
TOLERANCE = 1e-4


def bench_network(
    model: str,
    mod: Any,
    params: dict[str, Any],
    target: Target,
    database: Database | None,
    narrow: tuple[str, Any] | None = None,
    layout: str | None = None,
) -> BenchReport:
    """layout: of convolutions, in our own engines only
    narrow: an element type and the network in it, which is timed in place of `mod` and compared
    with it.  Raises ModelError where the network cannot be built for the target.
    """
    from tilewright.graph.evaluate import largest_deviation, rounding_tolerance
    from tilewright.graph.samples import sample_inputs
    from tilewright.models.peers.engines import (
        onnxruntime_benchmark,
        reference,
        torch_benchmark,
    )
    from tilewright.network.build import build
    from tilewright.network.conversion import in_layout
    from tilewright.runtime.device import device
    from tilewright.runtime.network.graph_executor import GraphModule

    dev = device(target.kind)
    inputs = sample_inputs(mod, params)
    expected = reference(mod, params, inputs)
    tolerance = TOLERANCE
    if narrow is not None:
        dtype, converted = narrow
        tolerance += rounding_tolerance(mod, {**params, **inputs}, dtype)
        model, mod, params = f"{model} in {dtype}", converted, {}
    own = in_layout(mod, layout)
    engines = [("untuned", build(own, target, params, schedules=[]))]
    if database is not None:
        engines.append(("tuned", build(own, target, params, schedules=database)))
    latencies, worst = [], 0.0
    for name, library in engines:
        module = GraphModule(library["default"](dev))
        module.run(**inputs)
        for k, want in enumerate(expected.outputs):
            worst = max(worst, largest_deviation(module.get_output(k).numpy(), np.asarray(want)))
        times = module.benchmark(dev, repeat=REPEAT, number=NUMBER)
        counts = ", ".join(f"{n} {source}" for source, n in library.report.sources.items())
        latencies.append(Latency(name, tuple(times.results), f"kernels: {counts}"))
    for peer in (
        onnxruntime_benchmark(mod, params, target, NUMBER, REPEAT),
        torch_benchmark(mod, params, target, NUMBER, REPEAT),
    ):
        seconds = tuple(peer.result.results) if peer.result is not None else ()
        latencies.append(Latency(peer.engine, seconds, peer.note))
    alone = module.profile().fastest
    kernels = [
        KernelLine(k.label, k.count, k.flop, k.source, alone.get(k.name))
        for k in library.report.kernels
    ]
    return BenchReport(
        model, str(target), dev.name, latencies, kernels, worst / tolerance, worst, expected.engine
    )  # fmt: skip
