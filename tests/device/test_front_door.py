"""The front door on a device of its own: arrays and tensors come back, files are opened."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from tilewright.runtime.device import Device
from tilewright.runtime.network import compiled as compiled_module

SHAPE = (2, 3, 16, 16)


def network() -> tw.Network:
    """Several kernels with values between them, and two outputs."""
    from tilewright_tvm import relay

    x = relay.var("x", shape=SHAPE)
    w, v = (relay.var(n, shape=s) for n, s in (("w", (8, 3, 3, 3)), ("v", (4, 8, 1, 1))))
    hidden = relay.nn.relu(relay.nn.conv2d(x, w, padding=(1, 1)))
    out = relay.nn.conv2d(hidden, v)
    rng = np.random.default_rng(0)
    weights = {n: rng.standard_normal(s).astype("float32") for n, s in
               (("w", (8, 3, 3, 3)), ("v", (4, 8, 1, 1)))}  # fmt: skip
    mod = relay.IRModule.from_expr(relay.Tuple([out, relay.sum(hidden, axis=1)]))
    return tw.load(mod, params=weights)


def data(seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(SHAPE).astype("float32")


def close(found: Any, want: Any) -> bool:
    return all(
        np.allclose(np.asarray(a), np.asarray(b), 1e-4, 1e-4)
        for a, b in zip(found, want, strict=True)
    )


def test_arrays_go_in_and_come_back(on_device: Device, kind: str, tmp_path: Path) -> None:
    net = network()
    want = [tw.compile(net, "llvm")(data(seed)) for seed in range(4)]
    run = tw.compile(net, kind)
    assert run.device == on_device and run.report.kernels[0].verified
    assert close(run(data()), want[0])
    there = run(tw.nd.array(data(1), on_device))
    assert all(value.device == on_device for value in there)
    assert close(run(data()), want[0])
    assert close([value.numpy() for value in there], want[1])  # it is not overwritten
    results: dict[int, bool] = {}

    def work(seed: int) -> None:
        results[seed] = all(close(run(data(seed)), want[seed]) for _ in range(20))

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == dict.fromkeys(range(4), True)
    run.save(tmp_path / "net.tar")
    assert close(tw.open(tmp_path / "net.tar")(data(2)), want[2])
    assert 0 < run.time() < 1


@pytest.mark.cuda
def test_tensors_of_a_gpu_stay_there(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch finds no GPU")
    net = network()
    want = tw.compile(net, "llvm")(data())
    run = tw.compile(net, "cuda")
    x = torch.from_numpy(data()).cuda()
    for value in (x, x.double(), x.transpose(2, 3).contiguous().transpose(2, 3)):
        found = run(value)
        assert all(v.device == x.device for v in found) and close([v.cpu() for v in found], want)
    for _ in range(50):  # memory is given back and taken again meanwhile
        found = run((x + 1) - 1)
        torch.rand_like(x)
        assert close([v.cpu() for v in found], want)
    with torch.cuda.stream(torch.cuda.Stream()):
        assert close([v.cpu() for v in run(x * 1)], want)
    beside = run(torch.from_numpy(data()))  # on the host
    assert all(v.device.type == "cpu" for v in beside) and close(beside, want)
    on_host = tw.compile(net, "llvm")(x)
    assert all(v.device == x.device for v in on_host) and close([v.cpu() for v in on_host], want)
    monkeypatch.setattr(compiled_module, "from_dlpack", lambda *_: pytest.fail("it was copied"))
    assert close([v.cpu() for v in run(x)], want)
