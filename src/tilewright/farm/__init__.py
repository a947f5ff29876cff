"""Devices of other machines, found through a tracker: measuring on them, and sessions with them.

In: a key, the address of a tracker.  Out: a `FarmRunner` for the pipeline, a `RemoteSession`.
The tracker is a scheduler of `dask.distributed` and each device is one of its workers, which gives
discovery, liveness and TLS; what travels is data with a schema (`wire.py`), never code of a user.
Nothing here imports Dask until a farm is used.
Read next: `leases.py` (who gets which device), `dispatch.py` (what becomes of each trial),
`wire.py`.
"""
