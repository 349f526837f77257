"""Collects the events of one answer: its text, its tool calls, its end and its numbers. Knows no API."""

from dataclasses import dataclass, field
from time import perf_counter

from specchat.chat.events import (
    TOOL_CALLS,
    CommittedToken,
    Event,
    Failed,
    Finished,
    LoadingProgress,
    Notice,
    PrefillProgress,
    PromptTokens,
    Routed,
    StepDone,
    TextDelta,
    ThinkingDelta,
    ToolCallDelta,
    Totals,
)
from specchat.chat.streamed_calls import StreamedCalls
from specchat.chat.turn_summary import speculation_to_json
from specchat.errors import HostError, error_with_exit_code
from specchat_serve.json_fields import JsonObject

Delta = TextDelta | ThinkingDelta | ToolCallDelta  # what is sent of an answer
LENGTH = "length"  # the end at the limit
TEXT_END_CHARACTERS = 16  # by which the place is found where a stop text cut the answer


@dataclass
class Answer:
    unsent_prefix: str = ""  # of the answer: the client gave it, and gets what follows
    stop: tuple[str, ...] = ()
    is_parallel: bool = True  # False: only the first tool call is sent
    keeps_tokens: bool = False  # with their probabilities
    notices: list[str] = field(default_factory=list[str])  # for the user, what was left out of the request among them
    text_parts: list[str] = field(default_factory=list[str])
    thinking_parts: list[str] = field(default_factory=list[str])
    tool_calls: StreamedCalls = field(default_factory=StreamedCalls)
    stage: str = "waiting for the engine"  # for people, while there is no text
    prefill: PrefillProgress | None = None
    echoed: PromptTokens | None = None  # the prompt, before the text
    routed: Routed | None = None
    finished: Finished | None = None
    started_at: float = field(default_factory=perf_counter)
    load_seconds: float = 0.0
    written_tokens: int = 0  # until now, and since when
    writes_since: float | None = None
    _loading_since: float | None = None
    _committed_bytes: bytearray = field(default_factory=bytearray)
    _committed_tokens: list[CommittedToken] = field(default_factory=list[CommittedToken])
    _last_step: tuple[int, int] = 0, 0  # where its tokens begin, and its bytes
    _sent_prompt: bool = False  # its tokens
    _sent_tokens: int = 0  # of those that are committed, with all that stand before the text
    _sent_bytes: int = 0  # of them
    _text_bytes: int = 0
    _text_start: int | None = None  # among the committed bytes

    def on_event(self, event: Event) -> Delta | None:
        """Process an event; returns what is to be sent of it. A Failed event raises its error."""
        self._note_loading(event)
        self._note_step(event)
        self._keep(event)
        match event:
            case TextDelta(text=text):
                count = min(len(self.unsent_prefix), len(text))
                self.unsent_prefix = self.unsent_prefix[count:]
                self.text_parts.append(text[count:])
                self._text_bytes += len(text[count:].encode())
                return TextDelta(text[count:]) if text[count:] else None
            case ThinkingDelta(text=text):
                self.thinking_parts.append(text)
                self._forget_thought()
                return event
            case ToolCallDelta(index=index) if self.is_parallel or index == 0:
                self.tool_calls.add(event)
                return event
            case StepDone(committed_tokens=tokens) if self.stop or self.keeps_tokens:
                self._last_step = len(self._committed_tokens), len(self._committed_bytes)
                self._committed_bytes += b"".join(token.token_bytes for token in tokens)
                self._committed_tokens += tokens
            case PromptTokens(text=text):
                self.echoed = event
                return TextDelta(text) if text else None
            case Finished(finish_reason="cancelled"):
                raise HostError("the server cancelled the answer; ask again")
            case Finished():
                self.finished = event
            case Failed(message=message, exit_code=code):
                raise error_with_exit_code(message, code)
            case _:
                pass
        return None

    @property
    def text(self) -> str:
        text = "".join(self.text_parts)
        return self.finished.without_repeats(text) if self.finished else text

    def new_tokens(self) -> list[CommittedToken]:
        """Those of the prompt and of the text that no chunk has had. One belongs to the chunk with its beginning.

        The text is found among what is committed: a thought, the marks of calls and of the end are no part of it.
        """
        tokens = list(self.echoed.tokens) if self.echoed and not self._sent_prompt else []
        self._sent_prompt = self.echoed is not None
        if self._text_start is None and self._text_bytes:
            self._text_start = max(0, bytes(self._committed_bytes).find(self.text.encode()))
        text_bytes = len(self.text.encode()) if self.finished else self._text_bytes
        start = self._text_start or 0
        while self._sent_tokens < len(self._committed_tokens) and self._sent_bytes < start + text_bytes:
            token = self._committed_tokens[self._sent_tokens]
            self._sent_tokens += 1
            self._sent_bytes += len(token.token_bytes)
            if token.token_bytes and self._sent_bytes > start:
                tokens.append(token)
        return tokens

    @property
    def thinking(self) -> str:
        """What the model thought before the answer; it is no part of the text."""
        return "".join(self.thinking_parts)

    def called_name(self, delta: ToolCallDelta) -> str:
        """The name of the tool that a piece of a call belongs to, as the model reads it."""
        calls = list(self.tool_calls)
        return delta.name or (calls[delta.index].name if delta.index < len(calls) else "")

    @property
    def totals(self) -> Totals:
        return self.finished.totals if self.finished else Totals()

    @property
    def generation_seconds(self) -> float:
        """Of the engine's time for the answer, without the queue and the prefill."""
        return max(self.totals.total_seconds - self.totals.queue_seconds - self.totals.prefill_seconds, 0.0)

    @property
    def is_truncated(self) -> bool:
        """Whether the answer ended at its limit. One that repeated itself did not: more tokens would not help it."""
        return self.finished is not None and self.finished.finish_reason == LENGTH

    @property
    def finish_reason(self) -> str:
        """The reason in OpenAI's words: "stop", "tool_calls" or "length"."""
        if self.is_truncated:
            return LENGTH
        return TOOL_CALLS if self.tool_calls else "stop"

    @property
    def stop_text(self) -> str | None:
        """The stop text that ended the answer; None for another end. The text itself does not have it."""
        if self.is_truncated or self.tool_calls:
            return None
        end = self.text[-TEXT_END_CHARACTERS:]
        return next((each for each in self.stop if (end + each).encode() in self._committed_bytes), None)

    @property
    def elapsed_seconds(self) -> float:
        return perf_counter() - self.started_at

    def speculation_stats(self) -> JsonObject:
        """The statistics of speculative decoding, which no API has a field for."""
        totals = self.totals
        return {
            **speculation_to_json(totals),
            "variant": self.routed.variant if self.routed else "",
            "choice_reason": totals.drafter_report or (self.routed.reason if self.routed else ""),
            "seed": self.routed.seed if self.routed else None,
            "explanation": self.finished.explanation if self.finished else "",
            "notices": list(self.notices),
        }

    def _forget_thought(self) -> None:
        """Keep the last step, which may end the thought and begin the text: a stop text counts in the text only."""
        token_count, byte_count = self._last_step
        del self._committed_tokens[:token_count], self._committed_bytes[:byte_count]
        self._last_step = 0, 0

    def _note_step(self, event: Event) -> None:
        if isinstance(event, StepDone):
            self.writes_since = self.writes_since or perf_counter()
            self.written_tokens += len(event.committed_tokens)

    def _keep(self, event: Event) -> None:
        """Keep what is no part of the answer."""
        match event:
            case Notice(text=text) if text not in self.notices:  # which several answers share
                self.notices.append(text)
            case Routed():
                self.routed = event
            case PrefillProgress(processed_tokens=read, prompt_tokens=prompt):
                self.prefill, self.stage = event, f"reading {read:,} of {prompt:,} tokens"
            case _:
                pass

    def _note_loading(self, event: Event) -> None:
        """Keep the stage, and add the time until the event that follows those of loading."""
        if isinstance(event, LoadingProgress):
            self.stage = event.text
            self._loading_since = self._loading_since or perf_counter()
        elif self._loading_since is not None:
            self.load_seconds += perf_counter() - self._loading_since
            self._loading_since = None
