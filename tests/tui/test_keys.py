"""Every key of the screen, and what it does."""

from __future__ import annotations

import pytest

from specchat.tui.picker import Picker
from specchat.tui.turn_widget import code_block_texts

pytestmark = pytest.mark.full


@pytest.fixture
def copied(monkeypatch):
    """What was handed to the clipboard."""
    texts: list[str] = []

    def copy(_app, text):
        texts.append(text)
        return "terminal"

    monkeypatch.setattr("specchat.tui.chat_screen.copy", copy)
    return texts


@pytest.fixture(autouse=True)
def slow_fingers(monkeypatch):
    """Twice is twice, however slow the machine is."""
    monkeypatch.setattr("specchat.tui.chat_screen.TWICE_SECONDS", 600.0)


async def two_turns(seat):
    await seat.ask("count 3")
    await seat.ask("write second")


def test_the_block_cursor_walks_through_the_answers_and_escape_goes_back(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        await seat.press("shift+tab")
        assert seat.turns[1].has_focus
        await seat.press("up")
        assert seat.turns[0].has_focus
        await seat.press("down", "escape")
        assert seat.prompt.has_focus

    take_seat(scenario)


def test_y_copies_an_answer_and_c_its_code(take_seat, copied):
    async def scenario(seat):
        await seat.submit("write ```python\nx = 1\n```")
        await seat.until(lambda: seat.turns and seat.turns[-1].is_over)
        await seat.press("shift+tab", "y", "c")
        assert ["```python\nx = 1\n```", "x = 1\n"] == copied
        await seat.press("escape")
        await seat.say("/copy")
        await seat.until(lambda: len(copied) == 3)

    take_seat(scenario)


def test_code_is_what_stands_between_fences():
    assert ["a\n", "b\n```\n"] == code_block_texts("x\n```py\na\n```\ny\n````\nb\n```\n````\n")
    assert [] == code_block_texts("none")


def test_e_asks_the_last_question_in_other_words(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        await seat.press("shift+tab", "e")
        assert "write second" == seat.prompt.text
        await seat.sees("this replaces an earlier question")
        await seat.press("2", "enter")
        await seat.until(lambda: seat.turns[-1].answer == "second2" and seat.turns[-1].is_over)

        assert ["count 3", "write second2"] == [turn.question for turn in seat.turns]
        assert [0, 1] == [turn.position for turn in seat.turns]

    take_seat(scenario)


def test_an_edit_can_be_left(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        await seat.press("shift+tab", "e", "escape")

        assert "" == seat.prompt.text
        await seat.ask("write third")
        assert 3 == len(seat.turns)

    take_seat(scenario)


def test_an_earlier_question_is_edited_in_a_copy(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        session = seat.chat.hearing.session
        await seat.press("shift+tab", "up", "e", "backspace", "4", "enter")
        await seat.until(lambda: seat.chat.hearing.session != session and seat.turns[-1].is_over)

        assert ["count 4"] == [turn.question for turn in seat.turns]
        seat.chat._partner.open(session)
        await seat.until(lambda: len(seat.turns) == 2)

    take_seat(scenario)


def test_escape_twice_goes_back_to_a_question_and_an_earlier_one_is_asked_in_a_copy(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        session = seat.chat.hearing.session
        await seat.press("escape", "escape")
        await seat.sees("write second  replaces it")
        await seat.press("down")
        await seat.sees("count 3  goes on in a copy")
        await seat.press("enter")
        await seat.until(lambda: seat.prompt.text == "count 3")
        await seat.press("backspace", "4", "enter")
        await seat.until(lambda: [turn.question for turn in seat.turns] == ["count 4"] and seat.turns[-1].is_over)

        assert session != seat.chat.hearing.session

    take_seat(scenario)


def test_a_question_that_is_no_longer_on_the_screen_can_be_gone_back_to(take_seat, monkeypatch):
    monkeypatch.setattr("specchat.tui.transcript_view.MOST_BLOCKS", 2)

    async def scenario(seat):
        for word in ("first", "second", "third"):
            await seat.say(f"write {word}")
            await seat.until(lambda word=word: seat.turns and seat.turns[-1].answer == word and seat.turns[-1].is_over)
        assert 2 == len(seat.turns)
        await seat.say("/rewind")
        await seat.sees("back to a question")
        await seat.press(*"first", "enter")
        await seat.until(lambda: seat.prompt.text == "write first")
        await seat.press("2", "enter")
        await seat.until(lambda: [turn.answer for turn in seat.turns] == ["first2"] and seat.turns[-1].is_over)

    take_seat(scenario)


def test_escape_twice_does_nothing_else_where_something_is_left_or_written(take_seat):
    async def scenario(seat):
        await seat.press("escape", "escape")
        assert not seat.chat.query(Picker)  # nothing was asked yet
        await two_turns(seat)
        await seat.press("a", "escape", "escape")
        assert not seat.chat.query(Picker)
        await seat.press("backspace", "shift+tab", "escape", "escape")
        assert not seat.chat.query(Picker)  # the first one only left the block
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await seat.say("/rewind")
        await seat.sees("an answer is being written")
        await seat.press("escape")
        await seat.until(lambda: seat.turns[-1].is_over)

    take_seat(scenario)


def test_r_answers_again_with_other_dice(take_seat):
    async def scenario(seat):
        before = (await seat.ask("something")).answer
        await seat.press("shift+tab", "r")
        await seat.until(lambda: seat.turns and seat.turns[-1].is_over and seat.turns[-1].answer not in ("", before))

        assert 1 == len(seat.turns)
        await seat.press("escape")
        await seat.say("/retry")
        await seat.until(lambda: seat.chat.hearing.is_quiet and seat.turns and seat.turns[-1].is_over)
        assert 1 == len(seat.turns)

    take_seat(scenario)


def test_f_goes_on_in_a_copy_from_there(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        session = seat.chat.hearing.session
        await seat.press("shift+tab", "up", "f")
        await seat.sees("the old one stays as it is")

        assert session != seat.chat.hearing.session
        assert ["count 3"] == [turn.question for turn in seat.turns]
        assert "turn 1" in (await seat.ask("count 1")).answer

    take_seat(scenario)


def test_what_is_asked_while_an_answer_is_written_waits(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await seat.say("write waited")
        await seat.sees("next: write waited")
        seat.chat.stop()
        await seat.until(lambda: len(seat.turns) == 2 and seat.turns[-1].is_over)

        assert "waited" == seat.turns[-1].answer
        assert "next:" not in seat.shown

    take_seat(scenario)


def test_escape_gives_back_what_waits(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await seat.say("write waited")
        await seat.press("escape")
        await seat.until(lambda: seat.turns[-1].is_over)

        assert "write waited" == seat.prompt.text
        assert 1 == len(seat.turns)

    take_seat(scenario)


def test_control_c_stops_then_clears_then_leaves(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await seat.press("ctrl+c")
        await seat.until(lambda: seat.turns[-1].is_over)
        await seat.press("a", "ctrl+c")
        assert "" == seat.prompt.text
        await seat.press("ctrl+c")
        await seat.sees("once more leaves")
        assert seat.app.is_running
        await seat.press("ctrl+c")
        await seat.until(lambda: seat.app.return_code is not None or not seat.app.is_running)

    take_seat(scenario)


def test_control_c_copies_what_is_marked(take_seat, copied):
    async def scenario(seat):
        await seat.press(*"abc", "shift+left", "shift+left", "ctrl+c")

        assert ["bc"] == copied

    take_seat(scenario)


@pytest.mark.parametrize("leave", ["ctrl+q", "/quit"])
def test_there_are_ways_out(take_seat, leave):
    async def scenario(seat):
        await (seat.say(leave) if leave.startswith("/") else seat.press(leave))
        await seat.until(lambda: not seat.app.is_running)

    take_seat(scenario)


def test_f4_pins_who_guesses(take_seat):
    async def scenario(seat):
        await seat.press("f4")
        await seat.sees("who guesses, from the next question on")
        await seat.press(*"plain", "enter")
        await seat.sees("variant: plain")
        await seat.ask("count 2")

        await seat.say("/why")
        await seat.sees("plain, at most 4 guesses")

    take_seat(scenario)


def test_f5_changes_the_profile_in_place(take_seat):
    async def scenario(seat):
        await seat.press("f5")
        await seat.sees("from the next question on")
        await seat.press(*"edit", "enter")
        await seat.sees("profile edit")
        await seat.until(lambda: "profile edit" in seat.shown.splitlines()[0])

    take_seat(scenario)


def test_f8_changes_the_colours_and_they_are_remembered(take_seat):
    async def scenario(seat):
        await seat.press("f8")
        await seat.sees("type to narrow")
        await seat.press(*"nord", "enter")
        await seat.until(lambda: seat.app.theme == "nord")

    take_seat(scenario)

    async def later(seat):
        assert "nord" == seat.app.theme

    take_seat(later)


def test_escape_leaves_a_list_without_choosing(take_seat):
    async def scenario(seat):
        await seat.press("f4", "down", "escape")
        await seat.until(lambda: not seat.chat.query(Picker))

        assert seat.prompt.has_focus
        assert [] == list(seat.chat.query(".note"))

    take_seat(scenario)


def test_escape_closes_a_list_also_when_something_else_has_the_focus(take_seat):
    async def scenario(seat):
        await two_turns(seat)
        await seat.press("f4")
        seat.turns[0].focus()
        await seat.until(lambda: seat.turns[0].has_focus)
        await seat.press("escape")
        await seat.until(lambda: seat.prompt.has_focus)

        assert not seat.chat.query(Picker)

    take_seat(scenario)


def test_f1_shows_the_keys_and_hides_them(take_seat):
    async def scenario(seat):
        await seat.press("f1")
        await seat.until(lambda: seat.chat.query("HelpPanel"))
        await seat.press("f1")
        await seat.until(lambda: not seat.chat.query("HelpPanel"))

    take_seat(scenario)


def test_help_lists_the_commands_of_every_front_end_and_of_the_screen(take_seat):
    async def scenario(seat):
        await seat.say("/help")
        await seat.sees("/theme")
        await seat.sees("anywhere in a question attaches the file")

    take_seat(scenario, size=(100, 50))


def test_every_command_is_in_the_palette(take_seat):
    async def scenario(seat):
        titles = {command.title for command in seat.app.get_system_commands(seat.app.screen)}

        assert {"/retry", "/theme", "/profile"} <= titles
        await seat.press("ctrl+p", *"/why", "enter")
        await seat.sees("nothing was answered yet")

    take_seat(scenario)


def test_the_page_keys_scroll_and_nothing_is_drawn_meanwhile(take_seat):
    async def scenario(seat):
        await seat.ask("count 900")
        await seat.say("slowly 100000")
        await seat.sees("word9 ")
        await seat.press("pageup")
        await seat.until(lambda: not seat.chat.transcript.follows)
        drawn = len(seat.turns[-1].query_one("Flowing").flow.text)
        before = len(seat.turns[-1].answer)
        await seat.until(lambda: len(seat.turns[-1].answer) > before + 100)
        assert drawn == len(seat.turns[-1].query_one("Flowing").flow.text)

        await seat.press("ctrl+end")
        seat.chat.stop()
        await seat.until(lambda: seat.turns[-1].is_over and not seat.turns[-1].query("Flowing"))
        await seat.sees("stopped, the partial is kept")

    take_seat(scenario)


def test_a_list_that_comes_and_goes_leaves_the_end_in_sight(take_seat):
    async def scenario(seat):
        await seat.ask("count 900")
        await seat.sees("stop: end")
        await seat.press("f4")
        await seat.sees("type to narrow")
        await seat.press("escape")
        await seat.until(lambda: not seat.chat.query(Picker))
        await seat.press("a", "ctrl+j", "b")
        await seat.sees("stop: end")
        await seat.pilot.pause()

        assert seat.chat.transcript.follows
        assert "stop: end" in seat.shown

    take_seat(scenario, size=(80, 16))
