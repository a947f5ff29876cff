"""Warps that take turns at gates, on a machine without a GPU: CUDA text compiled as C++."""

from __future__ import annotations

import ctypes
import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from lowering import bulk_products, group_products
from lowering.bulk_products import H100, Bulk
from lowering.group_products import Product as GroupProduct
from tests.codegen.test_turns import _HOST, _MAIN
from tests.ir import boxes, bulk_rings
from tests.ir.boxes import Boxed
from tests.ir.bulk_rings import FAULTS, BulkRing
from tilewright.base.artifact import Source
from tilewright.codegen import generate
from tilewright.codegen.serial_gates import HELPERS
from tilewright.codegen.serial_threads import copies, order, serialized
from tilewright.driver import nvrtc
from tilewright.ir.stmt import Program
from tilewright.lowering.pipeline import lower_schedule

COMPILER = shutil.which("g++")
SECONDS = 60.0  # for turns: of them a machine with other work needs more than one with none
_WARPS = """
static pthread_barrier_t warps[32];
static int row, plane;
static void __syncwarp() {
  pthread_barrier_wait(&warps[(threadIdx.x + row * (threadIdx.y + plane * threadIdx.z)) / 32]);
}
static void tw_pause() { sched_yield(); }
static int tw_uniform(int index) { return index; }
static void tw_soft_show() {}
static tw_uint __float_as_uint(float x) { tw_uint y; __builtin_memcpy(&y, &x, 4); return y; }
static float __int_as_float(tw_uint x) { float y; __builtin_memcpy(&y, &x, 4); return y; }
static float fabsf(float x) { return __builtin_fabsf(x); }
static tw_uint tw_soft_add(volatile tw_uint* to) { return __sync_fetch_and_add((tw_uint*)to, 1u); }
typedef struct { tw_uint x; } uint1;
typedef struct { float x, y; } float2;
static float2 make_float2(float x, float y) { return {x, y}; }
template <int N> static void tw_mma_begin(float*) {}
template <int N, int P> static void tw_mma_end(float*) {}
// What a lane holds of the sums, of tiles whose rows are swizzled by their address.
static float tw_element(const void* tile, int row, int k, int swizzle) {
  const uintptr_t at = (uintptr_t)tile + row * swizzle + 2 * k;
  return (float)*(const _Float16*)(at ^ ((at >> 7 & (swizzle / 16 - 1)) << 4));
}
template <int A, int B>
static void tw_mma_m64n16k16_float16(float* d, const void* a, const void* b) {
  const int w = threadIdx.x / 32, g = threadIdx.x / 4 % 8, q = threadIdx.x % 4;
  for (int e = 0; e < 8; ++e) {
    const int row = 16 * w + g + e / 2 % 2 * 8, column = e / 4 * 8 + 2 * q + e % 2;
    for (int k = 0; k < 16; ++k) {
      d[e] += tw_element(a, row, k, 128) * tw_element(b, column, k, 128);
    }
  }
}
"""


def turned(program: Program, change: Callable[[str], str] = str) -> Source:
    right = generate(program, H100)
    source = serialized(replace(right, text=change(right.text)))
    assert isinstance(source, Source) and copies(source)
    return source


def outputs(
    program: Program, given: list[np.ndarray], folder: Path, change: Callable[[str], str] = str
) -> list[np.ndarray]:
    """What comes out forwards and backwards, with copies early and late; change: of the text."""
    source = turned(program, change)
    (kernel,) = source.kernels
    text = re.sub(r"  extern __shared__ .*\n", "", source.text)
    helpers = re.findall(r"^static [^;]*? tw_floor\w+\(.*?^}$", text, re.M | re.S)
    own = text[text.index("static __device__ const tw_view") :]
    text = "\n".join([HELPERS, *helpers, own])
    (x, y, z), (gx, gy, gz) = kernel.block, kernel.grid
    *kinds, _ = ["unsigned short" if source.buffers[i].dtype.bits == 16 else "float"
                 for i in kernel.args]  # fmt: skip
    types = [f"({kind}*)s->a[{n}]" for n, kind in enumerate([*kinds, "int"])]
    main = _MAIN.format(
        name=kernel.name, arguments=", ".join(types), threads=x * y * z, blocks=gx * gy * gz,
        gx=gx, gy=gy, x=x, y=y,
    )  # fmt: skip
    ready = f"  row = {x}; plane = {y};\n" + "".join(
        f"  pthread_barrier_init(&warps[{k}], nullptr, 32);\n" for k in range(x * y * z // 32)
    )
    main = main.replace("  pthread_barrier_init(&met", f"{ready}  pthread_barrier_init(&met")
    path, made = folder / "kernel.cpp", folder / f"{len(list(folder.iterdir()))}.so"
    path.write_text(_HOST + _WARPS + text + main)
    command = [str(COMPILER), "-O1", "-shared", "-fPIC", "-pthread", str(path), "-o", str(made)]
    subprocess.run(command, check=True, capture_output=True)
    function = getattr(ctypes.CDLL(str(made)), f"grid_{kernel.name}")
    found = []
    for late in (False, True):
        for backwards in (False, True):
            turns = order(backwards=backwards, group=32, seconds=SECONDS, late=late)
            arrays = [*(a.copy() for a in given), np.array(turns, np.int32)]
            own = (arrays[i].ctypes.data for i in kernel.args)
            function((ctypes.c_void_p * len(kernel.args))(*own))
            found.append(arrays[len(given) - 1])
    return found


def rings_are_right(ring: BulkRing, folder: Path) -> list[bool]:
    found = outputs(bulk_rings.program(ring), bulk_rings.arrays(ring), folder)
    return [bool(np.array_equal(o, bulk_rings.expected(ring))) for o in found]


pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(COMPILER is None, reason="there is no C++ compiler"),
]
RINGS = (BulkRing(), BulkRing(loader=True, again=2), BulkRing(slots=1, loader=True))


@pytest.mark.parametrize("ring", RINGS)
def test_a_ring_is_right_however_late_its_copies_come(ring: BulkRing, tmp_path: Path) -> None:
    assert all(rings_are_right(ring, tmp_path))


# In software the engine's memory is that of the threads.
_PROXIES = ("missing fence", "reads not shown", "shown before it has read")
SHOWN = [f for f in FAULTS if f not in (*_PROXIES, "copies never awaited")]


@pytest.mark.sampled(4)
@pytest.mark.parametrize("loader", [False, True])
@pytest.mark.parametrize("fault", SHOWN)
def test_gates_used_wrongly_show(fault: str, loader: bool, tmp_path: Path) -> None:
    ring = BulkRing(slots=2, tiles=6, loader=loader, fault=fault)
    assert not all(rings_are_right(ring, tmp_path))


CASES = ("three dimensions", "in steps", "rows of another dimension", "swizzled by 32 bytes")


@pytest.mark.parametrize("name", CASES)
def test_boxes_in_software_are_those_of_the_engine(name: str, tmp_path: Path) -> None:
    case: Boxed = boxes.CASES[name]
    given = boxes.arrays(case)
    for found in outputs(boxes.program(case), given, tmp_path):
        assert np.array_equal(found, boxes.expected(case))


@pytest.mark.parametrize("form", [Bulk(k=44, loaders=1), Bulk(n=32, again=2), Bulk(pad=4)])
def test_a_lowered_product(form: Bulk, tmp_path: Path) -> None:
    program = lower_schedule(bulk_products.schedule(replace(form, m=8)), H100)
    x, w, y = bulk_products.arrays(replace(form, m=8))[0]
    expected = bulk_products.arrays(replace(form, m=8))[1]
    order_of = [[b.name for b in program.args].index(n) for n in ("x", "w", "y")]
    given = [a for _, a in sorted(zip(order_of, (x, w, y), strict=True), key=lambda p: p[0])]
    for found in outputs(program, given, tmp_path):
        assert np.array_equal(found, expected)


GROUPS = GroupProduct(m=128, n=16, k=512, block=(128, 16), groups=(2, 1), bulk=True, loaders=4,
                      wide=True)  # fmt: skip
_WRONG = {
    "nothing": lambda text: text,
    "no wait for tiles": lambda text: re.sub(r"tw_await_gate\(.*r_outer % 3\], .*;", "", text),
    "another parity": lambda text: text.replace("_outer / 3 % 2);", "_outer / 3 % 2 ^ 1);", 1),
    "slots are filled unread": lambda text: re.sub(
        r"(_loaded / 3 \+ 1\)) % 2", r"\1 * 0 + 1", text
    ),
    "arrives for the tile under way": lambda text: text.replace(
        "(r_outer + 2) % 3 + 3", "r_outer % 3 + 3"
    ),
}


def _group_product(
    folder: Path, change: Callable[[str], str] = str
) -> tuple[list[np.ndarray], np.ndarray]:
    """What comes out in all orders, what should."""
    program = lower_schedule(group_products.product(GROUPS)[0], H100)
    rng = np.random.default_rng(0)
    a, b = (rng.integers(-8, 9, (n, GROUPS.k)).astype(np.float16) for n in (GROUPS.m, GROUPS.n))
    at = {"A": a, "B": b, "D": np.zeros((GROUPS.m, GROUPS.n), np.float32)}
    right = 2 * (a.astype(np.float32) @ b.astype(np.float32).T)
    given = [at[buffer.name] for buffer in program.args]
    return outputs(program, given, folder, change), right


@pytest.mark.parametrize("fault", _WRONG)
def test_groups_of_warps_take_turns_at_gates(fault: str, tmp_path: Path) -> None:
    """Sums of a batch count when it ends, so only what a fault does to the tiles shows."""

    def change(text: str) -> str:
        changed = _WRONG[fault](text)
        assert changed != text or fault == "nothing"
        return changed

    found, right = _group_product(tmp_path, change)
    agree = [bool(np.array_equal(o, right)) for o in found]
    assert all(agree) == (fault == "nothing"), agree


def test_a_group_waits_however_long_copies_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Late copies are made by one thread of a group whose other warps have nothing to do."""
    begins = "  const tw_view* v = one->view;\n"
    slow = "  for (static int k = 0; k < 1 << 18; ++k) tw_pause();\n"
    assert begins in HELPERS
    monkeypatch.setattr(f"{__name__}.HELPERS", HELPERS.replace(begins, begins + slow))
    found, right = _group_product(tmp_path)
    assert all(np.array_equal(o, right) for o in found)


@pytest.mark.parametrize("atoms", [False, True])
def test_nvrtc_accepts(atoms: bool) -> None:
    pytest.importorskip("cuda.bindings.nvrtc")
    form = Bulk(loaders=1)
    if atoms:
        form = Bulk(m=64, n=64, k=96, rows=32, columns=16, step=32, threads=(1, 2), loaders=4,
                    atoms=True, swizzle=64, dtype="float16")  # fmt: skip
    source = turned(lower_schedule(bulk_products.schedule(form), H100))
    assert nvrtc.build(source, H100).binary
