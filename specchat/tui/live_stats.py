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

from specchat.chat.events import TARGET, Event, Failed, Finished, Loading, Prefill, Routed, StepDone, Text, Totals

WINDOW_STEPS = 64
SPEED_SECONDS = 2.0
SPARK_STEPS = 24
SERVER = "server"  # a variant without steps: it writes elsewhere, and tells what it guessed in the end


class Phase(Enum):
    """What is being waited for."""

    STARTING = "starting"
    LOADING = "loading"
    PREFILL = "prefill"
    WRITING = "writing"
    IDLE = "idle"


@dataclass(frozen=True)
class Memory:
    """Bytes that the engine holds, of how many; the total is 0 when unknown."""

    label: str
    used: int
    total: int = 0


@dataclass(frozen=True)
class Progress:
    """How far something is, since when."""

    what: str = ""
    done: int = 0
    total: int = 0
    seconds: float = 0.0
    per_second: float = 0.0


@dataclass(frozen=True)
class Readings:
    """What there is to show. None is what nobody knows."""

    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    variant: str = ""
    by: str = ""  # who guessed most of what was accepted, when `auto` chose
    reason: str = ""
    guesses: int | None = None
    accepted: float | None = None
    accepted_session: float | None = None
    per_pass: float | None = None
    speed: float | None = None
    times_plain: float | None = None
    is_estimate: bool = False
    first_seconds: float | None = None
    context: int | None = None
    window: int | None = None
    memory: Memory | None = None
    committed: tuple[int, ...] = ()  # tokens of the last steps
    is_paused: bool = False


@dataclass(frozen=True)
class _Step:
    drafted: int
    accepted: Mapping[str, int]
    tokens: int
    seconds: float


@dataclass
class Gauge:
    """A sum over the events of a session."""

    window: int | None = None
    memory: Memory | None = None
    phase: Phase = Phase.IDLE
    progress: Progress = Progress()
    routed: Routed | None = None
    steps: deque[_Step] = field(default_factory=lambda: deque[_Step](maxlen=WINDOW_STEPS))
    drafted: int = 0
    accepted: int = 0
    context: int | None = None
    prompt: int = 0
    plain_seconds: float = 0.0
    asked: float = 0.0
    first_seconds: float | None = None
    last: Totals | None = None
    begun: float = 0.0
    read_before: int = 0

    def ask(self, now: float) -> None:
        """A question was sent."""
        self.asked, self.first_seconds, self.last = now, None, None
        self._enter(Phase.PREFILL, Progress("waiting"), now)

    def wait(self, what: str, now: float) -> None:
        """Something begins that says nothing of itself."""
        self._enter(Phase.STARTING, Progress(what), now)

    def rest(self) -> None:
        """Nothing is waited for."""
        self.phase, self.progress = Phase.IDLE, Progress()

    def remember(self, totals: Mapping[str, Any]) -> None:
        """A turn of earlier, as the history keeps its totals."""
        accepted = totals.get("accepted")
        self.drafted += int(totals.get("drafted") or 0)
        self.accepted += sum(accepted.values()) if isinstance(accepted, dict) else 0
        self.plain_seconds = float(totals.get("plain_seconds") or 0.0) or self.plain_seconds
        if "prompt_tokens" in totals:
            self.context = int(totals["prompt_tokens"]) + int(totals.get("tokens") or 0)

    def hear(self, event: Event, now: float) -> None:
        """One event more."""
        match event:
            case Loading(what=what, done=done, total=total):
                self._enter(Phase.LOADING, Progress(what, done, total), now)
            case Prefill(done=done, total=total, reused=reused):
                self._read(done, total, reused, now)
            case Routed():
                self.routed = event
            case StepDone():
                self._step(event, now)
            case Finished(totals=totals):
                self._finish(totals)
            case Failed():
                self.rest()
            case Text():
                if self._is_served and self.phase is not Phase.WRITING:
                    self._begin_writing(now)

    def readings(self, now: float) -> Readings:
        """What to show."""
        progress = self.progress
        if progress.what:
            progress = replace(progress, seconds=max(0.0, now - self.begun))
        common = Readings(
            self.phase, progress, window=self.window, memory=self.memory, context=self.context,
            accepted_session=_share(self.accepted, self.drafted), first_seconds=self.first_seconds,
        )  # fmt: skip
        return self._with_route(self._with_steps(common))

    def _enter(self, phase: Phase, progress: Progress, now: float) -> None:
        if self.phase is not phase or self.progress.what != progress.what:
            self.begun = now
        self.phase, self.progress = phase, progress

    def _read(self, done: int, total: int, reused: int, now: float) -> None:
        if self.progress.what != "prompt":
            self.read_before = reused
            self._enter(Phase.PREFILL, Progress("prompt"), now)
        seconds = now - self.begun
        speed = (done - self.read_before) / seconds if seconds > 0 else 0.0
        self.progress = Progress("prompt", done, total, seconds, max(0.0, speed))
        self.context = self.prompt = total

    @property
    def _is_served(self) -> bool:
        return self.routed is not None and self.routed.variant == SERVER

    def _begin_writing(self, now: float) -> None:
        self.steps.clear()
        self.first_seconds = now - self.asked
        self._enter(Phase.WRITING, Progress(), now)

    def _step(self, step: StepDone, now: float) -> None:
        if self.phase is not Phase.WRITING:
            self._begin_writing(now)
        accepted: dict[str, int] = {}
        for token in step.committed:
            if token.source != TARGET:
                accepted[token.source] = accepted.get(token.source, 0) + 1
        self.steps.append(
            _Step(len(step.drafted), accepted, len(step.committed), step.draft_seconds + step.verify_seconds)
        )
        self.drafted += len(step.drafted)
        self.accepted += sum(accepted.values())
        self.context = (self.context or 0) + len(step.committed)

    def _finish(self, totals: Totals) -> None:
        self.rest()
        self.last = totals if totals.tokens else None
        if self._is_served:
            self.drafted += totals.drafted
            self.accepted += sum(totals.accepted.values())
        self.plain_seconds = totals.plain_seconds or self.plain_seconds
        if totals.prompt_tokens:
            self.context = totals.prompt_tokens + totals.tokens
        if totals.first_token_seconds:
            self.first_seconds = totals.first_token_seconds

    def _with_steps(self, readings: Readings) -> Readings:
        if not self.steps:
            return self._with_totals(readings)
        steps = list(self.steps)
        drafted, tokens = sum(step.drafted for step in steps), sum(step.tokens for step in steps)
        speed = self._speed()
        times = speed * self.plain_seconds if speed and self.plain_seconds else None
        last = self.last
        return replace(
            readings,
            guesses=steps[-1].drafted,
            accepted=_share(sum(sum(step.accepted.values()) for step in steps), drafted),
            per_pass=tokens / len(steps),
            speed=last.tokens_per_second if last else speed,
            times_plain=last.times_plain if last else times,
            is_estimate=last is None and times is not None,
            committed=tuple(step.tokens for step in steps[-SPARK_STEPS:]),
            is_paused=not drafted and len(steps) == WINDOW_STEPS,
        )

    def _with_totals(self, readings: Readings) -> Readings:
        """What there is to show of an answer that came without steps."""
        last = self.last
        if last is None:
            return readings
        per_pass, speed = last.tokens_per_pass or None, last.tokens_per_second or None
        return replace(readings, accepted=last.accepted_share, per_pass=per_pass, speed=speed)

    def _with_route(self, readings: Readings) -> Readings:
        if self.routed is None:
            return readings
        sums: dict[str, int] = {}
        for step in self.steps:
            for source, count in step.accepted.items():
                sums[source] = sums.get(source, 0) + count
        if self._is_served:
            return replace(readings, variant=SERVER, reason=self.routed.reason)
        is_chosen = self.routed.reason != "pinned"
        variant, by = ("auto", max(sums, key=lambda source: sums[source]) if sums else "") if is_chosen else (
            self.routed.variant, ""
        )  # fmt: skip
        if is_chosen and not by and self.routed.variant != "auto":
            by = self.routed.variant
        guesses = self.routed.budget if readings.guesses is None else readings.guesses
        is_paused = readings.is_paused and is_chosen
        return replace(
            readings, variant=variant, by=by, reason=self.routed.reason, guesses=guesses, is_paused=is_paused
        )

    def _speed(self) -> float | None:
        """Tokens a second over the last steps that took about two seconds together."""
        seconds, tokens = 0.0, 0
        for step in reversed(self.steps):
            seconds += step.seconds
            tokens += step.tokens
            if seconds >= SPEED_SECONDS:
                break
        return tokens / seconds if seconds else None


def _share(part: int, whole: int) -> float | None:
    return part / whole if whole else None
