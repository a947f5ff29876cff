"""How long engines that serve models take for a token: vLLM, llama.cpp.

In: a model's config or file, a prompt.  Out: milliseconds of one more token.  What is not installed
raises ModuleNotFoundError.  Read next: `decode.py`.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Served:
    """milliseconds: of a token; start: seconds until the engine stood"""

    milliseconds: float
    start: float


def vllm(folder: Path, prompt: list[int], dtype: str, length: int) -> Served:
    """vLLM on the model of a config.json, with random weights of its own.

    length: positions of its cache
    """
    from vllm import LLM, SamplingParams

    began = time.perf_counter()
    engine = LLM(
        model=str(folder), load_format="dummy", skip_tokenizer_init=True, dtype=dtype,
        max_model_len=length, gpu_memory_utilization=0.4, max_num_seqs=1,
    )  # fmt: skip
    start = time.perf_counter() - began

    def tokens(count: int) -> None:
        sampling = SamplingParams(
            max_tokens=count, temperature=0.0, ignore_eos=True, detokenize=False
        )
        engine.generate([{"prompt_token_ids": prompt}], sampling, use_tqdm=False)

    return Served(_a_token(tokens, length - len(prompt) - 1), start)


def llama_cpp(file: str, prompt: list[int], length: int) -> Served:
    """llama.cpp on a .gguf file, all layers on the GPU where there is one."""
    import llama_cpp as package

    if not file:
        raise ValueError("it reads a file of the shape: --gguf FILE")
    began = time.perf_counter()
    engine = package.Llama(model_path=file, n_gpu_layers=-1, n_ctx=length, verbose=False)
    start = time.perf_counter() - began

    def tokens(count: int) -> None:
        engine.reset()
        for _ in itertools.islice(engine.generate(prompt, temp=0.0), count):
            pass

    return Served(_a_token(tokens, length - len(prompt) - 1), start)


def _a_token(tokens: Callable[[int], None], most: int) -> float:
    """Milliseconds of one more token: what many take beyond one, the median of three."""
    many, found = max(min(most, 65), 2), []
    tokens(2)
    for _ in range(3):
        marks = [time.perf_counter()]
        for count in (1, many):
            tokens(count)
            marks.append(time.perf_counter())
        one, rest = marks[1] - marks[0], marks[2] - marks[1]
        found.append((rest - one) / (many - 1) * 1e3)
    return round(statistics.median(found), 4)
