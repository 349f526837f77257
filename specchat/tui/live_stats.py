"""Events in, numbers out: what the status line shows. Nothing is drawn here, and no clock is read.

K            guesses of the last step
accepted     accepted by verified guesses: over the last 64 steps, and over the session
tokens/pass  committed tokens by passes of the target, the target's own token included; 1.0 means no gain
speed        committed tokens by the time of drafting and verifying, over about 2 s; at the end the mean of the turn
times plain  speed by that of plain decoding as it was last measured here; an estimate while a turn runs
first token  from the question to the first token
context      tokens of prompt and answer, of those the session may hold
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from specchat.chat.events import (
    TARGET,
    Event,
    Failed,
    Finished,
    LoadingProgress,
    PrefillProgress,
    Routed,
    StepDone,
    TextDelta,
    Totals,
)

WINDOW_STEPS = 64
SPEED_SECONDS = 2.0
SPARKLINE_STEPS = 24
SERVER_VARIANT = "server"  # a variant without steps: it writes elsewhere, and tells what it guessed in the end


class Phase(Enum):
    """What is being waited for."""

    STARTING = "starting"
    LOADING = "loading"
    PREFILL = "prefill"
    DECODE = "writing"
    IDLE = "idle"


@dataclass(frozen=True)
class MemoryUsage:
    """Bytes that the engine holds, of how many; the total is 0 when unknown."""

    label: str
    used_bytes: int
    total_bytes: int = 0


@dataclass(frozen=True)
class Progress:
    """How far something is, since when."""

    label: str = ""
    done: int = 0
    total: int = 0
    elapsed_seconds: float = 0.0
    tokens_per_second: float = 0.0


@dataclass(frozen=True)
class StatsSnapshot:
    """What there is to show. None is what nobody knows."""

    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    variant: str = ""
    drafter: str = ""  # who guessed most of what was accepted, when `auto` chose
    reason: str = ""
    draft_tokens: int | None = None
    acceptance_rate: float | None = None
    session_acceptance_rate: float | None = None
    tokens_per_step: float | None = None
    tokens_per_second: float | None = None
    speedup: float | None = None
    is_speedup_estimated: bool = False
    ttft_seconds: float | None = None
    context_tokens: int | None = None
    context_window: int | None = None
    memory: MemoryUsage | None = None
    tokens_by_step: tuple[int, ...] = ()  # tokens of the last steps
    is_speculation_paused: bool = False


@dataclass(frozen=True)
class _Step:
    drafted: int
    accepted: Mapping[str, int]
    tokens: int
    seconds: float


@dataclass
class LiveStats:
    """A sum over the events of a session."""

    context_window: int | None = None
    memory: MemoryUsage | None = None
    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    routed: Routed | None = None
    steps: deque[_Step] = field(default_factory=lambda: deque[_Step](maxlen=WINDOW_STEPS))
    drafted: int = 0
    accepted: int = 0
    context_tokens: int | None = None
    prompt_tokens: int = 0
    plain_step_seconds: float = 0.0
    request_time: float = 0.0
    ttft_seconds: float | None = None
    last_totals: Totals | None = None
    phase_start_time: float = 0.0
    reused_tokens: int = 0

    def start_turn(self, now: float) -> None:
        """A question was sent."""
        self.request_time, self.ttft_seconds, self.last_totals = now, None, None
        self._enter_phase(Phase.PREFILL, Progress("waiting"), now)

    def start_waiting(self, label: str, now: float) -> None:
        """Something begins that says nothing of itself."""
        self._enter_phase(Phase.STARTING, Progress(label), now)

    def set_idle(self) -> None:
        """Nothing is waited for."""
        self.phase, self.progress = Phase.IDLE, Progress()

    def add_stored_totals(self, totals: Mapping[str, Any]) -> None:
        """A turn of earlier, as the history keeps its totals."""
        accepted = totals.get("accepted")
        self.drafted += int(totals.get("drafted") or 0)
        self.accepted += sum(accepted.values()) if isinstance(accepted, dict) else 0
        self.plain_step_seconds = float(totals.get("plain_seconds") or 0.0) or self.plain_step_seconds
        if "prompt_tokens" in totals:
            self.context_tokens = int(totals["prompt_tokens"]) + int(totals.get("tokens") or 0)

    def on_event(self, event: Event, now: float) -> None:
        """One event more."""
        match event:
            case LoadingProgress(label=what, done=done, total=total):
                self._enter_phase(Phase.LOADING, Progress(what, done, total), now)
            case PrefillProgress(processed_tokens=done, prompt_tokens=total, cached_tokens=reused):
                self._on_prefill(done, total, reused, now)
            case Routed():
                self.routed = event
            case StepDone():
                self._on_step(event, now)
            case Finished(totals=totals):
                self._on_finished(totals)
            case Failed():
                self.set_idle()
            case TextDelta():
                if self._is_from_server and self.phase is not Phase.DECODE:
                    self._start_decode(now)

    def snapshot(self, now: float) -> StatsSnapshot:
        """What to show."""
        progress = self.progress
        if progress.label:
            progress = replace(progress, seconds=max(0.0, now - self.phase_start_time))
        common = StatsSnapshot(
            self.phase, progress, context_window=self.context_window, memory=self.memory, context_tokens=self.context_tokens,
            session_acceptance_rate=_ratio(self.accepted, self.drafted), ttft_seconds=self.ttft_seconds,
        )  # fmt: skip
        return self._with_route(self._with_steps(common))

    def _enter_phase(self, phase: Phase, progress: Progress, now: float) -> None:
        if self.phase is not phase or self.progress.label != progress.label:
            self.phase_start_time = now
        self.phase, self.progress = phase, progress

    def _on_prefill(self, done: int, total: int, reused: int, now: float) -> None:
        if self.progress.label != "prompt":
            self.reused_tokens = reused
            self._enter_phase(Phase.PREFILL, Progress("prompt"), now)
        seconds = now - self.phase_start_time
        speed = (done - self.reused_tokens) / seconds if seconds > 0 else 0.0
        self.progress = Progress("prompt", done, total, seconds, max(0.0, speed))
        self.context_tokens = self.prompt_tokens = total

    @property
    def _is_from_server(self) -> bool:
        return self.routed is not None and self.routed.variant == SERVER_VARIANT

    def _start_decode(self, now: float) -> None:
        self.steps.clear()
        self.ttft_seconds = now - self.request_time
        self._enter_phase(Phase.DECODE, Progress(), now)

    def _on_step(self, step: StepDone, now: float) -> None:
        if self.phase is not Phase.DECODE:
            self._start_decode(now)
        accepted: dict[str, int] = {}
        for token in step.committed_tokens:
            if token.source != TARGET:
                accepted[token.source] = accepted.get(token.source, 0) + 1
        self.steps.append(
            _Step(
                len(step.draft_tokens), accepted, len(step.committed_tokens), step.draft_seconds + step.verify_seconds
            )
        )
        self.drafted += len(step.draft_tokens)
        self.accepted += sum(accepted.values())
        self.context_tokens = (self.context_tokens or 0) + len(step.committed_tokens)

    def _on_finished(self, totals: Totals) -> None:
        self.set_idle()
        self.last_totals = totals if totals.completion_tokens else None
        if self._is_from_server:
            self.drafted += totals.draft_tokens
            self.accepted += sum(totals.accepted_by_drafter.values())
        self.plain_step_seconds = totals.plain_step_seconds or self.plain_step_seconds
        if totals.prompt_tokens:
            self.context_tokens = totals.prompt_tokens + totals.completion_tokens
        if totals.ttft_seconds:
            self.ttft_seconds = totals.ttft_seconds

    def _with_steps(self, readings: StatsSnapshot) -> StatsSnapshot:
        if not self.steps:
            return self._with_totals(readings)
        steps = list(self.steps)
        drafted, tokens = sum(step.drafted for step in steps), sum(step.tokens for step in steps)
        speed = self._recent_tokens_per_second()
        times = speed * self.plain_step_seconds if speed and self.plain_step_seconds else None
        last = self.last_totals
        return replace(
            readings,
            guesses=steps[-1].drafted,
            accepted=_ratio(sum(sum(step.accepted.values()) for step in steps), drafted),
            per_pass=tokens / len(steps),
            speed=last.tokens_per_second if last else speed,
            times_plain=last.speedup if last else times,
            is_estimate=last is None and times is not None,
            committed=tuple(step.tokens for step in steps[-SPARKLINE_STEPS:]),
            is_paused=not drafted and len(steps) == WINDOW_STEPS,
        )

    def _with_totals(self, readings: StatsSnapshot) -> StatsSnapshot:
        """What there is to show of an answer that came without steps."""
        last = self.last_totals
        if last is None:
            return readings
        per_pass, speed = last.tokens_per_step or None, last.tokens_per_second or None
        return replace(readings, accepted=last.acceptance_rate, per_pass=per_pass, speed=speed)

    def _with_route(self, readings: StatsSnapshot) -> StatsSnapshot:
        if self.routed is None:
            return readings
        sums: dict[str, int] = {}
        for step in self.steps:
            for source, count in step.accepted.items():
                sums[source] = sums.get(source, 0) + count
        if self._is_from_server:
            return replace(readings, variant=SERVER_VARIANT, reason=self.routed.reason)
        is_chosen = self.routed.reason != "pinned"
        variant, by = ("auto", max(sums, key=lambda source: sums[source]) if sums else "") if is_chosen else (
            self.routed.variant, ""
        )  # fmt: skip
        if is_chosen and not by and self.routed.variant != "auto":
            by = self.routed.variant
        guesses = self.routed.budget if readings.draft_tokens is None else readings.draft_tokens
        is_paused = readings.is_speculation_paused and is_chosen
        return replace(
            readings, variant=variant, by=by, reason=self.routed.reason, guesses=guesses, is_paused=is_paused
        )

    def _recent_tokens_per_second(self) -> float | None:
        """Tokens a second over the last steps that took about two seconds together."""
        seconds, tokens = 0.0, 0
        for step in reversed(self.steps):
            seconds += step.seconds
            tokens += step.tokens
            if seconds >= SPEED_SECONDS:
                break
        return tokens / seconds if seconds else None


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
