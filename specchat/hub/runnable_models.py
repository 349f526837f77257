"""The models on this disk that can answer here, for the menu of a front end.

Reads headers only. Separate from `local_models`, because it also asks what memory is free.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from specchat.hub.local_models import EMBEDDED_ROLES, local_models
from specchat.hub.machine import detect_machine
from specchat.hub.memory_plan import fitting_format
from specchat.hub.other_programs import models_of_other_programs
from specchat.hub.recommend import format_gib
from specchat.profile.keys import EMBEDDED

FITTING_TOKENS = 8192  # the context with which a model must fit
STORED_FORMAT = "bf16"


@dataclass(frozen=True)
class RunnableModel:
    """A model as `models.target` names it. `weights` is the format with which it fits, "" for that of the profile."""

    name: str
    description: str
    weights: str = ""


def runnable_models() -> Iterator[RunnableModel]:
    """Every whole model that fits the memory that is free now, in the most precise format."""
    device, parts = detect_machine().best_device, {f"{EMBEDDED}/{role}" for role in EMBEDDED_ROLES}
    for model in (*local_models(), *models_of_other_programs()):
        details = model.details()
        if details.architecture is None or (model.id in parts and model.id != f"{EMBEDDED}/target"):
            continue
        fits = fitting_format(details.architecture, device.free_bytes, FITTING_TOKENS, on_gpu=device.is_gpu)
        if fits is not None:
            weights = "" if fits == STORED_FORMAT else fits
            size = "size unknown" if details.bytes is None else format_gib(details.bytes)
            described = ", ".join(filter(None, [size, details.quantization, weights and f"with {weights} weights"]))
            yield RunnableModel(model.id.removesuffix("/target") if model.id in parts else model.id, described, weights)
