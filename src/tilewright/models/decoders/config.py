"""`Decoder`: what a decoder is, from the config.json that models of transformers come with.

In: a folder or a parsed config.  Out: a `Decoder`, plain numbers.  What is not known is refused by
its name: a model that is nearly right gives nonsense.  Read next: `graph.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError

_OTHERS = "Export it with torch.export, or compile it where it runs: torch.compile(backend=)."


@dataclass(frozen=True)
class Rotary:
    """frequencies: one for each pair of the first 2 * len(frequencies) elements of a head, in
    radians a position; factor: of sine and cosine"""

    frequencies: tuple[float, ...]
    factor: float = 1.0


@dataclass(frozen=True)
class Layer:
    """window: how many positions it sees, its own included; None: all; rotary: None for none"""

    rotary: Rotary | None
    window: int | None = None


@dataclass(frozen=True)
class Decoder:
    """A decoder: layers of attention over a cache and of dense layers, around sums.

    family:     its name in config.json
    shared:     heads of keys and values; size: elements of a head; wide: of the dense layers
    positions:  for how many it was made
    norm:       "rms", "rms+1" (its weights are stored less one) or "layer" (with bias)
    activation: a key of `graph.ACTIVATIONS`; gated: two products meet in it
    biases:     which products have one: of "qkv", "out", "dense", "head"
    parallel:   attention and dense layers read one norm, and both are added to what it read
    after:      norms also behind both parts; head_norms: queries and keys have norms
    learned:    positions are rows of a table
    scale:      of the embedding; attention_scale: of scores; caps: limits of scores and of logits
    tied:       logits by the table of the embedding
    dtype:      of the weights, as they are stored
    """

    family: str
    vocabulary: int
    width: int
    heads: int
    shared: int
    size: int
    wide: int
    layers: tuple[Layer, ...]
    positions: int
    epsilon: float = 1e-6
    norm: str = "rms"
    activation: str = "silu"
    gated: bool = True
    biases: frozenset[str] = frozenset()
    parallel: bool = False
    after: bool = False
    head_norms: bool = False
    learned: bool = False
    scale: float = 1.0
    attention_scale: float = 0.0
    caps: tuple[float, float] = (0.0, 0.0)
    tied: bool = True
    dtype: str = "float32"


def read(folder: Path) -> Decoder:
    """The decoder in a folder.  Raises ModelError for one without config.json, and for a model that
    is not known."""
    file = folder / "config.json"
    try:
        found = json.loads(file.read_bytes())
    except OSError as error:
        raise ModelError(
            f"load({str(folder)!r})", f"its config.json cannot be read ({error.strerror})",
            "Give the folder of a model: config.json and .safetensors files.",
        ) from None  # fmt: skip
    except ValueError as error:
        raise ModelError(str(file), f"it is no JSON ({error})", "Fetch it again.") from None
    if not isinstance(found, Mapping):
        raise ModelError(str(file), "it is no object of JSON", "Fetch it again.")
    return decoder_of(found, str(file))


def decoder_of(config: Mapping[str, Any], place: str) -> Decoder:
    """Raises ModelError for a model that is not known, and for numbers that cannot be."""
    config = config.get("text_config", config)
    family = config.get("model_type")
    if family not in FAMILIES:
        raise ModelError(
            place, f"its model_type is {family!r}, which is not known",
            f"Known are {', '.join(FAMILIES)}. {_OTHERS}",
        )  # fmt: skip
    try:
        made = FAMILIES[family](_Config(config, place))
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            place, f"it is no config of {family} ({told})", "Fetch it again."
        ) from None
    sizes = (made.vocabulary, made.width, made.heads, made.shared, made.size, made.wide,
             made.positions, len(made.layers))  # fmt: skip
    if min(sizes) < 1 or made.heads % made.shared:
        raise ModelError(
            place, f"{made.heads} heads of {made.size} elements with {made.shared} of keys, "
            f"{len(made.layers)} layers cannot be", "Fetch it again.",
        )  # fmt: skip
    return made


class _Config:
    """Numbers of a config, by the first of several names that it has."""

    def __init__(self, found: Mapping[str, Any], place: str) -> None:
        self.found, self.place = found, place

    def __getitem__(self, name: str) -> int:
        value = self.found[name]
        if isinstance(value, bool) or not isinstance(value, int):
            raise ValueError(f"{name} is {value!r:.40}")
        return value

    def get(self, name: str, usual: Any) -> Any:
        value = self.found.get(name)
        return usual if value is None else value

    def refuse(self, what: str) -> ModelError:
        return ModelError(self.place, f"{what} is not known", _OTHERS)

    @property
    def dtype(self) -> str:
        name = str(self.get("dtype", self.get("torch_dtype", "float32")))
        return str(DType(name.removeprefix("torch.")))

    @property
    def head_size(self) -> int:
        return int(self.get("head_dim", self["hidden_size"] // self["num_attention_heads"]))

    def activation(self, *names: str) -> str:
        name = next((self.found[n] for n in names if self.found.get(n)), "silu")
        known = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
                 "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
                 "relu": "relu"}  # fmt: skip
        if name not in known:
            raise self.refuse(f"activation {name!r}")
        return known[name]

    def rotary(self, size: int, base: float | None = None) -> Rotary:
        """The frequencies of `size` elements of each head."""
        told = dict(self.get("rope_parameters", None) or self.get("rope_scaling", None) or {})
        base = float(base or told.get("rope_theta") or self.get("rope_theta", 10000.0))
        plain = base ** (-np.arange(0, size, 2, dtype=np.float64) / size)
        kind = told.get("rope_type", told.get("type", "default"))
        if kind in ("default", None):
            return Rotary(tuple(plain.tolist()))
        if kind == "linear":
            return Rotary(tuple((plain / float(told["factor"])).tolist()))
        if kind == "llama3":
            return Rotary(tuple(_llama3(plain, told).tolist()))
        raise self.refuse(f"rope_type {kind!r}")


def _llama3(plain: np.ndarray, told: Mapping[str, Any]) -> np.ndarray:
    """Long waves slower by a factor, short ones as they are, and between them a mean of both."""
    factor, low, high = (float(told[k]) for k in ("factor", "low_freq_factor", "high_freq_factor"))
    turns = float(told["original_max_position_embeddings"]) * plain / (2 * math.pi)
    share = np.clip((turns - low) / (high - low), 0, 1)
    made: np.ndarray = (1 - share) * plain / factor + share * plain
    return made


def _common(c: _Config) -> dict[str, Any]:
    heads = c["num_attention_heads"]
    return {
        "family": str(c.found["model_type"]), "vocabulary": c["vocab_size"],
        "width": c["hidden_size"], "heads": heads,
        "shared": int(c.get("num_key_value_heads", heads)), "size": c.head_size,
        "wide": c["intermediate_size"], "positions": c["max_position_embeddings"],
        "dtype": c.dtype,
    }  # fmt: skip


def _windows(c: _Config, usual: str) -> list[int | None]:
    """The window of each layer.  usual: which have one where the config does not list them."""
    count, window = c["num_hidden_layers"], c.get("sliding_window", None)
    kinds = c.get("layer_types", None) or [usual] * count
    if len(kinds) != count:
        raise ValueError(f"{len(kinds)} layer_types for {count} layers")
    if other := set(kinds) - {"full_attention", "sliding_attention"}:
        raise c.refuse(f"layer type {min(other)!r}")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _llama(c: _Config) -> Decoder:
    """Llama, Mistral, Qwen2, Qwen3: they differ in biases, windows and norms of heads."""
    family, common = c.found["model_type"], _common(c)
    biased = bool(c.get("attention_bias", False))
    biases = {"qkv", "out"} if biased else {"qkv"} if family == "qwen2" else set()
    if c.get("mlp_bias", False):
        biases.add("dense")
    windowed = family == "mistral" or bool(c.get("use_sliding_window", False))
    slides = family == "mistral" and c.get("sliding_window", None) is not None
    windows = _windows(c, "sliding_attention" if slides else "full_attention")
    rotary = c.rotary(common["size"])
    return Decoder(
        **common, layers=tuple(Layer(rotary, w if windowed else None) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-6)), activation=c.activation("hidden_act"),
        biases=frozenset(biases), head_norms=family == "qwen3",
        tied=bool(c.get("tie_word_embeddings", False)),
    )  # fmt: skip


def _phi3(c: _Config) -> Decoder:
    common = _common(c)
    rotary = c.rotary(int(common["size"] * float(c.get("partial_rotary_factor", 1.0))))
    windows = _windows(
        c, "full_attention" if c.get("sliding_window", None) is None else "sliding_attention"
    )
    return Decoder(
        **common, layers=tuple(Layer(rotary, w) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-5)), activation=c.activation("hidden_act"),
        tied=bool(c.get("tie_word_embeddings", False)),
    )  # fmt: skip


def _phi(c: _Config) -> Decoder:
    if c.get("qk_layernorm", False):
        raise c.refuse("qk_layernorm")
    common = _common(c)
    told = c.get("rope_parameters", None) or {}
    part = float(told.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.5)))
    layer = Layer(c.rotary(int(common["size"] * part)))
    return Decoder(
        **common, layers=(layer,) * c["num_hidden_layers"], norm="layer", gated=False,
        epsilon=float(c.get("layer_norm_eps", 1e-5)), activation=c.activation("hidden_act"),
        biases=frozenset(("qkv", "out", "dense", "head")), parallel=True,
        tied=bool(c.get("tie_word_embeddings", False)),
    )  # fmt: skip


def _gemma(c: _Config) -> Decoder:
    """Gemma 1 to 3 of text: norms stored less one, an embedding that is scaled."""
    family, common = c.found["model_type"], _common(c)
    third = family == "gemma3_text"
    windows: list[int | None] = [None] * c["num_hidden_layers"]
    rotary = local = c.rotary(common["size"])
    scale = common["size"] ** -0.5
    if family != "gemma":
        windows = _windows(c, "")
        scale = float(c["query_pre_attn_scalar"]) ** -0.5
    if third:
        told = c.get("rope_parameters", None) or {}
        if "full_attention" in told:
            rotary, local = (
                _Config({"rope_parameters": told[k]}, c.place).rotary(common["size"])
                for k in ("full_attention", "sliding_attention")
            )
        else:
            plain = _Config({}, c.place)
            local = plain.rotary(common["size"], float(c.get("rope_local_base_freq", 10000.0)))
    caps = (float(c.get(k, 0.0)) for k in ("attn_logit_softcapping", "final_logit_softcapping"))
    return Decoder(
        **common, layers=tuple(Layer(rotary if w is None else local, w) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-6)), norm="rms+1",
        activation=c.activation("hidden_activation", "hidden_act"),
        after=family != "gemma", head_norms=third, scale=common["width"] ** 0.5,
        attention_scale=scale, caps=(0.0, 0.0) if family == "gemma" else tuple(caps),  # type: ignore[arg-type]
        tied=bool(c.get("tie_word_embeddings", True)),
    )  # fmt: skip


def _gpt2(c: _Config) -> Decoder:
    if c.get("scale_attn_by_inverse_layer_idx", False):
        raise c.refuse("scale_attn_by_inverse_layer_idx")
    width, heads = c["n_embd"], c["n_head"]
    return Decoder(
        "gpt2", c["vocab_size"], width, heads, heads, width // heads,
        int(c.get("n_inner", 4 * width)), (Layer(None),) * c["n_layer"], c["n_positions"],
        epsilon=float(c.get("layer_norm_epsilon", 1e-5)), norm="layer", gated=False,
        activation=c.activation("activation_function"), learned=True, dtype=c.dtype,
        biases=frozenset(("qkv", "out", "dense")), tied=bool(c.get("tie_word_embeddings", True)),
    )  # fmt: skip


FAMILIES: dict[str, Callable[[_Config], Decoder]] = {
    "llama": _llama, "mistral": _llama, "qwen2": _llama, "qwen3": _llama, "phi": _phi,
    "phi3": _phi3, "gemma": _gemma, "gemma2": _gemma, "gemma3_text": _gemma, "gpt2": _gpt2,
}  # fmt: skip


def _sized(
    width: int, layers: int, heads: int, shared: int, wide: int, vocabulary: int, base: float
) -> Decoder:  # fmt: skip
    size = width // heads
    rotary = _Config({"rope_theta": base}, "a named size").rotary(size)
    return Decoder(
        "llama", vocabulary, width, heads, shared, size, wide, (Layer(rotary),) * layers, 8192,
        epsilon=1e-5, dtype="bfloat16",
    )  # fmt: skip


# Shapes of published models; weights of these names are drawn at random.
NAMED: dict[str, Callable[[], Decoder]] = {
    "llama-tiny": lambda: _sized(128, 2, 4, 2, 256, 512, 1e4),
    "llama-1b": lambda: _sized(2048, 16, 32, 8, 8192, 128256, 5e5),
    "llama-3b": lambda: _sized(3072, 28, 24, 8, 8192, 128256, 5e5),
    "llama-8b": lambda: _sized(4096, 32, 32, 8, 14336, 128256, 5e5),
}
