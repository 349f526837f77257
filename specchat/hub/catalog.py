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
from specchat.hub.architecture import Anatomy
from specchat.hub.config_size import anatomy_of

TABLE = Path(__file__).with_name("catalog.toml")
CARDS = (8, 12, 16, 24, 48)  # GB, as they are sold
HEAD_LAYERS = {"eagle3": 1, "dflash": 5}
DRAFTED = 32000  # tokens that an EAGLE-3 head can draft, as most are published


@dataclass(frozen=True)
class PublishedHead:
    """A head and where it is published."""

    kind: str
    id: str
    speaks: str = ""  # the one language that it was trained on


@dataclass(frozen=True)
class Entry:
    """A model of the catalog."""

    id: str
    tokens: str  # models with the same word have the same ids for the same pieces
    licence: str
    year: int
    purposes: tuple[str, ...]  # the best first
    config: Mapping[str, Any]
    is_gated: bool = False
    same: tuple[str, ...] = ()
    heads: tuple[PublishedHead, ...] = ()
    drafts: tuple[str, ...] = ()

    @property
    def anatomy(self) -> Anatomy:
        """What it is made of."""
        return _anatomy(self.id)

    @property
    def name(self) -> str:
        """Its id without who published it."""
        return self.id.partition("/")[2]

    @property
    def active(self) -> int:
        """Parameters that one token is multiplied with: of a mixture, only the chosen experts."""
        anatomy, config = self.anatomy, self.config
        experts = anatomy.numbers("expert")
        count = config.get("num_experts") or config.get("num_local_experts") or 1
        return anatomy.parameters - experts + experts * int(config.get("num_experts_per_tok", 1)) // int(count)


@cache
def catalog() -> Mapping[str, Entry]:
    """All entries by id, in the order of the file."""
    tables = tomllib.loads(TABLE.read_text(encoding="utf-8"))["models"]
    return {table["id"]: _entry(table) for table in tables}


def find_entry(name: str) -> Entry | None:
    """The entry of a hub id, of one that has the same shape, or of a name without who published it."""
    entries = catalog()
    if found := entries.get(name):
        return found
    low = name.lower()
    return next(
        (
            entry
            for entry in entries.values()
            if low in (entry.id.lower(), entry.name.lower(), *(each.lower() for each in entry.same))
        ),
        None,
    )


def nearest_names(name: str) -> str:
    """` did you mean …?`, or nothing when no known name is near."""
    names = {known.lower(): entry.id for entry in catalog().values() for known in (entry.name, entry.id)}
    near = get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    return f" did you mean {names[near[0]]!r}?" if near else ""


@cache
def head_anatomy(target: str, kind: str) -> Anatomy:
    """What a head of this kind is made of when it is trained for this entry: it shares the widths of its target."""
    config = catalog()[target].config
    if kind not in HEAD_LAYERS:
        raise ModelError(f"{kind}: heads of this kind have no shape that follows from their target")
    shared = {key: config[key] for key in SHARED if key in config}
    own: dict[str, Any] = {"architectures": [kind], "num_hidden_layers": HEAD_LAYERS[kind], "model_type": "llama"}
    own |= {"draft_vocab_size": DRAFTED} if kind == "eagle3" else {"dflash_config": {}}
    return anatomy_of({**shared, **own}, f"a head for {target}")


SHARED = (
    "hidden_size", "num_attention_heads", "num_key_value_heads", "head_dim", "intermediate_size", "vocab_size",
    "max_position_embeddings",
)  # fmt: skip


@cache
def _anatomy(name: str) -> Anatomy:
    return anatomy_of(catalog()[name].config, name)


def _entry(table: Mapping[str, Any]) -> Entry:
    return Entry(
        id=table["id"], tokens=table["tokens"], licence=table["licence"], year=table["year"],
        purposes=tuple(table["for"]), config=table["config"], is_gated=table.get("gated", False),
        same=tuple(table.get("same", ())), heads=tuple(PublishedHead(**head) for head in table.get("heads", ())),
        drafts=tuple(table.get("drafts", ())),
    )  # fmt: skip
