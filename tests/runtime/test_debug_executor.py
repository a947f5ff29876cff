"""`contrib.debugger.debug_executor` and `GraphModule.profile`: what is seen of single kernels."""

from __future__ import annotations

import json

import numpy as np
import pytest

import tilewright
import tilewright_tvm
from tilewright import cpu
from tilewright.base.errors import DeviceError, ModelError
from tilewright_tvm import relay
from tilewright_tvm.contrib import graph_executor
from tilewright_tvm.contrib.debugger import debug_executor


@pytest.fixture(scope="module")
def library():
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    hidden = relay.nn.dense(x, w)
    body = relay.nn.softmax(relay.nn.dense(relay.exp(hidden), relay.const(np.eye(4, dtype="f4"))))
    weights = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    return relay.build(relay.Function([x, w], body), "llvm", {"w": weights})


X = np.random.default_rng(1).standard_normal((2, 8)).astype("float32")


@pytest.mark.slow
def test_the_values_of_single_kernels(library):
    module = debug_executor.create(library.get_graph_json(), library, cpu())
    module.run(x=X)
    names = [node["name"] for node in json.loads(library.get_graph_json())["nodes"]]
    np.testing.assert_array_equal(module.debug_get_output(0).numpy(), X)
    first = module.debug_get_output(names[1 + len(library.constants)]).numpy()
    weights = library.get_params()["p0"].reshape(-1)
    assert first.shape == (2, 4) and weights.size == 32
    np.testing.assert_array_equal(
        module.debug_get_output(len(names) - 1).numpy(), module.get_output(0).numpy()
    )
    for wrong in ("no such", -1, len(names)):
        with pytest.raises(DeviceError, match="no such node"):
            module.debug_get_output(wrong)


@pytest.mark.slow
def test_times_of_single_nodes(library):
    module = debug_executor.create(library.get_graph_json(), library, [cpu()])
    times = module.run_individual(2, repeat=3)
    kernels = len(library.plan.launches)
    assert len(times) == 1 + len(library.constants) + kernels
    assert all(len(row) == 3 for row in times)
    assert all(min(row) > 0 for row in times[-kernels:])
    assert max(max(row) for row in times[:-kernels]) == 0


def test_files_of_a_run(library, tmp_path):
    folder = tmp_path / "dump"
    module = debug_executor.create(library.get_graph_json(), library, cpu(), dump_root=folder)
    module.run(x=X)
    values = np.load(folder / debug_executor.OUTPUTS_FILE)
    assert any(np.array_equal(v, module.get_output(0).numpy()) for v in values.values())
    profile = json.loads((folder / debug_executor.PROFILE_FILE).read_text())
    assert len(profile["launches"]) == len(library.plan.launches)
    module.exit()
    assert not folder.exists()
    (tmp_path / "file").touch()
    blocked = debug_executor.create(
        library.get_graph_json(), library, cpu(), dump_root=tmp_path / "file"
    )
    with pytest.raises(DeviceError, match="may write to"):
        blocked.run(x=X)


def test_the_table_of_a_profile(library):
    module = graph_executor.create(library.get_graph_json(), library, cpu())
    profile = module.profile(2, x=X)
    lines = str(profile).splitlines()
    words = ["share", "time", "calls", "GFLOP/s", "GB/s", "of", "peak", "layer", "kernel"]
    assert [w for w in lines[0].split() if w != "layer"] == [w for w in words if w != "layer"]
    *shares, rest, whole = [float(line.split("%")[0]) for line in lines[1:-1]]
    assert shares == sorted(shares, reverse=True) and whole == 100
    assert sum(shares) + rest == pytest.approx(100, abs=1)
    assert lines[-2].endswith("a run on cpu(0)")
    rows = profile.csv().splitlines()
    assert rows[0].startswith("name,seconds,flop,bytes") and len(rows) == 1 + len(profile)
    told = json.loads(profile.json())
    assert [k["name"] for k in told["launches"]] == [k.name for k in profile]
    first = profile[0]
    assert first.gflops == pytest.approx(first.flop / first.seconds * 1e-9)
    assert first.nbytes >= 4 * (2 * 8 + 4 * 8 + 2 * 4) and first.gbytes > 0
    assert 0 <= profile.overhead < 1 and 0 <= profile.call_overhead < 1
    assert told["call_seconds"] == profile.call_seconds > 0
    assert lines[-1].startswith("a call, with copies from and to the host: ")


def test_refusals(library):
    with pytest.raises(ModelError, match="not a Library"):
        debug_executor.create("{}", library["default"](cpu()), cpu())
    with pytest.raises(AttributeError, match="GraphModuleDebug"):
        _ = tilewright_tvm.contrib.debugger.debug_result


def test_a_library_is_opened_for_it_by_name(library, tmp_path):
    library.export_library(tmp_path / "net.tar")
    loaded = tilewright.runtime.load_module(tmp_path / "net.tar")
    for lib in (library, loaded):
        graph = lib["get_graph_json"]()
        assert graph == lib.get_graph_json()
        opened = lib["debug_create"]("default", cpu())
        module = debug_executor.GraphModuleDebug(opened, [cpu()], graph, None)
        module.run(x=X)
        assert module.get_output(0).shape == (2, 4)
    with pytest.raises(ModelError, match="no such function"):
        library["debug_create"]("other", cpu())
