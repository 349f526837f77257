"""The host on a plain socket: it survives any input, and a slow client costs little memory."""

from __future__ import annotations

import json
import random
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Thread

import pytest

from specchat.chat.events import Failed, Finished, TextDelta
from specchat.chat.request import Request
from specchat.errors import HostError
from specchat.host import spawn
from specchat.host.client import Conversation, HostConnection
from specchat.host.protocol import INVALID_REQUEST, MAX_LINE_BYTES
from tests.each_row import each_row
from tests.faults.generated import damaged

METHODS = [
    "hello", "open_session", "fork", "list_sessions", "rename", "delete", "restore", "session_info",
    "cancel", "rewind", "recover_answer", "set_settings", "explain_routing",
    "stats", "unload", "ask", "sing", "", None, 7,
]  # fmt: skip
VALUES = [
    None,
    True,
    -1,
    0,
    3,
    2**70,
    1.5,
    "",
    "x",
    "\u2028\x00",
    [],
    [1],
    {},
    {"text": "count 3"},
    {"text": 1},
    "\ud800",
]
NAMES = [
    "session",
    "request",
    "turn",
    "from_sequence_number",
    "count",
    "name",
    "settings",
    "search",
    "folder",
    "kind",
    "token_ids",
]


@pytest.fixture
def peer(runtime):
    with spawn.find_or_start_host() as peer:
        peer.settimeout(120)
        yield peer


def say(peer: socket.socket, *lines: bytes) -> None:
    peer.sendall(b"".join(line + b"\n" for line in lines))


def replies(peer: socket.socket):
    received = b""
    while True:
        *lines, received = (received + peer.recv(2**16)).split(b"\n")
        yield from map(json.loads, lines)


def generated_line(dice: random.Random, sessions: list[str]) -> bytes:
    params = {dice.choice(NAMES): dice.choice(VALUES) for _ in range(dice.randint(0, 4))}
    if dice.random() < 0.5:
        params["session"] = dice.choice(sessions)
    call = {
        "jsonrpc": "2.0",
        "id": dice.choice([1, "a", None, 2.5, [], {}]),
        "method": dice.choice(METHODS),
        "params": params,
    }
    for name in list(call):
        if dice.random() < 0.05:
            del call[name]
    kind = dice.randint(0, 9)
    line = damaged(json.dumps(call).encode(), kind, dice)
    return line.replace(b"\n", b"") if kind == 2 else line  # random bytes are one line


def test_two_thousand_generated_lines_do_no_harm(peer):
    dice = random.Random(5)
    talk = Conversation()
    heard = replies(peer)
    for sent in range(40):
        say(peer, *(generated_line(dice, [talk.session_id, "nobody"]) for _ in range(50)))
        say(peer, b'{"jsonrpc":"2.0","id":"mark%d","method":"hello"}' % sent)
        for reply in heard:
            if reply.get("id") == f"mark{sent}":
                break

    assert "stop" == list(Conversation().ask(Request("count 2")))[-1].finish_reason


def test_a_line_of_20_mib_is_read_and_one_over_the_limit_is_an_error(peer):
    hello = b'{"jsonrpc":"2.0","id":%d,"method":"hello","params":{"padding":"%s"}}'
    say(peer, hello % (1, b"x" * (20 * 2**20)), b"x" * (MAX_LINE_BYTES + 1), hello % (2, b""))

    heard = replies(peer)
    first, second, third = next(heard), next(heard), next(heard)

    assert (1, INVALID_REQUEST, 2) == (first["id"], second["error"]["code"], third["id"])


def memory_bytes(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def test_a_slow_reader_costs_little_memory_and_misses_nothing(runtime):
    talk = Conversation()
    pid = talk.connection.host_info["pid"]
    quick = Conversation()
    list(quick.ask(Request("count 2")))
    before = memory_bytes(pid)

    heard = talk.ask(Request("big 3000000"))
    next(heard)
    while quick.call("stats")["live_turns"]:
        time.sleep(0.01)
    assert memory_bytes(pid) - before < 60 * 2**20
    events = list(heard)

    assert isinstance(events[-1], Finished)
    assert 3_000_000 == sum(len(event.text) for event in events if isinstance(event, TextDelta))


@pytest.mark.full
def test_a_client_that_reads_far_too_slowly_is_disconnected_and_its_partial_answer_is_stored(runtime):
    talk, quick = Conversation(client_name="slow"), Conversation()
    heard = talk.ask(Request("big 40000000"))
    next(heard)
    while "slow" in quick.call("stats")["clients"]:
        time.sleep(0.01)
    *events, failed = heard

    assert failed == Failed("the engine process disconnected this client, which read too slowly; "
                            "the partial answer is stored, ask again", HostError.exit_code)  # fmt: skip
    received = "".join(event.text for event in events if isinstance(event, TextDelta))
    assert len(received) < 40_000_000
    assert talk.turns()[-1].answer.text.startswith(received)
    assert isinstance(list(talk.ask(Request("count 2")))[-1], Finished)


def test_text_is_merged_into_few_lines(peer):
    ask = b'{"jsonrpc":"2.0","method":"ask","params":{"session":"%s","request":{"text":"count 2000"}}}'
    say(peer, ask % Conversation().session_id.encode())

    texts = []
    for reply in replies(peer):
        if reply["method"] == "text_delta":
            texts.append(reply["params"]["text"])
        if reply["method"] == "finished":
            break
    assert "word0 " == texts[0]
    assert len(texts) < 500


@contextmanager
def host_that_sends(line: bytes) -> Iterator[HostConnection]:
    """A connection to a host that answers `hello`, and everything else with this line."""
    near, far = socket.socketpair()

    def serve() -> None:
        with far, far.makefile("rb") as requests, suppress(OSError):  # the client may have left
            far.sendall(b'{"id":1,"result":{"instance_id":"x"}}\n' if next(requests) else b"")
            for _request in requests:
                far.sendall(line + b"\n")

    thread = Thread(target=serve)
    thread.start()
    connection = HostConnection(near, "test")
    try:
        yield connection
    finally:
        connection.close()
        thread.join()


UNREADABLE = (b"x" * (MAX_LINE_BYTES + 1), b"no JSON", b"[" * 200_000, b"[]", b"\xff")


@each_row("line", UNREADABLE)
def test_what_a_client_cannot_read_is_a_refusal_in_a_sentence(line):
    with (
        host_that_sends(line) as connection,
        pytest.raises(HostError, match=r"sent what cannot be read: [a-z]") as said,
    ):
        connection.call("stats", {})

    assert str(said.value).isprintable() and len(str(said.value)) < 200


@each_row("line", UNREADABLE)
def test_an_answer_of_which_a_line_cannot_be_read_fails_with_that_sentence_and_is_cancelled(runtime, line):
    talk = Conversation()
    theirs, sent = talk.connection, list[str]()
    with host_that_sends(line) as connection:
        send = connection.send
        connection.send = lambda method, params: (sent.append(method), send(method, params))[1]
        talk.connection = connection
        [failed] = talk.ask(Request("count 2"))
        talk.connection = theirs

    assert failed.message.startswith("the engine process sent what cannot be read: ")
    assert ["ask", "cancel"] == sent
