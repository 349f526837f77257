"""What must hold after faults: of requests, clients and disks. The runs by seed are in `test_short_forms.py`."""

from __future__ import annotations

import json
import socket
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from specchat.history.history_reader import HistoryReader, StoredAnswer, Thread
from specchat.history.history_writer import HistoryWriter
from specchat.host import spawn
from specchat.host.client import Conversation
from specchat.loading.load_engine import load_engine
from specchat.profile.keys import Profile
from tests.faults import cancels, memory
from tests.faults.load import run_behind, run_load
from tests.plugins.conftest import host_that_sees, write_metadata

SEED = 20


@pytest.fixture(scope="module")
def engine():
    return load_engine(Profile())


@pytest.mark.full
def test_cancelled_answers_leave_nothing_and_the_next_one_is_that_of_a_fresh_session(engine):
    found = cancels.cancel_at_random(engine, len(cancels.drafters_of(engine)), SEED)

    assert found.is_clean(), found


@pytest.mark.full
def test_a_pass_without_memory_ends_its_answer_in_a_sentence_and_the_next_one_is_that_of_a_fresh_session(engine):
    found = memory.fail_at_random(engine, len(memory.FAILURES), SEED)

    assert found.is_clean(), found


def test_200_clients_at_once_are_all_answered(runtime):
    talk = Conversation()
    with ExitStack() as stack:
        peers = [stack.enter_context(spawn.find_or_start_host()) for _ in range(200)]
        for number, peer in enumerate(peers):
            peer.sendall(b'{"jsonrpc":"2.0","id":%d,"method":"hello"}\n' % number)
        answers = [first_line(peer)["id"] for peer in peers]

        assert answers == list(range(200))
        assert len(talk.call("stats")["clients"]) == 201
    assert talk.call("stats")["sessions"] == 1


@pytest.mark.full
def test_eight_clients_at_once_all_get_answers(runtime, monkeypatch, tmp_path):
    """Those of an editor with the plugin for completions, too."""
    plugin = Path(__file__).parents[2] / "plugins" / "specchat-completions"
    write_metadata(plugin, tmp_path)
    monkeypatch.setattr(spawn, "HOST_COMMAND", host_that_sees([str(tmp_path), str(plugin)]))

    result = run_load(5.0, SEED, {"models.target": "embedded"})

    assert result.failures == []
    assert result.starved == []


@pytest.mark.full
def test_short_questions_are_answered_while_others_get_long_answers(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-m", "specchat.host"))

    result = run_behind(2, {"models.target": "embedded"})

    assert result.failures == ()
    assert len(result.questions) == 2


def first_line(peer: socket.socket) -> dict:
    peer.settimeout(120)
    with peer.makefile("rb") as lines:
        return json.loads(next(lines))


def test_a_full_disk_loses_no_answer_once_there_is_room_again(tmp_path: Path):
    history = HistoryWriter(tmp_path / "history.db")
    pages = history._database.execute("PRAGMA page_count").fetchone()[0]
    history._database.execute(f"PRAGMA max_page_count = {pages}")
    text = "an answer " * 5000
    history.start_turn(Thread("thread", "name"), "turn", None, {"text": "a question"})
    history.finish_turn("turn", StoredAnswer(text), "stop", {})

    assert "full; new messages stay in memory" in history.warning
    history._database.execute("PRAGMA max_page_count = 100000")
    assert history.flush()
    assert history.warning == ""
    history.close()
    reader = HistoryReader(tmp_path / "history.db")
    assert [turn.answer.text for turn in reader.turns("turn")] == [text]
    reader.close()


def test_a_damaged_history_is_set_aside_and_a_new_one_starts(tmp_path: Path):
    (tmp_path / "history.db").write_bytes(b"no database" * 1000)
    history = HistoryWriter(tmp_path / "history.db")
    history.start_turn(Thread("thread", "name"), "turn", None, {"text": "a question"})

    assert "was set aside as history.db.corrupt-" in history.warning
    assert history.has_turn("turn")
    [damaged] = tmp_path.glob("history.db.corrupt-*")
    assert damaged.read_bytes().startswith(b"no database")
    history.close()
