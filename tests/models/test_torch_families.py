"""Decoders of transformers with a static cache in torch.compile: tokens are those of PyTorch, the
cache is written where it is, attention is one kernel on a GPU."""

from __future__ import annotations

import copy
import inspect
import re
import warnings
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from models import torch_compiled
from models.torch_compiled import compiled
from models.torch_networks import torch
from tilewright.base.errors import DeviceError
from tilewright.models.torch import compile as torch_compile
from tilewright.models.torch.told import TilewrightWarning
from tilewright.network.build import build
from tilewright.network.decide import decide
from tilewright.network.evidence import Evidence
from tilewright.network.extract import fused_groups
from tilewright.runtime.network import torch_calls
from tilewright.targets.target import Target

transformers = pytest.importorskip("transformers", reason="transformers is not installed")
fresh = torch_compiled.fresh  # a fixture

GPU = Target("cuda -arch=sm_90")
STEPS, LENGTH = 8, 32
SIZES = {
    "vocab_size": 96, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64,
    "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2,
}  # fmt: skip
HEADS = {k: v for k, v in SIZES.items() if k != "num_key_value_heads"}
OLDER = {"n_embd": 64, "n_head": 4, "n_layer": 2, "n_positions": 64, "vocab_size": 96,
         "bos_token_id": 1, "eos_token_id": 2}  # fmt: skip
SIZED, WINDOW = {**SIZES, "head_dim": 16}, {**SIZES, "sliding_window": 32}
FAMILIES: dict[str, dict[str, Any]] = {
    "llama": SIZES, "mistral": {**SIZES, "sliding_window": None}, "gemma3_text": {
        **SIZED, "query_pre_attn_scalar": 16, "sliding_window": 32,
        "layer_types": ["sliding_attention", "full_attention"],
    },
    "qwen2": SIZES, "qwen3": SIZED, "gemma": SIZED,
    "gemma2": {**SIZED, "query_pre_attn_scalar": 16, "sliding_window": 32},
    "phi": {**SIZES, "num_key_value_heads": 4}, "phi3": SIZES, "gpt2": OLDER, "olmo": SIZES,
    "olmo2": SIZES, "olmo3": WINDOW, "granite": SIZES,
    "starcoder2": {**SIZES, "sliding_window": None}, "cohere": SIZES, "cohere2": WINDOW,
    "glm": SIZED, "glm4": SIZED, "falcon": {**HEADS, "ffn_hidden_size": 96}, "gpt_neox": HEADS,
    "bloom": {"hidden_size": 64, "n_head": 4, "n_layer": 2, "vocab_size": 96},
    "smollm3": SIZES, "stablelm": SIZES, "gptj": {**OLDER, "rotary_dim": 8}, "persimmon": SIZES,
    "nemotron": SIZES, "exaone4": WINDOW, "ernie4_5": SIZES, "helium": SIZED, "seed_oss": SIZED,
    "gpt_bigcode": OLDER, "hunyuan_v1_dense": SIZED, "arcee": SIZES,
    "codegen": {**OLDER, "rotary_dim": 8},
    "llama, yarn": {
        **SIZES, "rope_parameters": {
            "rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "truncate": False,
            "original_max_position_embeddings": 16,
        },
    },
    "phi3, longrope": {  # its turn changes after three steps
        **SIZES, "original_max_position_embeddings": 8, "rope_scaling": {
            "rope_type": "longrope", "short_factor": [1.0 + k for k in range(8)],
            "long_factor": [2.0 + 3 * k for k in range(8)],
        },
    },
}  # fmt: skip


def model_of(family: str) -> Any:
    given = copy.deepcopy(FAMILIES[family])  # a config writes to what says its turn
    config = transformers.AutoConfig.for_model(family.partition(",")[0], **given)
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for p in model.parameters():
            p.add_(0.1 * torch.randn_like(p))
    return model


def attentions(mod: Any, params: Any) -> int:
    """How many kernels a GPU has that are a whole attention."""
    nothing = Evidence((), (str(GPU),), GPU.fingerprint)
    groups = fused_groups(decide(mod, params, nothing, GPU).main)
    return sum(len(group.calls) for group in groups if group.name.startswith("attention"))


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_steps_over_a_static_cache(family: str, monkeypatch: Any) -> None:
    try:
        model = model_of(family)
    except (ValueError, KeyError, TypeError) as error:
        pytest.skip(f"this transformers has no such {family}: {error!s:.80}")
    names = inspect.signature(model.base_model.forward).parameters
    key = "cache" if "cache" in names else "past_key_values"
    built, written = [], set[int]()
    count = torch_calls._count_write
    monkeypatch.setattr(torch_compile, "build", lambda *a, **k: built.append(a) or build(*a, **k))
    monkeypatch.setattr(
        torch_calls, "_count_write", lambda t: written.add(t.data_ptr()) or count(t)
    )

    def logits(run: Any, forced: list[Any]) -> tuple[list[Any], Any]:
        """Of each step; the tokens of the first run are those of the second."""
        cache = transformers.StaticCache(config=model.config, max_cache_len=LENGTH)
        made = [model(torch.tensor([[5, 17, 60, 3, 44]]), **{key: cache}, use_cache=True).logits]
        for k in range(STEPS):
            token = (forced[k] if forced else made[-1])[:, -1:].argmax(-1)
            made.append(run(token, **{key: cache}, use_cache=True).logits)
        return made, cache

    with torch.no_grad(), warnings.catch_warnings():
        wanted, _ = logits(model, [])
        warnings.simplefilter("error", TilewrightWarning)
        found, cache = logits(compiled(model, cache=False, verify=False), wanted)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * float(other.abs().max()))
        assert torch.equal(one.argmax(-1), other.argmax(-1))
    tensors = [t for layer in cache.layers for t in (layer.keys, layer.values)]
    assert {t.data_ptr() for t in tensors} <= written
    assert len(built) <= 2
    mod, _, params = built[-1][:3]
    assert attentions(mod, params) == model.config.num_hidden_layers


def exported(model: Any, ids: Any, length: int) -> Any:
    """A step of a model over a cache of so many positions."""
    model = model.requires_grad_(False)
    model.generation_config = transformers.GenerationConfig(
        use_cache=True, cache_implementation="static", max_length=length, bos_token_id=1,
        eos_token_id=2, pad_token_id=0, cache_config={"batch_size": 1, "max_cache_len": length},
    )  # fmt: skip
    executorch = pytest.importorskip("transformers.integrations.executorch")
    return executorch.convert_and_export_with_cache(model, ids, torch.tensor([0]))


@pytest.mark.slow
def test_a_step_that_transformers_exports_leaves_hidden_keys_out() -> None:
    """It writes `key <= position`: each copy and product of keys is under that, in bfloat16."""
    pytest.importorskip("cuda.bindings.nvrtc")
    step = exported(model_of("llama").bfloat16(), torch.tensor([[5]]), 128)
    run = tw.compile(tw.load(step), str(GPU), verify=False)
    texts = [kernel.source.text for kernel in run.library.kernels]
    attention = [text for text in texts if "softmax_expsum" in text]
    assert attention
    for text in attention:
        limits = set(re.findall(r"<= (\w+_last)\[0\]\)", text))
        assert len(limits) == 1
        (limit,) = limits
        assert text.count(f"<= {limit}[0])") == 4


@pytest.mark.slow
def test_a_step_that_transformers_exports_ends_with_its_cache() -> None:
    """Its program copies the position to a counter of each layer, and writes where that says."""
    model, ids = model_of("llama"), torch.tensor([[5]])
    step = exported(model, ids, 8)
    run = tw.compile(tw.load(step), "llvm", verify=False)
    logits = [run(ids.numpy(), np.array([k])) for k in range(8)]
    with torch.no_grad():
        wanted = model(ids.expand(1, 8)).logits[0].numpy()
    np.testing.assert_allclose(np.concatenate(logits)[:, 0], wanted, rtol=1e-4, atol=1e-4)
    before = run.state()
    with pytest.raises(DeviceError, match="'cache_position': 8 is not from -8 to 7"):
        run(ids.numpy(), np.array([8]))
    for name, value in run.state().items():
        np.testing.assert_array_equal(value, before[name])
