"""Profile -> Session: the one place that sees every package.

A table says which drafters a profile can have; everything else is told what it works with.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from threading import Event as Flag

from specchat.chat.events import Event
from specchat.chat.events import Loading as LoadingEvent
from specchat.chat.session import Session, Voice
from specchat.chat.transcript import Turn
from specchat.drafters.combine import FirstOf
from specchat.drafters.draft_model import DraftModel
from specchat.drafters.lookup import Lookup
from specchat.engine.costs import PlainCost
from specchat.engine.drafter import Drafter
from specchat.engine.model import Model
from specchat.models.load import Loading, find_model, load_model
from specchat.models.tokenizer import Tokenizer
from specchat.models.vocabulary import check_same_tokens
from specchat.profile import Profile

Progress = Callable[[Event], None]


@dataclass(frozen=True)
class Engine:
    """The loaded models of a profile. Sessions share the weights; each has its own text, cache and drafters."""

    voice: Voice
    draft: Model | None

    def session(self, turns: Sequence[Turn] = (), profile: Profile | None = None) -> Session:
        """A new conversation, or one that goes on from stored turns; as another profile of these models wants it."""
        voice = replace(self.voice, profile=profile) if profile else self.voice
        lookup = Lookup()
        drafters: dict[str, Drafter] = {"plain": Drafter(), "lookup": lookup}
        listeners: tuple[Drafter, ...] = (lookup,)
        if self.draft is not None:
            draft = DraftModel(self.draft)
            drafters |= {"draft": draft, "auto": FirstOf(lookup, draft)}
            listeners = (lookup, draft)
        return Session(voice, drafters, listeners, turns)

    @property
    def turns_at_once(self) -> int:
        """How many answers can be written in turns: each needs a slot for its keys and values."""
        return self.voice.target.pool.slots

    def close(self) -> None:
        """Give back the memory of models that nobody else holds, now and not when something else is allocated."""
        gc.collect()

    def memory(self) -> dict[str, int]:
        """Bytes by what they hold."""
        models = {"target": self.voice.target, "draft": self.draft}
        return {name: model.bytes for name, model in models.items() if model is not None} | {
            "keys and values": sum(model.pool.bytes for model in models.values() if model is not None)
        }


def load_engine(profile: Profile, progress: Progress = lambda _event: None, cancelled: Flag | None = None) -> Engine:
    """Load what a profile names. `progress` hears of it; a set `cancelled` ends it between two models."""
    models, loading = profile.models, _loading(profile)
    folder = find_model(models.target)
    tokenizer = Tokenizer(folder)
    target = _load("target", folder, loading, progress)
    draft = None
    if models.draft and not (cancelled and cancelled.is_set()):
        draft_folder = find_model(models.draft, role="draft")
        check_same_tokens(tokenizer, Tokenizer(draft_folder))
        draft = _load("draft", draft_folder, _loading(profile, exact=False), progress)
    return Engine(Voice(target, tokenizer, profile, PlainCost()), draft)


def _loading(profile: Profile, exact: bool | None = None) -> Loading:
    models = profile.models
    return Loading(
        models.dtype, models.device, profile.limits.context, profile.speculation.exact if exact is None else exact
    )


def _load(role: str, folder: Path, loading: Loading, progress: Progress) -> Model:
    size = sum(file.stat().st_size for file in folder.glob("*.safetensors"))
    progress(LoadingEvent(role, 0, size))
    model = load_model(folder, loading)
    progress(LoadingEvent(role, size, size))
    return model
