"""`Decoder`: what a decoder is, from the config.json that models of transformers come with.

In: a folder or a parsed config.  Out: a `Decoder`, plain numbers.  What is not known is refused by
its name: a model that is nearly right gives nonsense.  Read next: `graph.py`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError, TilewrightError
from tilewright.models.decoders.rotary import KINDS, Rotary, positive, rotary_of

MOST_LAYERS = 4096
_OTHERS = "Export it with torch.export, or compile it where it runs: torch.compile(backend=)."


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
    norm:       "rms", "rms+1" (its weights are stored less one), "layer" (with bias) or
                "layer alone" (without)
    activation: a key of `graph.ACTIVATIONS`; gated: two products meet in it
    biases:     which products have one: of "qkv", "out", "dense", "head"
    parallel:   attention and dense layers read one norm, and both are added to what it read
    before, after: norms before and behind both parts
    head_norms, whole_norms: queries and keys have norms, of each head or of all heads at once
    learned:    positions are rows of a table
    scale:      of the embedding; attention_scale: of scores; caps: limits of scores and of logits
    added:      what both parts are multiplied by before they are added; logit_scale: logits are
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
    before: bool = True
    after: bool = False
    head_norms: bool = False
    whole_norms: bool = False
    learned: bool = False
    scale: float = 1.0
    attention_scale: float = 0.0
    caps: tuple[float, float] = (0.0, 0.0)
    added: float = 1.0
    logit_scale: float = 1.0
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
    whole, config = config, config.get("text_config", config)
    family = config.get("model_type") if isinstance(config, Mapping) else None
    if not isinstance(family, str) or family not in FAMILIES:
        raise ModelError(
            place, f"its model_type is {family!r}, which is not known",
            f"Known are {', '.join(FAMILIES)}. {_OTHERS}",
        )  # fmt: skip
    if whole.get("quantization_config") or config.get("quantization_config"):
        raise ModelError(
            place, "its weights are quantized, by its quantization_config",
            'Fetch it in bfloat16 or float16; weights="int4" of tune and compile packs them.',
        )  # fmt: skip
    try:
        made = FAMILIES[family](_Config({**_USUAL.get(family, {}), **config}, place))
        _check(made)
    except (KeyError, TypeError, ValueError, ArithmeticError) as error:
        told = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
        raise ModelError(
            place, f"it is no config of {family} ({told})", "Fetch it again."
        ) from None
    return made


def _check(made: Decoder) -> None:
    """Raises ValueError for numbers that cannot be."""
    sizes = (made.vocabulary, made.width, made.heads, made.shared, made.size, made.wide,
             made.positions, len(made.layers))  # fmt: skip
    if not 1 <= min(sizes) <= max(sizes) < 1 << 31 or made.heads % made.shared:
        raise ValueError(
            f"{made.heads} heads of {made.size} elements with {made.shared} of keys, width "
            f"{made.width}, {len(made.layers)} layers cannot be"
        )
    numbers = (made.epsilon, made.scale, made.attention_scale, *made.caps, made.added,
               made.logit_scale)  # fmt: skip
    if not all(isinstance(n, float) and 0 <= n < math.inf for n in numbers):
        raise ValueError(f"epsilon, scales and caps are {numbers}, which cannot be")
    for rotary in {layer.rotary for layer in made.layers} - {None}:
        assert rotary is not None
        if not all(0 <= f < math.inf for f in (*rotary.frequencies, *rotary.long)):
            raise ValueError(f"its positions turn by {rotary.frequencies[-1]} radians")
        if not 2 <= 2 * len(rotary.frequencies) <= made.size:
            raise ValueError(
                f"{2 * len(rotary.frequencies)} of {made.size} elements of a head turn"
            )


class _Config:
    """Numbers of a config, by the first of several names that it has."""

    def __init__(self, found: Mapping[str, Any], place: str) -> None:
        self.found, self.place = found, place

    def __getitem__(self, name: str) -> int:
        value = self.found[name]
        if type(value) is not int:
            raise ValueError(f"{name} is {value!r:.40}")
        return value

    def whole(self, name: str, usual: int) -> int:
        return usual if self.found.get(name) is None else self[name]

    def flag(self, name: str, usual: bool = False) -> bool:
        value = self.get(name, usual)
        if type(value) is not bool:
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
        try:
            return str(DType(name.removeprefix("torch.")))
        except TilewrightError:
            raise ValueError(f"dtype is {name!r:.40}") from None

    @property
    def head_size(self) -> int:
        return self.whole("head_dim", self["hidden_size"] // self["num_attention_heads"])

    def layers(self, name: str = "num_hidden_layers") -> range:
        if self[name] > MOST_LAYERS:
            raise ValueError(f"{name} is {self[name]}, of at most {MOST_LAYERS}")
        return range(self[name])

    @property
    def rope(self) -> dict[str, Any]:
        """What says how positions turn heads: models of transformers take the older name first."""
        return dict(self.get("rope_scaling", None) or self.get("rope_parameters", None) or {})

    def activation(self, name: str = "hidden_act") -> str:
        name = self.get(name, "silu")
        known = {"silu": "silu", "swish": "silu", "gelu": "gelu", "gelu_new": "gelu_tanh",
                 "gelu_pytorch_tanh": "gelu_tanh", "gelu_fast": "gelu_tanh",
                 "relu": "relu"}  # fmt: skip
        if name not in known:
            raise self.refuse(f"activation {name!r}")
        return known[name]

    def kind(self, told: Mapping[str, Any]) -> Any:
        """How positions turn heads.  Phi 3 has one way beside the plain one, by three names."""
        kind = told.get("rope_type", told.get("type", "default"))
        longer = self.found.get("model_type") == "phi3" and kind in ("su", "yarn")
        return "longrope" if longer else kind

    def trained(self, told: Mapping[str, Any]) -> int:
        """How many positions it was first trained with: what stands beside `told` counts more."""
        name = "original_max_position_embeddings"
        usual = told.get(name) or self["max_position_embeddings"]
        return int(positive({name: self.get(name, usual)}, name))

    @property
    def positions(self) -> int:
        """For how many it was made.  Yarn goes on to a multiple of those of its first training,
        whether the config counts these or all."""
        told, most = self.rope, self["max_position_embeddings"]
        if self.kind(told) != "yarn" or told.get("factor") is None:
            return most
        return max(most, int(positive(told, "factor") * self.trained(told)))

    def rotary(self, size: int, told: Mapping[str, Any] | None = None) -> Rotary:
        """The turn of `size` elements of each head, as `told` says, or the config."""
        told = self.rope if told is None else told
        if (kind := self.kind(told)) not in KINDS:
            raise self.refuse(f"rope_type {kind!r:.40}")
        told = {"rope_theta": self.get("rope_theta", 10000.0), **told}
        if kind in ("llama3", "yarn", "longrope"):
            told["original_max_position_embeddings"] = self.trained(told)
            told["max_position_embeddings"] = self["max_position_embeddings"]
        return rotary_of(kind, size, told)


def _part(c: _Config, usual: float) -> int:
    """How many elements of a head turn."""
    told = c.rope.get("partial_rotary_factor", c.get("partial_rotary_factor", usual))
    if not 0 < (part := float(told)) <= 1:
        raise ValueError(f"partial_rotary_factor is {part}")
    return int(c.head_size * part)


def _common(c: _Config) -> dict[str, Any]:
    heads = c["num_attention_heads"]
    return {
        "family": str(c.found["model_type"]), "vocabulary": c["vocab_size"],
        "width": c["hidden_size"], "heads": heads,
        "shared": c.whole("num_key_value_heads", heads), "size": c.head_size,
        "wide": c["intermediate_size"], "positions": c.positions,
        "dtype": c.dtype,
    }  # fmt: skip


def _windows(c: _Config, slides: Callable[[int], bool]) -> list[int | None]:
    """The window of each layer.  slides: which have one where the config does not list them."""
    layers, window = c.layers(), c.get("sliding_window", None)
    if window is not None and not (type(window) is int and window > 0):
        raise ValueError(f"sliding_window is {window!r:.40}")
    kinds = c.get("layer_types", None)
    if kinds is None:
        kinds = ["sliding_attention" if slides(k) else "full_attention" for k in layers]
    if len(kinds) != len(layers):
        raise ValueError(f"{len(kinds)} layer_types for {len(layers)} layers")
    if other := set(kinds) - {"full_attention", "sliding_attention"}:
        raise c.refuse(f"layer type {min(other)!r}")
    if window is None and "sliding_attention" in kinds:
        raise ValueError("layers of sliding_attention without a sliding_window")
    return [window if kind == "sliding_attention" else None for kind in kinds]


def _llama(c: _Config) -> Decoder:
    """Llama, Mistral, Qwen2, Qwen3: they differ in biases, windows and norms of heads; and what
    others share with them."""
    family, common = c.found["model_type"], _common(c)
    biases = {"qkv", "out"} if c.flag("attention_bias") else set()
    if family == "qwen2":
        biases = {"qkv"}
    if c.flag("mlp_bias"):
        biases.add("dense")
    windows: list[int | None] = [None] * len(c.layers())
    if family == "mistral":
        windows = _windows(c, lambda _: c.get("sliding_window", None) is not None)
    elif family in ("qwen2", "qwen3") and c.flag("use_sliding_window"):
        windows = _windows(c, lambda k: k >= c["max_window_layers"])
    rotary = c.rotary(common["size"])
    return Decoder(
        **common, layers=tuple(Layer(rotary, w) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-6)), activation=c.activation(),
        biases=frozenset(biases), head_norms=family == "qwen3", tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _smollm3(c: _Config) -> Decoder:
    """As Llama, but some layers are not turned, and only those may have a window."""
    made, every = _llama(c), c["no_rope_layer_interval"]
    turns = c.get("no_rope_layers", None)  # 1: it is
    if turns is None:
        turns = [(k + 1) % every for k in c.layers()]
    if not isinstance(turns, list) or len(turns) < len(made.layers):
        raise ValueError(f"no_rope_layers is {turns!r:.40}")
    slides = c.flag("use_sliding_window") and c.get("sliding_window", None) is not None
    windows = _windows(c, lambda k: slides and not turns[k])
    layers = zip(made.layers, turns, windows, strict=False)
    return replace(
        made, layers=tuple(Layer(layer.rotary if t else None, w) for layer, t, w in layers)
    )


def _olmo2(c: _Config) -> Decoder:
    return replace(_llama(c), before=False, after=True, whole_norms=True)


def _granite(c: _Config) -> Decoder:
    names = ("embedding_multiplier", "attention_multiplier", "residual_multiplier")
    scale, attention, added = (float(c.get(name, 1.0)) for name in names)
    divided = positive({"logits_scaling": c.get("logits_scaling", 1.0)}, "logits_scaling")
    return replace(
        _llama(c), scale=scale, attention_scale=attention, added=added, logit_scale=1 / divided
    )


def _cohere(c: _Config) -> Decoder:
    """Cohere 1 and 2: as Phi they add both parts at once.  The second one turns only what has a
    window."""
    if c.flag("use_qk_norm"):
        raise c.refuse("use_qk_norm")
    common, rotary = _common(c), c.rotary(c.head_size)
    layers = (Layer(rotary),) * len(c.layers())
    if common["family"] == "cohere2":
        every = c["sliding_window_pattern"]
        windows = _windows(c, lambda k: (k + 1) % every != 0)
        layers = tuple(Layer(None if w is None else rotary, w) for w in windows)
    return Decoder(
        **common, layers=layers, norm="layer alone", parallel=True,
        epsilon=float(c.get("layer_norm_eps", 1e-5)), activation=c.activation(),
        biases=frozenset(("qkv", "out") if c.flag("attention_bias") else ()),
        logit_scale=float(c.get("logit_scale", 0.0625)), tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _starcoder2(c: _Config) -> Decoder:
    common, rotary = _common(c), c.rotary(c.head_size)
    windows = _windows(c, lambda _: c.get("sliding_window", None) is not None)
    return Decoder(
        **common, layers=tuple(Layer(rotary, w) for w in windows), norm="layer", gated=False,
        epsilon=float(c.get("norm_epsilon", 1e-5)), activation=c.activation(),
        biases=frozenset(("qkv", "out", "dense") if c.flag("use_bias", True) else ()),
        tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _phi3(c: _Config) -> Decoder:
    common = _common(c)
    rotary = c.rotary(_part(c, 1.0))
    windows = _windows(c, lambda _: c.get("sliding_window", None) is not None)
    return Decoder(
        **common, layers=tuple(Layer(rotary, w) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-5)), activation=c.activation(),
        tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _phi(c: _Config) -> Decoder:
    if c.flag("qk_layernorm"):
        raise c.refuse("qk_layernorm")
    layer = Layer(c.rotary(_part(c, 0.5)))
    return Decoder(
        **_common(c), layers=(layer,) * len(c.layers()), norm="layer", gated=False,
        epsilon=float(c.get("layer_norm_eps", 1e-5)), activation=c.activation(),
        biases=frozenset(("qkv", "out", "dense", "head")), parallel=True,
        tied=c.flag("tie_word_embeddings"),
    )  # fmt: skip


def _gemma(c: _Config) -> Decoder:
    """Gemma 1 to 3 of text: norms stored less one, an embedding that is scaled."""
    family, common = c.found["model_type"], _common(c)
    if c.flag("use_bidirectional_attention"):
        raise c.refuse("use_bidirectional_attention")
    third = family == "gemma3_text"
    windows: list[int | None] = [None] * len(c.layers())
    rotary = local = c.rotary(common["size"])
    scale = common["size"] ** -0.5
    activation = c.activation("hidden_act" if family == "gemma" else "hidden_activation")
    if family == "gemma":  # its first configs say gelu and mean the other one
        activation = "gelu_tanh" if activation == "gelu" else activation
    else:
        every = c["sliding_window_pattern"]
        windows = _windows(c, lambda k: (k + 1) % every != 0)
        scale = positive(c.found, "query_pre_attn_scalar") ** -0.5
    if third:
        told = c.get("rope_parameters", None) or {}
        near = {"rope_theta": float(c.get("rope_local_base_freq", 1e4))}
        if "full_attention" in told:
            far = {**told["full_attention"], **(c.get("rope_scaling", None) or {})}
            rotary = c.rotary(common["size"], far)
            near |= told["sliding_attention"]
        local = c.rotary(common["size"], near)
    # Gemma 1 has no caps, and what a config of Gemma 3 says of scores is not looked at.
    caps = (
        float(c.get("attn_logit_softcapping", 0.0)) if family == "gemma2" else 0.0,
        float(c.get("final_logit_softcapping", 0.0)) if family != "gemma" else 0.0,
    )
    return Decoder(
        **common, layers=tuple(Layer(rotary if w is None else local, w) for w in windows),
        epsilon=float(c.get("rms_norm_eps", 1e-6)), norm="rms+1",
        activation=activation, biases=frozenset(("qkv", "out") if c.flag("attention_bias") else ()),
        after=family != "gemma", head_norms=third, scale=common["width"] ** 0.5,
        attention_scale=scale, caps=caps,
        tied=c.flag("tie_word_embeddings", True),
    )  # fmt: skip


def _gpt2(c: _Config) -> Decoder:
    if c.flag("scale_attn_by_inverse_layer_idx"):
        raise c.refuse("scale_attn_by_inverse_layer_idx")
    width, heads = c["n_embd"], c["n_head"]
    return Decoder(
        "gpt2", c["vocab_size"], width, heads, heads, width // heads,
        c.whole("n_inner", 4 * width), (Layer(None),) * len(c.layers("n_layer")), c["n_positions"],
        epsilon=float(c.get("layer_norm_epsilon", 1e-5)), norm="layer", gated=False,
        activation=c.activation("activation_function"), learned=True, dtype=c.dtype,
        biases=frozenset(("qkv", "out", "dense")), tied=c.flag("tie_word_embeddings", True),
        attention_scale=0.0 if c.flag("scale_attn_weights", True) else 1.0,
    )  # fmt: skip


FAMILIES: dict[str, Callable[[_Config], Decoder]] = {
    "llama": _llama, "mistral": _llama, "qwen2": _llama, "qwen3": _llama, "phi": _phi,
    "phi3": _phi3, "gemma": _gemma, "gemma2": _gemma, "gemma3_text": _gemma, "gpt2": _gpt2,
    "smollm3": _smollm3, "olmo2": _olmo2, "granite": _granite, "starcoder2": _starcoder2,
    "cohere": _cohere, "cohere2": _cohere,
}  # fmt: skip


# What a config of a family means that does not say it; in most, what is said to be null is not so.
_WINDOWED = {"sliding_window": 4096}
_GEMMA = {"hidden_activation": "gelu_pytorch_tanh", "head_dim": 256, "query_pre_attn_scalar": 256}
_USUAL: dict[str, dict[str, Any]] = {
    "mistral": _WINDOWED,
    "qwen2": {**_WINDOWED, "max_window_layers": 28},
    "qwen3": {**_WINDOWED, "max_window_layers": 28, "head_dim": 128},
    "phi": {"hidden_act": "gelu_new"},
    "phi3": {"original_max_position_embeddings": 4096},
    "gemma": {"hidden_act": "gelu_pytorch_tanh", "head_dim": 256},
    "gemma2": {
        **_GEMMA, **_WINDOWED, "sliding_window_pattern": 2,
        "attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0,
    },
    "gemma3_text": {**_GEMMA, **_WINDOWED, "sliding_window_pattern": 6, "rope_theta": 1e6},
    "gpt2": {"activation_function": "gelu_new"},
    "smollm3": {
        "rope_theta": 2e6, "num_key_value_heads": 4, "no_rope_layer_interval": 4,
        "tie_word_embeddings": True,
    },
    "olmo2": {"rms_norm_eps": 1e-5},
    "cohere": {"rope_theta": 5e5},
    "cohere2": {**_WINDOWED, "sliding_window_pattern": 4},
    "starcoder2": {"hidden_act": "gelu_pytorch_tanh", "num_key_value_heads": 2},
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
