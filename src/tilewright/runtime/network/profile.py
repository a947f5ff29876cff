"""`Profile`: where the time of a network goes, kernel by kernel.

In: seconds of each launch and of a whole run.  Out: a table whose rows add up to the run, CSV,
JSON.
Read next: `graph_executor.py`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from statistics import median

from tilewright.runtime.timing import show_seconds


@dataclass(frozen=True)
class KernelTime:
    """One launch, timed alone.

    name:    the kernel's; label: its workload, short
    seconds: of the launch; flop: what it computes; nbytes: its arguments, each counted once
    layers:  names of the layers of the model that it computes, the one that takes the time first
    least, limit: see `KernelReport`
    """

    name: str
    seconds: float
    flop: float = 0.0
    nbytes: int = 0
    label: str = ""
    layers: tuple[str, ...] = ()
    least: float = 0.0
    limit: str = ""

    @property
    def gflops(self) -> float:
        """Billions of operations a second."""
        return self.flop / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def gbytes(self) -> float:
        """10^9 bytes of arguments a second."""
        return self.nbytes / self.seconds * 1e-9 if self.seconds else 0.0


@dataclass(frozen=True)
class KernelTotal:
    """All launches of one kernel.

    first: one of them; calls: how many; seconds: of all; median: of one; layers: those of each
    """

    first: KernelTime
    calls: int
    seconds: float
    median: float
    layers: tuple[str, ...]

    def rate(self, amount: float) -> float:
        """10^9 a second, of so much in each launch."""
        return amount * self.calls / self.seconds * 1e-9 if self.seconds else 0.0

    @property
    def of_peak(self) -> str:
        """`71% memory`: how near it is to what the device's limits allow, and which of them that
        is; "" where they are not known, `over 100%` where they are assumed too low."""
        if not self.first.least or not self.median:
            return ""
        share = self.first.least / self.median
        return f"{share:.0%} {self.first.limit}" if share <= 1 else "over 100%"


@dataclass(frozen=True)
class Profile(Sequence[KernelTime]):
    """launches: in the order in which they run; seconds: of a whole run, launches back to back.

    call_seconds: of a call, which copies the inputs from host memory, runs, and copies the outputs
    to it; 0 where that was not timed.
    The sum of the launches differs from the run, by `rest`: alone a kernel finds its operands in
    the caches, and waits for its own start.
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
    def kernels(self) -> list[KernelTotal]:
        """The distinct kernels, those that take longest first."""
        found: dict[str, list[KernelTime]] = {}
        for launch in self.launches:
            found.setdefault(launch.name, []).append(launch)
        totals = [
            KernelTotal(
                same[0], len(same), sum(k.seconds for k in same), median(k.seconds for k in same),
                tuple(dict.fromkeys(name for k in same for name in k.layers[:1])),
            )
            for same in found.values()
        ]  # fmt: skip
        return sorted(totals, key=lambda total: -total.seconds)

    @property
    def rest(self) -> float:
        """Seconds of a run that are none of its kernels'; negative where these take longer alone
        than in it; 0 where no run was timed."""
        return self.seconds - self.kernel_seconds if self.seconds else 0.0

    @property
    def rest_told(self) -> str:
        """What `rest` is: starts of kernels and operands from memory, or the lack of them."""
        if self.rest < 0:
            return "saved by running together"
        return "between kernels"

    def share(self, seconds: float) -> str:
        """`12.5%`: of a run, or of the sum where none was timed."""
        return f"{seconds / (self.seconds or self.kernel_seconds or 1.0):.1%}"

    @property
    def overhead(self) -> float:
        """The share of a run that its kernels do not explain, at least 0."""
        return _unexplained(self.kernel_seconds, self.seconds)

    @property
    def call_overhead(self) -> float:
        """The same of a call."""
        return _unexplained(self.kernel_seconds, self.call_seconds)

    def table(self) -> str:
        """A line for each distinct kernel, those that take longest first, and what they leave of a
        run: the shares are of it, and add up to it."""
        rows = [("share", "time", "calls", "GFLOP/s", "GB/s", "of peak", "layer", "kernel")]
        for total in self.kernels:
            one = total.first
            rows.append(
                (self.share(total.seconds), show_seconds(total.seconds), str(total.calls),
                 f"{total.rate(one.flop):.1f}", f"{total.rate(one.nbytes):.1f}", total.of_peak,
                 layers_text(total.layers), one.label or one.name)
            )  # fmt: skip
        if self.seconds:
            rest = show_seconds(abs(self.rest))
            signed = rest if self.rest >= 0 else f"-{rest}"
            rows.append((self.share(self.rest), signed, "", "", "", "", "", self.rest_told))
        whole = show_seconds(self.seconds or self.kernel_seconds)
        what = f"a run on {self.device}" if self.seconds else f"all kernels alone on {self.device}"
        rows.append(("100.0%", whole, str(len(self)), "", "", "", "", what))
        widths = [max(len(r[c]) for r in rows) for c in range(7)]
        lines = []
        for r in rows:
            figures = (f"{r[c]:>{widths[c]}}" for c in range(5))
            words = (f"{r[c]:<{widths[c]}}" for c in (5, 6) if widths[c])
            lines.append("  ".join([*figures, *words, r[7]]))
        if self.call_seconds:
            call = show_seconds(self.call_seconds)
            lines.append(f"a call, with copies from and to the host: {call}")
        return "\n".join(lines)

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

    def __getitem__(self, index):  # type: ignore[no-untyped-def]
        return self.launches[index]

    def __len__(self) -> int:
        return len(self.launches)

    def __iter__(self) -> Iterator[KernelTime]:
        return iter(self.launches)

    def __str__(self) -> str:
        return self.table()


def layers_text(layers: Sequence[str]) -> str:
    """`layer1.0.conv1 +3`: the first of several names, and how many more there are."""
    more = f" +{len(layers) - 1}" if len(layers) > 1 else ""
    return layers[0] + more if layers else ""


def _unexplained(kernels: float, whole: float) -> float:
    return max(1 - kernels / whole, 0.0) if whole else 0.0
