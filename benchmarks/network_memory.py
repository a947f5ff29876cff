"""Memory of intermediate values against what no plan can do without, without building a kernel.

In: names of networks (default: all).  Out: a table: values, MiB planned, MiB alive at the fullest
step, their quotient, and the milliseconds that planning took.  Workspaces of kernels are left out.

python benchmarks/network_memory.py [NETWORK...]
"""

from __future__ import annotations

import sys
import time

from tilewright.models.zoo import get_network, network_names
from tilewright.network.extract import prepare
from tilewright.network.memory import lifetimes, plan_memory

MIB = 1 << 20


def main() -> None:
    print(f"{'network':<16} {'values':>6} {'planned':>9} {'alive':>9} {'ratio':>6} {'ms':>7}")
    for name in sys.argv[1:] or network_names():
        mod, params = get_network(name)
        values = list(lifetimes(prepare(mod, params)["main"]).values())
        began = time.process_time()
        plan = plan_memory(values)
        spent = time.process_time() - began
        planned, alive = plan.planned_bytes, plan.peak_bytes
        print(
            f"{name:<16} {len(values):>6} {planned / MIB:>9.3f} {alive / MIB:>9.3f} "
            f"{planned / alive:>6.3f} {spent * 1e3:>7.1f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
