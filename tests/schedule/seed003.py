"""The conv2d template of the AutoTVM tutorial for NVIDIA GPUs, on this project's names."""

from __future__ import annotations

from typing import Any

from schedule.computations import conv2d
from tilewright.schedule.schedule import Schedule, create_schedule
from tilewright.schedule.template import get_config, template
from tilewright.te.tensor import Tensor

FLAGSHIP = (1, 7, 7, 512, 512, 3, 3, 1, 1)
SPLITS = {"tile_f": 4, "tile_y": 4, "tile_x": 4, "tile_rc": 3, "tile_ry": 3, "tile_rx": 3}


@template("tests/conv2d_no_batching")
def conv2d_no_batching(
    n: int,
    h: int,
    w: int,
    co: int,
    ci: int,
    kh: int,
    kw: int,
    stride: int,
    pad: int,
    policy: str = "factors",
) -> tuple[Schedule, list[Tensor]]:
    raw, kernel, conv = conv2d(n, ci, h, w, co, kh, kw, stride, pad)
    s = create_schedule([conv.op])
    _, f, y, x = s[conv].op.axis
    rc, ry, rx = s[conv].op.reduce_axis
    cfg = get_config()
    for (name, parts), axis in zip(SPLITS.items(), (f, y, x, rc, ry, rx), strict=True):
        cfg.define_split(name, axis, num_outputs=parts, policy=policy)
    cfg.define_knob("auto_unroll_max_step", [0, 512, 1500])
    cfg.define_knob("unroll_explicit", [0, 1])
    _schedule(s, cfg, conv, raw, kernel)
    return s, [raw, kernel, conv]


def _schedule(s: Schedule, cfg: Any, output: Tensor, raw: Tensor, kernel: Tensor) -> None:
    data = s[output].op.input_tensors[0]
    s[data].compute_inline()
    ol = s.cache_write(output, "local")
    aa, ww = s.cache_read(data, "shared", [ol]), s.cache_read(kernel, "shared", [ol])
    al, wl = s.cache_read(aa, "local", [ol]), s.cache_read(ww, "local", [ol])
    n, f, y, x = s[output].op.axis
    bf, vf, tf, fi = cfg["tile_f"].apply(s, output, f)
    by, vy, ty, yi = cfg["tile_y"].apply(s, output, y)
    bx, vx, tx, xi = cfg["tile_x"].apply(s, output, x)
    tags = (
        "blockIdx.z",
        "blockIdx.y",
        "blockIdx.x",
        *["vthread"] * 3,
        "threadIdx.z",
        "threadIdx.y",
        "threadIdx.x",
    )
    for axis, tag in zip((bf, by, bx, vf, vy, vx, tf, ty, tx), tags, strict=True):
        s[output].bind(axis, tag)
    s[output].reorder(n, bf, by, bx, vf, vy, vx, tf, ty, tx, fi, yi, xi)
    s[ol].compute_at(s[output], tx)
    scope = n
    n, f, y, x = s[ol].op.axis
    rc, ry, rx = s[ol].op.reduce_axis
    rco, rcm, rci = cfg["tile_rc"].apply(s, ol, rc)
    ryo, rym, ryi = cfg["tile_rx"].apply(s, ol, ry)
    rxo, rxm, rxi = cfg["tile_ry"].apply(s, ol, rx)
    s[ol].reorder(rco, ryo, rxo, rcm, rym, rxm, rci, ryi, rxi, n, f, y, x)
    for cache, axis in ((aa, rxo), (ww, rxo), (al, rxm), (wl, rxm)):
        s[cache].compute_at(s[ol], axis)
    for cache in (aa, ww):
        fused = s[cache].fuse(*s[cache].op.axis)
        for name, tag in (
            ("tile_f", "threadIdx.z"),
            ("tile_y", "threadIdx.y"),
            ("tile_x", "threadIdx.x"),
        ):
            lane, fused = s[cache].split(fused, nparts=cfg[name].size[2])
            s[cache].bind(lane, tag)
    s[output].pragma(scope, "auto_unroll_max_step", cfg["auto_unroll_max_step"].val)
    s[output].pragma(scope, "unroll_explicit", cfg["unroll_explicit"].val)


# The 20 trials that the tutorial prints: configuration index and whether the kernel could run.
TRIALS = {
    9163817: False, 430132: True, 7171430: True, 371506: False, 1984850: True, 5892581: True,
    2135585: True, 1293822: True, 4766314: True, 3056056: False, 161989: False, 29635: False,
    6720023: False, 1478128: False, 9198955: False, 220904: False, 8322429: False, 3510954: False,
    6540502: False, 108895: False,
}  # fmt: skip
