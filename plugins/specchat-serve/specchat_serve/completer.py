"""A gap in a text becomes events, and the models are waited for. Knows no API and no model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from threading import Event as Flag

from specchat.chat.events import TRUNCATED_REASONS, Event, Failed, Finished, LoadingProgress, Waiting
from specchat.chat.fim_request import FILLED_REASONS, MODEL_LOADING, FimRequest
from specchat.chat.request import Request
from specchat.errors import HostError, UsageError, error_with_exit_code
from specchat.host.client import Conversation

REASONS = {**dict.fromkeys(FILLED_REASONS, "stop"), "cancelled": "cancelled"}
LOADING_ATTEMPTS = 3
GREETING = Request("Hello", max_tokens=1)  # an answer waits for the models
GAP_PROBE = FimRequest("x", "x", max_tokens=1)
NO_GAPS = "suffix: the model has no fill-in-the-middle tokens; leave the suffix out, or serve a model that has them"


class Completer:
    """Completes texts with the models of one conversation, which does not change."""

    def __init__(self, conversation: Conversation) -> None:
        self._conversation = conversation
        self._fills_gaps: bool | None = None  # None: not known yet

    def complete(self, gap: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """The text in pieces, and its end. UsageError for a gap that the model cannot fill."""
        for _ in range(LOADING_ATTEMPTS):
            for event in self._fill(gap, cancelled):
                if not isinstance(event, Finished):
                    yield event
                elif event.finish_reason != MODEL_LOADING or cancelled.is_set():
                    yield replace(event, finish_reason=REASONS.get(event.finish_reason, TRUNCATED_REASONS[0]))
                    return
            yield from self._wait_for_models(cancelled)
        raise HostError("the engine process unloads the models again and again; see 'specchat host status'")

    def _fill(self, gap: FimRequest, cancelled: Flag) -> Iterator[Event]:
        """Ask once whether the model can fill gaps, with one that costs nothing; it says so with every completion."""
        if gap.suffix and self._fills_gaps is None:
            *_, probe = self._conversation.fill(GAP_PROBE, cancelled)
            assert isinstance(probe, Finished)
            if probe.finish_reason in (MODEL_LOADING, "cancelled"):
                yield Finished(probe.finish_reason, probe.totals)
                return
            self._fills_gaps = not probe.explanation
        if gap.suffix and not self._fills_gaps:
            raise UsageError(NO_GAPS)
        yield from self._conversation.fill(gap, cancelled)

    def _wait_for_models(self, cancelled: Flag) -> Iterator[Event]:
        """Ask for one token: an answer waits for the models, and says why they cannot be loaded."""
        for event in self._conversation.ask(GREETING, cancelled, ()):
            match event:
                case LoadingProgress() | Waiting():
                    yield event
                case Failed(message=message, exit_code=code):
                    raise error_with_exit_code(message, code)
                case _:
                    pass
