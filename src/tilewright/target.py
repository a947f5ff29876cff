"""Targets under the names TVM users know: `target.Target("cuda")`, `create("llvm")`, `cuda()`."""

from tilewright.targets.target import Limits, Target, arm_cpu, create, cuda, mali

__all__ = ["Limits", "Target", "arm_cpu", "create", "cuda", "mali"]
