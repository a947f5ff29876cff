"""References: arrays by file, dropped with their store, swept after a kill."""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pytest

from tilewright.base.dtype import TYPES, DType
from tilewright.base.errors import Unavailable
from tilewright.measure import reference as R


@pytest.fixture(autouse=True)
def elsewhere(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    R._cache.clear()


def test_arrays_come_back_exactly_and_are_read_once(monkeypatch):
    x = np.arange(12, dtype=np.float32).reshape(3, 4).T  # not contiguous
    want, slack = x.astype(np.float64) * 2, np.float64(0.5)
    with R.ReferenceStore() as store:
        stored = store.put("task", [x], [want], [slack])
        assert store.get("task") == stored and store.get("other") is None
        data = R.load(stored)
        assert np.array_equal(data.inputs[0], x) and data.inputs[0].flags.c_contiguous
        assert np.array_equal(data.expected[0], want) and data.expected[0].dtype == np.float64
        assert data.tolerance[0] == slack and data.tolerance[0].shape == ()
        assert R.load(stored) is data


@pytest.mark.parametrize("dtype", TYPES)
def test_inputs_keep_their_element_type(dtype):
    array = np.arange(6).astype(DType(dtype).storage).reshape(2, 3)
    with R.ReferenceStore() as store:
        arrays = R.load(store.put("typed", [array], [array.astype(np.float64)], [0.5]))
    assert arrays.inputs[0].dtype == DType(dtype).storage
    assert np.array_equal(arrays.inputs[0], array)


def test_a_name_can_be_stored_again():
    with R.ReferenceStore() as store:
        first = store.put("task", [np.zeros(2)], [], [])
        second = store.put("task", [np.ones(2)], [], [])
        assert first != second == store.get("task")
        assert R.load(first).inputs[0][0] == 0 and R.load(second).inputs[0][0] == 1


def test_the_cache_is_bounded(monkeypatch):
    monkeypatch.setattr(R, "_CACHE_BYTES", 3000)
    with R.ReferenceStore() as store:
        stored = [store.put(str(n), [np.full(150, n)], [], []) for n in range(4)]
        for one in stored:
            R.load(one)
        R.load(stored[2])
        R.load(stored[0])
        assert list(R._cache) == [stored[2], stored[0]]


def test_the_files_go_with_the_store(tmp_path):
    store = R.ReferenceStore()
    store.put("task", [np.zeros(2)], [], [])
    assert len(os.listdir(tmp_path)) == 1
    store.close()
    assert os.listdir(tmp_path) == []


HOLDS = """
import sys, tempfile
tempfile.tempdir = sys.argv[1]
from tilewright.measure.reference import ReferenceStore
import numpy as np
store = ReferenceStore()
print(store.put("task", [np.zeros(2)], [], []).directory, flush=True)
sys.stdin.read()
"""


def holder(folder):
    """A process that keeps a reference in `folder` until it is killed, and where that lies."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLDS, str(folder)], stdin=-1, stdout=-1, text=True
    )
    return process, Path(process.stdout.readline().strip())


@pytest.mark.slow
def test_what_a_killed_process_left_is_swept_and_what_others_use_is_not(tmp_path, monkeypatch):
    (killed, left), (other, used) = holder(tmp_path), holder(tmp_path)
    try:
        killed.kill()
        killed.wait()
        assert left.exists() and used.exists()

        def not_seen_here(pid, signal):  # two containers share files, not process ids
            raise ProcessLookupError

        monkeypatch.setattr(os, "kill", not_seen_here)
        with R.ReferenceStore():
            assert not left.parent.exists() and (used / "0-input0.npy").exists()
    finally:
        monkeypatch.undo()
        for process in (killed, other):
            process.kill()
            process.communicate()


def test_a_fork_does_not_remove_its_parents_files(tmp_path):
    with R.ReferenceStore() as store:
        folder = Path(store.put("task", [np.zeros(2)], [], []).directory)
        child = os.fork()
        if child == 0:
            store.close()
            os._exit(0)
        os.waitpid(child, 0)
        assert (folder / "0-input0.npy").exists()


def test_a_full_temporary_directory_is_a_clear_error(monkeypatch, tmp_path):
    def full(*_, **__):
        raise OSError(28, "No space left on device")

    with R.ReferenceStore() as store:
        with monkeypatch.context() as patch:
            patch.setattr(np, "save", full)
            with pytest.raises(Unavailable, match="No space left on device.*set TMPDIR"):
                store.put("task", [np.zeros(2)], [], [])
        assert store.get("task") is None
        assert list(tmp_path.rglob("*")) == [store._folder.path]  # no space is kept
    monkeypatch.setattr(tempfile, "mkdtemp", full)
    with pytest.raises(Unavailable, match="No space left on device.*set TMPDIR"):
        R.ReferenceStore()


def test_the_store_lies_in_the_temporary_directory(tmp_path):
    with R.ReferenceStore() as store:
        folder = Path(store.put("task", [], [], []).directory)
        assert tmp_path in folder.parents
