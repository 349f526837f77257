"""The evaluation: edits of each kind, one printed line per kind, and stored figures."""

from pathlib import Path

import pytest

import specchat
from recipes.edit_example import Edit
from recipes.evaluate import drafting_prompts, edit_tasks, evaluate_edits, progress_bar, table_line, weights_digest
from recipes.evaluation_results import ResultStore
from recipes.train_tokenizer import ASSISTANT, token_of
from recipes.writer import TargetGenerator

EMBEDDED = Path(specchat.__file__).parent / "embedded"
EDIT = Edit("constant", "Change 1 to 2.", "a = 1\n", "a = 2\n")


@pytest.fixture(scope="module")
def writer():
    return TargetGenerator(EMBEDDED / "target")


def test_every_edit_has_its_own_snippet_of_a_validation_file(corpus):
    tasks = edit_tasks(corpus, per_kind=3, longest_lines=60, seed=1)
    befores = [edit.before for edits in tasks.values() for edit in edits]

    assert befores
    assert len(set(befores)) == len(befores)
    assert all(len(edits) <= 3 for edits in tasks.values())
    assert not any("class Basket:" in before for before in befores)


def test_a_stored_figure_is_printed_and_not_measured_again(writer, tmp_path, capsys):
    known = {"kind": "sort_imports", "tried": 40, "exact": 0.25, "parses": 1.0, "similarity": 1.0}
    record = ResultStore(tmp_path / "figures.json", {})
    record.get_or_measure("edits", "sort_imports", lambda: known)

    with progress_bar() as bar:
        evaluate_edits(writer, {"sort_imports": [EDIT], "constant": [EDIT]}, "file", record, bar)

    lines = capsys.readouterr().out.splitlines()
    assert ["constant", "1"] == lines[1].split()[:2]
    assert table_line("sort_imports", 40, 0.25, 1.0, 1.0) == lines[2]
    assert ["all", "41"] == lines[3].split()[:2]
    assert {"sort_imports", "constant"} == ResultStore(tmp_path / "figures.json", {}).figures["edits"].keys()


def test_drafters_are_measured_on_edits_code_and_questions(writer, corpus):
    prompts = drafting_prompts(writer, corpus, {"constant": [EDIT]}, "plain")

    assert ["edit", "code", "chat"] == list(prompts)
    assert "class SecretBasket" in writer.decode(prompts["code"][0])
    assert token_of(writer.tokenizer, ASSISTANT) == prompts["edit"][0][-1] == prompts["chat"][-1][-1]


def test_other_weights_have_another_digest(tmp_path):
    (tmp_path / "target").mkdir()
    (tmp_path / "target" / "model.safetensors").write_bytes(b"one")
    before = weights_digest(tmp_path)
    (tmp_path / "target" / "model.safetensors").write_bytes(b"two")

    assert before != weights_digest(tmp_path)
