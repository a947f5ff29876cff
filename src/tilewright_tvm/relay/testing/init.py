"""`relay.testing.init.create_workload`, where TVM has it.

Read next: `models/zoo/layers.py`.
"""

from tilewright.models.zoo.layers import create_workload

__all__ = ["create_workload"]
