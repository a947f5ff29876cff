"""`autotvm.task.space`: spaces and configurations where scripts of TVM import them from."""

from tilewright.schedule.space.config_space import (
    ConfigEntity,
    ConfigSpace,
    FallbackConfigEntity,
)

__all__ = ["ConfigEntity", "ConfigSpace", "FallbackConfigEntity"]
