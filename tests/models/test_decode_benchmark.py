"""`benchmarks/decode.py` on a tiny model: rows of ours and of peers, what is kept, what is cut."""

from __future__ import annotations

import json
import sys
import types
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="PyTorch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytest.importorskip("safetensors", reason="safetensors is not installed")

WORDS = ["--shapes", "tiny", "--layers", "1", "--positions", "8", "--cache", "24", "--device",
         "cpu", "--dtype", "float32", "--unverified"]  # fmt: skip


@pytest.fixture
def decode(monkeypatch: Any, tmp_path: Path) -> Any:
    from tilewright.models.torch import told

    monkeypatch.setenv("TILEWRIGHT_CACHE", str(tmp_path / "cache"))
    monkeypatch.syspath_prepend(Path(__file__).parents[2] / "benchmarks")
    torch._dynamo.reset()
    told._told.clear()
    import decode

    return decode


@pytest.mark.slow
def test_a_table_of_ours_and_of_what_is_here(decode: Any, tmp_path: Path, capsys: Any) -> None:
    for name in ("vllm", "llama_cpp"):
        assert name not in sys.modules
    report = decode.main(
        [
            *WORDS,
            "--prefill",
            "6",
            "--peers",
            "eager",
            "vllm",
            "llama.cpp",
            "--keep",
            "--folder",
            str(tmp_path),
            "--bandwidth",
            "2e10",
        ]
    )
    rows = {(row["engine"], row["what"]): row for row in report.rows}
    steps = {engine: row for (engine, what), row in rows.items() if what == "step"}
    ours = {"ours, torch.compile", "ours, load"}
    assert set(steps) == {*ours, "eager"} and len(rows) == 6
    for engine, row in steps.items():
        assert row["argmax"] == "equal" and row["off"] <= float(row["bound"]), engine
        assert row["ms"] > 0 and row["bandwidth"].endswith("%")
    for engine in ours:
        assert steps[engine]["launches"] > 3 and steps[engine]["moves"].endswith("%")
    told = capsys.readouterr().out
    assert "vllm: no vllm here (pip install vllm)" in told and "pip install llama-cpp" in told
    (kept,) = json.loads((tmp_path / "decode_cpu.json").read_text())
    assert kept["rows"] == report.rows and kept["commit"] and kept["device"]


def test_wrong_logits_are_told_from_right_ones(decode: Any) -> None:
    options = decode.parsed([*WORDS, "--prefill", "0"])
    report = decode.Report(options, "here")
    with torch.no_grad():
        case = decode.case_of("tiny", options)
    row = {"ms": 1.0, "graph ms": None}
    for scale, told in ((1.0, ""), (1.01, " EXCEEDED")):
        decode.keep_step(case, "ours", dict(row), case.wanted * scale, 0.0, None, report)
        assert report.rows[-1]["bound"].endswith(told) and report.rows[-1]["argmax"] == "equal"
    assert "EXCEEDED" not in report.rows[0]["bound"]
    decode.keep_step(case, "ours", dict(row), -case.wanted, 0.0, None, report)
    assert report.rows[-1]["argmax"] == "another"


def test_engines_that_serve_models_are_timed_by_the_token(decode: Any, monkeypatch: Any) -> None:
    """They are not here: what stands for them says how they are asked."""
    asked: list[Any] = []

    class LLM:
        def __init__(self, model: str, **how: Any) -> None:
            asked.append(json.loads(Path(model, "config.json").read_text())["hidden_size"])

        def generate(self, prompts: Any, sampling: Any, use_tqdm: bool) -> None:
            asked.append((len(prompts[0]["prompt_token_ids"]), sampling.max_tokens))

    class Llama:
        def __init__(self, model_path: str, **how: Any) -> None:
            asked.append((model_path, how["n_ctx"]))

        def reset(self) -> None: ...

        def generate(self, tokens: list[int], temp: float) -> Any:
            while True:
                asked.append(len(tokens))
                yield 1

    serving = types.ModuleType("vllm")
    serving.__dict__.update(LLM=LLM, SamplingParams=lambda **how: types.SimpleNamespace(**how))
    local = types.ModuleType("llama_cpp")
    local.__dict__.update(Llama=Llama)
    monkeypatch.setitem(sys.modules, "vllm", serving)
    monkeypatch.setitem(sys.modules, "llama_cpp", local)
    options = decode.parsed([*WORDS, "--prefill", "0", "--gguf", "net.gguf"])
    report = decode.Report(options, "here")
    with torch.no_grad():
        case = decode.case_of("tiny", options)
    decode.by_vllm(case, report)
    assert asked[:2] == [64, (8, 2)] and (8, 15) in asked
    asked.clear()
    decode.by_llama_cpp(case, report)
    assert asked[0] == ("net.gguf", 24) and asked.count(8) == 2 + 3 * 16
    assert [row["engine"] for row in report.rows] == ["vllm", "llama.cpp"]
