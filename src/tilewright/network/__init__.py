"""From a network to a `Library`: groups, tasks, schedules, memory.

Read next: `build.py`, `extract.py`, `schedules.py`.
"""
