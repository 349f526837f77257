"""The models on this disk, and whether each can answer here, for the menu of a front end.

Reads headers only. Separate from `local_models`, because it also asks what memory is free.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from specchat.hub.local_models import EMBEDDED_ROLES, LocalDetails, LocalModel, models_on_disk
from specchat.hub.machine import Device, detect_machine
from specchat.hub.memory_plan import fitting_format
from specchat.hub.recommend import format_gib
from specchat.profile.keys import EMBEDDED, Models
from specchat.profile.shipped_drafters import with_shipped_drafters

FITTING_TOKENS = 8192  # the context with which a model must fit
STORED_FORMAT = "bf16"
EMBEDDED_HEADS = [role for role in EMBEDDED_ROLES if role not in ("target", "draft")]


@dataclass(frozen=True)
class LocalChoice:
    """A whole model on this disk for a menu: each field is a text, "" when nothing is known."""

    name: str
    size: str
    quantization: str
    fit: str
    drafters: str  # that come with it
    fits: bool
    weights: str = ""  # the format with which it fits, "" for that of the profile


@dataclass(frozen=True)
class ListedModel:
    """A model or head on this disk, with what its headers say."""

    model: LocalModel
    details: LocalDetails
    fits: str | None  # the most precise weight format with which it fits the free memory; None: with none, or a head


def listed_models(device: Device) -> Iterator[ListedModel]:
    for model in models_on_disk():
        details, fits = model.details(), None
        if details.architecture is not None:
            fits = fitting_format(details.architecture, device.free_bytes, FITTING_TOKENS, kind=device.kind)
        yield ListedModel(model, details, fits)


def local_choices() -> Iterator[LocalChoice]:
    """Every whole model on this disk, those that do not fit the free memory as well."""
    parts = {f"{EMBEDDED}/{role}" for role in EMBEDDED_ROLES if role != "target"}
    for listed in listed_models(detect_machine().best_device):
        if listed.details.architecture is not None and listed.model.id not in parts:
            yield _choice(listed)


def _choice(listed: ListedModel) -> LocalChoice:
    details, fits = listed.details, listed.fits
    name = EMBEDDED if listed.model.id == f"{EMBEDDED}/target" else listed.model.id
    fit = {None: "does not fit", STORED_FORMAT: "fits"}.get(fits, f"fits with {fits} weights")
    models = with_shipped_drafters(Models(name))
    heads = [each for head in models.heads for each in (EMBEDDED_HEADS if head == EMBEDDED else [Path(head).name])]
    kinds = [*(["a draft model"] if models.draft else []), *heads]
    size = "" if details.bytes is None else format_gib(details.bytes)
    drafters = f"drafters: {', '.join(kinds)}" if kinds else ""
    weights = "" if fits in (None, STORED_FORMAT) else fits
    return LocalChoice(name, size, details.quantization, fit, drafters, fits is not None, weights)
