"""`Profile`: where the time of a network goes, kernel by kernel.

In: seconds of each launch and of a whole run.  Out: a table, CSV, JSON.
Read next: `graph_executor.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass

from tilewright.runtime.timing import show_seconds


@dataclass(frozen=True)
class KernelTime:
    """One launch, timed alone.

    name:    the kernel's; label: its workload, short
    seconds: of the launch; flop: what it computes; nbytes: its arguments, each counted once
    layers:  names of the layers of the model that it computes, the one that takes the time first
    """

    name: str
    seconds: float
    flop: float = 0.0
    nbytes: int = 0
    label: str = ""
    layers: tuple[str, ...] = ()

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.flop / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """10^9 bytes of arguments a second."""
        return self.nbytes / self.seconds * 1e-9 if self.seconds else 0.0


@dataclass(frozen=True)
class Profile(Sequence[KernelTime]):
    """launches: in the order in which they run; seconds: of a whole run, launches back to back.

    call_seconds: of a call, which copies the inputs from host memory, runs, and copies the outputs
    to it; 0 where that was not timed.
    The sum of the launches differs from the run: alone a kernel finds its operands in the caches.
    """

    launches: tuple[KernelTime, ...]
    seconds: float
    device: str
    call_seconds: float = 0.0

    @property
    def kernel_seconds(self) -> float:
        """Sum over the launches."""
        return sum(k.seconds for k in self.launches)

    @property
    def fastest(self) -> dict[str, float]:
        """Seconds of each kernel, by name: of its fastest launch."""
        return {same[0].name: min(k.seconds for k in same) for same in self._by_kernel()}

    @property
    def overhead(self) -> float:
        """The share of a run that its kernels do not explain, at least 0."""
        return _unexplained(self.kernel_seconds, self.seconds)

    @property
    def call_overhead(self) -> float:
        """The same of a call."""
        return _unexplained(self.kernel_seconds, self.call_seconds)

    def table(self) -> str:
        """A line for each distinct kernel, those that take longest first, and the whole run."""
        rows = [("share", "time", "calls", "GFLOP/s", "GB/s", "kernel")]
        total = self.kernel_seconds or 1.0
        for same in self._by_kernel():
            seconds, one = sum(k.seconds for k in same), same[0]
            rate = sum(k.flop for k in same) / seconds * 1e-9 if seconds else 0.0
            moved = sum(k.nbytes for k in same) / seconds * 1e-9 if seconds else 0.0
            rows.append(
                (f"{seconds / total:.1%}", show_seconds(seconds), str(len(same)), f"{rate:.1f}",
                 f"{moved:.1f}", one.label or one.name)
            )  # fmt: skip
        widths = [max(len(r[c]) for r in rows) for c in range(5)]
        lines = ["  ".join([*(f"{r[c]:>{widths[c]}}" for c in range(5)), r[5]]) for r in rows]
        last = (
            f"{len(self)} launches on {self.device}: {show_seconds(self.kernel_seconds)} alone, "
            f"{show_seconds(self.seconds)} as one run ({self.overhead:.1%} not kernels)"
        )
        if self.call_seconds:
            last += (
                f", {show_seconds(self.call_seconds)} with copies from and to the host "
                f"({self.call_overhead:.1%} not kernels)"
            )
        return "\n".join([*lines, last])

    def csv(self) -> str:
        """A line for each launch, under a line of names; seconds and bytes."""
        lines = ["name,seconds,flop,bytes,gflops,gbytes,share"]
        total = self.kernel_seconds or 1.0
        lines += [
            f"{k.name},{k.seconds!r},{k.flop!r},{k.nbytes},{k.gflops!r},{k.gbytes!r},"
            f"{k.seconds / total!r}"
            for k in self.launches
        ]
        return "\n".join(lines) + "\n"

    def json(self) -> str:
        """The same as an object with `launches`, `seconds`, `call_seconds` and `device`."""
        rows = [asdict(k) | {"gflops": k.gflops, "gbytes": k.gbytes} for k in self.launches]
        return json.dumps(
            {
                "device": self.device, "seconds": self.seconds, "call_seconds": self.call_seconds,
                "launches": rows,
            }
        )  # fmt: skip

    def _by_kernel(self) -> list[list[KernelTime]]:
        found: dict[str, list[KernelTime]] = {}
        for launch in self.launches:
            found.setdefault(launch.name, []).append(launch)
        return sorted(found.values(), key=lambda same: -sum(k.seconds for k in same))

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.launches[index]

    def __len__(self) -> int:
        return len(self.launches)

    def __iter__(self) -> Iterator[KernelTime]:
        return iter(self.launches)

    def __str__(self) -> str:
        return self.table()


def _unexplained(kernels: float, whole: float) -> float:
    return max(1 - kernels / whole, 0.0) if whole else 0.0
