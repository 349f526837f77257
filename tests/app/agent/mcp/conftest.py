"""Real servers: one of the package `mcp` over stdio and over HTTP, and broken ones."""

import sys
import threading
from pathlib import Path

import pytest

from specchat.app.mcp.mcp_servers import McpServers
from specchat.app.mcp.mcp_settings import ServerSettings

HERE = Path(__file__).parent
DEMO = (sys.executable, str(HERE / "demo_server.py"))
PATIENT_SECONDS = 200.0  # the package takes long to import on a busy machine


def demo_settings(**settings):
    return ServerSettings("demo", DEMO, start_seconds=PATIENT_SECONDS, **settings)


def broken(kind, **settings):
    command = (sys.executable, "-S", "-E", str(HERE / "broken_server.py"), kind)
    return ServerSettings("broken", command, **{"start_seconds": PATIENT_SECONDS, **settings})


def call(servers, name, **arguments):
    [tool] = [each for each in servers.tools(threading.Event()) if each.tool.name == name]
    return tool.run(arguments, threading.Event())


@pytest.fixture(scope="session")
def demo():
    servers = McpServers([demo_settings(env=(("GREETING", "hello"),), allow=frozenset({"add"}))])
    yield servers
    servers.close()


@pytest.fixture
def start():
    """A directory of one server, which ends with the test."""
    started = []

    def make(settings):
        started.append(McpServers([settings]))
        return started[-1]

    yield make
    for servers in started:
        servers.close()
