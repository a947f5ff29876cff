"""What comes after a YOLO network (Redmon et al., 2016): its numbers become boxes, and few of them.

Helpers of TVM's tutorials, with the names they have there; all of it is numpy.

In: outputs of the last layers.  Out: detections: dicts of `bbox`, `prob` of each class,
`objectness`.  Read next: `tilewright_tvm/relay/testing/__init__.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, MutableSequence, Sequence
from typing import Any, NamedTuple

import numpy as np

from tilewright.graph.expr import Array

Detection = dict[str, Any]


class Box(NamedTuple):
    """Centre, width and height; in parts of the image, or pixels."""

    x: float
    y: float
    w: float
    h: float


def fill_network_boxes(
    net_shape: Sequence[int],
    im_shape: Sequence[int],
    thresh: float,
    relative: bool,
    tvm_out: Sequence[Mapping[str, Any]],
) -> list[Detection]:
    """The detections of all layers.

    net_shape, im_shape: (width, height) of the network's input and of the image, which was scaled
        to fit into it and centred
    thresh:   detections whose objectness is not above it are left out (Yolo), or have none (Region)
    relative: boxes are in parts of the image, else in pixels
    tvm_out:  of each layer `type` ("Yolo" or "Region"), `output` (anchors, values, height, width),
        `biases` and `classes`; of Yolo also `mask`, of Region `coords` and `background`
    """
    found: list[Detection] = []
    for layer in tvm_out:
        made = _yolo(layer, net_shape, thresh) if layer["type"] == "Yolo" else ()
        made = _region(layer, thresh) if layer["type"] == "Region" else made
        for detection in made:
            detection["bbox"] = _in_image(detection["bbox"], im_shape, net_shape, relative)
            found.append(detection)
    return found


def _yolo(layer: Mapping[str, Any], net_shape: Sequence[int], thresh: float) -> Iterator[Detection]:
    data = layer["output"]
    for n, row, column in np.argwhere(data[:, 4] > thresh):
        values = data[n, :, row, column]
        prob = values[4] * values[5 : 6 + layer["classes"]]
        anchor = layer["mask"][n]
        yield {
            "bbox": _box(values, layer["biases"], anchor, (row, column), data.shape, net_shape),
            "classes": layer["classes"],
            "prob": np.where(prob < thresh, 0, prob),
            "objectness": values[4],
        }


def _region(layer: Mapping[str, Any], thresh: float) -> Iterator[Detection]:
    data, coords, classes = layer["output"], layer["coords"], layer["classes"]
    size = data.shape[3], data.shape[2]
    for row, column, n in np.ndindex(data.shape[2], data.shape[3], data.shape[0]):
        values = data[n, :, row, column]
        scale = 1 if layer["background"] else values[coords]
        prob = scale * values[coords + 1 : coords + 1 + classes]
        sure = scale > thresh
        yield {
            "bbox": _box(values, layer["biases"], n, (row, column), data.shape, size),
            "prob": np.where(sure & (prob >= thresh), prob, 0),
            "objectness": scale if sure else 0,
        }


def _box(
    values: Array, biases: Sequence[float], anchor: int, at: tuple[int, int],
    shape: tuple[int, ...], unit: Sequence[int],
) -> Box:  # fmt: skip
    """unit: (width, height) in which the anchors' sizes, `biases`, are given."""
    row, column = at
    return Box(
        (column + values[0]) / shape[3], (row + values[1]) / shape[2],
        np.exp(values[2]) * biases[2 * anchor] / unit[0],
        np.exp(values[3]) * biases[2 * anchor + 1] / unit[1],
    )  # fmt: skip


def _in_image(b: Box, im_shape: Sequence[int], net_shape: Sequence[int], relative: bool) -> Box:
    """A box in parts of the network's input as one in parts, or pixels, of the image inside it."""
    (w, h), (net_w, net_h) = im_shape, net_shape
    wide = net_w / w < net_h / h
    inside = (net_w, h * net_w // w) if wide else (w * net_h // h, net_h)
    x = (b.x - (net_w - inside[0]) / 2 / net_w) * net_w / inside[0]
    y = (b.y - (net_h - inside[1]) / 2 / net_h) * net_h / inside[1]
    made = Box(x, y, b.w * net_w / inside[0], b.h * net_h / inside[1])
    return made if relative else Box(made.x * w, made.y * h, made.w * w, made.h * h)


def do_nms_sort(dets: MutableSequence[Detection], classes: int, thresh: float) -> None:
    """Of boxes of one class that overlap by more than `thresh`, only the surest keeps its class.

    Overlap is intersection over union.  `dets` is sorted, those without objectness last.
    """
    dets[:] = sorted(dets, key=lambda d: d["objectness"] == 0)
    sure = sum(d["objectness"] != 0 for d in dets)
    for k in range(classes):
        probs = [float(d["prob"][k]) for d in dets[:sure]]
        dets[:sure] = [dets[i] for i in sorted(range(sure), key=[-p for p in probs].__getitem__)]
        for i, one in enumerate(dets[:sure]):
            if one["prob"][k] == 0:
                continue
            for other in dets[i + 1 : sure]:
                if overlap(one["bbox"], other["bbox"]) > thresh:
                    other["prob"][k] = 0


def overlap(a: Box, b: Box) -> float:
    """Intersection over union."""
    across = min(a.x + a.w / 2, b.x + b.w / 2) - max(a.x - a.w / 2, b.x - b.w / 2)
    down = min(a.y + a.h / 2, b.y + b.h / 2) - max(a.y - a.h / 2, b.y - b.h / 2)
    both = max(across, 0) * max(down, 0)
    return float(both / (a.w * a.h + b.w * b.h - both)) if both else 0.0
