"""The process in which changed models are imported, built and run; `models.py` says which.

In: lines `seed index`.  Out: for each, lines of JSON: that it begins; what Tilewright made of it,
with processor seconds and peak bytes; and, if it was built, how its results compare with those of
onnxruntime.  One line by hand shows a single try.
"""

from __future__ import annotations

import json
import sys
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
from onnx.reference import ReferenceEvaluator

import tilewright
from drills._model_mutants import mutant
from tilewright.base.errors import TilewrightError
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor

# For models of strangers: a kernel of the greatest work is verified in some seconds.
LIMITS = relay.frontend.Limits(step=1 << 27, operations=2 * 10**8)
NEAR = {"float16": (2e-2, 2e-2), "bfloat16": (1e-1, 1e-1)}  # relative, absolute


def _forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """Bytes of memory at the worst moment since `_forget_peak`."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) * 1024


def _random_input(rng: np.random.Generator, kind: relay.TensorType) -> Any:
    numbers = rng.standard_normal(kind.shape)
    return (numbers if kind.dtype.is_float else 3 * numbers).astype(kind.dtype.storage)


def _ours(data: bytes) -> tuple[dict[str, Any], list[Any]]:
    """Inputs and results; raises TilewrightError for what is refused."""
    mod, params = relay.frontend.from_onnx(data, limits=LIMITS)
    library = relay.build(mod, "llvm", params=params)
    module = graph_executor.GraphModule(library["default"](tilewright.cpu()))
    rng = np.random.default_rng(0)
    inputs = [p for p in mod["main"].params if p.name_hint not in params]
    given = {p.name_hint: _random_input(rng, p.tensor_type) for p in inputs}
    for name, value in given.items():
        module.set_input(name, value)
    module.run()
    return given, [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def _compared(data: bytes, given: dict[str, Any], found: list[Any]) -> str:
    """What onnxruntime answers counts, or where that differs, what ONNX's own evaluator does: the
    one computes with places that an integer cannot hold, the other takes indices out of range."""
    said = "no reference"
    for reference in (_onnxruntime, _by_definition):
        try:
            onnx.checker.check_model(data, full_check=True)
            wanted = reference(data, given)
        except Exception:  # whatever it says: it has no answer to compare with
            return said
        if not (said := _difference(found, wanted)):
            return "right"
    return said


def _onnxruntime(data: bytes, given: dict[str, Any]) -> list[Any]:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = 1
    return list(onnxruntime.InferenceSession(data, options).run(None, given))


def _by_definition(data: bytes, given: dict[str, Any]) -> list[Any]:
    return list(ReferenceEvaluator(data).run(None, given))


def _difference(found: list[Any], wanted: list[Any]) -> str:
    for ours, theirs in zip(found, wanted, strict=True):
        if ours.shape != theirs.shape or ours.dtype != theirs.dtype:
            return f"wrong: {ours.dtype}{ours.shape}, not {theirs.dtype}{theirs.shape}"
        rtol, atol = NEAR.get(theirs.dtype.name, (2e-3, 1e-4))
        if theirs.dtype.kind in "iub":
            rtol = atol = 0.0
        if not np.allclose(ours, theirs, rtol, atol, equal_nan=True):
            return f"wrong: {ours.ravel()[:8]}, not {theirs.ravel()[:8]}"
    return ""


def _say(**what: Any) -> None:
    print(json.dumps(what), flush=True)


def _try(data: bytes) -> tuple[str, str, dict[str, Any], list[Any]]:
    """What happened, the error, and for "built" also inputs and results."""
    try:
        return "built", "", *_ours(data)
    except TilewrightError as error:
        return "refused", f"{type(error).__name__}: {error}", {}, []
    except BaseException:
        return "foreign exception", traceback.format_exc(), {}, []


def main() -> None:
    warnings.simplefilter("ignore")
    for line in sys.stdin:
        data, done = mutant(*map(int, line.split()))
        _say(done=done)
        _forget_peak()
        began = time.process_time()
        outcome, error, given, found = _try(data)
        _say(outcome=outcome, error=error, seconds=time.process_time() - began, peak=_peak())
        if outcome == "built":
            _say(compared=_compared(data, given, found))


if __name__ == "__main__":
    main()
