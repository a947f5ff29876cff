"""Text of others, as it is printed."""

from __future__ import annotations

import pickle

import pytest

import tilewright as tw
from tilewright.base.errors import ModelError, RecordError
from tilewright.base.text import shortened


def test_names_without_end_are_their_ends() -> None:
    name = "a" * 5000 + "b" * 5000
    told = shortened(f"network {name} is not there. {name}")
    cut = "a" * 60 + "..." + "b" * 20
    assert told == f"network {cut} is not there. {cut}"
    assert shortened("x" * 500 + " y") == "x" * 500 + " y"


def test_errors_cut_what_they_print_and_keep_what_they_were_told() -> None:
    name = "x" * 10_000
    error = ModelError(f"load({name!r})", f"there is no {name}", f"Not {name}.")
    assert len(str(error)) < 400 and "load('xxx" in str(error)
    assert name in error.place and name in pickle.loads(pickle.dumps(error)).reason


@pytest.mark.parametrize("ending", ["", ".onnx", ".pt2", ".py:f", ":f"])
def test_names_that_no_file_can_have_are_one_error(ending: str) -> None:
    with pytest.raises(ModelError) as found:
        tw.load("x" * 10_000 + ending)
    assert len(str(found.value)) < 1000
    with pytest.raises(RecordError, match="xxx"):
        tw.compile(tw.load("llama-tiny", shape={"tokens": 1, "cache": 8}), "llvm", log="x" * 10_000)
