"""`tilewright run`: what a compiled file computes, how fast, and what it refuses."""

import sys

import numpy as np
import pytest

from tilewright.cli.app import main
from tilewright_tvm import relay


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture(scope="module")
def compiled(tmp_path_factory):
    """relu(x w), and the indices of the greatest of its rows, by a file each."""
    x, w = relay.var("x", shape=(2, 8)), relay.var("w", shape=(4, 8))
    body = relay.nn.relu(relay.nn.dense(x, w))
    mod = relay.IRModule.from_expr(relay.Tuple([body, relay.argmax(body, axis=1)]))
    weights = np.random.default_rng(0).standard_normal((4, 8)).astype("float32")
    library = relay.build(mod, "llvm", {"w": weights})
    paths = [tmp_path_factory.mktemp("run") / name for name in ("net.so", "net.tar")]
    for path in paths:
        library.export_library(path)
    return paths, weights


@pytest.mark.slow
@pytest.mark.parametrize("form", [0, 1])
def test_inputs_and_outputs(run, compiled, tmp_path, form):
    paths, weights = compiled
    x = np.random.default_rng(1).standard_normal((2, 8)).astype("float32")
    np.savez(tmp_path / "in.npz", x=x)
    code, out, err = run("run", str(paths[form]), "--inputs", "in.npz", "--outputs", "out.npz")
    assert code == 0, err
    assert "output_0: float32[2, 4]" in out and "output_1" in out
    with np.load("out.npz") as found:
        want = np.maximum(x @ weights.T, 0)
        assert np.allclose(found["output_0"], want, atol=1e-5)
        assert found["output_1"].tolist() == want.argmax(axis=1).tolist()


@pytest.mark.slow
def test_inputs_may_be_filled_and_runs_timed(run, compiled):
    paths, weights = compiled
    code, out, err = run(
        "run", str(paths[1]), "--fill", "ones", "--outputs", "o.npz", "--repeat", "3", "--number",
        "2", "--profile",
    )  # fmt: skip
    assert code == 0, err
    with np.load("o.npz") as found:
        row = np.maximum(weights.sum(axis=1), 0)
        assert np.allclose(found["output_0"], [row, row], atol=1e-5)
    assert "mean" in out and "dense" in out
    code, out, _ = run("run", str(paths[1]))
    assert code == 0 and "mean" not in out


def test_refusals(run, compiled, tmp_path):
    (_, path), _ = compiled
    np.savez(tmp_path / "wrong.npz", y=np.zeros(3))
    np.savez(tmp_path / "shape.npz", x=np.zeros((3, 3), "float32"))
    np.save(tmp_path / "array.npy", np.zeros(3))
    np.savez(tmp_path / "code.npz", x=np.array([print], object))
    (tmp_path / "text.npz").write_text("no archive")
    for name, words in {
        "wrong.npz": "the network has no input 'y'. It has x", "shape.npz": "x",
        "array.npy": "it is one array without a name", "text.npz": "cannot be read",
        "code.npz": "cannot be read",
    }.items():  # fmt: skip
        code, _, err = run("run", str(path), "--inputs", name)
        assert code == 1 and words in err, (name, err)
        assert err.startswith("error: ") and "Traceback" not in err
    code, _, err = run("run", str(path), "--outputs", "no/such/folder.npz")
    assert code == 1 and "cannot be written" in err
    code, _, err = run("run", "text.npz")
    assert code == 1 and err.startswith("error: ")
    code, _, err = run("run", "missing.so")
    assert code == 2 and "does not exist" in err
    code, _, err = run("run", str(path), "--repeat", "0")
    assert code == 2 and "0 is not more than zero" in err


def test_inputs_of_text_are_one_error(run, compiled):
    np.savez("text.npz", x=np.array(["a"]))
    code, _, err = run("run", str(compiled[0][0]), "--inputs", "text.npz")
    assert code == 1 and len(err.splitlines()) == 1 and "input 'x': dtype" in err
