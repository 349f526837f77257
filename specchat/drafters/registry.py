"""Builds the drafters of a conversation from the loaded models: the built-in ones and those of plugins.

The table of the built-in drafters is `profile/drafter_names.py`, which front ends read without torch. Each row names
the function that builds the drafter from `DraftingResources`, as a plugin does. So a new built-in drafter is one new
file and one new row.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING

from specchat.drafters.plugin_guard import PluginDrafterGuard, call_in_time
from specchat.engine.drafter import Drafter
from specchat.errors import SpecchatError
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.extension import Extension, error_text
from specchat.profile.drafter_names import AUTO, DRAFTERS

if TYPE_CHECKING:
    from specchat.drafters.heads.draft_head import DraftHead
    from specchat.drafters.suffix_decoding import PastTextIndex
    from specchat.engine.model import Model
    from specchat.text.tokenizer import Tokenizer


MAX_BUILD_SECONDS = 30.0  # of a plugin's drafter, which may load a model


@dataclass(frozen=True)
class DraftingResources:
    target: Model
    draft_model: Model | None = None
    draft_tokenizer: Tokenizer | None = None  # None: the draft model has the target's tokens
    heads: Mapping[str, DraftHead] = field(default_factory=dict[str, "DraftHead"])  # by kind
    past_texts: PastTextIndex | None = None  # of other conversations
    tokenizer: Tokenizer | None = None  # the target's
    target_folder: Path | None = None  # with its config.json


@dataclass(frozen=True)
class BuiltDrafters:
    drafters: Mapping[str, Drafter]
    auto_candidates: Mapping[str, Drafter]  # those that `auto` chooses from; plugins come last
    faults: deque[str]  # of plugins, for the user; grows during the conversation, in any thread


def build_drafters(resources: DraftingResources) -> BuiltDrafters:
    drafters, faults = {name: build_drafter(name, resources) for name in DRAFTERS}, deque[str]()
    extensions = find_extensions("drafters", DRAFTERS)
    drafters |= {name: _build_plugin_drafter(extension, resources, faults) for name, extension in extensions.items()}
    available = {name: drafter for name, drafter in drafters.items() if drafter is not None}
    auto_candidates = {name: available[name] for name in (*_candidate_names(), *extensions) if name in available}
    return BuiltDrafters(available, auto_candidates, faults)


def build_auto_candidates(resources: DraftingResources) -> dict[str, Drafter]:
    """The built-in drafters that `auto` chooses from, without those of plugins."""
    built = {name: build_drafter(name, resources) for name in _candidate_names()}
    return {name: drafter for name, drafter in built.items() if drafter is not None}


def _candidate_names() -> list[str]:
    return [name for name, drafter in DRAFTERS.items() if drafter.is_auto_candidate]


def runnable_variants(resources: DraftingResources) -> frozenset[str]:
    """The drafters for which these resources have everything, `auto` among them; of plugins, all that are installed."""
    built_in = {name for name in DRAFTERS if build_drafter(name, resources) is not None}
    return frozenset({AUTO, *built_in, *find_extensions("drafters", DRAFTERS)})


def build_plain(_resources: DraftingResources) -> Drafter:
    return Drafter()


def build_drafter(name: str, resources: DraftingResources) -> Drafter | None:
    """Build one built-in drafter; None if a required model is missing, and for `auto`, which needs the others."""
    module, _, function = DRAFTERS[name].builder.partition(":")
    return getattr(import_module(module), function)(resources) if module else None


def _build_plugin_drafter(extension: Extension, resources: DraftingResources, faults: deque[str]) -> Drafter | None:
    """Build a plugin's drafter inside a guard. A failure is a fault, and the drafter is left out.

    One that computes with the loaded models has none, as their passes belong to the engine's thread.
    """

    def report(fault: str) -> None:
        faults.append(fault)
        print_warning(fault)  # into the log of the engine process

    def on_failure(error: BaseException) -> None:
        report(f"plugin {extension.plugin_name}: drafter {extension.name!r} is switched off: {error_text(error)}")

    try:
        drafter = call_in_time(lambda: extension.call(resources), MAX_BUILD_SECONDS)
        if drafter is not None and not isinstance(drafter, Drafter):
            raise extension.plugin_error(f"returned a {type(drafter).__name__}, which is not a Drafter")
    except SpecchatError as error:
        report(str(error))
        return None
    except BaseException as error:  # noqa: BLE001 - a plugin may raise anything
        report(str(extension.plugin_error("failed", error)))
        return None
    if drafter is None or drafter.drafts_with_models:
        return drafter
    return PluginDrafterGuard(extension.name, drafter, resources.target.vocab_size, on_failure)
