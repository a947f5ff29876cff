"""Code blocks of the pages, and what stands in for what takes long when they run.

A block runs as it is written, in the order of its page, but for `INSTEAD`.  A comment of HTML
before it says more: `<!-- not run: WHY -->`; `<!-- command: NAME -->`, which `.ci/run` runs;
`<!-- prints: CODE -->`, whose output the block shows; `<!-- after: CODE -->`, which runs before it.
In: text.  Out: `Block`s.  Read next: `test_blocks.py`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
# What was written down on a day is as it was on that day.
DATED = re.compile(r"CHANGELOG|docs/performance-log|docs/decisions/")
CODE = ("python", "sh", "bash")

_FENCE = re.compile(
    r"(?:^ *<!-- (?P<kind>not run|command|prints|after):\s*(?P<said>(?:(?!-->).)*?)\s*-->\n+)?"
    r"^(?P<indent> *)```(?P<language>\w*)\n(?P<text>.*?)^ *```$",
    re.M | re.S,
)
_NETWORKS = r"(?<![\w./-])(resnet-?\d+(-v1)?|mobilenet|squeezenet-1\.1)(?![\w.-])"

# What is written, and what runs: seconds for minutes, a CPU for a GPU, a small network for a large.
INSTEAD = [
    (r"-?-minutes[ =][\d.]+", "--trials 2"),
    (r"\bminutes=[\d.]+", "trials=2"),
    (r"--trials \d+", "--trials 2"),
    (r"\btrials=\d+", "trials=2"),
    (r'tune_minutes": [\d.]+', 'trials": 2'),
    (r'"cuda( -[^"]*)?"', '"llvm"'),
    (r"--target (cuda|'cuda[^']*')", "--target llvm"),
    (_NETWORKS, "mlp"),
    (r"(?m)^python3 -m venv .venv$", "mkdir -p .venv/bin && touch .venv/bin/activate"),
    (r"(?m)^(pip|pre-commit) install.*$", "true"),
    (r"(?m)^(tilewright farm status .*)$", r"until \1; do sleep 0.2; done"),
]


@dataclass(frozen=True)
class Block:
    """line: of its fence; kind, said: of the comment before it"""

    page: str
    line: int
    language: str
    text: str
    kind: str
    said: str

    @property
    def is_code(self) -> bool:
        return self.language in CODE or self.kind == "prints"

    @property
    def runs(self) -> bool:
        """Here, or by `.ci/run`."""
        return self.is_code and self.kind != "not run"

    def small(self) -> str:
        """What runs."""
        text = self.text
        for written, instead in INSTEAD:
            text = re.sub(written, instead, text)
        return text


def blocks_of(page: str, text: str) -> list[Block]:
    found = []
    for match in _FENCE.finditer(text):
        inner = re.sub(rf"^{match['indent']}", "", match["text"], flags=re.M)
        line = text.count("\n", 0, match.start("language")) + 1
        kind, said = match["kind"] or "", match["said"] or ""
        found.append(Block(page, line, match["language"], inner, kind, said))
    return found


def pages() -> list[str]:
    every = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]
    names = (str(p.relative_to(ROOT)) for p in sorted(every))
    return [name for name in names if not DATED.match(name)]


def blocks() -> list[Block]:
    """Of all pages that say what holds now."""
    return [b for p in pages() for b in blocks_of(p, (ROOT / p).read_text(encoding="utf-8"))]
