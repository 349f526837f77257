"""The engine process over TCP: who does not show the token gets no answer, and keeps nobody waiting."""

from __future__ import annotations

import json
import os
import signal
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from threading import Thread

import pytest

from specchat.chat.events import TextDelta
from specchat.errors import HostError
from specchat.host import address, spawn
from specchat.host.client import Conversation, connect
from specchat.host.host_lock import host_lock, running_host, stop_host
from specchat.host.protocol import RpcRequest, encode
from tests.host.conftest import FAKE_HOST

HELLO = encode(RpcRequest(1, "hello", {"client": "stranger", "version": "0"}))


@pytest.fixture(autouse=True)
def loopback(monkeypatch) -> None:
    monkeypatch.setenv(address.TRANSPORT_VARIABLE, address.LOOPBACK)


def port_and_tokens(runtime: Path) -> tuple[int, address.Tokens]:
    found = address._read_port_file(runtime / address.PORT_NAME)
    assert found is not None
    return found


def stranger(runtime: Path) -> socket.socket:
    return socket.create_connection((address.LOOPBACK_ADDRESS, port_and_tokens(runtime)[0]), timeout=180)


def received(peer: socket.socket) -> bytes:
    """What a program gets; b"" when it is disconnected."""
    try:
        return peer.recv(1000)
    except ConnectionResetError:
        return b""


def answer_to(runtime: Path, sent: bytes) -> bytes:
    with stranger(runtime) as peer:
        peer.sendall(sent)
        return received(peer)


def test_a_conversation_runs_over_tcp(runtime):
    with Conversation() as talk:
        text = "".join(event.text for event in talk.ask("count 3") if isinstance(event, TextDelta))

    assert text.startswith("word0 word1 ")
    assert not (runtime / address.SOCKET_NAME).exists()
    assert (runtime / address.PORT_NAME).stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize(
    "sent",
    [b"0" * 64 + b"\n", HELLO, b"\n" * 65, b"\0" * 200, b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"x" * 60],
    ids=["wrong", "none", "empty lines", "zeros", "a browser"],
)
def test_who_shows_no_token_or_a_wrong_one_gets_no_answer(runtime, sent):
    connect("test")

    assert answer_to(runtime, sent) == b""


def test_requests_behind_a_right_token_wait_for_the_answer(runtime):
    connect("test")

    assert answer_to(runtime, port_and_tokens(runtime)[1].client + HELLO) == b""


def test_a_token_that_arrives_byte_by_byte_is_read(runtime):
    connect("test")
    _port, tokens = port_and_tokens(runtime)
    with stranger(runtime) as peer:
        peer.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        for byte in tokens.client:
            peer.sendall(bytes([byte]))
        assert peer.recv(1000) == tokens.host
        peer.sendall(HELLO)

        assert json.loads(peer.recv(10**5).splitlines()[0])["id"] == 1


def test_silent_connections_are_closed_and_keep_nobody_out(runtime):
    connect("test")
    with ExitStack() as opened:
        silent = [opened.enter_context(stranger(runtime)) for _ in range(address.MAX_UNKNOWN_CLIENTS + 20)]
        for each in silent:
            with suppress(ConnectionError):
                each.sendall(b"0")

        assert connect("another").host_info["pid"]
        assert received(silent[0]) == b""  # the oldest had to go


def test_a_connection_without_a_token_is_closed_in_time(runtime, monkeypatch):
    monkeypatch.setattr(spawn, "HOST_COMMAND", (*FAKE_HOST, "--token-timeout", "2"))
    connect("test")
    with stranger(runtime) as silent:
        silent.sendall(b"0")

        assert received(silent) == b""


def test_each_host_has_new_tokens_and_takes_them_with_it(runtime):
    connect("test")
    first = port_and_tokens(runtime)[1]
    assert stop_host() is not None
    assert not (runtime / address.PORT_NAME).exists()
    connect("test")
    second = port_and_tokens(runtime)[1]

    assert len({first.client, first.host, second.client, second.host}) == 4
    assert {65} == {len(token) for token in (first.client, first.host)}


def test_the_host_listens_on_the_loopback_address_alone(tmp_path):
    listener = address.listen(tmp_path)
    with listener.sock as sock:
        assert sock.getsockname()[0] == "127.0.0.1"


def test_another_program_at_the_port_of_a_killed_host_is_not_spoken_to(runtime):
    process_id = connect("test").host_info["pid"]
    os.kill(process_id, signal.SIGKILL)
    while running_host():
        pass
    with socket.create_server((address.LOOPBACK_ADDRESS, 0)) as squatter:
        path = runtime / address.PORT_NAME
        _port, *tokens = path.read_bytes().splitlines(keepends=True)
        path.write_bytes(b"".join([b"%d\n" % squatter.getsockname()[1], *tokens]))
        squatter.settimeout(0.01)

        assert spawn.find_host() is None
        with pytest.raises(TimeoutError):
            squatter.accept()
        assert process_id != connect("test").host_info["pid"]


def test_a_program_that_does_not_know_the_second_token_is_not_asked(runtime):
    with host_lock() as lock, socket.create_server((address.LOOPBACK_ADDRESS, 0)) as squatter:
        assert spawn.try_lock(lock)
        tokens = b"a" * 64 + b"\n" + b"b" * 64 + b"\n"
        (runtime / address.PORT_NAME).write_bytes(b"%d\n" % squatter.getsockname()[1] + tokens)

        def answer() -> None:
            peer, _ = squatter.accept()
            with peer:
                peer.sendall(b"c" * 64 + b"\n")
                peer.recv(100)

        thread = Thread(target=answer, daemon=True)
        thread.start()
        with pytest.raises(HostError, match="is not the engine process of this user"):
            spawn.find_host()
        thread.join(120)


def test_a_damaged_port_file_is_an_error_in_one_line(runtime):
    (runtime / address.PORT_NAME).write_text("no port")

    with pytest.raises(HostError, match="is damaged"):
        spawn.find_host()


def test_front_ends_with_another_transport_are_told(runtime, monkeypatch):
    connect("test")
    monkeypatch.delenv(address.TRANSPORT_VARIABLE)

    with pytest.raises(HostError, match=r"does not listen where SPECCHAT_TRANSPORT says; .* 'specchat host stop'"):
        connect("test")


def test_the_file_of_a_killed_host_with_another_transport_is_no_obstacle(runtime, monkeypatch):
    process_id = connect("test").host_info["pid"]
    os.kill(process_id, signal.SIGKILL)
    while running_host():
        pass
    monkeypatch.delenv(address.TRANSPORT_VARIABLE)

    assert process_id != connect("test").host_info["pid"]
    assert not (runtime / address.PORT_NAME).exists()
