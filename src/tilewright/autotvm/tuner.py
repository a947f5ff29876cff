"""`autotvm.tuner`: XGBTuner, RandomTuner, GridSearchTuner, GATuner; all run the one tuning loop."""

from tilewright.search.tuners import GATuner, GridSearchTuner, RandomTuner, Tuner, XGBTuner

__all__ = ["GATuner", "GridSearchTuner", "RandomTuner", "Tuner", "XGBTuner"]
