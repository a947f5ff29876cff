"""Folders of decoders as they are found: configs that leave things out, say them in the way of
another year or say what cannot be, and files that are not what the config says."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from models.test_decoders import FAMILIES, SIZES, written
from tilewright.base.errors import ModelError
from tilewright.models.decoders.config import Decoder, decoder_of
from tilewright.models.decoders.read import sizes_of


def given(family: str, **more: Any) -> Decoder:
    sizes = FAMILIES[family] if family == "gpt2" else {**SIZES, "num_hidden_layers": 6}
    return decoder_of({**sizes, "model_type": family, "head_dim": 16, **more}, "config.json")


def windows(decoder: Decoder) -> list[int | None]:
    return [layer.window for layer in decoder.layers]


def test_windows_are_those_of_the_family_where_no_layer_types_are_listed() -> None:
    qwen = {"use_sliding_window": True, "sliding_window": 4, "max_window_layers": 4}
    for family in ("qwen2", "qwen3"):
        assert windows(given(family, **qwen)) == [None] * 4 + [4, 4]
        assert windows(given(family, **qwen | {"use_sliding_window": False})) == [None] * 6
    assert windows(given("llama", **qwen)) == [None] * 6
    assert windows(given("gemma2", sliding_window=4)) == [4, None] * 3
    assert windows(given("gemma2")) == [4096, None] * 3
    assert windows(given("gemma3_text", sliding_window=4)) == [4] * 5 + [None]
    three = given("gemma3_text", sliding_window=4, sliding_window_pattern=3)
    assert windows(three) == [4, 4, None] * 2
    assert windows(given("mistral")) == [4096] * 6
    assert windows(given("mistral", sliding_window=None)) == [None] * 6


def test_layers_that_are_not_turned_are_those_of_the_config_or_each_fourth() -> None:
    def turned(**more: Any) -> list[bool]:
        return [layer.rotary is not None for layer in given("smollm3", **more).layers]

    assert turned() == [True] * 3 + [False] + [True] * 2
    assert turned(no_rope_layer_interval=2) == [True, False] * 3
    assert turned(no_rope_layers=[0, 1, 1, 1, 1, 0]) == [False] + [True] * 4 + [False]
    sliding = given("smollm3", use_sliding_window=True, sliding_window=4)
    assert windows(sliding) == [None] * 3 + [4] + [None] * 2
    assert windows(given("smollm3", sliding_window=4)) == [None] * 6


def test_what_a_config_leaves_out_is_as_its_family_has_it() -> None:
    acts = {"phi": "gelu_tanh", "gpt2": "gelu_tanh", "gemma": "gelu_tanh", "gemma2": "gelu_tanh",
            "gemma3_text": "gelu_tanh", "llama": "silu", "phi3": "silu"}  # fmt: skip
    assert {family: given(family).activation for family in acts} == acts
    assert given("gemma", hidden_act="gelu").activation == "gelu_tanh"  # as its first configs mean
    assert given("phi", hidden_act="gelu").activation == "gelu"
    assert (given("gemma2").caps, given("gemma3_text").caps) == ((50.0, 30.0), (0.0, 0.0))
    none = {"attn_logit_softcapping": None, "final_logit_softcapping": None}
    assert given("gemma2", **none).caps == (0.0, 0.0)
    caps = {"attn_logit_softcapping": 2.0, "final_logit_softcapping": 3.0}
    families = ("gemma", "gemma2", "gemma3_text")
    assert [given(f, **caps).caps for f in families] == [(0.0, 0.0), (2.0, 3.0), (0.0, 3.0)]
    for family in families:
        assert given(family, attention_bias=True).biases == {"qkv", "out"}
    assert given("gpt2", scale_attn_weights=False).attention_scale == 1.0
    both = {layer.rotary for layer in given("gemma3_text").layers}
    assert {r and round(r.frequencies[1] ** -8) for r in both} == {1_000_000, 10_000}


def test_a_turn_is_read_where_either_year_says_it() -> None:
    def turn(family: str, **more: Any) -> Any:
        return given(family, **more).layers[0].rotary

    for family in ("phi", "phi3"):
        inner = turn(family, rope_parameters={"partial_rotary_factor": 0.25, "rope_theta": 100.0})
        assert inner == turn(family, partial_rotary_factor=0.25, rope_theta=100.0)
        assert len(inner.frequencies) == 2
    new, old = ({"rope_type": "linear", "factor": f} for f in (2.0, 8.0))
    assert turn("llama", rope_parameters=new, rope_scaling=old) == turn("llama", rope_scaling=old)


LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "low_freq_factor": 4.0, "high_freq_factor": 1.0,
          "original_max_position_embeddings": 32}  # fmt: skip


@pytest.mark.parametrize(
    "family, wrong, words",
    [
        ("mistral", {"sliding_window": 0}, "sliding_window is 0"),
        ("mistral", {"sliding_window": "4"}, "sliding_window is '4'"),
        ("mistral", {"sliding_window": None, "layer_types": ["sliding_attention"] * 6}, "without"),
        ("llama", {"rope_theta": 0}, "rope_theta is 0"),
        ("llama", {"rope_theta": float("nan")}, "rope_theta is nan"),
        ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 0}}, "factor is 0"),
        ("llama", {"rope_scaling": LLAMA3}, "low_freq_factor"),
        ("llama", {"rms_norm_eps": float("inf")}, "epsilon"),
        ("llama", {"num_key_value_heads": 2.5}, "num_key_value_heads is 2.5"),
        ("llama", {"num_hidden_layers": 10**9}, "of at most 4096"),
        ("llama", {"vocab_size": 10**30}, "cannot be"),
        ("llama", {"tie_word_embeddings": "false"}, "tie_word_embeddings is 'false'"),
        ("llama", {"dtype": "float7"}, "dtype is 'float7'"),
        ("llama", {"quantization_config": {"quant_method": "fp8"}}, "quantized"),
        ("llama", {"text_config": 5}, "model_type is None"),
        ("phi", {"partial_rotary_factor": 1.5}, "partial_rotary_factor is 1.5"),
        ("phi", {"partial_rotary_factor": 0.01}, "0 of 16 elements"),
        ("gemma2", {"query_pre_attn_scalar": 0}, "query_pre_attn_scalar is 0"),
        ("gemma3_text", {"use_bidirectional_attention": True}, "use_bidirectional_attention is"),
        ("gemma3_text", {"sliding_window_pattern": 0}, "no config of gemma3_text"),
        ("gpt2", {"n_inner": True}, "n_inner is True"),
        ("smollm3", {"no_rope_layers": [1]}, r"no_rope_layers is \[1\]"),
        ("granite", {"logits_scaling": 0}, "logits_scaling is 0"),
        ("granite", {"residual_multiplier": float("inf")}, "epsilon, scales"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_refused_by_its_name(family: str, wrong: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        given(family, **wrong)


# -- files -----------------------------------------------------------------------------------------

QUERIES = "model.layers.1.self_attn.q_proj.weight"
Weights = dict[str, np.ndarray]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    safetensors = pytest.importorskip("safetensors.numpy", reason="safetensors is not installed")
    made = tmp_path_factory.mktemp("decoder")
    (made / "config.json").write_text(json.dumps({**SIZES, "model_type": "llama"}))
    rows = {"q": 32, "k": 16, "v": 16}
    shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (96, 32)}
    shapes |= {"lm_head.weight": (96, 32), "model.norm.weight": (32,)}
    for k in range(2):
        at = f"model.layers.{k}"
        shapes |= {f"{at}.self_attn.{n}_proj.weight": (rows.get(n, 32), 32) for n in "qkvo"}
        shapes |= {f"{at}.mlp.{n}_proj.weight": (48, 32) for n in ("gate", "up")}
        shapes |= {f"{at}.mlp.down_proj.weight": (32, 48)}
        shapes |= {f"{at}.{n}_layernorm.weight": (32,) for n in ("input", "post_attention")}
    rng = np.random.default_rng(0)
    weights = {name: rng.standard_normal(shape, "float32") for name, shape in shapes.items()}
    safetensors.save_file(weights, made / "model.safetensors")
    return made


def changed(folder: Path, to: Path, change: Callable[[Weights], Any]) -> Path:
    """A copy of the folder whose weights are others."""
    safetensors = pytest.importorskip("safetensors.numpy")
    shutil.copytree(folder, to)
    weights = safetensors.load_file(folder / "model.safetensors")
    change(weights)
    safetensors.save_file(weights, to / "model.safetensors")
    return to


def read(folder: Path, **more: Any) -> Any:
    return tw.load(folder, shape={"tokens": 1, "cache": 8}, **more)


@pytest.mark.parametrize(
    "change, words",
    [
        (lambda w: w.update({QUERIES: w[QUERIES].astype("int8")}), "of I8, by a quantization"),
        (lambda w: w.update({QUERIES: w[QUERIES] > 0}), "of BOOL"),
        (lambda w: w.update({QUERIES[:-6] + "bias": np.ones(32, "float32")}), "no such weight"),
        (lambda w: w.update({QUERIES.replace("1", "2"): w[QUERIES]}), "no such weight"),
        (lambda w: w.update({QUERIES.replace("proj", "norm"): w[QUERIES][0]}), "no such weight"),
    ],
)  # fmt: skip
def test_weights_of_another_model_are_refused(
    folder: Path, tmp_path: Path, change: Callable[[Weights], Any], words: str
) -> None:
    with pytest.raises(ModelError, match=words):
        read(changed(folder, tmp_path / "model", change))


def test_what_is_no_weight_of_a_layer_may_lie_there(folder: Path, tmp_path: Path) -> None:
    def more(weights: Weights) -> None:
        weights["model.layers.0.self_attn.rotary_emb.inv_freq"] = np.ones(4, "float32")
        weights["vision.weight"] = np.ones(4, "int8")

    read(changed(folder, tmp_path / "model", more))


def test_weights_that_float16_cannot_hold_are_refused(folder: Path, tmp_path: Path) -> None:
    def large(weights: Weights) -> None:
        weights[QUERIES][3, 5] = -1e6

    made = changed(folder, tmp_path / "model", large)
    with pytest.raises(ModelError, match=r"q_proj.weight: it reaches 1e\+06"):
        read(made, dtype="float16")
    read(made, dtype="bfloat16")


def test_files_are_those_of_the_index_or_the_one_of_the_model(folder: Path, tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.numpy")
    weights = safetensors.load_file(folder / "model.safetensors")
    made = tmp_path / "model"
    shutil.copytree(folder, made)
    safetensors.save_file({n: w * 2 for n, w in weights.items()}, made / "old.safetensors")
    read(made)
    (made / "model.safetensors").rename(made / "new.safetensors")
    with pytest.raises(ModelError, match=r"old.safetensors: another file of the folder has"):
        read(made)
    index = made / "model.safetensors.index.json"
    index.write_text(json.dumps({"weight_map": dict.fromkeys(weights, "new.safetensors")}))
    read(made)
    for text, words in (
        ('{"weight_map": {"a": "lost.safetensors"}}', "names 'lost.safetensors', which is not"),
        ('{"weight_map": {"a": "../x.safetensors"}}', "which is not there"), ("[]", "no index"),
    ):  # fmt: skip
        index.write_text(text)
        with pytest.raises(ModelError, match=words):
            read(made)


@pytest.mark.slow
@pytest.mark.parametrize("family", ["gemma2", "gemma3_text", "phi", "phi3", "gpt2"])
def test_logits_are_those_of_transformers_where_a_config_is_brief(
    family: str, tmp_path: Path
) -> None:
    written(family, tmp_path)
    torch, transformers = (pytest.importorskip(n) for n in ("torch", "transformers"))
    file = tmp_path / "config.json"
    told = json.loads(file.read_bytes())
    for name in ("layer_types", "hidden_act", "hidden_activation", "activation_function",
                 "rope_parameters", "attn_logit_softcapping"):  # fmt: skip
        told.pop(name, None)
    told |= {"phi3": {"rope_parameters": {"partial_rotary_factor": 0.5, "rope_theta": 1e3}},
             "gpt2": {"scale_attn_weights": False}}.get(family, {})  # fmt: skip
    told.pop("partial_rotary_factor", None)
    file.write_text(json.dumps(told))
    model = transformers.AutoModelForCausalLM.from_pretrained(
        tmp_path, attn_implementation="eager"
    ).eval()
    tokens = np.random.default_rng(1).integers(3, 96, (1, 13))
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    run = tw.Decoder(
        tw.compile(tw.load(tmp_path, shape={"tokens": 13, "cache": 16}), "llvm", verify=False)
    )
    bound = {"rtol": 2e-4, "atol": 2e-4 * float(np.abs(expected).max())}
    np.testing.assert_allclose(run.feed(tokens, every=True), expected, **bound)


# -- sizes -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "shape, counts, length",
    [
        ({"cache": 32}, [1], 32),
        ({"cache": 100}, [1, 64], 100),
        ({"tokens": [1, 4096]}, [1, 4096], 4096),
        ({"tokens": range(1, 3), "cache": np.int64(16)}, [1, 2], 16),
        ({}, [1, 64], 2048),
    ],
)
def test_a_size_that_is_not_given_fits_the_other_one(
    shape: Any, counts: list[int], length: int
) -> None:
    decoder = given("llama", max_position_embeddings=8192)
    assert sizes_of("load", decoder, shape) == (tuple(counts), length)


@pytest.mark.parametrize(
    "shape",
    [{"tokens": [1, "8"]}, {"tokens": [[1]]}, {"tokens": {1: 2}}, {"tokens": np.arange(2)},
     {"tokens": []}, {"tokens": True}, {"tokens": 0}, {"cache": [8]}, {"cache": 0}],
)  # fmt: skip
def test_sizes_that_are_no_numbers_are_refused(shape: Any) -> None:
    with pytest.raises(ModelError, match="not whole numbers of at least 1"):
        sizes_of("load", given("llama"), shape)
