"""Loads engines: models of this machine from `loading`, servers by a plugin; and plans their memory.

Imports no torch before an engine is to be loaded. Tests replace single methods.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import partial
from threading import Event as Flag
from typing import TYPE_CHECKING, TypeGuard

from specchat.chat.events import Event, LoadingProgress
from specchat.errors import UsageError
from specchat.history.history_reader import past_texts
from specchat.host.engine_interface import Completer, Engine, EngineMemory
from specchat.host.spawn import history_path
from specchat.plugins.discovery import find_extensions
from specchat.plugins.extension import Extension
from specchat.plugins.own_plugins import install_line, missing_plugin
from specchat.process_memory import own_bytes, permanent_objects, release_free_memory
from specchat.profile.keys import BUILTIN_BACKEND, Profile
from specchat.weights.context_window import trained_context_window

if TYPE_CHECKING:
    from specchat.loading.load_engine import Engine as LocalEngine


LOADING = LoadingProgress("target", 0, 0)  # while what loads a model is imported, for seconds


class EngineLoader:
    library_bytes = 0  # of Python and what loads models, measured before the first model

    def load(self, profile: Profile, progress: Callable[[Event], None], cancelled: Flag) -> Engine:
        if profile.models.is_on_server:
            return _server_extension(profile.models.backend).call(profile, progress)
        progress(LOADING)
        with permanent_objects():
            from specchat.loading.load_engine import load_engine

            self.library_bytes = self.library_bytes or own_bytes()
            engine = load_engine(profile, progress, cancelled, past_texts=partial(past_texts, history_path()))
        release_free_memory()  # what was converted, packed or probed on the way
        return engine

    def engine_key(self, profile: Profile) -> Hashable:
        """Profiles with equal keys share one engine."""
        return profile.models, profile.limits.context, profile.speculation.exact

    def describe(self, profile: Profile) -> str:
        """The name of the models."""
        return profile.models.target

    def context_window(self, profile: Profile) -> int:
        """How many tokens a conversation may have; 0 when that is known only after the model is loaded."""
        if profile.models.is_on_server:
            return profile.limits.context
        return min(profile.limits.context, trained_context_window(profile.models.target) or 0)

    def memory_of(self, profile: Profile) -> EngineMemory:
        """What the models need with a full context. It runs while another engine is loaded, so torch is."""
        if profile.models.is_on_server:
            return EngineMemory()
        from specchat.loading.engine_memory import planned_bytes

        (device, needed_bytes), *elsewhere = planned_bytes(profile).items()
        return EngineMemory(device, needed_bytes, {other: each or 0 for other, each in elsewhere})

    def has_changed_files(self, engine: Engine) -> bool:
        """Whether the files of its models changed on the disk since they were loaded."""
        return _is_local(engine) and engine.has_changed_files()

    def free_bytes(self, device: str) -> int:
        """What a device has left."""
        from specchat.loading.engine_memory import free_bytes

        return free_bytes(device)

    def make_completer(self, engine: Engine) -> Completer:
        if not _is_local(engine):
            raise UsageError("a server backend does not support completion; use a profile with a local model")
        extension = next(iter(find_extensions("completers").values()), None)
        if extension is None:
            raise UsageError(f"completion is a plugin; {install_line('completions')} installs it")
        return extension.call(engine.models, engine.create_completion_drafters())


def _server_extension(backend: str) -> Extension:
    if found := find_extensions("servers", (BUILTIN_BACKEND,)).get(backend):
        return found
    raise missing_plugin(f"backend {backend!r}", "fleet")


def _is_local(engine: Engine) -> TypeGuard[LocalEngine]:
    return hasattr(engine, "models")
