"""Kills host and client at random moments: at most one second of text is lost, and no text that was shown."""

from __future__ import annotations

import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from ast import literal_eval
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

import pytest

from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.cli.session_options import last_session_id
from specchat.history.history_reader import HistoryReader
from specchat.host import spawn
from specchat.host.client import Conversation, SessionRequest, connect
from tests.host.conftest import kill_host
from tests.host.test_spawn import ROOT, is_alive, until

CLIENT = f"""if True:
    import sys, time
    sys.path.insert(0, {str(ROOT)!r})
    from specchat.chat.events import TextDelta
    from specchat.chat.request import Request
    from specchat.host import spawn
    from specchat.host.client import Conversation
    spawn.HOST_COMMAND = eval(sys.argv[1])
    for event in Conversation().ask(Request(sys.argv[2], max_tokens=int(sys.argv[3]) or None, seed=1)):
        if isinstance(event, TextDelta):
            print(time.monotonic(), repr(event.text), sep=" ", flush=True)
"""
LONG_ANSWER = "slowly 500"  # of the fake engine

WORDS_BEFORE_A_KILL = {"host": 20, "client": 20, "both": 400}  # 400 take two seconds, more than may be lost


@dataclass(frozen=True)
class Kill:
    """What came of a kill: the text that must be kept, the stored one, and how many processes it ended."""

    kept: str
    stored: str
    processes: int


def shown(output: str, before: float) -> str:
    """The text that the client printed until then, without a line that the kill cut off."""
    lines = [line.partition(" ") for line in output.splitlines(keepends=True) if line.endswith("\n")]
    return "".join(literal_eval(text) for at, _, text in lines if float(at) <= before)


def kill_after(
    words: int, victims: str, more_seconds: float = 0.0, question: str = LONG_ANSWER, max_tokens: int = 0
) -> Kill:
    """Run a client, and kill the victims when it has shown this many words.

    Two seconds of text are shown before a host is killed, of which it may lose one.
    """
    command = [sys.executable, "-c", CLIENT, repr(spawn.HOST_COMMAND), question, str(max_tokens)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as client:
        assert client.stdout
        lines = list[str]()
        while len(shown("".join(lines), float("inf")).split()) < words:
            lines.append(client.stdout.readline())
            if not lines[-1]:
                assert client.wait() == 0, "the client ended by itself"
                break
        time.sleep(more_seconds)
        line = connect("killer", starts_host=False)
        host = line.host_info["pid"] if line else None
        targets = [client.pid] * (victims != "host" and client.poll() is None) + [host] * (victims != "client")
        victim_ids, killed = list(filter(None, targets)), time.monotonic()
        for each in victim_ids:
            os.kill(each, signal.SIGKILL)
        output = "".join(lines) + client.stdout.read()

    stored = look_at_history()
    if victims != "client" and host:
        until(lambda: not is_alive(host))
    return Kill(shown(output, killed - 1.2 if victims == "both" else float("inf")), stored, len(victim_ids))


def look_at_history() -> str:
    """The answer in the history after the kill; the database must be intact."""
    talk = Conversation(SessionRequest(last_session_id()))
    while talk.call("stats")["live_turns"]:
        time.sleep(0.01)
    path = Path(talk.connection.host_info["history_path"])
    if not path.exists():
        return ""
    with closing(sqlite3.connect(path)) as database:
        assert ("ok",) == database.execute("PRAGMA integrity_check").fetchone()
    assert not talk.warning
    turns = talk.turns()
    assert isinstance(list(talk.ask(Request("count 2", max_tokens=8)))[-1], Finished)
    with closing(HistoryReader(path)) as reader:
        assert not reader._query("SELECT id FROM turns WHERE state = 'running'", [])
    return turns[-1].answer.text if turns else ""


def test_a_conversation_survives_a_host_killed_before_the_first_question(runtime):
    talk = Conversation(SessionRequest())
    kill_host()

    events = list(talk.ask(Request("count 3", seed=1)))

    assert isinstance(events[-1], Finished)
    assert len(talk.turns()) == 1


@pytest.mark.parametrize(
    "victims", ["host", *(pytest.param(each, marks=pytest.mark.full) for each in ("client", "both"))]
)
def test_a_kill_during_an_answer_loses_no_text_that_was_shown(runtime, victims):
    kill = kill_after(WORDS_BEFORE_A_KILL[victims], victims)

    assert kill.processes == (2 if victims == "both" else 1)
    assert kill.kept
    assert kill.stored.startswith(kill.kept)


@pytest.mark.full
@pytest.mark.parametrize("number", range(20))
def test_kills_at_random_moments(runtime, number):
    dice = random.Random(number)

    words, victims = dice.choice([0, dice.randrange(1, 450)]), dice.choice(["host", "client", "both"])
    kill = kill_after(words, victims, dice.random())

    assert kill.kept or words < WORDS_BEFORE_A_KILL[victims]
    assert kill.stored.startswith(kill.kept)
