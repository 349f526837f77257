"""File edits in the TUI: requested, reviewed hunk by hunk in place of the prompt, written, undone.

The fake host's model does what the instruction says: "replace OLD NEW", "write TEXT", "read" (until it is stopped).
"""

from __future__ import annotations

import re
from random import Random

import pytest

from specchat.tui import picker
from tests.cover import matrix
from tools.measure_edits import MeasuredCase, edit_on_screen

OLD = "".join(f"name_{number} = total\n" if number % 10 == 2 else f"line_{number} = 1\n" for number in range(30))
NEW = OLD.replace("total", "amount")
UNDO = re.compile(r"/undo \d+")


@pytest.fixture(autouse=True)
def no_grace_period(monkeypatch):
    """No grace period: the tests answer reviews at once."""
    monkeypatch.setattr(picker, "GRACE_SECONDS", 0.0)


@pytest.fixture
def file(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    file = folder / "a.py"
    file.write_text(OLD)
    return file


async def begin(driver, command: str) -> None:
    """Submit a command, and wait for the first decision or the end."""
    await driver.submit(command)
    await driver.wait_until(lambda: is_deciding(driver) or driver.turns[-1].is_finished)


def is_deciding(driver) -> bool:
    approval = driver.chat.bottom_area.approval
    return bool(approval and approval.is_deciding)


async def answer(driver, *keys: str) -> None:
    """Press one key after the other, each when a decision is pending."""
    for key in keys:
        await driver.wait_until(lambda: is_deciding(driver) or driver.turns[-1].is_finished)
        assert is_deciding(driver), driver.shown
        await driver.press(key)
        await driver.wait_until(lambda: is_deciding(driver) or driver.turns[-1].is_finished)


async def final_footer(driver) -> str:
    """The footer, when the prompt is back."""
    await driver.wait_until(lambda: driver.turns[-1].is_finished and not driver.chat.bottom_area.is_prompt_replaced)
    return str(driver.turns[-1].query_one(".footer").render())


def test_an_edit_is_reviewed_hunk_by_hunk_and_undone(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit @a.py replace total amount")
        await driver.wait_for_text("a.py · hunk 1/3 · line 3")
        await driver.wait_for_text("+name_2 = amount")
        await answer(driver, "y", "n", "y")

        footer = await final_footer(driver)
        assert "applied 2/3 hunks to a.py · " in footer
        assert OLD.replace("name_2 = total", "name_2 = amount").replace("name_22 = total", "name_22 = amount") == (
            file.read_text()
        )
        await driver.wait_until(lambda: driver.prompt.has_focus)
        await driver.submit(UNDO.search(footer)[0])
        assert "took back edit" in await final_footer(driver)
        assert OLD == file.read_text()

    run_on_screen(scenario)


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.full) for each in range(1, 6))])
def test_accepting_all_is_the_text_of_the_model_and_accepting_none_the_old_one(run_on_screen, file, seed):
    dice = Random(seed)
    new = "".join(
        line
        for old in OLD.splitlines(keepends=True)
        for line in dice.choices([[old], [], [f"new_{dice.randrange(1000)} = 2\n", old], ["x = 3\n"]], [8, 1, 1, 1])[0]
    )

    async def scenario(driver):
        await begin(driver, f"/edit a.py write {new}")
        await answer(driver, "d")
        assert "no hunk was accepted; nothing is written" in await final_footer(driver)
        assert OLD == file.read_text()

        await begin(driver, f"/edit a.py write {new}")
        await answer(driver, "a")
        assert "applied" in await final_footer(driver)
        assert new == file.read_text()

    run_on_screen(scenario)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("keys", "names"),
    [("ua", (2, 12, 22)), ("ynuya", (2, 12, 22)), ("snyd", (12,))],
)
def test_every_letter_does_what_it_does_on_the_command_line(run_on_screen, file, keys, names):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        await answer(driver, *keys)
        await final_footer(driver)

        expected = OLD
        for name in names:
            expected = expected.replace(f"name_{name} = total", f"name_{name} = amount")
        assert expected == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_a_hunk_can_be_edited_in_place(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        await answer(driver, "n", "e")
        await driver.press("end", "s", "u", "m", "ctrl+s")
        await answer(driver, "d")
        await final_footer(driver)

        assert OLD.replace("name_12 = total\n", "name_12 = amountsum\n") == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_leaving_the_editing_of_a_hunk_comes_back_to_its_letters(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        await answer(driver, "e", "escape", "c", "escape", "a")
        await final_footer(driver)

        assert NEW == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_a_hunk_can_be_rewritten_with_a_comment(run_on_screen, file):
    file.write_text("a = 1\nb = 2\nc = 3\n")

    async def scenario(driver):
        await begin(driver, "/edit a.py write a = 1\nb = 5\nc = 3")
        await answer(driver, "c")
        await driver.press(*"d")
        await answer(driver, "enter")
        await driver.wait_for_text("+d")
        await answer(driver, "y")
        assert "applied 1/1 hunks" in await final_footer(driver)
        assert "a = 1\nb = 5\nc = 3\n\nd\n" == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_what_does_not_parse_in_part_is_decided_again(run_on_screen, file):
    new = f'text = """\n{OLD}"""\nx = 1'

    async def scenario(driver):
        await begin(driver, f"/edit a.py write {new}")
        await answer(driver, "y", "n")
        await driver.wait_for_text("decide on the last hunk again")
        await answer(driver, "y")
        await final_footer(driver)

        assert f"{new}\n" == file.read_text()

    run_on_screen(scenario)


@pytest.mark.parametrize("key", ["escape", pytest.param("ctrl+c", marks=pytest.mark.full)])
def test_stopping_the_model_writes_nothing_and_keeps_the_unsent_text(run_on_screen, file, key):
    async def scenario(driver):
        await driver.submit("/edit a.py read")
        await driver.wait_for_text("reading 3 tokens: 33 %")
        await driver.type("a draft")
        await driver.press(key)

        assert "stopped; nothing is written" in await final_footer(driver)
        assert (OLD, "a draft") == (file.read_text(), driver.prompt.text)

    run_on_screen(scenario)


@pytest.mark.full
@pytest.mark.parametrize("key", ["q", *(pytest.param(key, marks=pytest.mark.full) for key in ("escape", "ctrl+c"))])
def test_quitting_a_review_writes_nothing_and_keeps_the_unsent_text(run_on_screen, file, key):
    async def scenario(driver):
        await driver.type("a draft")
        await begin(driver, "/edit a.py replace total amount")
        await answer(driver, "y", key)

        assert "a.py: left as it was" in await final_footer(driver)
        assert (OLD, "a draft") == (file.read_text(), driver.prompt.text)
        await driver.wait_until(lambda: driver.prompt.has_focus)

    run_on_screen(scenario)


@pytest.mark.full
def test_a_request_that_is_queued_during_an_edit_is_sent_after_it(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        driver.chat.submit("count 2")
        await answer(driver, "a")
        await driver.wait_for_text("word0 seed")

        assert NEW == file.read_text()
        assert [("count 2", 0)] == [(each.text, each.position) for each in driver.chat.transcript.question_refs]

    run_on_screen(scenario)


def test_a_file_that_changes_meanwhile_is_not_touched(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        file.write_text("mine\n")
        await answer(driver, "a")

        assert "was changed meanwhile; nothing is written" in await final_footer(driver)
        assert "mine\n" == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_several_files_are_written_together(run_on_screen, file):
    other = file.with_name("b c.py")
    other.write_text("total = 1\n")

    async def scenario(driver):
        await begin(driver, '/edit a.py @"b c.py" replace total amount')
        await answer(driver, "a", "y")
        assert "applied 4/4 hunks to a.py, b c.py" in await final_footer(driver)
        assert (NEW, "amount = 1\n") == (file.read_text(), other.read_text())
        await driver.submit("/undo")
        await final_footer(driver)
        assert (OLD, "total = 1\n") == (file.read_text(), other.read_text())

    run_on_screen(scenario)


WRONG = {
    "/edit": "an edit needs a file and an instruction",
    "/edit a.py": "an edit needs a file and an instruction",
    "/edit gone.py rename it": "gone.py: there is no such file",
    "/edit a.py @gone.py rename it": "gone.py: no such file",
    "/edit a.py a.py rename it": "two of these names are the same file",
    "/edit a.py replace absent x": "the model changed nothing",
    "/edit a.py fail": "too long",
    f"/edit a.py write {OLD}x = (": "does not parse",
    "/apply": "the last answer has no code block",
    "/undo 9999": "there is no edit 9999",
}


@pytest.mark.dear
@pytest.mark.parametrize(("size", "colour"), matrix([(60, 18), (80, 24), (120, 35)], ["colours", "none"], rounds=1))
def test_an_edit_that_is_not_taken_shows_its_text_the_reason_and_the_next_step(
    run_on_screen, file, size, colour, monkeypatch
):
    if colour == "none":
        monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(driver):
        await begin(driver, f"/edit a.py write {OLD}x = (")
        footer = await final_footer(driver)
        [diff] = driver.chat.query(".diff")

        assert "does not parse" in footer
        assert "next: fewer lines (/edit -l FIRST-LAST" in footer
        assert "+x = (" in str(diff.render())
        assert OLD == file.read_text()

    run_on_screen(scenario, size=size)


def test_a_hunk_is_a_question_with_words_and_has_the_colours_of_its_language(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit -l 1-8 --check 'grep amount {}' a.py replace total amount")
        await driver.wait_for_text("Take this change?  y yes  n no  a all")
        styles = {str(span.style) for span in driver.chat.query_one(".hunk").visual.spans}
        assert {"on $success 15%", "on $error 15%", "$text-success", "$text-error"} <= styles
        assert len(styles) > 4
        await answer(driver, "y")
        assert "applied 1/1 hunks" in await final_footer(driver)

    run_on_screen(scenario)


@pytest.mark.full
def test_an_error_is_one_line_and_the_unsent_text_stays(run_on_screen, file):
    async def scenario(driver):
        await driver.type("a draft")
        for command, message in WRONG.items():
            await begin(driver, command)
            footer = await final_footer(driver)
            assert message in footer
            assert "\n" not in footer
        assert (OLD, "a draft") == (file.read_text(), driver.prompt.text)

    run_on_screen(scenario, size=(160, 30))


@pytest.mark.full
def test_a_block_of_an_answer_is_written_to_the_file_that_it_names(run_on_screen, file):
    async def scenario(driver):
        await driver.ask(f"write ```python a.py\n{NEW}```\n\n```python\nx = 1\n```")
        await begin(driver, "/apply 1")
        await driver.wait_for_text("a.py · hunk 1/3")
        await answer(driver, "a")

        assert "applied 3/3 hunks to a.py" in await final_footer(driver)
        assert NEW == file.read_text()

    run_on_screen(scenario)


@pytest.mark.full
def test_a_block_becomes_a_new_file_after_a_look(run_on_screen, file):
    made = file.with_name("made.py")

    async def scenario(driver):
        await driver.ask("write ```python\nx = 1\n```")
        await begin(driver, "/apply made.py")
        await answer(driver, "q")
        await final_footer(driver)
        assert not made.exists()

        await begin(driver, "/apply 1 made.py")
        await driver.wait_for_text("+x = 1")
        await answer(driver, "y")
        assert "created made.py" in await final_footer(driver)
        assert "x = 1\n" == made.read_text()

    run_on_screen(scenario)


REFUSED = {
    ("python ../b.py", "/apply"): "the model may not choose this file",
    ("python /tmp/b.py", "/apply"): "the model may not choose this file",
    ("python .git/hooks.py", "/apply"): "the model may not choose this file",
    ("python", "/apply"): "names no file",
    ("python", "/apply 3 b.py"): "there is no block 3",
    ("python", "/apply gone/b.py"): "no such folder",
    ("python", "/apply ."): "not a regular file",
}


@pytest.mark.full
def test_a_block_is_not_written_just_anywhere(run_on_screen, file):
    async def scenario(driver):
        for (info, command), message in REFUSED.items():
            await driver.ask(f"write ```{info}\nx = 1\n```")
            await begin(driver, command)
            assert message in await final_footer(driver)
        assert [file] == list(file.parent.iterdir())

    run_on_screen(scenario, size=(160, 30))


@pytest.mark.full
def test_a_block_with_gaps_names_the_plugin_that_merges_it_and_is_not_written(run_on_screen, file):
    async def scenario(driver):
        await driver.ask("write ```python a.py\nx = 1\n# ... rest of the code ...\n```")
        await begin(driver, "/apply")

        assert "the merge of sketches is a plugin" in await final_footer(driver)
        assert OLD == file.read_text()

    run_on_screen(scenario, size=(160, 30))


@pytest.mark.full
def test_leaving_the_program_in_the_middle_of_a_review_writes_nothing(run_on_screen, file):
    async def scenario(driver):
        await begin(driver, "/edit a.py replace total amount")
        await answer(driver, "y")

    run_on_screen(scenario)
    assert OLD == file.read_text()


@pytest.mark.full
@pytest.mark.parametrize(
    ("old", "instruction", "new", "reason"),
    [
        (OLD, "replace total amount", NEW, "applied 3/3 hunks to a.py"),
        (OLD, "replace absent x", OLD, "the model changed nothing"),
        ('a = 1\n', 'write text = """\na = 1\n"""', 'text = """\na = 1\n"""\n', "applied"),
    ],
    ids=["accepted", "refused", "all hunks together"],
)  # fmt: skip
def test_the_screen_that_is_measured_accepts_all_hunks(world, brief_idle_waits, file, old, instruction, new, reason):
    file.write_text(old)

    outcome = edit_on_screen(MeasuredCase("written", "a.py", old, instruction, lambda _text: True), file.parent)

    assert reason in outcome.reason
    assert (new, new == old) == (outcome.text, outcome.is_failure)
