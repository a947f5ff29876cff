"""Options that TVM prints into targets, and that say nothing new here.

Out: a table for the kinds of plugins "target options".  Read next: `targets/spelling.py`.
"""

from tilewright.targets.spelling import Foreign

OPTIONS = {
    "executor": Foreign(values=("graph",)),
    "fast-math": Foreign(values=("0",)),
    "interface-api": Foreign(values=("packed",)),
    "jit": Foreign(),
    "link-params": Foreign(values=("0",), flag=True),
    "opt-level": Foreign(),
    "runtime": Foreign(values=("c++", "cpp")),
    "shared_memory_per_block": Foreign("max_shared_memory_per_block"),
    "system-lib": Foreign(values=("0",), flag=True),
    "texture_spatial_limit": Foreign(),
    "unpacked-api": Foreign(values=("0",)),
}
