"""May the engine be trusted here? The laws of `engine/sampling.py`, tried on a model and a machine.

Equal text: every variant writes what plain decoding writes, token by token, greedily and with dice. Where it does not,
the first difference is looked at: how much less did plain decoding like the other token? Within the rounding of the
dtype that is a near tie, which passes of other widths may break otherwise; beyond it, it is a fault. In exact mode
there are no ties.

Equal distribution: under both rules of acceptance, tokens that were drawn many times are held against the chances that
a plain pass gives them (Pearson's chi-square), the first token and the second after it.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specchat.assemble import Engine
from specchat.chat.session import Session
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

SEED = 7
SAMPLING_TEMPERATURE = 0.8
RANKED_TOKENS = 16  # likeliest tokens of a plain pass; one that is not among them is no near tie
NEAR_TIE_MARGIN = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}  # of logits, through a whole network
MIN_EXPECTED_COUNT = 5  # of a cell of the chi-square test; rarer tokens are counted as one
MIN_SECOND_TOKEN_DRAWS = 60  # after a first token, to judge the second
MIN_P_VALUE = 1e-4  # a chance of this or less is a fault; several tests are made
DRAW_DRAFT_TOKENS, DRAW_ANSWER_TOKENS = 4, 3
DISTRIBUTION_DRAFTERS = ("draft", "eagle3", "eagle", "mtp")  # who can say how likely their guesses are, the best first


@dataclass(frozen=True)
class Difference:
    """The first token that was not that of plain decoding."""

    position: int  # in the answer
    plain_token: int
    drafted_token: int
    logit_margin: float  # by how much plain decoding preferred its own, in logits under the rules and the dice


@dataclass
class VariantResult:
    """One variant at one temperature: answers, those that were equal, and what was not."""

    variant: str
    temperature: float
    answers: int = 0
    near_ties: list[Difference] = field(default_factory=list[Difference])
    mismatches: list[Difference] = field(default_factory=list[Difference])
    skip_reason: str = ""  # why it could not run

    def add_answer(self, difference: Difference | None, near_tie_margin: float) -> None:
        """One more answer, and where it first differs from plain decoding."""
        self.answers += 1
        if difference is not None:
            (self.near_ties if difference.logit_margin <= near_tie_margin else self.mismatches).append(difference)

    @property
    def identical_answers(self) -> int:
        """Answers that were equal to the last token."""
        return self.answers - len(self.near_ties) - len(self.mismatches)


@dataclass(frozen=True)
class DistributionTest:
    """Whether tokens that were drawn fit the chances of a plain pass."""

    rule: str
    token_position: str
    draws: int
    p_value: float  # of a distance at least as large, if all is well

    @property
    def is_failure(self) -> bool:
        """Whether chance alone hardly ever does that."""
        return self.p_value < MIN_P_VALUE


@dataclass
class VerifyReport:
    """All that was found."""

    model: str
    dtype: str
    exact: bool
    results: list[VariantResult] = field(default_factory=list[VariantResult])
    distribution_tests: list[DistributionTest] = field(default_factory=list[DistributionTest])
    near_tie_tokens: int = 0  # picks of plain decoding that lay within rounding of another token
    sampled_tokens: int = 0

    @property
    def is_lossless(self) -> bool:
        """Whether nothing was found against the engine."""
        return not any(verdict.mismatches for verdict in self.results) and not any(
            fit.is_failure for fit in self.distribution_tests
        )


@dataclass(frozen=True)
class VerifySettings:
    """What is tried: prompts as tokens, variants, how long answers are, and how often dice are thrown."""

    prompts: Sequence[list[int]]
    variants: Sequence[str]
    max_tokens: int = 64
    draws: int = 1000


class PlainRankingRecorder(Drafter):
    """Remembers what plain decoding liked at every step, and how undecided it was; guesses nothing.

    Doubt is the chance that two draws differ, over the tokens that `draws` draws would show often enough to count.
    """

    def __init__(self, sampler: Sampler, draws: int) -> None:
        self.sampler, self.min_probability = sampler, MIN_EXPECTED_COUNT / max(draws, 1)
        self.rankings: list[dict[int, float]] = []
        self.uncertainties: list[float] = []

    def observe(self, outcome: Outcome) -> None:
        """Rank once more what the pass said."""
        if outcome.logits is not None:
            rows = self.sampler.rows_of_tree(outcome.tree, outcome.root_position + 1)
            ranking = self.sampler.rank(outcome.logits[:1], rows, count=RANKED_TOKENS)
            scores = ranking.scores[0].float().tolist()
            self.rankings.append(dict(zip(ranking.token_ids[0].tolist(), scores, strict=True)))
            chances = outcome.logits[0].float().softmax(-1)
            common = chances[chances >= self.min_probability]
            self.uncertainties.append(float((common * (1 - common)).sum()))

    def margin(self, place: int) -> float:
        """How far ahead the token was that plain decoding picked."""
        first, second, *_rest = sorted(self.rankings[place].values(), reverse=True)
        return first - second


def verify_lossless(
    engine: Engine, settings: VerifySettings, progress: Callable[[str], None] = lambda _what: None
) -> VerifyReport:
    """Everything that a trial asks for; takes as long as it takes, and says what it is at."""
    voice = engine.models
    dtype = voice.target.pool.layout.dtype
    speculation = voice.profile.speculation
    report = VerifyReport(voice.profile.models.target, str(dtype).removeprefix("torch."), speculation.exact)
    rounding = 0.0 if speculation.exact else NEAR_TIE_MARGIN.get(dtype, 0.0)
    here, undecided = _available_variants(engine), (0.0, list[int]())
    for temperature in (0.0, SAMPLING_TEMPERATURE):
        sampler = Sampler(temperature, seed=SEED, vocab_size=min(voice.tokenizer.vocab_size, voice.target.vocab_size))
        found = [
            VariantResult(variant, temperature, skip_reason="" if variant in here else "not with these models")
            for variant in settings.variants
        ]
        for number, prompt in enumerate(settings.prompts, start=1):
            where = f"temperature {temperature:g}, prompt {number} of {len(settings.prompts)}"
            progress(f"{where}, plain")
            liking = PlainRankingRecorder(sampler, settings.draws)
            plain = _generate(engine, "plain", prompt, sampler, settings.max_tokens, liking)
            doubt, place = max((doubt, place) for place, doubt in enumerate(liking.uncertainties))
            undecided = max(undecided, (doubt, prompt + plain[:place]))
            report.sampled_tokens += len(liking.rankings)
            report.near_tie_tokens += sum(liking.margin(place) <= rounding for place in range(len(liking.rankings)))
            for verdict in found:
                if not verdict.skip_reason:
                    progress(f"{where}, {verdict.variant}")
                    guessed = _generate(engine, verdict.variant, prompt, sampler, settings.max_tokens)
                    verdict.add_answer(_difference(plain, guessed, liking), rounding)
        report.results += found
    if settings.draws:
        report.distribution_tests += _test_distributions(engine, here, undecided[1], settings.draws, progress)
    return report


def _available_variants(engine: Engine) -> frozenset[str]:
    with engine.create_session() as session:
        return frozenset(session.drafters)


def _difference(plain: list[int], guessed: list[int], liking: PlainRankingRecorder) -> Difference | None:
    for place, (ours, theirs) in enumerate(zip(plain, guessed, strict=False)):
        if ours != theirs:
            liked = liking.rankings[place]
            margin = liked[ours] - liked[theirs] if theirs in liked else float("inf")
            return Difference(place, ours, theirs, margin)
    if len(plain) == len(guessed):
        return None
    place = min(len(plain), len(guessed))
    return Difference(place, *((*plain, -1)[place], (*guessed, -1)[place]), float("inf"))


def _generate(
    engine: Engine, variant: str, prompt: list[int], sampler: Sampler, limit: int, listener: Drafter | None = None
) -> list[int]:
    """The tokens of an answer."""
    with engine.create_session() as session:
        writing = _start_generation(session, variant, prompt)
        if listener is not None:
            writing.add_drafter(listener)
        plan = GenerationConfig(
            session.drafters[variant], sampler, session.models.profile.speculation.budget,
            min(limit, session.models.target.context_window - len(prompt)), session.models.tokenizer.stop_token_ids,
        )  # fmt: skip
        with session.models.target.pool.acquire_slot(writing.cache, writing.rows_needed(plan.max_new_tokens)):
            for _known in writing.prefill():
                pass
            if session.drafters[variant] is session.chooser:
                session.models.costs.calibrate(writing)
            for _step in writing.decode(plan):
                pass
        return writing.tokens[len(prompt) :]


def _start_generation(session: Session, variant: str, prompt: list[int]) -> Generation:
    session.attach_drafter(variant)
    session.generation.replace_tokens(prompt)
    return session.generation


def _test_distributions(
    engine: Engine, here: frozenset[str], prompt: list[int], draws: int, progress: Callable[[str], None]
) -> Iterator[DistributionTest]:
    """Tokens drawn by both rules where the model is most undecided, held against the chances of plain passes."""
    variant = next((name for name in DISTRIBUTION_DRAFTERS if name in here), "lookup")
    with engine.create_session() as session:
        writing = _start_generation(session, variant, prompt)
        vocabulary = min(session.models.target.vocab_size, session.models.tokenizer.vocab_size)
        for rule in ("dice",) if session.models.profile.speculation.exact else ("dice", "classic"):
            drawn = list[list[int]]()
            for seed in range(draws):
                if seed % 20 == 0:
                    progress(f"{rule}, draw {seed} of {draws}")
                sampler = Sampler(1.0, seed=seed, vocab_size=vocabulary, uses_rejection_sampling=rule == "classic")
                drawn.append(_draw_tokens(session, variant, prompt, sampler))
            yield from _compare_distributions(
                rule, drawn, lambda text: _next_token_probabilities(writing, prompt + text, vocabulary)
            )


def _draw_tokens(session: Session, variant: str, prompt: list[int], sampler: Sampler) -> list[int]:
    writing = session.generation
    writing.replace_tokens(prompt)
    with session.models.target.pool.acquire_slot(writing.cache, writing.rows_needed(DRAW_ANSWER_TOKENS)):
        for _known in writing.prefill():
            pass
        for _step in writing.decode(
            GenerationConfig(session.drafters[variant], sampler, DRAW_DRAFT_TOKENS, DRAW_ANSWER_TOKENS)
        ):
            pass
    return writing.tokens[len(prompt) :]


def _next_token_probabilities(writing: Generation, text: list[int], vocabulary: int) -> torch.Tensor:
    """What a plain pass says comes next. [V]"""
    writing.replace_tokens(text)
    with writing.target.pool.acquire_slot(writing.cache, writing.rows_needed(1)):
        for _known in writing.prefill():
            pass
        logits = writing.target.forward(DraftTree(text[-1]), writing.cache).logits[0, :vocabulary]
    return logits.double().softmax(-1).cpu()


def _compare_distributions(
    rule: str, drawn_tokens: list[list[int]], chances: Callable[[list[int]], torch.Tensor]
) -> Iterator[DistributionTest]:
    firsts = Counter(tokens[0] for tokens in drawn_tokens)
    yield DistributionTest(rule, "first token", len(drawn_tokens), chi_square_p_value(firsts, chances([])))
    seconds: Mapping[int, Counter[int]] = defaultdict(Counter)
    for tokens in drawn_tokens:
        seconds[tokens[0]][tokens[1]] += 1
    first, count = firsts.most_common(1)[0]
    if count >= MIN_SECOND_TOKEN_DRAWS:
        yield DistributionTest(rule, "second token", count, chi_square_p_value(seconds[first], chances([first])))


def chi_square_p_value(counts: Mapping[int, int], probabilities: torch.Tensor) -> float:
    """The p-value of Pearson's chi-square: how often true draws would lie as far from these chances. [V] -> 0 to 1"""
    total = sum(counts.values())
    seen = torch.zeros(len(probabilities), dtype=torch.float64)
    for token, count in counts.items():
        seen[token] = count
    common = probabilities * total >= MIN_EXPECTED_COUNT
    expected = torch.cat((probabilities[common] * total, (probabilities[~common].sum() * total)[None]))
    observed = torch.cat((seen[common], seen[~common].sum()[None]))
    if expected[-1] < MIN_EXPECTED_COUNT:  # too few to be a cell of their own
        expected[-2 % len(expected)] += expected[-1]
        observed[-2 % len(observed)] += observed[-1]
        expected, observed = expected[:-1], observed[:-1]
    freedom = len(expected) - 1
    if freedom < 1:
        return 1.0
    distance = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), distance / 2))
