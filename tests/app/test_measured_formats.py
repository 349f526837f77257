"""Which format of an answer a model is asked for first: by size, by the success of its edits, by the profile."""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag

import pytest

from specchat.app.consent import Answer, Decision, EditConsent
from specchat.app.edit import describe_ways, drive, edit
from specchat.app.edit_events import EditOrder
from specchat.app.edit_session import EditSession
from specchat.app.edited_files import DiskFile
from specchat.app.model_ability import ModelAbility
from specchat.edit.edit_plan import parse_line_range
from specchat.edit.measured_formats import KEYS, MAX_COUNT, MAX_MODELS, add_counts, read_counts
from specchat.errors import HostError, SpecchatError
from specchat.host.client import SessionRequest
from specchat.host.spawn import history_path
from specchat.profile.settings import read_settings
from tests.each_row import each_row
from tests.edit.scripted import CODE, answers, say
from tests.scripted_session import ScriptedSession

pytestmark = pytest.mark.usefixtures("runtime")

SECRET = "begin with 2"
NEW = CODE.replace("START = 1", "START = 2")
BLOCK = "<<<<<<< SEARCH\nSTART = 1\n=======\nSTART = 2\n>>>>>>> REPLACE"
REFUSAL = "I cannot do that, sorry."
FAILS, WORKS = {"failed": 8}, {"at once": 8}
PROFILE = read_settings("edit", {"models.target": "embedded"})
LARGE, SMALL = {}, {"names_operations": False, "lines": 20}


@pytest.fixture
def file(tmp_path):
    return tmp_path / "a.py"


def counts(**formats: dict[str, int]) -> dict[str, int]:
    """By "whole_short": the counts as they are stored."""
    return {f"{key.replace('_', ', ')}, {each}": count for key, of in formats.items() for each, count in of.items()}


def edited(file: Path, *script: str, stored: bool = True, settings=PROFILE, order=None, **how) -> list[str]:
    """Let a model make an edit; returns the tasks of the requests."""
    file.write_text(CODE)
    model, consent = ScriptedSession(answers(*script)), how.pop("consent", EditConsent(can_ask=False))
    model.ask = how.pop("ask", model.ask)
    request, cancelled = SessionRequest(settings=settings, is_stored=stored), how.pop("cancelled", Flag())
    with suppress(SpecchatError), EditSession(request, cancelled, open_conversation=lambda: model) as session:
        drive(edit(order or EditOrder(SECRET, (DiskFile(file),)), session, consent), lambda _event: None, **how)
    return [each.task for each in model.requests]


def ways(file: Path, settings=PROFILE, **order) -> list[str]:
    file.write_text(CODE)
    with EditSession(SessionRequest(settings=settings), Flag()) as session:
        return [way for _name, way in describe_ways(EditOrder(SECRET, (DiskFile(file),), **order), session)]


def stored() -> Counter[str]:
    """The counts of the only model."""
    return sum(map(Counter, read_counts().values()), Counter[str]())


@each_row(
    "model, lines, known, order",
    [
        (LARGE, 100, {}, "whole region blocks"),
        (LARGE, 101, {}, "blocks whole region"),
        (SMALL, 21, {}, "region whole blocks"),
        (LARGE, 100, counts(whole_short={"failed": 7}), "whole region blocks"),  # too few
        (LARGE, 100, counts(whole_short=FAILS), "region blocks whole"),
        (LARGE, 100, counts(whole_short=FAILS, region_short=FAILS), "blocks whole region"),
        (LARGE, 100, counts(whole_short=FAILS, blocks_short=WORKS), "blocks region whole"),
        (LARGE, 100, counts(whole_short={"at once": 7, "failed": 1}, blocks_short=WORKS), "whole blocks region"),
        (LARGE, 100, counts(whole_short={"repaired": 8}, blocks_short=WORKS), "blocks whole region"),
        (LARGE, 100, counts(whole_short={"repaired": 4, "at once": 6}, region_short=WORKS), "region whole blocks"),
        (LARGE, 100, counts(whole_long=FAILS, blocks_long=WORKS), "whole region blocks"),  # of other lengths
        (LARGE, 101, counts(whole_short=WORKS, blocks_short=FAILS), "blocks whole region"),
        (LARGE, 101, counts(blocks_long=FAILS, whole_long=WORKS), "whole region blocks"),
        ({"chosen_format": "blocks"}, 3, counts(blocks_short=FAILS), "blocks whole region"),
        ({"chosen_format": "whole"}, 300, counts(whole_long=FAILS, blocks_long=WORKS), "whole blocks region"),
    ],
)
def test_the_order_of_the_formats(model, lines, known, order):
    assert order.split() == ModelAbility(**model, counts=known).formats(lines)


def test_a_model_that_writes_good_blocks_only_is_soon_asked_for_them_first(file):
    tasks = [edited(file, REFUSAL, BLOCK) for _ in range(8)] + [edited(file, BLOCK)]

    assert [["edit", "edit-blocks"]] * 8 + [["edit-blocks"]] == tasks
    assert {"whole, short, failed": 8, "blocks, short, at once": 9} == dict(stored())
    assert ["search/replace blocks (9 of 9 were taken)", "the whole text (0 of 8 were taken)"] == ways(file)
    assert NEW == file.read_text().replace("START = 1", "START = 2")


@pytest.mark.full
def test_a_model_that_fails_at_blocks_keeps_the_whole_text(file):
    tasks = [edited(file, f"```python\n{NEW}```") for _ in range(9)]

    assert [["edit"]] * 9 == tasks
    assert {"whole, short, at once": 9} == dict(stored())


@pytest.mark.full
def test_the_profile_is_stronger_than_what_was_measured(file):
    for _ in range(8):
        edited(file, NEW)
    settings = PROFILE.with_options({"prompt.edit_format": "blocks"})

    assert ["edit-blocks"] == edited(file, BLOCK, settings=settings)
    assert "search/replace blocks (prompt.edit_format)" == ways(file, settings)[0]


@pytest.mark.full
def test_chosen_lines_are_rewritten_or_changed_by_blocks_whichever_works(file):
    lines = {"region": parse_line_range("4-4")}
    order = EditOrder(SECRET, (DiskFile(file),), **lines)

    for _ in range(8):
        edited(file, REFUSAL, BLOCK, order=order)

    chosen = ["search/replace blocks in lines 4-4 (8 of 8 were taken)", "lines 4-4 (0 of 8 were taken)"]
    assert chosen == ways(file, **lines)


NO, STOP = ({"decide": lambda _proposed, answer=answer: Decision(answer)} for answer in (Answer.NO, Answer.STOP))


def fall(_request, _cancelled):
    raise HostError("the engine ended")


@each_row(
    "script, how, counted",
    [
        ([NEW], {}, {"whole, short, at once": 1}),
        ([NEW[:-2], NEW], {}, {"whole, short, repaired": 1}),
        ([NEW[:-2], REFUSAL, BLOCK], {}, {"whole, short, failed": 1, "blocks, short, at once": 1}),
        ([CODE], {}, {"whole, short, failed": 1}),  # nothing changes
        ([REFUSAL, REFUSAL], {}, {"whole, short, failed": 1, "blocks, short, failed": 1}),
        ([CODE.replace("import os\n", "").replace("= 1", "= 2")], {}, {"whole, short, failed": 1}),  # the contract
        ([NEW], {"consent": EditConsent(), **NO}, {"whole, short, failed": 1}),
        ([NEW], {"consent": EditConsent(), **STOP}, {"whole, short, failed": 1}),
        ([NEW], {"stored": False}, {}),
        ([NEW], {"ask": fall}, {}),
    ],
)
def test_what_became_of_an_edit_is_counted(tmp_path, script, how, counted):
    history_path().with_name("edit_formats.json").unlink(missing_ok=True)

    edited(tmp_path / "a.py", *script, **how)

    assert counted == dict(stored())


def test_a_cancelled_edit_says_nothing_about_the_model(file):
    cancelled = Flag()

    def decide(_proposed):
        cancelled.set()
        return Decision()

    edited(file, NEW, consent=EditConsent(), cancelled=cancelled, decide=decide)

    assert {} == read_counts()


def test_an_edit_without_a_model_and_a_question_are_not_counted(file):
    for instruction in ("rename the function count to numbers", "why is this slow?"):
        edited(file, "Because.", order=EditOrder(instruction, (DiskFile(file),)))

    assert {} == read_counts()


def test_the_file_has_numbers_and_no_word_of_the_user(file):
    edited(file, NEW)

    text = history_path().with_name("edit_formats.json").read_text()
    [(model, counted)] = json.loads(text).items()
    assert (24, True) == (len(model), counted.keys() <= KEYS)
    assert not [word for word in ("begin", "embedded", "a.py", "START", "count") if word in text]


FOREIGN = ["", "{", "[1]", "null", '{"a": 1}', '{"a": {"secret": 1}}', '{"a": {"whole, short, failed": -1}}',
           '{"a": {"whole, short, failed": 1e9}}', '{"a": {"whole, short, failed": "8"}}', "[" * 100_000]  # fmt: skip


@each_row("content", [*FOREIGN, f'{{"a": {{"whole, short, failed": {10**400}}}}}'])
def test_a_file_that_is_damaged_or_another_one_counts_as_none(content):
    path = history_path().with_name("edit_formats.json")
    path.write_text(content)

    assert {} == read_counts()
    add_counts("b", Counter({"whole, short, failed": 1}))
    assert {"b": {"whole, short, failed": 1}} == read_counts()


def test_old_counts_fade_and_the_file_stays_small():
    for number in range(MAX_MODELS + 3):
        add_counts(f"model {number}", Counter({"blocks, long, failed": 8}))
    add_counts("model 3", Counter({"whole, long, at once": MAX_COUNT + 1}))

    assert MAX_MODELS == len(read_counts())
    assert {"blocks, long, failed": 4, "whole, long, at once": MAX_COUNT // 2} == read_counts()["model 3"]


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_counts(file):
    history_path().with_name("edit_formats.json").mkdir()

    assert ["edit"] == edited(file, NEW)
    assert NEW == file.read_text()


def test_the_command_says_which_format_was_used(file, monkeypatch):
    file.write_text(CODE)
    add_counts(ModelAbility.of(read_settings("edit").profile.models).model, Counter(counts(whole_short=FAILS)))

    plan = say(monkeypatch, [], str(file), SECRET, "--plan").ran.out.decode().splitlines()
    report = json.loads(say(monkeypatch, answers(BLOCK), str(file), SECRET, "--json").ran.out)
    help_text = say(monkeypatch, [], "--help").ran.out.decode()

    assert [f"{file}: 1. search/replace blocks", f"{file}: 2. the whole text (0 of 8 were taken)"] == plan
    assert ("blocks", "search/replace blocks") == (report["format"], report["way"])
    assert "prompt.edit_format" in help_text
