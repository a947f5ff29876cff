"""Kinds of turns of decoders from folders: frequencies and logits are those of transformers."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from models.test_decoders import SIZES, written
from tilewright.base.errors import ModelError
from tilewright.models.decoders.config import Decoder, decoder_of

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0,
        "original_max_position_embeddings": 32}  # fmt: skip
LONG = {
    "rope_type": "longrope", "rope_theta": 1e4,
    "short_factor": [1.0, 1.25, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0, 16.0],
}  # fmt: skip
PARTS = {**LONG, "short_factor": [1.0, 1.5, 2.0], "long_factor": [2.0, 4.0, 8.0],
         "partial_rotary_factor": 0.75}  # fmt: skip
LLAMA3 = {"rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
          "high_freq_factor": 4.0}  # fmt: skip

CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "yarn": ("llama", {"rope_parameters": YARN}),
    "yarn, beside a base": (
        "qwen2",
        {"rope_scaling": {k: v for k, v in YARN.items() if k != "rope_theta"}, "rope_theta": 1e6},
    ),
    "yarn, other pairs": ("llama", {"rope_parameters": {**YARN, "beta_fast": 4, "beta_slow": 2}}),
    "yarn, null": ("llama", {"rope_parameters": {**YARN, "beta_fast": None, "mscale": 0}}),
    "yarn, between pairs": ("llama", {"rope_parameters": {**YARN, "truncate": False}}),
    "yarn, a factor": ("llama", {"rope_parameters": {**YARN, "attention_factor": 0.8}}),
    "yarn, half a scale": ("llama", {"rope_parameters": {**YARN, "mscale": 0.7}}),
    "yarn, two scales": (
        "qwen2", {"rope_parameters": {**YARN, "mscale": 0.7, "mscale_all_dim": 1.2}}
    ),
    "yarn, a factor of both lengths": ("llama", {"rope_parameters": {**YARN, "factor": None}}),
    "yarn, faster": ("llama", {"rope_parameters": {**YARN, "factor": 0.5}}),
    "yarn, one length": (
        "llama",
        {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 2.0}},
    ),
    "yarn, a part": ("phi", {"rope_parameters": YARN, "num_key_value_heads": 4}),
    "a length of the model": (
        "llama", {"rope_scaling": YARN, "original_max_position_embeddings": 16}
    ),
    "longrope": ("phi3", {"rope_scaling": LONG, "original_max_position_embeddings": 16}),
    "longrope, a factor": (
        "phi3", {"rope_scaling": {**LONG, "factor": 32.0}, "original_max_position_embeddings": 16},
    ),
    "longrope, a part": (
        "phi3", {"rope_scaling": PARTS, "original_max_position_embeddings": 16}
    ),
    "longrope, of another family": (
        "llama",
        {"rope_scaling": {**LONG, "original_max_position_embeddings": 16,
                          "attention_factor": 1.25}},
    ),
    "dynamic": ("llama", {"rope_parameters": {**YARN, "rope_type": "dynamic"}}),
    "dynamic, a part": (
        "phi",
        {"rope_parameters": {"rope_type": "dynamic", "rope_theta": 1e4, "factor": 3.0},
         "num_key_value_heads": 4},
    ),
    "linear, a part": (
        "phi", {"rope_parameters": {**YARN, "rope_type": "linear"}, "num_key_value_heads": 4}
    ),
    "llama3, one length": ("llama", {"rope_parameters": LLAMA3}),
}  # fmt: skip


def given(family: str, **more: Any) -> Decoder:
    return decoder_of({**SIZES, "model_type": family, **copy.deepcopy(more)}, "config.json")


@pytest.mark.parametrize("case", CASES)
def test_frequencies_are_those_of_transformers(case: str) -> None:
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("torch", reason="PyTorch is not installed")
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS as KNOWN

    family, more = CASES[case]
    config = transformers.AutoConfig.for_model(family, **{**SIZES, **copy.deepcopy(more)})
    rotary = given(family, **more).layers[0].rotary
    kind = config.rope_parameters["rope_type"]
    for length in (10, 60):
        steps, factor = KNOWN[kind](config, "cpu", seq_len=length)
        assert rotary
        np.testing.assert_allclose(rotary.over(length), steps.numpy(), rtol=2e-6)
        assert rotary.factor == pytest.approx(factor)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case, length",
    [("yarn, two scales", 24), ("yarn, a part", 24), ("dynamic, a part", 24),
     ("longrope", 16), ("longrope", 24), ("longrope, a part", 24)],
)  # fmt: skip
def test_logits_are_those_of_transformers(case: str, length: int, tmp_path: Path) -> None:
    """Caches of 24 are longer than what longrope calls short: the text is longer, too."""
    family, more = CASES[case]
    model = written(family, tmp_path, **copy.deepcopy(more))
    torch = pytest.importorskip("torch")
    run = tw.Decoder(
        tw.compile(
            tw.load(tmp_path, shape={"tokens": [1, 8], "cache": length}), "llvm", verify=False
        )
    )
    tokens = np.random.default_rng(1).integers(3, 96, (1, length - 3))
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    bound = {"rtol": 2e-4, "atol": 2e-4 * float(np.abs(expected).max())}
    np.testing.assert_allclose(run.feed(tokens[:, :8], every=True), expected[:, :8], **bound)
    for k in range(8, length - 3):
        np.testing.assert_allclose(run.feed(tokens[:, k : k + 1]), expected[:, k], **bound)


def test_yarn_goes_on_to_a_multiple_of_the_length_of_its_first_training() -> None:
    assert given("llama", rope_parameters=YARN).positions == 128
    assert given("llama", rope_parameters={**YARN, "factor": 1.5}).positions == 64
    assert given("llama", rope_parameters={**YARN, "rope_type": "dynamic"}).positions == 64


def test_phi_3_has_one_way_by_three_names() -> None:
    more = {"original_max_position_embeddings": 16}
    known = given("phi3", rope_scaling=LONG, **more)
    for old in ("su", "yarn"):
        told = {"type": old} | {k: v for k, v in LONG.items() if k != "rope_type"}
        assert given("phi3", rope_scaling=told, **more) == known
    assert known.positions == 64
    by_default = given("phi3", rope_scaling=LONG).layers[0].rotary
    assert by_default and by_default.short == 4096


@pytest.mark.parametrize(
    "told, words",
    [
        ({"rope_type": "su"}, "rope_type 'su' is not known"),
        ({"rope_type": ["yarn"]}, "no config of llama"),
        ({"rope_type": "yarn"}, "it lacks 'factor'"),
        ({**YARN, "factor": 0}, "factor is 0"),
        ({**YARN, "attention_factor": -1}, "attention_factor is -1"),
        ({**YARN, "beta_fast": float("nan")}, "beta_fast is nan"),
        ({**YARN, "rope_theta": 1}, "no config of llama"),
        ({**YARN, "original_max_position_embeddings": -8}, "original_max_position_embeddings is"),
        ({**LONG, "long_factor": None}, "long_factor is not a list of 4"),
        ({**LONG, "short_factor": [1.0]}, "short_factor is not a list of 4"),
        ({**LONG, "short_factor": [1.0, 0.0, 1.0, 1.0]}, "short_factor has 0.0"),
        ({**LONG, "short_factor": [1.0, "x", 1.0, 1.0]}, "no config of llama"),
        ({"rope_type": "longrope", "short_factor": [1.0] * 4}, "it lacks 'long_factor'"),
        ({**LONG, "original_max_position_embeddings": 1}, "no config of llama"),
    ],
)
def test_turns_that_cannot_be_are_refused(told: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        given("llama", rope_scaling=told)
