"""The conformance tests of the `onnx` package, run through the importer.

In: models and data that the wheel holds, without the twins that spell an operator as a function.
Out: what happened with each, by name; a table of operators.  `test_conformance.py` compares it with
`conformance_passing.txt`, which may only grow.

PYTHONPATH=src:tests python -m models.conformance [WORD...] [--build [TARGET]] [--part K/N] [--why]
    [--update] [--page]
"""

from __future__ import annotations

import argparse
import contextlib
import io
import re
import sys
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import numpy_helper
from onnx.backend.test.loader import load_model_tests
from onnx.backend.test.runner import Runner

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.graph.expr import IRModule
from tilewright.models.onnx import foreign
from tilewright.models.onnx.ops import DOMAINS
from tilewright.models.onnx.values import WIDER
from tilewright_tvm import relay

KINDS = ("node", "pytorch-converted", "pytorch-operator", "simple")
LIGHT = Path(onnx.__file__).parent / "backend/test/data/light"
PASSING = Path(__file__).parent / "conformance_passing.txt"
PAGE = Path(__file__).parents[2] / "docs" / "onnx.md"
Data = tuple[list[Any], list[Any]]


@dataclass(frozen=True, eq=False)
class Case:
    """
    data: (inputs, outputs) in the order of the graph's, for each run
    """

    name: str
    model: onnx.ModelProto
    data: tuple[Data, ...]
    rtol: float
    atol: float

    @property
    def operators(self) -> tuple[str, ...]:
        """That the model has, in order, each once."""
        return tuple(dict.fromkeys(node.op_type for node in self.model.graph.node))


@dataclass(frozen=True)
class Outcome:
    """
    kind: "right"; "right, widened", where inputs or results are of a type that networks do not
          have, and come in the wider; "right, with constants", where inputs had to be constants
          of the model; "refused", "wrong" or "crashed"
    why:  the error's words, or the difference
    """

    kind: str
    why: str = ""


@cache
def cases() -> tuple[Case, ...]:
    """Every test that has its model and data in the wheel."""
    made = []
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore")
        tests = [test for kind in KINDS for test in load_model_tests(kind=kind)]
    for test in tests:
        if test.name.endswith("_expanded") or "_expanded_" in test.name:
            continue
        folder = Path(test.model_dir or "")
        model = test.model or onnx.load(folder / "model.onnx")
        data = test.data_sets or _data_in(folder, model)
        arrays = tuple((list(map(_array, a)), list(map(_array, b))) for a, b in data)
        made.append(Case(test.name, model, arrays, test.rtol, test.atol))
    return (*made, *_light_cases())


def _data_in(folder: Path, model: onnx.ModelProto) -> list[Data]:
    def values(files: Path, kind: str, infos: Sequence[Any]) -> list[Any]:
        paths = [(files / f"{kind}_{k}.pb", info) for k, info in enumerate(infos)]
        return [_value(path, info) for path, info in paths if path.is_file()]

    return [
        (values(f, "input", model.graph.input), values(f, "output", model.graph.output))
        for f in sorted(folder.glob("test_data_set_*"))
    ]


def _light_cases() -> Iterator[Case]:
    """The zoo: its inputs are what onnx's own runner makes."""
    for path in sorted(LIGHT.glob("*.onnx")):
        model = onnx.load(path)
        held = {weight.name for weight in model.graph.initializer}
        infos = [info for info in model.graph.input if info.name not in held]
        inputs = [
            Runner.generate_dummy_data(info, seed=0, name=path.stem, random=False) for info in infos
        ]
        outputs = [_value(path.with_name(f"{path.stem}_output_0.pb"), model.graph.output[0])]
        yield Case(f"test_{path.stem}", model, ((inputs, outputs),), 1e-3, 1e-5)


def _array(value: Any) -> Any:
    return numpy_helper.to_array(value) if isinstance(value, onnx.TensorProto) else value


def _value(path: Path, info: Any) -> Any:
    data = path.read_bytes()
    if info.type.HasField("sequence_type"):
        return numpy_helper.to_list(onnx.SequenceProto.FromString(data))
    if info.type.HasField("optional_type"):
        return numpy_helper.to_optional(onnx.OptionalProto.FromString(data))
    return numpy_helper.to_array(onnx.TensorProto.FromString(data))


def run(case: Case, build: str = "") -> Outcome:
    """Import one test's model, compute it, compare.

    build: the target to compile for and to run on; "": evaluate with numpy
    """
    try:
        reason = _import_and_compare(case, build)
        right = "right, widened" if _is_narrow(case) else "right"
        return Outcome("wrong", reason) if reason else Outcome(right)
    except ModelError as error:
        refusal = str(error)
    except TilewrightError as error:
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("crashed", f"{type(error).__name__}: {error}")
    if len(case.data) != 1:
        return Outcome("refused", refusal)
    try:
        reason = _import_and_compare(case, build, constants=True)
        return Outcome("wrong", reason) if reason else Outcome("right, with constants")
    except TilewrightError as error:  # what stands against it once constants are there
        return Outcome("refused", str(error))
    except Exception as error:
        return Outcome("crashed", f"{type(error).__name__}: {error}")


def _is_narrow(case: Case) -> bool:
    arrays = [v for data in case.data for part in data for v in part if isinstance(v, np.ndarray)]
    return any(a.dtype.name in WIDER for a in arrays)


def _wide(value: Any) -> Any:
    """`value`, as a network takes and gives it."""
    narrow = isinstance(value, np.ndarray) and value.dtype.name in WIDER
    return value.astype(WIDER[value.dtype.name]) if narrow else value


def _may_be_constant(index: int, value: Any) -> bool:
    """Whether the input at `index` is one that networks have as a constant: a shape, axes, a number
    of copies, a sequence; all but the data."""
    if index > 0 or not isinstance(value, np.ndarray):
        return True
    return value.ndim == 0 or (value.ndim == 1 and value.dtype == "int64")


def _import_and_compare(case: Case, build: str, constants: bool = False) -> str:
    """What differs, empty if nothing.

    constants: inputs that may be constants are given to the import
    """
    held = {weight.name for weight in case.model.graph.initializer}
    for inputs, wanted in case.data:
        infos = case.model.graph.input
        if len(inputs) < len(infos):  # inputs with a default may come without data
            infos = [info for info in infos if info.name not in held]
        pairs = zip(infos, inputs, strict=False)
        given = {i.name: v for i, v in pairs if i.name not in held}
        fixed = {
            name: value for k, (name, value) in enumerate(given.items())
            if constants and _may_be_constant(k, value)
        }  # fmt: skip
        open_ = {name: _wide(value) for name, value in given.items() if name not in fixed}
        shapes = {name: v.shape for name, v in open_.items() if isinstance(v, np.ndarray)}
        mod, params = relay.frontend.from_onnx(case.model, shape=shapes, params=fixed)
        found = _compute(mod, {**open_, **params}, build)
        wanted = [v for value in wanted for v in (value if isinstance(value, list) else [value])]
        for k, (a, b) in enumerate(zip(found, wanted, strict=True)):
            if reason := _difference(a, b, case):
                return f"output {k}: {reason}"
    return ""


def _compute(mod: IRModule, values: dict[str, Any], build: str) -> list[Any]:
    read = {p.name_hint for p in mod["main"].params}
    values = {n: v for n, v in values.items() if n in read}
    if not build:
        found = relay.evaluate(mod, values)
        return list(found) if isinstance(found, tuple) else [found]
    if mod["main"].waits:
        found = relay.create_executor("vm", mod, target=build).evaluate()(**values)
        return [v.numpy() for v in (found if isinstance(found, list) else [found])]
    from tilewright.runtime.device import device
    from tilewright_tvm import nd
    from tilewright_tvm.contrib import graph_executor

    library = relay.build(mod, build, verify=False)
    module = graph_executor.GraphModule(library["default"](device(build.split()[0])))
    for name, value in values.items():
        module.set_input(name, nd.array(np.array(value, order="C")))
    module.run()
    return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]


def _difference(found: Any, wanted: Any, case: Case) -> str:
    """What differs.  Some tests are stricter than their types, and want the roundings of what made
    them: a value may be some roundings off, of itself and one of the largest."""
    if isinstance(wanted, onnx.TensorProto):  # some tests of the wheel hold their data so
        wanted = numpy_helper.to_array(wanted)
    wanted = _wide(wanted)
    found, wanted = np.asarray(found), np.asarray(wanted)
    if found.shape != wanted.shape or found.dtype != wanted.dtype:
        return f"{found.dtype}{found.shape} instead of {wanted.dtype}{wanted.shape}"
    rtol = max(case.rtol, 4 * DType(wanted.dtype).eps)  # a definition may round more than once
    sizes = np.abs(wanted.astype("float64"))
    largest = sizes.max(initial=0, where=np.isfinite(sizes))
    atol = max(case.atol, DType(wanted.dtype).eps * largest)
    try:
        np.testing.assert_allclose(found.astype("float64"), wanted.astype("float64"), rtol, atol)
    except AssertionError as error:
        return " ".join(str(error).split())[:200]
    return ""


def _table(outcomes: dict[Case, Outcome]) -> dict[str, list[Outcome]]:
    """What happened, by operator; a test counts for each that its model has."""
    table: dict[str, list[Outcome]] = {}
    for case, outcome in outcomes.items():
        for name in case.operators:
            table.setdefault(name, []).append(outcome)
    return dict(sorted(table.items()))


def reason(why: str) -> str:
    """A refusal in few words, without the names and numbers of one model."""
    text = " ".join(why.split())
    if found := re.search(r"its element type is (\w+)", text):
        return f"elements of {found[1]}"
    if found := re.search(r"(\S+) \(\d+ nodes?: [^)]*\): (.*)", text):
        told = f"{found[1]}: {found[2]}"
    else:
        told = text.removeprefix("from_onnx: ").split("): ", 1)[-1]
    told = told.split(". ")[0].split(" models.")[0].rstrip(".")
    return told.replace("|", "/")[:100]


def built_before() -> str:
    """How many the page says are right when they are compiled."""
    found = re.search(r"compiled for a CPU ([\d,]+)", PAGE.read_text()) if PAGE.is_file() else None
    return found[1] if found else "0"


def page(outcomes: dict[Case, Outcome], built: str) -> str:
    """docs/onnx.md: what passes, by operator, and why the rest does not.

    built: how many are right when they are compiled
    """
    total = Counter(o.kind for o in outcomes.values())
    plain, fixed = total["right"], total["right, with constants"]
    wide = total["right, widened"]
    passed = plain + fixed + wide
    lines = [
        "# ONNX", "",
        "<!-- Written by python -m models.conformance --page (tests/models/conformance.py). -->",
        "",
        f"Of the {len(outcomes):,} conformance tests of the `onnx` package {onnx.__version__} "
        f"(without the twins that",
        f"spell an operator as a function) {passed:,} pass: {plain:,} as they are, {fixed} "
        "with inputs such as shapes,", "axes or sequences given as constants "
        f"(`from_onnx(params=)`), {wide} with inputs or results",
        "of float8, float4 or integers of 4 or 2 bits in the type that stands for it",
        "(element-types.md). Every other is refused with a reason;",
        f"{total['wrong']} give a wrong result, {total['crashed']} fail in another way. "
        "The tests that pass are listed in", "`tests/models/conformance_passing.txt`, "
        f"which may only grow. Evaluated with numpy they are {passed:,}, compiled for a CPU "
        f"{built} (`--build`).", "",
        "Where values of inputs decide shapes, or what is computed on the way does (`Reshape`, "
        "`Range`, `NonZero`,", "`NonMaxSuppression`, a `Loop` that ends when its data say so), a "
        "model is imported as any other and runs", "under `relay.create_executor(\"vm\", mod)` or "
        "`relay.vm.compile`, which build it for the values of each call and",
        "keep what they built; `relay.build` refuses it and says so.", "",
        "| operator | tests | pass | the others |", "| --- | --- | --- | --- |",
    ]  # fmt: skip
    for name, found in _table(outcomes).items():
        passing = sum(o.kind.startswith("right") for o in found)
        reasons = Counter(reason(o.why) for o in found if not o.kind.startswith("right"))
        told = "; ".join(f"{why} ({n})" for why, n in reasons.most_common(3))
        lines.append(f"| `{name}` | {len(found)} | {passing} | {told} |")
    lines += [
        "", "## Operators of other domains", "",
        "Files that onnxruntime has optimised (up to `ORT_ENABLE_EXTENDED`, or all without the "
        "layout NCHWc)", "and quantised ones have operators of its own. These are imported; each "
        "is compared with", "onnxruntime in `tests/models/test_onnxruntime_operators.py`.", "",
        "| domain | operators |", "| --- | --- |",
    ]  # fmt: skip
    for domain, known in DOMAINS.items():
        names = sorted(known if domain else foreign.ROWS[""])
        told = ", ".join(f"`{name}`" for name in names)
        lines.append(f"| {f'`{domain}`' if domain else 'none, before or beyond ONNX'} | {told} |")
    return "\n".join(lines) + "\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("words", nargs="*", help="only tests with one of these in their name")
    parser.add_argument(
        "--build", nargs="?", const="llvm", default="", metavar="TARGET",
        help="compile and run, for this CPU or a target, instead of evaluating",
    )  # fmt: skip
    parser.add_argument("--part", default="0/1", help="which tests, and of how many parts")
    parser.add_argument("--update", action="store_true", help="add what passes to the list")
    parser.add_argument("--why", action="store_true", help="print why each other test does not")
    parser.add_argument("--page", action="store_true", help=f"write docs/{PAGE.name}, of all tests")
    options = parser.parse_args()
    chosen = [c for c in cases() if not options.words or any(w in c.name for w in options.words)]
    part, parts = map(int, options.part.split("/"))
    outcomes = {c: run(c, options.build) for c in chosen[part::parts]}
    for case, outcome in outcomes.items():
        if options.why and not outcome.kind.startswith("right"):
            print(f"{outcome.kind:8} {case.name}: {' '.join(outcome.why.split())[:300]}")
    for name, found in _table(outcomes).items():
        counts = Counter(o.kind for o in found)
        print(f"{name:28}", ", ".join(f"{n} {kind}" for kind, n in counts.most_common()))
    total = Counter(o.kind for o in outcomes.values())
    print(f"{len(outcomes)} tests:", ", ".join(f"{n} {kind}" for kind, n in total.most_common()))
    if options.page and not options.words:
        right = sum(o.kind.startswith("right") for o in outcomes.values())
        PAGE.write_text(page(outcomes, f"{right:,}" if options.build == "llvm" else built_before()))
    if options.update:
        kept = set(PASSING.read_text().split()) if PASSING.is_file() else set()
        kept |= {c.name for c, o in outcomes.items() if o.kind.startswith("right")}
        PASSING.write_text("\n".join(sorted(kept)) + "\n")
    return 1 if total["wrong"] + total["crashed"] else 0


if __name__ == "__main__":
    sys.exit(main())
