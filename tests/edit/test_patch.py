"""git applies the diff of any two texts."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.edit.hunks import unified_diff
from specchat.edit.source_text import make_source, source_diff

LINES = st.text(alphabet="ab \t\x0c\u2028é", max_size=4)


@settings(max_examples=25)
@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_git_apply_makes_the_new_file_from_the_diff(tmp_path_factory, old, new, ends, newline):
    folder = tmp_path_factory.mktemp("diff")
    raw = newline.join([*old, ""] if ends else old).encode()
    source = make_source(raw, "f")
    wanted = source.encode("\n".join(new))
    if not raw or not wanted or wanted == raw:
        return
    (folder / "f").write_bytes(raw)

    patch = source_diff(source, "\n".join(new)).encode()
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=folder, check=True, timeout=180)

    assert wanted == (folder / "f").read_bytes()


@pytest.mark.parametrize("text", ["a\n\nb\n", "a\r\nb", "\n"])
def test_git_apply_makes_and_removes_a_file(tmp_path, text):
    def apply(old, new):
        patch = unified_diff("f", old, new).encode()
        subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=tmp_path, check=True, timeout=180)

    apply(None, text)
    assert text.encode() == (tmp_path / "f").read_bytes()
    apply(text, None)
    assert not (tmp_path / "f").exists()


def test_equal_texts_have_no_diff():
    assert source_diff(make_source(b"a\n", "f"), "a\n") == ""


def test_a_byte_order_mark_is_a_part_of_its_line():
    assert "-\ufeffa\n+\ufeffb\n" in source_diff(make_source(b"\xef\xbb\xbfa\n", "f"), "b\n")
