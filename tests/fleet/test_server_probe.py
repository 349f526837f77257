"""What a running server is: kind, version, models, and whether it guesses."""

from __future__ import annotations

import json
from contextlib import closing

import pytest

from specchat.errors import ModelError
from specchat.fleet.installed_servers import version_numbers
from specchat.fleet.server_client import ServerClient
from specchat.fleet.server_probe import probe_server
from tests.fleet.pages import SGLANG, SILENT, VLLM
from tests.fleet.serving import MODEL, Served, serving


def found(served: Served):
    with closing(ServerClient(served.url)) as line:
        return probe_server(line)


def test_vllm_is_known_by_its_models_and_says_its_version():
    pages = {
        "/metrics": lambda: VLLM.format(drafts=1, drafted=3, accepted=2),
        "/version": lambda: '{"version": "0.33.0"}',
    }
    with serving(pages=pages) as served:
        server = found(served)

    assert (server.backend, server.version, server.has_metrics, server.has_speculation) == (
        "vllm",
        "0.33.0",
        True,
        True,
    )
    assert [(model.name, model.context_window) for model in server.models] == [(MODEL, 4096)]
    assert not server.is_outdated


def test_sglang_tells_its_version_among_its_settings():
    pages = {"/get_server_info": lambda: json.dumps({"version": "0.5.23"}), "/metrics": lambda: SILENT}
    with serving(owner="sglang", pages=pages) as served:
        server = found(served)

    assert (server.backend, server.version, server.has_speculation) == ("sglang", "0.5.23", False)


def test_any_other_server_is_openai():
    with serving(owner="llamacpp") as served:
        server = found(served)

    assert (server.backend, server.display_name, server.version, server.has_metrics) == (
        "openai",
        "llama.cpp",
        "",
        False,
    )


def test_a_version_of_another_time_is_known_as_old():
    with serving(pages={"/version": lambda: '{"version": "0.6.3.post1"}'}) as served:
        assert found(served).is_outdated


def test_a_page_of_metrics_of_sglang_says_that_it_guesses():
    page = SGLANG.format(generated=1, requests=1, calls=1)
    with serving(owner="sglang", pages={"/metrics": lambda: page}) as served:
        assert found(served).has_speculation


def test_what_is_no_server_of_this_kind_is_told():
    with serving() as served:
        type(served).models, kept = property(lambda _self: "<html>"), type(served).models
        try:
            with pytest.raises(ModelError, match="not a server with OpenAI's API"):
                found(served)
        finally:
            type(served).models = kept


@pytest.mark.parametrize(
    ("version", "parts"),
    [("0.10.2rc1+cpu", (0, 10, 2)), ("0.5.23", (0, 5, 23)), ("", ()), ("unknown", ())],
)
def test_versions_compare_by_their_numbers(version, parts):
    assert version_numbers(version) == parts
