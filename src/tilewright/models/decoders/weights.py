"""Weights of a decoder: from the safetensors of a folder, or drawn at random.

In: a `Decoder`, the weights that its graph names, with their shapes.  Out: arrays by these names,
in one element type.  Each family stores some of them by other names, together, or turned over;
that is a table here.  Read next: `graph.py`.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilewright.base.dtype import DType
from tilewright.base.errors import ModelError
from tilewright.base.extras import install
from tilewright.graph.expr import Array
from tilewright.models.decoders.config import Decoder

Shapes = Mapping[str, tuple[int, ...]]

_DRAWN = (1 << 22) + 15  # numbers that random weights repeat: to draw billions takes minutes
_FLOATS = ("F64", "F32", "F16", "BF16")  # of safetensors
_OTHER_MODEL = "Fetch the model again; it may be another one than its config.json says."
_BUFFERS = re.compile(r"\.rotary_emb\.inv_freq$|^h\.\d+\.attn\.(masked_)?bias$")
_PREFIXES = ("", "transformer.", "language_model.", "model.language_model.")


@dataclass(frozen=True)
class _Stored:
    """name: in the file; rows: from and to which, None: all; turned: it lies there transposed;
    side_by_side: rows of each so many lie there in pairs, which here lie half of them apart"""

    name: str
    rows: tuple[int, int] | None = None
    turned: bool = False
    side_by_side: int = 0


def _as_it_is(name: str, decoder: Decoder) -> _Stored:
    return _Stored(name)


_PHI = (
    ("self_attn.o_proj", "self_attn.dense"), ("mlp.up_proj", "mlp.fc1"),
    ("mlp.down_proj", "mlp.fc2"), ("model.norm.", "model.final_layernorm."),
)  # fmt: skip
_STARCODER = (("mlp.up_proj", "mlp.c_fc"), ("mlp.down_proj", "mlp.c_proj"))
_GPT2 = (
    ("model.layers.", "h."), ("input_layernorm", "ln_1"), ("post_attention_layernorm", "ln_2"),
    ("self_attn.o_proj", "attn.c_proj"), ("mlp.up_proj", "mlp.c_fc"),
    ("mlp.down_proj", "mlp.c_proj"), ("model.norm.", "ln_f."),
    ("model.embed_tokens", "wte"), ("model.embed_positions", "wpe"),
)  # fmt: skip


def _renamed(name: str, pairs: tuple[tuple[str, str], ...]) -> str:
    for ours, theirs in pairs:
        name = name.replace(ours, theirs)
    return name


def _rows(decoder: Decoder, which: str) -> tuple[int, int]:
    """Of queries, keys and values that are stored one behind the other."""
    q, kv = decoder.heads * decoder.size, decoder.shared * decoder.size
    begin, count = {"q": (0, q), "k": (q, kv), "v": (q + kv, kv)}[which]
    return begin, begin + count


def _phi3(name: str, decoder: Decoder) -> _Stored:
    if found := re.search(r"\.([qkv])_proj\.", name):
        return _Stored(name.replace(f"{found[1]}_proj", "qkv_proj"), _rows(decoder, found[1]))
    if found := re.search(r"\.(gate|up)_proj\.", name):
        begin = decoder.wide * (found[1] == "up")
        rows = begin, begin + decoder.wide
        return _Stored(name.replace(f"{found[1]}_proj", "gate_up_proj"), rows)
    return _Stored(name)


def _cohere(name: str, decoder: Decoder) -> _Stored:
    """Scores are sums over elements of heads, whose order does not count."""
    return _Stored(name, side_by_side=decoder.size if re.search(r"\.[qk]_proj\.", name) else 0)


def _gpt2(name: str, decoder: Decoder) -> _Stored:
    turned = "_proj.weight" in name
    if found := re.search(r"self_attn\.([qkv])_proj", name):
        stored = _renamed(name.replace(found[0], "attn.c_attn"), _GPT2)
        return _Stored(stored, _rows(decoder, found[1]), turned)
    return _Stored(_renamed(name, _GPT2), turned=turned)


_STORED: dict[str, Callable[[str, Decoder], _Stored]] = {
    "phi": lambda name, _: _Stored(_renamed(name, _PHI)), "phi3": _phi3, "gpt2": _gpt2,
    "starcoder2": lambda name, _: _Stored(_renamed(name, _STARCODER)),
    "cohere": _cohere, "cohere2": _cohere,
}  # fmt: skip


def read(folder: Path, decoder: Decoder, shapes: Shapes, dtype: str) -> dict[str, Array]:
    """The weights in the safetensors of a folder, in an element type.

    Raises ModelError where there are none, where one is missing, has another shape or is no float,
    where layers have one that nothing reads, and without the package safetensors.
    """
    place = f"load({str(folder)!r})"
    files = _files(folder, place)
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise ModelError(
            place, "its weights are read by safetensors, which is not installed",
            install("decoders"),
        ) from None  # fmt: skip
    made, taken = dict[str, Array](), set[str]()
    with ExitStack() as stack:
        where: dict[str, Any] = {}
        for file in files:
            try:
                opened = stack.enter_context(safe_open(file, framework="numpy"))
            except (SafetensorError, OSError) as error:
                raise ModelError(
                    str(file),
                    f"it cannot be read ({str(error).splitlines()[0]})",
                    "Fetch it again.",
                ) from None
            if both := where.keys() & opened.keys():
                raise ModelError(
                    str(file), f"another file of the folder has {min(both)}, too",
                    "Leave the files of one model there.",
                )  # fmt: skip
            where |= dict.fromkeys(opened.keys(), opened)
        for name, shape in shapes.items():
            stored = _STORED.get(decoder.family, _as_it_is)(name, decoder)
            found = next((p + stored.name for p in _PREFIXES if p + stored.name in where), None)
            if found is None:
                raise ModelError(
                    place, f"its files have no {stored.name}, as {decoder.family} has", _OTHER_MODEL
                )
            taken.add(found)
            kind = where[found].get_slice(found).get_dtype()
            if kind not in _FLOATS:
                raise ModelError(
                    f"{place}: {found}", f"it is of {kind}, by a quantization that is not known",
                    'Fetch it in bfloat16 or float16; weights="int4" of tune and compile packs '
                    "them.",
                )  # fmt: skip
            value = where[found].get_tensor(found)
            value = value.T if stored.turned else value
            value = value if stored.rows is None else value[slice(*stored.rows)]
            if value.shape != shape:
                raise ModelError(
                    f"{place}: {found}", f"it has shape {list(value.shape)}, not {list(shape)}",
                    "The config.json is of another model.",
                )  # fmt: skip
            if stored.side_by_side:
                pairs = value.reshape(-1, stored.side_by_side // 2, 2, *shape[1:])
                value = pairs.swapaxes(1, 2).reshape(shape)
            if decoder.norm == "rms+1" and name.endswith("norm.weight"):
                value = value.astype("float32") + 1
            made[name] = _converted(value, dtype, f"{place}: {found}")
    _nothing_left(decoder, taken, where.keys() - taken, place)
    return made


def _files(folder: Path, place: str) -> list[Path]:
    """What holds its weights: the files of its index, its one file, or all there are."""
    index = folder / "model.safetensors.index.json"
    if index.exists():
        try:
            names = {str(name) for name in json.loads(index.read_bytes())["weight_map"].values()}
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise ModelError(
                str(index), f"it is no index of files ({error!r:.80})", "Fetch it again."
            ) from None
        for name in sorted(names):
            if Path(name).name != name or not (folder / name).is_file():
                raise ModelError(
                    str(index), f"it names {name!r:.80}, which is not there", "Fetch it, too."
                )
        return [folder / name for name in sorted(names)]
    if (folder / "model.safetensors").exists():
        return [folder / "model.safetensors"]
    if files := sorted(folder.glob("*.safetensors")):
        return files
    raise ModelError(place, "it has no .safetensors file", "Fetch the weights of the model, too.")


def _converted(value: np.ndarray, dtype: str, place: str) -> Array:
    """Raises ModelError for numbers that the type cannot hold."""
    with np.errstate(over="ignore"):
        made = np.ascontiguousarray(value, DType(dtype).storage)
    if dtype == "float16" and value.dtype != made.dtype:
        lost = np.isinf(made) & np.isfinite(value)
        if lost.any():
            most = np.abs(value[lost].astype("float32")).max()
            raise ModelError(
                place, f"it reaches {most:.3g}, and float16 65504", 'Give dtype="bfloat16".'
            )
    return made


def _nothing_left(decoder: Decoder, taken: set[str], left: set[str], place: str) -> None:
    """Raises ModelError for a weight of the layers that nothing reads: it is another model."""
    layers = "h." if decoder.family == "gpt2" else "model.layers."
    owns = {name[: name.index(layers)] for name in taken if layers in name}
    for name in sorted(left):
        inner = next((name[len(p) :] for p in owns if name.startswith(p + layers)), None)
        if inner is not None and not _BUFFERS.search(inner):
            raise ModelError(
                f"{place}: {name}", f"{decoder.family} has no such weight, as its config.json is",
                _OTHER_MODEL,
            )  # fmt: skip


def random(decoder: Decoder, shapes: Shapes, dtype: str) -> dict[str, Array]:
    """Weights under which values keep their size: those of one name are the same ones each time."""
    kind = DType(dtype).storage
    drawn = np.random.default_rng(0).standard_normal(_DRAWN, "float32")
    scaled: dict[float, Array] = {}
    made: dict[str, Array] = {}
    begin = 0
    for name, shape in shapes.items():
        if len(shape) == 1:
            made[name] = np.full(shape, float(name.endswith("norm.weight")), kind)
            continue
        scale = 1 / math.sqrt(shape[-1])
        if scale not in scaled:
            scaled[scale] = (drawn * np.float32(scale)).astype(kind)
        size = math.prod(shape)
        made[name] = np.resize(np.roll(scaled[scale], -begin), size).reshape(shape)
        begin = (begin + size) % _DRAWN
    return made
