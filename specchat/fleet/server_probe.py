"""What a running server is: its kind, version and models, and whether it guesses. Asks; changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specchat.errors import ModelError
from specchat.fleet.installed_servers import version_numbers
from specchat.fleet.server_client import ServerClient
from specchat.fleet.server_errors import FALLBACK_HINT
from specchat.fleet.server_metrics import has_speculation

BACKEND_BY_OWNER = {"vllm": "vllm", "sglang": "sglang"}  # who owns its models, as a server says
NAME_BY_OWNER = {"llamacpp": "llama.cpp"}
PROBE_TIMEOUT_SECONDS = 5.0
MIN_VERSIONS = {"vllm": (0, 8, 5), "sglang": (0, 4, 0)}  # before those, metrics and options had other names


@dataclass(frozen=True)
class ServedModel:
    """A model that a server has, who says so, and how long a text may be (None: it does not say)."""

    name: str
    owner: str
    context_window: int | None


@dataclass(frozen=True)
class ServerInfo:
    """A running server."""

    url: str
    backend: str  # as a profile calls it
    display_name: str  # as people call it
    version: str  # "" when it does not say
    models: tuple[ServedModel, ...]
    has_metrics: bool
    has_speculation: bool

    @property
    def is_outdated(self) -> bool:
        """Whether it is of a time when names were others."""
        oldest, version = MIN_VERSIONS.get(self.backend), version_numbers(self.version)
        return bool(oldest and version and version < oldest)


def served_models(client: ServerClient) -> list[ServedModel]:
    """The models of a server; none when it has no list. ModelError when there is no server, or no such one."""
    page = client.get_page(f"{client.url.rstrip('/')}/models", PROBE_TIMEOUT_SECONDS)
    if page is None:
        return []
    try:
        return [_to_served_model(model) for model in json.loads(page)["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{client.url} is no server that speaks as OpenAI's does; {FALLBACK_HINT}") from error


def _to_served_model(model: dict[str, Any]) -> ServedModel:
    """One entry; llama.cpp puts the window into its `meta`."""
    meta = model.get("meta")
    window = model.get("max_model_len") or (meta.get("n_ctx_train") if isinstance(meta, dict) else None)
    return ServedModel(str(model["id"]), str(model.get("owned_by", "")), window if isinstance(window, int) else None)


def detect_backend(served: Sequence[ServedModel]) -> str:
    """The backend whose models these are, "" when nobody says."""
    return next((BACKEND_BY_OWNER[model.owner] for model in served if model.owner in BACKEND_BY_OWNER), "")


def probe_server(client: ServerClient) -> ServerInfo:
    """Everything that a server tells without being asked a question."""
    served = served_models(client)
    metrics = client.get_page(f"{client.root_url}/metrics", PROBE_TIMEOUT_SECONDS) or ""
    backend = detect_backend(served)
    owner = served[0].owner if served else ""
    kind = backend or NAME_BY_OWNER.get(owner, "a server like OpenAI's")
    is_page = "# TYPE" in metrics
    return ServerInfo(
        client.url,
        backend or "openai",
        kind,
        _server_version(client),
        tuple(served),
        is_page,
        is_page and has_speculation(metrics),
    )


def _server_version(client: ServerClient) -> str:
    """vLLM has a page for it, SGLang tells it among its settings."""
    for path in ("version", "server_info", "get_server_info"):
        try:
            told = json.loads(client.get_page(f"{client.root_url}/{path}", PROBE_TIMEOUT_SECONDS) or "{}")
        except (ValueError, ModelError):
            continue
        if isinstance(told, dict) and isinstance(told.get("version"), str):
            return told["version"]
    return ""
