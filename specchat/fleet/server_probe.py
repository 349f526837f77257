"""What a running server is: its kind, version and models, and whether it guesses. Asks; changes nothing."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from specchat.errors import ModelError
from specchat.fleet.http_client import Line
from specchat.fleet.installed_servers import numbers
from specchat.fleet.server_errors import INSTEAD
from specchat.fleet.server_metrics import guesses

OWNERS = {"vllm": "vllm", "sglang": "sglang"}  # who owns its models, as a server says
OTHERS = {"llamacpp": "llama.cpp"}
LOOK_SECONDS = 5.0
OLDEST = {"vllm": (0, 8, 5), "sglang": (0, 4, 0)}  # before those, metrics and options had other names


@dataclass(frozen=True)
class Served:
    """A model that a server has, who says so, and how long a text may be (None: it does not say)."""

    name: str
    owner: str
    window: int | None


@dataclass(frozen=True)
class Found:
    """A running server."""

    url: str
    backend: str  # as a profile calls it
    kind: str  # as people call it
    version: str  # "" when it does not say
    models: tuple[Served, ...]
    has_metrics: bool
    guesses: bool

    @property
    def is_old(self) -> bool:
        """Whether it is of a time when names were others."""
        oldest, version = OLDEST.get(self.backend), numbers(self.version)
        return bool(oldest and version and version < oldest)


def served_models(line: Line) -> list[Served]:
    """The models of a server; none when it has no list. ModelError when there is no server, or no such one."""
    page = line.page(f"{line.url.rstrip('/')}/models", LOOK_SECONDS)
    if page is None:
        return []
    try:
        return [_served(model) for model in json.loads(page)["data"]]
    except (ValueError, KeyError, TypeError) as error:
        raise ModelError(f"{line.url} is no server that speaks as OpenAI's does; {INSTEAD}") from error


def _served(model: dict[str, Any]) -> Served:
    """One entry; llama.cpp puts the window into its `meta`."""
    meta = model.get("meta")
    window = model.get("max_model_len") or (meta.get("n_ctx_train") if isinstance(meta, dict) else None)
    return Served(str(model["id"]), str(model.get("owned_by", "")), window if isinstance(window, int) else None)


def known_as(served: Sequence[Served]) -> str:
    """The backend whose models these are, "" when nobody says."""
    return next((OWNERS[model.owner] for model in served if model.owner in OWNERS), "")


def find_server(line: Line) -> Found:
    """Everything that a server tells without being asked a question."""
    served = served_models(line)
    metrics = line.page(f"{line.root}/metrics", LOOK_SECONDS) or ""
    backend = known_as(served)
    owner = served[0].owner if served else ""
    kind = backend or OTHERS.get(owner, "a server like OpenAI's")
    is_page = "# TYPE" in metrics
    return Found(
        line.url, backend or "openai", kind, _version(line), tuple(served), is_page, is_page and guesses(metrics)
    )


def _version(line: Line) -> str:
    """vLLM has a page for it, SGLang tells it among its settings."""
    for path in ("version", "server_info", "get_server_info"):
        try:
            told = json.loads(line.page(f"{line.root}/{path}", LOOK_SECONDS) or "{}")
        except (ValueError, ModelError):
            continue
        if isinstance(told, dict) and isinstance(told.get("version"), str):
            return told["version"]
    return ""
