"""The command `specchat serve`: start, errors and end."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from urllib.request import Request, urlopen

import pytest

from specchat_serve.command import model_name, model_names
from tests.each_row import each_row
from tests.front import command
from tests.processes import modules_after

SPECCHAT = (sys.executable, "-m", "tests.host.served")  # with the fake host
PATIENCE_SECONDS = 120.0


@each_row("host", ["0.0.0.0", "::"])
def test_other_addresses_than_loopback_need_a_token(monkeypatch, host):
    ran = command(monkeypatch, "serve", "--host", host, "--port", "0")

    assert ran.code == 2 and "give a --token" in ran.err and ran.err.count("\n") == 1


def test_another_model_that_is_nowhere_is_one_line(monkeypatch):
    ran = command(monkeypatch, "serve", "--port", "0", "--also", "nowhere-1b")

    assert ran.code and ran.err.startswith("specchat: nowhere-1b: ") and ran.err.count("\n") == 1


def test_a_port_that_is_taken_is_one_line(monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = command(monkeypatch, "serve", "--port", str(port))

    assert ran.code == 2 and ran.out == b""
    assert ran.err == f"specchat: 127.0.0.1, port {port}: Address already in use; choose another --port\n"


def test_an_address_of_another_machine_is_a_one_line_error(monkeypatch):
    ran = command(monkeypatch, "serve", "--host", "192.0.2.1", "--token", "right")

    assert ran.code == 2 and ran.err.count("\n") == 1 and "192.0.2.1" in ran.err


def test_a_model_has_its_name_from_the_profile_or_the_folder_name():
    assert ["embedded", "org/name", "weights"] == [
        model_name(each) for each in ("embedded", "org/name", "/home/weights")
    ]


def test_a_model_has_the_names_that_clients_give_it():
    assert ("gpt", "org/name", "name", "gpt:latest", "org/name:latest", "name:latest") == model_names(
        "org/name", ["gpt"]
    )


def test_importing_the_command_imports_no_server():
    assert not modules_after("import specchat_serve.command") & {"aiohttp", "torch", "specchat_serve.server"}


def test_the_server_imports_no_model():
    assert not modules_after("import specchat_serve.server") & {"torch", "transformers", "textual", "textual_serve"}


@pytest.fixture
def serving(runtime) -> Iterator[subprocess.Popen[str]]:
    line = (*SPECCHAT, "serve", "--port", "0", "--token", "right")
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        yield process
        process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.full)])
def test_a_signal_ends_the_server_and_its_answers(serving, number):
    says, example = serving.stderr.readline(), serving.stderr.readline()
    address = says.split()[2].rstrip(",")
    body = json.dumps({"messages": [{"role": "user", "content": "slowly 100000"}], "stream": True}).encode()
    with urlopen(Request(f"{address}/chat/completions", body, {"Authorization": "Bearer right"})) as answer:
        answer.readline()

        serving.send_signal(number)

        assert b"the server cancelled the answer" in answer.read()
    out, rest = serving.communicate(timeout=PATIENCE_SECONDS)
    assert (serving.returncode, out) == (0, "")
    assert rest.endswith("specchat serve: ended\n") and "Traceback" not in rest
    assert "model 'embedded'" in says and address in example and "right" not in example
