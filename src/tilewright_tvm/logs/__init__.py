"""Logs of other programs: TVM's AutoTVM and auto-scheduler (Ansor).

In: their lines.  Out: records and schedules of ours.  Read next: `plugin.py`, which makes them
known; `tvm_logs.py`, `ansor_steps.py`.
"""
