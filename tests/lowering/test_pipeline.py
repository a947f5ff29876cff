"""What the environment makes lowering show, check and write."""

from __future__ import annotations

from pathlib import Path

import pytest

from schedule.computations import matmul
from schedule.test_schedules import drawn, lowered
from tilewright import te
from tilewright.base.errors import InternalError
from tilewright.ir import expr as E
from tilewright.ir.stmt import Kernel, Store
from tilewright.lowering import pipeline
from tilewright.lowering.pipeline import lower_schedule
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.targets.target import Target


def vectorized() -> Schedule:
    *_, c = matmul(8, 16, 4)
    s = create_schedule([c.op])
    s[c].vectorize(s[c].split(s[c].op.axis[1], factor=8)[1])
    return s


@pytest.mark.sampled(1)
@pytest.mark.slow
@pytest.mark.parametrize("gpu", [False, True])
def test_every_pass_keeps_kernels_well_formed(
    gpu: bool, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "5")
    for seed in range(100):
        _, schedule = drawn(20_000 + seed, gpu)
        lowered(schedule, "cuda" if gpu else "llvm")
    shown = capsys.readouterr().err
    assert all(f"-- {label}: " in shown for label in ("loops", "vectorize", "simplify"))


def test_a_pass_that_breaks_a_kernel_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(kernel: Kernel, *_: object) -> Kernel:
        buffer = kernel.params[-1]
        return Kernel(kernel.name, kernel.params, Store(buffer, E.var("lost"), E.const(0.0)))

    monkeypatch.setattr(pipeline, "PASSES", (*pipeline.PASSES, ("broken", broken)))
    lower_schedule(vectorized(), Target("llvm"))  # only a debugging run looks
    monkeypatch.setenv("TILEWRIGHT_DEBUG", "5")
    with pytest.raises(InternalError, match="lost is not bound here"):
        lower_schedule(vectorized(), Target("llvm"))


def test_dump_writes_the_kernel_after_each_pass_that_changed_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "made" / "when needed"))
    program = lower_schedule(vectorized(), Target("llvm"), "product")
    (kernel,) = program.kernels
    files = sorted((tmp_path / "made" / "when needed" / kernel.name).iterdir())
    names = [f.name for f in files]
    assert names[0] == "00_loops.txt" and "02_vectorize.txt" in names
    assert "vectorized for" in files[0].read_text()
    assert files[-1].read_text() == f"{kernel}\n"  # the last change is the result
    assert capsys.readouterr().err == ""


def test_a_stage_named_like_a_path_is_dumped_inside_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEWRIGHT_DUMP", str(tmp_path / "inner" / "dump"))
    a = te.placeholder((8,), name="A")
    b = te.compute((8,), lambda i: a[i] + 1, name="../../outside")
    lower_schedule(create_schedule([b.op]), Target("llvm"))
    texts = list(tmp_path.rglob("*.txt"))
    assert texts and all(p.is_relative_to(tmp_path / "inner" / "dump") for p in texts)
