"""`tilewright bench`: one network untuned, tuned and in other engines, in one run.

In: the network, a target, the log's records.  Out: a `BenchReport`.  Every engine computes the same
exported, unoptimised graph on the same inputs.  Read next: `tables.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from tilewright.base.errors import named
from tilewright.cli.tables import BenchReport, KernelLine, Latency
from tilewright.runtime.network.profile import layers_text

if TYPE_CHECKING:
    from tilewright.farm.address import Devices
    from tilewright.front import Network
    from tilewright.measure.database import Database
    from tilewright.runtime.network.profile import Profile
    from tilewright.runtime.network.report import BuildReport
    from tilewright.schedule.task import Task
    from tilewright.targets.target import Target

NUMBER, REPEAT = 5, 20
# Of the network's largest output: sqrt(additions) * eps along a path, with room for depth.
TOLERANCE = 1e-4


def bench_network(
    net: Network,
    target: Target,
    database: Database | None,
    dtype: str = "float32",
    layout: str | None = None,
    weights: str | None = None,
) -> BenchReport:
    """Time a network for one set of input shapes.

    database: its best records; None: untuned only
    dtype:  the network in it is timed, and compared with what it computes as it is
    layout: of convolutions, in our own engines only
    weights: of dense layers, likewise: what they compute is compared with numpy on the same weights
    Raises ModelError where the network cannot be built for the target.
    """
    from tilewright import front
    from tilewright.graph.evaluate import largest_deviation, rounding_tolerance
    from tilewright.graph.samples import sample_inputs
    from tilewright.models.peers.engines import peer_times, reference
    from tilewright.network.conversion import in_layout
    from tilewright.network.narrow import packed_outputs
    from tilewright.runtime.device import local_target

    net = replace(net, states={}, bounds={})  # inputs and results to peers, which know no states
    (mod,), params = net.modules, dict(net.params)
    inputs = sample_inputs(mod, params)
    expected = reference(mod, params, inputs)
    tolerance, title = TOLERANCE, net.name
    if target.precision == "tf32":  # whose operands have the digits of float16
        tolerance += rounding_tolerance(mod, {**params, **inputs}, "float16")
    if dtype != "float32":
        tolerance += rounding_tolerance(mod, {**params, **inputs}, dtype)
        net, title = net.in_type(dtype), f"{title} in {dtype}"
        (mod,), params = net.modules, {}
    net, wanted = replace(net, modules=(in_layout(mod, layout),)), expected.outputs
    if weights is not None:
        net = net.with_weights(weights)
        wanted = packed_outputs(
            net.modules[0], params, inputs, local_target(target)[0], net.groupings
        )
        title = f"{title}, {weights}"
    engines = [("untuned", front.compile(net, target, []))]
    if database is not None:
        engines.append(("tuned", front.compile(net, target, database)))
    latencies, worst = [], 0.0
    for name, run in engines:
        computed = run(inputs)
        for found, want in zip(
            computed if isinstance(computed, tuple) else (computed,), wanted, strict=True
        ):
            worst = max(worst, largest_deviation(found, np.asarray(want)))
        with named(title, f"benchmark({run.device}, 'run')"):
            times = run.benchmark(inputs, repeat=REPEAT, number=NUMBER)
        counts = ", ".join(f"{n} {source}" for source, n in run.report.sources.items())
        latencies.append(Latency(name, tuple(times.results), f"kernels: {counts}"))
    for peer in peer_times(mod, params, target, NUMBER, REPEAT):
        seconds = tuple(peer.result.results) if peer.result is not None else ()
        latencies.append(Latency(peer.engine, seconds, peer.note))
    profile = run.profile(inputs)
    alone = {k.first.name: k.seconds / k.calls for k in profile.kernels}
    return BenchReport(
        title, str(target), run.device.name, latencies, kernel_lines(profile, run.report),
        worst / tolerance, worst, expected.engine if weights is None else "numpy", net,
        {k.group: (alone.get(k.name), k.source) for k in run.report.kernels}, run.report.accuracy,
        movement_lines(profile, run.report),
    )  # fmt: skip


def bench_task(task: Task, database: Database | None, title: str) -> BenchReport:
    """Time one computation, untuned and with the best that `database` has, and compare both with
    the reference in double precision."""
    from tilewright import front
    from tilewright.te.cases import cases

    case, *_ = cases(task.dag, 0, {}, task.target.precision)
    engines = [("untuned", front.compile(task, log=[]))]
    if database is not None:
        engines.append(("tuned", front.compile(task, log=database)))
    latencies, worst, beyond = [], 0.0, 0.0
    for name, run in engines:
        computed = run(*case.inputs)
        for found, want, slack in zip(
            computed if isinstance(computed, tuple) else (computed,), case.expected, case.tolerance,
            strict=True,
        ):  # fmt: skip
            off = np.abs(np.asarray(found, np.float64) - np.asarray(want, np.float64))
            largest = float(np.max(np.abs(want), initial=0.0))
            worst = max(worst, float(np.max(off, initial=0.0)) / (largest or 1.0))
            share = np.divide(off, slack, out=np.where(off > 0, np.inf, 0.0), where=slack > 0)
            beyond = max(beyond, float(np.max(share, initial=0.0)))
        times = run.benchmark(*case.inputs, repeat=REPEAT, number=NUMBER)
        source = ", ".join(run.report.sources)
        latencies.append(Latency(name, tuple(times.results), f"kernel: {source}"))
    profile = run.profile(*case.inputs)
    return BenchReport(
        title, str(task.target), run.device.name, latencies, kernel_lines(profile, run.report),
        beyond, worst, "the reference",
    )  # fmt: skip


def movement_lines(profile: Profile, report: BuildReport) -> list[str]:
    """Say what part of the kernels' time goes to those that only move elements, and which they are;
    nothing where there is none."""
    told = report.moved_told()
    if not told:
        return []
    labels = {row.label for row in report.moved}
    whole = sum(k.seconds for k in profile.kernels)
    part = sum(k.seconds for k in profile.kernels if k.first.label in labels)
    return [
        f"{part / whole:.1%} of the time of kernels: {told[0]}" if whole else told[0],
        *told[1:],
    ]


def kernel_lines(profile: Profile, report: BuildReport) -> list[KernelLine]:
    """Give a line for each kernel, those that take longest first, and for what they leave of a run:
    they add up to the last, the run."""
    sources = {k.name: k.source for k in report.kernels}
    lines = [
        KernelLine(
            k.first.label, k.calls, k.first.flop, sources[k.first.name], k.seconds / k.calls,
            profile.share(k.seconds), layers_text(k.layers), k.of_peak,
        )
        for k in profile.kernels
    ]  # fmt: skip
    rest = KernelLine(profile.rest_told, 0, 0.0, "", profile.rest, profile.share(profile.rest))
    whole = KernelLine("a run", 0, 0.0, "", profile.seconds, profile.share(profile.seconds))
    return [*lines, rest, whole]


def bench_there(net: Network, target: Target, log: Path | None, farm: Devices) -> Iterator[str]:
    """Build the network here, run it on a device of the farm, and tell how long it takes there,
    for each of its sizes.

    Inputs are drawn at random, of integers zeros.  Raises DeviceError without a free device.
    """
    import tempfile

    from tilewright import front
    from tilewright.farm.network_there import network_there
    from tilewright.runtime.network.archives import complete

    library = front.compile(net, target, None if log is None else [log]).library
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "network.tar")
        library.export_library(path)
        with network_there(farm, path, str(target.kind)) as (module, device):
            yield f"{library!r} on {device}"
            for plan in library.plans:
                module.run(**complete({}, plan.inputs, "random", f"bench {net.name!r}"))
                if len(library.plans) > 1:
                    yield ", ".join(map(str, plan.inputs))
                yield str(module.benchmark(device, repeat=5, min_repeat_ms=100))
