"""What MkDocs is told beside `mkdocs.yml`: pages of the root are pages of the site.

README.md and its neighbours lie above the folder of the pages, where GitHub shows them.  In: the
files of the site, the text of a page.  Out: more files, links that are right in the site.
"""

from __future__ import annotations

import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
# A list may follow a line of text on GitHub; the site's reader of Markdown wants a line between.
_LIST = re.compile(r"(?m)^(?![ \t|>*-]|\d+\.)(\S.*\n)(?=[-*] )|^( +```\n)(?=[-*] )")
_LINK = re.compile(r"\[([^\]]*)\]\(([^)\s#:]+)(#[^)\s]*)?\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the pages of the root; README.md is the first page of the site."""
    for name in PAGES:
        files.append(File.generated(config, name, abs_src_path=str(ROOT / name)))
    return files


def on_page_markdown(text: str, page: Any, config: Any, files: Any) -> str:
    """Let links lead to where the pages of the root and those of `docs` are side by side, and
    lists be lists."""
    here = page.file.src_uri
    folder = "" if here in PAGES else posixpath.join("docs", posixpath.dirname(here))

    def moved(match: re.Match[str]) -> str:
        text, path, heading = match.groups()
        target = posixpath.normpath(posixpath.join(folder, path))
        inside = target.removeprefix("docs/")
        if inside == target and target not in PAGES:
            return text if "`" in text else f"`{text}`"  # a file of the sources
        link = posixpath.relpath(inside, posixpath.dirname(here) or ".")
        return f"[{text}]({link}{heading or ''})"

    return _LIST.sub(lambda m: m[0] + "\n", _LINK.sub(moved, text))
