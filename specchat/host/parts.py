"""What the shipped host is made of: profiles by name, engines from `assemble`, turns from the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

from specchat.chat.events import Event
from specchat.chat.history import StoredTurn
from specchat.host.process import Parts
from specchat.host.protocol import request_from_json
from specchat.host.queue import Loader
from specchat.host.sessions import Library
from specchat.host.spawn import configuration_hash
from specchat.profile import Profile, load_profile

if TYPE_CHECKING:
    from specchat import assemble


def shipped_parts() -> Parts:
    """The real thing."""
    return Parts(Library(_profile, _restore), Loader(_load, _models), configuration_hash)


def _profile(name: str, settings: Mapping[str, Any]) -> Profile:
    return load_profile(name).override(settings)


def _models(profile: Profile) -> Any:
    return profile.models, profile.limits.context, profile.speculation.exact


def _load(profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> assemble.Engine:
    from specchat.assemble import load_engine

    return load_engine(profile, progress, cancelled)


def _restore(stored: StoredTurn) -> Any:
    """A turn for the engine to go on from; None when it never got there."""
    if stored.state in ("failed", "running"):
        return None
    from specchat.chat.transcript import Turn

    answered, request = stored.answered, request_from_json(stored.request)
    return Turn(
        user=request.text, files=request.files, prompt_ids=tuple(answered.prompt_ids), rendered=answered.rendered,
        answer=answered.text, answer_ids=tuple(answered.ids), finished=stored.state == "stop",
        seed=answered.seed or 0,
    )  # fmt: skip
