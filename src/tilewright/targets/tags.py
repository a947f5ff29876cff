"""Names of products, as TVM's tags have them: `Target("nvidia/geforce-rtx-3090")`.

In: a tag.  Out: the text of a target: the architecture and the limits that TVM states for it, or
the processor.  A tag is spelled out when a target is made, so records never hold one.
Read next: `target.py`.
"""

from __future__ import annotations

# Architecture -> products by NVIDIA, after "nvidia/".
_NVIDIA = {
    "sm_53": "jetson-nano jetson-tx1",
    "sm_60": "tesla-p100 quadro-gp100",
    "sm_61": "tesla-p40 tesla-p4 nvidia-titan-x nvidia-titan-xp quadro-p6000 quadro-p5000 "
             "quadro-p4000 quadro-p2200 quadro-p2000 quadro-p1000 quadro-p620 quadro-p600 "
             "quadro-p400 geforce-gtx-1080-ti geforce-gtx-1080 geforce-gtx-1070-ti "
             "geforce-gtx-1070 geforce-gtx-1060 geforce-gtx-1050",
    "sm_62": "jetson-tx2",
    "sm_70": "nvidia-v100 tesla-v100 nvidia-titan-v quadro-gv100",
    "sm_72": "jetson-agx-xavier",
    "sm_75": "nvidia-t4 nvidia-titan-rtx quadro-rtx-8000 quadro-rtx-6000 quadro-rtx-5000 "
             "quadro-rtx-4000 geforce-rtx-2080-ti geforce-rtx-2080 geforce-rtx-2070 "
             "geforce-rtx-2060 geforce-gtx-1660-ti geforce-gtx-1650-ti",
    "sm_80": "nvidia-a100 nvidia-a30",
    "sm_86": "nvidia-a40 nvidia-a16 nvidia-a10 nvidia-a2 rtx-a6000 rtx-a5000 rtx-a4000 "
             "geforce-rtx-3090-ti geforce-rtx-3090 geforce-rtx-3080-ti geforce-rtx-3080 "
             "geforce-rtx-3070-ti geforce-rtx-3070 geforce-rtx-3060-ti geforce-rtx-3060",
    "sm_87": "jetson-agx-orin-32gb jetson-agx-orin-64gb",
    "sm_89": "geforce-rtx-4090",
    "sm_90": "nvidia-h100",
}  # fmt: skip
_FEW_REGISTERS = ("sm_53", "sm_62")  # 32768 for a block
_L2 = {
    "nvidia-a100": 41943040, "nvidia-h100": 52428800, "geforce-rtx-4090": 75497472,
}  # fmt: skip
_BOARDS = {
    "jetson-agx-xavier": "-mtriple=aarch64-linux-gnu -mcpu=carmel -num-cores=8",
    "jetson-agx-orin-32gb": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a78 -num-cores=8",
    "jetson-agx-orin-64gb": "-mtriple=aarch64-linux-gnu -mcpu=cortex-a78 -num-cores=12",
}
_C5 = {  # cores of Amazon's machines of Skylake
    "large": 1, "xlarge": 2, "2xlarge": 4, "4xlarge": 8, "9xlarge": 18, "12xlarge": 24,
    "18xlarge": 36, "24xlarge": 48,
}  # fmt: skip
_PI = "llvm -mtriple=aarch64-linux-gnu -mattr=+neon -num-cores=4"


def _nvidia(name: str, arch: str) -> str:
    registers = 32768 if arch in _FEW_REGISTERS else 65536
    words = [
        f"cuda -arch={arch} -max_shared_memory_per_block=49152 -max_threads_per_block=1024",
        f"-thread_warp_size=32 -registers_per_block={registers}",
    ]
    if name in _L2:
        words.append(f"-l2_cache_size_bytes={_L2[name]}")
    if name in _BOARDS:
        words.append(f"-host='llvm {_BOARDS[name]}'")
    return " ".join(words)


TAGS: dict[str, str] = {
    **{
        f"nvidia/{name}": _nvidia(name, arch)
        for arch, names in _NVIDIA.items()
        for name in names.split()
    },
    **{
        f"aws/cpu/c5.{size}": f"llvm -mcpu=skylake-avx512 -num-cores={cores}"
        for size, cores in _C5.items()
    },
    "raspberry-pi/4b-aarch64": f"{_PI} -mcpu=cortex-a72",
    "raspberry-pi/5-aarch64": f"{_PI} -mcpu=cortex-a76",
}


def list_tags() -> dict[str, str]:
    """Every tag, and the target that it is."""
    return dict(TAGS)
