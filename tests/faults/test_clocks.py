"""The wall clock is set back and forth while everything runs: it dates what is stored, and decides nothing."""

from __future__ import annotations

import ast
import os
import time
from pathlib import Path

import pytest

import specchat
from specchat.chat.events import Finished, TextDelta
from specchat.chat.request import Request
from specchat.cli.session_options import last_session_id
from specchat.edit import undo_store
from specchat.host import spawn
from specchat.host.client import Conversation, SessionRequest
from tests.each_row import each_row
from tests.host.conftest import FAKE_HOST

YEARS = 365 * 24 * 3600.0
PACKAGE = Path(specchat.__file__).parent
PLUGINS = PACKAGE.parent / "plugins"
WALL_CLOCKS = {"time", "time_ns", "now", "utcnow", "today"}  # of `time` and `datetime`
DATES = {  # where the wall clock dates something that is stored or shown
    "checks/health_checks.py", "chooser/learned_file.py", "history/history_writer.py", "host/open_sessions.py",
    "host/protocol.py", "text/chat_template.py",
}  # fmt: skip
DATES_OF_PLUGINS = {
    "specchat-fleet/specchat_fleet/retry.py",  # a server may name the date until which it is overloaded
    "specchat-serve/specchat_serve/choices.py", "specchat-serve/specchat_serve/ollama_api.py",
    "specchat-serve/specchat_serve/openai_responses.py",
    "specchat-serve/specchat_serve/server.py", "specchat-train/specchat_train/model_card.py",
}  # fmt: skip


def reads_wall_clock(source: str) -> bool:
    if "time" not in source:
        return False
    nodes = list(ast.walk(ast.parse(source)))
    imports = [node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "time"]
    imported = {each.asname or each.name for node in imports for each in node.names if each.name in WALL_CLOCKS}
    names = {node.id for node in nodes if isinstance(node, ast.Name)}
    attributes = [node for node in nodes if isinstance(node, ast.Attribute) and node.attr in WALL_CLOCKS]
    owners = {node.value.id for node in attributes if isinstance(node.value, ast.Name)}
    return bool(owners & {"time", "datetime", "date"} or names & imported)


def readers_of_wall_clocks(package: Path) -> set[str]:
    return {
        path.relative_to(package).as_posix()
        for path in package.rglob("*.py")
        if "tests" not in path.relative_to(package).parts
        and "time" in (text := path.read_text(encoding="utf-8"))
        and reads_wall_clock(text)
    }


@pytest.mark.full
@each_row("folder, dates", [(PACKAGE, DATES), (PLUGINS, DATES_OF_PLUGINS)])
def test_only_dates_are_read_from_the_wall_clock(folder, dates):
    found = readers_of_wall_clocks(folder)

    assert found == dates, f"measure durations with time.monotonic: {sorted(found ^ dates)}"


@each_row("source", ["import time as t\nfrom time import time\ntime()", "import time\ntime.time()"])
def test_a_use_of_the_wall_clock_is_seen(source):
    assert reads_wall_clock(source)


class Clock:
    """The wall clock of this process and of the host, as an offset from the true one."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.set(0.0)

    def set(self, years: float) -> None:
        """Replace the file as a whole, because the host reads it at any time."""
        new = self.path.with_suffix(".new")
        new.write_text(str(years * YEARS))
        new.replace(self.path)


@pytest.fixture
def clock(runtime, tmp_path, monkeypatch) -> Clock:
    clock, true_time = Clock(tmp_path / "clock"), time.time
    monkeypatch.setattr(time, "time", lambda: true_time() + float(clock.path.read_text()))
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--clock", str(clock.path)))
    return clock


def test_an_answer_and_the_host_outlive_jumps_of_years(clock):
    talk, texts, end = Conversation(), [], None
    process_id = talk.call("hello")["pid"]

    for number, event in enumerate(talk.ask(Request("slowly 60", seed=1))):
        clock.set(20 if number % 2 else -20)
        texts.append(event.text if isinstance(event, TextDelta) else "")
        end = event

    assert isinstance(end, Finished)
    assert "".join(texts).startswith("word0 word1 ") and "word58 seed 1" in "".join(texts)
    assert isinstance([*Conversation().ask(Request("count 2"))][-1], Finished)
    assert talk.call("hello")["pid"] == process_id
    assert 0 <= talk.call("stats")["uptime_seconds"] < 60


def test_the_last_conversation_is_the_last_one_used_after_the_clock_was_set_back(clock):
    older, newer = Conversation(), Conversation()
    list(older.ask(Request("count 2")))
    clock.set(-3)
    list(newer.ask(Request("count 3")))

    assert Conversation(SessionRequest(last_session_id())).turns()[-1].request["text"] == "count 3"
    assert [row["id"] for row in talk_list(newer)] == [newer.session_id, older.session_id]


def talk_list(talk: Conversation) -> list[dict]:
    return talk.call("list_sessions")["sessions"]


def test_a_rejected_text_is_kept_although_older_ones_are_of_tomorrow(tmp_path, monkeypatch):
    monkeypatch.setattr(undo_store, "history_path", lambda: tmp_path / "history.db")
    tomorrow = time.time() + 24 * 3600
    for number in range(undo_store.MAX_CANDIDATES):
        path = undo_store.save_candidate("a.py", b"%d" % number)
        os.utime(path, (tomorrow, tomorrow))

    newest = undo_store.save_candidate("a.py", b"the newest")

    assert newest.read_bytes() == b"the newest"
    assert len([*newest.parent.iterdir()]) == undo_store.MAX_CANDIDATES
