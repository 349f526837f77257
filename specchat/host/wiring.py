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
from specchat.chat.past_answers import past_texts
from specchat.errors import ModelError, ProfileError, UsageError
from specchat.host.engine_interface import Engine, EngineLoader
from specchat.host.host_process import HostComponents
from specchat.host.open_sessions import SessionCallbacks
from specchat.host.protocol import request_from_json
from specchat.host.spawn import configuration_hash, history_path
from specchat.models.context_window import trained_context_window
from specchat.profile import SERVER_BACKENDS, Profile, load_profile
from specchat.profile.validation import SettingsSource, merge_sources

if TYPE_CHECKING:
    from specchat import assemble
    from specchat.chat.fim_completer import FimCompleter


def default_components() -> HostComponents:
    """The real thing."""
    library = SessionCallbacks(_resolve_profile, _restore_turn, _profile_to_json, _profile_from_json, _context_window)
    return HostComponents(library, EngineLoader(_load_engine, _engine_key, _make_completer), configuration_hash)


def _resolve_profile(name: str, settings: Mapping[str, Any]) -> Profile:
    return load_profile(name, settings)


def _profile_to_json(profile: Profile) -> dict[str, Any]:
    """A profile as a JSON object; keys that nobody set are left out, as TOML would."""
    return _without_none(asdict(profile))


def _profile_from_json(packed: Mapping[str, Any], overrides: Mapping[str, Any]) -> Profile | None:
    """A profile that was kept, with overrides of today; None when it holds keys of another time."""
    try:
        kept = merge_sources(
            Profile(), [SettingsSource("conversation", packed, lambda _path: "what was kept of it")]
        ).value
    except ProfileError:
        return None
    return kept.override(overrides)


def _without_none(value: Any) -> Any:
    match value:
        case dict():
            tables = cast("dict[str, Any]", value)
            return {key: _without_none(each) for key, each in tables.items() if each is not None}
        case list() | tuple():
            return [_without_none(each) for each in cast("list[Any]", value)]
        case _:
            return value


def _context_window(profile: Profile) -> int:
    return min(profile.limits.context, trained_context_window(profile.models.target) or profile.limits.context)


def _engine_key(profile: Profile) -> Any:
    return profile.models, profile.limits.context, profile.speculation.exact


def _load_engine(profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> Engine:
    if profile.models.backend in SERVER_BACKENDS:
        return _connect_server(profile, progress)
    from specchat.assemble import load_engine

    return load_engine(profile, progress, cancelled, past_texts=partial(past_texts, history_path()))


def _connect_server(profile: Profile, progress: Callable[[Event], None]) -> Engine:
    if find_spec("openai") is None:
        raise ModelError("a server is spoken to by the package openai: pip install 'specchat[fleet]'")
    from specchat.fleet.server_session import connect_server

    return connect_server(profile, progress)


def _make_completer(engine: assemble.Engine) -> FimCompleter:
    from specchat.chat.fim_completer import FimCompleter

    if not hasattr(engine, "voice"):
        raise UsageError("a server answers, but fills no gaps; completions need a profile with a model of its own")
    return FimCompleter(engine.models)


def _restore_turn(stored: StoredTurn) -> Any:
    """A turn for the engine to go on from; None when it never got there."""
    if stored.state in ("failed", "running"):
        return None
    from specchat.chat.transcript import Turn

    answered, request = stored.answer, request_from_json(stored.request)
    return Turn(
        user=request.text, files=request.files, prompt_ids=tuple(answered.prompt_ids), rendered_prompt=answered.rendered_prompt,
        answer=answered.text, answer_ids=tuple(answered.token_ids), is_finished=stored.state == "stop",
        seed=answered.seed or 0,
    )  # fmt: skip
