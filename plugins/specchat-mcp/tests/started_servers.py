"""Real servers: one of the package `mcp` over stdio and over HTTP, and broken ones."""

import sys
import threading
from pathlib import Path

from specchat.app.tool_sources import ToolSources
from specchat_mcp.server_settings import ServerSettings

HERE = Path(__file__).parent
DEMO = (sys.executable, str(HERE / "demo_server.py"))
PATIENT_SECONDS = 200.0  # the package takes long to import on a busy machine


def demo_settings(**settings):
    return ServerSettings("demo", DEMO, start_seconds=PATIENT_SECONDS, **settings)


def broken(kind, *arguments, **settings):
    command = (sys.executable, "-S", "-E", str(HERE / "broken_server.py"), kind, *arguments)
    return ServerSettings("broken", command, **{"start_seconds": PATIENT_SECONDS, **settings})


def call(servers, name, **arguments):
    [tool] = [each for each in servers.tools(threading.Event()) if each.tool.name == name]
    return tool.run(arguments, threading.Event())


def details(servers, name):
    return servers.details(name, threading.Event())


def sources_of(servers):
    """These servers as the only source of a front end."""
    sources = ToolSources()
    sources._built = {"mcp": servers}
    return sources
