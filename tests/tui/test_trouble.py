"""Faults and extremes: small screens, long answers, long conversations, hosts that die, unreadable files."""

from __future__ import annotations

import asyncio
import sys
from threading import Event

import pytest

from specchat.drawing.glyphs import ASCII
from specchat.errors import HostError
from specchat.history.history_reader import StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host import spawn
from specchat.host.client import SessionRequest
from specchat.profile.settings import read_settings
from specchat.tui.open_conversation import OpenConversation
from specchat.tui.picker import Picker
from tests.host.conftest import PATIENT_SECONDS, kill_host

pytestmark = pytest.mark.usefixtures("runtime")


@pytest.fixture(autouse=True)
def without_grace(monkeypatch):
    monkeypatch.setattr("specchat.tui.picker.GRACE_SECONDS", 0.0)


def test_a_host_that_is_killed_keeps_the_partial_and_is_started_again(run_on_screen):
    async def scenario(driver):
        await driver.start_answer("slowly 400", words=10)
        await asyncio.to_thread(kill_host)
        await driver.wait_for_text("send the request again")
        await driver.wait_until(lambda: driver.turns[0].is_finished)
        assert driver.turns[0].answer.startswith("word0 word1 ")

        await driver.press("enter")
        await driver.wait_until(
            lambda: driver.turns and "seed" in driver.turns[0].answer and driver.turns[0].is_finished
        )
        assert 1 == len(driver.turns)

    run_on_screen(scenario)


@pytest.mark.full
def test_a_host_that_is_killed_before_the_first_request_is_restarted(run_on_screen):
    async def scenario(driver):
        await asyncio.to_thread(kill_host)

        assert "seed" in (await driver.ask("count 2")).answer
        assert "seed" in (await driver.ask("count 2")).answer

    run_on_screen(scenario)


@pytest.mark.full
def test_the_partial_answer_of_a_killed_host_may_be_kept(run_on_screen):
    async def scenario(driver):
        await driver.start_answer(words=10)
        await asyncio.to_thread(kill_host)
        await driver.wait_for_text("send the request again")
        await driver.press("escape")
        await driver.wait_until(lambda: not driver.chat.query(Picker))
        await driver.wait_for_text("failed: the engine process was killed")
        await driver.ask("count 2")

        assert ["slowly 100000", "count 2"] == [turn.question for turn in driver.turns]

    run_on_screen(scenario)


def test_an_engine_that_cannot_start_is_reported_and_retried(run_on_screen, monkeypatch):
    works = spawn.HOST_COMMAND
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-c", "print('no')"))

    async def scenario(driver):
        await driver.wait_for_text("no engine: ")
        monkeypatch.setattr(spawn, "HOST_COMMAND", works)
        await driver.press("enter")
        await driver.wait_until(lambda: driver.chat.presenter.session_id)
        await driver.ask("count 2")

    run_on_screen(scenario, is_ready=False)


@pytest.mark.full
def test_a_request_may_be_sent_before_the_engine_runs(run_on_screen):
    async def scenario(driver):
        await driver.run_command("count 3")
        await driver.wait_until(lambda: driver.turns and driver.turns[0].is_finished)

        assert "seed" in driver.turns[0].answer
        assert 0 == driver.turns[0].position

    run_on_screen(scenario, is_ready=False)


def test_loading_is_shown_and_can_be_stopped(run_on_screen):
    async def scenario(driver):
        await driver.wait_until(lambda: driver.status.startswith("loading the target model"))
        await driver.run_command("count 3")
        await driver.wait_until(
            lambda: driver.status.startswith("loading the target model") and "Esc stop" in driver.status
        )
        await driver.press("escape")
        await driver.wait_for_text("stopped, the partial answer is kept")

    run_on_screen(scenario, session_request=SessionRequest(settings=read_settings("endless")), is_ready=False)


@pytest.mark.full
def test_prefill_is_shown_and_can_be_stopped(run_on_screen):
    async def scenario(driver):
        await driver.run_command("read")
        await driver.wait_until(lambda: driver.status.startswith("reading 3 tokens: 33 % · Esc stops"))
        await driver.press("escape")
        await driver.wait_for_text("stopped")

    run_on_screen(scenario)


@pytest.mark.full
def test_a_killed_engine_and_a_queued_question_lose_nothing(run_on_screen, runtime, tmp_path):
    """The queued question waits for the decision about the interrupted one, and then follows it."""

    async def scenario(driver):
        await driver.start_answer(words=4)
        await driver.run_command("write waited")
        await driver.wait_for_text("next: write waited")
        await asyncio.to_thread(kill_host)
        await driver.wait_for_text("keep the partial answer")
        assert driver.turns[0].answer.startswith("word0 word1 ")
        assert "next: write waited" in driver.shown
        await driver.press("escape")
        await driver.wait_until(lambda: len(driver.turns) == 2 and driver.turns[-1].is_finished)
        assert ["slowly 100000", "write waited"] == [turn.question for turn in driver.turns]

        exported = tmp_path / "talk.md"
        await driver.run_command(f"/export {exported}")
        await driver.wait_until(exported.exists)
        await driver.wait_until(lambda: "waited\n" in exported.read_text())
        text = exported.read_text()
        assert text.index("> slowly 100000") < text.index("word0 word1 ") < text.index("> write waited")

    run_on_screen(scenario)


@pytest.mark.full
def test_a_question_that_is_sent_again_after_a_kill_keeps_the_partial_as_a_version(run_on_screen, runtime, monkeypatch):
    monkeypatch.setattr("specchat.tui.picker.GRACE_SECONDS", 0.0)

    async def scenario(driver):
        await driver.start_answer(words=4)
        await driver.run_command("write waited")
        await asyncio.to_thread(kill_host)
        await driver.wait_for_text("send the request again")
        partial = driver.turns[0].answer
        await driver.press("enter")
        await driver.wait_until(lambda: driver.chat.presenter.turn is not None and "word1" in driver.turns[-1].answer)
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].answer == "waited" and driver.turns[-1].is_finished)
        await driver.wait_for_text("<2/2>")
        await driver.press("shift+tab", "up", "left")
        await driver.wait_until(
            lambda: len(driver.turns) == 1 and driver.turns[0].answer.split()[:2] == partial.split()[:2]
        )

    run_on_screen(scenario)


def test_what_waits_behind_a_question_that_is_sent_again_stays_behind_it(run_on_screen, monkeypatch):
    goes_on = {name: Event() for name in ("post_first_name", "rewind_to")}

    def waits(name):
        go_on = getattr(OpenConversation, name)

        def call(*arguments):
            result = go_on(*arguments)
            goes_on[name].wait(PATIENT_SECONDS)
            return result

        monkeypatch.setattr(OpenConversation, name, call)

    async def scenario(driver):
        waits("post_first_name")
        waits("rewind_to")
        await driver.start_answer(words=4)
        await driver.run_command("write waited")
        await asyncio.to_thread(kill_host)
        await driver.wait_for_text("was killed")
        await driver.press("enter")  # the answer has not ended, and there is nothing to be decided yet
        goes_on["post_first_name"].set()
        await driver.wait_for_text("send the request again")
        await driver.press("enter")
        await driver.wait_until(lambda: len(driver.turns) == 1 and not driver.turns[0].answer)
        await driver.settle()
        assert "next: write waited" in driver.shown
        goes_on["rewind_to"].set()
        await driver.wait_until(lambda: "word1" in driver.turns[-1].answer)
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[-1].answer == "waited" and driver.turns[-1].is_finished)

    run_on_screen(scenario)


@pytest.mark.full
def test_a_question_that_no_engine_received_stays_on_the_screen(run_on_screen, runtime, monkeypatch):
    async def scenario(driver):
        await driver.ask("count 2")

        def refuse(*_arguments):
            raise ConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(driver.chat._session_worker.conversation.chat.conversation, "ask", refuse)
            await driver.run_command("what is lost?")
            await driver.wait_for_text("failed: the engine process closed the connection")
        worker = driver.chat._session_worker
        worker.submit(worker.conversation.connect)
        await driver.wait_until(lambda: len(driver.turns) == 2 and driver.turns[0].question == "count 2")
        assert "what is lost?" in driver.shown

    run_on_screen(scenario)


@pytest.mark.full
@pytest.mark.parametrize("way", ["ctrl+q", "ctrl+c"])
def test_who_leaves_while_questions_wait_is_asked(run_on_screen, way):
    async def scenario(driver):
        await driver.start_answer()
        await driver.run_command("write waited")
        await driver.wait_for_text("next: write waited")
        if way == "ctrl+q":
            await driver.press("ctrl+q")
            await driver.wait_for_text("a question waits to be answered")
            await driver.press("enter")  # stay
            await driver.wait_until(lambda: "a question waits" not in driver.shown)
            assert "next: write waited" in driver.shown
            await driver.press("ctrl+q")
            await driver.wait_for_text("a question waits to be answered")
            await driver.press("ctrl+q")
            await driver.wait_until(lambda: not driver.app.is_running)
        else:
            await driver.press("x", "ctrl+c")  # stops; the queued question and the unsent text are in the prompt
            await driver.wait_until(lambda: driver.prompt.text == "write waited\nx")

    run_on_screen(scenario)


@pytest.mark.full
def test_unsent_text_is_there_again_after_an_earlier_request_was_edited(run_on_screen):
    async def scenario(driver):
        await driver.ask("write one")
        await driver.type("unsent")
        await driver.press("shift+tab", "e")
        assert "write one" == driver.prompt.text
        await driver.press("escape")
        assert "unsent" == driver.prompt.text
        await driver.press("shift+tab", "e", "2", "enter")
        await driver.wait_until(lambda: driver.turns[-1].answer == "one2" and driver.turns[-1].is_finished)
        assert "unsent" == driver.prompt.text

    run_on_screen(scenario)


@pytest.mark.dear
@pytest.mark.parametrize(
    ("question", "message"), [("fail", "failed: too long"), ("crash", "failed: the engine failed")]
)
def test_an_error_is_shown_under_the_request(run_on_screen, question, message):
    async def scenario(driver):
        await driver.run_command(question)
        await driver.wait_for_text(message)
        assert (await driver.ask("count 2")).answer

    run_on_screen(scenario)


@pytest.mark.full
def test_a_file_that_cannot_be_attached_is_reported(run_on_screen, tmp_path):
    (tmp_path / "binary").write_bytes(b"\0")

    async def scenario(driver):
        await driver.run_command(f"look @{tmp_path / 'binary'}")
        await driver.wait_for_text("contains NUL bytes")
        assert driver.turns[0].position is None
        assert 0 == (await driver.ask("count 2")).position

    run_on_screen(scenario, size=(140, 30))


@pytest.mark.full
def test_a_tiny_screen_has_a_prompt_and_a_status(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 4")
        lines = driver.shown.splitlines()

        assert 5 == len(lines)
        assert lines[-2].startswith(" ›")
        assert lines[-1].startswith(" embedded")
        assert all(len(line) <= 20 for line in lines)
        await driver.press("slash", "escape", "f4", "escape", "ctrl+r", "escape")

    run_on_screen(scenario, size=(20, 5))


async def more_is_written(turn, driver):
    before = len(turn.answer)
    await driver.wait_until(lambda: len(turn.answer) > before)


@pytest.mark.full
def test_the_screen_may_change_its_size_while_an_answer_is_written(run_on_screen):
    async def scenario(driver):
        await driver.start_answer(words=4)
        for size in ((40, 12), (120, 40), (20, 5), (80, 24)):
            await driver.pilot.resize_terminal(*size)
            await more_is_written(driver.turns[0], driver)
        driver.chat.stop_answer()
        await driver.wait_until(lambda: driver.turns[0].is_finished)
        await driver.wait_for_text("stopped, the partial answer")

        words = driver.turns[0].answer.split()
        assert [f"word{number}" for number in range(len(words))] == words

    run_on_screen(scenario, size=(80, 24))


@pytest.mark.full
def test_an_answer_of_a_megabyte_holds_nothing_up(run_on_screen):
    async def scenario(driver):
        await driver.run_command("big 1000000")
        await driver.wait_until(lambda: driver.turns and driver.turns[0].is_finished)

        assert 1_000_000 == len(driver.turns[0].answer)
        await driver.wait_until(lambda: "x" * 90 in driver.shown)

    run_on_screen(scenario)


@pytest.mark.full
def test_ascii_is_ascii_everywhere(run_on_screen):
    async def scenario(driver):
        await driver.ask("count 4")

        assert driver.shown.isascii()
        assert "accepted 50 % - ####xxxx" in driver.status

    run_on_screen(scenario, glyphs=ASCII)


def long_conversation(path, count: int) -> None:
    writer = HistoryWriter(path)
    thread, parent = Thread("long", "a long talk", folder="", profile="chat"), None
    flush, writer.flush = writer.flush, lambda: None
    for number in range(count):
        turn = f"turn{number}"
        writer.start_turn(thread, turn, parent, {"text": f"question {number}"})
        writer.finish_turn(
            turn,
            StoredAnswer(f"answer **{number}** " * 20, (1, 2, 3)),
            "stop",
            {"prompt_tokens": 3, "completion_tokens": 4},
        )
        parent = turn
    writer.flush = flush
    writer.flush()
    writer.close()


@pytest.mark.full
def test_a_conversation_of_two_thousand_questions_opens_at_its_end(run_on_screen, runtime):
    long_conversation(runtime / "history.db", 2000)

    async def scenario(driver):
        await driver.wait_for_text("question 1999")
        assert 12 == len(driver.turns)
        assert 1999 == driver.turns[-1].position
        await driver.press("ctrl+home")
        await driver.wait_for_text("1,968 earlier turns")
        assert 32 == len(driver.turns)

        await driver.ask("count 2")
        assert 2000 == driver.turns[-1].position

    run_on_screen(scenario, session_request=SessionRequest(session_id="long"))


@pytest.mark.full
def test_an_unreadable_history_is_reported_and_requests_still_work(run_on_screen, monkeypatch):
    def locked(_path):
        raise HostError("the history cannot be read: database is locked")

    monkeypatch.setattr("specchat.host.host_session.HistoryReader", locked)

    async def scenario(driver):
        await driver.wait_for_text("database is locked")
        assert "seed" in (await driver.ask("count 2")).answer

    run_on_screen(scenario)
