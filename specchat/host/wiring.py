"""The components of the real host: settings of clients, engines from `loading`, turns from the history."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from threading import Event as Flag
from typing import TYPE_CHECKING, Any

from specchat.chat.events import TOOL_CALLS, Event
from specchat.errors import UsageError
from specchat.history.history_reader import StoredTurn, past_texts
from specchat.host.engine_interface import Engine, EngineLoader, EngineMemory
from specchat.host.host_process import HostComponents
from specchat.host.open_sessions import SessionCallbacks
from specchat.host.protocol import request_from_json
from specchat.host.spawn import configuration_hash, history_path
from specchat.permanent_objects import permanent_objects
from specchat.profile import SERVER_BACKENDS, Profile
from specchat.profile.settings import Settings
from specchat.weights.context_window import trained_context_window

if TYPE_CHECKING:
    from specchat.chat.fim_completer import FimCompleter
    from specchat.loading.load_engine import Engine as LocalEngine


def default_components() -> HostComponents:
    callbacks = SessionCallbacks(Settings.from_json, _restore_turn, _context_window)
    loader = EngineLoader(_load_engine, _engine_key, _make_completer, _memory_of, _free_bytes, _describe)
    return HostComponents(callbacks, loader, configuration_hash)


def _context_window(profile: Profile) -> int:
    if profile.models.backend in SERVER_BACKENDS:
        return profile.limits.context
    return min(profile.limits.context, trained_context_window(profile.models.target) or 0)


def _engine_key(profile: Profile) -> Any:
    return profile.models, profile.limits.context, profile.speculation.exact


def _describe(profile: Profile) -> str:
    return profile.models.target


def _memory_of(profile: Profile) -> EngineMemory:
    """What the models of a profile need with a full context. It runs while another engine is loaded, so torch is."""
    if profile.models.backend in SERVER_BACKENDS:
        return EngineMemory()
    from specchat.loading.engine_memory import planned_bytes

    return EngineMemory(*planned_bytes(profile))


def _free_bytes(device: str) -> int:
    from specchat.loading.engine_memory import free_bytes

    return free_bytes(device)


def _load_engine(profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> Engine:
    if profile.models.backend in SERVER_BACKENDS:
        from specchat.fleet.server_session import connect_server

        return connect_server(profile, progress)
    with permanent_objects():
        from specchat.loading.load_engine import load_engine

        return load_engine(profile, progress, cancelled, past_texts=partial(past_texts, history_path()))


def _make_completer(engine: LocalEngine) -> FimCompleter:
    from specchat.chat.fim_completer import FimCompleter

    if not hasattr(engine, "models"):
        raise UsageError("a server backend does not support completion; use a profile with a local model")
    return FimCompleter(engine.models, engine.create_completion_drafters())


def _restore_turn(stored: StoredTurn) -> Any:
    """The engine's turn of a stored one; None when the engine never finished it."""
    if stored.state in ("failed", "running"):
        return None
    from specchat.chat.transcript import Turn

    answer, request = stored.answer, request_from_json(stored.request)
    return Turn(
        user=request.text, files=request.files, prompt_ids=tuple(answer.prompt_ids),
        rendered_prompt=answer.rendered_prompt, answer=answer.text, answer_ids=tuple(answer.token_ids),
        thinking=answer.thinking, tool_results=request.tool_results, tool_calls=answer.tool_calls,
        is_finished=stored.state in ("stop", TOOL_CALLS), seed=answer.seed or 0, model=answer.model,
    )  # fmt: skip
