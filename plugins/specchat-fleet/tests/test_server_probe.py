"""The probe of a running server: backend, version, models, and whether it uses speculative decoding."""

from __future__ import annotations

import json
from contextlib import closing

import pytest
from fake_server import MODEL, Served, serving
from metrics_pages import SGLANG, SILENT, VLLM

from specchat.errors import ModelError
from specchat_fleet.installed_servers import version_numbers
from specchat_fleet.server_client import ServerClient
from specchat_fleet.server_probe import probe_server
from tests.each_row import each_row


def probe(served: Served):
    with closing(ServerClient(served.url)) as line:
        return probe_server(line)


def test_vllm_is_detected_by_its_models():
    pages = {
        "/metrics": lambda: VLLM.format(drafts=1, drafted=3, accepted=2),
        "/version": lambda: '{"version": "0.33.0"}',
    }
    with serving(pages=pages) as served:
        server = probe(served)

    assert (server.backend, server.version, server.has_metrics, server.has_speculation) == (
        "vllm",
        "0.33.0",
        True,
        True,
    )
    assert [(model.name, model.context_window) for model in server.models] == [(MODEL, 4096)]
    assert not server.is_outdated


def test_the_version_of_sglang_is_in_its_server_info():
    pages = {"/get_server_info": lambda: json.dumps({"version": "0.5.23"}), "/metrics": lambda: SILENT}
    with serving(owner="sglang", pages=pages) as served:
        server = probe(served)

    assert (server.backend, server.version, server.has_speculation) == ("sglang", "0.5.23", False)


def test_any_other_server_is_openai():
    with serving(owner="llamacpp") as served:
        server = probe(served)

    assert (server.backend, server.display_name, server.version, server.has_metrics) == (
        "openai",
        "llama.cpp",
        "",
        False,
    )


def test_the_window_of_llama_cpp_is_that_of_its_start_not_of_the_training():
    sizes = {"n_ctx": 2048, "n_ctx_train": 8192}
    with serving(owner="llamacpp", sizes=sizes) as served:
        assert [2048] == [model.context_window for model in probe(served).models]
    with serving(owner="llamacpp", sizes={"n_ctx_train": 8192}) as served:
        assert [8192] == [model.context_window for model in probe(served).models]


def test_an_old_version_is_outdated():
    with serving(pages={"/version": lambda: '{"version": "0.6.3.post1"}'}) as served:
        assert probe(served).is_outdated


def test_the_metrics_of_sglang_show_speculation():
    page = SGLANG.format(generated=1, requests=1, calls=1)
    with serving(owner="sglang", pages={"/metrics": lambda: page}) as served:
        assert probe(served).has_speculation


def test_a_server_with_another_api_is_an_error():
    with serving() as served:
        type(served).models, kept = property(lambda _self: "<html>"), type(served).models
        try:
            with pytest.raises(ModelError, match="not a server with OpenAI's API"):
                probe(served)
        finally:
            type(served).models = kept


@each_row(
    "version, parts",
    [("0.10.2rc1+cpu", (0, 10, 2)), ("0.5.23", (0, 5, 23)), ("", ()), ("unknown", ())],
)
def test_versions_compare_by_their_numbers(version, parts):
    assert version_numbers(version) == parts
