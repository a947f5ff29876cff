"""What a result says at a glance.

In: a `TVMCResult`.  Out: the greatest of its numbers.  Read next: `model.py`.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from tilewright.base.doors import door
from tilewright.base.errors import ModelError
from tilewright_tvm.tvmc.model import TVMCResult


@door(ModelError)
def get_top_results(result: TVMCResult, max_results: int) -> Any:
    """Two rows: where the greatest numbers of the first output's first row are, and the numbers."""
    row = np.ravel(np.asarray(result.get_output("output_0"))[0])
    places = np.argsort(row)[::-1][: max(max_results, 0)]
    return [places, row[places]]
