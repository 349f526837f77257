"""The inspector: the source of each token, of streaming and stored answers, and on small screens."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from specchat.chat.events import CommittedToken, StepDone
from specchat.chat.step_records import Inspection
from specchat.drawing.glyphs import ASCII
from specchat.host.spawn import history_path
from specchat.tui.inspector import Inspector, InspectorController
from specchat.tui.token_view import TokenText, TokenView

WIDE, SMALL = (130, 30), (90, 24)


def inspector(driver) -> Inspector:
    return driver.chat.query_one(Inspector)


def inspected_text(driver) -> str:
    """The text of the inspected answer."""
    return "".join(span.text for span in inspector(driver).inspection.spans)


def word_styles(driver) -> dict[str, object]:
    """The words of the inspected answer, and their styles."""
    text = driver.chat.query_one(TokenText)
    strips = [text.render_line(y) for y in range(text.size.height)]
    return {segment.text.strip(): segment.style for strip in strips for segment in strip if segment.text.strip()}


async def inspected(driver, question: str = "guess 3") -> Inspector:
    await driver.ask(question)
    await driver.press("f3")
    await driver.wait_until(lambda: isinstance(driver.app.focused, TokenView) and inspector(driver).inspection.steps)
    return inspector(driver)


def test_f3_shows_the_source_of_each_token_and_f3_closes_it(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.wait_for_text("drafted 6  accepted 3  acceptance 50% (by depth 100% 0%)")
        await driver.wait_for_text("by source: lookup 50% · target 50%")
        assert driver.shown.count("word0 so word1 so word2 so") == 2  # the transcript is beside it
        assert word_styles(driver)["word1"].underline and not word_styles(driver)["word1"].bold
        assert word_styles(driver)["so"].bold and word_styles(driver)["so"].underline2
        await driver.press("f3")
        assert not driver.chat.query(Inspector)
        assert driver.prompt.has_focus

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_the_arrows_go_from_step_to_step(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.wait_for_text("step 1/3  lookup, draft  drafted 2 → accepted 1")
        await driver.wait_for_text('→ sampled "so " (draft "no ")')
        await driver.wait_for_text("draft 1.0 ms · verify 2.0 ms")
        await driver.press("left")
        await driver.wait_for_text("step 1/3")
        await driver.press("right")
        await driver.wait_for_text("step 2/3")
        assert [word for word, look in word_styles(driver).items() if look.reverse] == ["word1"]
        await driver.press("end", "right")
        await driver.wait_for_text("step 3/3")
        await driver.press("home")
        await driver.wait_for_text("step 1/3")

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_a_click_goes_to_the_step_of_a_token(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.pilot.click(TokenView, offset=(20, 0))
        await driver.wait_for_text("step 3/3")

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_s_shows_step_boundaries_and_d_all_draft_tokens(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.press("s", "d")
        await driver.wait_for_text("│word0 so │word1 so │word2 so")
        await driver.wait_for_text("[+word0 ][-no ]")
        await driver.press("s", "d")
        await driver.wait_until(lambda: "│word1" not in driver.shown and "[-no ]" not in driver.shown)

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_an_answer_can_be_watched_while_it_is_written(run_on_screen):
    async def scenario(driver):
        await driver.start_answer()
        await driver.press("f3")
        await driver.wait_until(lambda: driver.chat.query(Inspector))
        await driver.wait_until(lambda: len(inspector(driver).inspection.steps) > 5)
        before = len(inspector(driver).inspection.steps)
        await driver.wait_until(lambda: len(inspector(driver).inspection.steps) > before + 5)
        assert inspector(driver)._step_index == len(inspector(driver).inspection.steps) - 1
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].is_finished)
        await driver.wait_until(lambda: inspected_text(driver).startswith(driver.turns[-1].answer))

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_i_inspects_an_earlier_answer_also_a_stopped_one(run_on_screen):
    async def scenario(driver):
        await driver.start_answer()
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].is_finished)
        await driver.ask("count 2")
        await driver.press("shift+tab", "up", "i")
        await driver.wait_for_text("turn 1  slowly 100000")
        await driver.wait_until(lambda: inspector(driver).inspection.steps)

        assert inspected_text(driver).startswith(driver.turns[0].answer) and driver.turns[0].answer
        await driver.press("escape")
        assert driver.prompt.has_focus

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_the_newest_answer_is_followed_to_the_next_question(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        driver.prompt.focus()
        await driver.ask("count 5")
        await driver.wait_for_text("turn 2  count 5")
        await driver.wait_for_text("steps 5")

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_a_stored_conversation_is_inspected_after_it_is_opened_again(run_on_screen):
    async def first(driver):
        await driver.ask("guess 3")
        sessions.append(driver.chat.presenter.session_id)

    async def second(driver):
        worker = driver.chat._session_worker
        worker.submit(worker.conversation.open, sessions[0])
        await driver.wait_until(lambda: driver.turns)
        await driver.press("f3")
        await driver.wait_for_text("drafted 6  accepted 3")
        driver.prompt.focus()  # Escape in the inspector would close it as well
        await driver.run_command("/new")
        await driver.wait_until(lambda: not driver.chat.query(Inspector))

    sessions: list[str] = []
    run_on_screen(first)
    run_on_screen(second, size=WIDE)


@pytest.mark.full
def test_an_answer_without_stored_steps_shows_a_notice(runtime, run_on_screen, monkeypatch):
    async def first(driver):
        await driver.ask("guess 3")
        sessions.append(driver.chat.presenter.session_id)
        with closing(sqlite3.connect(history_path())) as database:
            database.execute("DELETE FROM steps")
            database.commit()

    async def second(driver):
        worker = driver.chat._session_worker
        worker.submit(worker.conversation.open, sessions[0])
        await driver.wait_until(lambda: driver.turns)
        await driver.run_command("/inspect")
        await driver.wait_until(lambda: fetched)
        await driver.wait_for_text("no steps are recorded for this answer")
        await driver.press("right", "s", "d", "end")
        await driver.wait_for_text("Esc back")

    def recorded(controller: InspectorController, position: int, response: object) -> None:
        show_fetched_steps(controller, position, response)
        fetched.append(response)

    show_fetched_steps, fetched = InspectorController._show_fetched_steps, list[object]()
    monkeypatch.setattr(InspectorController, "_show_fetched_steps", recorded)
    sessions: list[str] = []
    run_on_screen(first)
    run_on_screen(second, size=WIDE)


@pytest.mark.full
def test_on_a_small_screen_it_lies_over_the_conversation(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.wait_until(lambda: driver.shown.count("word0 so") == 1)
        assert inspector(driver).size.width == SMALL[0] - 2
        await driver.pilot.resize_terminal(*WIDE)
        await driver.wait_until(lambda: driver.shown.count("word0 so") == 2)
        await driver.press("escape")
        await driver.wait_until(lambda: not driver.chat.query(Inspector))

    run_on_screen(scenario, size=SMALL)


@pytest.mark.full
def test_on_a_low_screen_the_tokens_keep_most_of_it(run_on_screen):
    async def scenario(driver):
        panel = await inspected(driver)
        await driver.press("d")
        await driver.wait_for_text("word0 so")
        assert panel.token_view.size.height >= 5

    run_on_screen(scenario, size=(60, 10))


@pytest.mark.full
def test_in_ascii_every_token_has_its_mark(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.wait_for_text("[+word0 ][!so ][+word1 ][!so ]")
        await driver.press("s", "d")
        assert driver.shown.isascii()

    run_on_screen(scenario, size=WIDE, glyphs=ASCII)


@pytest.mark.full
def test_without_colours_the_kinds_still_differ(run_on_screen, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(driver):
        await inspected(driver)
        strips = driver.app.screen._compositor.render_strips()
        colours = {segment.style.color for strip in strips for segment in strip if segment.style}
        triplets = [colour.get_truecolor() for colour in colours if colour]
        assert all(max(each) - min(each) <= 1 for each in triplets)
        shown = {segment.text.strip(): segment.style for strip in strips for segment in strip}
        assert shown["accepted draft"].underline and shown["correction"].bold
        assert not shown["target"].underline

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_other_colours_are_those_of_the_theme(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        before = word_styles(driver)["word1"].color
        driver.app.theme = "specchat-day"
        await driver.wait_until(lambda: word_styles(driver)["word1"].color != before)

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_of_a_very_long_answer_only_visible_rows_are_drawn(run_on_screen, monkeypatch):
    drawn, draw = list[int](), TokenText.draw_row

    def counted(text: TokenText, y: int, width: int):
        drawn.append(y)
        return draw(text, y, width)

    monkeypatch.setattr(TokenText, "draw_row", counted)
    step = StepDone((1,), (0,), (*(CommittedToken(1, b"token ", "lookup") for _ in range(4)),), 0.001, 0.002)

    async def scenario(driver):
        panel = await inspected(driver)
        steps = driver.chat.presenter.steps = [step] * 1250
        driver.chat._inspector_controller.update()
        await driver.wait_for_text("step 1/1250")
        rows, height = len(panel.token_view.text.token_rows.rows), panel.token_view.size.height
        assert panel.inspection.committed_count == 5000 and rows > 400
        assert len(drawn) <= 4 * height
        drawn.clear()
        await driver.press("end")
        await driver.wait_for_text("step 1250/1250")
        for count in range(1251, 1256):
            steps.append(step)
            driver.chat._inspector_controller.update()
            await driver.wait_for_text(f"step {count}/{count}")

        assert len(panel.token_view.text.token_rows.rows) > rows
        assert len(drawn) <= 10 * height

    run_on_screen(scenario, size=WIDE)


@pytest.mark.full
def test_the_page_keys_move_what_is_inspected(run_on_screen):
    async def scenario(driver):
        panel = await inspected(driver, "guess 400")
        await driver.press("pagedown")
        await driver.wait_until(lambda: panel.token_view.scroll_offset.y > 5)
        await driver.press("pageup")
        await driver.wait_until(lambda: panel.token_view.scroll_offset.y == 0)
        assert driver.chat.transcript.is_following

    run_on_screen(scenario, size=WIDE)


@pytest.mark.parametrize("wanted", ["f3", pytest.param("/inspect", marks=pytest.mark.full)])
def test_an_empty_conversation_has_nothing_to_inspect(run_on_screen, wanted):
    async def scenario(driver):
        await (driver.run_command(wanted) if wanted.startswith("/") else driver.press(wanted))
        await driver.wait_for_text("no requests yet")
        await driver.press("right", "escape")
        await driver.wait_until(lambda: not driver.chat.query(Inspector))

    run_on_screen(scenario, size=WIDE)


def test_tokens_of_a_split_character_are_drawn_once():
    steps = [
        StepDone((), (), (CommittedToken(1, b"\xc3", "target"),), 0, 0),
        StepDone((), (), (CommittedToken(2, b"\xa9", "x"),), 0, 0),
    ]

    assert ["é"] == [span.text for span in Inspection(steps).spans]


@pytest.mark.full
def test_f1_lists_the_keys_of_the_inspector(run_on_screen):
    async def scenario(driver):
        await inspected(driver)
        await driver.press("f1")
        for what in (
            "previous step",
            "step boundaries",
            "all draft tokens",
            "inspect the answer",
            "mouse: app or terminal",
        ):
            await driver.wait_for_text(what)

    run_on_screen(scenario, size=(160, 60))


@pytest.mark.full
def test_probabilities_are_shown_for_answers_asked_while_it_is_open_and_computed_for_no_other(run_on_screen):
    async def scenario(driver):
        await driver.ask("guess 3")
        assert [None, None] == [token.probability for token in driver.chat.presenter.steps[0].committed_tokens]
        await driver.press("f3")
        await driver.wait_for_text("no probabilities; ask while this is open")
        await driver.press("tab")
        await driver.ask("guess 2")
        await driver.wait_for_text('"so " 25%   "yes " 50%')
        await driver.press("f3")
        await driver.ask("guess 1")
        assert [None, None] == [token.probability for token in driver.chat.presenter.steps[0].committed_tokens]

    run_on_screen(scenario, size=(130, 40))
