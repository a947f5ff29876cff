"""Decoders from folders: logits are those of transformers, in one call or in steps over caches."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.base.errors import DeviceError, ModelError
from tilewright.runtime.network.decoder import Decoder

SIZES = {
    "vocab_size": 96, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": {
        "rope_parameters": {
            "rope_type": "llama3", "rope_theta": 1e4, "factor": 8.0, "low_freq_factor": 1.0,
            "high_freq_factor": 4.0, "original_max_position_embeddings": 32,
        },
    },
    "mistral": {"sliding_window": 5},
    "qwen2": {"tie_word_embeddings": True},
    "qwen3": {"head_dim": 16},
    "phi": {"num_key_value_heads": 4},
    "phi3": {},
    "gemma": {"head_dim": 16, "num_key_value_heads": 1},
    "gemma2": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4},
    "gemma3_text": {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 4},
    "gpt2": {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 96},
    "smollm3": {"no_rope_layer_interval": 2, "use_sliding_window": True, "sliding_window": 4},
    "olmo2": {},
    "granite": {
        "embedding_multiplier": 12.0, "attention_multiplier": 0.25, "residual_multiplier": 0.22,
        "logits_scaling": 8.0,
    },
    "starcoder2": {"sliding_window": 5},
    "cohere": {"attention_bias": True},
    "cohere2": {"sliding_window": 5, "layer_types": ["sliding_attention", "full_attention"]},
}  # fmt: skip


def written(family: str, folder: Path, **more: int) -> Any:
    """A random model of a family in a folder, and itself."""
    torch = pytest.importorskip("torch", reason="PyTorch is not installed")
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("safetensors", reason="safetensors is not installed")
    given = FAMILIES[family] if family == "gpt2" else {**SIZES, **FAMILIES[family], **more}
    config = transformers.AutoConfig.for_model(family, **given)
    config._attn_implementation = "eager"
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    model.save_pretrained(folder)
    return model


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers(family: str, tmp_path: Path) -> None:
    model = written(family, tmp_path)
    torch = pytest.importorskip("torch")
    net = tw.load(tmp_path, shape={"tokens": [1, 8], "cache": 24})
    run = Decoder(tw.compile(net, "llvm", verify=False))
    tokens = np.random.default_rng(1).integers(3, 96, (1, 13))
    with torch.no_grad():
        expected = model(torch.from_numpy(tokens)).logits.numpy()
    bound = {"rtol": 2e-4, "atol": 2e-4 * float(np.abs(expected).max())}
    np.testing.assert_allclose(run.feed(tokens[:, :8], every=True), expected[:, :8], **bound)
    np.testing.assert_allclose(run.feed(tokens[:, 8:11]), expected[:, 10], **bound)
    np.testing.assert_allclose(run.feed(tokens[:, 11:12]), expected[:, 11], **bound)
    np.testing.assert_allclose(run.feed(tokens[:, 12:]), expected[:, 12], **bound)


@pytest.mark.slow
def test_greedy_tokens_are_those_of_eager_float32(tmp_path: Path) -> None:
    model = written("llama", tmp_path, max_position_embeddings=96)
    torch = pytest.importorskip("torch")
    net = tw.load(tmp_path, shape={"tokens": [1, 8], "cache": 80}, batch=(1,))
    run = Decoder(tw.compile(net, "llvm", verify=False))
    prompt = [5, 17, 60, 3, 44, 9, 10, 11, 12, 30, 31]
    made = [step[0] for step in run.generate([prompt], 64)]
    ids = torch.tensor([prompt])
    with torch.no_grad():
        for _ in range(64):
            ids = torch.cat([ids, model(ids).logits[:, -1:].argmax(-1)], 1)
    assert made == ids[0, len(prompt) :].tolist()


# -- a model of a named size, which needs nothing that is not here -------------------------------


@pytest.fixture(scope="module")
def compiled() -> Any:
    net = tw.load("llama-tiny", shape={"tokens": [1, 20], "cache": 40}, batch=(2,))
    return tw.compile(net, "llvm", verify=False)


PROMPTS = np.random.default_rng(2).integers(0, 512, (2, 23))


@pytest.mark.slow
def test_prompts_of_any_length_go_through_caches_as_single_steps_do(compiled: Any) -> None:
    single, many = Decoder(compiled), Decoder(compiled.fork())
    logits = [single.feed(PROMPTS[:, k : k + 1]) for k in range(23)]
    np.testing.assert_allclose(many.feed(PROMPTS), logits[-1], rtol=1e-4, atol=1e-4)
    assert many.position == single.position == 23
    both = many.run.state(), single.run.state()
    for name, value in both[0].items():
        np.testing.assert_allclose(value[:, :, :23], both[1][name][:, :, :23], rtol=1e-4, atol=1e-5)
    many.back(3)
    again = many.feed(PROMPTS[:, 20:], every=True)
    np.testing.assert_allclose(again, np.stack(logits[20:], 1), rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_a_decoder_is_begun_anew_saved_and_forked(compiled: Any, tmp_path: Path) -> None:
    compiled.save(tmp_path / "net.tar")
    run = Decoder(tw.open(tmp_path / "net.tar"))
    first = run.feed(PROMPTS[:, :5])
    other = run.fork()
    np.testing.assert_array_equal(run.feed([[7], [8]]), other.feed([[7], [8]]))
    assert (run.position, run.length, run.counts) == (6, 40, (1, 20))
    saved = other.state()
    run.reset()
    np.testing.assert_array_equal(run.feed(PROMPTS[:, :5]), first)
    assert other.position == 6
    for wrong in ({**saved, "position": np.array(41)}, {"position": np.array(1)}):
        with pytest.raises(DeviceError, match="set_state"):
            run.set_state(wrong)
    run.set_state(saved)
    assert run.position == 6
    np.testing.assert_array_equal(run.feed([[9], [9]]), other.feed([[9], [9]]))


@pytest.mark.slow
def test_what_cannot_be_fed_writes_nothing(compiled: Any) -> None:
    run = Decoder(compiled.fork())
    run.reset()
    with pytest.raises(DeviceError, match="nothing to go on from"):
        next(run.generate([[], []], 3))
    run.feed(PROMPTS)
    before = run.run.state()
    for tokens, words in (
        (np.zeros((2, 18), "int64"), "41 positions, the caches hold 40"),
        ([[1]], r"int64\[1, 1\]"), ([[512], [1]], "512 is not from 0 to 511"),
        ([[1.5], [1.0]], "whole numbers"),
    ):  # fmt: skip
        with pytest.raises(DeviceError, match=words):
            run.feed(tokens)
    with pytest.raises(DeviceError, match="40 is not from 0 to 39"):
        run.run([[1], [1]], [40, 3], [0, 0])
    with pytest.raises(DeviceError, match="24 of 23"):
        run.back(24)
    for name, value in run.run.state().items():
        np.testing.assert_array_equal(value, before[name])
    assert run.position == 23


@pytest.mark.slow
def test_what_is_no_text_no_position_and_no_choice_is_one_error(compiled: Any) -> None:
    run = Decoder(compiled.fork())
    run.feed(PROMPTS[:, :3])
    saved = run.state()
    with pytest.raises(DeviceError, match="tokens are no array"):
        run.feed([[1, 2], [3]])
    for position in (1.5, "x", float("nan"), None, True):
        with pytest.raises(DeviceError, match="its position is"):
            run.set_state({**saved, "position": position})
    for chosen in ([1], None, [1.0, 2.0]):
        with pytest.raises(DeviceError, match="not a token of each of 2 texts"):
            next(run.generate([[5], [6]], 3, lambda _, given=chosen: given))
        run.set_state(saved)
    with pytest.raises(DeviceError, match="count is a float"):
        run.generate([[5], [6]], 2.5)  # type: ignore[arg-type]
    with pytest.raises(DeviceError, match="count is a bool, not an integer"):
        run.back(True)


@pytest.mark.slow
def test_caches_are_those_of_one_decoder(compiled: Any) -> None:
    shared = compiled.fork()
    first = Decoder(shared)
    first.feed(PROMPTS[:, :5])
    second = Decoder(shared)
    logits = second.feed(PROMPTS[:, :3])
    for call in (lambda: first.feed([[1], [2]]), first.state, first.fork, first.reset):
        with pytest.raises(DeviceError, match="another Decoder was made of its run"):
            call()
    np.testing.assert_array_equal(Decoder(compiled.fork()).feed(PROMPTS[:, :3]), logits)
    assert (second.position, Decoder(shared).position) == (3, 0)


@pytest.mark.slow
def test_products_in_halves_leave_caches_as_they_are() -> None:
    net = tw.load("llama-tiny", shape={"tokens": 4, "cache": 8})
    exact = Decoder(tw.compile(net, "llvm", verify=False)).feed(PROMPTS[:1, :7])
    run = tw.compile(net, "llvm", precision="float16", verify=False)
    assert {str(spec.dtype) for spec in run.states} == {"float32"}
    found = Decoder(run).feed(PROMPTS[:1, :7])
    np.testing.assert_allclose(found, exact, atol=2e-2 * np.abs(exact).max())


WRONG = {
    "another size": ({"shape": {"seq": 4}}, "no size 'seq'"),
    "more tokens than caches hold": ({"shape": {"tokens": 8, "cache": 4}}, "caches of 4 positions"),
    "no whole number": ({"shape": {"tokens": [0]}}, "whole numbers"),
    "two batches": ({"batch": (1, 2)}, "one number of texts"),
    "a batch that is true": ({"batch": (True,)}, "a tuple of bool, not a list of integers"),
    "a layout": ({"layout": "NHWC"}, "a decoder has none"),
}


@pytest.mark.parametrize("given, words", WRONG.values(), ids=WRONG)
def test_sizes_that_cannot_be_are_one_error(given: Any, words: str) -> None:
    with pytest.raises(ModelError, match=words):
        tw.load("llama-tiny", **given)


@pytest.mark.parametrize(
    "config, words",
    [
        ("{", "no JSON"), ("[]", "no object"), ({"model_type": "bert"}, "'bert', which is not"),
        ({"model_type": "llama"}, "no config of llama"),
        ({**SIZES, "model_type": "llama", "rope_scaling": {"rope_type": "turn"}}, "'turn'"),
        ({**SIZES, "model_type": "llama", "hidden_act": "mish"}, "'mish'"),
        ({**SIZES, "model_type": "llama", "num_key_value_heads": 3}, "4 heads"),
        ({**SIZES, "model_type": "llama"}, "no .safetensors"),
    ],
)  # fmt: skip
def test_folders_that_are_none_are_one_error(tmp_path: Path, config: Any, words: str) -> None:
    text = config if isinstance(config, str) else json.dumps(config)
    (tmp_path / "config.json").write_text(text)
    with pytest.raises(ModelError, match=words):
        tw.load(tmp_path, shape={"tokens": 1, "cache": 8})
