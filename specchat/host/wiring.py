"""What the shipped host is made of: profiles by name, engines from `assemble`, turns from the history."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from functools import partial
from importlib.util import find_spec
from threading import Event as Flag
from typing import TYPE_CHECKING, Any, cast

from specchat.chat.events import Event
from specchat.chat.history import StoredTurn
from specchat.chat.past_answers import said_before
from specchat.errors import ModelError, ProfileError, UsageError
from specchat.host.engine_interface import Engine, Loader
from specchat.host.host_process import Parts
from specchat.host.open_sessions import Library
from specchat.host.protocol import request_from_json
from specchat.host.spawn import configuration_hash, history_path
from specchat.models.context_window import trained_window
from specchat.profile import SERVERS, Profile, load_profile
from specchat.profile.validation import Source, settle

if TYPE_CHECKING:
    from specchat import assemble
    from specchat.chat.completion import Completer


def shipped_parts() -> Parts:
    """The real thing."""
    library = Library(_profile, _restore, _pack, _unpack, _window)
    return Parts(library, Loader(_load, _models, _completer), configuration_hash)


def _profile(name: str, settings: Mapping[str, Any]) -> Profile:
    return load_profile(name, settings)


def _pack(profile: Profile) -> dict[str, Any]:
    """A profile as a JSON object; keys that nobody set are left out, as TOML would."""
    return _without_nothing(asdict(profile))


def _unpack(packed: Mapping[str, Any], overrides: Mapping[str, Any]) -> Profile | None:
    """A profile that was kept, with overrides of today; None when it holds keys of another time."""
    try:
        kept = settle(Profile(), [Source("conversation", packed, lambda _path: "what was kept of it")]).value
    except ProfileError:
        return None
    return kept.override(overrides)


def _without_nothing(value: Any) -> Any:
    match value:
        case dict():
            tables = cast("dict[str, Any]", value)
            return {key: _without_nothing(each) for key, each in tables.items() if each is not None}
        case list() | tuple():
            return [_without_nothing(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _window(profile: Profile) -> int:
    return min(profile.limits.context, trained_window(profile.models.target) or profile.limits.context)


def _models(profile: Profile) -> Any:
    return profile.models, profile.limits.context, profile.speculation.exact


def _load(profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> Engine:
    if profile.models.backend in SERVERS:
        return _line_to_server(profile, progress)
    from specchat.assemble import load_engine

    return load_engine(profile, progress, cancelled, past=partial(said_before, history_path()))


def _line_to_server(profile: Profile, progress: Callable[[Event], None]) -> Engine:
    if find_spec("openai") is None:
        raise ModelError("a server is spoken to by the package openai: pip install 'specchat[fleet]'")
    from specchat.fleet.server_session import load_server

    return load_server(profile, progress)


def _completer(engine: assemble.Engine) -> Completer:
    from specchat.chat.completion import Completer

    if not hasattr(engine, "voice"):
        raise UsageError("a server answers, but fills no gaps; completions need a profile with a model of its own")
    return Completer(engine.voice)


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
