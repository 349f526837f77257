"""Statistics for the status bar, computed from events. Draws nothing and reads no clock.

draft tokens     of the last step
acceptance       the shares of accepted and rejected draft tokens, and of steps without any, over the last 64 steps
acceptance rate  accepted / tested draft tokens: over the last 64 steps, at the end of the turn, and over the session
tokens/step      committed tokens / steps (mean accepted length), the target's own token included; 1.0 is no gain
tokens/s         committed tokens per second of the clock, over about 2 s; at the end, that of the whole turn (`Totals`)
speedup          tokens/s relative to plain decoding under the same load; an estimate while a turn runs
ttft             seconds from the request to the first token, as the engine process measured it: after the turn
context          tokens of prompt and answer, out of the context window
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Any

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import (
    TARGET,
    Event,
    Failed,
    Finished,
    PrefillProgress,
    Routed,
    Speedup,
    Stage,
    StepDone,
    TextDelta,
    ThinkingDelta,
    Totals,
    speedup_of_sums,
)
from specchat.host.protocol import totals_from_json

WINDOW_STEPS = 64
SPEED_SECONDS = 2.0
SERVER_VARIANT = "server"  # another server decodes: no steps, draft totals only at the end


class Phase(Enum):
    WAITING = "waiting"
    DECODE = "decode"
    IDLE = "idle"


@dataclass(frozen=True)
class Progress:
    stage: str = ""
    text: str = ""  # with how much of it is done
    elapsed_seconds: float = 0.0


@dataclass(frozen=True)
class AcceptanceShares:
    """The shares of steps: accepted and rejected draft tokens divide a step; the rest are steps without any."""

    accepted: float
    rejected: float


@dataclass(frozen=True)
class StatsSnapshot:
    """The values to show; None means unknown."""

    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    is_answering: bool = False
    model: str = ""
    variant: str = ""
    drafter: str = ""  # with `auto`: the drafter of most accepted tokens
    reason: str = ""
    draft_tokens: int | None = None
    acceptance: AcceptanceShares | None = None
    acceptance_rate: float | None = None
    session_acceptance_rate: float | None = None
    tokens_per_step: float | None = None
    tokens_per_second: float | None = None
    speedup: Speedup | None = None
    is_speedup_estimated: bool = False
    ttft_seconds: float | None = None
    context_tokens: int | None = None
    context_window: int | None = None
    memory_bytes: int = 0  # of the engine process; 0: unknown
    is_speculation_paused: bool = False


@dataclass(frozen=True)
class _Arrived:
    step: StepDone
    at: float


@dataclass
class LiveStats:
    context_window: int | None = None
    memory_bytes: int = 0  # of the engine process; 0: unknown
    model: str = ""
    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    routed: Routed | None = None
    steps: deque[_Arrived] = field(default_factory=lambda: deque[_Arrived](maxlen=WINDOW_STEPS))
    acceptance: Acceptance = Acceptance()  # of the session, without the running turn
    turn_acceptance: Acceptance = Acceptance()
    context_tokens: int | None = None
    last_totals: Totals | None = None
    phase_start_time: float = 0.0
    is_answering: bool = False

    def start_turn(self, now: float, stage: str = "waiting for the engine") -> None:
        self.last_totals, self.turn_acceptance, self.is_answering = None, Acceptance(), True
        if self.phase is not Phase.WAITING:  # else the answer waits for the same
            self.start_waiting(stage, now)

    def start_waiting(self, stage: str, now: float) -> None:
        """Something starts that reports no progress."""
        self._enter_phase(Phase.WAITING, Progress(stage, stage), now)

    def set_idle(self) -> None:
        self.phase, self.progress, self.is_answering = Phase.IDLE, Progress(), False

    def add_stored_totals(self, totals: Mapping[str, Any]) -> None:
        stored = totals_from_json(dict(totals))
        self.acceptance += stored.acceptance
        self._set_context(stored)

    def _set_context(self, totals: Totals) -> None:
        if totals.prompt_tokens:
            self.context_tokens = totals.prompt_tokens + totals.completion_tokens

    def on_event(self, event: Event, now: float) -> None:
        match event:
            case Stage():
                self._enter_phase(Phase.WAITING, Progress(event.stage, event.text.removesuffix("…")), now)
                if isinstance(event, PrefillProgress):
                    self.context_tokens = event.prompt_tokens
            case Routed(context_window=context_window):
                self.routed = event
                self.context_window = context_window or self.context_window
            case StepDone():
                self._on_step(event, now)
            case Finished():
                self._on_finished(event)
            case Failed():
                self._end_turn(self.turn_acceptance)
            case TextDelta() | ThinkingDelta():
                if self._is_from_server and self.phase is not Phase.DECODE:
                    self._start_decode(now)

    def snapshot(self, now: float) -> StatsSnapshot:
        progress = self.progress
        if progress.stage:
            progress = replace(progress, elapsed_seconds=max(0.0, now - self.phase_start_time))
        common = StatsSnapshot(
            self.phase, progress, self.is_answering, self.model,
            context_window=self.context_window, memory_bytes=self.memory_bytes,
            context_tokens=self.context_tokens, session_acceptance_rate=(self.acceptance + self.turn_acceptance).rate,
        )  # fmt: skip
        stats = self._with_steps(common, now) if self.steps else common
        stats = _with_totals(stats, self.last_totals) if self.last_totals else stats
        return self._with_route(stats, self.routed) if self.routed else stats

    def _enter_phase(self, phase: Phase, progress: Progress, now: float) -> None:
        if self.phase is not phase or self.progress.stage != progress.stage:
            self.phase_start_time = now
        self.phase, self.progress = phase, progress

    @property
    def _is_from_server(self) -> bool:
        return self.routed is not None and self.routed.variant == SERVER_VARIANT

    def _start_decode(self, now: float) -> None:
        self.steps.clear()
        self._enter_phase(Phase.DECODE, Progress(), now)

    def _on_step(self, step: StepDone, now: float) -> None:
        if self.phase is not Phase.DECODE:
            self._start_decode(now)
        self.steps.append(_Arrived(step, now))
        self.turn_acceptance += step.acceptance
        self.context_tokens = (self.context_tokens or 0) + step.tokens

    def _on_finished(self, finished: Finished) -> None:
        totals = finished.totals
        self._end_turn(totals.acceptance)
        self.last_totals = totals if totals.completion_tokens else None
        self._set_context(totals)
        if totals.repeated_tokens:
            self.steps.clear()  # they show the loop

    def _end_turn(self, acceptance: Acceptance) -> None:
        self.acceptance, self.turn_acceptance = self.acceptance + acceptance, Acceptance()
        self.set_idle()

    def _with_steps(self, stats: StatsSnapshot, now: float) -> StatsSnapshot:
        steps, recent = [each.step for each in self.steps], _recent_steps(list(self.steps), now)
        speedup = _estimated_speedup([each.step for each in recent])
        return replace(
            stats,
            draft_tokens=len(steps[-1].draft_tokens),
            acceptance=_acceptance_shares(steps),
            acceptance_rate=sum((step.acceptance for step in steps), Acceptance()).rate,
            tokens_per_step=sum(step.tokens for step in steps) / len(steps),
            tokens_per_second=_tokens_per_second(recent, now) if self.phase is Phase.DECODE else None,
            speedup=speedup,
            is_speedup_estimated=speedup is not None,
            is_speculation_paused=not any(step.draft_tokens for step in steps) and len(steps) == WINDOW_STEPS,
        )

    def _with_route(self, stats: StatsSnapshot, routed: Routed) -> StatsSnapshot:
        if self._is_from_server:
            return replace(stats, variant=SERVER_VARIANT, reason=routed.reason)
        tokens = (token for each in self.steps for token in each.step.committed_tokens)
        accepted = Counter(token.source for token in tokens if token.source != TARGET)
        is_chosen = routed.reason != "pinned"
        drafter = max(accepted, key=lambda source: accepted[source], default="") if is_chosen else ""
        if is_chosen and not drafter and routed.variant != "auto":
            drafter = routed.variant
        return replace(
            stats,
            variant="auto" if is_chosen else routed.variant,
            drafter=drafter,
            reason=routed.reason,
            draft_tokens=routed.budget if stats.draft_tokens is None else stats.draft_tokens,
            is_speculation_paused=stats.is_speculation_paused and is_chosen,
        )


def _with_totals(stats: StatsSnapshot, totals: Totals) -> StatsSnapshot:
    """The numbers of the answer at its end, as in its footer."""
    return replace(
        stats,
        acceptance_rate=totals.acceptance.rate,
        tokens_per_step=totals.tokens_per_step or None,
        tokens_per_second=totals.tokens_per_second,
        speedup=totals.speedup,
        is_speedup_estimated=False,
        ttft_seconds=totals.ttft_seconds or None,
    )


def _acceptance_shares(steps: Sequence[StepDone]) -> AcceptanceShares:
    rates = [rate for step in steps if (rate := step.acceptance.rate) is not None]
    return AcceptanceShares(sum(rates) / len(steps), sum(1 - rate for rate in rates) / len(steps))


def _recent_steps(steps: Sequence[_Arrived], now: float) -> Sequence[_Arrived]:
    """Of the last seconds, or two where each takes longer."""
    recent = [each for each in steps if now - each.at <= SPEED_SECONDS]
    return recent if len(recent) > 1 else steps[-2:]


def _tokens_per_second(steps: Sequence[_Arrived], now: float) -> float | None:
    """What came after the first of the steps; None while nothing did."""
    tokens = sum(each.step.tokens for each in steps if each.at > steps[0].at)
    return tokens / (now - steps[0].at) if tokens else None


def _estimated_speedup(steps: Sequence[StepDone]) -> Speedup | None:
    """None without draft tokens, or while it is unknown, or known too badly, how long plain decoding takes."""
    if not all(step.plain_seconds for step in steps) or not any(step.draft_tokens for step in steps):
        return None
    plain_seconds = sum(step.plain_seconds for step in steps)
    error_seconds = sum(step.plain_error * step.plain_seconds for step in steps)
    return speedup_of_sums(plain_seconds, error_seconds, sum(step.seconds for step in steps))
