"""How much to draft and with whom: the most tokens a second, nobody included, measured while the text is written.

The chooser is a drafter that asks other drafters, so the loop stays blind. For each it knows what its guesses cost
(`costs.py`) and how often they held (`acceptance.py`), kept apart by kind of task and by cold or hot sampling; it takes
the tree with the most expected tokens for its expected seconds. Three things keep its own price small:

- While nobody pays, nothing is decided until somebody may be asked again.
- Drafters that answer in microseconds are asked first, and judged by the very tree they return.
- A drafter that must compute is tried only as far as an allowance of one percent of the time spent reaches, and the
  more rarely the more often it was not worth it.

Knows drafters by name only, and no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from time import perf_counter

from specchat.chooser.acceptance import (
    PLAIN,
    AcceptanceStats,
    StepEstimate,
    TrackedDraft,
    best_subtree,
    length_class_of,
)
from specchat.chooser.costs import Costs
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.tree import DraftTree

FIRST_PRIOR_RATE, OTHER_PRIOR_RATE, UNLIKELY_PRIOR_RATE = (
    0.85,
    0.4,
    0.3,
)  # first opinions: the first of the order, the others, those behind plain
MIN_TOKEN_GAIN = 0.02  # tokens more than a plain pass that a tree must promise
SWITCH_TOKEN_GAIN = 0.03  # tokens more than the one in use that another must promise
MIN_TOKEN_GAIN_WITH_REGRET = (
    0.15  # instead of WORTH, for those who compute, while more was lost against plain than is allowed
)
EXPLORATION_SHARE = 0.006  # share of the time that tries may take
INITIAL_EXPLORATION_PASSES, MAX_EXPLORATION_PASSES = 1.2, 6.0  # plain passes
MIN_COOLDOWN_STEPS, MAX_COOLDOWN_STEPS = 4, 128  # steps between two tries of somebody who was not worth it
FULL_COOLDOWN_TOKEN_LOSS = 0.25  # tokens; who is expected to lose less than that rests less long
MAX_INSTANT_COOLDOWN_STEPS = 8  # steps between two questions to somebody who answers in microseconds
PLAIN_REFRESH_STEPS = 256  # steps after which a plain pass is run, to see what it costs now
MAX_UNCHARGED_PREFILL_TOKENS = 32  # tokens; who has more to read first is no example of what guesses cost
IDLE_SPEED_RATIO = 1.02  # plain paces; above, what does not pay yet may pay as the pace falls
PREFILL_PAYBACK_TOKENS = 64.0  # tokens over which catching up must pay
SPEED_EMA_WEIGHT = 0.03  # weight of the newest token in the pace
EMA_WEIGHT = 0.1  # weight of the newest observation in running means


@dataclass(frozen=True)
class DeviceLoad:
    """Who else wants the device: sessions that wait for their step, and whether a completion is among them."""

    waiting_sessions: int = 0
    is_completion_waiting: bool = False

    def budget_share(self, max_draft_tokens: int) -> int:
        """Guesses that remain: a fair share, none while somebody waits for a completion."""
        return 0 if self.is_completion_waiting else max_draft_tokens // (1 + self.waiting_sessions)


@dataclass(frozen=True)
class ChoiceSummary:
    """The reasons of an answer: how often each was chosen, what the others would bring, what a plain pass costs."""

    steps_by_drafter: Mapping[str, int]
    estimates: tuple[StepEstimate, ...]
    plain_seconds: float

    def describe(self) -> str:
        """In words.

        "draft guessed in 40 of 60 steps; expected now: draft 2.1 tokens in 4.0 ms, lookup 1.1 in 2.9 ms, nobody 1 in
        2.5 ms"
        """
        steps = sum(self.steps_by_drafter.values())
        if not steps:
            return ""
        guessed = [
            f"{name} guessed in {count}" for name, count in sorted(self.steps_by_drafter.items()) if name != PLAIN
        ]
        who = f"{' and '.join(guessed) or 'nobody guessed'}{f' of {steps} steps' if guessed else ''}"
        if not self.plain_seconds:
            return who
        seen = [f"{each.name} {each.expected_tokens:.1f} in {1000 * each.seconds:.1f} ms" for each in self.estimates]
        return f"{who}; expected now: {', '.join([*seen, f'nobody 1 in {1000 * self.plain_seconds:.1f} ms'])}"


class CandidateStats(AcceptanceStats):
    """Somebody who may be asked, for one kind of task: how often he was right, and when it is his turn again."""

    def __init__(self, prior_rate: float) -> None:
        super().__init__(prior_rate)
        self.gain_seconds = 0.0  # seconds that asking brought lately, for each question
        self.propose_seconds = 0.0  # seconds that a question takes
        self.instant_cooldown_steps = 1  # steps until the next question
        self.next_propose_step = 0
        self.cooldown_steps = MIN_COOLDOWN_STEPS
        self.next_trial_step = 0


class ChooserState:
    """What was learnt of drafters, by kind of task and heat; it outlives conversations."""

    def __init__(self) -> None:
        self.candidates: dict[tuple[str, str, bool], CandidateStats] = {}
        self.steps = 0
        self.exploration_seconds: float | None = None  # seconds that tries may take now
        self.regret_seconds = 0.0  # seconds lost against plain and not won back
        self.total_seconds = 0.0
        self.tokens_per_second: dict[tuple[str, bool], float] = {}  # tokens a second of late
        self.last_plain_step = 0  # the step of the last plain pass
        self.prefill_seconds_per_token: dict[
            str, float
        ] = {}  # seconds for each token that a drafter has to catch up with

    def candidate(self, name: str, task_kind: str, is_stochastic: bool, prior_rate: float) -> CandidateStats:
        """What is known of a drafter; the opinion is all there is of a new one."""
        key = (name, task_kind, is_stochastic)
        if key not in self.candidates:
            self.candidates[key] = CandidateStats(prior_rate)
        return self.candidates[key]


@dataclass
class _ChoiceCounts:
    """What became of one answer, to explain it."""

    steps_by_drafter: Counter[str] = field(default_factory=Counter[str])
    estimates: dict[str, StepEstimate] = field(default_factory=dict[str, StepEstimate])
    plain_seconds: float = 0.0


class Chooser(Drafter):
    """Asks whoever pays most, or nobody. Everybody hears every outcome and forgets with the text."""

    name = "auto"

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        costs: Costs,
        state: ChooserState | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.drafters = {name: drafter for name, drafter in drafters.items() if name != PLAIN}
        self.costs, self.state, self.clock = costs, state or ChooserState(), clock
        self.device_load = DeviceLoad()
        self.hidden_state_layers = tuple(
            dict.fromkeys(tap for drafter in self.drafters.values() for tap in drafter.hidden_state_layers)
        )
        self._prefilled_tokens = dict.fromkeys(self.drafters, 0)  # tokens of the text that each has read
        self._tracked_drafts: dict[str, TrackedDraft] = {}
        self._is_stochastic = False
        self._idle_until_step = 0  # the step before which nobody is to be asked
        self.start_answer("", tuple(self.drafters))

    def start_answer(self, task_kind: str, drafter_order: tuple[str, ...]) -> None:
        """An answer of this kind begins; the likeliest drafters come first, and those behind `plain` seldom pay."""
        named = [name for name in drafter_order if name in self.drafters]
        rest = [name for name in self.drafters if name not in drafter_order]
        behind = set(drafter_order[drafter_order.index(PLAIN) :]) if PLAIN in drafter_order else set[str]()
        self.task_kind, self.drafter_order = task_kind, tuple(named + rest)
        self._prior_rates = {
            name: UNLIKELY_PRIOR_RATE
            if name in behind or name in rest
            else FIRST_PRIOR_RATE
            if place == 0
            else OTHER_PRIOR_RATE
            for place, name in enumerate(self.drafter_order)
        }
        self._last_drafter, self._choice_counts = PLAIN, _ChoiceCounts()
        self._idle_until_step = 0

    def choice_summary(self) -> ChoiceSummary:
        """The reasons of the answer so far."""
        tally = self._choice_counts
        return ChoiceSummary(dict(tally.steps_by_drafter), tuple(tally.estimates.values()), tally.plain_seconds)

    def propose(self, context: DraftContext) -> DraftTree:
        """The tree that promises most tokens a second, or a bare root."""
        memory, budget = self.state, self.device_load.budget_share(context.max_draft_tokens)
        memory.steps += 1
        self._is_stochastic = context.sampler.temperature > 0
        root = DraftTree(context.tokens[-1])
        if memory.steps < self._idle_until_step:
            return self._record_choice(PLAIN, root)
        rows = self.costs.trusted_pass_seconds(len(context.tokens), budget + 1)
        if rows is None or len(rows) < 3:
            return self._record_choice(PLAIN, root)
        budget = len(rows) - 2
        context = replace(context, budget=budget)
        plain = StepEstimate(seconds=rows[1])
        self._choice_counts.plain_seconds = rows[1]
        if memory.exploration_seconds is None:
            memory.exploration_seconds = INITIAL_EXPLORATION_PASSES * rows[1]
        pace = max(memory.tokens_per_second.get((self.task_kind, self._is_stochastic), 0.0), 1 / rows[1])
        best, best_tree = self._best_instant(plain, root, context, rows, pace)
        dear = self._estimate_computing_drafters(context, budget, rows, pace)
        is_in_debt = memory.regret_seconds > EXPLORATION_SHARE * memory.total_seconds + 2 * rows[1]
        bar = plain.token_gain(pace) + (MIN_TOKEN_GAIN_WITH_REGRET if is_in_debt else MIN_TOKEN_GAIN)
        for offer in dear:
            if offer.token_gain(pace) > max(bar, best.token_gain(pace) + self._switch_margin(best, offer)):
                best = offer
        if (
            best is not plain
            and memory.steps - memory.last_plain_step > PLAIN_REFRESH_STEPS
            and self._has_exploration_seconds(rows[1])
        ):
            memory.exploration_seconds -= rows[1]
            return self._record_choice(PLAIN, root)
        if best.name != PLAIN and not self.drafters[best.name].is_instant:
            best_tree, _seconds = self._propose_with(best.name, context, best.draft_tokens)
            self._candidate(best.name, context).cooldown_steps = MIN_COOLDOWN_STEPS
        else:
            best, best_tree = self._explore(dear, best, best_tree, context, rows, pace)
        if best.name == PLAIN and pace <= IDLE_SPEED_RATIO / rows[1]:
            self._go_idle(context)
        return self._record_choice(best.name, best_tree)

    def _go_idle(self, context: DraftContext) -> None:
        """Nobody pays: until somebody may be asked again there is nothing to learn, hence nothing to decide."""
        if not self._tracked_drafts:
            records = ((self._candidate(name, context), self.drafters[name].is_instant) for name in self.drafter_order)
            wakes = [
                record.next_propose_step if is_instant else record.next_trial_step for record, is_instant in records
            ]
            self._idle_until_step = min(wakes, default=self.state.steps)

    def _best_instant(
        self,
        plain_estimate: StepEstimate,
        root: DraftTree,
        context: DraftContext,
        pass_seconds: list[float],
        tokens_per_second: float,
    ) -> tuple[StepEstimate, DraftTree]:
        """Ask those who answer in microseconds: the best of their trees, or nobody's."""
        best, best_tree, bar = plain_estimate, root, plain_estimate.token_gain(tokens_per_second) + MIN_TOKEN_GAIN
        for name in self.drafter_order:
            record = self._candidate(name, context)
            if self.drafters[name].is_instant and self.state.steps >= record.next_propose_step:
                offer, tree = self._propose_instant(
                    name, record, context, len(pass_seconds) - 2, pass_seconds, tokens_per_second
                )
                if offer.token_gain(tokens_per_second) > max(
                    bar, best.token_gain(tokens_per_second) + self._switch_margin(best, offer)
                ):
                    best, best_tree = offer, tree
        return best, best_tree

    def _estimate_computing_drafters(
        self, context: DraftContext, max_draft_tokens: int, pass_seconds: list[float], tokens_per_second: float
    ) -> list[StepEstimate]:
        """What those are expected to bring who have to compute; not yet of those whose price is unknown."""
        offers = list[StepEstimate]()
        for name in self.drafter_order:
            if not self.drafters[name].is_instant:
                offer = self._estimate(
                    name, self._candidate(name, context), context, max_draft_tokens, pass_seconds, tokens_per_second
                )
                if offer is not None:
                    self._choice_counts.estimates[name] = offer
                    offers.append(offer)
        return offers

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears; and the text that came judges what was guessed, verified or not."""
        for drafter in self.drafters.values():
            drafter.observe(outcome)
        if not outcome.verify_seconds:
            return
        tokens, length = outcome.committed_tokens, outcome.root_position + 1
        for name, watched in list(self._tracked_drafts.items()):
            if not all(watched.compare_token(token) for token in tokens):
                del self._tracked_drafts[name]
        if self.state.steps >= self._idle_until_step:
            self.costs.learn_pass(length, len(outcome.tree), outcome.verify_seconds)
        self._update_regret(outcome, length, len(tokens))

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self._tracked_drafts.clear()
        for name, drafter in self.drafters.items():
            drafter.forget(length)
            self._prefilled_tokens[name] = min(self._prefilled_tokens[name], length)

    def _candidate(self, name: str, context: DraftContext) -> CandidateStats:
        return self.state.candidate(name, self.task_kind, context.sampler.temperature > 0, self._prior_rates[name])

    def _switch_margin(self, best: StepEstimate, estimate: StepEstimate) -> float:
        """What another must promise more than the best so far; the one in use is not left for nothing."""
        return 0.0 if best.name == PLAIN or estimate.name == self._last_drafter else SWITCH_TOKEN_GAIN

    def _record_choice(self, name: str, tree: DraftTree) -> DraftTree:
        name = name if len(tree) > 1 else PLAIN
        if name == PLAIN:
            self.state.last_plain_step = self.state.steps
        self._choice_counts.steps_by_drafter[name] += 1
        self._last_drafter = name
        return tree

    def _propose_with(self, name: str, context: DraftContext, draft_tokens: int) -> tuple[DraftTree, float]:
        """Let somebody guess, and learn what that costs and how its trees look."""
        drafter, length = self.drafters[name], len(context.tokens)
        behind = max(length - self._prefilled_tokens[name], 1)
        asked = DraftContext(context.tokens, context.sampler, draft_tokens, context.seen_tokens, context.cache)
        begun = self.clock()
        tree = drafter.propose(asked)
        seconds = self.clock() - begun
        self._prefilled_tokens[name] = length
        record = self._candidate(name, context)
        if name not in self._tracked_drafts and len(tree) > 1:
            promise = length_class_of(tree) if drafter.is_instant else 0
            self._tracked_drafts[name] = TrackedDraft(record, tree, promise)
        if not drafter.is_instant and len(tree) > 1:
            self._learn_draft_cost(name, length, behind, max(tree.depths), seconds)
            record.add_tree(tree, draft_tokens)
        return tree, seconds

    def _learn_draft_cost(self, name: str, length: int, unread_tokens: int, depth: int, seconds: float) -> None:
        curve = self.costs.draft_curve(name, length)
        known = curve.seconds_at(depth) if curve is not None else None
        if unread_tokens <= (MAX_UNCHARGED_PREFILL_TOKENS if known is not None else 1):
            self.costs.learn_draft(name, length, depth, seconds)
        elif known is not None:
            each = max(seconds - known, 0.0) / unread_tokens
            before = self.state.prefill_seconds_per_token.get(name, each)
            self.state.prefill_seconds_per_token[name] = before + (each - before) / 2

    def _propose_instant(
        self,
        name: str,
        candidate: CandidateStats,
        context: DraftContext,
        max_draft_tokens: int,
        pass_seconds: list[float],
        tokens_per_second: float,
    ) -> tuple[StepEstimate, DraftTree]:
        """The best part of what somebody guesses at once. Who is asked in vain too often is asked less often."""
        tree, seconds = self._propose_with(name, context, max_draft_tokens)
        candidate.propose_seconds += EMA_WEIGHT * (seconds - candidate.propose_seconds)
        offer, kept = best_subtree(name, candidate, tree, pass_seconds, tokens_per_second)
        gain = max(offer.expected_tokens * pass_seconds[1] - offer.seconds, 0.0) if len(kept) > 1 else 0.0
        candidate.gain_seconds += EMA_WEIGHT * (gain - candidate.gain_seconds)
        pays = (
            max(gain, candidate.gain_seconds) > candidate.propose_seconds
            or candidate.propose_seconds < EXPLORATION_SHARE / 4 * pass_seconds[1]
        )
        too_dear = min(
            int(candidate.propose_seconds / (EXPLORATION_SHARE * pass_seconds[1])), MAX_COOLDOWN_STEPS
        )  # it only says that it is instant
        candidate.instant_cooldown_steps = (
            1 if pays else max(min(candidate.instant_cooldown_steps + 1, MAX_INSTANT_COOLDOWN_STEPS), too_dear)
        )
        candidate.next_propose_step = self.state.steps + candidate.instant_cooldown_steps
        if len(tree) > 1:
            self._choice_counts.estimates[name] = offer
        return offer, kept

    def _estimate(
        self,
        name: str,
        candidate: CandidateStats,
        context: DraftContext,
        max_draft_tokens: int,
        pass_seconds: list[float],
        tokens_per_second: float,
    ) -> StepEstimate | None:
        """The best that somebody who has to compute is expected to bring; None when the price is not known yet."""
        length = len(context.tokens)
        curve = self.costs.draft_curve(name, length)
        prices = curve.seconds_up_to(max_draft_tokens) if curve is not None else None
        if prices is None:
            return None
        chances, sizes = candidate.expected_tree(max_draft_tokens)
        late = self._prefill_seconds(name, length - self._prefilled_tokens[name]) / PREFILL_PAYBACK_TOKENS * 2
        best, tokens, counted = None, 1.0, 1
        for depth, guesses in sizes:
            tokens += sum(chances[counted : guesses + 1])
            counted = guesses + 1
            offer = StepEstimate(name, guesses, tokens, prices[depth] + pass_seconds[guesses + 1] + late)
            if best is None or offer.token_gain(tokens_per_second) > best.token_gain(tokens_per_second):
                best = offer
        return best

    def _explore(
        self,
        estimates: list[StepEstimate],
        best: StepEstimate,
        tree: DraftTree,
        context: DraftContext,
        pass_seconds: list[float],
        tokens_per_second: float,
    ) -> tuple[StepEstimate, DraftTree]:
        """Ask one of those who were not chosen, if it is time and affordable; what it guesses is there to be taken."""
        memory = self.state
        for name in self.drafter_order:
            record = self._candidate(name, context)
            if self.drafters[name].is_instant or memory.steps < record.next_trial_step:
                continue
            is_hearsay = self.costs.is_unconfirmed(name, len(context.tokens))
            offer = None if is_hearsay else next((each for each in estimates if each.name == name), None)
            guesses = min(
                (2 if self._is_stochastic else 1) if offer is None else offer.draft_tokens, context.max_draft_tokens
            )
            gap = (
                0.0
                if offer is None
                else max(best.token_gain(tokens_per_second) - offer.token_gain(tokens_per_second), 0.0)
            )
            behind = len(context.tokens) - self._prefilled_tokens[name]
            loss = gap / tokens_per_second + self._prefill_seconds(name, behind)
            if not self._has_exploration_seconds(loss) or not (
                is_hearsay or self._can_pay_off(name, context, pass_seconds)
            ):
                missing = loss - (memory.exploration_seconds or 0.0)
                record.next_trial_step = memory.steps + min(
                    max(int(missing / (EXPLORATION_SHARE * pass_seconds[1])), 1), MIN_COOLDOWN_STEPS
                )
                continue
            tried, seconds = self._propose_with(name, context, guesses)
            if len(tried) > 1 and self.costs.draft_curve(name, len(context.tokens)) is None:
                # once more, with nothing to catch up with: that is the price
                tried, seconds = self._propose_with(name, context, guesses)
            loss = max(gap, MIN_TOKEN_GAIN) / tokens_per_second + self._prefill_seconds(
                name, behind
            )  # perhaps known only now
            if offer is None:
                loss = min(seconds, INITIAL_EXPLORATION_PASSES * pass_seconds[1])
            memory.exploration_seconds = (memory.exploration_seconds or 0.0) - loss
            if offer is not None or len(tried) == 1:
                limit = max(int(MAX_COOLDOWN_STEPS * min(gap / FULL_COOLDOWN_TOKEN_LOSS, 1.0)), MIN_COOLDOWN_STEPS)
                record.cooldown_steps = min(record.cooldown_steps * (2 if gap < FULL_COOLDOWN_TOKEN_LOSS else 4), limit)
                record.next_trial_step = memory.steps + record.cooldown_steps
            found, part = best_subtree(name, record, tried, pass_seconds, tokens_per_second, length_class=0)
            return (
                (found, part)
                if found.token_gain(tokens_per_second) > best.token_gain(tokens_per_second) and len(part) > 1
                else (best, tree)
            )
        return best, tree

    def _prefill_seconds(self, name: str, unread_tokens: int) -> float:
        """Seconds that somebody needs to read so many tokens first; of a few his price knows already."""
        return (
            unread_tokens * self.state.prefill_seconds_per_token.get(name, 0.0)
            if unread_tokens > MAX_UNCHARGED_PREFILL_TOKENS
            else 0.0
        )

    def _can_pay_off(self, name: str, context: DraftContext, pass_seconds: list[float]) -> bool:
        """Whether guesses that always held would be worth their price: each saves a plain pass at most."""
        curve = self.costs.draft_curve(name, len(context.tokens))
        prices = curve.seconds_up_to(context.max_draft_tokens) if curve is not None else None
        return prices is None or any(prices[depth] < depth * pass_seconds[1] for depth in (1, context.max_draft_tokens))

    def _has_exploration_seconds(self, seconds: float) -> bool:
        return self.state.exploration_seconds is not None and self.state.exploration_seconds >= seconds

    def _update_regret(self, outcome: Outcome, length: int, committed_tokens: int) -> None:
        memory, seconds = self.state, outcome.draft_seconds + outcome.verify_seconds
        memory.total_seconds += seconds
        plain = self.costs.plain_seconds(length)
        if plain is None or memory.exploration_seconds is None:
            return
        place = (self.task_kind, self._is_stochastic)
        pace = memory.tokens_per_second.get(place, 1 / plain)
        memory.tokens_per_second[place] = (
            1 / ((1 - SPEED_EMA_WEIGHT * committed_tokens) / pace + SPEED_EMA_WEIGHT * seconds)
            if committed_tokens * SPEED_EMA_WEIGHT < 1
            else pace
        )
        memory.regret_seconds = max(memory.regret_seconds + seconds - committed_tokens * plain, 0.0)
        memory.exploration_seconds = min(
            memory.exploration_seconds + EXPLORATION_SHARE * seconds, MAX_EXPLORATION_PASSES * plain
        )
