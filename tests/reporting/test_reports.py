"""Reports: what they hold, that they are safe to open, what becomes of logs that are none."""

import gzip
import json
import random
import re
from html.parser import HTMLParser

import pytest

import tilewright as tw
from reporting.made_logs import DEVICE, TARGET, tasks_of, write_log
from tilewright import front
from tilewright.base.errors import ModelError, RecordError
from tilewright.cli.app import main
from tilewright.cli.tables import BenchReport, Latency
from tilewright.measure.database import Database
from tilewright.measure.record import Result, TaskId, make_record
from tilewright.reporting.bench import document_of
from tilewright.reporting.collect import collect
from tilewright.reporting.markup import island, tag
from tilewright.reporting.model import Choice, Kernel, Report, TaskPart, Trial, shared
from tilewright.reporting.page import page
from tilewright.targets.spec import DeviceSpec
from tilewright.targets.target import Target

HOSTILE = "</script></style><img src=x onerror=alert(1)>\"'`|\x1b[2J\u202e=1+1"


@pytest.fixture(scope="module")
def tasks():
    return tasks_of(3)


@pytest.fixture(scope="module")
def log(tasks, tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "net.jsonl"
    write_log(path, tasks, 120)
    return path


class Elements(HTMLParser):
    """Names and attributes of all elements; what scripts hold."""

    def __init__(self, text):
        super().__init__()
        self.found, self.scripts, self._in = [], [], ""
        self.feed(text)

    def handle_starttag(self, name, attributes):
        self.found.append((name, dict(attributes)))
        self._in = name

    def handle_data(self, data):
        if self._in == "script":
            self.scripts.append(data)

    def handle_endtag(self, name):
        self._in = ""


@pytest.mark.slow
def test_a_page_loads_nothing_and_is_the_same_for_the_same_log(log, tmp_path):
    files = [tmp_path / f"{k}.html" for k in range(2)]
    for file in files:
        tw.report(log, file)
    text = files[0].read_text()
    assert files[1].read_text() == text and len(text) < 200_000
    elements = Elements(text)
    loading = {"src", "srcset", "data", "poster", "action", "background", "ping", "xlink:href"}
    for name, attributes in elements.found:
        assert name not in ("link", "iframe", "object", "embed", "img", "base", "use"), name
        assert not loading & attributes.keys(), attributes
        assert attributes.get("href", "#").startswith("#")
        assert not any(key.startswith("on") for key in attributes)
        assert "url(" not in attributes.get("style", "")
    assert not re.search(r"url\(|@import|fetch\(|XMLHttp|import\(", text)
    assert len(elements.scripts) == 2


@pytest.mark.slow
def test_every_link_of_a_page_leads_somewhere(log):
    elements = Elements(page(collect(log, against=log))).found
    ids = [a["id"] for _, a in elements if "id" in a]
    assert len(ids) == len(set(ids))
    linked = {a["href"][1:] for name, a in elements if name == "a"}
    assert linked <= set(ids) and {"kernels", "against", "task-0"} <= linked


@pytest.mark.slow
def test_a_page_says_what_the_log_says(log, tasks):
    report = collect(log)
    assert [k.name for k in report.kernels][:1] == [report.kernels[0].layers[0]]
    by_name = {k.layers[0]: k for k in report.kernels}
    best = Database.load(log).best(TaskId("", [], tasks[1].key, TARGET, DEVICE.fingerprint))
    kernel = by_name["/encoder/layer.1/dense"]
    assert kernel.seconds == best.seconds and kernel.calls == 2
    assert kernel.work.flop == tasks[1].dag.flop_ct
    assert kernel.of_roof == pytest.approx(kernel.bound.seconds / best.seconds)
    assert sum(k.share for k in report.kernels) == pytest.approx(1)
    part = report.tasks[kernel.task]
    assert part.measured == 40 and "blockIdx" in part.loops and "__global__" in part.source
    assert part.knobs and sum(v.every for v in part.knobs[0].values) == part.sketch_trials
    refused = sum(r.count for r in report.refusals)
    assert refused == report.refused == Database.load(log).counts().failed > 0
    text = page(report)
    assert "Rank correlation 0.9" in text and "measured on an H200 and not on this device" in text
    assert {lane.name for lane in report.lanes} >= {"Example GPU", "builder 1", "builder 4"}


@pytest.mark.slow
def test_data_of_a_page_can_be_read_back(log):
    (data,) = (json.loads(t) for t in Elements(page(collect(log))).scripts if t.startswith("{"))
    assert data["version"] == 1 and len(data["kernels"]) == 3


def hostile_log(path, tasks):
    write_log(path, tasks, 60, layers=False)
    with Database(path) as database:
        task = TaskId(HOSTILE, [HOSTILE], "00", TARGET, HOSTILE)
        for k, error in enumerate([None, "wrong", None]):
            result = Result(
                costs=() if error else (1e-5 * (k + 1),), error=error, verified=not error,
                message=HOSTILE if error else "",
            )  # fmt: skip
            database.append(make_record(
                task, result, origin=HOSTILE, decisions={HOSTILE: HOSTILE}, device=HOSTILE,
                versions={HOSTILE: HOSTILE}, trial=k,
            ))  # fmt: skip
        database.note_run(
            tasks=[HOSTILE], calls=[-1], layers={"00": [HOSTILE], HOSTILE: 3}, instead_of=[HOSTILE],
            ceilings={"rates": {HOSTILE: -1}, "memory": 1e400}, devices=HOSTILE, seed=HOSTILE,
            tuner=HOSTILE, seconds=HOSTILE,
        )  # fmt: skip


@pytest.mark.slow
def test_hostile_names_stay_text(tasks, tmp_path):
    path = tmp_path / "evil.jsonl"
    hostile_log(path, tasks[:1])
    document = tw.report(path, against=path)
    text = page(document.report)
    elements = Elements(text)
    assert {name for name, _ in elements.found} <= SAFE
    assert len(elements.scripts) == 2 and "alert(1)" not in elements.scripts[1]
    assert "&lt;img src=x onerror" in text
    for written in (text, str(document)):
        assert "\x1b" not in written and "\u202e" not in written
    blocks = [part.splitlines() for part in str(document).split("\n\n") if part[0] == "|"]
    for rows in blocks:
        assert len({len(re.split(r"(?<!\\)\|", row)) for row in rows}) == 1
        assert all(row.count("`") % 2 == 0 for row in rows)
    assert len(blocks) == 2 and "img src" in str(document)
    for name in ("a.md", "a.csv", "a.json", "a.json.gz", "a.html"):
        assert document.save(tmp_path / name)


SAFE = {
    "a", "body", "br", "circle", "code", "dd", "details", "div", "dl", "dt", "figcaption",
    "figure", "footer", "g", "h1", "h2", "h3", "head", "html", "i", "main", "meta", "nav", "p",
    "path", "pre", "rect", "script", "section", "span", "style", "summary", "svg", "table",
    "tbody", "td", "text", "th", "thead", "title", "tr", "tspan", "wbr",
}  # fmt: skip


def test_spreadsheets_take_no_name_for_a_formula(log):
    from tilewright.reporting.markdown import table

    report = collect(log)
    report.kernels = [Kernel("=1+1", ("@SUM(1)",), 1, 1e-3, 1.0, None, None, "-x")]
    row = table(report).splitlines()[1]
    assert row.startswith("'@SUM(1),'=1+1,1,0.001,") and ",'-x," in row


def test_an_element_escapes_what_it_is_given():
    made = tag("p", "<b>", tag("i", "&"), title='"<')
    assert made == '<p title="&quot;&lt;">&lt;b&gt;<i>&amp;</i></p>'
    told = island({"a": "</script>\u2028"})
    assert "</script>" not in told.removesuffix("</script>") and "\u2028" not in told


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "it holds no record"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 9, "no line can be read"),
        (b'{"kind":"record","v":1}\n' * 3, "no line can be read"),
        (b'{"input": ["llvm", "t", []], "result": [[1.0], 0, 1, 2], "version": 0.2}\n', "no line"),
        (b"[" * 100_000, "no line can be read"),
    ],
)
def test_what_is_no_log_is_told(content, words, tmp_path):
    path = tmp_path / "log"
    path.write_bytes(content)
    with pytest.raises(RecordError, match=words):
        tw.report(path)


@pytest.mark.slow
def test_a_damaged_log_is_told_as_far_as_it_can_be_read(log, tmp_path):
    rng = random.Random(3)
    lines = log.read_bytes().splitlines(keepends=True)
    for k in rng.sample(range(1, len(lines)), 30):
        at = rng.randrange(len(lines[k]) - 1)
        lines[k] = lines[k][:at] + bytes([rng.randrange(33, 126)]) + lines[k][at + 1 :]
    path = tmp_path / "damaged.jsonl"
    path.write_bytes(b"".join(lines)[:-200])
    document = tw.report(path, tmp_path / "a.html", against=log)
    assert any("Skipped in the log" in note for note in document.report.notes)


def test_without_a_computation_or_a_run_a_report_has_less(log, tmp_path):
    kept = [li for li in log.read_bytes().splitlines(keepends=True) if b'"kind":"record"' in li]
    path = tmp_path / "bare.jsonl"
    path.write_bytes(b"".join(kept))
    report = collect(path)
    assert all(k.work is None and k.calls == 0 for k in report.kernels)
    assert "does not tell the computation" in report.tasks[0].left_out
    assert "The roofline is" in page(report)  # its target tells


@pytest.mark.slow
def test_an_enormous_log_is_thinned(log, monkeypatch):
    from tilewright.reporting import trials

    whole = collect(log)
    monkeypatch.setattr(trials, "MOST", 50)
    report = collect(log)
    assert report.trials < 50 and any("every 3th" in note for note in report.notes)
    assert [k.seconds for k in report.kernels] == [k.seconds for k in whole.kernels]


@pytest.mark.slow
def test_a_page_of_many_tasks_stays_below_a_megabyte():
    trials = [
        Trial(k, k, k, 1e-5 + k % 7 * 1e-6, 1e-5, "", False, False, True, 0.1, 0.1, 0, 0.0, 0)
        for k in range(200)
    ]
    best = Choice(1e-5, (1e-5,), "template:x", {"tile": [1, 2, 3]}, 0)
    parts = [
        TaskPart(str(k), k, f"task {k} " + "x" * 300, "cuda", "", trials=trials, measured=200,
                 best=best, leaders=[best] * 5)
        for k in range(700)
    ]  # fmt: skip
    rows = [Kernel(p.label, (), 1, 1e-5, 0.0, None, None, "", p.number, p.key) for p in parts]
    text = page(Report("many", tasks=parts, kernels=shared(rows)))
    assert len(text.encode()) < 1_000_000
    elements = Elements(text).found
    ids = {a.get("id") for _, a in elements}
    assert all(a["href"][1:] in ids for name, a in elements if name == "a")
    assert "tasks that take less time are left out" in text and "more kernels have no row" in text


def test_a_trace_has_tracks_on_which_nothing_overlaps(log, tmp_path):
    document = tw.report(log, [tmp_path / "t.json", tmp_path / "t.json.gz"])
    text = (tmp_path / "t.json").read_bytes()
    assert gzip.decompress((tmp_path / "t.json.gz").read_bytes()) == text
    events = json.loads(text)["traceEvents"]
    ends = {}
    for event in events:
        if event["ph"] == "X":
            track = event["pid"], event["tid"]
            assert event["ts"] >= ends.get(track, 0) and event["dur"] >= 0
            ends[track] = event["ts"] + event["dur"]
    assert sum(e["ph"] == "X" for e in events) >= document.report.trials
    counted = [e["args"]["us"] for e in events if e["ph"] == "C" and e["name"].endswith(" 1")]
    assert counted == sorted(counted, reverse=True) and counted


def test_one_task_can_be_asked_for(log):
    report = tw.report(log, tasks=[2]).report
    assert [part.number for part in report.tasks] == [2] and len(report.kernels) == 3
    assert "#task-0" not in page(report)
    with pytest.raises(RecordError, match="It has tasks 0 to 2"):
        tw.report(log, tasks=[7])


@pytest.mark.slow
def test_a_file_of_another_kind_is_not_replaced(log, tmp_path):
    for name in ("mine.html", "mine.md", "mine.csv", "mine.json"):
        (tmp_path / name).write_text("mine")
        with pytest.raises(RecordError, match="is not replaced"):
            tw.report(log, tmp_path / name)
        assert (tmp_path / name).read_text() == "mine"
    with pytest.raises(RecordError, match=r"End it in \.html"):
        tw.report(log, tmp_path / "report.pdf")
    with pytest.raises(RecordError, match="there is no such file"):
        tw.report(tmp_path / "none.jsonl")


@pytest.mark.slow
def test_the_command_writes_what_it_is_asked_for(log, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    main(["report", str(log)])
    main(["report", str(log), "-o", "a.md", "-o", "a.csv", "--against", str(log)])
    said = capsys.readouterr().out
    assert "net.html" in said and "Open it in a browser" in said and "a.csv" in said
    assert (tmp_path / "a.md").read_text().startswith("# Tilewright report: `net.jsonl`")
    for args, words in (
        (["-o", "a.pdf"], "its name does not say"),
        (["--dtype", "float16"], "are of --model"),
        (["--task", "9"], "It has tasks 0 to 2"),
        (["--model", "no.onnx"], "no.onnx"),
    ):
        with pytest.raises(SystemExit):
            main(["report", str(log), *args])
        assert words in capsys.readouterr().err


@pytest.fixture(scope="module")
def of_network(tmp_path_factory):
    """A network, and a log of it on a processor that is not this one."""
    path = tmp_path_factory.mktemp("network") / "mlp.llvm.jsonl"
    network = tw.load("mlp")
    made = front.tasks_of(network, Target("llvm"), "xgb")
    device = DeviceSpec("llvm", "Example CPU", "Example CPU / 8 cores")
    write_log(path, made, 30, device=device, layers=False)
    return network, path


@pytest.mark.slow
def test_with_its_model_the_rows_are_the_kernels_of_the_network(of_network):
    network, path = of_network
    report = tw.report(path, model=network).report
    assert report.title == "mlp" and report.shares_of == "the network's kernels"
    assert len(report.kernels) == 4 and report.kernels[-1].source == "untuned"
    tuned = report.kernels[:3]
    assert all(k.task is not None and k.seconds and k.trials == 10 for k in tuned)
    assert sum(k.share for k in report.kernels) == pytest.approx(1)
    assert any("Of 1 of 4 kernels" in note for note in report.notes)
    assert "it is not this one" in report.ceilings_told or report.ceilings is not None


@pytest.mark.slow
def test_a_model_of_another_log_is_refused(log):
    with pytest.raises(ModelError, match="has none of its"):
        tw.report(log, model="mlp")


@pytest.mark.slow
def test_what_bench_measured_stands_in_the_table(of_network):
    network, path = of_network
    known = tw.report(path, model=network).report.kernels
    timed = {k.key: (2e-6 * (at + 1), "record") for at, k in enumerate(known)}
    latencies = [Latency("untuned", (2e-5, 2.2e-5)), Latency("tuned", (1e-5, 1.1e-5)),
                 Latency("PyTorch", (), "not installed")]  # fmt: skip
    found = BenchReport(
        "mlp", "llvm", "Example CPU", latencies, [], 0.1, 1e-7, "the reference", network, timed
    )
    for log in (path, None):
        report = document_of(found, log, measure=False).report
        assert sorted(k.seconds for k in report.kernels) == [2e-6, 4e-6, 6e-6, 8e-6]
        text = page(report)
        assert "1.95x" in text or "2.00x" in text
        assert "not installed" in text and "0.10 of the tolerance, within it" in text
