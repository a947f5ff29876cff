"""Names of strangers as names of files."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tilewright.base.errors import DeviceError
from tilewright.base.names import as_plain, is_plain, plain_name

NO_NAMES = ["", ".", "..", "/", "a/b", "../a", "/etc", "a\\b", "a\0", "a\n", "\x1b[2J", "\ud800",
            "x" * 256, "\N{RIGHT-TO-LEFT OVERRIDE}a"]  # fmt: skip
parts = st.sampled_from(["..", ".", "/", "\\", "a", "~", "\0", "\n", " ", "é", "x" * 199, "\ud800"])
texts = st.lists(parts, max_size=4).map("".join) | st.text(max_size=300)


@pytest.mark.parametrize("name", NO_NAMES)
def test_what_is_no_name(name: str) -> None:
    assert not is_plain(name)
    with pytest.raises(DeviceError, match="no plain name"):
        plain_name(name, "upload", DeviceError)


@pytest.mark.parametrize("name", ["a", "net.so", ".hidden", "a b", "größe.npz", "...", "a..b"])
def test_what_is_one(name: str) -> None:
    assert plain_name(name, "upload", DeviceError) == as_plain(name) == name


@pytest.mark.slow
@given(texts)
def test_a_plain_name_stays_in_its_folder(text: str) -> None:
    for name in [as_plain(text), *([text] if is_plain(text) else [])]:
        assert is_plain(name)
        path = Path("/folder") / name
        assert path.parent == path.resolve().parent == Path("/folder")
