"""The inspector: who guessed each token of an answer, while it is written, of before, and on small screens."""

from __future__ import annotations

import sqlite3
from contextlib import closing

import pytest

from specchat.chat.events import CommittedToken, StepDone
from specchat.chat.step_records import Inspection
from specchat.host.spawn import history_path
from specchat.tui.glyphs import ASCII
from specchat.tui.inspector import Inspector
from specchat.tui.token_view import TokenView

WIDE, SMALL = (130, 30), (90, 24)


def inspector(seat) -> Inspector:
    return seat.chat.query_one(Inspector)


def said(seat) -> str:
    """The text of all that is inspected."""
    return "".join(span.text for span in inspector(seat).inspection.spans)


def looks(seat) -> dict[str, object]:
    """The words of the inspected answer, and how they look."""
    view = seat.chat.query_one(TokenView)
    strips = [view.render_line(y) for y in range(view.size.height)]
    return {segment.text: segment.style for strip in strips for segment in strip if segment.text.strip()}


async def inspected(seat, question: str = "guess 3") -> Inspector:
    await seat.ask(question)
    await seat.press("f3")
    await seat.until(lambda: isinstance(seat.app.focused, TokenView) and inspector(seat).inspection.steps)
    return inspector(seat)


def test_f3_shows_who_guessed_each_token_and_f3_closes_it(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.sees("drafted 6  accepted 3 (50%)  steps 3  τ 2.0")
        await seat.sees("by source: lookup 50% · target 50%")
        assert seat.shown.count("word0 so word1 so word2 so") == 2  # the answer stands beside it
        assert looks(seat)["word1"].underline and not looks(seat)["word1"].bold
        assert looks(seat)["so"].bold and looks(seat)["so"].underline2
        await seat.press("f3")
        assert not seat.chat.query(Inspector)
        assert seat.prompt.has_focus

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_the_arrows_go_from_step_to_step(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.sees("step 1/3  lookup, draft  drafted 2 → accepted 1")
        await seat.sees('→ wrote "so " (draft "no ")')
        await seat.sees("draft 1.0 ms · verify 2.0 ms")
        await seat.press("left")
        await seat.sees("step 1/3")
        await seat.press("right")
        await seat.sees("step 2/3")
        assert [word for word, look in looks(seat).items() if look.reverse] == ["word1"]
        await seat.press("end", "right")
        await seat.sees("step 3/3")
        await seat.press("home")
        await seat.sees("step 1/3")

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_a_click_goes_to_the_step_of_a_token(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.pilot.click(TokenView, offset=(20, 0))
        await seat.sees("step 3/3")

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_s_shows_where_steps_begin_and_d_every_guess(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.press("s", "d")
        await seat.sees("│word0 so │word1 so │word2 so")
        await seat.sees("[+word0 ][-no ]")
        await seat.press("s", "d")
        await seat.until(lambda: "│word1" not in seat.shown and "[-no ]" not in seat.shown)

    take_seat(scenario, size=WIDE)


def test_x_writes_a_picture_and_never_over_another(take_seat, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def scenario(seat):
        await inspected(seat)
        await seat.press("x", "x")
        await seat.until((tmp_path / "inspected-2.svg").exists)

        drawn = (tmp_path / "inspected-1.svg").read_text()
        assert drawn.startswith("<svg") and "word2" in drawn and "text-decoration: underline" in drawn

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_an_answer_can_be_watched_while_it_is_written(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        await seat.press("f3")
        await seat.until(lambda: seat.chat.query(Inspector))
        await seat.until(lambda: len(inspector(seat).inspection.steps) > 5)
        before = len(inspector(seat).inspection.steps)
        await seat.until(lambda: len(inspector(seat).inspection.steps) > before + 5)
        assert inspector(seat)._step_index == len(inspector(seat).inspection.steps) - 1
        seat.chat.stop()
        await seat.until(lambda: seat.turns[-1].is_over)
        await seat.until(lambda: said(seat).startswith(seat.turns[-1].answer))

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_i_looks_into_an_earlier_answer_also_one_that_was_stopped(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word1 ")
        seat.chat.stop()
        await seat.until(lambda: seat.turns[-1].is_over)
        await seat.ask("count 2")
        await seat.press("shift+tab", "up", "i")
        await seat.sees("turn 1  slowly 100000")
        await seat.until(lambda: inspector(seat).inspection.steps)

        assert said(seat).startswith(seat.turns[0].answer) and seat.turns[0].answer
        await seat.press("escape")
        assert seat.prompt.has_focus

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_the_newest_answer_is_followed_to_the_next_question(take_seat):
    async def scenario(seat):
        await inspected(seat)
        seat.prompt.focus()
        await seat.ask("count 5")
        await seat.sees("turn 2  count 5")
        await seat.sees("steps 5")

    take_seat(scenario, size=WIDE)


def test_a_conversation_of_before_is_looked_into_after_it_is_opened_again(take_seat):
    async def first(seat):
        await seat.ask("guess 3")
        sessions.append(seat.chat.hearing.session)

    async def second(seat):
        seat.chat._partner.open(sessions[0])
        await seat.until(lambda: seat.turns)
        await seat.press("f3")
        await seat.sees("drafted 6  accepted 3")
        await seat.say("/new")
        await seat.until(lambda: not seat.chat.query(Inspector))

    sessions: list[str] = []
    take_seat(first)
    take_seat(second, size=WIDE)


@pytest.mark.full
def test_an_answer_without_a_record_says_so(runtime, take_seat):
    async def first(seat):
        await seat.ask("guess 3")
        sessions.append(seat.chat.hearing.session)
        with closing(sqlite3.connect(history_path())) as database:
            database.execute("DELETE FROM steps")
            database.commit()

    async def second(seat):
        seat.chat._partner.open(sessions[0])
        await seat.until(lambda: seat.turns)
        await seat.say("/inspect")
        await seat.sees("nothing is known of the steps of this answer")
        await seat.press("right", "s", "d", "end")
        await seat.sees("Esc back")

    sessions: list[str] = []
    take_seat(first)
    take_seat(second, size=WIDE)


@pytest.mark.full
def test_on_a_small_screen_it_lies_over_the_conversation(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.until(lambda: seat.shown.count("word0 so") == 1)
        assert inspector(seat).size.width == SMALL[0] - 2
        await seat.pilot.resize_terminal(*WIDE)
        await seat.until(lambda: seat.shown.count("word0 so") == 2)
        await seat.press("escape")
        await seat.until(lambda: not seat.chat.query(Inspector))

    take_seat(scenario, size=SMALL)


@pytest.mark.full
def test_on_a_low_screen_the_tokens_keep_most_of_it(take_seat):
    async def scenario(seat):
        panel = await inspected(seat)
        await seat.press("d")
        await seat.sees("word0 so")
        assert panel.token_view.size.height >= 5

    take_seat(scenario, size=(60, 10))


@pytest.mark.full
def test_in_ascii_every_token_has_its_mark(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.sees("[+word0 ][!so ][+word1 ][!so ]")
        await seat.press("s", "d")
        assert seat.shown.isascii()

    take_seat(scenario, size=WIDE, glyphs=ASCII)


@pytest.mark.full
def test_without_colours_the_kinds_can_still_be_told_apart(take_seat, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")

    async def scenario(seat):
        await inspected(seat)
        strips = seat.app.screen._compositor.render_strips()
        colours = {segment.style.color for strip in strips for segment in strip if segment.style}
        triplets = [colour.get_truecolor() for colour in colours if colour]
        assert all(max(each) - min(each) <= 1 for each in triplets)
        shown = {segment.text.strip(): segment.style for strip in strips for segment in strip}
        assert shown["accepted draft"].underline and shown["correction"].bold
        assert not shown["target"].underline

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_other_colours_are_those_of_the_theme(take_seat):
    async def scenario(seat):
        await inspected(seat)
        before = looks(seat)["word1"].color
        seat.app.theme = "specchat-day"
        await seat.until(lambda: looks(seat)["word1"].color != before)

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_of_a_very_long_answer_only_what_is_in_sight_is_drawn(take_seat, monkeypatch):
    drawn, draw = list[int](), TokenView._draw_row

    def counted(view: TokenView, number: int):
        drawn.append(number)
        return draw(view, number)

    monkeypatch.setattr(TokenView, "_draw", counted)
    step = StepDone((1,), (0,), (*(CommittedToken(1, b"token ", "lookup") for _ in range(4)),), 0.001, 0.002)

    async def scenario(seat):
        panel = await inspected(seat)
        steps = seat.chat.hearing.steps = [step] * 1250
        seat.chat._inspecting.follow()
        await seat.sees("step 1/1250")
        rows, height = len(panel.token_view._token_rows.rows), panel.token_view.size.height
        assert panel.inspection.committed_count == 5000 and rows > 400
        assert len(drawn) <= 4 * height
        drawn.clear()
        await seat.press("end")
        await seat.sees("step 1250/1250")
        for count in range(1251, 1256):
            steps.append(step)
            seat.chat._inspecting.follow()
            await seat.sees(f"step {count}/{count}")

        assert len(panel.token_view._token_rows.rows) > rows
        assert len(drawn) <= 10 * height

    take_seat(scenario, size=WIDE)


@pytest.mark.full
def test_the_page_keys_move_what_is_inspected(take_seat):
    async def scenario(seat):
        panel = await inspected(seat, "guess 400")
        await seat.press("pagedown")
        await seat.until(lambda: panel.token_view.scroll_offset.y > 5)
        await seat.press("pageup")
        await seat.until(lambda: panel.token_view.scroll_offset.y == 0)
        assert seat.chat.transcript.follows

    take_seat(scenario, size=WIDE)


@pytest.mark.parametrize("wanted", ["f3", pytest.param("/inspect", marks=pytest.mark.full)])
def test_before_anything_was_asked_there_is_nothing_to_see(take_seat, wanted, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)

    async def scenario(seat):
        await (seat.say(wanted) if wanted.startswith("/") else seat.press(wanted))
        await seat.sees("nothing was asked yet")
        await seat.press("right", "x", "escape")
        await seat.until(lambda: not seat.chat.query(Inspector))
        assert not list(tmp_path.glob("*.svg"))

    take_seat(scenario, size=WIDE)


def test_tokens_of_a_split_character_are_drawn_once():
    steps = [
        StepDone((), (), (CommittedToken(1, b"\xc3", "target"),), 0, 0),
        StepDone((), (), (CommittedToken(2, b"\xa9", "x"),), 0, 0),
    ]

    assert ["é"] == [span.text for span in Inspection(steps).spans]


@pytest.mark.full
def test_f1_lists_the_keys_of_the_inspector(take_seat):
    async def scenario(seat):
        await inspected(seat)
        await seat.press("f1")
        for what in ("step before", "where steps begin", "every guess", "who guessed it", "whose the mouse is"):
            await seat.sees(what)

    take_seat(scenario, size=(160, 60))
