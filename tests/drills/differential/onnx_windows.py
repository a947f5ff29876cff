"""Operators of ONNX over images, products, norms, cells, quantized numbers: more of `OPERATORS`.

In: a `Draw`.  Out: nodes.  Read next: `onnx_side.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from drills.differential.draw import Draw
from drills.differential.onnx_operators import Given, Node, ints, number, operator, some


def _window(d: Draw, rank: int) -> tuple[list[int], dict[str, Any]]:
    """Extents of a window, and the attributes of its way over the image."""
    kernel = [d.integer(1, 3) for _ in range(rank)]
    attrs: dict[str, Any] = {"kernel_shape": kernel}
    if d.chance(0.7):
        attrs["strides"] = [d.integer(1, 3) for _ in range(rank)]
    if d.chance(0.4):
        attrs["dilations"] = [d.integer(1, 2) for _ in range(rank)]
    if d.chance(0.25):
        attrs["auto_pad"] = d.pick(["SAME_UPPER", "SAME_LOWER", "VALID"])
    elif d.chance(0.7):
        attrs["pads"] = [d.integer(0, 2) for _ in range(2 * rank)]
    return kernel, attrs


def _image(d: Draw, rank: int) -> list[int]:
    return [d.extent(0 if d.chance(0.1) else 1, 7) for _ in range(rank)]


@operator("Conv", "ConvTranspose", weight=4)
def _conv(name: str, d: Draw) -> Node:
    rank = d.pick([1, 2, 2, 3])
    kernel, attrs = _window(d, rank)
    groups = d.pick([1, 1, 2, 3])
    per_in, per_out = d.integer(1, 3), d.integer(1, 3)
    dtype = d.pick(("float32", "float32", "float64"))
    x = d.floats((d.extent(), per_in * groups, *_image(d, rank)), dtype)
    style = d.pick(["plain", "whole", "far"])
    if groups > 1:
        attrs["group"] = groups
    if name == "Conv":
        shape = (per_out * groups, per_in, *kernel)
    else:
        shape = (per_in * groups, per_out, *kernel)
        if d.chance(0.3):
            steps = attrs.get("strides", [1] * rank)
            attrs["output_padding"] = [d.integer(0, s - 1) for s in steps]
    inputs = [Given(x), some(d, d.floats(shape, dtype, style))]
    if d.chance(0.5):
        inputs.append(some(d, d.floats((per_out * groups,), dtype)))
    if d.chance(0.3):
        del attrs["kernel_shape"]
    return Node(name, list(inputs), attrs, strict=name == "Conv")


@operator("MaxPool", "AveragePool", "LpPool", weight=2)
def _pool(name: str, d: Draw) -> Node:
    rank = d.pick([1, 2, 2, 3])
    _, attrs = _window(d, rank)
    x = d.floats((d.extent(), d.extent(), *_image(d, rank)), d.pick(("float32", "float64")))
    outputs, opset = 1, 19 if name == "AveragePool" else 18
    if d.chance(0.4):
        attrs["ceil_mode"] = d.integer(0, 1)
    if name == "AveragePool" and d.chance(0.6):
        attrs["count_include_pad"] = d.integer(0, 1)
    if name == "LpPool":
        attrs["p"] = d.integer(1, 3)
    if name == "MaxPool" and d.chance(0.3):
        outputs, x = 2, np.nan_to_num(x, nan=1)
        attrs["storage_order"] = d.integer(0, 1)
    # onnxruntime refuses no channels, and windows that "SAME" would have to cut
    return Node(name, [Given(x, fixed=outputs == 2)], attrs, outputs, opset, strict=False)


@operator("GlobalAveragePool", "GlobalMaxPool", "GlobalLpPool", "LRN", "InstanceNormalization",
          "BatchNormalization", "LayerNormalization", "GroupNormalization",
          "MeanVarianceNormalization", "RMSNormalization")  # fmt: skip
def _norm(name: str, d: Draw) -> Node:
    groups = d.integer(1, 3)
    channels = groups * d.integer(1, 3)
    x = Given(d.floats((d.extent(), channels, *_image(d, d.integer(1, 2)))))
    attrs: dict[str, Any] = {"epsilon": float(np.float32(d.pick([1e-5, 1e-3, 0.1])))}
    vectors = [some(d, d.floats((channels,), style="plain")) for _ in range(2)]
    if name.startswith("Global"):
        return Node(name, [x], {"p": d.integer(1, 3)} if name == "GlobalLpPool" else {})
    if name == "LRN":
        attrs = {"size": d.pick([1, 3, 5]), "alpha": 0.1, "beta": 0.75, "bias": 1.0}
        return Node(name, [x], attrs, strict=False)
    if name == "MeanVarianceNormalization":
        return Node(name, [x], {"axes": d.axes(x.value.ndim, 1)})
    if name == "BatchNormalization":
        stats = [d.floats((channels,), style="plain"), d.rng.uniform(0.1, 3, channels)]
        return Node(name, [x, *vectors, *(Given(np.asarray(s, "float32")) for s in stats)], attrs)
    if name == "GroupNormalization":
        return Node(name, [x, *vectors], {**attrs, "num_groups": groups}, opset=21, strict=False)
    if name == "InstanceNormalization":
        return Node(name, [x, *vectors], attrs)
    axis = d.axis(x.value.ndim)
    behind = x.value.shape[axis if -x.value.ndim <= axis < x.value.ndim else 0 :]
    scale = [Given(d.floats(behind, style="plain"))]
    if name == "RMSNormalization":
        return Node(name, [x, *scale], {**attrs, "axis": axis}, opset=23)
    bias = [Given(d.floats(behind, style="plain"))] if d.chance(0.6) else []
    return Node(name, [x, *scale, *bias], {**attrs, "axis": axis})


@operator("MatMul", "Gemm", "Einsum", "Det", weight=2)
def _product(name: str, d: Draw) -> Node:
    m, k, n = (d.extent() for _ in range(3))
    dtype = d.pick(("float32", "float32", "float64"))
    if name == "Det":
        return Node(name, [Given(d.floats((*d.shape(0, 2, 1), m, m), style="plain"))])
    if name == "Gemm":
        a, b = d.integer(0, 1), d.integer(0, 1)
        inputs = [Given(d.floats((k, m) if a else (m, k), dtype)),
                  some(d, d.floats((n, k) if b else (k, n), dtype))]  # fmt: skip
        if d.chance(0.6):
            inputs.append(some(d, d.floats(d.broadcast((m, n)), dtype)))
        attrs = {"transA": a, "transB": b}
        if d.chance(0.5):
            attrs |= {"alpha": number(d), "beta": d.pick([0.0, 1.0, 0.5])}
        return Node(name, list(inputs), attrs)
    if name == "Einsum":
        text = d.pick(["ij,jk->ik", "ij,ij->i", "bij,bjk->bik", "ii->i", "ij->ji", "i,j->ij",
                       "...ij,...jk->...ik", "ij,jk", "ij->"])  # fmt: skip
        size = {"i": m, "j": k, "k": n, "b": d.extent()}
        if text == "ii->i":
            return Node(name, [Given(d.floats((m, m), dtype))], {"equation": text})
        parts = text.split("->")[0].replace("...", "").split(",")
        inputs = [Given(d.floats([size[c] for c in p], dtype)) for p in parts]
        return Node(name, list(inputs), {"equation": text})
    batch = d.shape(0, 2)
    left, right = [*batch, m, k], [*d.broadcast(batch), k, n]
    left = left[-1:] if d.chance(0.1) else left
    right = right[-2:-1] if d.chance(0.1) else right
    if d.chance(0.03):
        right[-1 if len(right) == 1 else -2] += 1
    return Node(name, [Given(d.floats(left, dtype)), some(d, d.floats(right, dtype))])


@operator("Resize", weight=3)
def _resize(name: str, d: Draw) -> Node:
    rank = d.pick([1, 2, 2])
    x = d.floats((1, d.integer(1, 2), *(d.extent(1, 6) for _ in range(rank))))
    mode = d.pick(["nearest", "linear", "cubic"] if rank == 2 else ["nearest", "linear"])
    way = d.pick(["half_pixel", "pytorch_half_pixel", "align_corners", "asymmetric"])
    attrs: dict[str, Any] = {"mode": mode, "coordinate_transformation_mode": way}
    if mode == "nearest":
        attrs["nearest_mode"] = d.pick(["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"])
    if mode == "cubic" and d.chance(0.5):
        attrs |= {"cubic_coeff_a": -0.5, "exclude_outside": d.integer(0, 1)}
    if mode != "nearest" and d.chance(0.3):
        attrs["antialias"] = 1
    if d.chance(0.5):
        sizes = [*x.shape[:2], *(d.integer(1, 9) for _ in range(rank))]
        return Node(name, [Given(x), None, None, ints(sizes)], attrs)
    scales = [1.0, 1.0, *(d.pick([0.5, 0.6, 1.0, 1.5, 2.0, 3.0]) for _ in range(rank))]
    return Node(name, [Given(x), None, ints(scales, "float32")], attrs)


@operator("GridSample", "RoiAlign", "MaxRoiPool", "Col2Im")
def _sampled(name: str, d: Draw) -> Node:
    x = Given(d.floats((1, d.integer(1, 2), d.extent(1, 6), d.extent(1, 6))))
    if name == "GridSample":
        grid = np.asarray(d.rng.uniform(-1.5, 1.5, (1, d.extent(1), d.extent(1), 2)), "float32")
        attrs = {"mode": d.pick(["linear", "nearest", "cubic"]),
                 "padding_mode": d.pick(["zeros", "border", "reflection"]),
                 "align_corners": d.integer(0, 1)}  # fmt: skip
        return Node(name, [x, Given(grid)], attrs, opset=20)
    if name == "Col2Im":
        block, image = [d.integer(1, 2), d.integer(1, 2)], [d.integer(2, 4), d.integer(2, 4)]
        count = (image[0] - block[0] + 1) * (image[1] - block[1] + 1)
        data = Given(d.floats((1, 2 * block[0] * block[1], count)))
        return Node(name, [data, ints(image), ints(block)])
    corner = d.rng.uniform(0, 3, (d.extent(), 2))
    rois = np.concatenate([corner, corner + d.rng.uniform(0.5, 3, corner.shape)], 1)
    if name == "MaxRoiPool":
        rois = np.round(np.concatenate([np.zeros((len(rois), 1)), rois], 1))
        return Node(name, [x, Given(rois.astype("float32"), fixed=True)],
                    {"pooled_shape": [2, 2]})  # fmt: skip
    at = np.zeros(len(rois), "int64")
    attrs = {"output_height": 2, "output_width": 2, "sampling_ratio": d.integer(1, 2),
             "mode": d.pick(["avg", "max"]),
             "coordinate_transformation_mode":
                 d.pick(["half_pixel", "output_half_pixel"])}  # fmt: skip
    return Node(name, [x, Given(rois.astype("float32")), Given(at, fixed=True)], attrs)


@operator("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear", "MatMulInteger",
          "ConvInteger", "QLinearMatMul")  # fmt: skip
def _quantized(name: str, d: Draw) -> Node:
    shape = d.shape(1, 3)
    kind = d.pick(("uint8", "int8"))
    scale = Given(np.asarray(d.rng.uniform(0.05, 2), "float32"), d.chance(0.5), True)
    zero = Given(d.integers((), kind, -20, 20), scale.constant, True)
    if name == "QuantizeLinear":
        x = np.nan_to_num(d.floats(shape, style="plain"))
        return Node(name, [Given(x, fixed=True), scale] + ([zero] if d.chance(0.7) else []))
    if name == "DequantizeLinear":
        zeros = [zero] if d.chance(0.7) else []
        return Node(name, [Given(d.integers(shape, kind, -100, 100)), scale, *zeros])
    if name == "DynamicQuantizeLinear":
        return Node(name, [Given(d.floats(d.shape(1, 3, 1), style="plain"), fixed=True)],
                    outputs=3)  # fmt: skip
    if name == "ConvInteger":
        _, attrs = _window(d, 2)
        attrs.pop("dilations", None)
        x = d.integers((1, 2, *(d.extent(1, 6) for _ in range(2))), "uint8", 0, 200)
        w = d.integers((2, 2, *attrs["kernel_shape"]), "uint8", 0, 200)
        zeros = [Given(d.integers((), "uint8", 0, 9), True, True)] if d.chance(0.6) else []
        return Node(name, [Given(x), Given(w, True), *zeros], attrs)
    m, k, n = (d.extent() for _ in range(3))
    a, b = (d.integers(s, "uint8", 0, 200) for s in ((m, k), (k, n)))
    zeros = [Given(d.integers((), "uint8", 0, 20), True, True) for _ in range(3)]
    if name == "MatMulInteger":
        return Node(name, [Given(a), Given(b, True), *zeros[: d.integer(0, 2)]])
    scales = [Given(np.asarray(d.rng.uniform(0.1, 1), "float32"), True, True) for _ in range(3)]
    return Node(name, [Given(a), scales[0], zeros[0], Given(b, True), scales[1], zeros[1],
                       scales[2], zeros[2]])  # fmt: skip


@operator("LSTM", "GRU", "RNN")
def _cell(name: str, d: Draw) -> Node:
    steps, batch, inner, hidden = d.integer(1, 3), d.integer(1, 3), d.integer(1, 4), d.integer(1, 3)
    way = d.pick(["forward", "reverse", "bidirectional"])
    ways, gates = 1 + (way == "bidirectional"), {"LSTM": 4, "GRU": 3, "RNN": 1}[name]
    x, w, r = (
        d.floats(s, style="plain")
        for s in ((steps, batch, inner), (ways, gates * hidden, inner),
                  (ways, gates * hidden, hidden))
    )  # fmt: skip
    inputs: list[Given | None] = [Given(x), Given(w, True), Given(r, True)]
    if d.chance(0.6):
        inputs.append(Given(d.floats((ways, 2 * gates * hidden), style="plain"), True))
    if d.chance(0.4):
        inputs += [None] * (4 - len(inputs))
        lengths = d.integers((batch,), "int32", 1, steps) if d.chance(0.5) else None
        inputs.append(None if lengths is None else Given(lengths, True, True))
        inputs.append(Given(d.floats((ways, batch, hidden), style="plain")))
    attrs: dict[str, Any] = {"hidden_size": hidden, "direction": way}
    if name == "GRU":
        attrs["linear_before_reset"] = d.integer(0, 1)
    # onnxruntime's tanh and sigmoid are approximations
    return Node(name, inputs, attrs, 3 if name == "LSTM" else 2, absolute=2e-6)
