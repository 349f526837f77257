"""Translates the engine events of one prompt into updates for the editor, and its end into a response."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from uuid import uuid4

from specchat.app import updates
from specchat.app.agent.agent_loop import AgentEvent, CallFinished, CallProgressed, CallStarted, LoopEnded, RoundStarted
from specchat.app.ask import Answered, Asked, AskEvent
from specchat.chat.events import (
    Event,
    Failed,
    Finished,
    Notice,
    PrefillProgress,
    Stage,
    TextDelta,
    ThinkingDelta,
    Totals,
)
from specchat.errors import HostError, error_with_exit_code
from specchat.host.protocol import JsonObject
from specchat_editors.acp.client_requests import (
    EditorClient,
    PromptTurn,
    chunks,
    prompt_response,
    speculation_stats,
)

PERCENT_STEP = 10  # of the progress that is shown


@dataclass
class TurnReporter:
    """Sends the updates of one turn. Every started tool call is also ended."""

    client: EditorClient
    turn: PromptTurn
    message_id: str = field(default_factory=lambda: uuid4().hex)
    _loading_id: str = ""  # of the open tool call, "" for none
    _loading_count: int = 0
    _loading_title: str = ""  # the last one that was sent

    def send(self, *updates: JsonObject) -> None:
        self.client.send_updates(self.turn, *updates)

    def send_text(self, text: str) -> None:
        self.send(*chunks(updates.ANSWER_CHUNK, text, self.message_id))

    def on_event(self, event: Event) -> None:
        if isinstance(event, Stage):
            if not isinstance(event, PrefillProgress) or 0 < event.fraction < 1:  # a short prompt is read at once
                self._on_stage(event)
            return
        self.end_loading(is_done=not isinstance(event, Failed))
        if isinstance(event, TextDelta):
            self.send_text(event.text)
        elif isinstance(event, ThinkingDelta):
            self.send(*chunks(updates.THOUGHT_CHUNK, event.text))
        elif isinstance(event, Notice):
            self.send(updates.chunk(updates.THOUGHT_CHUNK, f"{event.text}\n"))

    def end_loading(self, *, is_done: bool) -> None:
        if self._loading_id:
            self.send(updates.tool_call_end(self._loading_id, is_done=is_done))
            self._loading_id = ""

    def _on_stage(self, event: Stage) -> None:
        title = _stage_title(event)
        if not self._loading_id:
            self._loading_count += 1
            self._loading_id = f"loading-{self.message_id[:8]}-{self._loading_count}"
            self.send(updates.tool_call(self._loading_id, title, "other"))
        elif title != self._loading_title:
            self.send(updates.tool_call_update(self._loading_id, title=title))
        self._loading_title = title


def _stage_title(event: Stage) -> str:
    """What the user waits for and how far that is, in steps, because each title is a message to the editor."""
    percent = int(100 * event.fraction) // PERCENT_STEP * PERCENT_STEP
    return f"{event.stage[0].upper()}{event.stage[1:]}{f': {percent} %' if percent else ''}"


def stream_answer(
    events: Iterable[AskEvent],
    reporter: TurnReporter,
    window_tokens: int,
    on_call: Callable[[AgentEvent], None] = lambda _event: None,
) -> JsonObject:
    """Forward all events. A model error is raised with its exit code, a dead engine process as HostError."""
    end: Finished | Failed | None = None
    try:
        for event in events:
            match event:
                case CallStarted() | CallProgressed() | CallFinished() | RoundStarted() | LoopEnded():
                    on_call(event)
                case Asked():
                    pass
                case Answered(notices=notices):
                    reporter.send(*(updates.chunk(updates.THOUGHT_CHUNK, f"{notice}\n") for notice in notices))
                    end = event.end if isinstance(event.end, Failed) else end
                case _:
                    reporter.on_event(event)
                    end = event if isinstance(event, Finished | Failed) else end
    finally:
        with suppress(ConnectionError):
            reporter.end_loading(is_done=False)
    match end:
        case Finished(finish_reason=reason, totals=totals):
            send_usage(reporter, totals, window_tokens)
            return prompt_response(updates.stop_reason(reason), totals)
        case Failed(message=message, exit_code=HostError.exit_code) if message.startswith("the engine process"):
            raise HostError(message)
        case Failed(message=message, exit_code=code):
            raise error_with_exit_code(message, code)
        case None:
            raise HostError("the answer did not end")


def send_usage(reporter: TurnReporter, totals: Totals, window_tokens: int) -> None:
    used = totals.prompt_tokens + totals.completion_tokens
    meta = {"specchat": dict(speculation_stats(totals))}
    reporter.send({"sessionUpdate": "usage_update", "used": used, "size": max(window_tokens, used), "_meta": meta})


def session_title(name: str) -> JsonObject:
    return {"sessionUpdate": "session_info_update", "title": name}
