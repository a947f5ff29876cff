"""Networks that nobody tuned here: seconds from import to the first run, and how fast they are.

In: names of networks.  Out: a row for each, in a fresh process with an empty cache, with what ships
as knowledge and without; `results/first_run_TARGET.json`.

    PYTHONPATH=src python benchmarks/bench_first_run.py resnet-18-v1 mobilenet --target cuda --keep
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time

import results_file

_CHILD = "--one"


def one(model: str, kind: str) -> None:
    """Print the row of a network; the clock starts before Tilewright is imported."""
    began = time.perf_counter()
    from tilewright.graph.samples import sample_inputs
    from tilewright.models.networks import load as load_model
    from tilewright.network.build import build
    from tilewright.network.tune import as_described
    from tilewright.runtime.device import device
    from tilewright.runtime.network.graph_executor import GraphModule
    from tilewright.targets.target import Target

    target = as_described(Target(kind))
    mod, params = load_model(model)
    loaded = time.perf_counter()
    library = build(mod, target, params)
    built = time.perf_counter()
    on = device(target.kind)
    module = GraphModule(library["default"](on))
    module.run(**sample_inputs(mod, params))
    module.get_output(0).numpy()
    ran = time.perf_counter()
    timed = module.benchmark(on, repeat=10, number=50, min_repeat_ms=20)
    row = {
        "network": model,
        "load_s": round(loaded - began, 2), "build_s": round(built - loaded, 2),
        "first_run_s": round(ran - began, 2), "median_us": round(timed.median * 1e6, 1),
        "kernels": ", ".join(f"{n} {source}" for source, n in library.report.sources.items()),
        "device": on.name,
    }  # fmt: skip
    print(json.dumps(row))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("models", nargs="+")
    parser.add_argument("--target", default="llvm")
    parser.add_argument("--keep", action="store_true", help="write the results down")
    parser.add_argument(_CHILD, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        one(options.models[0], options.target)
        return
    rows = []
    for model in options.models:
        for knowledge in ("", "off"):
            with tempfile.TemporaryDirectory() as cache:
                said = {"TILEWRIGHT_CACHE": cache, "TILEWRIGHT_KNOWLEDGE": knowledge}
                command = [sys.executable, __file__, model, "--target", options.target, _CHILD]
                done = subprocess.run(
                    command, env=os.environ | said, capture_output=True, text=True, check=True
                )
            rows.append({"knowledge": knowledge or "ships", **json.loads(done.stdout)})
    name = rows[0]["device"]
    for row in rows:
        del row["device"]
    print(results_file.table(rows))
    if options.keep:
        results_file.append(f"first_run_{options.target.split()[0]}", rows, name)


if __name__ == "__main__":
    main()
