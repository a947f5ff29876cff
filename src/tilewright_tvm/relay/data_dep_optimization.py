"""A name that scripts of TVM import; what it has is not there, and says what to use instead."""

from typing import Any

from tilewright.base.errors import absent

_ELSEWHERE = {
    **dict.fromkeys(
        ("bsr_conv2d", "bsr_dense"), "Sparse weights are not there; dense ones are packed."
    ),
    "simplify_fc_transpose": "Not needed: relay.build folds transposed weights by itself.",
}

__path__: list[str] = []  # so that imports of other names say what to use, too


def __getattr__(name: str) -> Any:
    raise absent("relay.data_dep_optimization", name, _ELSEWHERE)
