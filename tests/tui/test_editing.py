"""Files changed from the screen: asked, decided hunk by hunk where the prompt was, written, taken back.

The fake host's model does what the instruction says: "replace OLD NEW", "write TEXT", "read" (until it is stopped).
"""

from __future__ import annotations

import re
from random import Random

import pytest

from specchat.tui import choice_lists

pytestmark = pytest.mark.full

OLD = "".join(f"name_{number} = total\n" if number % 10 == 2 else f"line_{number} = 1\n" for number in range(30))
NEW = OLD.replace("total", "amount")
UNDO = re.compile(r"/undo \d+")


@pytest.fixture(autouse=True)
def at_once(monkeypatch):
    """Nobody is typing when a review appears."""
    monkeypatch.setattr(choice_lists, "GRACE_SECONDS", 0.0)


@pytest.fixture
def file(tmp_path, monkeypatch):
    folder = tmp_path / "work"
    folder.mkdir()
    monkeypatch.chdir(folder)
    file = folder / "a.py"
    file.write_text(OLD)
    return file


async def begin(seat, command: str) -> None:
    """Say it, and wait for the first question or the end."""
    await seat.submit(command)
    await seat.until(lambda: asks(seat) or seat.turns[-1].is_over)


def asks(seat) -> bool:
    approval = seat.chat._slot.approval
    return bool(approval and approval.is_mounted and not approval.is_busy)


async def answer(seat, *keys: str) -> None:
    """Press one key after the other, each when somebody asks for it."""
    for key in keys:
        await seat.until(lambda: asks(seat) or seat.turns[-1].is_over)
        assert asks(seat), seat.shown
        await seat.press(key)
        await seat.until(lambda: asks(seat) or seat.turns[-1].is_over)


async def over(seat) -> str:
    """What was said in the end, when the prompt is back."""
    await seat.until(lambda: seat.turns[-1].is_over and not seat.chat._slot.is_swapped)
    return str(seat.turns[-1].query_one(".footer").render())


def test_an_edit_is_decided_hunk_by_hunk_and_taken_back(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit @a.py replace total amount")
        await seat.sees("a.py · hunk 1/3 · line 3")
        await seat.sees("+name_2 = amount")
        await answer(seat, "y", "n", "y")

        said = await over(seat)
        assert "applied 2/3 hunks to a.py · " in said
        assert OLD.replace("name_2 = total", "name_2 = amount").replace("name_22 = total", "name_22 = amount") == (
            file.read_text()
        )
        assert seat.prompt.has_focus
        await seat.submit(UNDO.search(said)[0])
        assert "took back edit" in await over(seat)
        assert OLD == file.read_text()

    take_seat(scenario)


@pytest.mark.parametrize("seed", [0, *(pytest.param(each, marks=pytest.mark.full) for each in range(1, 6))])
def test_taking_all_is_the_text_of_the_model_and_taking_none_the_old_one(take_seat, file, seed):
    dice = Random(seed)
    new = "".join(
        line
        for old in OLD.splitlines(keepends=True)
        for line in dice.choices([[old], [], [f"new_{dice.randrange(1000)} = 2\n", old], ["x = 3\n"]], [8, 1, 1, 1])[0]
    )

    async def scenario(seat):
        await begin(seat, f"/edit a.py write {new}")
        await answer(seat, "d")
        assert "no hunk was taken; nothing is written" in await over(seat)
        assert OLD == file.read_text()

        await begin(seat, f"/edit a.py write {new}")
        await answer(seat, "a")
        assert "applied" in await over(seat)
        assert new == file.read_text()

    take_seat(scenario)


@pytest.mark.parametrize(
    ("keys", "names"),
    [("ua", (2, 12, 22)), ("ynuya", (2, 12, 22)), ("snyd", (12,))],
)
def test_every_letter_does_what_it_does_on_the_command_line(take_seat, file, keys, names):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        await answer(seat, *keys)
        await over(seat)

        wanted = OLD
        for name in names:
            wanted = wanted.replace(f"name_{name} = total", f"name_{name} = amount")
        assert wanted == file.read_text()

    take_seat(scenario)


def test_a_hunk_can_be_edited_in_place(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        await answer(seat, "n", "e")
        await seat.press("end", "s", "u", "m", "ctrl+s")
        await answer(seat, "d")
        await over(seat)

        assert OLD.replace("name_12 = total\n", "name_12 = amountsum\n") == file.read_text()

    take_seat(scenario)


def test_leaving_the_editing_of_a_hunk_comes_back_to_its_letters(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        await answer(seat, "e", "escape", "c", "escape", "a")
        await over(seat)

        assert NEW == file.read_text()

    take_seat(scenario)


def test_a_hunk_can_be_written_again_as_somebody_wishes(take_seat, file):
    file.write_text("a = 1\nb = 2\nc = 3\n")

    async def scenario(seat):
        await begin(seat, "/edit a.py write a = 1\nb = 5\nc = 3")
        await answer(seat, "c")
        await seat.press(*"d")
        await answer(seat, "enter")
        await seat.sees("+d")
        await answer(seat, "y")
        assert "applied 1/1 hunks" in await over(seat)
        assert "a = 1\nb = 5\nc = 3\n\nd\n" == file.read_text()

    take_seat(scenario)


def test_what_does_not_parse_in_part_is_decided_again(take_seat, file):
    new = f'text = """\n{OLD}"""\nx = 1'

    async def scenario(seat):
        await begin(seat, f"/edit a.py write {new}")
        await answer(seat, "y", "n")
        await seat.sees("decide on the last hunk again")
        await answer(seat, "y")
        await over(seat)

        assert f"{new}\n" == file.read_text()

    take_seat(scenario)


@pytest.mark.parametrize("key", ["escape", "ctrl+c"])
def test_stopping_the_model_writes_nothing_and_keeps_the_draft(take_seat, file, key):
    async def scenario(seat):
        await seat.submit("/edit a.py read")
        await seat.sees("reading 1 of 3 tokens")
        await seat.type("a draft")
        await seat.press(key)

        assert "stopped; nothing is written" in await over(seat)
        assert (OLD, "a draft") == (file.read_text(), seat.prompt.text)

    take_seat(scenario)


@pytest.mark.parametrize("key", ["q", "escape", "ctrl+c"])
def test_leaving_a_review_writes_nothing_and_keeps_the_draft(take_seat, file, key):
    async def scenario(seat):
        await seat.type("a draft")
        await begin(seat, "/edit a.py replace total amount")
        await answer(seat, "y", key)

        assert "a.py: left as it was" in await over(seat)
        assert (OLD, "a draft") == (file.read_text(), seat.prompt.text)
        assert seat.prompt.has_focus

    take_seat(scenario)


def test_a_question_that_is_sent_meanwhile_is_asked_when_the_edit_is_over(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        seat.chat.submit("count 2")
        await answer(seat, "a")
        await seat.sees("word0 seed")

        assert NEW == file.read_text()
        assert [("count 2", 0)] == [(each.question, each.position) for each in seat.chat.transcript.asked]

    take_seat(scenario)


def test_a_file_that_somebody_changes_meanwhile_is_not_touched(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        file.write_text("mine\n")
        await answer(seat, "a")

        assert "was changed meanwhile; nothing is written" in await over(seat)
        assert "mine\n" == file.read_text()

    take_seat(scenario)


def test_several_files_are_written_together(take_seat, file):
    other = file.with_name("b c.py")
    other.write_text("total = 1\n")

    async def scenario(seat):
        await begin(seat, '/edit a.py @"b c.py" replace total amount')
        await answer(seat, "a", "y")
        assert "applied 4/4 hunks to a.py, b c.py" in await over(seat)
        assert (NEW, "amount = 1\n") == (file.read_text(), other.read_text())
        await seat.submit("/undo")
        await over(seat)
        assert (OLD, "total = 1\n") == (file.read_text(), other.read_text())

    take_seat(scenario)


WRONG = {
    "/edit": "an edit needs a file and an instruction",
    "/edit a.py": "an edit needs a file and an instruction",
    "/edit gone.py rename it": "gone.py: cannot be read",
    "/edit a.py @gone.py rename it": "gone.py: there is no such file",
    "/edit a.py a.py rename it": "two of these names are the same file",
    "/edit a.py replace absent x": "the model sees nothing to change",
    "/edit a.py fail": "too long",
    f"/edit a.py write {OLD}x = (": "does not parse",
    "/apply": "the last answer has no block of code",
    "/undo 9999": "there is no edit 9999",
}


def test_what_goes_wrong_is_one_line_and_the_draft_stays(take_seat, file):
    async def scenario(seat):
        await seat.type("a draft")
        for command, said in WRONG.items():
            await begin(seat, command)
            footer = await over(seat)
            assert said in footer
            assert "\n" not in footer
        assert (OLD, "a draft") == (file.read_text(), seat.prompt.text)

    take_seat(scenario, size=(160, 30))


def test_a_block_of_an_answer_is_written_to_the_file_that_it_names(take_seat, file):
    async def scenario(seat):
        await seat.ask(f"write ```python a.py\n{NEW}```\n\n```python\nx = 1\n```")
        await begin(seat, "/apply 1")
        await seat.sees("a.py · hunk 1/3")
        await answer(seat, "a")

        assert "applied 3/3 hunks to a.py" in await over(seat)
        assert NEW == file.read_text()

    take_seat(scenario)


def test_a_block_becomes_a_new_file_after_a_look(take_seat, file):
    made = file.with_name("made.py")

    async def scenario(seat):
        await seat.ask("write ```python\nx = 1\n```")
        await begin(seat, "/apply made.py")
        await answer(seat, "q")
        await over(seat)
        assert not made.exists()

        await begin(seat, "/apply 1 made.py")
        await seat.sees("+x = 1")
        await answer(seat, "y")
        assert "made made.py" in await over(seat)
        assert "x = 1\n" == made.read_text()

    take_seat(scenario)


REFUSED = {
    ("python ../b.py", "/apply"): "a model may not choose this file",
    ("python /tmp/b.py", "/apply"): "a model may not choose this file",
    ("python .git/hooks.py", "/apply"): "a model may not choose this file",
    ("python", "/apply"): "does not say which file",
    ("python", "/apply 3 b.py"): "there is no 3",
    ("python", "/apply gone/b.py"): "there is no such folder",
    ("python", "/apply ."): "not a file",
}


def test_a_block_is_not_written_just_anywhere(take_seat, file):
    async def scenario(seat):
        for (info, command), said in REFUSED.items():
            await seat.ask(f"write ```{info}\nx = 1\n```")
            await begin(seat, command)
            assert said in await over(seat)
        assert [file] == list(file.parent.iterdir())

    take_seat(scenario, size=(160, 30))


def test_a_block_that_leaves_something_out_is_not_written(take_seat, file):
    async def scenario(seat):
        await seat.ask("write ```python a.py\nx = 1\n# ... rest of the code ...\n```")
        await begin(seat, "/apply")

        assert "leaves something out" in await over(seat)
        assert OLD == file.read_text()

    take_seat(scenario, size=(160, 30))


def test_leaving_the_program_in_the_middle_of_a_review_writes_nothing(take_seat, file):
    async def scenario(seat):
        await begin(seat, "/edit a.py replace total amount")
        await answer(seat, "y")

    take_seat(scenario)
    assert OLD == file.read_text()
