"""`specchat serve` as the server of another specchat."""

from __future__ import annotations

from contextlib import closing

from serve_tests.conftest import MODEL, runtime, served  # noqa: F401 - fixtures
from specchat_fleet.server_client import ServerClient
from specchat_fleet.server_probe import probe_server


def test_it_can_be_probed(served):  # noqa: F811
    with closing(ServerClient(f"{served.address}/v1")) as client:
        found = probe_server(client)

    assert ("openai", [MODEL]) == (found.backend, [model.name for model in found.models])
