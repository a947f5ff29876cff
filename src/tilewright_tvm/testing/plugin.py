"""A plugin of pytest for TVM's tests: `pytest_plugins = ["tilewright_tvm.testing.plugin"]`.

In: tests with arguments `target` and `dev`, or with names that `testing.parameters` has made.
Out: runs on each target whose device is here, and with each set of values.
Read next: `parameters.py`.
"""

from __future__ import annotations

from typing import Any

from tilewright_tvm.testing import enabled_targets
from tilewright_tvm.testing.parameters import Group, Parameter


def pytest_generate_tests(metafunc: Any) -> None:
    """The runs of one test."""
    groups: dict[Group, dict[str, int]] = {}
    given = _marked(metafunc)
    for name in metafunc.fixturenames:
        found = getattr(metafunc.cls, name, None) or getattr(metafunc.module, name, None)
        if isinstance(found, Parameter) and name not in given:
            groups.setdefault(found.group, {})[name] = found.index
    for group, names in groups.items():
        values = [tuple(one[k] for k in names.values()) for one in group.sets]
        metafunc.parametrize(list(names), values, ids=group.ids)
    _on_targets(metafunc)


def _on_targets(metafunc: Any) -> None:
    """`dev` alone is that of the targets; TVM 0.7 called it `ctx`."""
    wanted = [n for n in ("target", "dev", "ctx") if n in metafunc.fixturenames]
    if not wanted or _marked(metafunc).intersection(wanted):
        return
    refused = {
        name for mark in metafunc.definition.iter_markers("exclude_targets") for name in mark.args
    }
    runs = [(name, dev) for name, dev in enabled_targets() if name not in refused]
    sets = [tuple(name if n == "target" else dev for n in wanted) for name, dev in runs]
    metafunc.parametrize(wanted, sets, ids=[name for name, _ in runs])


def _marked(metafunc: Any) -> set[str]:
    """Names that a mark of pytest gives values."""
    told = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    return {
        name.strip() for names in told
        for name in (names.split(",") if isinstance(names, str) else names)
    }  # fmt: skip


def pytest_configure(config: Any) -> None:
    config.addinivalue_line("markers", "exclude_targets(*names): targets that a test leaves out")
