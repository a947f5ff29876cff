"""Boxes of a YOLO network: where they lie, which remain."""

from __future__ import annotations

import numpy as np
import pytest

from tilewright_tvm import relay

yolo = relay.testing.yolo_detection
BIASES = [10, 20, 30, 40]


def yolo_layer(classes: int = 3) -> dict:
    """Two anchors on a grid of 4x4; the second anchor sees something in row 1, column 2."""
    output = np.zeros((2, 5 + classes, 4, 4))
    output[1, :, 1, 2] = [0.5, 0.25, 0, np.log(2), 0.9, 0.8, 0.1, 0.5]
    return {"type": "Yolo", "output": output, "biases": BIASES, "mask": [0, 1], "classes": classes}


def test_a_box_in_parts_of_the_image():
    (found,) = yolo.fill_network_boxes((64, 64), (64, 64), 0.3, True, [yolo_layer()])
    np.testing.assert_allclose(found["bbox"], (2.5 / 4, 1.25 / 4, 30 / 64, 80 / 64))
    np.testing.assert_allclose(found["prob"], [0.72, 0, 0.45])
    assert found["objectness"] == 0.9 and found["classes"] == 3


@pytest.mark.parametrize(("image", "inside"), [((128, 64), (64, 32)), ((32, 64), (32, 64))])
def test_the_image_is_centred_in_the_input(image, inside):
    (part,) = yolo.fill_network_boxes((64, 64), image, 0.3, True, [yolo_layer()])
    (pixels,) = yolo.fill_network_boxes((64, 64), image, 0.3, False, [yolo_layer()])
    x = (2.5 / 4 * 64 - (64 - inside[0]) / 2) / inside[0]
    y = (1.25 / 4 * 64 - (64 - inside[1]) / 2) / inside[1]
    np.testing.assert_allclose(part["bbox"], (x, y, 30 / inside[0], 80 / inside[1]))
    np.testing.assert_allclose(pixels["bbox"], np.array(part["bbox"]) * [*image, *image])


def test_a_region_layer_tells_of_every_cell():
    output = np.full((1, 7, 2, 2), 0.1)
    output[0, 4:, 0, 1] = [0.9, 0.2, 0.8]
    layer = {
        "type": "Region", "output": output, "biases": [1, 1], "classes": 2, "coords": 4,
        "background": False,
    }  # fmt: skip
    found = yolo.fill_network_boxes((2, 2), (2, 2), 0.5, True, [layer])
    assert [d["objectness"] for d in found] == [0, 0.9, 0, 0]
    np.testing.assert_allclose(found[1]["prob"], [0, 0.72])
    np.testing.assert_allclose(found[1]["bbox"][:2], (1.1 / 2, 0.1 / 2))


def box(x: float, prob: list[float]) -> dict:
    return {"bbox": yolo.Box(x, 0, 2, 2), "prob": np.array(prob), "objectness": max(prob)}


def test_of_boxes_that_overlap_the_surest_remains():
    dets = [box(0.0, [0.6, 0.0]), box(9.0, [0.0, 0.0]), box(0.5, [0.9, 0.3]), box(5.0, [0.5, 0.0])]
    yolo.do_nms_sort(dets, 2, 0.5)
    left = sorted((d["bbox"].x, *d["prob"]) for d in dets)
    assert left == [(0.0, 0.0, 0.0), (0.5, 0.9, 0.3), (5.0, 0.5, 0.0), (9.0, 0.0, 0.0)]
    assert dets[-1]["objectness"] == 0


def test_overlap_is_intersection_over_union():
    a, b = yolo.Box(0, 0, 2, 2), yolo.Box(1, 0, 2, 2)
    assert yolo.overlap(a, a) == 1 and yolo.overlap(a, b) == pytest.approx(1 / 3)
    assert yolo.overlap(a, yolo.Box(5, 0, 2, 2)) == 0
