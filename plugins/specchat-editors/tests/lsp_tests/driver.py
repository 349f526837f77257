"""A raw client of the Language Server Protocol: bytes over pipes, without any library."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from threading import Thread
from typing import Any

ROOT = Path(__file__).parents[4]
SERVED = (sys.executable, "-m", "lsp_tests.served")
PATIENCE_SECONDS = 120.0
URI = "file:///project/shop.py"
DONE = {"workspace/applyEdit": {"applied": True}, "window/showDocument": {"success": True}}
CAPABILITIES = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True},
    "workspace": {"applyEdit": True, "workspaceEdit": {"documentChanges": True}},
    "textDocument": {"codeAction": {"dataSupport": True, "resolveSupport": {"properties": ["edit"]}}},
}


@dataclass
class Editor:
    """The server, and everything it has said."""

    runtime: Path
    command: tuple[str, ...] = SERVED
    environment: dict[str, str] = field(default_factory=dict)
    number: int = 0
    notices: list[dict[str, Any]] = field(default_factory=list)

    def __post_init__(self) -> None:
        environment = {**os.environ, "SPECCHAT_RUNTIME": str(self.runtime)}
        environment = self.environment or environment
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=ROOT,
            env=environment,
        )  # fmt: skip
        self.received: queue.SimpleQueue[dict[str, Any] | None] = queue.SimpleQueue()
        self.answers: dict[Any, dict[str, Any]] = {}
        self.reader = Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self) -> None:
        stream = self.process.stdout
        while header := stream.readline():
            assert header.startswith(b"Content-"), header
            if header.startswith(b"Content-Length: "):
                length = int(header.split()[1])
            while stream.readline() != b"\r\n":
                pass
            self.received.put(json.loads(stream.read(length)))
        self.received.put(None)

    def send_bytes(self, body: bytes) -> None:
        self.process.stdin.write(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))
        self.process.stdin.flush()

    def send(self, **message: Any) -> None:
        self.send_bytes(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def notify(self, method: str, **params: Any) -> None:
        self.send(method=method, params=params)

    def request(self, method: str, params: Any = None) -> int:
        self.number += 1
        self.send(id=self.number, method=method, params=params)
        return self.number

    def call(self, method: str, params: Any = None) -> dict[str, Any]:
        return self.answer(self.request(method, params))

    def result(self, method: str, params: Any = None) -> Any:
        answer = self.call(method, params)
        assert "error" not in answer, answer
        return answer["result"]

    def answer(self, id: Any) -> dict[str, Any]:
        """Wait for the answer to this call."""
        while id not in self.answers:
            self.hear()
        return self.answers.pop(id)

    def hear(self) -> dict[str, Any] | None:
        """One more message; requests of the server are answered as an editor would."""
        message = self.received.get(timeout=PATIENCE_SECONDS)
        assert message is not None, self.process.stderr.read()
        if "method" in message:
            self.notices.append(message)
            if "id" in message:
                self.send(id=message["id"], result=DONE.get(message["method"]))
        else:
            self.answers[message["id"]] = message
        return message

    def wait_for(self, method: str) -> dict[str, Any]:
        """The params of the first notice of this kind that is not yet taken."""
        while True:
            for notice in self.notices:
                if notice["method"] == method:
                    self.notices.remove(notice)
                    return notice["params"]
            self.hear()

    def begin(self, options: Any = None, capabilities: Any = None) -> dict[str, Any]:
        params = {"processId": os.getpid(), "rootUri": None, "capabilities": CAPABILITIES | (capabilities or {})}
        answer = self.result("initialize", {**params, "initializationOptions": options})
        self.notify("initialized")
        return answer

    def open(self, text: str, uri: str = URI, version: int = 1) -> None:
        self.notify("textDocument/didOpen", textDocument={
            "uri": uri, "languageId": "python", "version": version, "text": text,
        })  # fmt: skip

    def type(self, line: int, character: int, text: str, version: int = 2, until: int | None = None) -> None:
        end = {"line": line, "character": character if until is None else until}
        change = {"range": {"start": {"line": line, "character": character}, "end": end}, "text": text}
        document = {"uri": URI, "version": version}
        self.notify("textDocument/didChange", textDocument=document, contentChanges=[change])

    def close(self, *, politely: bool = True) -> int:
        if politely:
            self.result("shutdown")
            self.notify("exit")
        self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)

    def end(self) -> None:
        """Whatever state it is in, nothing stays."""
        self.process.kill()
        self.process.wait()
        self.reader.join()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                stream.close()
            except BrokenPipeError:
                pass

    def is_loaded(self) -> None:
        """Wait until the engine answers: an invoked completion brings something."""
        probe = "file:///probe.py"
        self.open("# fill: ready\n", probe)
        while not self.result("textDocument/inlineCompletion", at(1, 0, uri=probe))["items"]:
            pass
        self.notify("textDocument/didClose", textDocument={"uri": probe})


def at(line: int, character: int, *, is_asked: bool = True, uri: str = URI, **context: Any) -> dict[str, Any]:
    return {
        "textDocument": {"uri": uri},
        "position": {"line": line, "character": character},
        "context": {"triggerKind": 1 if is_asked else 2, **context},
    }
