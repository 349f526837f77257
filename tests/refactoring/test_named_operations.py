"""A model names the operation that an instruction in any language is; the words and the tree decide what it may do."""

from __future__ import annotations

import json
from dataclasses import astuple
from functools import cache

import pytest

from specchat.app import model_ability
from specchat.app.model_ability import ModelAbility
from specchat.app.named_operation import NONE
from specchat.edit.operations import Operation
from specchat.edit.parse_instruction import parse_instruction
from specchat.edit.source_text import make_source
from specchat.profile.keys import Models
from specchat.refactoring import possible_operations
from tests.edit.scripted import Said, answers, say
from tests.host.conftest import runtime  # noqa: F401 (a fixture)
from tools.measure_named_operations import NamedCase, read_named_cases

pytestmark = pytest.mark.usefixtures("runtime")

CODE = """\
LIMIT = 30


def add(a, b):
    print(a)
    return a + b


def total(items, rate=2):
    return add(len(items), rate)


print(getattr(total, "add"))
"""
NONE_FITS = {
    "another sentence": "benenne `add` in `plus` um. Ergänze einen Test",
    "code that no operation uses": "benenne `add` in `plus` um wie in `other`",
    "a definition that no operation uses": "benenne `rate` wie in total in `plus` um, nicht in add",
    "three numbers": "setze LIMIT auf 50, 60 oder 70",
    "two new names": "benenne `rate` in `plus` oder `minus` um",
    "too long": "bitte benenne `LIMIT` " + "ganz " * 20 + "in `BOUND` um",
    "too many choices": "benenne a oder b oder items oder rate in eins zwei drei vier fünf sechs sieben acht um",
}


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(CODE)
    return file


@pytest.fixture
def able(monkeypatch):
    """The model is large enough to be asked."""
    monkeypatch.setattr(model_ability, "NAMING_PARAMETERS", 0)


def named(monkeypatch, file, instruction: str, operation: str, *options: str, then: str = "x") -> Said:
    """An edit where the model answers with this operation, and to a second question with a text."""
    script = answers(json.dumps({"operation": operation}), then)
    return say(monkeypatch, script, str(file), instruction, *options)


@cache
def offers() -> list[tuple[NamedCase, dict[str, Operation]]]:
    return [(case, case.choices()) for case in read_named_cases()]


def test_every_instruction_in_four_languages_offers_its_operation_and_only_what_it_names():
    wrong = list[str]()
    for case, offered in offers():
        if case.operation and case.operation not in offered:
            wrong.append(f"{case.instruction}: {case.operation} is not offered")
        for sentence, operation in offered.items():
            values = {value for value in astuple(operation) if type(value) is str and value}  # no member of an enum
            if any(part not in case.instruction for value in values for part in value.split(".")):
                wrong.append(f"{case.instruction}: {sentence} has a name of its own")

    assert [] == wrong


def test_an_operation_in_words_is_an_instruction_that_needs_no_model():
    offered = {sentence: case.source.text for case, choices in offers() for sentence in choices}

    not_understood = {each for each, text in offered.items() if not parse_instruction(each, code=text)}

    assert not_understood == {each for each in offered if each.startswith("remove the unused import ")}


def test_what_may_be_more_than_one_operation_offers_none():
    source = make_source(CODE.encode(), "a.py")

    offered = {why: [str(each) for each in possible_operations(source, text)] for why, text in NONE_FITS.items()}

    assert {why: [] for why in NONE_FITS} == offered
    assert ["rename total to sum_of"] == [
        str(each) for each in possible_operations(source, "benenne `total` in `sum_of` um in `a.py`")
    ]


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize(
    ("instruction", "operation"),
    [
        ("benenne den Parameter `rate` in `factor` um", "rename rate to factor"),
        ("setze LIMIT auf 50", "change LIMIT to 50"),
        ("quita los print de add", "remove the prints in add"),
        ("trie les imports", "sort the imports"),
        ("make total call `plus`", "rename total to plus"),  # which is wrong
        ("prüfe, ob LIMIT kleiner als 50 ist", "change LIMIT to 50"),
    ],
)
def test_what_a_model_names_is_for_a_person_to_see(file, monkeypatch, instruction, operation):
    file.write_text(f"import os\nimport json\n\n{CODE.rpartition('print')[0]}\nprint(os, json)\n")
    before = file.read_text()

    refused = named(monkeypatch, file, instruction, operation, "-y")
    after_refusal = file.read_text()
    accepted = named(monkeypatch, file, instruction, operation, "-y", "--allow-shrink")

    assert (8, before, 1) == (refused.ran.code, after_refusal, len(refused.asked))
    assert f'understood as "{operation}", which has to be reviewed, or said in these words' in refused.ran.err
    assert accepted.ran.code == 0 and file.read_text() != before
    [request] = refused.session.requests
    assert ("edit-operation", "schema", 0) == (request.task, request.answer_format.kind, len(request.files))
    assert {NONE, operation} <= {*request.answer_format.value["properties"]["operation"]["enum"]}


@pytest.mark.usefixtures("able")
def test_an_operation_that_the_tree_refuses_stops_there_with_its_reason(file, monkeypatch):
    said = named(monkeypatch, file, "benenne `add` in `plus` um", "rename add to plus", "-y")

    assert (8, CODE, 1) == (said.ran.code, file.read_text(), len(said.asked))
    assert 'a.py: understood as "rename add to plus" and refused, as' in said.ran.err


@pytest.mark.usefixtures("able")
@pytest.mark.parametrize("answer", [NONE, "rename add to other"])
def test_none_and_what_was_not_offered_go_on_to_the_whole_text(file, monkeypatch, answer):
    new = CODE.replace("LIMIT = 30", "LIMIT = 50")
    said = named(monkeypatch, file, "setze LIMIT auf 50", answer, "--diff", then=f"```python\n{new}```")

    assert ["edit-operation", "edit"] == [each.task for each in said.session.requests]


@pytest.mark.usefixtures("able")
def test_the_plan_shows_the_way_before_the_others(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "setze LIMIT auf 50", "--plan")

    ways = [line.partition("a.py: ")[2] for line in said.ran.out.decode().splitlines()]
    assert ["1. an operation (by the syntax tree, the model names it)", "2. the whole text"] == ways[:2]


def test_a_small_model_is_not_asked_and_told_of_before_a_long_text_is_rewritten(file, monkeypatch):
    monkeypatch.setattr(ModelAbility, "of", lambda _models: ModelAbility(names_operations=False, lines=12))
    file.write_text(CODE + "\n# end\n")

    said = [
        say(monkeypatch, answers("x"), str(file), "setze LIMIT auf 50", "--diff", *lines)
        for lines in ([], ["-l", "1-3"])
    ]

    warning = "a.py: a model of this size is too small to rewrite 15 lines; give at most 12 (-l FIRST-LAST), or "
    warning += "find a larger model: 'specchat setup'\n"
    assert [1, 0] == [each.ran.err.count(warning) for each in said]
    assert [b"", b""] == [each.ran.out for each in said]
    assert "edit" == said[0].session.requests[0].task


def test_what_a_small_model_wrote_by_itself_is_written_after_a_review_only(file, monkeypatch):
    new = CODE.replace("    return a + b", "    # the sum\n    return a + b")

    def edited(lines: int, *options: str) -> tuple[int, bool, bool]:
        file.write_text(CODE)
        monkeypatch.setattr(ModelAbility, "of", lambda _models: ModelAbility(names_operations=False, lines=lines))
        said = say(monkeypatch, answers(f"```python\n{new}```"), str(file), "add a comment above the return", *options)
        return said.ran.code, new == file.read_text(), b"so small a model wrote this" in said.ran.err.encode()

    assert (8, False, True) == edited(20, "-y")
    assert (0, True, False) == edited(0, "-y")
    assert (0, True, False) == edited(20, "-y", "--allow-shrink")


def test_only_a_model_whose_size_is_known_to_be_too_small_is_not_asked():
    small, unknown = ModelAbility.of(Models(target="embedded")), ModelAbility.of(Models(target="org/unknown"))
    server = ModelAbility.of(Models(target="embedded", backend="openai", url="http://127.0.0.1:1/v1"))

    assert (False, True, True) == (small.names_operations, unknown.names_operations, server.names_operations)
