"""What no client should send, for every method of the protocol: a refusal in one sentence, and the host answers on."""

from __future__ import annotations

import inspect
import itertools
import json
import re
import socket

import pytest

from specchat.chat.events import Finished
from specchat.chat.request import Request
from specchat.host import spawn
from specchat.host.client import Conversation
from specchat.host.methods import METHODS
from specchat.host.protocol import INVALID_PARAMS, REQUEST_FAILED

NO_OBJECTS = [None, True, 0, -1, 2**70, 1.5, "", "text", "\x00", [], [[]], [None], [{}], ["a", 1]]
ODD = [*NO_OBJECTS, {}, {"text": 1}, {"settings": []}, {"values": 3}, {"a": {"b": {}}}]
ENDS = {"shutdown"}  # of the host; it takes no parameter
REFUSALS = {INVALID_PARAMS, REQUEST_FAILED}


def parameters_of(method: str) -> set[str]:
    """The names that the source of a method reads, and those of a completion."""
    source = inspect.getsource(METHODS[method])
    names = set(re.findall(r"params(?:\.get\(|\[|, )\"(\w+)\"", source))
    named = {"_settings": "settings", "_turn_id": "turn"}
    return names | {name for function, name in named.items() if f"{function}(params)" in source}


@pytest.fixture
def peer(runtime):
    with spawn.find_or_start_host() as peer:
        peer.settimeout(60)
        yield peer


def responses(peer: socket.socket, calls: list[dict[str, object]]) -> list[dict[str, object]]:
    """The response to each of these calls, in their order."""
    lines = [json.dumps({"jsonrpc": "2.0", "id": number, **call}) for number, call in enumerate(calls)]
    peer.sendall("".join(f"{line}\n" for line in lines).encode())
    received, found = b"", dict[int, dict[str, object]]()
    while len(found) < len(calls):
        *lines, received = (received + peer.recv(2**16)).split(b"\n")
        found |= {each["id"]: each for each in map(json.loads, lines) if "id" in each}
    return [found[number] for number in range(len(calls))]


def test_every_method_refuses_params_that_are_no_object(peer):
    calls = [{"method": name, "params": each} for name in METHODS for each in NO_OBJECTS if each is not None]

    for call, response in zip(calls, responses(peer, calls), strict=True):
        assert INVALID_PARAMS == response["error"]["code"], call


def test_every_parameter_of_every_method_takes_odd_values_without_a_failure_of_the_host(peer):
    session = Conversation().session_id
    calls = list[dict[str, object]]()
    for name in METHODS.keys() - ENDS:
        calls += [{"method": name, "params": {parameter: each}} for parameter in parameters_of(name) for each in ODD]
        known = {"session": session, "turn": "t", "name": "n", "request": {"text": "count 1"}}
        for parameter, each in itertools.product(parameters_of(name) - {"session"}, ODD):
            calls.append({"method": name, "params": {**known, parameter: each}})

    failed = [
        (call, response["error"])
        for call, response in zip(calls, responses(peer, calls), strict=True)
        if "error" in response and (response["error"]["code"] not in REFUSALS or "\n" in response["error"]["message"])
    ]
    assert [] == failed, "\n".join(map(str, failed))
    assert len(calls) > 500
    assert isinstance(list(Conversation().ask(Request("count 2")))[-1], Finished)
