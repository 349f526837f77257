"""A session that plays a script, for tests of front ends without a model.

It answers every request with the next list of events, can be cancelled like a real session, and records the requests.
Knows no model.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from importlib import import_module
from threading import Event as Flag
from typing import Self

import pytest

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import (
    CommittedToken,
    Event,
    Failed,
    Finished,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
)
from specchat.chat.request import Request
from specchat.cli.main import run
from specchat.profile.keys import Profile
from specchat.profile.settings import read_settings

SECONDS_PER_STEP = 0.01


class ScriptedSession(AbstractContextManager["ScriptedSession"]):
    """Stands for a `Conversation` with the host. After the end of the script every answer is a `Failed`."""

    session_id, window_tokens = "scripted", 8192

    def __init__(self, script: Sequence[Sequence[Event]] = ()) -> None:
        self.script, self.settings = list(script), read_settings()
        self.requests: list[Request] = []
        self.is_closed = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self.close()

    def ask(self, request: Request, cancelled: Flag | None = None) -> Iterator[Event]:
        """Play the next list of events."""
        self.requests.append(request)
        if len(self.requests) > len(self.script):
            yield Failed("the script is over")
            return
        for event in self.script[len(self.requests) - 1]:
            if cancelled and cancelled.is_set():
                yield Finished("cancelled", Totals())
                return
            yield event

    def turns(self) -> list[object]:
        """None: nothing is stored."""
        return []

    def close(self) -> None:
        """Record the call."""
        self.is_closed = True


def scripted_answer(words: Sequence[str], reason: str = "stop", accepted: int = 1) -> list[Event]:
    """The events of a normal answer: one step per word, each with two draft tokens of which `accepted` are accepted."""
    committed = (
        *(CommittedToken(number, b"", "lookup") for number in range(1, accepted + 1)),
        CommittedToken(9, b"", "target"),
    )
    step = StepDone((1, 2), (0, 1), committed, draft_seconds=0.0, verify_seconds=SECONDS_PER_STEP,
                    plain_seconds=(accepted + 1) * SECONDS_PER_STEP)  # fmt: skip
    events: list[Event] = [PrefillProgress(5, 5), Routed("auto", 16, "repeats of the text so far are copied", seed=7)]
    for word in words:
        events += [TextDelta(word), step]
    return [*events, Finished(reason, _totals(len(words), accepted))]


def _totals(steps: int, accepted: int) -> Totals:
    return Totals(
        prompt_tokens=5, completion_tokens=steps * (accepted + 1), steps=steps, draft_tokens=steps * 2,
        acceptance=Acceptance((steps,) * min(accepted + 1, 2), (steps,) * accepted),
        accepted_by_drafter={"lookup": steps * accepted}, steps_by_drafter={"lookup": steps},
        verify_seconds=steps * SECONDS_PER_STEP,
        plain_decode_seconds=steps * (accepted + 1) * SECONDS_PER_STEP,
    )  # fmt: skip


def play_host(patch: pytest.MonkeyPatch, open_session: Callable[[Profile], ScriptedSession]) -> None:
    """Let commands talk to the session of their profile instead of a host; none offers a model."""
    for name in ("ask", "demo", "edit"):
        module = import_module(f"specchat.cli.{name}")
        patch.setattr(module, "open_host_conversation", lambda request: open_session(request.settings.profile))
        patch.setattr(module, "offer_starter", lambda _options, **_how: None)


def run_with(arguments: Sequence[str], open_session: Callable[[Profile], ScriptedSession]) -> int:
    """Run a command that talks to scripted sessions."""
    with pytest.MonkeyPatch.context() as patch:
        play_host(patch, open_session)
        return run(arguments)
