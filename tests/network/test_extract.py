"""Tasks of networks: which, how often, and under which names."""

from collections import Counter

import numpy as np
import pytest
from hypothesis import given

from graph.drawing import networks
from graph.small import residual
from tests.tiers import examples
from tilewright import cpu
from tilewright.base.errors import ModelError, TargetError
from tilewright.graph.expr import Call, Function, Tuple, post_order
from tilewright.graph.pass_options import USUAL, PassOptions
from tilewright.network import extract
from tilewright.network.extract import Groupings, fused_groups, fused_tasks, prepare, ungrouped
from tilewright.targets.target import Target
from tilewright_tvm import auto_scheduler, autotvm, relay
from tilewright_tvm.autotvm.contractions import extract_from_program
from tilewright_tvm.contrib import graph_executor


@pytest.fixture(scope="module")
def resnet_18():
    return relay.testing.resnet.get_workload(num_layers=18)


@pytest.mark.slow
def test_resnet_18_has_twelve_convolution_tasks(resnet_18):
    mod, params = resnet_18
    conv2d = relay.op.get("nn.conv2d")
    tasks = extract_from_program(mod["main"], params=params, target="llvm", ops=(conv2d,))
    others = [(o.name, o.args[1][1][0], o.weight) for t in tasks for o in t.others]
    name = "conv2d_nchw_winograd_without_weight_transform"
    weights = [4, 3, 3, 3]  # of the 3 x 3 kernels that are moved by one, by their sizes
    assert others == [(name, alpha, n) for n in weights for alpha in (4, 6)]
    assert all(o.instead_of == t.key for t in tasks for o in t.others)
    assert len(tasks) == len({t.key for t in tasks}) == 12
    assert {t.name for t in tasks} == {"conv2d_nchw"}
    assert sum(t.weight for t in tasks) == 21  # 17, and a projection per stage
    first = tasks[0]
    (flagship,) = [t for t in tasks if t.args[1][1] == [512, 512, 3, 3]]
    assert first.args[:2] == (
        ["TENSOR", [1, 3, 224, 224], "float32"], ["TENSOR", [64, 3, 7, 7], "float32"],
    )  # fmt: skip
    assert first.args[2] == [2, 2]
    assert flagship.weight == 3 and flagship.flop == pytest.approx(2 * 512 * 512 * 9 * 49, rel=0.01)
    assert all(t.sketches for t in tasks)
    again = autotvm.task.extract_from_program(mod, params, "llvm", ops=[conv2d])
    assert [t.key for t in again] == [t.key for t in tasks]


def test_all_contractions_are_found_when_no_operator_is_named():
    mod, params = residual()
    with Target("llvm"):
        tasks = extract_from_program(mod, params)
    assert {t.name for t in tasks} == {"conv2d_nchw", "dense"}
    assert [t.key for t in extract_from_program(mod, params, "llvm", ops=["nn.dense"])] == [
        t.key for t in tasks if t.name == "dense"
    ]
    x, y = relay.var("x", shape=(2, 3, 4)), relay.var("y", shape=(2, 5, 4))
    f = relay.Function([x, y], relay.nn.batch_matmul(x, y))
    (product,) = extract_from_program(f, {}, "llvm")
    assert product.name == "batch_matmul" and product.sketches
    (pool,) = extract_from_program(mod, params, "llvm", ops=relay.op.get("nn.max_pool2d"))
    assert pool.name == "pool2d"


def test_weights_are_constants_only_when_their_values_are_known():
    mod, params = residual()
    known = extract_from_program(mod, params, "llvm")
    unknown = extract_from_program(mod, None, "llvm")
    assert all([p.constant for p in t.dag.placeholders] == [False, True] for t in known)
    assert not any(p.constant for t in unknown for p in t.dag.placeholders)


@pytest.mark.slow
def test_fused_tasks_are_the_kernels_in_network_order():
    mod, params = residual()
    every = fused_tasks(mod, params, "llvm", include_simple=True)
    groups = fused_groups(prepare(mod, params)["main"])
    assert [t.key for t in every] == [g.key for g in groups]
    names = [t.name for t in every]
    assert names[0] == "conv2d_nchw+add+relu" and names[-2:] == ["dense+add", "softmax"]
    assert "conv2d_nchw+add" in names and "add+relu" in names
    reducing = fused_tasks(mod, params, "llvm")
    assert [t.name for t in reducing] == [n for n in names if n != "add+relu"]


# How often each task runs, in network order: the partition of the auto-scheduler's tutorials.
STAGE = [1, 1, 1, 1, 1]  # strided, projection, sum, inner, sum with the next normalisation
WEIGHTS = {
    # stem, pooling; stages; pooling, dense, softmax
    "resnet-18": [1, 1, 2, 1, 1, 1, *3 * STAGE, 1, 1, 1],
    # of a stage: 1x1, 3x3, projection, sums, 1x1 of later units, sum with the next normalisation
    "resnet-50": [
        1, 1, 1, 3, 1, 2, 2, 1, 1, 4, 1, 3, 3, 1, 1, 6, 1, 5, 5, 1, 1, 3, 1, 2, 2, 1, 1, 1, 1,
    ],
    "mobilenet": [*13 * [1], 5, 5, *7 * [1]],
    # a fire module squeezes for itself and shares its expanding convolutions with the next
    "squeezenet-1.1": [1, *3 * [1, 1, 2, 2, 1], 1, 2, 2, 1, 1, 1, 1],
}  # fmt: skip
COUNTS = {"resnet-18": 24, "resnet-50": 29, "mobilenet": 22, "squeezenet-1.1": 23}


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("layout", ["NCHW", "NHWC"])
@pytest.mark.parametrize("name", WEIGHTS)
def test_the_partition_is_that_of_the_tutorials(name, layout):
    mod, params = relay.testing.get_network(name, layout=layout)
    tasks = fused_tasks(mod["main"], params, "llvm")
    assert len(tasks) == len({t.key for t in tasks}) == COUNTS[name]
    assert [t.weight for t in tasks] == WEIGHTS[name]


def test_equal_kernels_are_one_task_with_a_weight():
    data = relay.var("data", shape=(1, 4, 8, 8))
    x = data
    for k in range(3):
        x = relay.nn.relu(relay.nn.conv2d(x, relay.var(f"w{k}", shape=(4, 4, 3, 3)), 1, 1))
    mod, params = relay.testing.create_workload(relay.testing.layers.network(data, x))
    (task,) = fused_tasks(mod, params, "llvm")
    assert task.weight == 3 and task.name == "conv2d_nchw+relu"
    (alone,) = extract_from_program(mod, params, "llvm")
    assert alone.weight == 3


def beside(net):
    """Two copies of a network, each with an input of its own."""
    other = relay.var("other", shape=net.params[0].shape, dtype=net.params[0].dtype)
    twin = relay.bind(net.body, {net.params[0]: other})
    fields = [f for x in (net.body, twin) for f in (x.fields if isinstance(x, Tuple) else [x])]
    return relay.Function([*net.params, other], Tuple(fields))


ANCHORS = {"nn.conv2d": "conv2d", "nn.dense": "dense", "nn.avg_pool2d": "pool2d",
           "nn.max_pool2d": "pool2d"}  # fmt: skip


@pytest.mark.slow
@examples(12)
@given(networks())
def test_tasks_and_weights_of_random_networks(mod):
    every = fused_tasks(mod, {}, "llvm", include_simple=True)
    weights = {t.key: t.weight for t in every}
    calls = post_order(prepare(mod)["main"].body)
    assert len(weights) == len(every)
    assert sum(weights.values()) == sum(isinstance(getattr(c, "op", None), Function) for c in calls)
    # each convolution, product and pooling is one kernel, with whatever follows it
    nodes = [n.op.name for n in post_order(ungrouped(mod)[0]["main"].body) if isinstance(n, Call)]
    found = Counter[str]()
    for task in every:
        kinds = [v for v in ("conv2d", "dense", "pool2d") if v in task.name.partition("+")[0]]
        found.update({kind: task.weight for kind in kinds if "adaptive" not in task.name})
    assert found == Counter(ANCHORS[name] for name in nodes if name in ANCHORS)
    # beside its twin a network has the same tasks, each twice as often
    again = fused_tasks(beside(mod["main"]), {}, "llvm", include_simple=True)
    assert {t.key: t.weight for t in again} == {k: 2 * n for k, n in weights.items()}
    tasks, times = auto_scheduler.extract_tasks(mod, {}, "llvm")
    heavy = fused_tasks(mod, {}, "llvm")
    assert [(t.desc, n) for t, n in zip(tasks, times, strict=True)] == [
        (t.name, t.weight) for t in heavy
    ]


def test_refusals():
    mod, params = residual()
    with pytest.raises(ModelError, match="nn.conv4d.*no such operator"):
        extract_from_program(mod, params, "llvm", ops=["nn.conv4d"])
    with pytest.raises(ModelError, match="a int is no operator"):
        extract_from_program(mod, params, "llvm", ops=[3])
    with pytest.raises(TargetError, match="no target"):
        extract_from_program(mod, params)


SMALL = ("resnet-18", "resnet-18-v1", "mobilenet", "mobilenet_v2", "squeezenet-1.1", "vgg-11")


@pytest.mark.sampled(2)
@pytest.mark.slow
@pytest.mark.parametrize("target", ["llvm", "cuda"])
@pytest.mark.parametrize("name", SMALL)
def test_every_task_of_a_small_network_has_a_space(name, target):
    mod, params = relay.testing.get_network(name, batch_size=1, image_shape=(3, 32, 32))
    tasks = extract_from_program(mod["main"], params, target)
    every = [each for t in tasks for each in (t, *t.others)]
    assert len(every) >= 10 and all(len(t.config_space) >= 1 for t in every)


@pytest.mark.slow
def test_the_loop_of_the_tutorials_tunes_what_no_template_fits(tmp_path):
    """Pixels at which a template's tiles are larger than the image, behind one that has tiles."""
    x = relay.var("x", shape=(1, 32, 1, 1))
    near, far = relay.var("near", shape=(32, 1, 3, 3)), relay.var("far", shape=(1024, 32, 1, 1))
    y = relay.nn.conv2d(x, near, padding=(1, 1), groups=32, channels=32, kernel_size=(3, 3))
    y = relay.nn.conv2d(y, far, channels=1024, kernel_size=(1, 1))
    mod, log = relay.Function([x, near, far], y), str(tmp_path / "log.json")
    values = {p.name_hint: np.ones(p.shape, "float32") for p in (x, near, far)}
    params = {name: value for name, value in values.items() if name != "x"}
    tasks = autotvm.task.extract_from_program(mod, params, "llvm")
    assert [t.sketches[0].origin == "default" for t in tasks] == [True, False]
    option = autotvm.measure_option(autotvm.LocalBuilder(), autotvm.LocalRunner(number=1, repeat=1))
    for task in tasks:
        for make in (autotvm.tuner.XGBTuner, autotvm.tuner.GridSearchTuner):
            make(task).tune(
                n_trial=min(1, len(task.config_space)), measure_option=option,
                callbacks=[autotvm.callback.log_to_file(log)],
            )  # fmt: skip
    with autotvm.apply_history_best(log):
        lib = relay.build(mod, "llvm", params)
    assert {k.source for k in lib.report.kernels} <= {"record", "re-instantiated"}
    module = graph_executor.GraphModule(lib["default"](cpu()))
    module.run(x=values["x"])
    np.testing.assert_allclose(module.get_output(0).numpy(), relay.evaluate(mod, values), rtol=1e-5)


def test_a_search_groups_each_network_once(monkeypatch):
    """Other weights and another target are worked out anew, and what is watched."""
    mod, params = residual()
    target, asked = Target("cuda -arch=sm_80"), []
    work_out = extract.ungrouped
    monkeypatch.setattr(extract, "ungrouped", lambda *a: asked.append(a) or work_out(*a))
    known = Groupings()
    first = known.ungrouped(mod, params, USUAL, target)
    again = known.ungrouped(mod, dict(params), USUAL, target)
    assert again is first and len(asked) == 1
    assert known.ways(*first, target) is known.ways(*again, target)
    plain = [t.key for t in fused_tasks(mod, params, target)]
    assert [t.key for t in fused_tasks(mod, params, target, known=known)] == plain
    asked.clear()
    others = {**params, next(iter(params)): next(iter(params.values())).copy()}
    known.ungrouped(mod, others, USUAL, target)
    known.ungrouped(mod, params, PassOptions(layouts=False), target)
    known.ungrouped(mod, params, USUAL, Target("cuda -arch=sm_90"))
    watched = PassOptions(instruments=(Watch(),))
    known.ungrouped(mod, params, watched, target)
    known.ungrouped(mod, params, watched, target)
    assert len(asked) == 5


class Watch:
    """Sees the passes."""

    def run_before_pass(self, mod, info):
        pass

    run_after_pass = run_before_pass
