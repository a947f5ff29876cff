"""What we give for a network: evaluated by numpy, and, now and then, compiled.

In: a function that imports.  Out: the ways of `Case.ours`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any

import numpy as np

from drills.differential.draw import Array, Draw
from tilewright import cpu
from tilewright.runtime.network.graph_executor import GraphModule
from tilewright_tvm import relay

BUILT = 0.1  # a build takes a hundred times as long


def both_ways(
    imported: Callable[[], Any], feeds: Mapping[str, Array], draw: Draw
) -> dict[str, Callable[[], list[Array]]]:
    """imported: a module, or (module, parameters)"""

    @cache
    def network() -> tuple[Any, Any]:
        made = imported()
        return made if isinstance(made, tuple) else (made, {})

    def evaluated() -> list[Array]:
        mod, params = network()
        given = {k: v for k, v in {**params, **feeds}.items()}
        found = relay.create_executor("debug", mod).evaluate()(
            **{k: given[k] for k in _names(mod) if k in given}
        )
        return _arrays(found)

    def compiled() -> list[Array]:
        mod, params = network()
        if mod["main"].body.waits:
            return _arrays(
                relay.create_executor("vm", mod, target="llvm", params=params).evaluate()(
                    **{k: v for k, v in feeds.items() if k in _names(mod)}
                )
            )
        module = GraphModule(relay.build(mod, "llvm", params=params)["default"](cpu()))
        for name, value in feeds.items():
            if name in _names(mod):
                module.set_input(name, value)
        module.run()
        return [module.get_output(k).numpy() for k in range(module.get_num_outputs())]

    ways = {"evaluated": evaluated}
    if draw.chance(BUILT):
        ways["compiled"] = compiled
    return ways


def _names(mod: Any) -> list[str]:
    return [p.name_hint for p in mod["main"].params]


def _arrays(found: Any) -> list[Array]:
    if isinstance(found, (tuple, list)):
        return [a for f in found for a in _arrays(f)]
    return [np.asarray(found.numpy() if hasattr(found, "numpy") else found)]
