"""A plugin of pytest for the tests of llama-server: what they start is `specchat serve`, once for each API key.

It runs in an environment of its own, with the tests in `sys.path`.
"""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import requests

sys.path.insert(0, os.environ["LLAMA_TESTS"])
import utils

COMMAND = json.loads(os.environ["LLAMA_SERVED_BY"])
OTHER_MODELS = (
    "test",
    "gpt-3.5-turbo",
    "gpt-3.5-turbo-instruct",
    "gpt-4.1",
    "davinci-002",
    "codellama70b",
    "tinyllama-2",
)
ADDRESS = re.compile(r"http://[^ ]+:(\d+)/v1")
LOOK_SECONDS, SECONDS, MOST_TOKENS = 0.05, 25.0, 64
servers: dict[tuple[str, ...], tuple[int, subprocess.Popen[bytes]]] = {}


def _start(server: utils.ServerProcess, timeout_seconds: int = 0) -> None:
    server.server_port = _port(tuple(_arguments(server)))


def _arguments(server: utils.ServerProcess) -> Iterator[str]:
    if server.api_key:
        yield from ("--token", server.api_key)
    for name in (server.model_alias, *OTHER_MODELS) if server.model_alias else OTHER_MODELS:
        yield from ("--alias", name)


def _port(arguments: tuple[str, ...]) -> int:
    if arguments not in servers:
        log = Path(os.environ["LLAMA_TESTS"], f"server-{len(servers)}.log")
        process = subprocess.Popen([*COMMAND, *arguments], stderr=log.open("w"))
        while not (address := ADDRESS.search(log.read_text())):
            assert process.poll() is None, log.read_text()
            time.sleep(LOOK_SECONDS)
        servers[arguments] = int(address[1]), process
    return servers[arguments][0]


STREAM = utils.ServerProcess.make_stream_request


def _limited(ask: Any) -> Any:
    """A request of theirs within the limits of its server, which are an option of llama-server, and within our time."""

    def limited(server: Any, method: str, path: str, data: Any = None, headers: Any = None, **more: Any) -> Any:
        if path.startswith("/completion") and isinstance(data, dict):
            data = {"n_predict": server.n_predict or MOST_TOKENS, "seed": server.seed, **data}
        seconds = {} if ask is STREAM else {"timeout": SECONDS}
        return ask(server, method, path, data, headers, **{**more, **seconds})

    return limited


utils.ServerProcess.start = _start
utils.ServerProcess.make_request = _limited(utils.ServerProcess.make_request)
utils.ServerProcess.make_stream_request = _limited(STREAM)
requests.post = partial(requests.post, timeout=SECONDS)
utils.ServerProcess.stop = lambda server: None
utils.ServerPreset.load_all = staticmethod(lambda: None)
utils.match_regex = lambda regex, text: True


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what does not apply."""
    patterns = json.loads(os.environ["LLAMA_OTHERS"])
    for item in items:
        if any(fnmatchcase(f"{item.path.name}::{item.name}", each) for each in patterns):
            item.add_marker(pytest.mark.skip)


def pytest_unconfigure(config: pytest.Config) -> None:
    for _port_number, process in servers.values():
        process.terminate()
        process.wait()
    Path(os.environ["LLAMA_TESTS"], "done").touch()
