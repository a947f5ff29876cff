"""Steps of a program that PyTorch runs.

In: an exported program.  Out: functions of values by name.  Needs PyTorch.  Read next: `parts.py`,
`compile.py`.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from typing import Any

from tilewright.models.torch.program import Program

_HELD = ("PARAMETER", "BUFFER", "CONSTANT_TENSOR")


class Eager:
    """constants: tensors of the program that are no argument, by their names in `Program`."""

    def __init__(self, torch: Any, ep: Any) -> None:
        self._torch = torch
        self._nodes = {n.name: n for n in ep.graph.nodes}
        weights = ep.graph_signature
        self._known = {
            spec.arg.name: str(spec.target)
            for spec in weights.input_specs if spec.kind.name in _HELD
        }  # fmt: skip
        self.constants = {
            name: ep.state_dict[name] if name in ep.state_dict else ep.constants[name]
            for name in self._known.values()
        }

    def steps(self, program: Program) -> Callable[[dict[str, Any]], None]:
        """Runs the steps of `program` one by one and adds their values."""
        nodes = [(s.name, self._nodes[s.name]) for s in program.steps]

        def run(values: dict[str, Any]) -> None:
            for name, node in nodes:
                values[name] = self._value(node, values)

        return run

    def _value(self, node: Any, values: dict[str, Any]) -> Any:
        def given(n: Any) -> Any:
            return values[self._known.get(n.name, n.name)]

        args = self._torch.fx.map_arg(node.args, given)
        if node.target is operator.getitem:
            return args[0][args[1]]
        return node.target(*args, **self._torch.fx.map_arg(node.kwargs, given))
