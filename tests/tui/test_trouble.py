"""What must not go wrong: small screens, long answers, long conversations, hosts that die, disks that refuse."""

from __future__ import annotations

import asyncio
import sys

import pytest

from specchat.chat.history import StoredAnswer, Thread
from specchat.errors import HostError
from specchat.host import spawn
from specchat.host.client import SessionRequest
from specchat.host.history_writer import HistoryWriter
from specchat.tui.glyphs import ASCII
from specchat.tui.picker import Picker
from tests.host.conftest import kill_host

pytestmark = [pytest.mark.usefixtures("runtime"), pytest.mark.full]


@pytest.fixture(autouse=True)
def without_grace(monkeypatch):
    monkeypatch.setattr("specchat.tui.choice_lists.GRACE_SECONDS", 0.0)


def test_a_host_that_is_killed_keeps_the_partial_and_is_started_again(take_seat):
    async def scenario(seat):
        await seat.say("slowly 800")
        await seat.sees("word9 ")
        await asyncio.to_thread(kill_host)
        await seat.sees("ask the question again")
        assert seat.turns[0].answer.startswith("word0 word1 ")
        assert seat.turns[0].is_over

        await seat.press("enter")
        await seat.until(lambda: seat.turns and "seed" in seat.turns[0].answer and seat.turns[0].is_over)
        assert 1 == len(seat.turns)

    take_seat(scenario)


def test_a_host_that_is_killed_before_anything_was_said_is_not_missed(take_seat):
    async def scenario(seat):
        await asyncio.to_thread(kill_host)

        assert "seed" in (await seat.ask("count 2")).answer
        assert "seed" in (await seat.ask("count 2")).answer

    take_seat(scenario)


def test_the_partial_of_a_killed_host_may_be_left(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word9 ")
        await asyncio.to_thread(kill_host)
        await seat.sees("ask the question again")
        await seat.press("escape")
        await seat.until(lambda: not seat.chat.query(Picker))
        await seat.sees("failed: the engine process was killed")
        await seat.ask("count 2")

        assert ["slowly 100000", "count 2"] == [turn.question for turn in seat.turns]

    take_seat(scenario)


def test_an_engine_that_cannot_be_started_is_told_and_tried_again(take_seat, monkeypatch):
    works = spawn.HOST_COMMAND
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-c", "print('no')"))

    async def scenario(seat):
        await seat.sees("no engine: ")
        monkeypatch.setattr(spawn, "HOST_COMMAND", works)
        await seat.press("enter")
        await seat.until(lambda: seat.chat.hearing.session)
        await seat.ask("count 2")

    take_seat(scenario, is_ready=False)


def test_a_question_may_be_asked_before_the_engine_is_there(take_seat):
    async def scenario(seat):
        await seat.say("count 3")
        await seat.until(lambda: seat.turns and seat.turns[0].is_over)

        assert "seed" in seat.turns[0].answer
        assert 0 == seat.turns[0].position

    take_seat(scenario, is_ready=False)


def test_loading_is_shown_and_can_be_stopped(take_seat):
    async def scenario(seat):
        await seat.until(lambda: seat.status.startswith("loading the models"))
        await seat.say("count 3")
        await seat.until(lambda: seat.status.startswith("loading target"))
        await seat.press("escape")
        await seat.sees("stopped, the partial is kept")

    take_seat(scenario, wish=SessionRequest(profile="endless"), is_ready=False)


def test_reading_the_prompt_is_shown_and_can_be_stopped(take_seat):
    async def scenario(seat):
        await seat.say("read")
        await seat.until(lambda: seat.status.startswith("prefill 1/3 tok 33%"))
        await seat.press("escape")
        await seat.sees("stopped")

    take_seat(scenario)


@pytest.mark.parametrize(("question", "said"), [("fail", "failed: too long"), ("crash", "failed: the engine failed")])
def test_what_goes_wrong_is_told_under_the_question(take_seat, question, said):
    async def scenario(seat):
        await seat.say(question)
        await seat.sees(said)
        assert (await seat.ask("count 2")).answer

    take_seat(scenario)


def test_a_file_that_cannot_be_attached_is_told(take_seat, tmp_path):
    (tmp_path / "binary").write_bytes(b"\0")

    async def scenario(seat):
        await seat.say(f"look @{tmp_path / 'binary'}")
        await seat.sees("a binary file")
        assert seat.turns[0].position is None
        assert 0 == (await seat.ask("count 2")).position

    take_seat(scenario, size=(140, 30))


def test_a_tiny_screen_has_a_prompt_and_a_status(take_seat):
    async def scenario(seat):
        await seat.ask("count 4")
        lines = seat.shown.splitlines()

        assert 5 == len(lines)
        assert lines[-2].startswith(" ›")
        assert lines[-1].startswith(" lookup2 50%")
        assert all(len(line) <= 20 for line in lines)
        await seat.press("slash", "escape", "f4", "escape", "ctrl+r", "escape")

    take_seat(scenario, size=(20, 5))


async def more_is_written(turn, seat):
    before = len(turn.answer)
    await seat.until(lambda: len(turn.answer) > before)


def test_the_screen_may_change_its_size_while_an_answer_is_written(take_seat):
    async def scenario(seat):
        await seat.say("slowly 100000")
        await seat.sees("word3 ")
        for size in ((40, 12), (120, 40), (20, 5), (80, 24)):
            await seat.pilot.resize_terminal(*size)
            await more_is_written(seat.turns[0], seat)
        seat.chat.stop()
        await seat.until(lambda: seat.turns[0].is_over)
        await seat.sees("stopped, the partial is kept")

        words = seat.turns[0].answer.split()
        assert [f"word{number}" for number in range(len(words))] == words

    take_seat(scenario, size=(80, 24))


def test_an_answer_of_a_megabyte_holds_nothing_up(take_seat):
    async def scenario(seat):
        await seat.say("big 1000000")
        await seat.until(lambda: seat.turns and seat.turns[0].is_over)

        assert 1_000_000 == len(seat.turns[0].answer)
        await seat.until(lambda: "x" * 90 in seat.shown)

    take_seat(scenario)


def test_ascii_is_ascii_everywhere(take_seat):
    async def scenario(seat):
        await seat.ask("count 4")

        assert seat.shown.isascii()
        assert "auto>lookup K=2 acc=50% ses=50% len=2.0" in seat.shown

    take_seat(scenario, glyphs=ASCII)


def long_conversation(path, count: int) -> None:
    writer = HistoryWriter(path)
    thread, parent = Thread("long", "a long talk", folder="", profile="chat"), None
    flush, writer.flush = writer.flush, lambda: None
    for number in range(count):
        turn = f"turn{number}"
        writer.start_turn(thread, turn, parent, {"text": f"question {number}"})
        writer.finish_turn(
            turn, StoredAnswer(f"answer **{number}** " * 20, (1, 2, 3)), "stop", {"prompt_tokens": 3, "tokens": 4}
        )
        parent = turn
    writer.flush = flush
    writer.flush()
    writer.close()


def test_a_conversation_of_two_thousand_questions_opens_at_its_end(take_seat, runtime):
    long_conversation(runtime / "history.db", 2000)

    async def scenario(seat):
        await seat.sees("question 1999")
        assert 12 == len(seat.turns)
        assert 1999 == seat.turns[-1].position
        await seat.press("ctrl+home")
        await seat.sees("1,968 earlier questions")
        assert 32 == len(seat.turns)

        await seat.ask("count 2")
        assert 2000 == seat.turns[-1].position

    take_seat(scenario, wish=SessionRequest(session_id="long"))


def test_a_history_that_cannot_be_read_is_told_and_the_talk_goes_on(take_seat, monkeypatch):
    def locked(_path):
        raise HostError("the history cannot be read: database is locked")

    monkeypatch.setattr("specchat.host.client.HistoryReader", locked)

    async def scenario(seat):
        await seat.sees("database is locked")
        assert "seed" in (await seat.ask("count 2")).answer

    take_seat(scenario)
