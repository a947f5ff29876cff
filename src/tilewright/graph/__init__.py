"""The graph IR of networks: nodes, walks over them, their text, what they compute.

Read next: `expr.py`, `traversal.py`, `evaluate.py`.
"""

from tilewright.graph import printer as printer
from tilewright.graph.answers import Networks
from tilewright.graph.extension import extend

extend(Networks())
