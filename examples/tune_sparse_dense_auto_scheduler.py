"""Tuning a product with a block-sparse matrix, after the auto-scheduler's tutorial.

Two things are special.  The indices of the matrix are data that candidates must be measured with:
random ones would not be rows of anything.  And a rule of our own says how such a product may be
scheduled; the search closes the decisions that it leaves open.

    python examples/tune_sparse_dense_auto_scheduler.py
    python examples/tune_sparse_dense_auto_scheduler.py --target opencl --trials 64
"""

import argparse

import numpy as np

import tilewright
import tilewright_tvm
from tilewright import te
from tilewright.search.rules.rules import free_consumer
from tilewright_tvm import auto_scheduler, nd, topi
from tilewright_tvm.target import Target
from tilewright_tvm.topi.testing import random_bsr_matrix

parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
parser.add_argument("--target", default="llvm", help="cuda, opencl or llvm, with options")
parser.add_argument("--trials", type=int, default=10, help="schedules to measure; 1000 is good")
parser.add_argument("--log", default="sparse_dense.json", help="file of records, appended to")
parser.add_argument("--min-repeat-ms", type=int, default=100, help="of a measurement, at least")
options = parser.parse_args()


# Define the computation: a sparse product, a bias, a relu.
@auto_scheduler.register_workload
def sparse_dense(M, N, K, w_data_shape, w_indices_shape, w_indptr_shape, dtype):
    X = te.placeholder(shape=(M, K), dtype=dtype)
    W_data = te.placeholder(shape=w_data_shape, dtype=dtype)
    W_indices = te.placeholder(shape=w_indices_shape, dtype="int32")
    W_indptr = te.placeholder(shape=w_indptr_shape, dtype="int32")
    B = te.placeholder(shape=(M, N), dtype=dtype)

    out = topi.nn.sparse_dense(topi.nn.relu(X), W_data, W_indices, W_indptr)
    out = te.compute((M, N), lambda i, j: out[i, j] + B[i, j], name="BiasAdd")
    out = topi.nn.relu(out)
    return [X, W_data, W_indices, W_indptr, B, out]


# Data, and what must come out.
M, K, N, BS_R, BS_C, density = 128, 256, 512, 16, 1, 0.6
rng = np.random.default_rng(0)
X_np = rng.standard_normal((M, K)).astype("float32")
W_sp_np = random_bsr_matrix(N, K, BS_R, BS_C, density=density, dtype="float32", seed=1)
B_np = rng.standard_normal((M, N)).astype("float32")
Y_np = np.maximum(np.maximum(X_np, 0) @ W_sp_np.todense().T + B_np, 0)

# Create the search task.  The matrix goes with it: candidates are verified and timed with it.
target = Target(options.target)
blocks, rows = W_sp_np.indices.shape[0], W_sp_np.indptr.shape[0]
prefix = f"sparse_dense_bsr_{N}_{K}_{BS_R}_{BS_C}_{blocks}_{rows}_"
task = auto_scheduler.SearchTask(
    func=sparse_dense,
    args=(M, N, K, W_sp_np.data.shape, W_sp_np.indices.shape, W_sp_np.indptr.shape, "float32"),
    target=target,
    task_inputs={
        prefix + "W_data": nd.array(W_sp_np.data),
        prefix + "W_indices": nd.array(W_sp_np.indices),
        prefix + "W_indptr": nd.array(W_sp_np.indptr),
    },
    task_inputs_save_to_file=True,
)
print("Computational DAG:")
print(task.compute_dag)


# A rule of our own: the condition says for which stages it is, the other function applies it.
def meet_condition_func(search_policy, state, stage_id):
    if state.schedule.stages[stage_id].op.tag == "sparse_dense_sp_rhs_bsrmm":
        return auto_scheduler.PreloadCustomSketchRule.APPLY_AND_SKIP_REST
    return auto_scheduler.PreloadCustomSketchRule.PASS


def apply_func(search_policy, state, stage_id):
    stages = state.schedule.stages
    product = stages[stage_id]
    block = next(s for s in stages if s.op.tag == "sparse_dense_sp_rhs_bsrmm_block")
    block_id = stages.index(block)
    consumer = free_consumer(state, product)
    if consumer is None:
        consumer = product
    else:
        product.compute_inline()

    # The consumer in tiles, of whole blocks of columns; how large they are, the search decides.
    m, n = consumer.op.axis
    i, nb_j, j = block.op.axis
    row_offset, c = block.op.reduce_axis
    rows, columns = state.tiles(block, i, 3), state.tiles(block, nb_j, 2)
    m0, m1 = consumer.split(m, factor=rows[1] * rows[2])
    n0, n1 = consumer.split(n, factor=columns[1] * BS_R)
    if state.target.has_threads:
        m1, m2 = consumer.split(m1, factor=rows[2])
        n1, n2 = consumer.split(n1, factor=BS_R)
        consumer.reorder(m0, n0, m1, n1, m2, n2)
        consumer.bind(consumer.fuse(m0, n0), "blockIdx.x")
        at = consumer.fuse(m1, n1)
        consumer.bind(at, "threadIdx.x")
        block.set_scope("local")
        block.compute_at(consumer, at)
        block.reorder(row_offset, i, nb_j, j, c)
    else:
        consumer.reorder(m0, n0, m1, n1)
        consumer.vectorize(consumer.split(n1, factor=BS_R)[1])
        at = consumer.fuse(m0, n0)
        consumer.parallel(at)
        block.compute_at(consumer, at)
        i1, i2 = block.split(i, factor=rows[2])
        block.reorder(i1, nb_j, row_offset, i2, c, j)
        block.vectorize(j)
    state.tiled |= {block.name, consumer.name}  # nothing is left to do for these two
    return [[state, block_id - 1]]


# Search with it.
policy = auto_scheduler.SketchPolicy(
    task,
    program_cost_model=auto_scheduler.XGBModel(),
    init_search_callbacks=[
        auto_scheduler.PreloadCustomSketchRule(meet_condition_func, apply_func, "SparseDense")
    ],
)
tune_option = auto_scheduler.TuningOptions(
    num_measure_trials=options.trials,
    runner=auto_scheduler.LocalRunner(min_repeat_ms=options.min_repeat_ms),
    measure_callbacks=[auto_scheduler.RecordToFile(options.log)],
    verbose=2,
)
task.tune(tune_option, policy)

# Apply the best schedule.
sch, args = task.apply_best(options.log)
print("Lowered program:")
print(tilewright.lower(sch, args, simple_mode=True))
func = tilewright.build(sch, args, target)

# Check correctness.
dev = tilewright.device(target.kind, 0)
X_tvm, B_tvm = nd.array(X_np, dev), nd.array(B_np, dev)
W_tvm = [nd.array(a, dev) for a in (W_sp_np.data, W_sp_np.indices, W_sp_np.indptr)]
Y_tvm = nd.empty(Y_np.shape, device=dev)
func(X_tvm, *W_tvm, B_tvm, Y_tvm)
tilewright_tvm.testing.assert_allclose(Y_np, Y_tvm.numpy(), atol=1e-4, rtol=1e-4)

# Evaluate execution time.
evaluator = func.time_evaluator(func.entry_name, dev, min_repeat_ms=options.min_repeat_ms)
results = evaluator(X_tvm, *W_tvm, B_tvm, Y_tvm).results
print(f"Execution time of this operator: {np.median(results) * 1000:.3f} ms")
