"""What an engine has learned about its drafters: their acceptance, their speed, and what trials may still cost.

One state is shared by all conversations of an engine. Two ideas decide how far a drafter is trusted. As in discounted
UCB (Garivier and Moulines 2008, arXiv 0805.3415), observations fade, so that the bound of an unused drafter widens. As
in conservative bandits (Wu et al. 2016, arXiv 1602.04282), optimism ends when trials have cost more than a small share
of the time of plain decoding. This file knows no drafter and no clock.
"""

from collections.abc import Mapping

from specchat.chooser.acceptance import EARLIER_FADING, AcceptanceStats, CountsKey, RankCounts
from specchat.engine.drafter import Outcome

TRIAL_SHARE = 0.008  # share of the time that trials may cost
TRIAL_PASSES, MAX_TRIAL_PASSES = 1.5, 6.0  # what trials may cost at first and at most, in plain passes
MAX_INSTANT_MARGIN = 0.15  # tokens that the draft of an instant drafter must bring in addition, after losses
MAX_INSTANT_COOLDOWN_STEPS = 8  # steps between two proposals of an instant drafter
MIN_COST_STEPS, MAX_COST_STEPS = 128, 1024  # after which an unused cost is measured again
SPEED_EMA_WEIGHT = 0.03  # weight of the newest token in the tokens per second
FADING = 0.998  # of observations, with each step
EMA_WEIGHT = 0.1  # weight of the newest measurement in running means


class CostAge:
    """Whether a measured cost may come from a time with other load; it is then measured again, but ever more rarely."""

    def __init__(self) -> None:
        self.last_step, self.max_steps = 0, MIN_COST_STEPS

    def is_old(self, step: int) -> bool:
        return step - self.last_step > self.max_steps

    def add_measurement(self, step: int) -> None:
        self.max_steps = min(4 * self.max_steps, MAX_COST_STEPS) if self.is_old(step) else MIN_COST_STEPS
        self.last_step = step


class CandidateStats(AcceptanceStats):
    """The statistics of one drafter for one kind of task, and the step of its next proposal."""

    def __init__(self, prior_rate: float, earlier: RankCounts | None = None) -> None:
        super().__init__(prior_rate, earlier)
        self.gain_seconds = 0.0  # running mean of the gain of a proposal
        self.propose_seconds = 0.0  # running mean of the time of a proposal
        self.instant_cooldown_steps = 1  # until the next proposal of an instant drafter
        self.next_propose_step = 0
        self.cost_age = CostAge()
        self.faded_at_step = 0

    def fade_until(self, step: int) -> None:
        """Forget a little with each step."""
        steps, self.faded_at_step = step - self.faded_at_step, step
        self.fade(FADING**steps, EARLIER_FADING**steps)

    def add_instant_proposal(
        self, gain_seconds: float, propose_seconds: float, step: int, plain_seconds: float
    ) -> None:
        """A proposal that saved so much time. Without gain the next one is later, the later the slower it is."""
        self.propose_seconds += EMA_WEIGHT * (propose_seconds - self.propose_seconds)
        self.gain_seconds += EMA_WEIGHT * (gain_seconds - self.gain_seconds)
        affordable_seconds = TRIAL_SHARE / 2 * plain_seconds
        if max(gain_seconds, self.gain_seconds) > self.propose_seconds or self.propose_seconds < affordable_seconds / 4:
            self.instant_cooldown_steps = 1
        else:
            slow_cooldown = int(self.propose_seconds / affordable_seconds)
            self.instant_cooldown_steps = max(
                min(self.instant_cooldown_steps + 1, MAX_INSTANT_COOLDOWN_STEPS), slow_cooldown
            )
        self.next_propose_step = step + self.instant_cooldown_steps


class ChooserState:
    """The statistics of all drafters, by kind of task and by sampling; shared by all sessions of an engine.

    What private conversations teach serves private ones only, and is never stored. `earlier` is what is stored.
    """

    def __init__(self, earlier: Mapping[CountsKey, RankCounts] | None = None) -> None:
        self.earlier = earlier or {}
        self.candidates: dict[tuple[CountsKey, bool], CandidateStats] = {}
        self.steps = 0
        self.trial_passes = TRIAL_PASSES  # what trials may cost now, in plain passes; negative after losses
        self.instant_passes = 0.0  # that instant drafters have lost and not won back, below 0
        self.total_seconds = 0.0
        self.decision_seconds = 0.0  # running mean of the time of a decision for plain decoding
        self.tokens_per_second: dict[tuple[str, bool], float] = {}  # running mean
        self.last_plain_step = 0
        self.wide_pass_age = CostAge()  # of passes over several rows
        self.next_plain_learning = 0.0  # in `total_seconds`
        self.prefill_seconds_per_token: dict[str, float] = {}  # by drafter

    def candidate(self, key: CountsKey, prior_rate: float, *, is_private: bool = False) -> CandidateStats:
        if (key, is_private) not in self.candidates:
            self.candidates[key, is_private] = CandidateStats(prior_rate, self.earlier.get(key))
        return self.candidates[key, is_private]

    def believes(self, key: CountsKey) -> bool:
        """Whether no draft has contradicted what was stored."""
        return not self.candidates[key, False].is_disproved

    def learned_counts(self) -> dict[CountsKey, RankCounts]:
        """What this process has learned of drafters that compute; what others copy depends on the text."""
        return {
            key: each.ranks
            for (key, is_private), each in self.candidates.items()
            if each.ranks.trials and not is_private
        }

    def confidence(self, prefill_passes: float) -> float:
        """The confidence bound of an acceptance that decides, in standard deviations: 1 is optimistic, -1 pessimistic.

        Before a prefill that trials cannot pay for, at most the mean decides.
        """
        highest = 1.0 if self.trial_passes >= prefill_passes else 0.0
        return max(-1.0, min(self.trial_passes / TRIAL_PASSES, highest))

    def add_step(self, outcome: Outcome, task: tuple[str, bool], plain_seconds: float) -> None:
        """Learn the speed from the time of a step. It makes trials affordable again."""
        tokens, seconds = len(outcome.committed_tokens), outcome.draft_seconds + outcome.verify_seconds
        self.total_seconds += seconds
        speed = self.tokens_per_second.get(task, 1 / plain_seconds)
        if tokens * SPEED_EMA_WEIGHT < 1:
            speed = 1 / ((1 - SPEED_EMA_WEIGHT * tokens) / speed + SPEED_EMA_WEIGHT * seconds)
        self.tokens_per_second[task] = speed
        allowed = TRIAL_SHARE * seconds / plain_seconds
        self.trial_passes = min(self.trial_passes + allowed, MAX_TRIAL_PASSES)
        self.instant_passes = min(self.instant_passes + allowed, 0.0)

    def allow_trials(self) -> None:
        """Trials are affordable as at first: what they have cost on another machine, or beside other load, is over."""
        self.trial_passes = max(self.trial_passes, TRIAL_PASSES)

    def charge(self, outcome: Outcome, plain_seconds: float, *, is_computed: bool) -> None:
        """Compare a step with a draft with plain decoding."""
        passes = (outcome.draft_seconds + outcome.verify_seconds) / plain_seconds
        gain = len(outcome.committed_tokens) - passes
        if is_computed:
            self.trial_passes = max(-TRIAL_PASSES, min(self.trial_passes + gain, MAX_TRIAL_PASSES))
        else:
            self.instant_passes = max(-TRIAL_PASSES, min(self.instant_passes + gain, 0.0))

    @property
    def instant_margin(self) -> float:
        """Tokens that the draft of an instant drafter must bring in addition, after losses."""
        return MAX_INSTANT_MARGIN * -self.instant_passes / TRIAL_PASSES
