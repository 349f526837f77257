"""The events of an answer: everything that passes between the engine and a front end.

Events are plain values without torch, so they can be drawn, printed and sent through a socket. The events of a turn:
`(Waiting | LoadingProgress)* Notice* Routed PrefillProgress* (ThinkingDelta | TextDelta | ToolCallDelta | StepDone
| Notice)* (Finished | Failed)`.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Protocol, Self, TypeVar

from specchat.acceptance_counts import Acceptance
from specchat.errors import SpecchatError

REPETITION = "repetition"  # the finish reason of an answer that repeated itself
TOOL_CALLS = "tool_calls"  # the finish reason of an answer that calls tools
TRUNCATED_REASONS = ("length", REPETITION)  # the model did not end the answer
TARGET = "target"  # the source of a token that the target sampled and no drafter proposed
NO_DRAFTER = "plain"  # the drafter of steps without draft tokens
MAX_SHOWN_ERROR = 0.12  # relative; a speedup with a larger error is shown as a range
MAX_KNOWN_ERROR = 0.6  # with a larger one, it is not shown


class Stage:
    """What the user waits for at the moment, in the words of every front end."""

    @property
    def stage(self) -> str:
        raise NotImplementedError

    @property
    def fraction(self) -> float:
        """How much of it is done, from 0 to 1; 0 when it is unknown."""
        return 0.0

    @property
    def text(self) -> str:
        """For example "loading the target model…" or "converting model.gguf: 40 %…"."""
        share = f": {int(100 * self.fraction)} %" if 0 < self.fraction < 1 else ""
        return f"{self.stage}{share}…"


@dataclass(frozen=True)
class Waiting(Stage):
    """An answer waits for something else, such as "another answer"."""

    reason: str

    @property
    def stage(self) -> str:
        return f"waiting for {self.reason}"


@dataclass(frozen=True)
class LoadingProgress(Stage):
    """Progress of loading a model, in bytes or steps; `total` is 0 when it is unknown."""

    label: str
    done: int
    total: int
    preparation: str = ""  # what is done before it can be loaded, for example "converting model.gguf"

    @property
    def stage(self) -> str:
        return self.preparation or f"loading the {self.label}{'' if ' ' in self.label else ' model'}"

    @property
    def fraction(self) -> float:
        return self.done / self.total if self.total else 0.0


@dataclass(frozen=True)
class Notice:
    """A line for the user about the models or the answer; front ends show it beside the answer."""

    text: str


@dataclass(frozen=True)
class PrefillProgress(Stage):
    """Progress of the prefill; `cached_tokens` of the prompt were in the KV cache."""

    processed_tokens: int
    prompt_tokens: int
    cached_tokens: int = 0

    @property
    def stage(self) -> str:
        return f"reading {self.prompt_tokens - self.cached_tokens:,} tokens"

    @property
    def fraction(self) -> float:
        unread = self.prompt_tokens - self.cached_tokens
        return (self.processed_tokens - self.cached_tokens) / unread if unread else 1.0


@dataclass(frozen=True)
class Routed:
    """The drafter of this answer, the maximum number of draft tokens per step, and the reason in words."""

    variant: str
    budget: int
    reason: str
    seed: int
    context_window: int = 0  # of the conversation, in tokens; 0 when unknown


@dataclass(frozen=True)
class TextDelta:
    """New characters of the answer: complete UTF-8, with possible beginnings of stop strings held back."""

    text: str


@dataclass(frozen=True)
class ThinkingDelta:
    """New characters of the model's thinking, which is no part of the answer. A client may leave it out."""

    text: str


@dataclass(frozen=True)
class ToolCallDelta:
    """New characters of the arguments of a tool call. The first delta of a call has its name, and no arguments."""

    index: int  # of the call in this answer, from 0
    id: str
    name: str = ""
    arguments: str = ""


NO_OUTPUT_YET = TextDelta("")  # an answer yields this while it waits or computes, so that other sessions can run


@dataclass(frozen=True)
class LikelyToken:
    """A token that the target could have chosen at some position."""

    token_bytes: bytes
    probability: float
    token_id: int = -1  # of one that an older version stored, unknown


@dataclass(frozen=True)
class CommittedToken:
    """One committed token, its bytes, and the drafter that proposed it (TARGET for none).

    With a request that wants them, the probability that the target gives it, and the likeliest tokens, best first.
    """

    token_id: int
    token_bytes: bytes
    source: str
    probability: float | None = None
    likeliest: tuple[LikelyToken, ...] = ()

    def to_list(self) -> list[Any]:
        """As JSON: token bytes are latin-1 text; probabilities only where they are known."""
        known = [(it.token_bytes.decode("latin-1"), _rounded(it.probability), it.token_id) for it in self.likeliest]
        chance = [] if self.probability is None else [_rounded(self.probability), known]
        return [self.token_id, self.token_bytes.decode("latin-1"), self.source, *chance]

    @classmethod
    def from_list(cls, fields: Sequence[Any]) -> CommittedToken:
        token_id, text, source, *chance = fields
        probability, known = chance or (None, ())
        likeliest = tuple(LikelyToken(each.encode("latin-1"), *numbers) for each, *numbers in known)
        return cls(token_id, text.encode("latin-1"), source, probability, likeliest)


def _rounded(probability: float) -> float:
    return float(f"{probability:.8g}")  # on the way to a reader, who may want the logarithm of a small one


@dataclass(frozen=True)
class PromptTokens:
    """A prompt and its tokens, before the completion of a request that echoes it. The first one has no probability."""

    text: str
    tokens: tuple[CommittedToken, ...]


@dataclass(frozen=True)
class StepDone:
    """One step: the draft tree and the committed tokens. It is enough to draw the step again later."""

    draft_tokens: tuple[int, ...]  # token ids, without the root
    parents: tuple[int, ...]  # of each draft token: 0 is the root, n the n-th draft token
    committed_tokens: tuple[CommittedToken, ...]  # accepted draft tokens in order, then the token of the target
    draft_seconds: float
    verify_seconds: float
    draft_token_bytes: tuple[bytes, ...] = ()  # the bytes of each draft token
    draft_sources: tuple[str, ...] = ()  # the drafter of each draft token
    plain_seconds: float = 0.0  # estimated time of plain decoding for the committed tokens; 0 when unknown
    plain_error: float = 0.0  # half of the 95 % interval of that, relative; steps share it

    @property
    def tokens(self) -> int:
        return len(self.committed_tokens)

    def first(self, tokens: int) -> Self:
        """The step with so many of its tokens."""
        return replace(self, committed_tokens=self.committed_tokens[:tokens])

    @property
    def drafter(self) -> str:
        """Of the first draft token."""
        return self.draft_sources[0] if self.draft_sources else NO_DRAFTER

    @property
    def seconds(self) -> float:
        return self.draft_seconds + self.verify_seconds

    @property
    def depths(self) -> list[int]:
        """Of the root, which has 0, and of each draft token."""
        depths = [0]
        for parent in self.parents:
            depths.append(depths[parent] + 1)
        return depths

    @property
    def depth(self) -> int:
        """Of the draft tree; 0 for a bare root."""
        return max(self.depths)

    @property
    def accepted_path(self) -> list[int]:
        """The accepted draft tokens, numbered from 1: the path from the root along the committed tokens."""
        children = {edge: node for node, edge in enumerate(zip(self.parents, self.draft_tokens, strict=True), 1)}
        path, node = list[int](), 0
        for token in self.committed_tokens:
            if token.source == TARGET or (node := children.get((node, token.token_id), 0)) == 0:
                break
            path.append(node)
        return path

    @cached_property
    def acceptance(self) -> Acceptance:
        """What was tested of the draft. Nothing is behind a stop string, nor an end token that the target sampled, too:
        such a token is never accepted from a draft.
        """
        path = self.accepted_path
        if len(path) == len(self.committed_tokens):
            return Acceptance.of_step(len(path), len(path))
        last = path[-1] if path else 0
        drafted = {self.draft_tokens[node - 1] for node, parent in enumerate(self.parents, 1) if parent == last}
        is_rejected = bool(drafted) and self.committed_tokens[-1].token_id not in drafted
        return Acceptance.of_step(len(path) + is_rejected, len(path))


class StepTokens(Protocol):
    """Some facts of a step, and those that remain when only its first tokens count."""

    @property
    def tokens(self) -> int: ...

    def first(self, tokens: int) -> Self: ...


Tokens = TypeVar("Tokens", bound=StepTokens)


def of_first_tokens(steps: Iterable[Tokens], tokens: int) -> Iterator[Tokens]:
    """The steps of an answer that is cut after so many tokens; of the last one, what is kept."""
    for step in steps:
        if tokens <= 0:
            return
        yield step.first(tokens)
        tokens -= step.tokens


@dataclass(frozen=True)
class Speedup:
    """Speed relative to plain decoding under the same load, and half of its 95 % interval, relative."""

    factor: float
    error: float = 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return self.factor / (1 + self.error), self.factor * (1 + self.error)

    @property
    def is_slower(self) -> bool:
        """Whether it is slower than plain decoding, with a range also at its upper end."""
        highest = self.factor if self.error <= MAX_SHOWN_ERROR else self.interval[1]
        return round(highest, 1) < 1

    @property
    def text(self) -> str:
        """The factor, or a range where a single number would claim too much: "2.4" or "1.9-3.1"."""
        if self.error <= MAX_SHOWN_ERROR:
            return f"{self.factor:.1f}"
        low, high = (f"{each:.1f}" for each in self.interval)
        return low if low == high else f"{low}-{high}"

    @property
    def words(self) -> str:
        """The text with what it means: "2.4x faster", "0.8-1.3x as fast", "0.9x, slower"."""
        lowest = self.factor if self.error <= MAX_SHOWN_ERROR else self.interval[0]
        meaning = " faster" if round(lowest, 1) > 1 else " as fast"
        return f"{self.text}x{', slower' if self.is_slower else meaning}"


def speedup_of_sums(plain_seconds: float, error_seconds: float, decode_seconds: float) -> Speedup | None:
    """The speedup of several answers: sums of their plain time, of its error, and of their decode time.

    None when it is unknown, or known too badly.
    """
    if not (plain_seconds and decode_seconds) or error_seconds > MAX_KNOWN_ERROR * plain_seconds:
        return None
    return Speedup(plain_seconds / decode_seconds, error_seconds / plain_seconds)


@dataclass(frozen=True)
class Totals:
    """The sums of a turn. Rates are derived, not stored."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    steps: int = 0
    draft_tokens: int = 0
    acceptance: Acceptance = Acceptance()
    accepted_by_drafter: dict[str, int] = field(default_factory=dict)
    steps_by_drafter: dict[str, int] = field(default_factory=dict)  # steps with draft tokens, by that of the first one
    draft_seconds: float = 0.0
    verify_seconds: float = 0.0
    prefill_seconds: float = 0.0
    seconds: float = 0.0  # from the request to the end of the text, without `loading_seconds`; 0 when unknown
    ttft_seconds: float = 0.0  # from the request to the first token, without `loading_seconds`
    queue_seconds: float = 0.0  # of `seconds`: until the answer began
    other_seconds: float = 0.0  # of `seconds`: other work of the engine process between two steps
    loading_seconds: float = 0.0  # of models, after the request
    repeated_tokens: int = 0  # cut off, because the model repeated itself; in no other number
    thinking_tokens: int = 0  # of the completion tokens, those of the thought with its markers
    thinking_seconds: float = 0.0  # from the first token until the thought was closed
    plain_decode_seconds: float = 0.0  # what plain decoding would have taken, as measured meanwhile; 0 when unknown
    plain_decode_error: float = 0.0  # half of the 95 % interval of that, relative
    compared_seconds: float = 0.0  # of several answers: the decode time of those that are compared with plain decoding
    is_exact: bool = True  # the text is that of plain decoding to the bit; else near ties may be decided differently
    drafter_report: str = ""  # steps, acceptance and measured speed of each drafter, in words
    estimates: str = ""  # what the chooser expects of each drafter now, in words; "" when it does not choose

    @property
    def decode_seconds(self) -> float:
        """The time of drafting and verifying, without the prefill."""
        return self.draft_seconds + self.verify_seconds

    @property
    def compared_decode_seconds(self) -> float:
        return self.compared_seconds or (self.decode_seconds if self.plain_decode_seconds else 0.0)

    @property
    def total_seconds(self) -> float:
        """`seconds`; of an answer that an older version stored, about the same."""
        return self.seconds or (self.ttft_seconds + self.decode_seconds if self.decode_seconds else 0.0)

    @property
    def tokens_per_second(self) -> float | None:
        """From the request to the end of the text, as with a stop watch; None when nothing was measured."""
        return self.completion_tokens / self.total_seconds if self.completion_tokens and self.total_seconds else None

    @property
    def speedup(self) -> Speedup | None:
        """The speed relative to plain decoding; None without draft tokens, or when it is unknown."""
        if not self.draft_tokens:
            return None
        error_seconds = self.plain_decode_error * self.plain_decode_seconds
        return speedup_of_sums(self.plain_decode_seconds, error_seconds, self.compared_decode_seconds)

    @property
    def tokens_per_step(self) -> float:
        """The mean number of tokens committed per step; 1 means that no draft token was accepted."""
        return self.completion_tokens / self.steps if self.steps else 0.0


@dataclass(frozen=True)
class Finished:
    """The end of an answer: `stop`, `tool_calls`, `length`, `repetition` (`chat/repetition.py`) or `cancelled`."""

    finish_reason: str
    totals: Totals
    explanation: str = ""  # for the user, of a reason that does not explain itself
    repeated_characters: int = 0  # at the end of the text: repeats of a block, which are no part of the answer

    def without_repeats(self, text: str) -> str:
        """The text of the answer, of what has streamed."""
        return text[: len(text) - self.repeated_characters]

    def kept_steps(self, steps: Iterable[Tokens]) -> Iterator[Tokens]:
        """The steps of the answer, of those that have come."""
        return of_first_tokens(steps, self.totals.completion_tokens) if self.totals.repeated_tokens else iter(steps)


@dataclass(frozen=True)
class Failed:
    """An error ended the answer. The text so far stays."""

    message: str
    exit_code: int = 1

    @classmethod
    def from_error(cls, error: SpecchatError) -> Failed:
        return cls(str(error), error.exit_code)


Event = (
    Waiting | LoadingProgress | Notice | PrefillProgress | Routed | TextDelta | ThinkingDelta | ToolCallDelta | StepDone
    | PromptTokens | Finished | Failed
)  # fmt: skip
