"""Profile -> Session: the one place that sees every package.

A table says which drafters a profile can have; everything else is told what it works with.
"""

from __future__ import annotations

import gc
import json
import platform
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from threading import Event as Flag

import torch

from specchat.chat.events import Event
from specchat.chat.events import LoadingProgress as LoadingEvent
from specchat.chat.reference_corpus import ReferenceCorpus, read_reference_corpus
from specchat.chat.session import LoadedModels, Session
from specchat.chat.transcript import Turn
from specchat.chat.watchdog_session import WatchdogSession
from specchat.chooser.chooser import Chooser, ChooserState
from specchat.chooser.costs import load_costs
from specchat.drafters.combined import SuffixAndRealign
from specchat.drafters.dflash import DFlashDrafter
from specchat.drafters.draft_model import DraftModelDrafter
from specchat.drafters.eagle import EagleDrafter
from specchat.drafters.early_exit import EarlyExit
from specchat.drafters.lookahead import Lookahead
from specchat.drafters.medusa import Medusa
from specchat.drafters.plugin_guard import PluginDrafterGuard
from specchat.drafters.prompt_lookup import PromptLookup
from specchat.drafters.retokenize import RetokenizedDraftModel
from specchat.drafters.suffix_decoding import PastTextIndex, SuffixDecoding
from specchat.drafters.token_recycling import TokenRecycling
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.errors import ModelError, PluginError
from specchat.forward.llama import LlamaModel
from specchat.heads.detect import find_head, inspect_head
from specchat.heads.dflash_head import DFlashHead
from specchat.heads.networks import EagleHead, LoadedHead, MedusaHead
from specchat.heads.selftest import load_selected_head
from specchat.models.load import EMBEDDED, LoadOptions, find_model, load_model
from specchat.models.tokenizer import Tokenizer
from specchat.models.vocabulary import check_same_tokens
from specchat.plugins.discovery import find_extensions, print_warning
from specchat.plugins.extension import Extension, error_text
from specchat.profile import BUILTIN_BACKEND, DRAFTERS, SERVER_BACKENDS, Models, Profile
from specchat.threads import ThreadWatchdog, is_thread_count_set, threads_for

Progress = Callable[[Event], None]
DEFAULT_THREADS = torch.get_num_threads()
MAX_ENCODED_TEXTS = 64  # of other conversations, as tokens
EMBEDDED_HEADS = ("embedded/eagle3", "embedded/mtp", "embedded/medusa", "embedded/eagle")


@dataclass(frozen=True)
class TokenizerPair:
    """A draft model that has other tokens than the target: its tokenizer and the target's."""

    draft: Tokenizer
    target: Tokenizer


@dataclass(frozen=True)
class DraftingResources:
    """What the drafters of a conversation can be made of: the loaded models, and what is known of them."""

    target: Model
    draft_model: Model | None = None
    tokenizers: TokenizerPair | None = None  # None: the draft has the target's tokens
    heads: Mapping[str, LoadedHead] = field(default_factory=dict[str, LoadedHead])
    early_exit_layer: int = 0  # after which the target can speak early; 0: it cannot
    past_texts: PastTextIndex | None = None  # of other conversations
    tokenizer: Tokenizer | None = None  # the target's, for who guesses by the text


def _draft_model(resources: DraftingResources) -> Drafter | None:
    if resources.draft_model is None:
        return None
    if resources.tokenizers is None:
        return DraftModelDrafter(resources.draft_model)
    spelled = resources.tokenizers
    return RetokenizedDraftModel(
        resources.draft_model, spelled.draft, spelled.target, stop_token_ids=spelled.draft.stop_token_ids
    )


def _early_exit(resources: DraftingResources) -> Drafter | None:
    if isinstance(resources.target, LlamaModel) and resources.early_exit_layer:
        return EarlyExit(resources.target, resources.early_exit_layer)
    return None


def _head_builder(kind: str) -> Callable[[DraftingResources], Drafter | None]:
    def build(parts: DraftingResources) -> Drafter | None:
        match parts.heads.get(kind):
            case EagleHead() as head:
                return EagleDrafter(head, parts.target)
            case MedusaHead() as head:
                return Medusa(head, parts.target)
            case DFlashHead() as head:
                return DFlashDrafter(head, parts.target)
            case None:
                return None

    return build


# Who can draft, and how it is made for a conversation; None when the parts do not allow it.
DRAFTER_BUILDERS: Mapping[str, Callable[[DraftingResources], Drafter | None]] = {
    "plain": lambda _parts: Drafter(),
    "lookup": lambda _parts: PromptLookup(),
    "suffix": lambda parts: SuffixAndRealign(SuffixDecoding(parts.past_texts)),
    "recycling": lambda _parts: TokenRecycling(),
    "lookahead": lambda _parts: Lookahead(),
    "draft": _draft_model,
    "exit": _early_exit,
    "medusa": _head_builder("medusa"),
    "eagle": _head_builder("eagle"),
    "eagle3": _head_builder("eagle3"),
    "mtp": _head_builder("mtp"),
    "dflash": _head_builder("dflash"),
}


def _plugin_builder(offer: Extension) -> Callable[[DraftingResources], Drafter | None]:
    """The builder of a plugin's drafter; what is wrong with it is told, and conversations go on without it."""

    def failed(error: Exception) -> None:
        print_warning(f"plugin {offer.plugin_name}: drafter {offer.name!r} guesses no more: {error_text(error)}")

    def build(parts: DraftingResources) -> Drafter | None:
        try:
            drafter = offer.call(parts)
        except PluginError as error:
            print_warning(str(error))
            return None
        if drafter is None:
            return None
        if not isinstance(drafter, Drafter):
            print_warning(str(offer.plugin_error(f"made a {type(drafter).__name__}, which is no Drafter")))
            return None
        return PluginDrafterGuard(offer.name, drafter, parts.target.vocab_size, failed)

    return build


# Among whom `auto` chooses, and after them those of plugins. The others do what one of these does better; who is not
# asked should not have to listen.
AUTO_CANDIDATES = ("plain", "suffix", "draft", "exit", "eagle", "eagle3", "mtp")


@dataclass(frozen=True)
class Engine:
    """The loaded models of a profile. Sessions share the weights; each has its own text, cache and drafters."""

    models: LoadedModels
    resources: DraftingResources
    watchdog: ThreadWatchdog

    @property
    def draft_model(self) -> Model | None:
        """The small model, if one was loaded."""
        return self.resources.draft_model

    def create_session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> Session:
        """A new conversation, or one that goes on from stored turns; as another profile of these models wants it."""
        voice = self.models
        if profile is not None:
            is_same_book = profile.prompt.reference_corpus == voice.profile.prompt.reference_corpus
            voice = replace(
                voice, profile=profile, reference=voice.reference_corpus if is_same_book else _reference_corpus(profile)
            )
        if self.resources.past_texts is not None:
            self.resources.past_texts.refresh()
        added = {name: _plugin_builder(offer) for name, offer in find_extensions("drafters", DRAFTERS).items()}
        made = {name: build(self.resources) for name, build in {**DRAFTER_BUILDERS, **added}.items()}
        drafters = {name: drafter for name, drafter in made.items() if drafter is not None}
        candidates = {name: drafters[name] for name in (*AUTO_CANDIDATES, *added) if name in drafters}
        chooser = Chooser(candidates, voice.costs, voice.chooser_state)
        return WatchdogSession(self.watchdog, voice, {**drafters, chooser.name: chooser}, chooser, turns)

    @property
    def max_concurrent_turns(self) -> int:
        """How many answers can be written in turns: each needs a slot for its keys and values."""
        return self.models.target.pool.slots

    def close(self) -> None:
        """Give back the memory of models that nobody else holds, now and not when something else is allocated."""
        gc.collect()

    def memory_bytes(self) -> dict[str, int]:
        """Bytes by what they hold."""
        models = {"target": self.resources.target, "draft": self.resources.draft_model}
        loaded = {name: model for name, model in models.items() if model is not None}
        heads = self.resources.heads
        pools = [each.pool for each in (*loaded.values(), *heads.values()) if not isinstance(each, MedusaHead)]
        weights = {name: each.bytes for name, each in (*loaded.items(), *heads.items())}
        return weights | {"keys and values": sum(pool.bytes for pool in pools)}


def load_engine(
    profile: Profile,
    progress: Progress = lambda _event: None,
    cancelled: Flag | None = None,
    past_texts: Callable[[], Sequence[str]] | None = None,
) -> Engine:
    """Load what a profile names. `progress` hears of it; a set `cancelled` ends it between two models.

    `past` tells what was said in other conversations, from which answers may be copied; it is called from a thread.
    """
    models = profile.models
    if models.backend in SERVER_BACKENDS:
        raise ModelError(f"profile {profile.name!r} is a server's; this needs the weights here: take another --profile")
    folder = find_model(models.target)
    tokenizer = Tokenizer(folder)
    parts = DraftingResources(
        _load_and_report("target", folder, _target_loading(profile), progress),
        early_exit_layer=_early_exit_layer(folder),
        past_texts=_past_text_index(tokenizer, past_texts) if past_texts is not None else None,
        tokenizer=tokenizer,
    )
    if models.draft and not (cancelled and cancelled.is_set()):
        parts = _load_draft(parts, profile, tokenizer, progress)
    for source in _head_sources(models) if not (cancelled and cancelled.is_set()) else ():
        parts = replace(parts, heads={**parts.heads, **_load_head(source, parts.target, progress)})
    torch.set_num_threads(threads_for(parts.target.bytes, DEFAULT_THREADS))
    parts.target.set_hidden_state_layers(
        tuple(dict.fromkeys(tap for head in parts.heads.values() for tap in head.hidden_state_layers))
    )
    costs = load_costs(_cost_identity(profile, parts))
    voice = LoadedModels(parts.target, tokenizer, profile, costs, ChooserState(), _reference_corpus(profile))
    return Engine(voice, parts, _thread_watchdog(parts.target))


def _thread_watchdog(target: Model) -> ThreadWatchdog:
    """Who may take threads away from a CPU that computes with several, unless its user has said how many."""
    is_free = target.pool.layout.device.type == "cpu" and not is_thread_count_set()
    return ThreadWatchdog(torch.get_num_threads() if is_free else 1, torch.get_num_threads, torch.set_num_threads)


def _load_draft(
    resources: DraftingResources, profile: Profile, tokenizer: Tokenizer, progress: Progress
) -> DraftingResources:
    """The small model too. One with other tokens must be named: the embedded one would be no help to strangers."""
    source = profile.models.draft
    folder = find_model(source, role="draft")
    spelled = None
    spelling = Tokenizer(folder)
    try:
        check_same_tokens(tokenizer, spelling)
    except ModelError:
        if source == "embedded":
            raise
        spelled = TokenizerPair(spelling, tokenizer)
    draft = _load_and_report("draft", folder, _draft_loading(profile), progress)
    return replace(resources, draft=draft, spelled=spelled)


def _head_sources(models: Models) -> Iterator[str]:
    for source in models.heads:
        if source != "embedded":
            yield source
        elif models.target == "embedded":
            yield from EMBEDDED_HEADS


def _load_head(source: str, target: Model, progress: Progress) -> dict[str, LoadedHead]:
    """A head by its kind, in the reading that agrees with the target where its folder leaves that open."""
    found = find_head(source)
    spec = inspect_head(found)
    progress(LoadingEvent(f"head {spec.kind}", 0, 0))
    device = target.pool.layout.device
    return {spec.kind: load_selected_head(spec, target, None, device)}


def _early_exit_layer(folder: Path) -> int:
    """The first layer after which a network was trained to speak early, as its config says; 0 when it was not."""
    layers = json.loads((folder / "config.json").read_text()).get("early_exit_layers") or [0]
    return int(layers[0])


def _past_text_index(tokenizer: Tokenizer, past_texts: Callable[[], Sequence[str]]) -> PastTextIndex:
    """Other conversations as tokens; most texts are the same when they are asked for again."""
    encode = lru_cache(maxsize=MAX_ENCODED_TEXTS)(tokenizer.encode)
    return PastTextIndex(lambda: map(encode, past_texts()))


def _reference_corpus(profile: Profile) -> ReferenceCorpus | None:
    chosen = profile.prompt.reference_corpus
    if chosen == "embedded":
        return read_reference_corpus(EMBEDDED / "reference.jsonl") if profile.models.target == "embedded" else None
    return read_reference_corpus(Path(chosen).expanduser()) if chosen else None


def _cost_identity(profile: Profile, resources: DraftingResources) -> dict[str, str]:
    """All that a measured second depends on."""
    models, target, draft, layout = (
        profile.models,
        resources.target,
        resources.draft_model,
        resources.target.pool.layout,
    )
    return {
        "target": f"{models.target} {models.weights} {target.bytes}"
        + f" by {models.backend}" * (models.backend != BUILTIN_BACKEND),
        "draft": f"{models.draft} {models.draft_weights} {draft.bytes} {_device_name(draft)}"
        if draft is not None
        else "",
        "heads": " ".join(f"{name} {head.bytes}" for name, head in resources.heads.items()),
        "dtype": str(layout.dtype),
        "exact": str(profile.speculation.exact),
        "device": _device_name(target),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }


def _device_name(model: Model) -> str:
    """What computes with a model's weights."""
    device = model.pool.layout.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} {platform.node()}"


def _target_loading(profile: Profile) -> LoadOptions:
    models, window, exact = profile.models, profile.limits.context, profile.speculation.exact
    return LoadOptions(
        models.dtype,
        models.device,
        window,
        exact,
        models.backend,
        quant_format=models.weights,
        embedding_device=models.embedding_device,
    )


def _draft_loading(profile: Profile) -> LoadOptions:
    models, window = profile.models, profile.limits.context
    device = models.device if models.draft_device == "auto" else models.draft_device
    return LoadOptions(models.dtype, device, window, quant_format=models.draft_weights)


def _load_and_report(role: str, folder: Path, loading: LoadOptions, progress: Progress) -> Model:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    progress(LoadingEvent(role, 0, size))
    model = load_model(folder, loading)
    progress(LoadingEvent(role, size, size))
    return model
