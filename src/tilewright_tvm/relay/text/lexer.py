"""The words of relay's text.

In: a string.  Out: tokens with places, and the metadata that stands behind the text.
Read next: `reader.py`.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

from tilewright.base.errors import ModelError, TilewrightError

_STRING = r'"(?:[^"\\]|\\.)*"'
_WORD = r"[A-Za-z_](?:\w|/(?=\w))*"
_TOKEN = re.compile(
    rf"""(?P<space>\s+|//[^\n]*)
    |(?P<comment>/\*)
    |(?P<metadata>\#\[\s*metadata\s*\])
    |(?P<version>\#\[\s*version\s*=[^\]\n]*\]|v\d+\.\d+\.\d+(?![\w.]))
    |(?P<string>{_STRING})
    |(?P<quoted>[%@]{_STRING})
    |(?P<local>%\w(?:\w|/(?=\w))*(?:\.\w(?:\w|/(?=\w))*)*)
    |(?P<function>@{_WORD}(?:\.{_WORD})*)
    |(?P<meta>meta\[[\w.]+\]\[\d+\])
    |(?P<word>{_WORD}(?:\.{_WORD})*)
    |(?P<number>\d+(?:\.\d*)?(?:[eE][+-]?\d+)?(?:(?:bf|f|i|u)\d*)?(?!\w))
    |(?P<field>\.\d+)
    |(?P<sign>==|!=|<=|>=|->|=>|[-+*/<>=(){{}}\[\],;:?])""",
    re.ASCII | re.VERBOSE | re.DOTALL,
)
_LONGEST = 400  # part of an error
_COMMENT = re.compile(r"/\*|\*/")


@dataclass(frozen=True, slots=True)
class Token:
    """kind: a group of the pattern above, or "end"; text: without the sign of a name in quotes;
    at: the index of its first character."""

    kind: str
    text: str
    at: int


class Source:
    """A text and its tokens.

    tokens: the last one has the kind "end"
    metadata: what stands behind `#[metadata]`
    Raises ModelError for what is no token.
    """

    def __init__(self, text: str, name: str) -> None:
        self.text, self.name, self.metadata = text, name, ""
        self.tokens: list[Token] = []
        at = 0
        while at < len(text):
            found = _TOKEN.match(text, at)
            if found is None:
                raise self.refuse(at, f"{text[at]!r} begins nothing that is known", _why(text[at]))
            kind, word = found.lastgroup or "", found.group()
            end = found.end()
            if kind == "metadata":
                self.metadata = text[end:]
                break
            if kind == "comment":
                end = self._comment_end(at)
            elif kind == "quoted":
                kind = "name" if word[0] == "%" else "function"
                self.tokens.append(Token(kind, unquoted(word[1:]), at))
            elif kind == "function":
                self.tokens.append(Token(kind, word[1:], at))
            elif kind not in ("space", "version"):
                self.tokens.append(Token(kind, word, at))
            at = end
        self.tokens.append(Token("end", "", min(at, len(text))))

    def refuse(self, at: int, reason: str, way_out: str = "") -> ModelError:
        """An error that names line and column."""
        before = self.text[:at]
        line, column = before.count("\n") + 1, at - before.rfind("\n")
        place = f"{_shortened(self.name)}, line {line}, column {column}"
        return ModelError(place, _shortened(reason), way_out)

    def within(self, at: int, error: TilewrightError) -> ModelError:
        """The error of what is made of the words there, with its place in the text; one that has
        such a place keeps it."""
        if isinstance(error, ModelError) and error.place.startswith(
            f"{_shortened(self.name)}, line "
        ):
            return error
        place = f"{self.refuse(at, '').place}: {_shortened(error.place)}"
        return ModelError(place, _shortened(error.reason), _shortened(error.way_out))

    def _comment_end(self, at: int) -> int:
        depth = 0
        for found in _COMMENT.finditer(self.text, at):
            depth += 1 if found.group() == "/*" else -1
            if not depth:
                return found.end()
        raise self.refuse(at, "a comment does not end", "Close it with */.")


def _shortened(text: str) -> str:
    """What of a name of a megabyte is said again."""
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}...{text[-_LONGEST // 2 :]}"


def unquoted(text: str) -> str:
    """What stands between quotation marks; unknown escapes are what they look like."""
    try:
        return str(json.loads(text, strict=False))
    except ValueError:
        return text[1:-1]


def _why(character: str) -> str:
    if character == '"':
        return "Close the quotation marks."
    if character in "%@":
        return 'A name follows: %x, @main, or %"any name".'
    if character.isdigit():
        return "Numbers are 1, 1i64, 2f, 1e-05f64."
    return "Give text that mod.astext() has printed."
