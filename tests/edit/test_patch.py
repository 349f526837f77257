"""From answer to new text: what is unwrapped, what is refused, what is kept."""

from __future__ import annotations

import subprocess

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specchat.edit.patch import diff, new_text, unfenced
from specchat.edit.source import make_source
from specchat.errors import BrokenEditError, InputError, NoChangeError, NoUsableEditError


def edited(raw: bytes, answer: str, name: str = "a.txt") -> bytes:
    source = make_source(raw, name)
    return source.encode(new_text(source, answer))


@pytest.mark.parametrize(
    ("answer", "inside"),
    [
        ("```python\nx = 1\n```", "x = 1"),
        ("```\nx = 1\n```\n", "x = 1"),
        ("\n~~~~\nx\n\ny\n~~~~", "x\n\ny"),
        ("````\n```\ninner\n```\n````", "```\ninner\n```"),
        ("x = 1\n", "x = 1\n"),
        ("text\n```\nx\n```", "text\n```\nx\n```"),
    ],
)
def test_one_outer_fence_is_unwrapped(answer, inside):
    assert inside == unfenced(answer)


@pytest.mark.parametrize("newline", ["\n", "\r\n"])
@pytest.mark.parametrize("end", ["", "\n"])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_newlines_the_final_newline_and_the_mark_are_kept(newline, end, bom):
    raw = bom + f"one{newline}two{end and newline}".encode()

    assert bom + f"one{newline}2{end and newline}".encode() == edited(raw, "```\none\n2\n```")


def test_the_indentation_of_a_selection_is_kept():
    assert b"    if y:\n\n        pass\n" == edited(b"    if x:\n\n        pass\n", "if y:\n\n    pass\n")
    assert b"    if y:\n" == edited(b"    if x:\n", "    if y:\n")


@pytest.mark.parametrize(
    "answer",
    ["", "  \n", "```\n```", "I'm sorry, I cannot do that.", "x = 1\n# ... rest of the code ...\n", "x = 1\n// …\n",
     "<!-- remaining code unchanged -->", "# ... existing code ..."],
)  # fmt: skip
def test_an_answer_that_is_no_file_is_refused(answer):
    with pytest.raises(NoUsableEditError):
        edited(b"x = 2\n", answer)


def test_an_ellipsis_that_was_there_before_may_stay():
    assert b"# ...\ny\n" == edited(b"# ...\nx\n", "# ...\ny\n")


def test_an_unchanged_text_says_so():
    with pytest.raises(NoChangeError):
        edited(b"x = 1\r\n", "x = 1")


@pytest.mark.parametrize(
    ("name", "old", "new"), [("a.py", "x = 1", "x = "), ("a.json", "[]", "[1"), ("a.toml", "", "=")]
)
def test_a_text_that_no_longer_parses_is_refused(name, old, new):
    with pytest.raises(BrokenEditError, match="does not parse"):
        edited(old.encode(), new, name)


def test_a_text_that_never_parsed_may_stay_so():
    assert b"def (\n" == edited(b"def x(\n", "def (\n", "a.py")


@pytest.mark.parametrize("raw", [b"\x00binary", b"\xff\xfe"])
def test_only_text_can_be_edited(raw):
    with pytest.raises(InputError):
        make_source(raw, "a")


LINES = st.text(alphabet="ab \t\x0c\u2028é", max_size=4)


@settings(deadline=None, max_examples=50)
@given(st.lists(LINES, max_size=6), st.lists(LINES, max_size=6), st.booleans(), st.sampled_from(["\n", "\r\n"]))
def test_git_apply_makes_the_new_file_from_the_diff(tmp_path_factory, old, new, ends, newline):
    folder = tmp_path_factory.mktemp("diff")
    raw = newline.join([*old, ""] if ends else old).encode()
    source = make_source(raw, "f")
    wanted = source.encode("\n".join(new))
    if not raw or not wanted or wanted == raw:
        return
    (folder / "f").write_bytes(raw)

    patch = diff(source, "\n".join(new)).encode()
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], input=patch, cwd=folder, check=True, timeout=20)

    assert wanted == (folder / "f").read_bytes()
