"""The texts of kernels, written down and compared: what should change no kernel is replayed.

A dump has the IR and the CUDA, OpenCL or LLVM text of

    golden     the programs of `tests/codegen`, the loop nests of `tests/schedule`
    test       what the tests of `codegen` and `lowering` lower or print, those of hypothesis aside
    template   of each computation that tests of templates have, and of layers of ResNet-18, on each
    rules      target the default schedule, and of each sketch of templates or rules drawn members
    network    kernels of small networks, untuned

It opens no device.  Draws are seeded by the names of what is drawn, so that two commits draw alike.
OUT.json has the hash of each text by name, OUT.texts.gz the texts by their hashes.

    python tests/drills/replay.py OUT.json [--root CHECKOUT] [--only test,rules] [--members 1]
    python tests/drills/replay.py --compare A.json B.json    # status 1 if a text differs

Texts that a test prints have the test's name; where tests were renamed, texts are found by hash.
"""

from __future__ import annotations

import argparse
import difflib
import gzip
import hashlib
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from importlib import import_module, util
from pathlib import Path
from typing import Any

Texts = Iterator[tuple[str, str]]
GPU = {"cuda": "cuda -arch=sm_90", "opencl": "opencl"}
CPU = {"llvm": "llvm -num-cores=4 -vector-bytes=32"}
WIDE = {"avx512": "llvm -num-cores=20 -vector-bytes=64"}
MALI = {"mali": "opencl -device=mali"}
SHOWN = 3  # differences that are printed in full
DRAWN = (64, 2048)  # configurations of which legal ones are taken; more where few are


# -- what is drawn ---------------------------------------------------------------------------------


def rng_of(name: str) -> Any:
    import numpy as np

    return np.random.default_rng(int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big"))


def loaded(file: str) -> Any:
    """The module of tests in a file of this name, wherever tests of this checkout have it."""
    (path,) = (p for p in Path("tests").rglob(file) if "golden" not in p.parts)
    spec = util.spec_from_file_location(f"replayed_{path.stem}", path)
    assert spec is not None and spec.loader is not None
    module = util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses ask for it
    spec.loader.exec_module(module)
    return module


def first(*names: str) -> Any:
    """The first of these modules that there is: where something was, and where it is."""
    for name in names[:-1]:
        try:
            return import_module(name)
        except ModuleNotFoundError as error:
            if not name.startswith(str(error.name)):
                raise
    return import_module(names[-1])


def shown(source: Any) -> str:
    """Text, and how it is launched."""
    launches = "\n".join(map(repr, source.kernels))
    return f"{source.text}\n-- {launches}\n-- {source.buffers}"


def told(make: Callable[[], str]) -> str:
    """What it gives; a refusal is a text, too."""
    from tilewright.base.errors import TilewrightError

    try:
        return make()
    except (TilewrightError, AssertionError) as error:
        return f"refused: {type(error).__name__}: {error}"


def printed(schedule: Any, target: Any) -> str:
    from tilewright.codegen import generate
    from tilewright.lowering.pipeline import lower_schedule

    program = lower_schedule(schedule, target)
    return f"{schedule.to_json()}\n{program}\n{shown(generate(program, target))}"


def members(sketch: Any, name: str, count: int) -> Texts:
    """Drawn legal configurations as text; the schedule of each, its IR, its source."""
    rng = rng_of(name)
    found: list[int] = []
    for size in DRAWN:
        some = sketch.space.sample(size, rng)
        found = some[sketch.legal(some, sensible=False)][:count].tolist()
        if len(found) == count:
            break
    yield f"{name}/space", f"{sketch.space}\nlegal among the drawn: {len(found)}"
    for k, index in enumerate(found):
        text = told(lambda index=index: printed(sketch.close(index), sketch.target))
        yield f"{name}/{k}", f"{sketch.space.get(index)}\n{text}"


# -- what is replayed ------------------------------------------------------------------------------


def golden(count: int) -> Texts:
    from tilewright.codegen import generate
    from tilewright.targets.target import Target

    shared = import_module("tests.codegen.c_family_programs")
    typed = import_module("tests.codegen.c_family_types")
    for name, case in (shared.CASES | typed.TYPED).items():
        yield f"{name}/ir", str(case.program)
        for kind, text in GPU.items():
            target = Target(text)
            yield f"{name}/{kind}", told(lambda c=case, t=target: shown(generate(c.program, t)))
    steps = import_module("schedule.step_cases")
    for step, cases in steps.CASES.items():
        for k, case in enumerate(cases):

            def nest(case: Any = case) -> str:
                s = steps.prepared(case)
                steps.run(s, case.step)
                return f"{case.step}\n{steps.nest(s)}"

            yield f"{step.__name__}/{k}", told(nest)


def test(count: int) -> Texts:
    """Runs the tests, and writes down what passes through lowering and printers."""
    import pytest

    codegen = import_module("tilewright.codegen")
    pipeline = import_module("tilewright.lowering.pipeline")
    found: list[tuple[str, str]] = []
    now: list[str] = []

    def recorded(module: Any, name: str, text_of: Callable[[Any], str]) -> None:
        function = getattr(module, name)

        def recording(*args: Any, **options: Any) -> Any:
            made = function(*args, **options)
            if now:
                found.append((f"{now[0]}#{len(found)}", text_of(made)))
            return made

        setattr(module, name, recording)

    class Plugin:
        @staticmethod
        def pytest_collection_modifyitems(items: list[Any]) -> None:
            own = [i for i in items if not hasattr(getattr(i, "obj", None), "hypothesis")]
            items[:] = [i for i in own if "nvrtc" not in i.nodeid]

        @staticmethod
        def pytest_runtest_setup(item: Any) -> None:
            now[:] = [item.nodeid]

    recorded(codegen, "generate", shown)
    recorded(pipeline, "lower_schedule", str)
    rooms = ["tests/codegen", "tests/lowering"]
    options = ["-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-m", "not slow", "--tb=no"]
    pytest.main([*options, *rooms], plugins=[Plugin()])
    now.clear()
    number: dict[str, int] = {}
    for name, text in found:
        own = name.rpartition("#")[0]
        number[own] = number.get(own, 0) + 1
        yield f"{own}#{number[own]}", text


def computations() -> Iterator[tuple[str, Callable[[], Any], dict[str, str]]]:
    """Names, computations and targets, as tests of templates have them."""
    from tilewright.te.dag import ComputeDAG

    gpu, cpu = loaded("test_templates_gpu.py"), loaded("test_templates_cpu.py")
    for name, make in gpu.COMPUTATIONS.items():
        yield f"gpu {name}", lambda make=make: ComputeDAG([make()]), GPU | CPU
    for name, make in cpu.CASES.items():
        yield f"cpu {name}", make, CPU | WIDE | {"cuda": GPU["cuda"]}
    for number in range(len(gpu.LAYERS)):
        yield f"resnet {number}", lambda k=number: gpu.resnet_layer(k), GPU | CPU
    rows, winograd = loaded("test_templates_rows.py"), loaded("test_winograd.py")
    for name in rows.OPERATORS:
        yield f"rows {name}", lambda name=name: rows.dag(name, 2, 3, 37), GPU | CPU
    for case in winograd.CASES:
        *five, n = case
        yield f"winograd {case}", lambda five=five, n=n: winograd.dag_of(*five, n=n), GPU | CPU
    yield "attention", attention, GPU | CPU


def attention() -> Any:
    from tilewright import te, topi

    q, k, v = (te.placeholder((3, n, 8), name=x) for x, n in zip("qkv", (20, 24, 24), strict=True))
    scores = topi.multiply(topi.nn.batch_matmul(q, k, transpose_b=True), 0.3)
    out = topi.nn.batch_matmul(topi.nn.softmax(scores), v, transpose_b=False)
    return te.ComputeDAG([q, k, v, out])


def template(count: int) -> Texts:
    from tilewright.schedule.default import default_schedule
    from tilewright.schedule.task import create
    from tilewright.schedule.template import anchor_sketches
    from tilewright.targets.target import Target

    for name, make, targets in computations():
        for kind, text in targets.items():
            dag, target = make(), Target(text)
            label = f"{name}/{kind}"
            yield (
                f"{label}/default",
                told(lambda d=dag, t=target: printed(default_schedule(d, t), t)),
            )
            for sketch in anchor_sketches(dag, target):
                yield from members(sketch, f"{label}/{sketch.origin}", count)
    first("tilewright_tvm.topi.templates", "tilewright.topi.templates")  # registers them
    for name, case in loaded("test_templates_by_name.py").CASES.items():
        on_cpu = name.endswith(("x86", "arm_cpu"))
        for kind, text in (CPU if on_cpu else GPU).items():
            (sketch,) = create(name, case.args, Target(text)).sketches
            yield from members(sketch, f"by name/{name}/{kind}", count)


def rules(count: int) -> Texts:
    from tilewright.targets.target import Target
    from tilewright.te.dag import ComputeDAG

    derive = import_module("tilewright.search.rules.derive")
    workloads = import_module("search.workloads")
    for name, make in {**workloads.SMALL, **workloads.COUNTED}.items():
        for kind, text in (GPU | CPU | MALI).items():
            for sketch in derive.rule_sketches(ComputeDAG(make()), Target(text)):
                yield from members(sketch, f"{name}/{kind}/{sketch.origin}", count)


NETWORKS: dict[str, dict[str, Any]] = {
    "mlp": {"image_shape": (1, 12, 12)},
    "resnet": {"num_layers": 18, "image_shape": (3, 32, 32)},
    "mobilenet": {"image_shape": (3, 32, 32)},
    "squeezenet": {"image_shape": (3, 64, 64)},
    "dcgan": {},
}


def network(count: int) -> Texts:
    """Groups, layouts and default schedules that untuned networks have."""
    from tilewright.targets.target import Target

    home = first("tilewright_tvm.relay", "tilewright.relay")
    tasks_of = first("tilewright_tvm.autotvm", "tilewright.autotvm").task.extract_from_program
    for name, options in NETWORKS.items():
        mod, params = getattr(home.testing, name).get_workload(batch_size=1, **options)
        built = home.build(mod, Target(CPU["llvm"]), params, verify=False, use_knowledge=False)
        yield f"{name}/llvm/plan", built.get_graph_json()
        for k, text in enumerate(sorted(shown(kernel.source) for kernel in built.kernels)):
            yield f"{name}/llvm/{k}", text
        for kind, spelled in GPU.items():
            tasks = tasks_of(mod, params, Target(spelled))
            texts = [told(lambda t=t: printed(t.default(), t.target)) for t in tasks]
            for k, text in enumerate(sorted(texts)):
                yield f"{name}/{kind}/{k}", text


PARTS = {p.__name__: p for p in (test, golden, template, rules, network)}  # tests patch: they first


# -- dumps -----------------------------------------------------------------------------------------


def texts_of(out: Path) -> Path:
    return out.with_suffix(".texts.gz")


def dump(out: Path, parts: list[str], count: int) -> None:
    entries: dict[str, str] = {}
    texts: dict[str, str] = {}
    for part in parts:
        for name, text in PARTS[part](count):
            assert f"{part}/{name}" not in entries, f"two texts are called {part}/{name}"
            digest = hashlib.sha256(text.encode()).hexdigest()
            entries[f"{part}/{name}"], texts[digest] = digest, text
        print(f"{part}: {sum(n.startswith(f'{part}/') for n in entries)} texts", flush=True)
    out.write_text(json.dumps(entries, indent=0))
    packed = json.dumps(dict(sorted(texts.items()))).encode()
    texts_of(out).write_bytes(gzip.compress(packed, 6, mtime=0))


def compared(a: Path, b: Path) -> int:
    """Prints what differs in the parts that both dumps have; the number of names."""
    old, new = (json.loads(path.read_text()) for path in (a, b))
    before, after = (json.loads(gzip.decompress(texts_of(path).read_bytes())) for path in (a, b))
    both = set.intersection(*({n.partition("/")[0] for n in names} for names in (old, new)))
    old, new = (
        {n: d for n, d in names.items() if n.partition("/")[0] in both} for names in (old, new)
    )
    hashes = set(old.values()) & set(new.values())
    changed = [name for name in old if name in new and old[name] != new[name]]
    gone = [name for name in old if name not in new and old[name] not in hashes]
    more = [name for name in new if name not in old and new[name] not in hashes]
    renamed = sum(name not in new for name in old) - len(gone)
    for what, names in (("differs", changed), ("gone", gone), ("new", more)):
        for name in names:
            print(f"{what}: {name}")
    for name in changed[:SHOWN]:
        lines = before[old[name]].splitlines(), after[new[name]].splitlines()
        print("\n".join(difflib.unified_diff(*lines, f"a/{name}", f"b/{name}", lineterm="")))
    print(
        f"{len(old)} and {len(new)} texts: {len(changed)} differ, {len(gone)} are gone, "
        f"{len(more)} are new, {renamed} are there by another name"
    )
    return len(changed) + len(gone) + len(more)


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("out", type=Path, nargs="?", help="where the dump goes")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("A", "B"), help="two dumps")
    parser.add_argument("--root", type=Path, default=Path.cwd(), help="the checkout; default: here")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--members", type=int, default=1, help="of each sketch")
    options = parser.parse_args()
    if options.compare:
        return 1 if compared(*options.compare) else 0
    if options.out is None:
        parser.error("say where the dump goes, or --compare two")
    out, root = options.out.resolve(), options.root.resolve()
    os.chdir(root)
    sys.path[:0] = [str(root / "src"), str(root / "tests"), str(root)]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])  # of worker processes
    with tempfile.TemporaryDirectory(prefix="replay-") as cache:
        os.environ["TILEWRIGHT_CACHE"] = cache
        os.environ["TILEWRIGHT_KNOWLEDGE"] = "off"
        import tilewright

        assert Path(tilewright.__file__).is_relative_to(root / "src"), tilewright.__file__
        dump(out, [part for part in PARTS if part in options.only.split(",")], options.members)
    return 0


if __name__ == "__main__":
    sys.exit(main())
