"""The components of the real host: settings of clients, engines from `loading`."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Event as Flag
from typing import TYPE_CHECKING

from specchat.chat.events import Event
from specchat.errors import UsageError
from specchat.history.history_reader import past_texts
from specchat.host.engine_interface import Engine, EngineLoader, EngineMemory
from specchat.host.host_process import HostComponents
from specchat.host.open_sessions import SessionCallbacks
from specchat.host.spawn import configuration_hash, history_path
from specchat.permanent_objects import permanent_objects
from specchat.profile import SERVER_BACKENDS, Profile
from specchat.profile.settings import Settings
from specchat.weights.context_window import trained_context_window

if TYPE_CHECKING:
    from specchat.chat.fim_completer import FimCompleter
    from specchat.loading.load_engine import Engine as LocalEngine


def default_components() -> HostComponents:
    callbacks = SessionCallbacks(Settings.from_json, _context_window)
    loader = EngineLoader(_load_engine, _engine_key, _make_completer, _memory_of, _free_bytes, _describe)
    return HostComponents(callbacks, loader, configuration_hash)


def _context_window(profile: Profile) -> int:
    if profile.models.backend in SERVER_BACKENDS:
        return profile.limits.context
    return min(profile.limits.context, trained_context_window(profile.models.target) or 0)


def _engine_key(profile: Profile) -> Hashable:
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
