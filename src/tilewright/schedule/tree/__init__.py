"""The loop tree of a schedule: structure once, every number for one candidate or thousands, text.

In: a `ScheduleState`.  Out: regions, extents, resources, masks, printed loop nests.
In order: `access.py`, `layout.py`, `products.py`, `running.py`, `structure.py`, `bounds.py`,
`printer.py`, `loop_tree.py`, `accumulators.py`, `touch.py`, `rings.py`, `resources.py`,
`legality.py`.

`LoopTree(schedule)` is the structure: stages that are stored, their loops, who is computed where,
which tensor elements each stage reads as affine forms of its axes.  It is built once for all
candidates that share it.  `tree.bounds(assignment)` is every number: a pure function of the
structure and of decision values, which are ints or int64 vectors of one length.  Lowering reads
it with ints; masks, features and the machine model read it with vectors.  There is no second bound
inference, and no branch on a number: `where`, `minimum` and the gcd rule below do that work.

The rules, with the reason where it is not obvious.  Each has a test in tests/schedule; random
schedules (`drawing.py` there) exercise them together.

1. Regions.  What is computed of an attached stage is, per dimension, a base (an affine form of
   loops whose value is known there) and an extent.  Several readers give a hull, by interval
   arithmetic on the difference of their bases.  A region that would exceed the tensor becomes the
   whole dimension; one that may leave it at an edge keeps a guard.
2. Levels.  An axis stays one atom while all loops under it are known, or none is; only a mixture
   is taken apart.  Equal divisions therefore cancel.
3. Fused axes partly covered.  For `[b, b+e)` divided by `k`, let `g` be the gcd of `k` and all
   coefficients of `b`: the quotient covers `(k - g + e - 1) // k + 1` values; the remainder keeps
   its base and extent where `e <= g`, and is everything elsewhere.
4. Guards belong to splits.  A split that does not divide guards its own axis.  The guard of an
   outer child is implied by the parent's and dropped; the inner child keeps its own, or
   points would be counted twice.  Where a stage is computed for less of its tensor than a
   factor asks for, the region is the factor (unless the loop is vectorized or bound), so tiles of
   the whole tensor cost nothing inside an attached stage.
5. Reach.  Guards sit on stores, so what is computed *inside* an uneven loop also runs in its
   overhanging iterations.  `reach` is one more than the greatest value an axis takes there, and
   regions of children are sized by it, not by the extent.  Where nothing outside the guard reads a
   child, the child repeats the guard instead (`Node.carried`) and the extent suffices.
6. Scopes and threads.  A loop counts as known to a buffer unless lanes share the buffer across
   that loop: global memory is shared by blocks and threads, shared memory by threads.  A local
   buffer exists once per virtual thread its values depend on, and counts so in the register
   estimate.  Lanes that do not share a buffer may not share the work of filling it.  Threads that
   share a reduction are no known values for it, since all of them reduce the same element.
7. Work that lanes would repeat.  Where a stage stores to shared or global memory and some thread
   index takes no part in it, one lane does the store.  Without that, every lane would add up the
   same reduction in the same place.
8. Storage order.  A local buffer keeps its vectorised dimension innermost, whatever the tensor's
   own order, so that registers hold whole vectors.
9. Packed constants are computed before the program runs: they are no kernel but an argument,
   whose `Packing` says how to lay it out.  A network packs at build time, a module called directly
   packs at the call.  What `pad` and `as_product` make of a constant that nothing else reads is
   such a packed one.
10. Indices that are data (`A[B[i], j]`) may point anywhere, so such a dimension is stored whole.
   Where the simplifier cannot show that the index stays inside, lowering limits it to the
   dimension (`lowering/accesses.py`): whatever data hold, and whatever an overhanging iteration
   finds in a buffer, no kernel reads outside.  The reference refuses an index outside that nothing
   guards.  Inputs of a verification are drawn by what they are for (`te/positions.py`): valid
   indices, and beyond both ends where the computation limits them itself.  The cost features place
   such a read anywhere in its dimension.
11. Extents that calls give.  `te.var("n")` may be an extent, and so may integer arithmetic of such
   variables (`ir/symbols.py`).  Then the numbers of bounds are expressions (`open_bounds.py`),
   computed by the same lines; a condition on them that cannot be decided is decided for safety: a
   guard where one may be needed, the region that readers ask for where it is a number, and the
   whole dimension where not.
   Threads of a block, lanes of a vector, copies in shared and local memory must be numbers; blocks,
   loops, arguments and workspaces need not be, nor a CPU's scratch, which then comes from the heap.
   A kernel reads each variable from an argument of one element; an artefact says by which
   arithmetic shapes, grids and loops follow from them (`OpenExtents`), and a call takes the values
   from the shapes of its arrays, which must agree (`runtime/extents.py`).  Limits of a device are
   checked where all variables are 4096.  What counts, keeps or measures a computation (flops, hash,
   JSON, the reference, tuning) refuses variables and names `ComputeDAG.at`.  A property test
   replays random schedules with variables, puts numbers into the program and compares with the
   reference of these.  Integers that are no extents, and numbers of other types, are arguments too:
   an index that depends on one is limited as rule 10 says.
12. Nothing.  An extent may be 0.  Bounds count such an axis as one value, so that no rule needs an
   exception; a stage without elements is no kernel, and a reduction over nothing is its identity
   from the start.  Tasks refuse it: there is nothing to tune.
13. Several tensors.  A stage may give several tensors of one shape: its body is then a `tuple`
   expression, a reduction's combiner one over tuples, and what walks over bodies needs no other
   case.  Loops, regions, places and strides are the stage's; buffers, types and bytes each
   tensor's.  Values are stored as if at once (`lowering/reductions.py`): in an order in which no
   value reads what another one has stored, or through local variables where there is none.
   Reductions over the same axes in one `te.compute` are joined to one.

14. Atoms.  Loops inside a matrix instruction are none: they have one trip, and an axis is where
   the atom begins.  What a warp holds (scope "fragment") is whole atoms, so extents of a fragment
   are rounded up, and its region is not clipped to the tensor: tiles begin where those of its
   reader do.  Operands are zero beyond their tensors and beyond the terms of a sum, since 0 * NaN
   is not 0.  Guards of an atom ask for its first element only, which is the same in all lanes.  A
   fragment is known to threadIdx.y and z, which are warps, and not to threadIdx.x, the lanes; a
   later stage may read of it what its own lane holds, which the simplifier has to prove
   (`lowering/accesses.py`).  `products.py` finds the operands, `layout.py` says who holds what.
   A reduction in scope "fragment" is of rows of such sums: its loops go over whole atoms, too, each
   lane reduces what it has of a row, and all that share the row hold the result.  One that goes
   along with a loop (`StageState.along`) has of its reduction axis the part that an iteration of
   the loop is about, a region as other axes have (`Bounds.begins`); its buffer lives around the
   stage that has the loop, and sums that read it while it grows follow it (`running.py`).
15. Rings.  A stage of asynchronous copies with n slots holds n tiles of the loop that it is
   computed at, no more than there are, each from a place that the widest access may have:
   `rings.py` gives the numbers to masks, facts and lowering.  The loop must be one that runs in
   turn: a stage computed at a loop that threads take has one slot.  What the stage copies must be a
   tensor in global memory that another kernel has finished, or zeros.

Scans (`recurrence.py`) and opaque stages, whose kernels somebody wrote (`te/opaque.py`), have rules
of their own: docs/tvm/languages.md.

Resources (`resources.py`) are what a kernel takes of its device, inferred once from tree and
bounds: launch, threads, shared bytes (buffers, and the boards on which threads add up a reduction),
local values in registers or bytes of stack (each by its element type, accumulators included),
vectors, and which loops the text repeats: those that an annotation or the pragma in force asks for,
and those that index a register tile.  Numbers are ints or vectors.  Masks, facts, features and the
machine model read them; lowering asks `pragma_in_force`, too.  A property test lowers random
schedules and members of templates and compares shared memory, local arrays, loops and text.

Masks (`legality.py`) compare resources with the limits of the target.

- Refused: it cannot run, or not be compiled or end in reasonable time.  Threads per block, each
  dimension of block and grid, shared memory, stack, vectors of many times the widest access,
  straight-line code from unrolling, register tiles of many times the registers, loops that run a
  thousand times the iterations there are.
- Discouraged: it runs, but surely badly.  More local values than registers, vectors wider than an
  access, sums whose accumulator takes more than 8,192 terms in turn and so loses their digits.

A search leaves out both; a user who compiles a discouraged configuration gets it.  Predicted
registers discourage and do not refuse, since the estimate is not exact.

Chains (`chains.py`) say how a reduction adds up: how many terms one accumulator of a thread takes
in turn, and where partial results begin.  A float32 sum with a long chain (docs/numerics.md says
from where on) has blocks wherever its loops make some, whoever split them: the loops from some
reduction loop inwards add to a fresh accumulator, which is then added to what is outside.  That is
decided by numbers, as vectors for a population, so lowering, resources and masks agree, and a log's
steps mean blocks too.  Loops that make blocks are what defaults, templates and rules end with
(`schedule/sums.py`); the same loops are split whatever the decisions are, so that one candidate is
what it is among thousands.  Two levels made by `rfactor` would have been another stage in every
template; an accumulator that a split implies costs a template nothing.
"""
