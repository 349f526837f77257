"""A model that fails in every typical way: omission, refusal, loop, truncation, prose. No file is ever damaged."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specchat.app.edit_task import EditJob, rewrite_region, run_edit
from specchat.chat.events import Finished, Notice, PrefillProgress, Totals
from specchat.edit.edit_plan import Region
from specchat.edit.edit_turn import EditRun, result_of
from specchat.edit.source_text import make_source
from specchat.errors import ContextError
from tests.edit.scripted import CODE, NEW, ScriptedSession, answers, say
from tests.front import command
from tests.scripted_session import scripted_answer

pytestmark = pytest.mark.usefixtures("runtime")

ELIDED = NEW.replace("def total", "# ... rest of the code ...\ndef total")
TALK = "Rename it in your editor, and do not forget to run the tests afterwards."


@pytest.fixture
def file(tmp_path):
    file = tmp_path / "a.py"
    file.write_text(CODE)
    return file


@pytest.mark.parametrize(
    ("script", "code", "questions"),
    [
        (answers(*[ELIDED] * 4), 3, 4),
        (answers(TALK, "Change this:\n```python\nSTART = 2\n```", TALK, TALK), 3, 4),
        (answers("", "\n", " ", ""), 3, 4),
        (answers(*["I'm sorry, I cannot do that."] * 2), 3, 2),
        (answers(*[CODE[:70] + "    x = 1\n    y = 2\n" * 40] * 2, reason="repetition"), 3, 2),
        ([[*scripted_answer([CODE[:70]])[:-1], Finished("length", Totals(completion_tokens=10_000))]] * 2, 3, 2),
        (answers(*[CODE[:70]] * 2, reason="length"), 6, 2),
        (answers(NEW[:-2], NEW[:-3], NEW[:-4], NEW[:-2]), 4, 4),
        (answers(CODE), 9, 1),
    ],
    ids=["elided", "talk", "nothing", "refusal", "loop", "cut off", "window full", "broken", "unchanged"],
)
def test_a_model_that_does_not_do_it_leaves_the_file_alone(file, monkeypatch, script, code, questions):
    said = say(monkeypatch, script, str(file), "rename it", "-y")

    assert (code, b"", CODE) == (said.ran.code, said.ran.out, file.read_text())
    assert questions == len(said.asked)
    reason = said.ran.err.splitlines()[-1]
    assert reason.startswith("specchat: ")
    assert (code in (3, 4) and script[0] != answers("")[0]) == ("nothing of it is taken" in said.ran.err)


def test_a_file_in_a_block_is_taken_and_the_talk_around_it_goes_to_stderr(file, monkeypatch):
    said = say(
        monkeypatch, answers(f"Here it is:\n\n```python\n{NEW}```\n\nRun the tests."), str(file), "rename it", "-y"
    )

    assert (0, b"", NEW) == (said.ran.code, said.ran.out, file.read_text())
    assert ["Here it is:", "", "Run the tests."] == said.ran.err.splitlines()[:3]


def test_a_notice_about_the_models_is_printed_once(file, monkeypatch):
    script = [[Notice("draft x is left out"), *answer] for answer in answers(TALK, NEW)]

    said = say(monkeypatch, script, str(file), "rename it", "-y")

    assert 0 == said.ran.code
    assert 1 == said.ran.err.count("draft x is left out\n")


def test_what_was_wrong_goes_back_and_the_next_text_counts(file, monkeypatch):
    said = say(monkeypatch, answers(ELIDED, NEW[:-2], NEW), str(file), "rename count to numbers, nothing else", "-y")

    assert (0, NEW) == (said.ran.code, file.read_text())
    assert "rest of the code" in said.asked[1]
    assert "does not parse: '(' was never closed" in said.asked[2]
    assert all(text.startswith("rename count to numbers, nothing else") for text in said.asked)


def test_a_broken_text_is_kept_where_a_person_finds_it(file, monkeypatch):
    said = say(monkeypatch, answers(*[NEW[:-2]] * 3, NEW[:-3]), str(file), "rename it", "-y")

    kept = said.ran.err.rpartition("the text is saved in ")[2].partition(";")[0]
    assert NEW[:-2] + "\n" == Path(kept).read_text()


def test_lost_comments_stop_a_blind_yes_until_it_is_allowed(file, monkeypatch):
    without = NEW.replace("# Where the counting begins.\n", "")

    said = say(monkeypatch, answers(without), str(file), "rename", "-y")
    allowed = say(monkeypatch, answers(without), str(file), "rename", "-y", "--allow-shrink")

    assert (8, 0) == (said.ran.code, allowed.ran.code)
    assert "Where the counting begins" in said.ran.err
    assert without == file.read_text()


def test_the_output_of_a_failed_check_goes_back_to_the_model(file, monkeypatch):
    check = "sh -c 'if grep \"# count\" $0; then echo it still counts; exit 1; fi' {}"

    said = say(monkeypatch, answers(NEW + "# count\n", NEW), str(file), "rename count", "-y", "--check", check)

    assert (0, NEW) == (said.ran.code, file.read_text())
    assert "it still counts" in said.asked[1]


def test_a_check_that_never_passes_is_a_broken_edit(file, monkeypatch):
    said = say(monkeypatch, answers(NEW, NEW, NEW), str(file), "rename", "-y", "--check", "false")

    assert (4, CODE) == (said.ran.code, file.read_text())


def test_json_reports_proposed_and_applied_changes(file, monkeypatch):
    offered = json.loads(say(monkeypatch, answers(NEW), str(file), "rename", "--json").ran.out)
    assert CODE == file.read_text()
    applied = json.loads(say(monkeypatch, answers(NEW), str(file), "rename", "--json", "-y").ran.out)

    assert ("proposed", "applied") == (offered["status"], applied["status"])
    assert ("whole", {"syntax": "passed"}, 4) == (applied["format"], applied["checks"], applied["spec"]["tokens"])
    assert [True] == [hunk["accepted"] for hunk in applied["hunks"]]
    assert "def numbers(limit):" in applied["hunks"][0]["new"]
    assert NEW == file.read_text()


@pytest.mark.parametrize(
    ("script", "status", "code"),
    [
        (answers(*["I cannot do that, sorry."] * 2), "refusal", 3),
        (answers(CODE), "NoChange", 9),
        (answers(*[NEW[:-2]] * 4), "BrokenEdit", 4),
    ],
)
def test_json_reports_a_failure(file, monkeypatch, script, status, code):
    said = say(monkeypatch, script, str(file), "rename", "--json", "-y")
    spec = json.loads(said.ran.out)["spec"]
    assert len(said.asked) == spec["turns"]
    assert {"tokens", "steps", "acceptance_rate", "drafter"} <= spec.keys()

    report = json.loads(said.ran.out)
    assert (status, code, code) == (report["status"], report["exit"], said.ran.code)


def test_an_edit_by_the_syntax_tree_starts_no_engine(file, monkeypatch):
    def start(_session_request):
        raise AssertionError("no engine is needed")

    monkeypatch.setattr("specchat.cli.edit.open_host_conversation", start)

    ran = command(monkeypatch, "edit", str(file), "rename the function count to numbers", "-y")
    piped = command(monkeypatch, "edit", "-", "rename the function count to numbers", stdin=CODE.encode())

    assert (0, NEW) == (ran.code, file.read_text())
    assert (0, NEW.encode()) == (piped.code, piped.out)


def test_a_comment_in_the_review_of_such_an_edit_opens_a_conversation(file, monkeypatch):
    said = say(
        monkeypatch,
        answers("\n# Where the counting begins.\nSTART = 2\n\n\n"),
        str(file),
        "change START to 3",
        on_terminal=True,
        stdin=b"c\nuse two\ny\n",
    )

    assert (0, CODE.replace("START = 1", "START = 2")) == (said.ran.code, file.read_text())
    assert 1 == len(said.asked)


def test_json_names_the_way_and_those_that_failed(file, monkeypatch):
    blocks = "<<<<<<< SEARCH\nSTART = 1\n=======\nSTART = 2\n>>>>>>> REPLACE"

    said = say(monkeypatch, answers(*[ELIDED] * 3, blocks), str(file), "begin at two", "--json")

    report = json.loads(said.ran.out)
    assert ("blocks", "search/replace blocks") == (report["format"], report["way"])
    (failure,) = report["failed_ways"]
    assert "omission" in failure


def test_a_plan_names_the_ways_and_asks_no_model(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "simplify total()", "--plan")
    lines = say(monkeypatch, [], str(file), "simplify it", "--plan", "-l", "8-9")

    assert (0, []) == (said.ran.code, said.asked)
    assert [f"{file}: 1. the whole text", f"{file}: 2. lines 12-13 (total)", f"{file}: 3. search/replace blocks"] == (
        said.ran.out.decode().splitlines()
    )
    assert [f"{file}: 1. lines 8-9", f"{file}: 2. search/replace blocks in lines 8-9"] == (
        lines.ran.out.decode().splitlines()
    )
    assert CODE == file.read_text()


def test_json_reports_applied_only_after_the_write(file, monkeypatch):
    other = file.with_name("b.py")
    other.write_text(CODE)

    refusals = ["I cannot do that, sorry."] * 2
    said = say(monkeypatch, answers(NEW, *refusals), str(file), str(other), "rename it", "--json", "-y")

    reports = [json.loads(line) for line in said.ran.out.splitlines()]
    assert [("proposed", 0), ("refusal", 3)] == [(report["status"], report["exit"]) for report in reports]


def test_a_concurrent_write_stops_the_edit(file, monkeypatch):
    class Meddling(ScriptedSession):
        def ask(self, request, cancelled=None):
            file.write_text("mine")
            yield from super().ask(request, cancelled)

    monkeypatch.setattr("tests.edit.scripted.ScriptedSession", Meddling)
    said = say(monkeypatch, answers(NEW), str(file), "rename it", "-y", "--json")

    assert (5, "mine") == (said.ran.code, file.read_text())
    assert ("FileChanged", 5) == tuple(json.loads(said.ran.out)[key] for key in ("status", "exit"))


def test_a_repair_that_does_not_fit_any_more_leaves_the_first_reason(file, monkeypatch):
    full = [PrefillProgress(0, 99_999)]
    said = say(monkeypatch, [*answers(ELIDED), full, full], str(file), "rename it", "-y")

    assert (3, CODE) == (said.ran.code, file.read_text())


def test_every_part_begins_a_conversation_of_its_own():
    begun = []
    source = make_source(CODE.encode(), "a.py")
    session = ScriptedSession(answers("def total(limit):\n    return 0\n", "def count(limit):\n    return []\n"))
    job = EditJob(source, "simplify count() and total()", window_tokens=150)

    edited = result_of(
        run_edit(job, EditRun(session, restart_conversation=lambda: begun.append(len(session.requests))))
    )

    assert ("region", [1]) == (edited.plan.format, begun)


def test_several_files_are_written_together_or_not_at_all(file, monkeypatch):
    other = file.with_name("b.py")
    other.write_text(CODE)
    refusals = ["I cannot do that, sorry."] * 2
    refused = say(monkeypatch, answers(NEW, *refusals, *refusals), str(file), str(other), "rename count", "-y")
    assert (3, CODE, CODE) == (refused.ran.code, file.read_text(), other.read_text())

    done = say(monkeypatch, answers(NEW, NEW), str(file), str(other), "rename count", "-y")

    assert (0, NEW, NEW) == (done.ran.code, file.read_text(), other.read_text())


def test_a_file_of_several_that_needs_nothing_is_left_alone(file, monkeypatch):
    other = file.with_name("b.py")
    other.write_text(CODE)

    said = say(monkeypatch, answers(CODE, NEW), str(file), str(other), "rename count", "-y")

    assert (0, CODE, NEW) == (said.ran.code, file.read_text(), other.read_text())


def test_a_misspelt_second_file_is_not_part_of_the_instruction(file, monkeypatch):
    said = say(monkeypatch, [], str(file), "absent.py", "rename count", "-y")

    assert (2, []) == (said.ran.code, said.asked)
    assert "absent.py: there is no such file" in said.ran.err


def test_lines_are_rewritten_alone(file, monkeypatch):
    part = "    for number in range(START, limit + 1):\n        yield number\n"

    said = say(monkeypatch, answers(f"```python\n{part}```"), str(file), "include the limit", "-y", "-l", "8-9")

    assert (0, CODE.replace("limit):\n        y", "limit + 1):\n        y")) == (said.ran.code, file.read_text())
    (request,) = said.session.requests
    assert "".join(CODE.splitlines(keepends=True)[7:9]) == request.files[0].text


@pytest.mark.full
def test_a_long_file_is_rewritten_in_its_named_parts(file, monkeypatch):
    long = CODE + "\n" + "".join(f"value_{number} = {number}\n" for number in range(3000))
    file.write_text(long)
    total, count = "def total(limit):\n    return 0\n", "def count(limit):\n    return []\n"

    said = say(monkeypatch, answers(total, count), str(file), "simplify count() and total()", "-y")

    assert 0 == said.ran.code
    assert file.read_text().startswith(CODE[: CODE.index("def count")] + count + "\n\n" + total + "\nvalue_0 = 0\n")


def test_a_file_that_turns_out_too_long_is_tried_in_parts():
    source = make_source(CODE.encode(), "a.py")
    session = ScriptedSession([[PrefillProgress(0, 900)], *answers("def total(limit):\n    return 0\n")])

    edited = result_of(run_edit(EditJob(source, "simplify total()", window_tokens=1000), EditRun(session)))

    assert ("region", [Region(12, 13, "total")]) == (edited.plan.format, list(edited.plan.regions))
    assert edited.text.endswith("def total(limit):\n    return 0\n")


@pytest.mark.parametrize("whole", [answers("x = 1\n" * 400, reason="length"), answers(*[ELIDED] * 3)])
def test_an_edit_that_fails_as_a_whole_is_tried_in_regions(file, monkeypatch, whole):
    total = "def total(limit):\n    return sum(numbers(limit))\n"
    numbers = "def numbers(limit):\n    for number in range(START, limit):\n        yield number\n"

    said = say(
        monkeypatch, [*whole, *answers(total, numbers)], str(file), "rename count to numbers, nothing else", "-y"
    )

    assert (0, NEW) == (said.ran.code, file.read_text())


def test_when_the_regions_fail_too_the_first_error_is_reported(file, monkeypatch):
    loop = answers("x = 1\n" * 400, reason="repetition")

    said = say(monkeypatch, [*loop, *answers(*[ELIDED] * 4)], str(file), "rename count to numbers, nothing else", "-y")

    assert (3, CODE) == (said.ran.code, file.read_text())
    assert "the model repeats itself" in said.ran.err


def test_a_file_that_is_too_long_is_an_error_with_the_numbers():
    job = EditJob(make_source(CODE.encode(), "a.py"), "simplify", window_tokens=1000)

    with pytest.raises(ContextError, match=r"takes 900 tokens to read and about .* the window holds 1000"):
        result_of(run_edit(job, EditRun(ScriptedSession([[PrefillProgress(0, 900)], [PrefillProgress(0, 1100)]]))))


def test_a_hunk_can_be_rewritten_with_a_comment():
    job = EditJob(make_source(CODE.encode(), "a.py"), "rename", window_tokens=1000)
    session = ScriptedSession(answers("START = 2"))

    assert "START = 2\n" == result_of(rewrite_region(job, Region(4, 4), "make it two", EditRun(session)))
    assert "rename\n\nmake it two" == session.requests[0].text


@pytest.mark.full
def test_five_megabytes_are_refused_before_a_model_is_used(file, monkeypatch):
    file.write_text("x = 1\n" * 900_000)

    said = say(monkeypatch, [], str(file), "rename x", "-y")

    assert (6, []) == (said.ran.code, said.asked)
    assert "tokens and the window holds" in said.ran.err


@pytest.mark.full
def test_an_operation_on_five_megabytes_is_refused_in_words(file, monkeypatch):
    data = file.with_name("a.json")
    data.write_text("{" + ",".join(f'"key{number}": {number}' for number in range(250_000)) + "}")
    file.write_text("import os\nold = 1\n" + "x = 1\n" * 900_000)
    instructions = ("rename old to new", "old = 5", "remove the prints", "sort the imports", "remove unused imports")

    said = [say(monkeypatch, [], str(file), each, "-y") for each in instructions]
    said.append(say(monkeypatch, [], str(data), "set key1 to 5", "-y"))

    assert [(8, [])] * 6 == [(each.ran.code, each.asked) for each in said]
    assert all(
        "refused, as the file is too long, or too deeply nested, to look at all of it" in each.ran.err for each in said
    )


@pytest.mark.parametrize(
    "instruction", ["", "  ", ".", "?", "hello", "thanks", "do nothing", "leave it as it is", "ok"]
)
def test_an_instruction_that_asks_for_nothing_changes_nothing(file, monkeypatch, instruction):
    talkative = CODE.replace("START = 1", "START = 2").replace("        yield number\n", "        print(number)\n")

    said = say(monkeypatch, answers(talkative), str(file), instruction, "-y")

    assert (8 if instruction.strip() else 2, CODE) == (said.ran.code, file.read_text())
    assert "nothing asked for that" in said.ran.err or "the prompt is empty" in said.ran.err


def test_two_operations_in_one_sentence_are_both_done_or_neither(file, monkeypatch):
    both = say(monkeypatch, [], str(file), "rename count to numbers and set START to 5", "-y")
    after_both = file.read_text()
    one = [
        say(monkeypatch, [], str(file), f"set START to 7 and rename {old} to {new}", "-y")
        for old, new in (("numbers", "total"), ("absent", "there"))
    ]

    assert (0, NEW.replace("START = 1", "START = 5")) == (both.ran.code, after_both)
    assert [(8, []), (9, [])] == [(each.ran.code, each.asked) for each in one]
    assert after_both == file.read_text()


def test_lines_in_the_middle_of_a_statement_are_edited_alone_or_not_at_all(file, monkeypatch):
    text = CODE + "\n\nprint(\n    count(\n        3,\n    ),\n)\n"
    file.write_text(text)
    line = str(1 + text[: text.index("        3,")].count("\n"))
    edits = (
        ("count to 4", "        4,\n", 0), ("use a list", "count([3])\n" * 2 + "x = (\n", 4),
        ("remove the prints", None, 9), ("rename count to numbers", None, 8), ("START = 5", None, 8),
    )  # fmt: skip
    for instruction, answer, code in edits:
        file.write_text(text)
        said = say(monkeypatch, answers(*[answer or ""] * 6), str(file), instruction, "-l", line, "-y")

        right = text if code else text.replace("        3,", "        4,")
        assert (code, right) == (said.ran.code, file.read_text()), (instruction, said.ran.err)


def test_an_empty_file_can_be_filled(file, monkeypatch):
    file.write_bytes(b"")

    said = say(monkeypatch, answers("```python\nx = 1\n```"), str(file), "set x to one", "-y")

    assert (0, b"x = 1\n") == (said.ran.code, file.read_bytes())


def test_a_read_only_file_is_refused_before_a_model_is_used(file, monkeypatch):
    file.chmod(0o444)

    said = say(monkeypatch, [], str(file), "rename", "-y")
    shown = say(monkeypatch, answers(NEW), str(file), "rename")

    assert (1, [], 0) == (said.ran.code, said.asked, shown.ran.code)
    assert "is read-only" in said.ran.err


@pytest.mark.parametrize("raw", [b"\x00\x01", b"\xff\xfea\x00b"])
def test_a_binary_file_is_refused(file, monkeypatch, raw):
    file.write_bytes(raw)

    assert 2 == say(monkeypatch, [], str(file), "rename", "-y").ran.code
