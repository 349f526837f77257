"""The check of words and file names finds what it must. `.ci/run` applies it to the project."""

from __future__ import annotations

from tests.each_row import each_row
from tools.check_language import check_file_names, check_source


@each_row(
    "source, finding",
    [
        ("guess_count = 1\n", "identifier 'guess_count': write 'draft' for 'guess'"),
        ("class Voice:\n    pass\n", "identifier 'Voice': write 'loaded_models' for 'Voice'"),
        ("def on_told(): ...\n", "identifier 'on_told': write 'response' for 'told'"),
        ('help = "Who guesses."\n', "text 'Who guesses': write drafter"),
        ("x = 1  # whoever pays most\n", "text 'whoever'"),
        ('"""Runs on a card."""\n', "text 'a card': write GPU"),
    ],
)
def test_an_old_word_is_found(source, finding):
    found = next(check_source("file.py", source))

    assert finding in str(found)


def test_words_of_the_field_are_not_found():
    source = (
        '"""The drafter proposes draft tokens on a GPU; see the model card."""\naccepted_tokens = draft_budget = 1\n'
    )

    assert [] == list(check_source("file.py", source))


def test_a_second_file_of_a_name_is_found_unless_it_is_listed():
    names = ["specchat/a/stats.py", "specchat/b/stats.py", "specchat/a/__init__.py", "specchat/b/__init__.py"]

    [found] = check_file_names([*names, "specchat/cli/stats.py", "tools/stats.py"])

    assert "specchat/b/stats.py:1: has the name of specchat/a/stats.py" in str(found)
