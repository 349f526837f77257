"""The models that specchat knows by name, who can draft for them, and what each of them takes in memory.

The data is `catalog.toml` beside this file. Everything here follows from it without a network, a disk or torch: the
anatomy of a model from the lines of its config, that of a head from the target that it was trained for.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from specchat.errors import ModelError
from specchat.hub.architecture import Architecture
from specchat.hub.config_architecture import architecture_from_config

CATALOG_FILE = Path(__file__).with_name("catalog.toml")
GPU_SIZES_GB = (8, 12, 16, 24, 48)  # GB, as they are sold
HEAD_LAYERS = {"eagle3": 1, "dflash": 5}
EAGLE3_DRAFT_VOCAB_SIZE = 32000  # tokens that an EAGLE-3 head can draft, as most are published


@dataclass(frozen=True)
class PublishedHead:
    """A head and where it is published."""

    kind: str
    id: str
    language: str = ""  # the one language that it was trained on


@dataclass(frozen=True)
class CatalogEntry:
    """A model of the catalog."""

    id: str
    token_family: str  # models with the same word have the same ids for the same pieces
    licence: str
    year: int
    purposes: tuple[str, ...]  # the best first
    config: Mapping[str, Any]
    is_gated: bool = False
    same_shape_models: tuple[str, ...] = ()
    heads: tuple[PublishedHead, ...] = ()
    draft_models: tuple[str, ...] = ()

    @property
    def architecture(self) -> Architecture:
        """What it is made of."""
        return _architecture(self.id)

    @property
    def name(self) -> str:
        """Its id without who published it."""
        return self.id.partition("/")[2]

    @property
    def active_parameters(self) -> int:
        """Parameters that one token is multiplied with: of a mixture, only the chosen experts."""
        anatomy, config = self.architecture, self.config
        experts = anatomy.parameters_of_kind("expert")
        count = config.get("num_experts") or config.get("num_local_experts") or 1
        return anatomy.parameters - experts + experts * int(config.get("num_experts_per_tok", 1)) // int(count)


@cache
def catalog() -> Mapping[str, CatalogEntry]:
    """All entries by id, in the order of the file."""
    tables = tomllib.loads(CATALOG_FILE.read_text(encoding="utf-8"))["models"]
    return {table["id"]: _entry(table) for table in tables}


def find_entry(name: str) -> CatalogEntry | None:
    """The entry of a hub id, of one that has the same shape, or of a name without who published it."""
    entries = catalog()
    if found := entries.get(name):
        return found
    low = name.lower()
    return next(
        (
            entry
            for entry in entries.values()
            if low in (entry.id.lower(), entry.name.lower(), *(each.lower() for each in entry.same_shape_models))
        ),
        None,
    )


def did_you_mean(name: str) -> str:
    """` did you mean …?`, or nothing when no known name is near."""
    names = {known.lower(): entry.id for entry in catalog().values() for known in (entry.name, entry.id)}
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f" did you mean {names[near[0]]!r}?" if near else ""


@cache
def head_architecture(target: str, kind: str) -> Architecture:
    """What a head of this kind is made of when it is trained for this entry: it shares the widths of its target."""
    config = catalog()[target].config
    if kind not in HEAD_LAYERS:
        raise ModelError(f"{kind}: heads of this kind have no shape that follows from their target")
    shared = {key: config[key] for key in SHARED_CONFIG_KEYS if key in config}
    own: dict[str, Any] = {"architectures": [kind], "num_hidden_layers": HEAD_LAYERS[kind], "model_type": "llama"}
    own |= {"draft_vocab_size": EAGLE3_DRAFT_VOCAB_SIZE} if kind == "eagle3" else {"dflash_config": {}}
    return architecture_from_config({**shared, **own}, f"a head for {target}")


SHARED_CONFIG_KEYS = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip


@cache
def _architecture(name: str) -> Architecture:
    return architecture_from_config(catalog()[name].config, name)


def _entry(table: Mapping[str, Any]) -> CatalogEntry:
    return CatalogEntry(
        id=table["id"], token_family=table["tokens"], licence=table["licence"], year=table["year"],
        purposes=tuple(table["for"]), config=table["config"], is_gated=table.get("gated", False),
        same_shape_models=tuple(table.get("same", ())), heads=tuple(PublishedHead(**head) for head in table.get("heads", ())),
        draft_models=tuple(table.get("drafts", ())),
    )  # fmt: skip
