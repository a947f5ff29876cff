"""Targets under the name TVM users know: `target.Target("cuda")`, `target.create("llvm")`, `target.cuda()`."""

from tilewright.base.target import Limits, Target, create, cuda

__all__ = ["Limits", "Target", "create", "cuda"]
