"""A host that hangs: it is named, it can be stopped without its help, and no front end waits for long."""

from __future__ import annotations

import fcntl
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from threading import Event as Flag

import pytest

from specchat.chat.events import Failed, Finished, Notice, PrefillProgress, Stage, TextDelta, Waiting
from specchat.chat.request import Request
from specchat.errors import HostError
from specchat.host import host_connection, host_lock, pending_answer, spawn
from specchat.host.client import Conversation, SessionRequest, connect
from specchat.profile.settings import read_settings
from tests.front import command
from tests.host.conftest import FAKE_HOST
from tests.host.test_spawn import is_alive, until


@pytest.fixture(autouse=True)
def impatient(runtime, monkeypatch):
    """With a host that computes. It may take as long as it likes for what it has to answer."""
    monkeypatch.setattr(pending_answer, "SILENCE_SECONDS", 0.2)
    monkeypatch.setattr(pending_answer, "STUCK_SECONDS", 0.2)


@pytest.fixture
def suspend(monkeypatch):
    """Returns a function that suspends a host, and loses patience: not before, or a busy machine would be meant."""

    def suspend(pid: int) -> None:
        os.kill(pid, signal.SIGSTOP)
        until(lambda: Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] == "T")
        monkeypatch.setattr(host_connection, "HELLO_TIMEOUT_SECONDS", 0.3)
        monkeypatch.setattr(pending_answer, "CANCEL_SECONDS", 0.3)
        monkeypatch.setattr(pending_answer, "UNANSWERED_SECONDS", 0.2)
        monkeypatch.setattr(pending_answer, "GIVE_UP_SECONDS", 0.6)

    return suspend


def pid_of(conversation: Conversation) -> int:
    return conversation.connection.host_info["pid"]


def test_the_lock_names_the_running_host():
    assert host_lock.running_host() is None

    pid = connect("test").host_info["pid"]

    assert host_lock.running_host() == pid


def test_a_suspended_host_is_named_and_so_is_the_command_that_ends_it(suspend):
    pid = connect("test").host_info["pid"]
    suspend(pid)

    with pytest.raises(HostError, match=rf"the engine process {pid} has not answered for 0 s; 'specchat host stop'"):
        connect("other")


def test_a_suspended_host_can_be_stopped(suspend, monkeypatch):
    pid = connect("test").host_info["pid"]
    suspend(pid)

    ran = command(monkeypatch, "host", "stop")

    assert (ran.code, ran.out) == (0, f"stopped (process {pid})\n".encode())
    until(lambda: not is_alive(pid))


def test_a_host_that_ignores_signals_is_killed(monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--deaf"))
    pid = connect("test").host_info["pid"]
    monkeypatch.setattr(host_lock, "STOP_SECONDS", 0.3)

    ran = command(monkeypatch, "host", "stop")

    assert (ran.code, ran.out) == (0, f"killed (process {pid}): it did not stop by itself\n".encode())
    assert not is_alive(pid)
    assert connect("test").host_info["pid"] != pid


def test_nothing_is_stopped_where_no_host_runs(monkeypatch):
    assert command(monkeypatch, "host", "stop").out == b"no engine process runs\n"


@pytest.mark.parametrize("start_time", ["", "12345"])
def test_a_process_that_does_not_hold_the_lock_gets_no_signal(runtime, monkeypatch, start_time):
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as bystander:
        (runtime / "host.lock").write_text(f"{bystander.pid} {start_time}\n")
        with (runtime / "host.lock").open("rb") as held:
            fcntl.flock(held, fcntl.LOCK_EX)
            ran = command(monkeypatch, "host", "stop")

        assert bystander.poll() is None
        bystander.communicate(b"\n")
    assert ran.code == HostError.exit_code
    assert "held by a process that it does not name" in ran.err


def test_a_host_whose_queue_of_connections_is_full_is_an_error_and_no_wait(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "CONNECT_TIMEOUT_SECONDS", 0.3)
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(runtime / "host.sock"))
        listener.listen(0)
        first.connect(str(runtime / "host.sock"))

        with pytest.raises(HostError, match="accepts no connection; 'specchat host stop' ends it"):
            connect("test")


def test_a_lock_that_another_process_keeps_is_an_error_that_names_it(tmp_path):
    waiting = spawn.file_lock(tmp_path / "lock", timeout_seconds=0.05)

    with (
        spawn.file_lock(tmp_path / "lock"),
        pytest.raises(HostError, match=rf"process {os.getpid()} has held this lock"),
    ):
        waiting.__enter__()


def test_a_step_that_may_never_end_is_named_and_so_is_the_command_that_ends_it():
    notice = next(event for event in Conversation().ask(Request("stuck")) if isinstance(event, Notice))

    assert notice.text.startswith("the engine process computes one step of an answer, for")
    assert "'specchat host stop' ends it" in notice.text


def test_no_one_is_told_to_end_what_loads_or_compiles(monkeypatch):
    cancelled, answered, on_response = Flag(), list[dict](), pending_answer.SilenceWatch.on_response

    def cancel_after_three(watch, result):
        answered.append(result)
        if len(answered) == 3:
            cancelled.set()
        yield from on_response(watch, result)

    monkeypatch.setattr(pending_answer.SilenceWatch, "on_response", cancel_after_three)
    first, *later = Conversation(SessionRequest(settings=read_settings("stuck"))).ask(Request("hello"), cancelled)

    assert "loading the target model…" == first.text
    assert [Finished] == [type(event) for event in later if not isinstance(event, Stage)]
    assert 3 * [{"seconds": 0.0}] == answered[:3]


def test_a_question_during_a_load_hears_at_once_what_loads():
    settings = read_settings("endless")
    first, second = (Conversation(SessionRequest(settings=settings)).ask(Request("hello")) for _ in "ab")
    next(first)

    assert "loading the target model…" == next(second).text


def test_who_waits_for_another_answer_hears_that_at_once():
    busy = [Conversation(), Conversation()]  # as many as the engine answers at once
    events = [each.ask(Request("read")) for each in busy]
    for each in events:
        next(event for event in each if isinstance(event, PrefillProgress))
    waiting = Conversation()

    assert Waiting("2 other answers") == next(waiting.ask(Request("hello")))


def test_an_answer_of_a_host_that_was_suspended_fails_with_its_name(suspend):
    talk = Conversation()
    events = talk.ask(Request("slowly 100000"))
    next(event for event in events if isinstance(event, TextDelta))
    suspend(pid_of(talk))

    *_, notice, failed = events

    assert notice.text.startswith(f"the engine process {pid_of(talk)} does not answer")
    assert isinstance(failed, Failed)
    assert failed.exit_code == HostError.exit_code
    assert "'specchat host stop' ends it" in failed.message


def test_a_cancelled_answer_of_a_suspended_host_ends(suspend):
    talk, cancelled = Conversation(), Flag()
    events = talk.ask(Request("slowly 100000"), cancelled)
    next(event for event in events if isinstance(event, TextDelta))
    suspend(pid_of(talk))
    cancelled.set()

    assert isinstance(list(events)[-1], Failed)


def test_a_slow_answer_of_a_host_that_runs_is_not_given_up(monkeypatch):
    monkeypatch.setattr(pending_answer, "GIVE_UP_SECONDS", 3.0)
    talk, cancelled = Conversation(), Flag()
    events, notices = talk.ask(Request("stuck"), cancelled), []
    for event in events:
        notices += [event] if isinstance(event, Notice) else []
        assert not isinstance(event, Finished | Failed)
        if notices:
            break
    cancelled.set()
    host_lock.stop_host()

    assert len(notices) == 1


def test_a_host_that_is_gone_before_the_second_signal_is_stopped(monkeypatch):
    process_id, kill = pid_of(Conversation()), os.kill

    def end_at_once(target: int, number: int) -> None:
        if (target, number) == (process_id, signal.SIGCONT):
            raise ProcessLookupError
        kill(target, number)

    monkeypatch.setattr(os, "kill", end_at_once)

    assert host_lock.StoppedHost(process_id, was_killed=False) == host_lock.stop_host()
