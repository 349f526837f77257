"""What is asked: files of prompts."""

import json

import pytest

from specchat.chat.request import Attachment
from specchat.errors import InputError
from specchat_bench.prompt_files import read_prompts
from tests.each_row import each_row


def test_prompts_are_questions_or_edits_of_a_file(tmp_path):
    rows = [{"turns": ["Why?", "And?"]}, {"instruction": "rename", "before": "x = 1\n", "path": "a.py"}]
    (tmp_path / "a.jsonl").write_text("\n".join(map(json.dumps, rows)))

    question, edit = read_prompts(tmp_path)

    assert question.text == "Why?"
    assert (edit.text, edit.files) == ("rename", (Attachment("a.py", "x = 1\n"),))


@each_row("line", ["not json", "[]", '{"turns": []}', '{"question": "?"}'])
def test_a_bad_row_is_named_by_its_line(tmp_path, line):
    path = tmp_path / "a.jsonl"
    path.write_text(f'{{"turns": ["Why?"]}}\n{line}\n')

    with pytest.raises(InputError, match=r"a\.jsonl:2"):
        list(read_prompts(path))


def test_a_folder_without_prompts_is_named(tmp_path):
    with pytest.raises(InputError, match="no "):
        list(read_prompts(tmp_path))
