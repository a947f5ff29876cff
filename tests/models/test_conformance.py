"""What the conformance tests of the `onnx` package give; `conformance.py` says how to add to it."""

import contextlib
import random

import pytest
from onnx import ModelProto, TensorShapeProto

from models.conformance import PASSING, cases, run
from tilewright.base.errors import TilewrightError
from tilewright_tvm.relay.frontend import from_onnx

EXPECTED = frozenset(PASSING.read_text().split())


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_passed_still_passes_and_nothing_is_wrong(part):
    for case in cases()[part::8]:
        outcome = run(case)
        assert outcome.kind not in ("wrong", "crashed"), f"{case.name}: {outcome}"
        assert outcome.kind.startswith("right") or case.name not in EXPECTED, (
            f"{case.name}: {outcome}"
        )


@pytest.mark.slow
def test_the_list_names_tests_that_exist():
    assert {case.name for case in cases()} >= EXPECTED


def of_another_rank(model, rng):
    """`model` with one dimension more or less in one of its inputs, or none at all."""
    changed = ModelProto.FromString(model.SerializeToString())
    for info in changed.graph.output:
        info.type.tensor_type.ClearField("shape")
    dims = rng.choice(changed.graph.input).type.tensor_type.shape.dim
    match rng.choice(("more", "less", "none")):
        case "more":
            dims.insert(rng.randint(0, len(dims)), TensorShapeProto.Dimension(dim_value=2))
        case "less":
            del dims[:1]
        case "none":
            del dims[:]
    return changed


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("part", range(4))
def test_inputs_of_another_rank_are_refused_in_words(part):
    rng = random.Random(part)
    for case in cases()[part::4]:
        if case.name.startswith("test_light") or not case.model.graph.input:
            continue
        with contextlib.suppress(TilewrightError):
            from_onnx(of_another_rank(case.model, rng))
