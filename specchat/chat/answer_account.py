"""What an answer costs so far: the one place where the numbers of an answer come from.

The clock starts with the request, as that of a person does, and stands still only while models load, which is named
apart. What was waited for has names: the queue, the prefill, and other work of the engine process between two steps.
Knows tokens and seconds; no text, no model and no front end.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import zip_longest
from time import perf_counter
from typing import Self

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import NO_DRAFTER, TARGET, CommittedToken, LikelyToken, StepDone, Totals, of_first_tokens
from specchat.chat.plain_baseline import UNKNOWN_ESTIMATE, PlainEstimate
from specchat.engine.decode import Step
from specchat.engine.probabilities import TokenProbabilities


@dataclass(frozen=True, slots=True)
class _TimedStep:
    """A step, and the clock after it."""

    step: StepDone
    seconds: float
    other_seconds: float

    @property
    def tokens(self) -> int:
        return self.step.tokens

    def first(self, tokens: int) -> Self:
        return replace(self, step=self.step.first(tokens))


class AnswerAccount:
    """`asked_at` is when the request came, on the clock of `perf_counter`; None: now. Loading followed it.

    `shares_engine` says whether the engine process computes for others between two steps.
    """

    def __init__(self, asked_at: float | None = None, loading_seconds: float = 0.0) -> None:
        now = perf_counter()
        self._zero = min((now if asked_at is None else asked_at) + loading_seconds, now)
        self._queue_seconds, self._loading_seconds, self._other_seconds = now - self._zero, loading_seconds, 0.0
        self._steps = list[_TimedStep]()
        self._prompt = Totals()
        self.shares_engine = False
        self.thinking_tokens, self._thinking_seconds, self._repeated_tokens = 0, 0.0, 0

    @property
    def seconds(self) -> float:
        """From the request until now, without loading."""
        return perf_counter() - self._zero

    @contextmanager
    def other_work(self) -> Generator[None]:
        """Between two steps."""
        left_at = perf_counter()
        yield
        self._other_seconds += (perf_counter() - left_at) if self.shares_engine else 0.0

    def add_other(self, seconds: float) -> None:
        """What a pass that other texts shared has taken for them; below 0: what `other_work` had as theirs."""
        self._other_seconds = max(self._other_seconds + seconds, 0.0)

    def on_prompt(self, prompt_tokens: int, cached_tokens: int) -> None:
        self._prompt = Totals(prompt_tokens=prompt_tokens, cached_tokens=cached_tokens)

    def on_prefilled(self) -> None:
        own = self.seconds - self._queue_seconds - self._other_seconds
        self._prompt = replace(self._prompt, prefill_seconds=own)

    def add_step(self, step: StepDone) -> None:
        """Add a step whose text can be read now."""
        self._steps.append(_TimedStep(step, self.seconds, self._other_seconds))

    def add_thinking(self, tokens: int) -> None:
        self.thinking_tokens += tokens
        self._thinking_seconds = self.seconds - self._ttft_seconds

    def cut(self, tokens: int, thinking_tokens: int) -> None:
        """Only the first tokens count, and the time until they could be read."""
        self._repeated_tokens = sum(step.tokens for step in self._steps) - tokens
        self._steps = list(of_first_tokens(self._steps, tokens))
        self.thinking_tokens = thinking_tokens

    def totals(self) -> Totals:
        steps, last = [each.step for each in self._steps], self._steps[-1] if self._steps else None
        committed = [token for step in steps for token in step.committed_tokens]
        return replace(
            self._prompt, completion_tokens=len(committed), steps=len(steps),
            draft_tokens=sum(len(step.draft_tokens) for step in steps),
            acceptance=sum((step.acceptance for step in steps), Acceptance()),
            accepted_by_drafter=dict(Counter(token.source for token in committed if token.source != TARGET)),
            steps_by_drafter=dict(Counter(step.drafter for step in steps if step.drafter != NO_DRAFTER)),
            draft_seconds=sum(step.draft_seconds for step in steps),
            verify_seconds=sum(step.verify_seconds for step in steps),
            seconds=last.seconds if last else 0.0, ttft_seconds=self._ttft_seconds,
            queue_seconds=self._queue_seconds, other_seconds=last.other_seconds if last else 0.0,
            loading_seconds=self._loading_seconds, repeated_tokens=self._repeated_tokens,
            thinking_tokens=self.thinking_tokens, thinking_seconds=self._thinking_seconds,
            drafter_report=describe_drafters(steps),
        )  # fmt: skip

    @property
    def _ttft_seconds(self) -> float:
        return self._steps[0].seconds if self._steps else 0.0


def step_done(
    step: Step, token_count: int, token_bytes: Callable[[int], bytes], plain: PlainEstimate = UNKNOWN_ESTIMATE
) -> StepDone:
    """The step with so many of its committed tokens, as the user gets it."""
    sources = [*(step.tree.sources[node] for node in step.path[1:]), TARGET][:token_count]
    committed = tokens_with_bytes(step.committed_tokens[:token_count], sources, step.probabilities, token_bytes)
    draft_tokens = tuple(step.tree.tokens[1:])
    return StepDone(
        draft_tokens, tuple(step.tree.parents[1:]), committed, step.draft_seconds, step.verify_seconds,
        draft_token_bytes=tuple(map(token_bytes, draft_tokens)), draft_sources=tuple(step.tree.sources[1:]),
        plain_seconds=plain.seconds, plain_error=plain.error,
    )  # fmt: skip


def tokens_with_bytes(
    ids: Sequence[int],
    sources: Sequence[str],
    probabilities: Sequence[TokenProbabilities | None],
    token_bytes: Callable[[int], bytes],
) -> tuple[CommittedToken, ...]:
    """Tokens as a reader gets them, with their probabilities where these are known."""
    committed = list[CommittedToken]()
    for token, source, known in zip_longest(ids, sources, probabilities[: len(ids)]):
        token_of = CommittedToken(token, token_bytes(token), source)
        if known is not None:
            likeliest = tuple(LikelyToken(token_bytes(id), share, id) for id, share in known.likeliest)
            token_of = replace(token_of, probability=known.committed, likeliest=likeliest)
        committed.append(token_of)
    return tuple(committed)


def describe_drafters(steps: Iterable[StepDone]) -> str:
    """Steps, acceptance and computing time for each token of each drafter, in the order of their first steps.

    "no drafter 3 of 16 steps, 12.5 ms/token; suffix 13 steps, acceptance 76 % (42 of 55), 9.1 ms/token"
    """
    by_drafter = defaultdict[str, list[StepDone]](list)
    for step in steps:
        by_drafter[step.drafter].append(step)
    total = sum(map(len, by_drafter.values()))
    described = enumerate(by_drafter.items())
    return "; ".join(_describe_drafter(name, done, total if not number else 0) for number, (name, done) in described)


def _describe_drafter(name: str, steps: Sequence[StepDone], total: int) -> str:
    acceptance = sum((step.acceptance for step in steps), Acceptance())
    count = f"{len(steps)} of {total} steps" if total else f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
    accepted, tested = sum(acceptance.accepted), sum(acceptance.tested)
    rate = f"{acceptance.rate or 0:.0%}".replace("%", " %")
    shown_rate = f", acceptance {rate} ({accepted} of {tested})" if tested else ""
    milliseconds = 1000 * sum(step.seconds for step in steps) / max(sum(step.tokens for step in steps), 1)
    return f"{'no drafter' if name == NO_DRAFTER else name} {count}{shown_rate}, {milliseconds:.1f} ms/token"
