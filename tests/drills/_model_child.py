"""The process in which changed models are imported, built and run: `models.py` says what to try.

In: lines `seed index`.  Out: for each, lines of JSON: what Tilewright made of it, with processor
seconds and peak bytes; then, unless it was refused, how that compares with onnxruntime.
"""

from __future__ import annotations

import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np

from drills._model_mutants import mutant
import tilewright
from tilewright import relay
from tilewright.base.errors import TilewrightError
from tilewright.contrib import graph_executor

warnings.simplefilter("ignore")


def _peak() -> int:
    """Bytes of memory at the worst moment since `_forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _random_input(rng: np.random.Generator, shape: tuple[int, ...], dtype: str) -> Any:
    return (rng.standard_normal(shape) * (3 if dtype.startswith(("int", "uint")) else 1)).astype(
        dtype
    )


def _ours(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    """Inputs and results; raises TilewrightError for what is refused."""
    mod, params = relay.frontend.from_onnx(data)
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    rng = np.random.default_rng(0)
    free = [p for p in mod["main"].params if p.name_hint not in params]
    given = {p.name_hint: _random_input(rng, p.shape, str(p.dtype)) for p in free}
    for name, value in given.items():
        module.set_input(name, value)
    module.run()
    return given, [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def _compared(data: bytes, given: dict[str, Any], found: list[Any]) -> str:
    import onnx
    import onnxruntime

    try:
        onnx.checker.check_model(data, full_check=True)
        options = onnxruntime.SessionOptions()
        options.log_severity_level = 4
        options.intra_op_num_threads = 1
        session = onnxruntime.InferenceSession(data, options)
        wanted = session.run(None, given)
    except Exception:
        return "no reference"
    for ours, theirs in zip(found, wanted, strict=True):
        exact = not np.issubdtype(theirs.dtype, np.floating)
        wide = theirs.dtype == np.float16
        near = {"rtol": 2e-2, "atol": 2e-2} if wide else {"rtol": 2e-3, "atol": 1e-4}
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"wrong: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        same = np.array_equal(ours, theirs) if exact else np.allclose(
            ours, theirs, equal_nan=True, **near
        )
        if not same:
            return f"wrong: by {np.nanmax(np.abs(ours.astype('f8') - theirs.astype('f8')))}"
    return "right"


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


import faulthandler


def main() -> None:
    for line in sys.stdin:
        seed, index = map(int, line.split())
        data, done = mutant(seed, index)
        _forget_peak()
        given, found = None, []
        began = time.process_time()
        faulthandler.dump_traceback_later(12, file=sys.stderr)
        _say(began=True, done=done)
        try:
            given, found = _ours(data)
            outcome, text = "built", ""
        except TilewrightError as error:
            outcome, text = "refused", f"{type(error).__name__}: {error}"
        except BaseException as error:
            import traceback

            outcome = "foreign exception"
            text = f"{type(error).__name__}: {error}" + "".join(traceback.format_tb(error.__traceback__)[-4:])
        _say(
            outcome=outcome, seconds=time.process_time() - began, peak=_peak(), text=text[-3000:]
        )
        faulthandler.cancel_dump_traceback_later()
        if given is not None:
            _say(compared=_compared(data, given, found))


if __name__ == "__main__":
    main()
