"""A fake server with OpenAI's API on loopback, without a model: the question determines the answer.

"count 5"     five words, one per chunk, and the usage
"bare 5"      as "count", without the usage
"slowly 5"    as "count", with a pause after each word
"think 5"     five pieces of thinking, apart from the words "so it is"
"silent"      nothing, until the client disconnects
"cut 3"       three words, then the connection closes
"late cut"    the connection closes before the first word, once; then the answer follows
"broken"      a chunk that is not JSON
"nothing"     an empty stream
"refuse 500"  an error with this status
"busy 2"      `busy_status` this often, with `busy_headers`; then one word
"call [...]"  tool calls with these names and arguments (a text), in pieces
"call again"  a call with the id of another one
"echo"        the request body, as JSON
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

MODEL = "org/served"
PAUSE_SECONDS = 0.01


@dataclass
class Served:
    """The configuration of the server, and what it received."""

    url: str = ""
    owner: str = "vllm"
    sizes: dict[str, int] | None = None  # those of llama.cpp
    pages: dict[str, Callable[[], str]] = field(default_factory=dict)
    metrics: dict[str, Any] | None = None  # sent with the usage, as the times
    timings: dict[str, Any] | None = None
    asked: list[dict[str, Any]] = field(default_factory=list)
    left: threading.Event = field(default_factory=threading.Event)  # the client has disconnected
    cuts: int = 0
    busy_status: int = 503
    busy_headers: Mapping[str, str] = field(default_factory=dict)
    busy_code: str = ""
    open: list[socket.socket] = field(default_factory=list)

    @property
    def models(self) -> str:
        sizes = {"meta": self.sizes} if self.sizes else {"max_model_len": 4096}
        return json.dumps({"object": "list", "data": [{"id": MODEL, "owned_by": self.owner, **sizes}]})


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    served: Served

    def setup(self) -> None:
        super().setup()
        self.served.open.append(self.connection)

    def do_GET(self) -> None:
        if self.path == "/v1/models":
            self.answer(200, self.served.models)
        elif self.path in self.served.pages:
            self.answer(200, self.served.pages[self.path]())
        else:
            self.answer(404, "{}")

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.served.asked.append(body)
        content = body["messages"][-1]["content"]  # attached files precede the question
        verb, _, rest = (content.rpartition("\n\n")[2] if content.startswith("File ") else content).partition(" ")
        if body["model"] != MODEL:
            self.answer(404, json.dumps({"error": {"message": f"The model `{body['model']}` does not exist."}}))
        elif verb == "refuse":
            self.answer(int(rest), json.dumps({"error": {"message": "something is\nwrong", "type": "Error"}}))
        elif verb == "busy" and len(self.served.asked) <= int(rest):
            error = {"message": "come back later", "code": self.served.busy_code}
            self.answer(self.served.busy_status, json.dumps({"error": error}), self.served.busy_headers)
        elif verb == "late" and not self.served.cuts:
            self.served.cuts += 1
            self.close_connection = True  # without a word
        else:
            self.stream(verb, rest, body)

    def stream(self, verb: str, rest: str, body: dict[str, Any]) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        try:
            self.write(verb, rest, body)
        except OSError:
            self.served.left.set()

    def write(self, verb: str, rest: str, body: dict[str, Any]) -> None:
        match verb:
            case "silent":
                self.wait_until_left()
                return
            case "broken":
                self.send("data: {not json\n\n")
            case "echo":
                self.words([json.dumps(body)], "stop")
            case "nothing":
                pass
            case "call":
                self.calls([["look", "{}"]] if rest == "again" else json.loads(rest))
            case "think":
                for number in range(int(rest)):
                    delta = {"reasoning_content": f"thought{number} "}
                    self.chunk({"choices": [{"index": 0, "delta": delta, "finish_reason": None}]})
                self.words(["so ", "it ", "is"], "stop")
            case "cut":
                self.words([f"word{number} " for number in range(int(rest))], None)
                self.close_connection = True
                self.connection.close()
                return
            case _:
                count = int(rest) if rest.isdigit() and verb != "busy" else 1
                self.words([f"word{number} " for number in range(count)], "stop", pause=verb == "slowly")
                if verb != "bare":
                    self.usage(count)
        self.send("data: [DONE]\n\n")
        self.send("")

    def words(self, words: list[str], reason: str | None, *, pause: bool = False) -> None:
        for word in words:
            self.chunk({"choices": [{"index": 0, "delta": {"content": word}, "finish_reason": None}]})
            if pause:
                time.sleep(PAUSE_SECONDS)
        if reason:
            self.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]})

    def calls(self, calls: list[list[str]]) -> None:
        for index, (name, arguments) in enumerate(calls):
            first = {"index": index, "id": f"call-{index}", "type": "function", "function": {"name": name}}
            rest = [{"index": index, "function": {"arguments": each}} for each in arguments]
            for call in (first, *rest):
                self.chunk({"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]})
        self.chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls"}]})

    def usage(self, tokens: int) -> None:
        cached = {"prompt_tokens_details": {"cached_tokens": 4}}
        used = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens, **cached}
        beside = {"metrics": self.served.metrics, "timings": self.served.timings}
        self.chunk({"choices": [], "usage": used} | {name: value for name, value in beside.items() if value})

    def wait_until_left(self) -> None:
        self.connection.settimeout(10)
        if self.connection.recv(1) == b"":
            self.served.left.set()

    def chunk(self, body: dict[str, Any]) -> None:
        whole = {"id": "1", "object": "chat.completion.chunk", "created": 0, "model": MODEL, **body}
        self.send(f"data: {json.dumps(whole)}\n\n")

    def send(self, text: str) -> None:
        data = text.encode()
        self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")

    def answer(self, status: int, text: str, headers: Mapping[str, str] = {}) -> None:
        data = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json" if text.startswith("{") else "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(data)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        pass


@contextmanager
def serving(**said: Any) -> Iterator[Served]:
    served = Served(**said)

    class Here(Handler):
        pass

    Here.served = served
    with ThreadingHTTPServer(("127.0.0.1", 0), Here) as server:
        server.daemon_threads = True
        server.block_on_close = False
        served.url = f"http://127.0.0.1:{server.server_port}/v1"
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True)
        thread.start()
        yield served
        server.shutdown()
        for connection in served.open:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
