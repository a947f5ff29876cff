"""`RuleState`: a schedule while rules work on it, and `Derivation`: the list of what they did.

A derivation is run again for every configuration: with a fresh `ConfigSpace` it opens the space,
with expressions it is traced for a population, with numbers it builds one schedule.
In: a DAG, a configuration, hardware.  Out: a `Schedule`.  Read next: `rules.py`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from tilewright.schedule.schedule import Schedule, Stage
from tilewright.schedule.space.config_space import ConfigSpace
from tilewright.targets.target import Target
from tilewright.te.tensor import IterVar

SPARSE = 4
CPU_STRUCTURE, GPU_STRUCTURE = "SSRSRS", "SSSRRSRS"


@dataclass(frozen=True)
class Hardware:
    """What rules weigh a computation against; `of` takes it from a target.

    num_cores: of a CPU; GPUs: -1, plain reductions are then always worth splitting
    max_vthread_extent: virtual threads per thread
    """

    num_cores: int
    max_threads_per_block: int = 0
    max_vthread_extent: int = 0
    warp_size: int = 0

    def least_threads(self, points: int) -> int:
        """Of a block of a tiled stage: a warp, but where there are few points."""
        return self.warp_size if points > 2 * self.warp_size else 1

    @staticmethod
    def of(target: Target) -> Hardware:
        limits = target.limits
        if not target.has_threads:
            return Hardware(limits.cores)
        if target.is_mali:
            return Hardware(-1, limits.max_threads_per_block, 1, 1)
        warp = limits.warp_size
        return Hardware(-1, limits.max_threads_per_block, max(1, warp // 4), warp)


@dataclass(frozen=True)
class Tiling:
    """What tiles may be.

    structure: levels of spatial and reduction loops, outermost first; "": as usual on the target,
               see `tiling.py`
    innermost: the largest extent of an innermost loop
    lanes:     of a vector at most; 0: as many as the target has
    wide:      whether shared memory holds copies of the type of arithmetic, `thread_loops.staged`
    """

    structure: str = ""
    innermost: int = 64
    lanes: int = 0
    wide: bool = True

    def levels(self, target: Target) -> str:
        return self.structure or (GPU_STRUCTURE if target.has_threads else CPU_STRUCTURE)


USUAL = Tiling()


@dataclass(frozen=True)
class Rows:
    """Blocks over the first `common` axes of a stage, fused to `block`, of `threads` threads."""

    block: IterVar
    common: int
    threads: Any


class Aside(ConfigSpace):
    """Decisions of a state that nobody searches: the first entity of each.

    before: the configuration so far
    """

    def __init__(self, before: Any) -> None:
        super().__init__()
        self.before = before

    def __getitem__(self, name: str) -> Any:
        return super().__getitem__(name) if name in self.space_map else self.before[name]


@dataclass
class Copies:
    """Those that a rule makes of a state, numbered in their order from 1; the state is 0.

    wanted: a copy and what it was copied from; the last of them made holds the configuration
    """

    wanted: tuple[int, ...] = ()
    made: int = 0


@dataclass
class RuleState:
    """A schedule on its way from the first rule to the last annotation.

    cfg:     the configuration, or the space that opens
    caches:  stages that cache_write made
    tiled:   stages whose loops a rule has made and spread over the device
    crossed: stages whose reduction is shared by the threads of a block
    slices:  tiled stage -> the loop at which a slice of its operands is ready in shared memory
    threads: tiled stage -> threads of its block
    rows:    stage -> how it gives rows of its points to blocks
    rings:   whether slices may come through rings of asynchronous copies
    stride:  1, or every how many values of a choice are offered; from SPARSE on, inner tiles are
             powers of two only
    copies:  of this state and of its copies
    line:    the numbers of what it was copied from, and its own
    """

    schedule: Schedule
    cfg: Any
    target: Target
    hardware: Hardware
    caches: set[str] = field(default_factory=set)
    tiled: set[str] = field(default_factory=set)
    crossed: set[str] = field(default_factory=set)
    slices: dict[str, IterVar] = field(default_factory=dict)
    threads: dict[str, Any] = field(default_factory=dict)
    rows: dict[str, Rows] = field(default_factory=dict)
    stride: int = 1
    rings: bool = True
    tiling: Tiling = USUAL
    copies: Copies = field(default_factory=Copies)
    line: tuple[int, ...] = (0,)

    def copy(self) -> RuleState:
        """Another one with the same steps.

        One of the two keeps the configuration: this one, unless the copy is `copies.wanted`.
        """
        self.copies.made += 1
        number, cfg = self.copies.made, self.cfg
        aside = Aside(cfg)
        if number in self.copies.wanted:
            self.cfg = aside
        else:
            cfg = aside
        again = Schedule.replay(self.schedule.dag, self.schedule.steps)
        axes = {
            old: new
            for stage, twin in zip(self.schedule.stages, again.stages, strict=True)
            for old, new in zip(stage.all_iter_vars, twin.all_iter_vars, strict=True)
        }
        return replace(
            self, schedule=again, cfg=cfg, caches=set(self.caches), tiled=set(self.tiled),
            crossed=set(self.crossed), threads=dict(self.threads), line=(*self.line, number),
            slices={name: axes[axis] for name, axis in self.slices.items()},
            rows={n: replace(r, block=axes[r.block]) for n, r in self.rows.items()},
        )  # fmt: skip

    def stage(self, name: str) -> Stage:
        return self.schedule.find(name)

    def before(self, stage: Stage) -> str | None:
        """The name of the stage computed before it."""
        at = self.schedule.stages.index(stage)
        return self.schedule.stages[at - 1].name if at > 0 else None

    @property
    def vectors(self) -> bool:
        """Whether loops run in vectors because a schedule says so."""
        return not self.target.has_threads or self.target.is_mali

    # -- decisions ---------------------------------------------------------------------------------
    @property
    def thread_counts(self) -> list[int]:
        """Sizes of blocks to choose from: powers of two from a warp (but not below 32)."""
        most = self.hardware.max_threads_per_block
        counts = [n for n in (32, 64, 128, 256, 512, 1024) if n <= most]
        return [n for n in counts if n >= self.hardware.warp_size] or [most]

    def tiles(
        self,
        stage: Stage,
        axis: IterVar,
        parts: int,
        most: Mapping[int, int] = MappingProxyType({}),
        exact: bool = True,
    ) -> Any:
        """Sizes of `parts` loops for an axis, outermost first, as a decision.

        most:  level -> its largest size
        exact: tiles divide the axis; else they are powers of two
        """
        limits = {parts - 1: self.tiling.innermost, **most}.items()
        name = knob(stage, axis.name)

        def fits(entity: Any) -> bool:
            sizes = entity.size
            if self.stride >= SPARSE and any(n & (n - 1) for n in sizes[1:]):
                return False
            return all(sizes[level] <= limit for level, limit in limits)

        policy = "factors" if exact else "power2"
        self.cfg.define_split(name, axis, policy, num_outputs=parts, filter=fits)
        return self.cfg[name].size

    def choose(self, stage: Stage | None, what: str, values: list[Any], absent: Any = None) -> Any:
        """One of `values`: a decision named after the stage, or one for all stages.

        absent: what older records mean, which do not have the decision
        """
        if stage is None:
            name = what
        else:
            axes = {ax.name for ax in (*stage.op.axis, *stage.op.reduce_axis)}
            while what in axes:  # the tiling of that axis has the name
                what += "_"
            name = knob(stage, what)
        self.cfg.define_knob(name, values[:: self.stride], absent)
        return self.cfg[name].val


def knob(stage: Stage, what: str) -> str:
    return f"{stage.name}:{what}"


@dataclass(frozen=True)
class Application:
    """One rule at one stage, in one of its variants."""

    rule: Any
    stage: str
    variant: int = 0


@dataclass(frozen=True)
class Derivation:
    """applied: what was done, in order; cursor: the stage to look at next, None at the end"""

    applied: tuple[Application, ...] = ()
    cursor: str | None = None

    def run(self, state: RuleState) -> str | None:
        """Repeat it on a fresh state; the cursor it leaves."""
        cursor: str | None = None
        for step in self.applied:
            cursor = step.rule.apply(state, state.stage(step.stage), step.variant)
        return cursor

    def __str__(self) -> str:
        return " ".join(f"{a.rule.name}({a.stage})" for a in self.applied)
