"""The plugin as an installation leaves it, and servers that end with the tests."""

import sys
from pathlib import Path

import pytest

from specchat_mcp.servers import McpServers
from tests.plugins.conftest import plugin_site

sys.path.insert(0, str(Path(__file__).parent))  # for `started_servers`
installed = plugin_site(__file__)


@pytest.fixture(scope="session")
def demo():
    from started_servers import demo_settings

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
