"""Compiled graphs of PyTorch on disk, in the cache of kernels.

In: a graph of PyTorch, its arguments, target and log.  Out: the library that was built of just that
before, by this user.  Read next: `compile.py`, `driver/cache.py`.
"""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import numpy as np

from tilewright.base.errors import TilewrightError
from tilewright.driver.cache import default_cache
from tilewright.measure.signatures import code_digest
from tilewright.models.torch.export import as_numpy
from tilewright.models.torch.weights import attributes
from tilewright.runtime.device import local_target
from tilewright.runtime.network.library import Library
from tilewright.runtime.network.library import load as load_library
from tilewright.targets.target import Target

_MOST_BYTES = 512 << 20  # of weights: larger ones are built again
_KNOWN = ("torch", "_operator", "builtins", "math", "")  # whose functions are what they are called


def key(
    torch: Any, gm: Any, args: Sequence[Any], dynamic: Sequence[int], target: Target,
    log: str | None, asked: Sequence[str | None] = (),
) -> str | None:  # fmt: skip
    """What a compiled graph depends on, as a digest; None where that cannot be told or is large.

    asked: precision, weights
    """
    if not all(map(_is_known, gm.graph.nodes)):
        return None
    held = [a for k, a in enumerate(args) if isinstance(a, torch.Tensor) and k not in dynamic]
    held += attributes(gm)
    if any(not isinstance(t, torch.Tensor) for t in held) or list(gm.children()):
        return None
    if sum(t.nbytes for t in held) > _MOST_BYTES:
        return None
    chosen, _ = local_target(target)
    shapes = [
        [str(a.dtype), list(a.shape), list(a.stride())] if isinstance(a, torch.Tensor) else repr(a)
        for a in args
    ]
    digest = hashlib.sha256()
    parts = [
        code_digest(), torch.__version__, gm.code, shapes, list(dynamic),
        str(chosen), chosen.fingerprint, _log_digest(log), list(asked),
        [str(torch.get_autocast_dtype(k)) for k in ("cpu", "cuda") if torch.is_autocast_enabled(k)],
    ]  # fmt: skip
    digest.update(json.dumps(parts).encode())
    for t in held:
        array = as_numpy(t)
        digest.update(f"{array.dtype} {array.shape}".encode())
        digest.update(array.reshape(-1).view(np.uint8).data)
    return digest.hexdigest()


def keep(key: str, library: Library, outputs: Sequence[Any], inputs: Sequence[int]) -> None:
    """Write the library; where it cannot be, nothing happens."""
    if sum(c.nbytes for c in library.constants) > _MOST_BYTES:
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "library"
        library.save(path)
        head = msgspec.json.encode([list(outputs), list(inputs)])
        body = len(head).to_bytes(8, "little") + head + path.read_bytes()
    default_cache().keep(key, body)


def load(key: str) -> tuple[Library, list[Any], list[int]] | None:
    """What `keep` wrote; None where there is nothing, or it is damaged."""
    data = default_cache().kept(key)
    if data is None:
        return None
    try:
        size = int.from_bytes(data[:8], "little")
        outputs, inputs = msgspec.json.decode(data[8 : 8 + size])
        with tempfile.NamedTemporaryFile() as file:
            file.write(memoryview(data)[8 + size :])
            file.flush()
            return load_library(file.name), [tuple(item) for item in outputs], inputs
    except (TilewrightError, msgspec.MsgspecError, OSError, ValueError):
        return None


def _is_known(node: Any) -> bool:
    if node.op != "call_function":
        return bool(node.op != "call_module")
    room = str(getattr(node.target, "__module__", "") or "")
    return room.partition(".")[0] in _KNOWN


def _log_digest(log: str | None) -> str:
    if log is None or not Path(log).is_file():
        return ""
    with open(log, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
