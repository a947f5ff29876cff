"""Public functions are called with arguments of wrong kinds; only errors of Tilewright may come.

In: functions, arguments that they accept and values of every kind, from `_doors.py`.  Out: how
often a call was refused (TilewrightError), accepted, or ended in an exception of somebody else.
"""

from __future__ import annotations

import os
import random
import sys
import tempfile
import warnings
from collections import Counter
from typing import Any

from drills._doors import Door, doors, files, values
from drills.drill import Counts, Drill
from tilewright.base.errors import InternalError, TilewrightError
from tilewright_tvm.auto_scheduler import task_inputs


def run(tries: int, seed: int) -> Counts:
    """One argument is wrong, sometimes two.  The calls are made in an empty folder."""
    rng, counts = random.Random(seed), Counter[str]()
    home, checks = os.getcwd(), dict(task_inputs._CHECKS)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what is accepted and not needed
        os.chdir(folder)
        try:
            files()
            known = [door for door in doors() if door.names]
            for k in range(tries):
                if k % 200 == 0:  # calls may have changed them
                    wrong = values()
                counts[_outcome(rng, rng.choice(known), wrong)] += 1
        finally:
            os.chdir(home)
            task_inputs._CHECKS.clear()  # a call may have registered one, which all searches ask
            task_inputs._CHECKS.update(checks)
    return counts


def _outcome(rng: random.Random, door: Door, wrong: list[Any]) -> str:
    spoiled = rng.sample(door.names, min(len(door.names), 1 + (rng.random() < 0.2)))
    try:
        arguments = door.arguments()
        for name in spoiled:
            arguments[name] = door.spoiled(name, rng.choice(wrong))[name]
        door(arguments)
    except InternalError as error:
        return _told("internal", door, spoiled, error)
    except TilewrightError:
        return "refused"
    except Exception as error:
        return _told("foreign", door, spoiled, error)
    return "accepted"


def _told(kind: str, door: Door, spoiled: list[str], error: Exception) -> str:
    print(f"{door.name}({', '.join(spoiled)}): {error!r}", file=sys.stderr)
    return kind


DRILL = Drill(
    name="doors",
    tried="calls of public functions with wrong arguments",
    run=run,
    never=("foreign", "internal"),
    always=("refused", "accepted"),
    short=400,
    long=100_000,
)
