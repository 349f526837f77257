"""Finding the host, starting it, and refusing what is not ours."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest

from specchat import paths
from specchat.chat.request import Request
from specchat.errors import HostError, InputError
from specchat.host import host_connection, spawn
from specchat.host.address import TRANSPORT_VARIABLE
from specchat.host.client import Conversation, SessionRequest, connect
from specchat.host.environment import FOLDER_VARIABLES, VALUE_VARIABLES
from specchat.plugins.discovery import PLUGINS_VARIABLE
from tests.each_row import each_row
from tests.host.conftest import FAKE_HOST

ROOT = Path(__file__).parents[2]

CLIENT = f"""if True:
    import sys, json
    sys.path.insert(0, {str(ROOT)!r})
    from specchat.host import spawn
    from specchat.host.client import connect
    spawn.HOST_COMMAND = {FAKE_HOST!r}
    spawn._default_folder = lambda: __import__("pathlib").Path(sys.argv[1])
    print(json.dumps(connect("racer").host_info))
"""


def is_alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().split(") ")[1][0] != "Z"
    except FileNotFoundError:
        return False


def until(condition, seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "waited for too long"
        time.sleep(0.01)


@pytest.mark.parametrize("clients", [3, pytest.param(8, marks=pytest.mark.full)])
def test_clients_that_race_start_one_host(runtime, clients):
    command = [sys.executable, "-c", CLIENT, str(runtime)]
    with ExitStack() as running:
        start = partial(subprocess.Popen, command, stdout=subprocess.PIPE, text=True)
        racers = [running.enter_context(start()) for _ in range(clients)]
        hellos = [json.loads(racer.communicate(timeout=180)[0]) for racer in racers]

    assert 1 == len({hello["pid"] for hello in hellos})


def test_an_engine_takes_over_every_variable_that_specchat_reads_for_a_folder():
    read = {paths.HOME_VARIABLE, paths.RUNTIME_VARIABLE, paths.CONFIG_VARIABLE, paths.CACHE_VARIABLE}

    assert read | {paths.MODELS_VARIABLE, paths.XDG_RUNTIME_VARIABLE} <= FOLDER_VARIABLES.keys()
    assert {TRANSPORT_VARIABLE, PLUGINS_VARIABLE} <= VALUE_VARIABLES.keys()


@pytest.fixture
def without_variables(monkeypatch):
    """No variable moves a folder."""
    for name in FOLDER_VARIABLES:
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("without_variables")
def test_a_client_with_an_empty_environment_finds_the_same_host(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "_default_folder", lambda: runtime)
    monkeypatch.setattr(spawn, "history_path", lambda: runtime / "history.db")
    here = spawn.start_host((*FAKE_HOST[:1], "-c", f"""if True:
        import sys; sys.path.insert(0, {str(ROOT)!r})
        import pathlib, specchat.host.spawn as spawn, specchat.host.host_process as process
        spawn._default_folder = lambda: pathlib.Path({str(runtime)!r})
        process.history_path = lambda: pathlib.Path({str(runtime / "history.db")!r})
        from tests.host.fake import FakeLoader
        process.run_host(sys.argv[1:], FakeLoader())
    """))  # fmt: skip
    assert here is None
    mine = connect("test", starts_host=False)

    found = subprocess.run(
        [sys.executable, "-c", CLIENT, str(runtime)], env={}, capture_output=True, text=True, check=True
    )

    assert mine.host_info["pid"] == json.loads(found.stdout)["pid"]


@pytest.mark.usefixtures("without_variables")
def test_the_default_folder_does_not_depend_on_variables_that_editors_drop(monkeypatch):
    before = spawn._default_folder()
    for name in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR"):
        monkeypatch.setenv(name, "/elsewhere")

    assert before == spawn._default_folder()


@pytest.mark.usefixtures("without_variables")
@each_row("name", ["SPECCHAT_CONFIG", "SPECCHAT_CACHE", "SPECCHAT_MODELS", "XDG_DATA_HOME"])
def test_engines_that_use_other_folders_do_not_meet(name, monkeypatch):
    before = spawn._default_folder()
    monkeypatch.setenv(name, "/elsewhere")
    other = spawn._default_folder()
    monkeypatch.setenv(name, "/elsewhere/still")

    assert len({before, other, spawn._default_folder()}) == 3


@pytest.mark.usefixtures("without_variables")
def test_the_runtime_folder_of_the_system_is_used(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    assert spawn._default_folder().parent == tmp_path


def test_one_variable_isolates_an_engine(tmp_path_factory, monkeypatch):
    monkeypatch.delenv("SPECCHAT_RUNTIME", raising=False)
    homes = [Path(tempfile.mkdtemp(prefix="sc-")) / "home" for _ in range(2)]
    found = list[Path]()
    for home in homes:
        monkeypatch.setenv("SPECCHAT_HOME", str(home))
        found += [spawn.runtime_folder(), spawn.history_path()]
        assert spawn.find_host() is None

    assert found == [each for home in homes for each in (home / "run", home / "data" / "history.db")]
    assert all(home.stat().st_mode & 0o777 == 0o700 for home in homes)


def test_a_home_too_long_for_a_socket_has_one_elsewhere(tmp_path, monkeypatch):
    monkeypatch.delenv("SPECCHAT_RUNTIME", raising=False)
    folders = set[Path]()
    for name in ("a" * 100, "b" * 100):
        monkeypatch.setenv("SPECCHAT_HOME", str(tmp_path / name))
        folders.add(spawn.runtime_folder())

    assert len(folders) == 2
    assert all(len(str(folder)) < 60 for folder in folders)
    for folder in folders:
        folder.rmdir()


def test_a_stale_socket_is_no_obstacle(runtime):
    line = connect("test")
    os.kill(line.host_info["pid"], signal.SIGKILL)
    until(lambda: not is_alive(line.host_info["pid"]))
    assert (runtime / "host.sock").exists()

    assert line.host_info["pid"] != connect("test").host_info["pid"]


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become somebody else")
def test_a_foreign_socket_is_refused(runtime):
    listener = socket.socket(socket.AF_UNIX)
    listener.bind(str(runtime / "host.sock"))
    if (child := os.fork()) == 0:
        os.setuid(65534)
        listener.listen()
        signal.pause()
    try:
        with pytest.raises(HostError, match="belongs to user 65534"):
            until(lambda: spawn.find_host() is not None)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        listener.close()


def test_a_folder_that_others_can_access_is_an_error(runtime):
    runtime.chmod(0o755)

    with pytest.raises(HostError, match="accessible to other users"):
        connect("test")


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a folder away")
def test_a_folder_of_another_user_is_an_error(runtime):
    os.chown(runtime, 65534, 65534)

    with pytest.raises(HostError, match="does not belong to this user"):
        connect("test")


def test_a_folder_that_cannot_be_created_is_a_one_line_error(monkeypatch):
    monkeypatch.setenv("SPECCHAT_RUNTIME", "/proc/nowhere")

    with pytest.raises(HostError, match="set SPECCHAT_RUNTIME to a writable folder"):
        connect("test")


def test_a_folder_with_a_long_path_is_a_one_line_error(monkeypatch):
    monkeypatch.setenv("SPECCHAT_RUNTIME", "/tmp/" + "x" * 100)

    with pytest.raises(HostError, match="too long a path"):
        connect("test")


def test_a_host_that_cannot_start_says_why(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (sys.executable, "-c", "raise SystemExit('no good')"))

    with pytest.raises(HostError, match=r"could not start; see .*host.log"):
        connect("test")

    assert "no good" in (runtime / "host.log").read_text()


LEAVES_ONCE = """if True:
    import os, sys
    marker, *command = sys.argv[1:]
    if os.path.exists(marker):
        os.execv(command[0], command)
    open(marker, "x").close()
    print("ready", end="")
"""


def test_a_host_that_left_for_one_that_was_being_killed_is_started_again(runtime, monkeypatch, tmp_path):
    command = (sys.executable, "-c", LEAVES_ONCE, str(tmp_path / "left"), *FAKE_HOST)
    monkeypatch.setattr(spawn, "HOST_COMMAND", command)

    assert connect("test").host_info["pid"]


def test_an_old_idle_host_is_replaced(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--version", "0.0.1"))
    spawn.find_or_start_host().close()
    old = connect("test", starts_host=False)
    monkeypatch.setattr(spawn, "HOST_COMMAND", FAKE_HOST)

    new = connect("test")

    assert "0.0.1" == old.host_info["version"] != new.host_info["version"]
    assert not is_alive(old.host_info["pid"])


def test_an_old_busy_host_is_left_alone_and_named(runtime, monkeypatch):
    monkeypatch.setattr(host_connection, "__version__", "0.0.1")
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--version", "0.0.1"))
    talk = Conversation()
    running = talk.ask(Request("read"))
    next(running)
    monkeypatch.setattr(host_connection, "__version__", "0.0.2")

    with pytest.raises(HostError, match=r"is version 0\.0\.1 and is busy"):
        connect("test")
    running.close()


def test_a_newer_host_is_left_alone_and_named(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--version", "99.0"))

    with pytest.raises(HostError, match=r"newer \(99\.0\)"):
        connect("test")


def test_a_host_of_another_configuration_is_replaced(runtime, monkeypatch, tmp_path):
    first = connect("test")
    monkeypatch.setenv("SPECCHAT_CONFIG", str(tmp_path))
    (tmp_path / "config.toml").write_text("a = 1")

    assert first.host_info["pid"] != connect("test").host_info["pid"]


def test_an_idle_host_exits(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--patience", "0.1"))
    line = connect("test")

    line.close()

    until(lambda: not is_alive(line.host_info["pid"]))
    assert not (runtime / "host.sock").exists()


def test_an_idle_host_unloads_its_models(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--patience", "0.1"))
    talk = Conversation()
    list(talk.ask(Request("hello")))

    until(lambda: "unloaded" == talk.call("stats")["state"])
    assert "stop" == list(talk.ask(Request("hello")))[-1].finish_reason


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_ends_the_host_and_stores_the_partial_answer(runtime, number):
    talk = Conversation()
    heard = [event for _, event in zip(range(20), talk.ask(Request("slowly 100000")), strict=False)]
    assert heard

    pid = talk.connection.host_info["pid"]
    os.kill(pid, number)
    until(lambda: not is_alive(pid))

    [turn] = Conversation(SessionRequest(session_id=talk.session_id)).turns()
    assert "cancelled" == turn.state
    assert turn.answer.text.startswith("word0 word1 ")


def test_neither_client_nor_protocol_imports_torch(runtime):
    modules = "specchat.host.client, specchat.host.protocol, specchat.host.engine_loader"
    code = f"import sys, {modules}; print('torch' in sys.modules)"

    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, cwd=ROOT)

    assert "False" == said.stdout.strip()


def test_a_home_that_cannot_be_written_gives_way_to_the_runtime_folder(runtime, monkeypatch):
    monkeypatch.delenv("SPECCHAT_RUNTIME")
    monkeypatch.setattr(spawn, "_default_folder", lambda: runtime)
    monkeypatch.setattr(spawn, "data_folder", lambda: Path("/proc/specchat"))

    assert runtime / "history.db" == spawn.history_path()


def test_a_relative_runtime_folder_means_the_same_to_the_host(runtime, monkeypatch):
    monkeypatch.chdir(runtime.parent)
    monkeypatch.setenv("SPECCHAT_RUNTIME", runtime.name)

    assert str(runtime / "history.db") == connect("test").host_info["history_path"]


def test_a_request_that_is_too_long_for_a_line_is_one_line(runtime):
    talk = Conversation()

    with pytest.raises(InputError, match="40 MiB on the wire, at most 32"):
        list(talk.ask(Request("x" * (40 * 2**20))))
    assert "stop" == list(talk.ask(Request("hello")))[-1].finish_reason


@pytest.mark.full
def test_six_hosts_that_race_leave_one_that_answers(runtime):
    with ExitStack() as running:
        hosts = [running.enter_context(subprocess.Popen(FAKE_HOST)) for _ in range(6)]
        until(lambda: sum(host.poll() is None for host in hosts) == 1)
        [winner] = [host for host in hosts if host.poll() is None]
        talk = connect("racer", starts_host=False)

        assert talk is not None and talk.host_info["pid"] == winner.pid
        assert [host.returncode for host in hosts if host is not winner] == [0] * 5
        winner.terminate()
