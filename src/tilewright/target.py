"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

from tilewright.targets.target import Limits, Target, create, cuda

__all__ = ["Limits", "Target", "create", "cuda"]
