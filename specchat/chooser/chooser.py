"""The drafter `auto`: in each step, the drafter and the number of draft tokens that give the most tokens per second.

The chooser is a drafter that delegates to other drafters, so the decoding loop does not know about it. It combines the
measured costs (`costs.py`) with the acceptance statistics (`acceptance.py`), and takes the draft with the most expected
tokens for its expected seconds. Plain decoding is one of the choices. Each choice is one of a bandit:

- What a drafter that computes may bring is a confidence bound of its acceptance (`ChooserState.confidence`): optimistic
  while trials are affordable, pessimistic after losses. The statistics of drafters that are not used fade, so that they
  are tried again.
- Instant drafters, which take microseconds, propose first, and the chooser judges the tree that they return.
- While no drafter is worth its cost, the chooser is idle until the next proposal is due.

This file knows drafters by name only, and no text.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from math import inf
from typing import NamedTuple

from specchat.chooser.acceptance import PLAIN, CountsKey, StepEstimate, TrackedDraft, best_subtree, length_class_of
from specchat.chooser.costs import Costs
from specchat.chooser.state import EMA_WEIGHT, MAX_INSTANT_COOLDOWN_STEPS, CandidateStats, ChooserState
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.pass_clock import pass_seconds
from specchat.engine.tree import DraftTree

FIRST_PRIOR_RATE = 0.7  # prior acceptance rate of the first drafter of the order
OTHER_PRIOR_RATE = 0.5  # of the other drafters of the order
UNLIKELY_PRIOR_RATE = 0.3  # of drafters that come after `plain` or are not in the order
MIN_TOKEN_GAIN = 0.02  # expected tokens above a plain pass that a draft needs
UNKNOWN_DRAFT_COST = 0.25  # of a plain pass: what one draft token is assumed to cost before it was measured
REFRESH_STEPS = 256  # steps after which a plain pass is run, to measure its cost again
MAX_UNCHARGED_PREFILL_TOKENS = 32  # with more unread tokens, a draft does not measure the usual cost of the drafter
DECISION_SHARE = 0.01  # share of the time for decisions that end in plain decoding
IDLE_SPEED_RATIO = 1.02  # of a speed to plain speed: a higher one still falls
PLAIN_LEARNING_SECONDS = 0.01  # of decoding between two plain passes whose cost is learned
PREFILL_PAYBACK_STEPS = 32.0  # steps within which the prefill of a drafter must pay


@dataclass(frozen=True)
class DeviceLoad:
    waiting_sessions: int = 0
    is_completion_waiting: bool = False

    def budget_share(self, max_draft_tokens: int) -> int:
        """A fair share of the draft tokens; none while a completion waits."""
        return 0 if self.is_completion_waiting else max_draft_tokens // (1 + self.waiting_sessions)


@dataclass
class _Expected:
    """The latest estimates of an answer, by drafter, and the seconds of a plain pass; 0 when nothing was estimated."""

    estimates: dict[str, StepEstimate] = field(default_factory=dict[str, StepEstimate])
    plain_seconds: float = 0.0


class _StepInputs(NamedTuple):
    context: DraftContext  # with the budget that the load and the curve allow
    pass_seconds: list[float]  # of a pass over 0, 1, ... rows
    tokens_per_second: float
    texts: int = 1  # that share the pass: what it takes longer, it takes from all of them

    @property
    def plain_seconds(self) -> float:
        return self.pass_seconds[1]

    @property
    def max_draft_tokens(self) -> int:
        return self.context.max_draft_tokens

    def gain(self, estimate: StepEstimate) -> float:
        return estimate.token_gain(self.tokens_per_second * self.texts)


class Chooser(Drafter):
    """Delegates to the fastest drafter, or to none. All drafters observe every outcome and follow every truncation."""

    name = "auto"

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        costs: Costs,
        state: ChooserState | None = None,
        clock: Callable[[], float] = pass_seconds,
    ) -> None:
        self.drafters = {name: drafter for name, drafter in drafters.items() if name != PLAIN}
        self.costs, self.state, self.clock = costs, state or ChooserState(), clock
        self.device_load = DeviceLoad()
        self.hidden_state_layers = tuple(
            dict.fromkeys(layer for drafter in self.drafters.values() for layer in drafter.hidden_state_layers)
        )
        self._prefilled_tokens = dict.fromkeys(self.drafters, 0)
        self._tracked_drafts: dict[str, TrackedDraft] = {}
        self._is_stochastic = self._is_computed = False  # whether the draft of this step took computing
        self.start_answer(AnswerTask(drafter_order=tuple(self.drafters)))

    def start_answer(self, task: AnswerTask) -> None:
        """The order of the drafters gives the priors: those after `plain` are unlikely."""
        drafter_order = task.drafter_order
        named = [name for name in drafter_order if name in self.drafters]
        rest = [name for name in self.drafters if name not in drafter_order]
        unlikely = {*rest, *(drafter_order[drafter_order.index(PLAIN) :] if PLAIN in drafter_order else ())}
        self.task_kind, self._is_private, self.drafter_order = task.kind, task.is_private, tuple(named + rest)
        self._prior_rates = {
            name: UNLIKELY_PRIOR_RATE if name in unlikely else OTHER_PRIOR_RATE if index else FIRST_PRIOR_RATE
            for index, name in enumerate(self.drafter_order)
        }
        self._expected = _Expected()
        self._candidates: dict[tuple[str, bool], CandidateStats] = {}  # of this answer
        self._idle_until_step = 0
        self._other_rows = self._other_texts = 0  # of the last pass

    def describe_estimates(self) -> str:
        """What is expected of each drafter now, and on what basis; "" before anything was estimated.

        "draft 2.1 tokens in 4.0 ms, lookup 1.1 tokens in 2.9 ms, no drafter 1 token in 2.5 ms"
        """
        if not self._expected.plain_seconds:
            return ""
        expected = [
            f"{name} {each.expected_tokens:.1f} tokens in {1000 * each.seconds:.1f} ms{self._basis(name)}"
            for name, each in self._expected.estimates.items()
        ]
        return ", ".join([*expected, f"no drafter 1 token in {1000 * self._expected.plain_seconds:.1f} ms"])

    def _basis(self, name: str) -> str:
        return "" if self.drafters[name].is_instant else self._candidate(name).basis

    def propose(self, context: DraftContext) -> DraftTree:
        """The tree with the most expected tokens per second, or a bare root."""
        state, started_at = self.state, self.clock()
        state.steps += 1
        self._is_stochastic = context.sampler.temperature > 0
        tree, self._is_computed = None, False
        step = self._step_inputs(context) if state.steps >= self._idle_until_step else None
        if step is not None:
            tree = self._choose(step)
            if tree is None or len(tree) == 1:
                self._go_idle(step, self.clock() - started_at)
        if tree is None or len(tree) == 1:
            state.last_plain_step = state.steps
        return tree or DraftTree(context.tokens[-1])

    def _step_inputs(self, context: DraftContext) -> _StepInputs | None:
        """What is known before the choice; None while only plain passes are measured."""
        budget, state = self.device_load.budget_share(context.max_draft_tokens), self.state
        if state.wide_pass_age.is_old(state.steps):
            self.costs.distrust_wide_passes(len(context.tokens))
            state.wide_pass_age.add_measurement(state.steps)
        others = self._other_rows
        all_seconds = self.costs.trusted_pass_seconds(len(context.tokens), others + budget + 1) or []
        pass_seconds = all_seconds[others:]
        if len(pass_seconds) < 3:
            return None
        self._expected.plain_seconds = plain_seconds = pass_seconds[1]
        speed = state.tokens_per_second.get((self.task_kind, self._is_stochastic), 0.0)
        context = context.with_budget(len(pass_seconds) - 2)
        speed = max(speed * all_seconds[1], 1.0) / plain_seconds
        return _StepInputs(context, pass_seconds, speed, 1 + self._other_texts)

    def _choose(self, step: _StepInputs) -> DraftTree | None:
        """The tree of the drafter with the largest gain; None for plain decoding."""
        plain = best = StepEstimate(seconds=step.plain_seconds)
        best_tree, best_gain = None, step.gain(plain) + MIN_TOKEN_GAIN
        for estimate, tree in self._offers(step):
            if (gain := step.gain(estimate) - (self.state.instant_margin if tree else 0.0)) > best_gain:
                best, best_tree, best_gain = estimate, tree, gain
        if best is plain or self.state.steps - self.state.last_plain_step > REFRESH_STEPS:
            return None
        self._is_computed = best_tree is None
        if best_tree is None:
            best_tree, _seconds = self._propose_with(best.name, step.context, best.draft_tokens)
        return best_tree

    def _offers(self, step: _StepInputs) -> Iterator[tuple[StepEstimate, DraftTree | None]]:
        """An estimate of each drafter that is due, and the tree of those that have proposed."""
        for name in self.drafter_order:
            candidate = self._candidate(name)
            if not self.drafters[name].is_instant:
                candidate.fade_until(self.state.steps)
                self._expected.estimates[name] = estimate = self._estimate(name, candidate, step)
                yield estimate, None
            elif self.state.steps >= candidate.next_propose_step:
                estimate, tree = self._propose_instant(name, candidate, step)
                if len(tree) > 1:
                    self._expected.estimates[name] = estimate
                    yield estimate, tree

    def _go_idle(self, step: _StepInputs, decision_seconds: float) -> None:
        """Decide nothing until the next proposal is due, or until decisions have become a small share of the time.

        Where instant drafters bring less than decisions take, these are not due in every step, either. While the speed
        falls after good drafts, so does what a drafter must bring: then only the share of decisions makes it idle.
        """
        state, plain_seconds = self.state, step.plain_seconds
        state.decision_seconds += EMA_WEIGHT * (min(decision_seconds, plain_seconds) - state.decision_seconds)
        instants = [self._candidate(name) for name in self.drafter_order if self.drafters[name].is_instant]
        pays = max((each.gain_seconds for each in instants), default=0.0) > state.decision_seconds
        until_step = state.steps + (0 if pays else int(state.decision_seconds / (DECISION_SHARE * plain_seconds)))
        if step.tokens_per_second * plain_seconds <= IDLE_SPEED_RATIO:
            due = state.steps + MAX_INSTANT_COOLDOWN_STEPS
            until_step = max(min((each.next_propose_step for each in instants), default=due), until_step)
        self._idle_until_step = until_step

    def observe(self, outcome: Outcome) -> None:
        """Pass the outcome to all drafters, and compare their drafts, verified or not, with the committed tokens."""
        for drafter in self.drafters.values():
            drafter.observe(outcome)
        if outcome.is_repeated or not outcome.verify_seconds:  # a loop, or a prompt: nothing is learned from it
            self._tracked_drafts.clear()
            return
        tokens, length = outcome.committed_tokens, outcome.root_position + 1
        for name, draft in list(self._tracked_drafts.items()):
            if not all(draft.compare_token(token) for token in tokens):
                del self._tracked_drafts[name]
        self._other_rows, self._other_texts = outcome.other_rows, outcome.other_texts
        self._learn_pass_cost(outcome, length, len(outcome.tree) + outcome.other_rows)
        if outcome.other_rows:
            own_share = self.costs.own_share(length, len(outcome.tree), outcome.other_rows)
            outcome = replace(outcome, verify_seconds=outcome.verify_seconds * own_share)
        if (plain_seconds := self.costs.plain_seconds(length)) is not None:
            self.state.add_step(outcome, (self.task_kind, self._is_stochastic), plain_seconds)
            if len(outcome.tree) > 1:
                self.state.charge(outcome, plain_seconds, is_computed=self._is_computed)

    def _learn_pass_cost(self, outcome: Outcome, length: int, rows: int) -> None:
        """Learn from passes over several rows, and now and then from a plain one that is as expected."""
        state = self.state
        if rows > 1:
            state.wide_pass_age.add_measurement(state.steps)
        elif self.costs.confirms_plain_pass(length, outcome.verify_seconds):
            if state.steps < self._idle_until_step or state.total_seconds < state.next_plain_learning:
                return
            state.next_plain_learning = state.total_seconds + PLAIN_LEARNING_SECONDS
        else:
            self._idle_until_step = 0
        if self.costs.learn_pass(length, rows, outcome.verify_seconds):
            state.allow_trials()

    def forget(self, length: int) -> None:
        self._tracked_drafts.clear()
        for name, drafter in self.drafters.items():
            drafter.forget(length)
            self._prefilled_tokens[name] = min(self._prefilled_tokens[name], length)

    def _candidate(self, name: str) -> CandidateStats:
        candidate = self._candidates.get((name, self._is_stochastic))
        if candidate is None:
            key = CountsKey(name, self.task_kind, self._is_stochastic)
            candidate = self.state.candidate(key, self._prior_rates[name], is_private=self._is_private)
            self._candidates[name, self._is_stochastic] = candidate
        return candidate

    def _propose_with(self, name: str, context: DraftContext, draft_tokens: int) -> tuple[DraftTree, float]:
        """Let a drafter propose; measure its time and store the shape of its tree."""
        drafter, length = self.drafters[name], len(context.tokens)
        unread_tokens = max(length - self._prefilled_tokens[name], 1)
        if draft_tokens != context.max_draft_tokens:
            context = context.with_budget(draft_tokens)
        started_at = self.clock()
        tree = drafter.propose(context)
        seconds = self.clock() - started_at
        self._prefilled_tokens[name] = length
        candidate = self._candidate(name)
        if name not in self._tracked_drafts and len(tree) > 1:
            length_class = length_class_of(tree) if drafter.is_instant else 0
            self._tracked_drafts[name] = TrackedDraft(
                candidate, tree, length_class, counts_ranks=not drafter.is_instant
            )
        if not drafter.is_instant:
            candidate.cost_age.add_measurement(self.state.steps)
            candidate.add_proposal(tree, draft_tokens)
            if len(tree) > 1 and not self._learn_draft_cost(name, length, unread_tokens, max(tree.depths), seconds):
                return self._propose_with(name, context, draft_tokens)  # the first one included a prefill
        return tree, seconds

    def _learn_draft_cost(self, name: str, length: int, unread_tokens: int, depth: int, seconds: float) -> bool:
        """Whether the cost of a draft is known now."""
        curve = self.costs.draft_curve(name, length)
        expected = curve.seconds_at(depth) if curve is not None else None
        if unread_tokens <= (MAX_UNCHARGED_PREFILL_TOKENS if expected is not None else 1):
            self.costs.learn_draft(name, length, depth, seconds)
        elif expected is not None:
            per_token = max(seconds - expected, 0.0) / unread_tokens
            previous = self.state.prefill_seconds_per_token.get(name, per_token)
            self.state.prefill_seconds_per_token[name] = previous + (per_token - previous) / 2
        return expected is not None or unread_tokens <= 1

    def _propose_instant(
        self, name: str, candidate: CandidateStats, step: _StepInputs
    ) -> tuple[StepEstimate, DraftTree]:
        """The best part of the proposal of an instant drafter. A drafter without gain proposes less often."""
        tree, seconds = self._propose_with(name, step.context, step.max_draft_tokens)
        estimate, subtree = best_subtree(name, candidate, tree, step.pass_seconds, step.tokens_per_second)
        gain = max(estimate.expected_tokens * step.plain_seconds - estimate.seconds, 0.0) if len(subtree) > 1 else 0.0
        candidate.add_instant_proposal(gain, seconds, self.state.steps, step.plain_seconds)
        return estimate, subtree

    def _estimate(self, name: str, candidate: CandidateStats, step: _StepInputs) -> StepEstimate:
        """The best estimate of a drafter that computes, over all sizes of its tree."""
        length, plain_seconds = len(step.context.tokens), step.plain_seconds
        draft_seconds = self._draft_seconds(name, candidate, step)
        unread_tokens = length - self._prefilled_tokens[name]
        prefill_seconds = unread_tokens * self.state.prefill_seconds_per_token.get(name, 0.0)
        if unread_tokens <= MAX_UNCHARGED_PREFILL_TOKENS:
            prefill_seconds = 0.0
        confidence = self.state.confidence(prefill_seconds / plain_seconds)
        prefill_share, tokens_per_second = prefill_seconds / PREFILL_PAYBACK_STEPS, step.tokens_per_second
        tokens, best, best_gain = 1.0, (0, 1.0, plain_seconds), -inf  # one draft token at least
        nodes = candidate.expected_nodes(step.max_draft_tokens, confidence)
        for count, (probability, depth, later_tokens) in enumerate(nodes, start=1):
            if depth >= len(draft_seconds):
                break
            tokens += probability
            seconds = draft_seconds[depth] + step.pass_seconds[count + 1] + prefill_share
            gain = tokens - tokens_per_second * seconds
            if gain > best_gain:
                best, best_gain = (count, tokens, seconds), gain
            elif gain + later_tokens < best_gain:  # more rows and levels never cost less
                break
        return StepEstimate(name, *best)

    def _draft_seconds(self, name: str, candidate: CandidateStats, step: _StepInputs) -> list[float]:
        """Seconds of a draft by depth. While they are unknown or old, one draft token is assumed to be cheap."""
        length = len(step.context.tokens)
        curve = self.costs.draft_curve(name, length)
        seconds = curve.seconds_up_to(step.max_draft_tokens) if curve is not None else None
        if curve is not None and candidate.cost_age.is_old(self.state.steps):
            curve.is_unconfirmed = True
            candidate.cost_age.add_measurement(self.state.steps)
        if curve is not None and seconds is not None and not curve.is_unconfirmed:
            return seconds
        assumed = UNKNOWN_DRAFT_COST * step.plain_seconds
        return [0.0, min(seconds[1], assumed) if seconds else assumed]
