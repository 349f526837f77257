"""A conversation written to a file."""

from __future__ import annotations

import json

import pytest

from specchat.app.command_registry import ChatState, run_line
from specchat.errors import InputError, UsageError
from specchat.host.client import Conversation
from tests.app.test_command_registry import do

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture
def chat():
    return ChatState(Conversation())


def test_a_conversation_is_saved_as_markdown(chat, tmp_path):
    (tmp_path / "a.txt").write_text("old")
    do(chat, f"/file {tmp_path / 'a.txt'}")
    do(chat, "write ```python\nx = 1\n```")
    do(chat, "write two\nlines")
    do(chat, "/rename my talk")

    said = do(chat, f"/export {tmp_path / 'talk.md'}")

    assert f"2 requests and answers in {tmp_path / 'talk.md'}" == said
    assert (
        "# my talk\n\n"
        f"> write ```python\n> x = 1\n> ```\n>\n> @{tmp_path / 'a.txt'}\n\n"
        "```python\nx = 1\n```\n\n"
        "> write two\n> lines\n\n"
        "two\nlines\n"
    ) == (tmp_path / "talk.md").read_text()


def test_an_answer_that_was_stopped_inside_code_is_closed(chat, tmp_path):
    do(chat, "write ````python\nx = '```'")
    do(chat, "write next")

    do(chat, f"/export {tmp_path / 'talk.md'}")

    assert "````python\nx = '```'\n````\n\n> write next\n" in (tmp_path / "talk.md").read_text()


def test_a_file_that_is_there_is_never_written_over(chat, tmp_path):
    path = tmp_path / "talk.md"
    path.write_text("mine")
    do(chat, "hello")

    with pytest.raises(InputError, match="exists already"):
        run_line(chat, f"/export {path}")

    assert "mine" == path.read_text()


@pytest.mark.parametrize("name", ["no/such/folder/talk.md", ""])
def test_a_place_that_cannot_be_written_is_one_line(chat, tmp_path, name):
    do(chat, "hello")

    with pytest.raises(UsageError) as caught:
        run_line(chat, f"/export {tmp_path / name}")

    assert str(tmp_path) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_nothing_is_saved_without_a_name_or_a_question(chat, tmp_path):
    with pytest.raises(UsageError, match="is empty"):
        run_line(chat, f"/export {tmp_path / 'talk.md'}")
    assert not (tmp_path / "talk.md").exists()

    do(chat, "hello")
    with pytest.raises(UsageError, match="needs a file name"):
        run_line(chat, "/export")


def test_a_conversation_is_exported_in_the_format_of_the_suffix(chat, tmp_path):
    do(chat, "write one")

    do(chat, f"/export {tmp_path / 'a.md'}")
    do(chat, f"/export {tmp_path / 'a.json'}")

    assert (tmp_path / "a.md").read_text().startswith("# write one\n\n> write one\n\none\n")
    assert "one" == json.loads((tmp_path / "a.json").read_text())["turns"][0]["answer"]
    with pytest.raises(UsageError, match="/export needs a file name"):
        do(chat, "/export")


def test_thinking_is_folded_in_markdown_and_a_field_in_json(chat, tmp_path):
    do(chat, "think 3")
    do(chat, f"/export {tmp_path / 'talk.md'}")
    do(chat, f"/export {tmp_path / 'talk.json'}")

    assert (
        "> think 3\n\n"
        "<details>\n<summary>thought for 3 s</summary>\n\nthought0 thought1 thought2 \n\n</details>\n\n"
        "so it is\n"
    ) in (tmp_path / "talk.md").read_text()
    turn = json.loads((tmp_path / "talk.json").read_text())["turns"][0]
    assert (turn["thinking"], turn["answer"]) == ("thought0 thought1 thought2 ", "so it is")
