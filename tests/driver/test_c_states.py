"""States and bounds of networks through `tilewright.h`: what stays, begins anew, is forked."""

from __future__ import annotations

import ctypes
import re
import subprocess
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import tilewright as tw
from driver.c_calls import CC, CXX, INVALID, OK, WRONG_THREAD, Interface, Tensor, compiled
from tilewright.base.errors import DeviceError
from tilewright.network.build import State, build
from tilewright.runtime.network.compiled import Compiled
from tilewright.runtime.network.library import Library
from tilewright_tvm import relay

pytestmark = pytest.mark.skipif(CC is None, reason="no C compiler")
LENGTH, SIZE = 6, 4
BEGIN = np.array([1, 2], "float32")
STATES = {"cache": State(0), "pair": State(2, BEGIN), "count": State(1)}


def step(rows: int) -> relay.Function:
    """Rows are written to a cache from a position on; a pair turns around; runs are counted.  It
    gives what the cache holds along the rows, the pair, and the count, as they were before."""
    x, cache = relay.var("x", shape=(rows, SIZE)), relay.var("cache", shape=(LENGTH, SIZE))
    at, count = (relay.var(n, shape=(1, 1), dtype="int64") for n in ("at", "count"))
    pair = relay.var("pair", shape=(2,))
    places = at + relay.const(np.arange(rows, dtype="int64").reshape(1, rows))
    new = relay.scatter_nd(cache, places, x)
    turned = relay.reverse(pair, 0) * relay.const(2.0)
    further = count + relay.const(np.array([[1]], "int64"))
    made = relay.Tuple([new, further, turned, relay.nn.dense(x, new), pair, count])
    return relay.Function([x, cache, pair, at, count], made)


@pytest.fixture(scope="module")
def library() -> Library:
    return build([step(1), step(2)], "llvm", states=STATES, verify=False,
                 bounds={"at": (0, LENGTH - 1)})  # fmt: skip


@pytest.fixture(scope="module")
def path(library: Library, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("c") / "net.so"
    library.export_library(path)
    return path


@pytest.fixture
def api(path: Path) -> Any:
    made = Interface(path)
    assert made.open() == OK, made.error
    yield made
    made("close", made.net)


def given(api: Interface, which: str, index: int, values: np.ndarray) -> Tensor:
    found = api.tensor(which, index)
    assert found.bytes == values.nbytes
    found.data = values.ctypes.data
    return found


def called(api: Interface, x: np.ndarray, at: int, net: Any = None) -> list[np.ndarray]:
    """A run by its inputs: its results, or the failure."""
    net = api.net if net is None else net
    place = np.array([[at]], "int64")
    rows = len(x)
    results = [np.zeros((rows, LENGTH), "float32"), np.zeros(2, "float32"),
               np.zeros((1, 1), "int64")]  # fmt: skip
    inputs = (Tensor * 2)(given(api, "input", 0, x), given(api, "input", 1, place))
    outputs = (Tensor * 3)(*(given(api, "output", k, r) for k, r in enumerate(results)))
    status = api("call", net, inputs, 2, outputs, 3)
    if status != OK:
        raise RuntimeError(status, api.error)
    return results


def states(api: Interface, net: Any = None) -> dict[str, np.ndarray]:
    net = api.net if net is None else net
    made = {"cache": np.zeros((LENGTH, SIZE), "float32"), "pair": np.zeros(2, "float32"),
            "count": np.zeros((1, 1), "int64")}  # fmt: skip
    for name, values in made.items():
        found, k = ctypes.c_int(), name.encode()
        assert api("state_index", net, k, ctypes.byref(found)) == OK, api.error
        value = given(api, "state", found.value, values)
        assert api("get_state", net, found.value, ctypes.byref(value)) == OK, api.error
    return made


def equal(found: Any, wanted: Any) -> None:
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5)


X = np.random.default_rng(0).standard_normal((8, SIZE)).astype("float32")


def test_runs_go_on_from_each_other_as_in_python(api: Interface, library: Library) -> None:
    net = Compiled(library)
    count = ctypes.c_int()
    for what, wanted in (("inputs", 2), ("outputs", 3), ("states", 3)):
        assert api(what, api.net, ctypes.byref(count)) == OK and count.value == wanted
    for _ in range(2):
        for k in range(4):
            found = called(api, X[k : k + 1], k)
            equal(found, net(X[k : k + 1], [[k]]))
            np.testing.assert_array_equal(found[1], BEGIN[:: (-1) ** k] * 2**k)
            assert found[2] == k
        equal(states(api).values(), (net.state()[n] for n in states(api)))
        assert api("reset", api.net) == OK
        net.reset()
        np.testing.assert_array_equal(states(api)["pair"], BEGIN)
        assert not states(api)["cache"].any() and states(api)["count"] == 0


def test_all_sets_of_shapes_have_the_same_states(api: Interface, library: Library) -> None:
    net = Compiled(library)
    for index, begin, end in ((0, 0, 1), (1, 1, 3), (0, 3, 4), (1, 4, 6)):
        assert api("use_shapes", api.net, index) == OK
        equal(called(api, X[begin:end], begin), net(X[begin:end], [[begin]]))
    equal(states(api).values(), (net.state()[n] for n in states(api)))


def test_what_is_forked_or_set_goes_on_by_itself(api: Interface, library: Library) -> None:
    net = Compiled(library)
    equal(called(api, X[:1], 0), net(X[:1], [[0]]))
    other, twin = ctypes.c_void_p(), net.fork()
    assert api("fork", api.net, ctypes.byref(other)) == OK, api.error
    saved = states(api)
    equal(called(api, X[1:2], 1, other), twin(X[1:2], [[1]]))
    equal(called(api, X[2:3], 1), net(X[2:3], [[1]]))
    equal(states(api, other).values(), (twin.state()[n] for n in saved))
    for k, values in enumerate(saved.values()):
        value = given(api, "state", k, values)
        assert api("set_state", api.net, k, ctypes.byref(value)) == OK, api.error
    equal(called(api, X[1:2], 1), twin_results(library, X[:2]))
    assert api("close", other) == OK
    assert api("fork", other, ctypes.byref(other)) == INVALID and "is closed" in api.error


def twin_results(library: Library, rows: np.ndarray) -> Any:
    net = Compiled(library)
    return [net(rows[k : k + 1], [[k]]) for k in range(len(rows))][-1]


@pytest.mark.parametrize("at", [-1, LENGTH, 2**40])
def test_a_position_that_there_is_not_is_refused_before_anything_is_written(
    api: Interface, at: int
) -> None:
    called(api, X[:1], 0)
    before, place = states(api), api.tensor("input", 1)
    with pytest.raises(RuntimeError, match=f"{at} is not from 0 to 5, as input at is"):
        called(api, X[1:2], at)
    far = np.array([[at]], "int64")
    wrong = given(api, "input", 1, far)
    assert api("set_input", api.net, 1, ctypes.byref(wrong)) == INVALID and "written" in api.error
    assert api("run", api.net) == OK  # with the inputs of before
    assert states(api)["count"] == 2
    ctypes.memmove(place.data, wrong.data, 8)  # to its own memory
    assert api("run", api.net) == INVALID and f"{at} is not from" in api.error
    assert states(api)["count"] == 2
    np.testing.assert_array_equal(states(api)["cache"], before["cache"])


def test_bounds_are_told(api: Interface) -> None:
    least, most = ctypes.c_int64(), ctypes.c_int64()
    both = ctypes.byref(least), ctypes.byref(most)
    assert api("bounds", api.net, 1, *both) == OK and (least.value, most.value) == (0, 5)
    assert api("bounds", api.net, 0, *both) == OK
    assert (least.value, most.value) == (-(2**63), 2**63 - 1)
    assert api("bounds", api.net, 2, *both) == INVALID and "Use 0 to 1" in api.error
    assert api("bounds", api.net, 0, both[0], None) == INVALID and "most is null" in api.error


@pytest.mark.slow
def test_bounds_of_each_type_of_whole_numbers(tmp_path: Path) -> None:
    kinds = [f"{sign}int{bits}" for bits in (8, 16, 32, 64) for sign in ("", "u")]
    given_ = [relay.var(f"of_{kind}", shape=(3,), dtype=kind) for kind in kinds]
    made = relay.build(
        relay.Function(given_, relay.Tuple([x + x for x in given_])), "llvm", verify=False,
        bounds={f"of_{kind}": (1, 100) for kind in kinds},
    )  # fmt: skip
    made.export_library(tmp_path / "net.so")
    api = Interface(tmp_path / "net.so")
    assert api.open() == OK, api.error
    for k, kind in enumerate(kinds):
        wrong = [0, 101, np.iinfo(kind).max, *([-1] if kind[0] == "i" else [])]
        for last, status in ((100, OK), (1, OK), *((n, INVALID) for n in wrong)):
            values = np.array([1, 50, last], kind)
            value = given(api, "input", k, values)
            assert api("set_input", api.net, k, ctypes.byref(value)) == status, (kind, last)
            assert status == OK or f"as input of_{kind} is" in api.error
    api("close", api.net)


def test_wrong_states_are_refused(api: Interface) -> None:
    index, before = ctypes.c_int(), states(api)
    assert api("state_index", api.net, b"x", ctypes.byref(index)) == INVALID
    assert "that is an input of the network. Write tilewright_input_index" in api.error
    assert api("input_index", api.net, b"cache", ctypes.byref(index)) == INVALID
    assert "Write tilewright_state_index" in api.error
    assert api("state_index", api.net, b"none", ctypes.byref(index)) == INVALID
    value = api.tensor("state", 0)
    value.bytes -= 4
    assert api("set_state", api.net, 0, ctypes.byref(value)) == INVALID and "bytes" in api.error
    value.type = 2
    assert api("set_state", api.net, 0, ctypes.byref(value)) == INVALID
    assert re.search(r"float64\[6, 4\], state cache is float32\[6, 4\]", api.error)
    for name in ("get_state", "set_state", "state"):
        assert api(name, api.net, 3, ctypes.byref(value)) == INVALID and "Use 0 to 2" in api.error
        assert api(name, api.net, 0, None) == INVALID and "null" in api.error
        assert api(name, None, 0, None) == INVALID and "null" in api.error
    assert api("fork", api.net, None) == INVALID and api("reset", None) == INVALID
    equal(states(api).values(), before.values())


def test_a_network_with_states_belongs_to_one_thread(api: Interface) -> None:
    called(api, X[:1], 0)
    found: list[Any] = []

    def other() -> None:
        try:
            called(api, X[1:2], 1)
        except RuntimeError as error:
            found.append(error.args)
        found.append(api("reset", api.net))
        found.append(api("fork", api.net, ctypes.byref(ctypes.c_void_p())))

    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert found[0][0] == WRONG_THREAD and found[1:] == [WRONG_THREAD] * 2
    assert states(api)["count"] == 1


PROGRAM = """
#include <stdio.h>
#include <string.h>
#include "tilewright.h"
#define MUST(call) if (call) return puts(tilewright_error()), 1
static int show(TilewrightNetwork *net, float value, long long at) {
  TilewrightTensor x, place, y;
  MUST(tilewright_input(net, 0, &x)); MUST(tilewright_input(net, 1, &place));
  MUST(tilewright_output(net, 0, &y));
  float row[4] = {value, 0, 0, 0}, made[6];
  int64_t given = at;
  x.data = row, place.data = &given, y.data = made;
  MUST(tilewright_set_input(net, 0, &x)); MUST(tilewright_set_input(net, 1, &place));
  MUST(tilewright_run(net)); MUST(tilewright_get_output(net, 0, &y));
  for (int k = 0; k < 6; k++) printf("%g ", made[k]);
  return 0;
}
int main(void) {
  TilewrightNetwork *a, *b; TilewrightTensor cache; float saved[24];
  MUST(tilewright_open(TILEWRIGHT_INTERFACE, NULL, &a));
  MUST(show(a, 2, 0)); MUST(show(a, 3, 1));
  MUST(tilewright_fork(a, &b));
  MUST(tilewright_state(a, 0, &cache)); cache.data = saved;
  MUST(tilewright_get_state(a, 0, &cache));
  MUST(tilewright_reset(a)); MUST(show(a, 1, 5)); MUST(show(b, 1, 2));
  MUST(tilewright_set_state(a, 0, &cache)); MUST(show(a, 1, 3));
  MUST(tilewright_close(a));
  if (show(b, 1, 6) == 0) return 2;
  return tilewright_close(b);
}
"""
TOLD = "4 0 0 0 0 0 6 9 0 0 0 0 0 0 0 0 0 1 2 3 1 0 0 0 2 3 0 1 0 0 "


@pytest.mark.slow
def test_a_program_in_c(path: Path, tmp_path: Path) -> None:
    (tmp_path / "main.c").write_text(PROGRAM)
    compiled("-std=c99", tmp_path / "main.c", path, "-o", tmp_path / "main")
    done = subprocess.run([tmp_path / "main"], capture_output=True, text=True)
    assert not done.returncode, done.stdout + done.stderr
    assert done.stdout.startswith(TOLD) and "6 is not from 0 to 5" in done.stdout


CPP = """
#include <cstdio>
#include "tilewright.h"
int main(int, char **argv) {
  tilewright::Network net(argv[1]);
  const float row[4] = {2, 0, 0, 0}; const int64_t at = 0, far = 6; float made[6], cache[24];
  net.set_input(0, row); net.set_input(1, &at); net.run();
  tilewright::Network other = net.fork();
  net.reset(); net.get_state(0, cache); std::printf("%g ", cache[0]);
  other.get_state(0, cache); net.set_state(0, cache); net.set_input(1, &at); net.run();
  net.get_output(0, made); std::printf("%g %d ", made[0], net.states());
  try { net.set_input(1, &far); } catch (const tilewright::Error &e) { std::puts(e.what()); }
}
"""


@pytest.mark.skipif(CXX is None, reason="no C++ compiler")
@pytest.mark.slow
def test_a_program_in_cpp(path: Path, tmp_path: Path) -> None:
    (tmp_path / "main.cc").write_text(CPP)
    compiled("-std=c++11", tmp_path / "main.cc", "-o", tmp_path / "main", "-ldl", cc=CXX)
    done = subprocess.run([tmp_path / "main", path], capture_output=True, text=True)
    assert not done.returncode and done.stdout.startswith("0 4 3 "), done.stdout + done.stderr
    assert "6 is not from 0 to 5" in done.stdout


ON_GPU = """
#include <stdio.h>
#include "tilewright.h"
#define MUST(call) if (call) return puts(tilewright_error()), 1
int main(void) {
  TilewrightNetwork *a, *b; TilewrightTensor pair, place; int64_t far = 6; float saved[2];
  MUST(tilewright_open(TILEWRIGHT_INTERFACE, NULL, &a));
  MUST(tilewright_state(a, 1, &pair)); pair.data = saved;
  MUST(tilewright_get_state(a, 1, &pair)); printf("pair %g %g\\n", saved[0], saved[1]);
  MUST(tilewright_run(a)); saved[0] = 7; MUST(tilewright_set_state(a, 1, &pair));
  MUST(tilewright_fork(a, &b)); MUST(tilewright_reset(a)); saved[0] = 0;
  MUST(tilewright_get_state(b, 1, &pair)); printf("forked %g\\n", saved[0]);
  MUST(tilewright_get_state(a, 1, &pair)); printf("anew %g\\n", saved[0]);
  MUST(tilewright_input(a, 1, &place)); place.data = &far;
  if (!tilewright_set_input(a, 1, &place)) return 2;
  puts(tilewright_error());
  MUST(tilewright_close(a)); MUST(tilewright_run(b)); MUST(tilewright_close(b));
  return 0;
}
"""


@pytest.mark.slow
def test_states_of_a_gpu(tmp_path: Path) -> None:
    """By a driver that has no GPU: memory is the host's, kernels are not run."""
    pytest.importorskip("cuda.bindings.nvrtc")
    made = build([step(1), step(2)], "cuda -arch=sm_90", states=STATES, verify=False,
                 bounds={"at": (0, LENGTH - 1)})  # fmt: skip
    made.export_library(tmp_path / "net.so")
    (tmp_path / "main.c").write_text(ON_GPU)
    compiled(tmp_path / "main.c", tmp_path / "net.so", "-o", tmp_path / "main")
    fake = Path(__file__).with_name("c") / "fake_cuda.c"
    compiled("-shared", "-fPIC", fake, "-o", tmp_path / "libcuda.so.1")
    done = subprocess.run(
        [tmp_path / "main"], capture_output=True, text=True, env={"LD_LIBRARY_PATH": str(tmp_path)}
    )
    assert not done.returncode, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert {"pair 1 2", "forked 7", "anew 1"} <= set(lines)
    assert any("6 is not from 0 to 5" in line for line in lines)
    assert "left open: 0, contexts: 0" in lines


def test_a_library_in_other_files_has_them(library: Library, path: Path, tmp_path: Path) -> None:
    """Archives, and the shared object as Python reads it."""
    library.export_library(tmp_path / "net.tar")
    wanted = [net(X[:1], [[2]]) for net in [Compiled(library)] for _ in range(2)]
    for file in (path, tmp_path / "net.tar"):
        net = tw.open(file)
        assert [s.name for s in net.states] == ["cache", "pair", "count"]
        for one in wanted:
            equal(net(X[:1], [[2]]), one)
        with pytest.raises(DeviceError, match="6 is not from 0 to 5"):
            net(X[:1], [[6]])
