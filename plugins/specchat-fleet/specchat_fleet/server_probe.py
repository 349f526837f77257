"""Reads what a running server is: backend, version, models, and whether it uses speculative decoding."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specchat.errors import ModelError
from specchat_fleet.installed_servers import version_numbers
from specchat_fleet.server_client import FALLBACK_HINT, ServerClient
from specchat_fleet.server_metrics import has_speculation

BACKEND_BY_OWNER = {"vllm": "vllm", "sglang": "sglang"}  # by `owned_by` of its models
NAME_BY_OWNER = {"llamacpp": "llama.cpp"}
MAX_NAME_CHARACTERS, MAX_VERSION_CHARACTERS = 200, 40
MAX_SHOWN_NAMES = 10
MAX_CONTEXT_TOKENS = 2**31
MIN_VERSIONS = {"vllm": (0, 8, 5), "sglang": (0, 4, 0)}  # older versions have other names for metrics and options


@dataclass(frozen=True)
class ServedModel:
    """A model of a server. `context_window` is in tokens; None when unknown."""

    name: str
    owner: str
    context_window: int | None


@dataclass(frozen=True)
class ServerInfo:
    url: str
    backend: str  # the value of models.backend
    display_name: str  # for messages
    version: str  # "" when unknown
    models: tuple[ServedModel, ...]
    has_metrics: bool
    has_speculation: bool

    @property
    def is_outdated(self) -> bool:
        minimum, version = MIN_VERSIONS.get(self.backend), version_numbers(self.version)
        return bool(minimum and version and version < minimum)


def served_models(client: ServerClient) -> list[ServedModel]:
    """The models of a server; empty when it has no list. ModelError without a server of this API."""
    page = client.get_page(f"{client.url.rstrip('/')}/models")
    if page is None:
        return []
    try:
        return list(filter(None, map(_to_served_model, json.loads(page)["data"])))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ModelError(f"{client.url} is not a server with OpenAI's API; {FALLBACK_HINT}") from error


def _to_served_model(model: dict[str, Any]) -> ServedModel | None:
    """One entry of the list, None for a name that no profile can have; llama.cpp has in `meta` the context
    window it was started with, and that of the training.
    """
    meta, name = model.get("meta"), str(model["id"])
    sizes = meta if isinstance(meta, dict) else {}
    window = model.get("max_model_len") or sizes.get("n_ctx") or sizes.get("n_ctx_train")
    if not name.isprintable() or len(name) > MAX_NAME_CHARACTERS:
        return None
    is_window = isinstance(window, int) and 0 < window < MAX_CONTEXT_TOKENS
    return ServedModel(name, str(model.get("owned_by", "")), window if is_window else None)


def some_names(names: Sequence[str]) -> str:
    """The names in a sentence: not all, where there are many."""
    more = len(names) - MAX_SHOWN_NAMES
    return ", ".join(names[:MAX_SHOWN_NAMES]) + (f" and {more} more" if more > 0 else "")


def detect_backend(served: Sequence[ServedModel]) -> str:
    """The backend of the models; "" when unknown."""
    return next((BACKEND_BY_OWNER[model.owner] for model in served if model.owner in BACKEND_BY_OWNER), "")


def probe_server(client: ServerClient) -> ServerInfo:
    served = served_models(client)
    metrics = client.get_page(f"{client.root_url}/metrics") or ""
    backend = detect_backend(served)
    owner = served[0].owner if served else ""
    has_metrics = "# TYPE" in metrics
    return ServerInfo(
        client.url,
        backend or "openai",
        backend or NAME_BY_OWNER.get(owner, "a server with OpenAI's API"),
        _server_version(client),
        tuple(served),
        has_metrics,
        has_metrics and has_speculation(metrics),
    )


def _server_version(client: ServerClient) -> str:
    """The version: vLLM has a page for it, SGLang has it in its server info."""
    for path in ("version", "server_info", "get_server_info"):
        try:
            info = json.loads(client.get_page(f"{client.root_url}/{path}") or "{}")
        except (ValueError, RecursionError, ModelError):
            continue
        version = info.get("version") if isinstance(info, dict) else None
        if isinstance(version, str) and version.isprintable():
            return version[:MAX_VERSION_CHARACTERS]
    return ""
