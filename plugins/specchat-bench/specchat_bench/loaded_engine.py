"""Loads an engine into the process of the command, for those that measure or compare; the others ask the host."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from specchat.process_memory import permanent_objects
from specchat.terminal import write_line

if TYPE_CHECKING:
    from specchat.loading.load_engine import Engine
    from specchat.profile.keys import Profile


def load_engine_here(profile: Profile) -> Engine:
    """The engine of a profile; its notices, such as a draft model that is left out, go to stderr.

    It recalls no other conversation: a question that was asked before would be drafted from its stored answer.
    """
    with permanent_objects():
        from specchat.loading.load_engine import load_engine

        engine = load_engine(profile)
    for notice in engine.models.notices:
        write_line(f"specchat: {notice}", sys.stderr)
    return engine
