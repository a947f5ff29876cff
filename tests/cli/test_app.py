"""The command line: what it refuses, what it prints, how it ends."""

import os
import signal
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest

from search.spaces import cpu_task
from tilewright import front
from tilewright.base.errors import TargetError
from tilewright.cli import bench, tables
from tilewright.cli.app import default_log, main
from tilewright.driver import doctor
from tilewright.measure import Database, Result, TaskId
from tilewright.measure.record import make_record, task_label
from tilewright.models import networks
from tilewright.network import tune as tuning
from tilewright.network import tune_network
from tilewright.network.tune_network import task_row
from tilewright.schedule.task import Task
from tilewright.search import loop
from tilewright.search.jobs import task_id
from tilewright.targets.target import Target
from tilewright_tvm import relay


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Runs a command line in an empty directory; gives exit code, output, errors."""
    monkeypatch.chdir(tmp_path)

    def run(*args):
        with pytest.raises(SystemExit) as ended:
            main(list(args))
            sys.exit(0)
        said = capsys.readouterr()
        return ended.value.code, said.out, said.err

    return run


@pytest.fixture
def quick_device(monkeypatch):
    monkeypatch.setattr(front, "as_described", lambda target, *_: target)
    monkeypatch.setattr(front, "begun", lambda *_: nullcontext())
    monkeypatch.setattr(tuning, "with_layouts", lambda tasks, *_, **__: tasks)
    for name in ("show_untuned", "confirm"):  # they build the network
        monkeypatch.setattr(tune_network, name, lambda *_: [])


def without_load(monkeypatch, search):
    monkeypatch.setattr(front, "load", lambda *_, **__: None)
    monkeypatch.setattr(front, "search", search)


@pytest.mark.parametrize(
    ("args", "code", "words"),
    [
        (["tune", "resnet-18", "--trials", "0"], 2, "0 is not more than zero"),
        (["tune", "resnet-18", "--minutes", "-1"], 2, "-1 is not more than zero"),
        (["tune", "resnet-18", "--minutes", "nan"], 2, "nan is not more than zero"),
        (["tune", "resnet-18", "--trials", "many"], 2, "'many' is not a valid integer"),
        (["tune", "resnet-18", "--target", "tpu"], 2, "unknown kind 'tpu'"),
        (["tune", "resnet-18", "--target", "cuda -arch=sm_20"], 2, "'sm_20' is not supported"),
        (["tune", "resnet-18", "--target", "llvm -num-cores=x"], 2, "'x'"),
        (["tune", "resnet-18", "--tuner", "oracle"], 2, "tuner 'oracle': no such tuner"),
        (["tune"], 2, "Missing argument 'MODEL'"),
        (["tune", "resnet-19"], 1, "there is no such network. Did you mean resnet-18"),
        (["tune", "missing.onnx"], 1, "there is no such file"),
        (["bench", "resnet-18", "--log", "missing.jsonl"], 2, "there is no file 'missing.jsonl'"),
        (["records", "missing.jsonl"], 2, "there is no file 'missing.jsonl'"),
        (["sing"], 2, "No such command 'sing'"),
    ],
)
def test_a_wrong_command_line_is_refused_in_one_message(run, args, code, words):
    got, out, err = run(*args)
    assert (got, out) == (code, "")
    assert words in " ".join(err.split())
    assert "Traceback" not in err


def test_a_log_that_cannot_be_written_is_refused_before_tuning(run, quick_device, monkeypatch):
    monkeypatch.setattr(front, "load", lambda *a, **k: pytest.fail("it started to tune"))
    code, _, err = run("tune", "resnet-18", "--log", "no/such/directory/log.jsonl")
    assert code == 1 and "cannot be written" in err


def test_a_target_without_its_device_is_refused(run, monkeypatch):
    def missing(target, *_):
        raise TargetError("cuda(0)", "cuda-bindings is not installed", "Try pip install cuda.")

    monkeypatch.setattr(front, "as_described", missing)
    monkeypatch.setattr(front, "begun", lambda *_: nullcontext())
    code, _, err = run("tune", "resnet-18", "--target", "cuda")
    assert code == 1 and err == (
        "error: cuda(0): cuda-bindings is not installed. Try pip install cuda.\n"
    )
    assert os.listdir() == []


def test_tune_passes_everything_on(run, quick_device, monkeypatch):
    seen = {}

    def search(net, target, database, **options):
        options.pop("progress")
        seen.update(**options, **net, target=str(target), log=database.path.name)

    monkeypatch.setattr(front, "load", lambda model, **options: {"model": model, **options})
    monkeypatch.setattr(front, "search", search)
    code, out, _ = run(
        "tune", "mobilenet", "--target", "llvm -num-cores=2", "--trials", "7", "--tuner", "random",
        "--seed", "3", "--log", "x.jsonl",
    )  # fmt: skip
    assert code == 0
    assert seen == {
        "model": "mobilenet", "target": "llvm -num-cores=2", "log": "x.jsonl", "trials": 7,
        "seconds": None, "tuner": "random", "dtype": "float32", "templates": True, "seed": 3,
        "batch": (), "shape": {}, "farm": None, "layout": None, "tasks": "all",
        "early_stopping": None, "history": (), "measuring": tuning.Measuring(), "helpers": None,
    }  # fmt: skip
    assert "tilewright bench mobilenet --target 'llvm -num-cores=2' --log x.jsonl" in out
    run("tune", "mobilenet")
    assert (seen["trials"], seen["seconds"], seen["log"]) == (None, 300, "mobilenet.llvm.jsonl")
    _, out, _ = run("tune", "mobilenet", "--shape", "a:b:[1,3] n:8", "--shape", "s:[] t:4,5")
    assert seen["shape"] == {"a:b": (1, 3), "n": 8, "s": (), "t": [4, 5]}
    assert "--shape 'a:b:[1,3]' --shape n:8 --shape 's:[]' --shape t:4" in out
    _, out, _ = run("tune", "mobilenet", "--dtype", "float16")
    assert (seen["dtype"], seen["log"]) == ("float16", "mobilenet.llvm.float16.jsonl")
    assert "--log mobilenet.llvm.float16.jsonl --dtype float16" in out  # bench looks there too


@pytest.mark.parametrize("exhausted", [True, False])
def test_a_run_that_ends_before_its_budget_says_why(
    run, quick_device, small_network, monkeypatch, exhausted
):
    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        meanwhile(None, None)
        return loop.Report([loop.TaskReport(t, exhausted=exhausted) for t in tasks])

    monkeypatch.setattr(tuning, "search", search)
    monkeypatch.setattr(tuning, "fused_tasks", lambda *_, **__: [cpu_task(8, 8, 8)])
    code, out, _ = run("tune", "resnet-18", "--trials", "5")
    assert code == 0 and "Done.  Next: tilewright bench" in out
    assert ("Every sensible candidate of every task has been measured." in out) == exhausted


def test_what_the_search_says_is_shown(run, quick_device, small_network, monkeypatch):
    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        meanwhile(None, None)
        on_event(loop.Event("converged", 0, 5, 1.0, message="Converged after 5 trials."))
        given_up = loop.TaskReport(tasks[0], trials=64, fruitless=True, failure="run: a fault")
        return loop.Report([given_up])

    monkeypatch.setattr(tuning, "search", search)
    monkeypatch.setattr(tuning, "fused_tasks", lambda *_, **__: [cpu_task(8, 8, 8)])
    code, out, _ = run("tune", "resnet-18", "--trials", "500")
    assert code == 0 and "Converged after 5 trials." in out
    assert "keeps its default: none of 64 candidates was valid.  The last: run: a fault" in out


@pytest.mark.parametrize("templates", [True, False])
def test_rules_tune_every_kernel_and_templates_compete(
    run, quick_device, small_network, monkeypatch, templates
):
    seen = []

    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        meanwhile(None, None)
        seen.append((options.tuner, [s.origin for s in tasks[0].sketches]))
        return loop.Report([loop.TaskReport(t) for t in tasks])

    def found(mod, params, target, include_simple, every_implementation, pass_options, known):
        assert include_simple
        return [cpu_task(8, 8, 8)]

    monkeypatch.setattr(tuning, "search", search)
    monkeypatch.setattr(tuning, "fused_tasks", found)
    flags = [] if templates else ["--no-templates"]
    args = "tune", "resnet-18", "--trials", "5", "--tuner", "auto-scheduler"
    assert run(*args, *flags)[0] == 0
    ((tuner, origins),) = seen
    assert tuner == "xgb" and any(o.startswith("rules:") for o in origins)
    assert any(o.startswith("template:") for o in origins) == templates


def test_leaving_templates_out_needs_something_else(run):
    code, _, err = run("tune", "resnet-18", "--no-templates")
    assert code == 2 and "nothing to search" in err


def test_records_can_be_distilled(run):
    some_log("log.jsonl")
    code, out, _ = run("records", "distill", "log.jsonl")
    assert (code, out) == (0, "1 best records are in log.jsonl.best.json\n")
    assert [r.seconds for r in Database.load("log.jsonl.best.json")] == [1e-3]
    assert run("records", "distill", "log.jsonl", "-o", "best")[0] == 0
    assert len(Database.load("best")) == 1
    assert run("records", "distill", "missing")[0] == 2


def test_a_log_of_tvm_is_no_log(run, quick_device, monkeypatch):
    line = '{"i": [["[1]", "llvm"], [[], []]], "r": [[1e-3], 0, 1.0, 1], "v": "v0.6"}\n'
    Path("old.json").write_text(line)
    code, out, err = run("records", "distill", "old.json")
    assert (code, out) == (1, "") and "`tilewright records import` reads those of TVM" in err
    assert not Path("old.json.best.json").exists()
    monkeypatch.setattr(front, "load", lambda *a, **k: front.Network("resnet-18", (), {}))
    monkeypatch.setattr(front, "tasks_of", lambda *a, **k: [])
    monkeypatch.setattr(front, "tune_network", lambda *a, **k: None)
    _, out, _ = run("tune", "resnet-18", "--log", "old.json")
    assert "old.json: skipped 1 line (1): a line of TVM's auto-scheduler log" in out


def test_bench_refuses_a_log_of_another_target(run, quick_device, monkeypatch):
    monkeypatch.setattr(front, "load", lambda *a, **k: pytest.fail("it started to time"))
    some_log("log.jsonl")
    code, _, err = run("bench", "resnet-18", "--target", "opencl", "--log", "log.jsonl")
    assert code == 1 and "it holds records for llvm" in err and "Tune for opencl" in err


def test_an_interrupt_says_how_to_go_on(run, quick_device, monkeypatch):
    def search(net, target, database, **options):
        database.append(make_record(TaskId("t", [], "d", "llvm"), Result(error="run")))
        raise KeyboardInterrupt

    without_load(monkeypatch, search)
    monkeypatch.setattr(sys, "argv", ["tilewright", "tune", "resnet-18", "--log", "my log"])
    code, out, err = run("tune", "resnet-18", "--log", "my log")
    assert code == 130 and "Traceback" not in err
    assert "1 results are in my log" in out
    assert "tilewright tune resnet-18 --log 'my log'" in out
    assert len(Database.load("my log")) == 1


def test_termination_is_an_interrupt(run, quick_device, monkeypatch):
    without_load(monkeypatch, lambda *a, **k: os.kill(os.getpid(), signal.SIGTERM))
    code, out, _ = run("tune", "resnet-18")
    assert code == 130 and "Stopped." in out
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_DFL


def report(**changes):
    fields = dict(
        model="resnet-18", target="llvm", device="a CPU",
        latencies=[
            tables.Latency("untuned", (0.040, 0.042)), tables.Latency("tuned", (0.010, 0.0104)),
            tables.Latency("PyTorch", note="not installed"),
        ],
        kernels=[
            tables.KernelLine(
                "conv2d 1x64x56x56", 4, 2.3e8, "record", 1e-3, "95.2%", "layer1.0.conv1 +3",
                "61% arithmetic",
            ),
            tables.KernelLine("dense", 1, 1e6, "default"),
            tables.KernelLine("saved by running together", 0, 0.0, "", -2e-4, "-4.8%"),
        ],
        largest_error=0.25, relative_error=3e-7,
    )  # fmt: skip
    return tables.BenchReport(**(fields | changes))


@pytest.mark.slow
def test_bench_prints_engines_tasks_and_error(run, quick_device, monkeypatch):
    monkeypatch.setattr(front, "load", lambda *_, **__: front.Network("resnet-18", (None,), {}))
    monkeypatch.setattr(bench, "bench_network", lambda *_: report())
    code, out, err = run("bench", "resnet-18")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0 and "no log resnet-18.llvm.jsonl: only what is untuned" in err
    assert "untuned 41 ms 41 ms 1 ms 1.00x" in lines
    assert "tuned 10.2 ms 10.2 ms 200 us 4.02x" in lines
    assert "PyTorch - - - - not installed" in lines
    of_conv = "95.2% 4 ms 4 230.0 61% arithmetic record layer1.0.conv1 +3 conv2d 1x64x56x56"
    assert of_conv in lines and "-4.8% -200 us saved by running together" in lines
    assert "3.00e-07 of the largest output, 0.25 of the tolerance (within it)" in " ".join(lines)


@pytest.mark.slow
def test_bench_fails_where_the_results_differ(run, quick_device, monkeypatch):
    monkeypatch.setattr(front, "load", lambda *_, **__: front.Network("resnet-18", (None,), {}))
    monkeypatch.setattr(bench, "bench_network", lambda *_: report(largest_error=1.5))
    code, out, err = run("bench", "resnet-18")
    assert code == 1 and "BEYOND" in out and "differ by more than rounding" in err


def some_log(path):
    dag = a_sum()
    args = [["TENSOR", [1, 8, 6, 6], "float32"], [1, 1]]
    conv = TaskId("conv2d_nchw.llvm", args, dag.hash, "llvm")
    dense = TaskId("dense", [4, 5], "d", "llvm")
    with Database(path) as database:
        for seconds in (2e-3, 1e-3):
            result = Result(costs=(seconds,), verified=True)
            record = make_record(conv, result, origin="template:conv", decisions={"s": seconds})
            database.append(record, dag.to_json())
        for n in range(3):
            error = Result(error="wrong", message=f"output C is wrong in {n} of 8 elements")
            database.append(make_record(dense, error))
        database.append(make_record(dense, Result(error="timeout", message="the build took long")))
    with open(path, "ab") as f:
        f.write(b'{"kind":"record", "v":1, "ta')


def a_sum():
    from tilewright import te

    x = te.placeholder((1000,), name="x")
    return te.ComputeDAG([te.compute((1000,), lambda i: x[i] + 1.0, name="y")])


def test_records_tells_best_counts_and_failures(run):
    some_log("log.jsonl")
    code, out, _ = run("records", "log.jsonl")
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert code == 0
    assert lines[0] == "6 records of 2 tasks: 2 measured, 4 failed"
    assert lines[1].startswith("skipped 1 line (") and lines[1].endswith("): not JSON, or cut off")
    best = "conv2d_nchw.llvm 1x8x6x6 1x1 llvm 2 0 1 ms 0.0 template:conv"
    assert best in lines and "dense 4 5 llvm 4 4 - - -" in lines
    assert lines.index("wrong 3 output C is wrong in # of # elements") < lines.index(
        "timeout 1 the build took long"
    )


def test_records_can_be_cut_short_and_picked(run):
    some_log("log.jsonl")
    code, out, _ = run("records", "log.jsonl", "--failures", "1", "--pick-best", "best.jsonl")
    assert code == 0 and "1 more reasons" in out
    assert "1 best records are in best.jsonl" in out
    assert [r.seconds for r in Database.load("best.jsonl")] == [1e-3]


def test_an_empty_log_is_no_error(run, tmp_path):
    (tmp_path / "log.jsonl").touch()
    assert run("records", "log.jsonl")[:2] == (0, "0 records of 0 tasks: 0 measured, 0 failed\n")


def test_doctor_lists_findings_and_fails_without_any_device(run, monkeypatch):
    works = doctor.Finding("device cpu(0)", True, "[fast] CPU")
    broken = doctor.Finding("device cuda(0)", False, "no driver", "Install it.")
    monkeypatch.setattr(doctor, "diagnose", lambda: [works, broken])
    code, out, _ = run("doctor")
    assert code == 0
    assert out.splitlines() == [
        "ok device cpu(0): [fast] CPU", "NO device cuda(0): no driver", "   Install it."
    ]  # fmt: skip
    monkeypatch.setattr(doctor, "diagnose", lambda: [broken])
    assert run("doctor")[0] == 1


def test_default_logs_are_named_by_model_and_kind():
    assert str(default_log("resnet-18", Target("cuda -arch=sm_80"))) == "resnet-18.cuda.jsonl"
    assert str(default_log("models/net.v2.onnx", Target("llvm"))) == "net.v2.llvm.jsonl"


@pytest.mark.slow
def test_help_loads_no_compiler_and_no_display():
    code = (
        "import sys; from tilewright.cli.app import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "heavy = {'llvmlite', 'rich', 'msgspec', 'xgboost', 'onnx', 'tilewright_tvm.relay'}\n"
        "print('loaded', sorted(heavy & set(sys.modules)), file=sys.stderr)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True)
    assert all(word in done.stdout for word in ("tune", "bench", "records", "doctor"))
    assert done.stderr.splitlines()[-1] == "loaded []"


@pytest.mark.slow
def test_python_dash_m_works(tmp_path):
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    done = subprocess.run(
        [sys.executable, "-m", "tilewright", "records", "none"],
        env=env, cwd=tmp_path, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 2 and "there is no file 'none'" in done.stderr


@pytest.mark.slow
def test_a_closed_pipe_is_quiet(tmp_path):
    some_log(tmp_path / "log.jsonl")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = f"{sys.executable} -m tilewright records log.jsonl | true"
    done = subprocess.run(
        command, shell=True, env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert "Traceback" not in done.stderr


@pytest.mark.slow
def test_what_was_asked_for_and_cannot_be_written_is_an_error(tmp_path):
    some_log(tmp_path / "log.jsonl")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    command = f"{sys.executable} -m tilewright records log.jsonl > /dev/full"
    done = subprocess.run(
        command, shell=True, env=env, cwd=tmp_path, capture_output=True, text=True
    )
    assert done.returncode == 1
    assert done.stderr == "error: standard output: No space left on device\n"


def test_leaders_that_were_timed_again_are_one_trial(run):
    task, database = cpu_task(8, 8, 8), Database()
    for final in (False, True):
        result = Result(costs=(1e-3,), verified=True, final=final)
        database.append(make_record(task_id(task), result))
    assert task_row(task, database).trials == 1


def test_what_another_program_measured_is_no_trial(run):
    task, database = cpu_task(8, 8, 8), Database()
    database.append(make_record(task_id(task), Result(costs=(1e-3,)), origin="import:autotvm-0.2"))
    assert task_row(task, database).trials == 0


def test_a_task_and_its_records_have_one_label():
    args = (("TENSOR", (1, 8, 6, 6), "float32"), (2, 2), 1, "float32")
    task = Task("conv2d", args, cpu_task(8, 8, 8).dag, Target("llvm"))
    assert task_label(task) == "conv2d 1x8x6x6 2x2 1"  # strides tell tasks apart
    assert task_label(task_id(task)) == task_label(task)


def test_the_search_tells_when_it_times_the_leaders_again(
    run, quick_device, small_network, monkeypatch
):
    def search(tasks, pipeline, database, options, on_event, history, meanwhile):
        meanwhile(None, None)
        best = make_record(task_id(tasks[0]), Result(costs=(2e-3,), verified=True, final=True))
        on_event(loop.Event("leaders", 0, 5, 1.0, message="Timing the leaders again."))
        on_event(loop.Event("final", 0, 5, 1.0, record=best))
        return loop.Report([loop.TaskReport(tasks[0], trials=5, best=best)])

    monkeypatch.setattr(tuning, "search", search)
    monkeypatch.setattr(tuning, "fused_tasks", lambda *_, **__: [cpu_task(8, 8, 8)])
    _, out, _ = run("tune", "resnet-18", "--trials", "5")
    lines = out.splitlines()
    assert lines[1] == "Timing the leaders again."
    assert "failed 0  timed again 1  all tasks 2 ms" in lines[2]


def test_the_next_command_can_be_pasted(run, quick_device, monkeypatch):
    without_load(monkeypatch, lambda *a, **k: None)
    _, out, _ = run("tune", "mobilenet", "--trials", "1", "--log", "a b.jsonl")
    assert "Next: tilewright bench mobilenet --target llvm --log 'a b.jsonl'" in out


def test_a_network_without_templates_is_told_what_needs_none(run, quick_device, monkeypatch):
    x = relay.var("x", shape=(2, 3))
    mod = relay.IRModule.from_expr(relay.nn.relu(x))
    monkeypatch.setattr(networks, "load_sizes", lambda *_: ([mod], {}))
    code, _, err = run("tune", "resnet-18", "--trials", "5")
    assert code == 1 and "--tuner auto-scheduler needs none" in err
