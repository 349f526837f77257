"""The models of a profile that names none: the starter model or the embedded one, with the drafters shipped for it.

`models.target` has no name for this choice: where the starter model is on this disk, it is the default, else the
embedded model is. `auto` for draft and heads means those that are part of specchat for that target, and none for any
other target.
"""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from specchat.paths import STARTER_DRAFTERS, starter_file
from specchat.profile.keys import AUTO, EMBEDDED, STARTER, Models
from specchat.profile.validation import SettingsSource


def default_target_source() -> Iterator[SettingsSource]:
    """The starter model as the weakest setting, if it is on this disk."""
    if starter_file() is not None:
        yield SettingsSource("default", {"models": {"target": STARTER}}, lambda _path: "")


def with_shipped_drafters(models: Models) -> Models:
    """The models with names instead of `auto`: of the embedded target, of the starter, or none."""
    draft = "".join(_shipped(models.target, "draft")) if models.draft == AUTO else models.draft
    heads = [head for each in models.heads for head in (_shipped(models.target, "eagle3") if each == AUTO else [each])]
    return replace(models, draft=draft, heads=tuple(heads))


def _shipped(target: str, role: str) -> list[str]:
    """The name of what is shipped for a target in this role, if anything is."""
    source = f"{STARTER}/{role}"
    if target == STARTER and starter_drafter(source):
        return [source]
    return [EMBEDDED] if target == EMBEDDED else []


def starter_drafter(source: str) -> Path | None:
    """The folder of "starter/eagle3" or "starter/draft"; None for any other source, and for one that is not shipped."""
    owner, _, role = source.partition("/")
    folder = STARTER_DRAFTERS / role
    return folder if owner == STARTER and role and (folder / "config.json").is_file() else None
