"""What targets have by TVM's names: boards, a target and its host apart, several at once."""

import pytest

from tilewright.base.errors import TargetError
from tilewright_tvm.target import Target, arm_cpu, mali


def test_devices_of_a_target() -> None:
    assert Target("opencl -device=mali").device_name == "mali" and not Target("llvm").device_name
    assert [Target(k).get_target_device_type() for k in ("llvm", "cuda")] == [1, 2]


def test_a_target_and_its_host_apart() -> None:
    both, host = Target.canon_target_and_host("cuda", "llvm")
    assert both is not None and both.host == host == Target("llvm")
    assert Target.canon_target_and_host(both) == (both, host)
    assert Target.canon_target_and_host(None) == (None, None)
    with pytest.raises(TargetError, match="a host needs a target"):
        Target.canon_target_and_host(None, "llvm")


def test_several_targets_beside_one_host() -> None:
    both = Target.canon_multi_target_and_host(["llvm", "cuda"], "llvm -mcpu=skylake")
    assert [t.kind for t in both] == ["llvm", "cuda"]
    assert all(t.host is not None and t.host.mcpu == "skylake" for t in both)
    assert Target.canon_multi_target_and_host({1: "llvm", 2: "cuda"}) == both
    [one] = Target.canon_multi_target_and_host({"kind": "llvm"})
    assert one == Target("llvm") and one.host is None
    held, host = Target.canon_target_map_and_host({"cuda": 1, "llvm": 2}, "llvm")
    assert host == Target("llvm") and held == {Target("cuda"): 1, Target("llvm"): 2}
    assert all(t.host == host for t in held)
    with pytest.raises(TargetError, match="there is no target"):
        Target.canon_multi_target_and_host(None)  # type: ignore[arg-type]


def test_boards_by_name() -> None:
    assert arm_cpu("rk3399").triple == "aarch64-linux-gnu"
    assert arm_cpu("rasp3b").limits.vector_registers == 16
    assert arm_cpu("rk3399", "-num-cores=6").limits.cores == 6
    assert arm_cpu().option("mattr") == "+neon"
    assert Target(mali("t860"), host=arm_cpu("rk3399")).host == arm_cpu("rk3399")
