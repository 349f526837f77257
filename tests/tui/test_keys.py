"""Every key of the TUI."""

from __future__ import annotations

from functools import partial

import pytest
from textual.events import Paste

from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.picker import Picker
from specchat.tui.preferences import Preferences
from specchat.tui.turn_widget import VersionSwitch


@pytest.fixture
def copied(monkeypatch):
    """The texts that were copied to the clipboard."""
    texts: list[str] = []

    def copy(_app, text):
        texts.append(text)
        return "terminal"

    monkeypatch.setattr("specchat.tui.clipboard.copy_text", copy)
    return texts


@pytest.fixture(autouse=True)
def slow_fingers(monkeypatch):
    """Two presses count as a double press on a slow machine, too."""
    monkeypatch.setattr("specchat.tui.chat_screen.DOUBLE_PRESS_SECONDS", 600.0)


async def two_turns(driver):
    await driver.ask("count 3")
    await driver.ask("write second")


@pytest.mark.full
def test_the_arrows_select_an_answer_and_a_line_shows_what_its_keys_do(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        assert "is selected" not in driver.shown
        await driver.press("shift+tab")
        assert driver.turns[1].has_focus
        await driver.press("up")
        assert driver.turns[0].has_focus
        await driver.wait_for_text("answer 1 of 2 is selected")
        await driver.press("down", "escape")
        assert driver.prompt.has_focus
        await driver.wait_until(lambda: "is selected" not in driver.shown)
        await driver.run_command("/select")
        await driver.wait_for_text("answer 2 of 2 is selected: F12 copy  c copy code  e edit question  r answer again")

    run_on_screen(scenario, preferences=Preferences({"copy": "f12"}))


@pytest.mark.full
def test_a_selected_answer_is_in_sight_from_its_question_on(run_on_screen):
    async def scenario(driver):
        for question in ("count 3", "count 900", "count 901"):
            await driver.ask(question)
        for question in ("count 901", "count 900", "count 3"):
            await driver.press("shift+tab")
            await driver.wait_for_text(f"› {question}")
            await driver.pilot.pause()
            assert f"› {question}" in driver.shown

    run_on_screen(scenario, size=(80, 24))


@pytest.mark.full
def test_y_copies_an_answer_c_its_code_and_control_c_the_selection(run_on_screen, copied):
    async def scenario(driver):
        await driver.submit("write ```python\nx = 1\n```")
        await driver.wait_until(lambda: driver.turns and driver.turns[-1].is_finished)
        await driver.press("shift+tab", "y", "c")
        await driver.wait_until(lambda: ["```python\nx = 1\n```", "x = 1\n"] == copied)
        await driver.press("escape")
        await driver.run_command("/copy")
        await driver.wait_until(lambda: len(copied) == 3)
        await driver.press(*"abc", "shift+left", "shift+left", "ctrl+c")
        assert "bc" == copied[-1]

    run_on_screen(scenario)


@pytest.mark.full
def test_e_rewords_the_last_request_and_escape_cancels_it(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        await driver.press("shift+tab", "e", "escape")
        assert "" == driver.prompt.text
        await driver.ask("write third")
        assert 3 == len(driver.turns)

        await driver.press("shift+tab", "e")
        assert "write third" == driver.prompt.text
        await driver.wait_for_text("this becomes another version of an earlier request")
        await driver.press("2", "enter")
        await driver.wait_until(
            lambda: [turn.answer for turn in driver.turns][-1:] == ["third2"] and driver.turns[-1].is_finished
        )
        assert ["count 3", "write second", "write third2"] == [turn.question for turn in driver.turns]
        assert [0, 1, 2] == [turn.position for turn in driver.turns]

    run_on_screen(scenario)


@pytest.mark.full
def test_an_edited_earlier_question_keeps_the_old_one_with_all_that_followed(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        await driver.press("shift+tab", "up", "e", "backspace", "4", "enter")
        await driver.wait_until(lambda: [turn.question for turn in driver.turns] == ["count 4"])
        await driver.wait_for_text("<2/2>")
        await driver.press("shift+tab", "left")
        await driver.wait_until(lambda: [turn.question for turn in driver.turns] == ["count 3", "write second"])
        await driver.wait_for_text("<1/2>")
        assert driver.turns[0].has_focus
        await driver.press("right")
        await driver.wait_until(lambda: [turn.question for turn in driver.turns] == ["count 4"])

    run_on_screen(scenario)


def test_escape_twice_goes_back_to_a_request_and_the_old_version_stays(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        session = driver.chat.presenter.session_id
        await driver.press("escape", "escape")
        await driver.wait_for_text("the old version stays")
        await driver.press("down", "enter")
        await driver.wait_until(lambda: driver.prompt.text == "count 3")
        await driver.press("backspace", "4", "enter")
        await driver.wait_until(
            lambda: [turn.question for turn in driver.turns] == ["count 4"] and driver.turns[-1].is_finished
        )

        assert session == driver.chat.presenter.session_id

    run_on_screen(scenario)


@pytest.mark.full
def test_a_request_that_is_no_longer_mounted_can_be_reworded(run_on_screen, monkeypatch):
    monkeypatch.setattr("specchat.tui.transcript_view.MAX_BLOCKS", 2)

    async def scenario(driver):
        for word in ("first", "second", "third"):
            await driver.run_command(f"write {word}")
            await driver.wait_until(
                lambda word=word: driver.turns and driver.turns[-1].answer == word and driver.turns[-1].is_finished
            )
        assert 2 == len(driver.turns)
        await driver.run_command("/rewind")
        await driver.wait_for_text("edit a request")
        await driver.press(*"first", "enter")
        await driver.wait_until(lambda: driver.prompt.text == "write first")
        await driver.press("2", "enter")
        await driver.wait_until(
            lambda: [turn.answer for turn in driver.turns] == ["first2"] and driver.turns[-1].is_finished
        )

    run_on_screen(scenario)


@pytest.mark.full
def test_escape_twice_does_not_rewind_while_there_is_text_or_an_answer(run_on_screen):
    async def scenario(driver):
        await driver.press("escape", "escape")
        assert not driver.chat.query(Picker)  # no requests yet
        await two_turns(driver)
        await driver.press("a", "escape", "escape")
        assert not driver.chat.query(Picker)
        await driver.press("backspace", "shift+tab", "escape", "escape")
        assert not driver.chat.query(Picker)  # the first one only moved the focus
        await driver.start_answer()
        await driver.run_command("/rewind")
        await driver.wait_for_text("an answer is in progress")
        await driver.press("escape")
        await driver.wait_until(lambda: driver.turns[-1].is_finished)

    run_on_screen(scenario)


@pytest.mark.full
@pytest.mark.parametrize("again", ["r", "/retry"])
def test_another_answer_hides_none_and_a_click_switches_between_them(run_on_screen, again):
    async def scenario(driver):
        before = (await driver.ask("something")).answer
        assert "<" not in driver.shown
        await (driver.run_command(again) if again.startswith("/") else driver.press("shift+tab", again))
        await driver.wait_for_text("<2/2>")
        after = driver.turns[-1].answer
        assert after not in ("", before)

        switch = driver.turns[-1].query_one(VersionSwitch)
        await driver.pilot.click(switch, offset=(0, 0))
        await driver.wait_until(lambda: [turn.answer for turn in driver.turns] == [before])
        await driver.wait_for_text("<1/2>")
        await driver.pilot.click(driver.turns[-1].query_one(VersionSwitch), offset=(4, 0))
        await driver.wait_until(lambda: [turn.answer for turn in driver.turns] == [after])

    run_on_screen(scenario)


@pytest.mark.full
def test_f_continues_in_a_copy_from_there(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        session = driver.chat.presenter.session_id
        await driver.press("shift+tab", "up", "f")
        await driver.wait_for_text("the original is unchanged")

        assert session != driver.chat.presenter.session_id
        assert ["count 3"] == [turn.question for turn in driver.turns]
        assert "turn 1" in (await driver.ask("count 1")).answer

    run_on_screen(scenario)


def test_a_prompt_sent_during_an_answer_is_queued_and_escape_gives_it_back(run_on_screen):
    async def scenario(driver):
        await driver.start_answer()
        await driver.run_command("write waited")
        await driver.wait_for_text("next: write waited")
        await driver.press("escape")
        await driver.wait_until(lambda: driver.turns[-1].is_finished)
        assert "write waited" == driver.prompt.text
        assert 1 == len(driver.turns)

        driver.prompt.clear_all()
        await driver.start_answer()
        await driver.run_command("write waited")
        driver.chat.stop_answer()
        await driver.wait_until(lambda: len(driver.turns) == 3 and driver.turns[-1].is_finished)
        assert "waited" == driver.turns[-1].answer
        assert "next:" not in driver.shown

    run_on_screen(scenario)


def test_control_c_stops_then_clears_then_leaves(run_on_screen):
    async def scenario(driver):
        await driver.start_answer()
        await driver.press("ctrl+c")
        await driver.wait_until(lambda: driver.turns[-1].is_finished)
        await driver.press("a", "ctrl+c")
        assert "" == driver.prompt.text
        await driver.press("ctrl+c")
        await driver.wait_for_text("Ctrl+C again quits")
        assert driver.app.is_running
        await driver.press("ctrl+c")
        await driver.wait_until(lambda: driver.app.return_code is not None or not driver.app.is_running)

    run_on_screen(scenario)


@pytest.mark.dear
@pytest.mark.parametrize("leave", ["ctrl+q", "/quit"])
def test_there_are_ways_out(run_on_screen, leave):
    async def scenario(driver):
        await (driver.run_command(leave) if leave.startswith("/") else driver.press(leave))
        await driver.wait_until(lambda: not driver.app.is_running)

    run_on_screen(scenario)


@pytest.mark.full
def test_lists_and_commands_change_the_settings_of_the_conversation(run_on_screen):
    async def scenario(driver):
        await driver.press("f4", "down", "escape")
        await driver.wait_until(lambda: not driver.chat.query(Picker))
        assert driver.prompt.has_focus
        assert [] == list(driver.chat.query(".note"))

        await driver.press("f4")
        await driver.wait_for_text("drafter, from the next request on")
        await driver.press(*"plain", "enter")
        await driver.wait_for_text("variant: plain")
        await driver.ask("count 2")
        await driver.run_command("/why")
        await driver.wait_for_text("no drafter (plain decoding), seed ")
        for command, shown in (("/top-p 0.9", "top-p: 0.9"), ("/system Be brief.", "system: Be brief.")):
            await driver.run_command(command)
            await driver.wait_for_text(shown)
        await driver.run_command("/temperature hot")
        await driver.wait_for_text("/temperature needs a number, or 'default', not 'hot'")
        await driver.press("f5")
        await driver.wait_for_text("from the next request on")
        await driver.press(*"edit", "enter")
        await driver.wait_until(lambda: "profile edit" in driver.shown.splitlines()[0])

    run_on_screen(scenario)


@pytest.mark.full
def test_f4_offers_what_can_run_now_and_says_why_the_rest_cannot(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 2")  # the models are loaded
        await driver.press("f4", *"mtp")
        await driver.wait_for_text("mtp  cannot run: needs a target whose checkpoint has MTP layers")
        await driver.press("enter")
        assert driver.chat.query(Picker)  # nothing is highlighted
        await driver.press(*(4 * ("backspace",)), *"suf", "enter")
        await driver.wait_for_text("variant: suffix")

    run_on_screen(scenario)


@pytest.mark.full
def test_f6_continues_with_another_model_which_is_in_the_title_then(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 2")
        await driver.press("f6")
        await driver.wait_for_text("model, from the next request on")
        await driver.press(*"embedded", "enter")
        await driver.wait_for_text("model embedded; it reads the conversation again")
        assert "chat · embedded" in driver.shown.splitlines()[0]
        assert "count 2=" in (await driver.ask("recall")).answer

    run_on_screen(scenario)


@pytest.mark.full
def test_f8_changes_the_colours_and_they_are_remembered(run_on_screen):
    async def scenario(driver):
        await driver.press("f8")
        await driver.wait_for_text("type to filter")
        await driver.press(*"nord", "enter")
        await driver.wait_until(lambda: driver.app.theme == "nord")

    run_on_screen(scenario)

    async def later(driver):
        assert "nord" == driver.app.theme

    run_on_screen(later)


@pytest.mark.full
def test_escape_closes_a_list_also_when_something_else_has_the_focus(run_on_screen):
    async def scenario(driver):
        await two_turns(driver)
        await driver.press("f4")
        driver.turns[0].focus()
        await driver.wait_until(lambda: driver.turns[0].has_focus)
        await driver.press("escape")
        await driver.wait_until(lambda: driver.prompt.has_focus)

        assert not driver.chat.query(Picker)

    run_on_screen(scenario)


def test_f1_begins_with_the_keys_one_needs_and_f1_escape_or_a_letter_closes_it(run_on_screen):
    async def scenario(driver):
        for way in ("f1", "escape"):
            await driver.press("f1")
            await driver.wait_for_text("The keys you need")
            assert "Enter           send" in driver.shown
            await driver.press(way)
            await driver.wait_until(lambda: "The keys you need" not in driver.shown)
        await driver.press("f1")
        await driver.wait_for_text("The keys you need")
        await driver.press("h", "i")
        await driver.wait_until(lambda: driver.prompt.text == "hi")

    run_on_screen(scenario)


@pytest.mark.full
def test_f1_shows_changed_keys_and_on_a_small_screen_every_key_is_reached_by_scrolling(run_on_screen):
    async def scenario(driver):
        await driver.press("f12")
        await driver.wait_for_text("The keys you need")
        assert "F12             all keys" in driver.shown
        await driver.press("pagedown", "pagedown", "pagedown", "pagedown")
        await driver.wait_for_text("In the inspector")
        await driver.press("f12")
        await driver.wait_until(lambda: "In the inspector" not in driver.shown)

    run_on_screen(scenario, size=(60, 18), preferences=Preferences({"help": "f12"}))


@pytest.mark.full
def test_letters_and_pastes_go_to_the_prompt_wherever_the_focus_is(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 3")
        await driver.pilot.click(driver.turns[0])
        await driver.press(*"rye")
        assert "rye" == driver.prompt.text
        await driver.press("tab", *"!")
        assert "rye!" == driver.prompt.text

        await driver.press("ctrl+c", "shift+tab", *"hey")  # h has no meaning for an answer, and ends the selection
        assert "hey" == driver.prompt.text
        assert driver.prompt.has_focus
        await driver.press("ctrl+c", "shift+tab")
        driver.app.post_message(Paste("pasted text"))
        await driver.wait_until(lambda: driver.prompt.text == "pasted text")
        assert 1 == len(driver.turns)

    run_on_screen(scenario)


def test_help_lists_the_commands_of_every_front_end_and_of_the_screen(run_on_screen):
    async def scenario(driver):
        await driver.run_command("/help")
        await driver.wait_for_text("/theme")
        await driver.wait_for_text("anywhere in a request attaches the file")

    run_on_screen(scenario, size=(100, 90))


@pytest.mark.full
def test_a_tall_note_is_shown_from_its_beginning_also_when_it_is_laid_out_late(run_on_screen, monkeypatch):
    async def scenario(driver):
        transcript = driver.chat.transcript
        after_refresh = transcript.call_after_refresh

        def before_layout(call, *arguments, **named):
            return (call if call == transcript.show_beginning else partial(after_refresh, call))(*arguments, **named)

        with monkeypatch.context() as busy:  # as on a machine where the next refresh comes before the layout
            busy.setattr(transcript, "call_after_refresh", before_layout)
            await transcript.add_note("\n".join(f"row {number}." for number in range(60)))
        await driver.wait_for_text("row 12.")

        await driver.settle()
        assert "row 0." in driver.shown and not transcript.is_following

    run_on_screen(scenario, size=(80, 24))


@pytest.mark.full
def test_every_command_is_in_the_palette(run_on_screen):
    async def scenario(driver):
        titles = {command.title for command in driver.app.get_system_commands(driver.app.screen)}

        assert {"/retry", "/theme", "/profile"} <= titles
        await driver.press("ctrl+p", *"/why", "enter")
        await driver.wait_for_text("this conversation has no answer yet")

    run_on_screen(scenario)


@pytest.mark.full
def test_the_page_keys_scroll_and_no_line_moves_until_the_end_is_in_sight_again(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 900")
        await driver.start_answer(words=10)
        driver.chat.action_scroll(-1)
        assert not driver.chat.transcript.is_following  # at once: text that comes now must not scroll back
        await driver.press("pageup")
        place, before = driver.chat.transcript.scroll_y, len(driver.turns[-1].answer)
        await driver.wait_until(lambda: len(driver.turns[-1].answer) > before + 100)
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].is_finished)
        assert place == driver.chat.transcript.scroll_y
        assert not driver.turns[-1].is_final

        await driver.press("ctrl+end")
        await driver.wait_for_final_turn()
        await driver.wait_for_text("stopped, the partial answer is kept")

    run_on_screen(scenario)


@pytest.mark.full
def test_a_list_that_comes_and_goes_leaves_the_end_in_sight(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 900")
        await driver.wait_for_text(" tokens · ")
        await driver.press("f4")
        await driver.wait_for_text("type to filter")
        await driver.press("escape")
        await driver.wait_until(lambda: not driver.chat.query(Picker))
        await driver.press("a", "ctrl+j", "b")
        await driver.wait_for_text(" tokens · ")
        await driver.pilot.pause()

        assert driver.chat.transcript.is_following
        assert " tokens · " in driver.shown

    run_on_screen(scenario, size=(80, 16))


@pytest.mark.full
def test_a_private_chat_keeps_versions_as_well(run_on_screen):
    async def scenario(driver):
        await driver.ask("write one")
        await driver.press("shift+tab", "r")
        await driver.wait_for_text("<2/2>")
        await driver.press("shift+tab", "left")
        await driver.wait_for_text("<1/2>")

    run_on_screen(scenario, session_request=SessionRequest(is_stored=False, settings=read_settings()))
