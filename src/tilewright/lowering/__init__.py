"""Schedule to program: loop nests, virtual threads, barriers, vectors, unrolling.

In: a `Schedule` (all decisions closed) and a `Target`.  Out: an `ir.stmt.Program`.
Read next: `pipeline.py`, the literal list of passes.

`nest.py` turns tree and bounds into loop nests with flat indices, one kernel per root stage.  It is
cut along its concepts, each a module that takes what the earlier ones made and changes nothing of
it:

    storage.py     the buffer of each tensor and its strides
    placement.py   where iterations are: every axis as an expression over loops and threads
    accesses.py    reads and writes: flat indices; which buffers a kernel meets
    guards.py      which iterations and which threads do something
    overhang.py    which guards are needless, and what room that takes
    emission.py    loops around statements
    ring.py        asynchronous copies: what begins where, what waits for it
    bulk.py        bulk copies: the gates of a ring, and warps that do nothing but load
    reductions.py  reductions in place, into an accumulator, over threads
    fragments.py   what the lanes of a warp hold together: operands and sums of atoms
    folds.py       rows of these sums, reduced by the lanes that hold them
    running.py     sums that follow a maximum while it grows
    unseen.py      slices of such a loop that a mask hides from all rows are not computed
    unseen_keys.py keys that it hides from all rows of a block are not brought to shared memory
    masked_scores.py  what there is to know of these before
    powers.py      exponentials of such sums

A sum of float16 is kept in float32.  Where its stage was not `cache_write`n, it gets a local
accumulator (`NAME.acc`), one element per iteration of the spatial loops inside the reduction, and
stores the stage when it is complete; `schedule/tree/accumulators.py` counts it for lowering, masks
and models alike.  A parallel loop inside such a reduction is refused.  Blocks of a long sum get
local buffers in the same way (`NAME.block`), in place, behind such an accumulator or in each of the
threads that share a reduction.

Copies that the schedule makes asynchronous are `AsyncCopy` statements from the start, under the
guard of threads that have no element; padding and the ends of tensors are their condition, where
zeros are written, so no choice is left.  Vectors widen them.  What is too small to be copied alone,
or cannot be shown to be aligned, becomes a load and a store into the same slot: a ring is right
whatever fills it.  A mask (`alignment`) leaves out the candidates of which numbers show that.

Stages that a copy engine fills have no loops: a `BulkCopy` of one thread stands for them all.  The
gates that say when a tile is there, and when it was read, are made at the begin of the kernel.

Then the passes:

    virtual threads  unrolls them into replicated statements and buffers
    vectorize        marked loops become ramps; on a GPU only aligned accesses of 8 or 16 bytes, the
                     rest unrolls
    barriers         one wherever shared memory is read by another thread or reused; none in a block
                     of one thread, and none where a ring has its own, or gates
    unseen           of a softmax what it computes for keys that no row of a block sees goes, and
                     what it brings, where scores lie in shared memory
    roles            warps that only load leave out what is not theirs
    simplify         indices and conditions by canonical linear forms
    choices, guards  on GPUs: padded reads without a branch, one branch for neighbours of one guard
    types            arithmetic on float16, bfloat16, int8, uint8 and int16 in their compute type:
                     casts at loads and stores, integers wrap where they may leave their range; what
                     only moves stays as it is
    unroll           marks loops, those asked for and those that index a register tile (a local
                     buffer that fits the registers: it lives there only if its indices are
                     constants); the IR keeps them as loops and printers write them out

On CPUs a tile may overhang its tensor instead of being guarded, where all it reads is memory:
workspaces grow by what is then read behind them.  Where guards remain, a reduction gets a nest
without them for whole tiles and one with them for the others.

`TILEWRIGHT_DEBUG=5` prints a kernel after each pass that changed it and runs the verifier on it;
`TILEWRIGHT_DUMP=dir` writes the same texts to files.

Statements are a closed set (`ir/stmt.py`): each class declares its parts, what treats classes
differently has a table of rules, and a class without a row is refused by name.
`tests/interpreter.py` defines what a program means: it evaluates one statement by statement and
checks bounds, unwritten elements, races and divergent barriers.  `ir/fast_interpreter.py` does the
same by generated Python and is tested against it; every step, pass and printer is tested against
the fast one.
"""
