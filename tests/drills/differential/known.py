"""Differences that are meant: what differs, from whom, why, and where it is written down.

A line here takes a difference out of the count of faults, and is counted by its reason.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec


@dataclass(frozen=True)
class Known:
    """
    side, operator: whose, patterns that must match whole
    text, why:      patterns found in the text of the case and in what was found
    reason, page:   for people
    """

    side: str
    operator: str
    text: str
    why: str
    reason: str
    page: str


PAGE = "docs/numerics.md#where-peers-differ"
# (side, operator, text of the case, text of the difference, reason)
_TABLE = (
    ("onnx", "Reduce(Max|Min|LogSumExp)|(Global)?MaxPool|MaxRoiPool|Scatter(ND|Elements)", "",
     "is .*nan",
     "the maximum of a NaN is NaN; onnxruntime passes it over in some shapes"),
    ("onnx", "(Global)?MaxPool|MaxRoiPool", "", r"not .*-(3\.40|1\.79)",
     "the greatest of nothing but -inf is -inf; onnxruntime begins with the least number"),
    ("onnx", "Clip", "float", r"-?inf.*, not .*(65504|e\+38|e\+308)",
     "a limit that is left out is none; onnxruntime's is the greatest number"),
    ("onnx", "ReduceMean|(Global)?AveragePool", r"\b0\b", "nan",
     "the mean of nothing is NaN; onnxruntime gives 0"),
    ("onnx", "Squeeze", r"int64\[0\]", "shape",
     "an empty list of axes names none, as of the standard; onnxruntime takes all"),
    ("onnx", "Slice", "9223372036854775807", "shape",
     "an end far above is clamped, backwards too; onnxruntime reads it as 'to the end'"),
    ("onnx", "MeanVarianceNormalization", "", "nan",
     "the standard adds 1e-9 to the deviation; onnxruntime divides 0 by 0"),
    ("onnx", "MatMulInteger|QLinearMatMul|ConvInteger", r"\b0\b", "result 0",
     "sums of nothing are 0; onnxruntime gives what lay in memory"),
    ("onnx", "ConvTranspose", "SAME", "shape",
     "SAME is extent times stride, as of the standard; onnxruntime cuts nothing away"),
    ("onnx", "AveragePool|LpPool|MaxPool", "dilations.*SAME|SAME.*dilations", "result",
     "SAME counts the dilated window, as of the standard; onnxruntime forgets the dilation"),
    ("onnx", "LRN|GroupNormalization|RoiAlign", "", "nan",
     "onnxruntime keeps running sums or skips comparisons, so that a NaN moves elsewhere"),
    ("onnx", "InstanceNormalization", "", "may be off",
     "onnxruntime scales the data before it takes the mean away, and cancels digits"),
    ("onnx", "Resize", "align_corners|pytorch_half_pixel", "result 0",
     "the standard's reference divides by the unrounded length, and puts a single element at -0.5"),
    ("onnx", "Hardmax", "NaN", "result 0",
     "a NaN is the greatest, as in maxima; onnxruntime skips comparisons with it"),
    ("onnx|torch", "Resize|nn.functional.(interpolate|upsample|grid_sample).*|_upsample_.*_aa", "",
     "not .*nan",
     "at an element's own place its neighbours do not count; peers multiply them by 0"),
    ("onnx", "GridSample", "border", "is .*nan",
     "the border moves places, as of PyTorch, so a neighbour with the weight 0 is multiplied"),
    ("torch", "grid_sampler.*|nn.functional.grid_sample.*", "", "nan",
     "a place that is no number lies far outside; PyTorch mirrors it to wherever rounding ends"),
    ("torch", "grid_sampler.*|nn.functional.grid_sample.*", "float16", "inf",
     "PyTorch rounds places to 16 bits, and so decides whether a neighbour counts"),
    ("onnx", "LogSoftmax", "float64.*NaN", "is .*nan",
     "a row with a NaN is NaN; onnxruntime passes it over, and gives logarithms above 0"),
    ("torch", "topk|kthvalue", "ties", r"result 1\[", "PyTorch leaves the order of equals open"),
    ("torch", "mode", "NaN", "result",
     "no two NaN are equal, so that each is as rare as a number; PyTorch may name one"),
    ("torch", "masked.log_softmax", "float16", "may be off",
     "PyTorch rounds what it subtracts to 16 bits, and has 0 for small logarithms"),
    ("torch", "(linalg.)?cross", "float16", "may be off",
     "PyTorch rounds both products to 16 bits before it subtracts them"),
    ("torch", "nn.functional.gelu", "", "is .*[^-]inf.*, not .*nan",
     "the gelu of inf is inf; PyTorch gives NaN"),
    ("torch", "nn.functional.(multi(label)?_margin_loss|embedding_bag)", "NaN", "is .*nan",
     "the maximum of a NaN is NaN; PyTorch passes it over, in bags where it is not the first"),
    ("torch", "nn.functional.max_pool[123]d", "NaN", r"result 1\[.* is np.int64\(0\)",
     "a window with a NaN names the image's first element; PyTorch the NaN"),
    ("torch", "nn.functional.adaptive_max_pool[123]d", "NaN", r"result 1\[",
     "of several NaN the first is named; PyTorch names the last"),
    ("torch", "remainder", "float16", "not .*nan",
     "remainders are exact; PyTorch has NaN where the quotient overflows"),
    ("torch", "histc", "float16", "result 0",
     "which bin an element near an edge is in follows from roundings to 16 bits"),
    ("onnx", "Global(Max|Average)Pool", r"\b0\b", "accepts",
     "-inf and NaN, as of other windows of nothing; onnxruntime refuses images of nothing"),
    ("onnx", "(RMS|Layer)Normalization", r"\b0\b", "accepts",
     "rows of nothing have a norm of nothing; onnxruntime refuses them"),
    ("onnx", "Sign", "float16", "is .*nan", "onnxruntime gives 0 of a NaN of float16 alone"),
    ("onnx", "Softplus", "float16", "not .*inf", "onnxruntime overflows"),
    ("onnx", "Gemm|Hard(Swish|Sigmoid)|LeakyRelu|[SC]?[Ee]lu", "float64", "may be off",
     "a number among the attributes is the shortest decimal of its float32, in doubles too"),
    ("relay", "max|min", r"\b0\b", "accepts", "the greatest of nothing is -inf; numpy has none"),
)  # fmt: skip
# what onnxruntime 1.30 does, and 1.32 no longer
_EARLIER = (
    ("onnx", "Reduce.*|Arg(Max|Min)", r"\b0\b", "has shape",
     "reduced axes have an extent of 1; onnxruntime 1.30 keeps the shape of nothing"),
    ("onnx", "Split", "num_outputs", "accepts; peer.*(Invalid num_outputs|remaining size)",
     "the last parts may be smaller, and empty; onnxruntime 1.30 refuses that"),
    ("onnx", "MatMul", r"\b0\b", "accepts; peer.*cannot broadcast",
     "vectors by matrices of nothing, as in numpy; onnxruntime 1.30 refuses them"),
    ("onnx", "Pad", "wrap", "result 0",
     "wraps as often as it takes, as numpy; onnxruntime 1.30 gives what lay in memory"),
)  # fmt: skip


def earlier_onnxruntime() -> bool:
    """Whether the onnxruntime that is here is older than 1.32."""
    found = version("onnxruntime").split(".") if find_spec("onnxruntime") else ["2", "0"]
    return (int(found[0]), int(found[1])) < (1, 32)


_LINES = _TABLE + _EARLIER if earlier_onnxruntime() else _TABLE
KNOWN = tuple(Known(*line, PAGE) for line in _LINES)


def stated(side: str, operator: str, text: str, why: str) -> Known | None:
    """The line that covers a difference."""
    for line in KNOWN:
        whole = re.fullmatch(line.side, side) and re.fullmatch(line.operator, operator)
        if whole and re.search(line.text, text) and re.search(line.why, why):
            return line
    return None
