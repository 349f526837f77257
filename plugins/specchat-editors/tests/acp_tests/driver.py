"""An editor for tests: raw JSON lines over two descriptors, without the SDK under test.

`Editor.request` waits for the response; meanwhile it stores every update and answers the agent's requests.
"""

from __future__ import annotations

import json
import os
import select
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

PATIENCE_SECONDS = 120.0
FULL = {"fs": {"readTextFile": True, "writeTextFile": True}}

Json = dict[str, Any]


class Gone(Exception):  # noqa: N818 (it may be what a test wants)
    """The agent closed its end."""


@dataclass
class Editor:
    """Descriptors to write to and to read from, and how to answer what the agent asks."""

    to_agent: int
    from_agent: int
    answers: dict[str, Callable[[Json], Any]] = field(default_factory=dict)
    updates: list[Json] = field(default_factory=list)
    asked: list[Json] = field(default_factory=list)  # by the agent, in order
    heard: list[Json] = field(default_factory=list)  # every message, in order
    _number: int = 0
    _buffer: bytes = b""
    _responses: dict[Any, Json] = field(default_factory=dict)

    def send(self, method: str, params: Json | None = None) -> int:
        """Ask, and do not wait."""
        self._number += 1
        self.write({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params or {}})
        return self._number

    def notify(self, method: str, params: Json) -> None:
        self.write({"jsonrpc": "2.0", "method": method, "params": params})

    def write(self, message: Any) -> None:
        self.write_bytes(json.dumps(message).encode() + b"\n")

    def write_bytes(self, raw: bytes) -> None:
        left = memoryview(raw)
        while left:
            left = left[os.write(self.to_agent, left) :]

    def wait(self, number: Any) -> Json:
        """The whole answer to a request."""
        until = time.monotonic() + PATIENCE_SECONDS
        while number not in self._responses:
            self.hear(until)
        return self._responses.pop(number)

    def request(self, method: str, params: Json | None = None) -> Any:
        """The result; AssertionError when it is an error."""
        answer = self.wait(self.send(method, params))
        assert "result" in answer, answer
        return answer["result"]

    def refused(self, method: str, params: Json | None = None) -> Json:
        """The error."""
        answer = self.wait(self.send(method, params))
        assert "error" in answer, answer
        return answer["error"]

    def until(self, is_there: Callable[[], Any]) -> Any:
        """Hear until something is so."""
        until = time.monotonic() + PATIENCE_SECONDS
        while not (found := is_there()):
            self.hear(until)
        return found

    def hear(self, until: float) -> None:
        """One message."""
        while b"\n" not in self._buffer:
            ready, _, _ = select.select([self.from_agent], [], [], max(0.0, until - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the agent said nothing; so far {self.heard[-3:]}")
            if not (more := os.read(self.from_agent, 2**18)):
                raise Gone
            self._buffer += more
        line, _, self._buffer = self._buffer.partition(b"\n")
        self._take(json.loads(line.decode("ascii")))

    def _take(self, message: Json) -> None:
        self.heard.append(message)
        if "method" not in message:
            self._responses[message["id"]] = message
        elif message["method"] == "session/update":
            self.updates.append(message["params"]["update"])
        elif "id" in message:
            self.asked.append(message)
            if (answer := self.answers.get(message["method"])) is not None:
                self.write({"jsonrpc": "2.0", "id": message["id"], **_answered(answer, message["params"])})

    def hang_up(self) -> None:
        os.close(self.to_agent)

    # What an editor does with a session.

    def initialize(self, capabilities: Json | None = None) -> Json:
        return self.request("initialize", {"protocolVersion": 1, "clientCapabilities": capabilities or {}})

    def new(self, folder: Any) -> str:
        return self.request("session/new", {"cwd": str(folder), "mcpServers": []})["sessionId"]

    def ask(self, session: str, text: str, *blocks: Json) -> Json:
        return self.wait(self.send_prompt(session, text, *blocks))["result"]

    def send_prompt(self, session: str, text: str, *blocks: Json) -> int:
        prompt = [{"type": "text", "text": text}, *blocks]
        return self.send("session/prompt", {"sessionId": session, "prompt": prompt})

    def said(self, kind: str = "agent_message_chunk") -> str:
        """All the text of one kind so far."""
        return "".join(update["content"]["text"] for update in self.of(kind))

    def of(self, kind: str) -> list[Json]:
        return [update for update in self.updates if update["sessionUpdate"] == kind]

    def tools(self) -> dict[str, list[str]]:
        """The titles of all pieces of work, and the states that each went through."""
        titles, states = dict[str, str](), dict[str, list[str]]()
        for update in self.updates:
            if update["sessionUpdate"] in ("tool_call", "tool_call_update"):
                id = update["toolCallId"]
                titles.setdefault(id, update.get("title", id))
                states.setdefault(titles[id], []).append(update["status"])
        return states


def _answered(answer: Callable[[Json], Any], params: Json) -> Json:
    try:
        return {"result": answer(params)}
    except LookupError as error:
        return {"error": {"code": -32002, "message": str(error)}}
