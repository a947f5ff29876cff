"""What the conformance tests of the `onnx` package give; `conformance.py` says how to add to it."""

import pytest

from relay.conformance import PASSING, cases, run

EXPECTED = frozenset(PASSING.read_text().split())


@pytest.mark.slow
@pytest.mark.parametrize("part", range(8))
def test_what_passed_still_passes_and_nothing_is_wrong(part):
    for case in cases()[part::8]:
        outcome = run(case)
        assert outcome.kind not in ("wrong", "crashed"), f"{case.name}: {outcome}"
        assert outcome.kind.startswith("right") or case.name not in EXPECTED, (
            f"{case.name}: {outcome}"
        )


def test_the_list_names_tests_that_exist():
    assert {case.name for case in cases()} >= EXPECTED
