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
from specchat.chat.events import Loading as LoadingEvent
from specchat.chat.reference_corpus import Reference, read_reference
from specchat.chat.session import Session, Voice
from specchat.chat.threaded_session import WatchedSession
from specchat.chat.transcript import Turn
from specchat.chooser.chooser import Chooser, Memory
from specchat.chooser.costs import load_costs
from specchat.drafters.combined import Copying
from specchat.drafters.dflash import BlockDrafter
from specchat.drafters.draft_model import DraftModel
from specchat.drafters.eagle import FeatureDrafter
from specchat.drafters.early_exit import EarlyExit
from specchat.drafters.lookahead import Lookahead
from specchat.drafters.medusa import Medusa
from specchat.drafters.plugin_guard import Guarded
from specchat.drafters.prompt_lookup import Lookup
from specchat.drafters.recycling import Recycling
from specchat.drafters.retokenize import RetokenizedDraft
from specchat.drafters.suffix import Recall, Suffix
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.errors import ModelError, PluginError
from specchat.forward.llama import DenseModel
from specchat.heads.block_head import BlockHead
from specchat.heads.detect import find_head, inspect_head
from specchat.heads.networks import FeatureHead, LoadedHead, MedusaHead
from specchat.heads.selftest import settled
from specchat.models.load import EMBEDDED, Loading, find_model, load_model
from specchat.models.tokenizer import Tokenizer
from specchat.models.vocabulary import check_same_tokens
from specchat.plugins.discovery import complain, offers
from specchat.plugins.offer import Offer, in_words
from specchat.profile import GUESSERS, OWN, SERVERS, Models, Profile
from specchat.threads import Watchdog, is_said, threads_for

Progress = Callable[[Event], None]
USUAL_THREADS = torch.get_num_threads()
TEXTS_KEPT = 64  # of other conversations, as tokens
EMBEDDED_HEADS = ("embedded/eagle3", "embedded/mtp", "embedded/medusa", "embedded/eagle")


@dataclass(frozen=True)
class Spelled:
    """A draft model that has other tokens than the target: its tokenizer and the target's."""

    draft: Tokenizer
    target: Tokenizer


@dataclass(frozen=True)
class Parts:
    """What the drafters of a conversation can be made of: the loaded models, and what is known of them."""

    target: Model
    draft: Model | None = None
    spelled: Spelled | None = None  # None: the draft has the target's tokens
    heads: Mapping[str, LoadedHead] = field(default_factory=dict[str, LoadedHead])
    exit_layers: int = 0  # after which the target can speak early; 0: it cannot
    recall: Recall | None = None  # of other conversations
    tokenizer: Tokenizer | None = None  # the target's, for who guesses by the text


def _draft_model(parts: Parts) -> Drafter | None:
    if parts.draft is None:
        return None
    if parts.spelled is None:
        return DraftModel(parts.draft)
    spelled = parts.spelled
    return RetokenizedDraft(parts.draft, spelled.draft, spelled.target, stop=spelled.draft.stop)


def _early_exit(parts: Parts) -> Drafter | None:
    if isinstance(parts.target, DenseModel) and parts.exit_layers:
        return EarlyExit(parts.target, parts.exit_layers)
    return None


def _head(kind: str) -> Callable[[Parts], Drafter | None]:
    def build(parts: Parts) -> Drafter | None:
        match parts.heads.get(kind):
            case FeatureHead() as head:
                return FeatureDrafter(head, parts.target)
            case MedusaHead() as head:
                return Medusa(head, parts.target)
            case BlockHead() as head:
                return BlockDrafter(head, parts.target)
            case None:
                return None

    return build


# Who can draft, and how it is made for a conversation; None when the parts do not allow it.
BUILDERS: Mapping[str, Callable[[Parts], Drafter | None]] = {
    "plain": lambda _parts: Drafter(),
    "lookup": lambda _parts: Lookup(),
    "suffix": lambda parts: Copying(Suffix(parts.recall)),
    "recycling": lambda _parts: Recycling(),
    "lookahead": lambda _parts: Lookahead(),
    "draft": _draft_model,
    "exit": _early_exit,
    "medusa": _head("medusa"),
    "eagle": _head("eagle"),
    "eagle3": _head("eagle3"),
    "mtp": _head("mtp"),
    "dflash": _head("dflash"),
}


def _added(offer: Offer) -> Callable[[Parts], Drafter | None]:
    """The builder of a plugin's drafter; what is wrong with it is told, and conversations go on without it."""

    def failed(error: Exception) -> None:
        complain(f"plugin {offer.plugin}: drafter {offer.name!r} guesses no more: {in_words(error)}")

    def build(parts: Parts) -> Drafter | None:
        try:
            drafter = offer.call(parts)
        except PluginError as error:
            complain(str(error))
            return None
        if drafter is None:
            return None
        if not isinstance(drafter, Drafter):
            complain(str(offer.failure(f"made a {type(drafter).__name__}, which is no Drafter")))
            return None
        return Guarded(offer.name, drafter, parts.target.vocabulary, failed)

    return build


# Among whom `auto` chooses, and after them those of plugins. The others do what one of these does better; who is not
# asked should not have to listen.
CANDIDATES = ("plain", "suffix", "draft", "exit", "eagle", "eagle3", "mtp")


@dataclass(frozen=True)
class Engine:
    """The loaded models of a profile. Sessions share the weights; each has its own text, cache and drafters."""

    voice: Voice
    parts: Parts
    watchdog: Watchdog

    @property
    def draft(self) -> Model | None:
        """The small model, if one was loaded."""
        return self.parts.draft

    def session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> Session:
        """A new conversation, or one that goes on from stored turns; as another profile of these models wants it."""
        voice = self.voice
        if profile is not None:
            is_same_book = profile.prompt.reference == voice.profile.prompt.reference
            voice = replace(voice, profile=profile, reference=voice.reference if is_same_book else _reference(profile))
        if self.parts.recall is not None:
            self.parts.recall.refresh()
        added = {name: _added(offer) for name, offer in offers("drafters", GUESSERS).items()}
        made = {name: build(self.parts) for name, build in {**BUILDERS, **added}.items()}
        drafters = {name: drafter for name, drafter in made.items() if drafter is not None}
        candidates = {name: drafters[name] for name in (*CANDIDATES, *added) if name in drafters}
        chooser = Chooser(candidates, voice.costs, voice.memory)
        return WatchedSession(self.watchdog, voice, {**drafters, chooser.name: chooser}, chooser, turns)

    @property
    def turns_at_once(self) -> int:
        """How many answers can be written in turns: each needs a slot for its keys and values."""
        return self.voice.target.pool.slots

    def close(self) -> None:
        """Give back the memory of models that nobody else holds, now and not when something else is allocated."""
        gc.collect()

    def memory(self) -> dict[str, int]:
        """Bytes by what they hold."""
        models = {"target": self.parts.target, "draft": self.parts.draft}
        loaded = {name: model for name, model in models.items() if model is not None}
        heads = self.parts.heads
        pools = [each.pool for each in (*loaded.values(), *heads.values()) if not isinstance(each, MedusaHead)]
        weights = {name: each.bytes for name, each in (*loaded.items(), *heads.items())}
        return weights | {"keys and values": sum(pool.bytes for pool in pools)}


def load_engine(
    profile: Profile,
    progress: Progress = lambda _event: None,
    cancelled: Flag | None = None,
    past: Callable[[], Sequence[str]] | None = None,
) -> Engine:
    """Load what a profile names. `progress` hears of it; a set `cancelled` ends it between two models.

    `past` tells what was said in other conversations, from which answers may be copied; it is called from a thread.
    """
    models = profile.models
    if models.backend in SERVERS:
        raise ModelError(f"profile {profile.name!r} is a server's; this needs the weights here: take another --profile")
    folder = find_model(models.target)
    tokenizer = Tokenizer(folder)
    parts = Parts(
        _load("target", folder, _loading(profile), progress),
        exit_layers=_exit_layers(folder),
        recall=_recall(tokenizer, past) if past is not None else None,
        tokenizer=tokenizer,
    )
    if models.draft and not (cancelled and cancelled.is_set()):
        parts = _with_draft(parts, profile, tokenizer, progress)
    for source in _head_sources(models) if not (cancelled and cancelled.is_set()) else ():
        parts = replace(parts, heads={**parts.heads, **_load_head(source, parts.target, progress)})
    torch.set_num_threads(threads_for(parts.target.bytes, USUAL_THREADS))
    parts.target.tap(tuple(dict.fromkeys(tap for head in parts.heads.values() for tap in head.taps)))
    costs = load_costs(_identity(profile, parts))
    voice = Voice(parts.target, tokenizer, profile, costs, Memory(), _reference(profile))
    return Engine(voice, parts, _watchdog(parts.target))


def _watchdog(target: Model) -> Watchdog:
    """Who may take threads away from a CPU that computes with several, unless its user has said how many."""
    is_free = target.pool.layout.device.type == "cpu" and not is_said()
    return Watchdog(torch.get_num_threads() if is_free else 1, torch.get_num_threads, torch.set_num_threads)


def _with_draft(parts: Parts, profile: Profile, tokenizer: Tokenizer, progress: Progress) -> Parts:
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
        spelled = Spelled(spelling, tokenizer)
    draft = _load("draft", folder, _draft_loading(profile), progress)
    return replace(parts, draft=draft, spelled=spelled)


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
    return {spec.kind: settled(spec, target, None, device)}


def _exit_layers(folder: Path) -> int:
    """The first layer after which a network was trained to speak early, as its config says; 0 when it was not."""
    layers = json.loads((folder / "config.json").read_text()).get("early_exit_layers") or [0]
    return int(layers[0])


def _recall(tokenizer: Tokenizer, past: Callable[[], Sequence[str]]) -> Recall:
    """Other conversations as tokens; most texts are the same when they are asked for again."""
    encode = lru_cache(maxsize=TEXTS_KEPT)(tokenizer.encode)
    return Recall(lambda: map(encode, past()))


def _reference(profile: Profile) -> Reference | None:
    chosen = profile.prompt.reference
    if chosen == "embedded":
        return read_reference(EMBEDDED / "reference.jsonl") if profile.models.target == "embedded" else None
    return read_reference(Path(chosen).expanduser()) if chosen else None


def _identity(profile: Profile, parts: Parts) -> dict[str, str]:
    """All that a measured second depends on."""
    models, target, draft, layout = profile.models, parts.target, parts.draft, parts.target.pool.layout
    return {
        "target": f"{models.target} {models.weights} {target.bytes}"
        + f" by {models.backend}" * (models.backend != OWN),
        "draft": f"{models.draft} {models.draft_weights} {draft.bytes} {_place(draft)}" if draft is not None else "",
        "heads": " ".join(f"{name} {head.bytes}" for name, head in parts.heads.items()),
        "dtype": str(layout.dtype),
        "exact": str(profile.speculation.exact),
        "device": _place(target),
        "threads": str(torch.get_num_threads()),
        "torch": torch.__version__,
    }


def _place(model: Model) -> str:
    """What computes with a model's weights."""
    device = model.pool.layout.device
    return torch.cuda.get_device_name(device) if device.type == "cuda" else f"{platform.machine()} {platform.node()}"


def _loading(profile: Profile) -> Loading:
    models, window, exact = profile.models, profile.limits.context, profile.speculation.exact
    return Loading(
        models.dtype, models.device, window, exact, models.backend, weights=models.weights, embedding=models.embedding
    )


def _draft_loading(profile: Profile) -> Loading:
    models, window = profile.models, profile.limits.context
    device = models.device if models.draft_device == "auto" else models.draft_device
    return Loading(models.dtype, device, window, weights=models.draft_weights)


def _load(role: str, folder: Path, loading: Loading, progress: Progress) -> Model:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    progress(LoadingEvent(role, 0, size))
    model = load_model(folder, loading)
    progress(LoadingEvent(role, size, size))
    return model
