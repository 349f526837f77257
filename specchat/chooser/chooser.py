"""The drafter `auto`: in each step, the drafter and the number of draft tokens that give the most tokens per second.

The chooser is a drafter that delegates to other drafters, so the decoding loop does not know about it. It combines the
measured costs (`costs.py`) with the acceptance statistics (`acceptance.py`), which it keeps by kind of task and by
greedy or stochastic sampling, and takes the tree with the most expected tokens for its expected seconds. Plain decoding
is one of the choices. Three rules keep the overhead of the choice small:

- While no drafter is worth its cost, the chooser is idle until the next proposal or trial of a drafter is due.
- Instant drafters, which take microseconds, propose first, and the chooser judges the tree that they return.
- Drafters that compute are only estimated. Trials of those that are not chosen may take about one percent of the time,
  and become rarer each time a drafter is not worth its cost.

This file knows drafters by name only, and no text.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import inf

from specchat.chooser.acceptance import (
    PLAIN,
    AcceptanceStats,
    StepEstimate,
    TrackedDraft,
    best_subtree,
    length_class_of,
)
from specchat.chooser.costs import Costs
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.pass_clock import pass_seconds
from specchat.engine.tree import DraftTree

FIRST_PRIOR_RATE = 0.85  # prior acceptance rate of the first drafter of the order
OTHER_PRIOR_RATE = 0.4  # of the other drafters of the order
UNLIKELY_PRIOR_RATE = 0.3  # of drafters that come after `plain` or are not in the order
MIN_TOKEN_GAIN = 0.02  # expected tokens above a plain pass that a tree needs
MIN_TOKEN_GAIN_WITH_REGRET = 0.15  # instead, for drafters that compute, while the regret is above its limit
SWITCH_TOKEN_GAIN = 0.03  # expected tokens above the drafter in use that another one needs
EXPLORATION_SHARE = 0.006  # share of the time for trials
INITIAL_EXPLORATION_PASSES, MAX_EXPLORATION_PASSES = 1.2, 6.0  # time for trials, in plain passes
MIN_COOLDOWN_STEPS, MAX_COOLDOWN_STEPS = 4, 128  # steps between two trials of a drafter that is not worth its cost
FULL_COOLDOWN_TOKEN_LOSS = 0.25  # expected loss in tokens; a smaller loss shortens the cooldown
MAX_INSTANT_COOLDOWN_STEPS = 8  # steps between two proposals of an instant drafter
PLAIN_REFRESH_STEPS = 256  # steps after which a plain pass is run, to measure its cost again
MAX_UNCHARGED_PREFILL_TOKENS = 32  # with more unread tokens, a draft does not measure the usual cost of the drafter
DECISION_SHARE = 0.01  # share of the time for decisions that end in plain decoding
IDLE_SPEED_RATIO = 1.02  # of a speed to plain speed: a higher one still falls
PLAIN_LEARNING_SECONDS = 0.01  # of decoding between two plain passes whose cost is learned
PREFILL_PAYBACK_TOKENS = 64.0  # tokens within which the prefill of a drafter must pay
SPEED_EMA_WEIGHT = 0.03  # weight of the newest token in the tokens per second
EMA_WEIGHT = 0.1  # weight of the newest measurement in running means


@dataclass(frozen=True)
class DeviceLoad:
    waiting_sessions: int = 0
    is_completion_waiting: bool = False

    def budget_share(self, max_draft_tokens: int) -> int:
        """A fair share of the draft tokens; none while a completion waits."""
        return 0 if self.is_completion_waiting else max_draft_tokens // (1 + self.waiting_sessions)


class CandidateStats(AcceptanceStats):
    """The statistics of one drafter for one kind of task, and the steps of its next proposal and trial."""

    def __init__(self, prior_rate: float) -> None:
        super().__init__(prior_rate)
        self.gain_seconds = 0.0  # running mean of the gain of a proposal
        self.propose_seconds = 0.0  # running mean of the time of a proposal
        self.instant_cooldown_steps = 1  # until the next proposal of an instant drafter
        self.next_propose_step = 0
        self.cooldown_steps = MIN_COOLDOWN_STEPS
        self.next_trial_step = 0


class ChooserState:
    """The statistics of all drafters, by kind of task and by sampling; shared by all sessions of an engine."""

    def __init__(self) -> None:
        self.candidates: dict[tuple[str, str, bool], CandidateStats] = {}
        self.steps = 0
        self.exploration_seconds: float | None = None  # time that trials may take now
        self.regret_seconds = 0.0  # time lost against plain decoding and not won back
        self.total_seconds = 0.0
        self.decision_seconds = 0.0  # running mean of the time of a decision for plain decoding
        self.tokens_per_second: dict[tuple[str, bool], float] = {}  # running mean
        self.last_plain_step = 0
        self.next_plain_learning = 0.0  # in `total_seconds`
        self.prefill_seconds_per_token: dict[str, float] = {}  # by drafter

    def candidate(self, name: str, task_kind: str, is_stochastic: bool, prior_rate: float) -> CandidateStats:
        key = (name, task_kind, is_stochastic)
        if key not in self.candidates:
            self.candidates[key] = CandidateStats(prior_rate)
        return self.candidates[key]


@dataclass
class _Expected:
    """The latest estimates of an answer, by drafter, and the seconds of a plain pass; 0 when nothing was estimated."""

    estimates: dict[str, StepEstimate] = field(default_factory=dict[str, StepEstimate])
    plain_seconds: float = 0.0


@dataclass(frozen=True)
class _StepInputs:
    context: DraftContext  # with the budget that the load and the curve allow
    pass_seconds: list[float]  # of a pass over 0, 1, ... rows
    tokens_per_second: float

    @property
    def plain_seconds(self) -> float:
        return self.pass_seconds[1]

    @property
    def max_draft_tokens(self) -> int:
        return self.context.max_draft_tokens

    def gain(self, estimate: StepEstimate) -> float:
        return estimate.token_gain(self.tokens_per_second)


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
        self._is_stochastic = False
        self._idle_until_step = 0
        self.start_answer(AnswerTask(drafter_order=tuple(self.drafters)))

    def start_answer(self, task: AnswerTask) -> None:
        """The order of the drafters gives the priors: those after `plain` are unlikely."""
        drafter_order = task.drafter_order
        named = [name for name in drafter_order if name in self.drafters]
        rest = [name for name in self.drafters if name not in drafter_order]
        unlikely = {*rest, *(drafter_order[drafter_order.index(PLAIN) :] if PLAIN in drafter_order else ())}
        self.task_kind, self.drafter_order = task.kind, tuple(named + rest)
        self._prior_rates = {
            name: UNLIKELY_PRIOR_RATE if name in unlikely else OTHER_PRIOR_RATE if index else FIRST_PRIOR_RATE
            for index, name in enumerate(self.drafter_order)
        }
        self._last_drafter, self._expected = PLAIN, _Expected()
        self._idle_until_step = 0

    def describe_estimates(self) -> str:
        """What is expected of each drafter now; "" before anything was estimated.

        "draft 2.1 tokens in 4.0 ms, lookup 1.1 tokens in 2.9 ms, no drafter 1 token in 2.5 ms"
        """
        if not self._expected.plain_seconds:
            return ""
        expected = [
            f"{estimate.name} {estimate.expected_tokens:.1f} tokens in {1000 * estimate.seconds:.1f} ms"
            for estimate in self._expected.estimates.values()
        ]
        return ", ".join([*expected, f"no drafter 1 token in {1000 * self._expected.plain_seconds:.1f} ms"])

    def propose(self, context: DraftContext) -> DraftTree:
        """The tree with the most expected tokens per second, or a bare root."""
        state, budget, started_at = self.state, self.device_load.budget_share(context.max_draft_tokens), self.clock()
        state.steps += 1
        self._is_stochastic = context.sampler.temperature > 0
        root = DraftTree(context.tokens[-1])
        if state.steps < self._idle_until_step:
            return self._record_choice(PLAIN, root)
        pass_seconds = self.costs.trusted_pass_seconds(len(context.tokens), budget + 1)
        if pass_seconds is None or len(pass_seconds) < 3:
            return self._record_choice(PLAIN, root)
        context = replace(context, max_draft_tokens=len(pass_seconds) - 2)
        plain = StepEstimate(seconds=pass_seconds[1])
        self._expected.plain_seconds = plain.seconds
        if state.exploration_seconds is None:
            state.exploration_seconds = INITIAL_EXPLORATION_PASSES * plain.seconds
        speed = max(state.tokens_per_second.get((self.task_kind, self._is_stochastic), 0.0), 1 / plain.seconds)
        step = _StepInputs(context, pass_seconds, speed)
        best, best_tree = self._best_instant(plain, root, step)
        estimates = self._estimate_computing_drafters(step)
        has_regret = state.regret_seconds > EXPLORATION_SHARE * state.total_seconds + 2 * plain.seconds
        min_gain = step.gain(plain) + (MIN_TOKEN_GAIN_WITH_REGRET if has_regret else MIN_TOKEN_GAIN)
        for estimate in estimates:
            if step.gain(estimate) > max(min_gain, step.gain(best) + self._switch_margin(best, estimate)):
                best = estimate
        if (
            best is not plain
            and state.steps - state.last_plain_step > PLAIN_REFRESH_STEPS
            and self._has_exploration_seconds(plain.seconds)
        ):
            state.exploration_seconds -= plain.seconds
            return self._record_choice(PLAIN, root)
        if best.name != PLAIN and not self.drafters[best.name].is_instant:
            best_tree, _seconds = self._propose_with(best.name, context, best.draft_tokens)
            self._candidate(best.name, context).cooldown_steps = MIN_COOLDOWN_STEPS
        else:
            best, best_tree = self._explore(estimates, best, best_tree, step)
        if best.name == PLAIN:
            self._go_idle(step, self.clock() - started_at)
        return self._record_choice(best.name, best_tree)

    def _go_idle(self, step: _StepInputs, decision_seconds: float) -> None:
        """Decide nothing until the next proposal or trial is due.

        Where instant drafters bring less than decisions take, these are not due in every step, either. While the speed
        falls after good drafts, so does what a drafter must bring: then only the share of decisions makes it idle.
        """
        state, plain_seconds = self.state, step.plain_seconds
        state.decision_seconds += EMA_WEIGHT * (min(decision_seconds, plain_seconds) - state.decision_seconds)
        candidates = [(self._candidate(name, step.context), self.drafters[name]) for name in self.drafter_order]
        gains = (candidate.gain_seconds for candidate, drafter in candidates if drafter.is_instant)
        pays = max(gains, default=0.0) > state.decision_seconds
        until_step = state.steps + (0 if pays else int(state.decision_seconds / (DECISION_SHARE * plain_seconds)))
        if step.tokens_per_second * plain_seconds <= IDLE_SPEED_RATIO:
            next_steps = (
                candidate.next_propose_step if drafter.is_instant else candidate.next_trial_step
                for candidate, drafter in candidates
            )
            until_step = max(min(next_steps, default=state.steps), until_step)
        self._idle_until_step = until_step

    def _best_instant(self, plain: StepEstimate, root: DraftTree, step: _StepInputs) -> tuple[StepEstimate, DraftTree]:
        """Let the instant drafters propose; the best of their trees, or the root."""
        best, best_tree, min_gain = plain, root, step.gain(plain) + MIN_TOKEN_GAIN
        for name in self.drafter_order:
            candidate = self._candidate(name, step.context)
            if self.drafters[name].is_instant and self.state.steps >= candidate.next_propose_step:
                estimate, tree = self._propose_instant(name, candidate, step)
                if step.gain(estimate) > max(min_gain, step.gain(best) + self._switch_margin(best, estimate)):
                    best, best_tree = estimate, tree
        return best, best_tree

    def _estimate_computing_drafters(self, step: _StepInputs) -> list[StepEstimate]:
        estimates = list[StepEstimate]()
        for name in self.drafter_order:
            if not self.drafters[name].is_instant and (estimate := self._estimate(name, step)) is not None:
                self._expected.estimates[name] = estimate
                estimates.append(estimate)
        return estimates

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
        self._learn_pass_cost(outcome, length)
        self._update_regret(outcome, length, len(tokens))

    def _learn_pass_cost(self, outcome: Outcome, length: int) -> None:
        """Learn from passes with draft tokens, and now and then from a plain one: of these there are enough."""
        state = self.state
        if len(outcome.tree) == 1 and self.costs.is_plain_pass_confirmed(length):
            if state.steps < self._idle_until_step or state.total_seconds < state.next_plain_learning:
                return
            state.next_plain_learning = state.total_seconds + PLAIN_LEARNING_SECONDS
        self.costs.learn_pass(length, len(outcome.tree), outcome.verify_seconds)

    def forget(self, length: int) -> None:
        self._tracked_drafts.clear()
        for name, drafter in self.drafters.items():
            drafter.forget(length)
            self._prefilled_tokens[name] = min(self._prefilled_tokens[name], length)

    def _candidate(self, name: str, context: DraftContext) -> CandidateStats:
        return self.state.candidate(name, self.task_kind, context.sampler.temperature > 0, self._prior_rates[name])

    def _switch_margin(self, best: StepEstimate, estimate: StepEstimate) -> float:
        """The additional gain that replaces the best drafter so far; the drafter of the last step needs none."""
        return 0.0 if best.name == PLAIN or estimate.name == self._last_drafter else SWITCH_TOKEN_GAIN

    def _record_choice(self, name: str, tree: DraftTree) -> DraftTree:
        name = name if len(tree) > 1 else PLAIN
        if name == PLAIN:
            self.state.last_plain_step = self.state.steps
        self._last_drafter = name
        return tree

    def _propose_with(self, name: str, context: DraftContext, draft_tokens: int) -> tuple[DraftTree, float]:
        """Let a drafter propose; measure its time and store the shape of its tree."""
        drafter, length = self.drafters[name], len(context.tokens)
        unread_tokens = max(length - self._prefilled_tokens[name], 1)
        started_at = self.clock()
        tree = drafter.propose(replace(context, max_draft_tokens=draft_tokens))
        seconds = self.clock() - started_at
        self._prefilled_tokens[name] = length
        candidate = self._candidate(name, context)
        if name not in self._tracked_drafts and len(tree) > 1:
            length_class = length_class_of(tree) if drafter.is_instant else 0
            self._tracked_drafts[name] = TrackedDraft(candidate, tree, length_class)
        if not drafter.is_instant and len(tree) > 1:
            self._learn_draft_cost(name, length, unread_tokens, max(tree.depths), seconds)
            candidate.add_proposal(tree, draft_tokens)
        return tree, seconds

    def _learn_draft_cost(self, name: str, length: int, unread_tokens: int, depth: int, seconds: float) -> None:
        curve = self.costs.draft_curve(name, length)
        expected = curve.seconds_at(depth) if curve is not None else None
        if unread_tokens <= (MAX_UNCHARGED_PREFILL_TOKENS if expected is not None else 1):
            self.costs.learn_draft(name, length, depth, seconds)
        elif expected is not None:
            per_token = max(seconds - expected, 0.0) / unread_tokens
            previous = self.state.prefill_seconds_per_token.get(name, per_token)
            self.state.prefill_seconds_per_token[name] = previous + (per_token - previous) / 2

    def _propose_instant(
        self, name: str, candidate: CandidateStats, step: _StepInputs
    ) -> tuple[StepEstimate, DraftTree]:
        """The best part of the proposal of an instant drafter. A drafter without gain proposes less often."""
        tree, seconds = self._propose_with(name, step.context, step.max_draft_tokens)
        candidate.propose_seconds += EMA_WEIGHT * (seconds - candidate.propose_seconds)
        estimate, subtree = best_subtree(name, candidate, tree, step.pass_seconds, step.tokens_per_second)
        gain = max(estimate.expected_tokens * step.plain_seconds - estimate.seconds, 0.0) if len(subtree) > 1 else 0.0
        candidate.gain_seconds += EMA_WEIGHT * (gain - candidate.gain_seconds)
        pays = (
            max(gain, candidate.gain_seconds) > candidate.propose_seconds
            or candidate.propose_seconds < EXPLORATION_SHARE / 4 * step.plain_seconds
        )
        slow_cooldown = min(  # for drafters that declare themselves instant and are slow
            int(candidate.propose_seconds / (EXPLORATION_SHARE * step.plain_seconds)), MAX_COOLDOWN_STEPS
        )
        candidate.instant_cooldown_steps = (
            1 if pays else max(min(candidate.instant_cooldown_steps + 1, MAX_INSTANT_COOLDOWN_STEPS), slow_cooldown)
        )
        candidate.next_propose_step = self.state.steps + candidate.instant_cooldown_steps
        if len(tree) > 1:
            self._expected.estimates[name] = estimate
        return estimate, subtree

    def _estimate(self, name: str, step: _StepInputs) -> StepEstimate | None:
        """The best estimate of a drafter that computes, over all budgets; None while its cost is unknown."""
        length = len(step.context.tokens)
        curve = self.costs.draft_curve(name, length)
        draft_seconds = curve.seconds_up_to(step.max_draft_tokens) if curve is not None else None
        if draft_seconds is None:
            return None
        prefill_seconds = self._prefill_seconds(name, length - self._prefilled_tokens[name])
        prefill_share = prefill_seconds / PREFILL_PAYBACK_TOKENS * 2
        best_count, best_tokens, best_seconds, best_gain = 0, 1.0, 0.0, -inf
        tokens, speed, pass_seconds = 1.0, step.tokens_per_second, step.pass_seconds
        expected_nodes = self._candidate(name, step.context).expected_nodes(step.max_draft_tokens)
        for count, node in enumerate(expected_nodes, start=1):
            tokens += node.probability
            seconds = draft_seconds[node.depth] + pass_seconds[count + 1] + prefill_share
            gain = tokens - speed * seconds  # as `StepEstimate.token_gain`, without an object for each count
            if gain > best_gain:
                best_count, best_tokens, best_seconds, best_gain = count, tokens, seconds, gain
        return StepEstimate(name, best_count, best_tokens, best_seconds) if best_count else None

    def _explore(
        self, estimates: list[StepEstimate], best: StepEstimate, best_tree: DraftTree, step: _StepInputs
    ) -> tuple[StepEstimate, DraftTree]:
        """Try one computing drafter that was not chosen, if it is due and affordable; take its tree if it is better."""
        state, context = self.state, step.context
        for name in self.drafter_order:
            candidate = self._candidate(name, context)
            if self.drafters[name].is_instant or state.steps < candidate.next_trial_step:
                continue
            is_unconfirmed = self.costs.is_unconfirmed(name, len(context.tokens))
            estimate = None if is_unconfirmed else next((each for each in estimates if each.name == name), None)
            draft_tokens = (2 if self._is_stochastic else 1) if estimate is None else estimate.draft_tokens
            draft_tokens = min(draft_tokens, step.max_draft_tokens)
            token_loss = 0.0 if estimate is None else max(step.gain(best) - step.gain(estimate), 0.0)
            unread_tokens = len(context.tokens) - self._prefilled_tokens[name]
            seconds_lost = token_loss / step.tokens_per_second + self._prefill_seconds(name, unread_tokens)
            if not self._has_exploration_seconds(seconds_lost) or not (is_unconfirmed or self._can_pay_off(name, step)):
                missing = seconds_lost - (state.exploration_seconds or 0.0)
                candidate.next_trial_step = state.steps + min(
                    max(int(missing / (EXPLORATION_SHARE * step.plain_seconds)), 1), MIN_COOLDOWN_STEPS
                )
                continue
            tree, seconds = self._propose_with(name, context, draft_tokens)
            if len(tree) > 1 and self.costs.draft_curve(name, len(context.tokens)) is None:
                # the first proposal included a prefill: the second one measures the cost
                tree, seconds = self._propose_with(name, context, draft_tokens)
            # the first proposal may have measured the prefill
            prefill_seconds = self._prefill_seconds(name, unread_tokens)
            seconds_lost = max(token_loss, MIN_TOKEN_GAIN) / step.tokens_per_second + prefill_seconds
            if estimate is None:
                seconds_lost = min(seconds, INITIAL_EXPLORATION_PASSES * step.plain_seconds)
            state.exploration_seconds = (state.exploration_seconds or 0.0) - seconds_lost
            if estimate is not None or len(tree) == 1:
                self._extend_cooldown(candidate, token_loss)
            found, subtree = best_subtree(
                name, candidate, tree, step.pass_seconds, step.tokens_per_second, length_class=0
            )
            is_better = len(subtree) > 1 and step.gain(found) > step.gain(best)
            return (found, subtree) if is_better else (best, best_tree)
        return best, best_tree

    def _extend_cooldown(self, candidate: CandidateStats, token_loss: float) -> None:
        limit = max(int(MAX_COOLDOWN_STEPS * min(token_loss / FULL_COOLDOWN_TOKEN_LOSS, 1.0)), MIN_COOLDOWN_STEPS)
        factor = 2 if token_loss < FULL_COOLDOWN_TOKEN_LOSS else 4
        candidate.cooldown_steps = min(candidate.cooldown_steps * factor, limit)
        candidate.next_trial_step = self.state.steps + candidate.cooldown_steps

    def _prefill_seconds(self, name: str, unread_tokens: int) -> float:
        """Time of a drafter's prefill of so many tokens; the measured cost of a draft includes that of a few."""
        if unread_tokens <= MAX_UNCHARGED_PREFILL_TOKENS:
            return 0.0
        return unread_tokens * self.state.prefill_seconds_per_token.get(name, 0.0)

    def _can_pay_off(self, name: str, step: _StepInputs) -> bool:
        """Whether drafts that are always accepted would be worth their cost: each token saves at most a plain pass."""
        curve = self.costs.draft_curve(name, len(step.context.tokens))
        draft_seconds = curve.seconds_up_to(step.max_draft_tokens) if curve is not None else None
        return draft_seconds is None or any(
            draft_seconds[depth] < depth * step.plain_seconds for depth in (1, step.max_draft_tokens)
        )

    def _has_exploration_seconds(self, seconds: float) -> bool:
        return self.state.exploration_seconds is not None and self.state.exploration_seconds >= seconds

    def _update_regret(self, outcome: Outcome, length: int, committed_tokens: int) -> None:
        state, seconds = self.state, outcome.draft_seconds + outcome.verify_seconds
        state.total_seconds += seconds
        plain_seconds = self.costs.plain_seconds(length)
        if plain_seconds is None or state.exploration_seconds is None:
            return
        key = (self.task_kind, self._is_stochastic)
        speed = state.tokens_per_second.get(key, 1 / plain_seconds)
        if committed_tokens * SPEED_EMA_WEIGHT < 1:
            speed = 1 / ((1 - SPEED_EMA_WEIGHT * committed_tokens) / speed + SPEED_EMA_WEIGHT * seconds)
        state.tokens_per_second[key] = speed
        state.regret_seconds = max(state.regret_seconds + seconds - committed_tokens * plain_seconds, 0.0)
        state.exploration_seconds = min(
            state.exploration_seconds + EXPLORATION_SHARE * seconds, MAX_EXPLORATION_PASSES * plain_seconds
        )
