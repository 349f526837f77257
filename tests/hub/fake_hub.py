"""A model hub on loopback for download tests: the listing, the files, ranges, and errors."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Event, Thread
from typing import Any
from urllib.parse import unquote

import pytest
from huggingface_hub import constants

TRICKLE_SECONDS = 0.01
COMMIT = "c0ffee" + "0" * 34
WEIGHTS = bytes(range(256)) * 16384  # 4 MiB, so that there is a middle to be interrupted in


@dataclass
class FakeHub:
    """Its models, its faults and the requests it received; tests change them while it runs."""

    models: dict[str, dict[str, bytes]]
    licence: str = "apache-2.0"
    refused: tuple[int, str] | None = None  # status and X-Error-Code of every response
    cut_after: int | None = None  # bytes of one file, then the connection closes; once
    trickle_after: int | None = None  # bytes of one file at full speed, then one byte each TRICKLE_SECONDS
    is_closing: Event = field(default_factory=Event)
    corrupt: bool = False
    has_ranges: bool = True
    endpoint: str = ""
    requests: list[tuple[str, str]] = field(default_factory=list)  # path and Range of each GET of a file


def digest(content: bytes, *, is_large: bool) -> str:
    if is_large:
        return hashlib.sha256(content).hexdigest()
    return hashlib.sha1(b"blob %d\0" % len(content) + content).hexdigest()


def is_large(name: str) -> bool:
    return name.endswith((".safetensors", ".bin", ".pt", ".gguf"))


@contextmanager
def serving(hub: FakeHub) -> Iterator[FakeHub]:
    class Handler(_Handler):
        served = hub

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    hub.endpoint = f"http://127.0.0.1:{server.server_port}"
    try:
        yield hub
    finally:
        hub.is_closing.set()
        server.shutdown()
        server.server_close()
        thread.join()


def reach(hub: FakeHub, cache: Path, patch: pytest.MonkeyPatch) -> None:
    """Point huggingface_hub in this process to it, which read its environment at import."""
    patch.setattr(constants, "ENDPOINT", hub.endpoint)
    patch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", hub.endpoint + "/{repo_id}/resolve/{revision}/{filename}")
    patch.setattr(constants, "HF_HUB_OFFLINE", False)
    patch.setattr(constants, "HF_HUB_CACHE", str(cache))
    patch.setenv("HF_HUB_CACHE", str(cache))


class _Handler(BaseHTTPRequestHandler):
    served: FakeHub
    protocol_version = "HTTP/1.1"

    def log_message(self, *arguments: Any) -> None:
        pass

    def do_HEAD(self) -> None:
        self._answer(with_body=False)

    def do_GET(self) -> None:
        self._answer(with_body=True)

    def _answer(self, *, with_body: bool) -> None:
        if self.served.refused:
            status, code = self.served.refused
            self._send(status, b"", {"X-Error-Code": code} if code else {}, with_body=with_body)
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/?]+)(/revision/[^?]+)?(\?.*)?", self.path):
            self._list(match[1])
        elif match := re.fullmatch(r"/api/models/([^/]+/[^/]+)/tree/.+", self.path):
            tree = [_entry(name, content) for name, content in self.served.models[match[1]].items()]
            self._send(200, json.dumps(tree).encode(), {"Content-Type": "application/json"}, with_body=True)
        elif match := re.fullmatch(r"/([^/]+/[^/]+)/resolve/[^/]+/(.+)", self.path):
            self._give(match[1], unquote(match[2]), with_body=with_body)
        else:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body=with_body)

    def _list(self, model: str) -> None:
        files = self.served.models.get(model)
        if files is None:
            self._send(404, b"", {"X-Error-Code": "RepoNotFound"}, with_body=True)
            return
        siblings = [_sibling(name, content) for name, content in files.items()]
        card = {"license": self.served.licence} if self.served.licence else {}
        listing = {"id": model, "sha": COMMIT, "cardData": card, "siblings": siblings, "tags": []}
        self._send(200, json.dumps(listing).encode(), {"Content-Type": "application/json"}, with_body=True)

    def _give(self, model: str, name: str, *, with_body: bool) -> None:
        content = self.served.models[model][name]
        headers = {"X-Repo-Commit": COMMIT, "ETag": f'"{digest(content, is_large=is_large(name))}"'}
        if not with_body:
            self._send(200, content, headers, with_body=False)
            return
        requested = self.headers.get("Range", "")
        self.served.requests.append((name, requested))
        start = int(requested.removeprefix("bytes=").removesuffix("-")) if requested and self.served.has_ranges else 0
        sent = content[start:]
        if self.served.corrupt and is_large(name):
            sent = sent[:-1] + b"?"
        self._send(206 if start else 200, sent, headers, with_body=True, stops=is_large(name))

    def _send(self, status: int, body: bytes, headers: dict[str, str], *, with_body: bool, stops: bool = False) -> None:
        hub = self.served
        self.send_response(status)
        for key, value in {**headers, "Content-Length": str(len(body))}.items():
            self.send_header(key, value)
        self.end_headers()
        if not with_body:
            return
        if stops and hub.cut_after is not None:
            body, hub.cut_after = body[: hub.cut_after], None
            self.close_connection = True
        if stops and hub.trickle_after is not None:
            self.wfile.write(body[: hub.trickle_after])
            rest = iter(body[hub.trickle_after :])
            with suppress(ConnectionError):
                while not hub.is_closing.wait(TRICKLE_SECONDS):
                    self.wfile.write(bytes([next(rest)]))
            self.close_connection = True
            return
        with suppress(ConnectionError):  # some tests close the connection
            self.wfile.write(body)


def _entry(name: str, content: bytes) -> dict[str, Any]:
    """The entry of a file in a folder listing."""
    sibling = _sibling(name, content)
    entry: dict[str, Any] = {"type": "file", "path": name, "size": len(content), "oid": sibling["blobId"]}
    if lfs := sibling.get("lfs"):
        entry["lfs"] = {"size": lfs["size"], "oid": lfs["sha256"], "pointerSize": lfs["pointerSize"]}
    return entry


def _sibling(name: str, content: bytes) -> dict[str, Any]:
    sibling: dict[str, Any] = {"rfilename": name, "size": len(content), "blobId": digest(content, is_large=False)}
    if is_large(name):
        sha = digest(content, is_large=True)
        sibling["lfs"] = {"size": len(content), "sha256": sha, "pointerSize": 134}
    return sibling
