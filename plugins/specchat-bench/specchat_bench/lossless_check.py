"""Checks that decoding is lossless here: the law of `engine/accept.py`, tested with a model on a machine.

Equal text: every variant generates the tokens of plain decoding, greedy and sampled. At the first difference the logits
of plain decoding are compared: within the rounding error of the dtype it is a near tie, which a pass over another
number of rows may decide the other way; beyond it, it is a fault. In exact mode there are no near ties.

Equal distribution: tokens that were sampled many times are compared with the
probabilities of a plain pass (Pearson's chi-square test), the first token and the second one.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from specchat.chat.session import Session
from specchat.engine.decode import Generation, GenerationConfig
from specchat.engine.drafter import Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree
from specchat.loading.load_engine import Engine

SEED = 7
SAMPLING_TEMPERATURE = 0.8
TEMPERATURES = (0.0, SAMPLING_TEMPERATURE)
RANKED_TOKENS = 16  # of a plain pass; a token outside them is no near tie
NEAR_TIE_MARGIN = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}  # in logits, after a whole network
MIN_EXPECTED_COUNT = 5  # in a cell of the chi-square test; rarer tokens share a cell
MIN_SECOND_TOKEN_DRAWS = 60  # with the same first token, to test the second
MIN_P_VALUE = 1e-4  # smaller is a fault; several tests are run
DRAW_DRAFT_TOKENS, DRAW_ANSWER_TOKENS = 4, 3
Progress = Callable[[str, int, int], None]  # a label, and what is done of how much
DISTRIBUTION_DRAFTERS = ("draft", "eagle3", "mtp")  # drafters that report probabilities, the best first


@dataclass(frozen=True)
class Difference:
    position: int  # in the answer
    plain_token: int
    drafted_token: int
    logit_margin: float  # by which plain decoding preferred its own token, after sampling rules and noise


@dataclass
class VariantResult:
    variant: str
    temperature: float
    answers: int = 0
    near_ties: list[Difference] = field(default_factory=list[Difference])
    mismatches: list[Difference] = field(default_factory=list[Difference])
    skip_reason: str = ""  # why it could not run

    def add_answer(self, difference: Difference | None, near_tie_margin: float) -> None:
        self.answers += 1
        if difference is not None:
            (self.near_ties if difference.logit_margin <= near_tie_margin else self.mismatches).append(difference)

    @property
    def identical_answers(self) -> int:
        return self.answers - len(self.near_ties) - len(self.mismatches)


@dataclass(frozen=True)
class DistributionTest:
    token_position: str
    draws: int
    p_value: float  # of a distance at least as large, if the distributions are equal

    @property
    def is_failure(self) -> bool:
        return self.p_value < MIN_P_VALUE


@dataclass
class VerifyReport:
    model: str
    dtype: str
    exact: bool
    results: list[VariantResult] = field(default_factory=list[VariantResult])
    distribution_tests: list[DistributionTest] = field(default_factory=list[DistributionTest])
    near_tie_tokens: int = 0  # sampled tokens of plain decoding that were near ties
    sampled_tokens: int = 0
    is_complete: bool = True  # False: the user has stopped it, and this is what was compared before

    @property
    def is_lossless(self) -> bool:
        return not any(result.mismatches for result in self.results) and not any(
            test.is_failure for test in self.distribution_tests
        )


@dataclass(frozen=True)
class VerifySettings:
    """Prompts as tokens, variants, the length of answers, and the samples for each distribution test."""

    prompts: Sequence[list[int]]
    variants: Sequence[str]
    max_tokens: int = 64
    draws: int = 1000


class _Work:
    """Counts tokens, each of which takes about as long, and tells how far the work is."""

    def __init__(self, settings: VerifySettings, variant_count: int, progress: Progress) -> None:
        answers = len(TEMPERATURES) * len(settings.prompts) * (1 + variant_count)
        self._total = answers * settings.max_tokens + settings.draws * DRAW_ANSWER_TOKENS
        self._done, self._progress = 0, progress

    def add(self, label: str, tokens: int) -> None:
        """This many more tokens are done, of what the label says."""
        self._done += tokens
        self._progress(label, self._done, self._total)


class PlainRankingRecorder(Drafter):
    """Records the ranking of plain decoding at every step and its uncertainty; drafts nothing.

    The uncertainty is the probability that two samples differ, over tokens that `draws` samples contain often enough.
    """

    def __init__(self, sampler: Sampler, draws: int) -> None:
        self.sampler, self.min_probability = sampler, MIN_EXPECTED_COUNT / max(draws, 1)
        self.rankings: list[dict[int, float]] = []
        self.uncertainties: list[float] = []

    def observe(self, outcome: Outcome) -> None:
        if outcome.logits is not None:
            rows = self.sampler.rows_of_tree(outcome.tree, outcome.root_position + 1)
            ranking = self.sampler.rank(outcome.logits[:1], rows, count=RANKED_TOKENS)
            scores = ranking.scores[0].float().tolist()
            self.rankings.append(dict(zip(ranking.token_ids[0].tolist(), scores, strict=True)))
            probabilities = outcome.logits[0].float().softmax(-1)
            common = probabilities[probabilities >= self.min_probability]
            self.uncertainties.append(float((common * (1 - common)).sum()))

    def margin(self, position: int) -> float:
        first, second, *_rest = sorted(self.rankings[position].values(), reverse=True)
        return first - second


def verify_lossless(
    engine: Engine,
    settings: VerifySettings,
    progress: Progress = lambda _label, _done, _total: None,
    report: VerifyReport | None = None,
) -> VerifyReport:
    """Compare. A report that is given has what was compared also after an exception."""
    report = report or empty_report(engine)
    available = _available_variants(engine)
    work = _Work(settings, len(available & set(settings.variants)), progress)
    most_uncertain = _compare_texts(engine, settings, available, report, work)
    if settings.draws:
        for test in _test_distributions(engine, available, most_uncertain, settings.draws, work):
            report.distribution_tests.append(test)
    return report


def empty_report(engine: Engine) -> VerifyReport:
    target = engine.models.target
    dtype = str(target.pool.layout.dtype).removeprefix("torch.")
    return VerifyReport(engine.models.profile.models.target, dtype, target.is_exact)


def _compare_texts(
    engine: Engine, settings: VerifySettings, available: frozenset[str], report: VerifyReport, work: _Work
) -> list[int]:
    """Add the comparisons to the report; returns the text after which plain decoding is most uncertain."""
    models, most_uncertain = engine.models, (0.0, list[int]())
    near_tie_margin = 0.0 if models.target.is_exact else NEAR_TIE_MARGIN.get(models.target.pool.layout.dtype, 0.0)
    for temperature in TEMPERATURES:
        sampler = Sampler(temperature, seed=SEED, vocab_size=min(models.tokenizer.vocab_size, models.target.vocab_size))
        results = [
            VariantResult(variant, temperature, skip_reason="" if variant in available else "not with these models")
            for variant in settings.variants
        ]
        report.results += results
        for number, prompt in enumerate(settings.prompts, start=1):
            label = f"temperature {temperature:g}, prompt {number} of {len(settings.prompts)}"
            recorder = PlainRankingRecorder(sampler, settings.draws)
            plain = _generate(engine, "plain", prompt, sampler, settings.max_tokens, recorder)
            work.add(f"{label}, plain", settings.max_tokens)
            uncertainty, position = max((value, index) for index, value in enumerate(recorder.uncertainties))
            most_uncertain = max(most_uncertain, (uncertainty, prompt + plain[:position]))
            report.sampled_tokens += len(recorder.rankings)
            report.near_tie_tokens += sum(
                recorder.margin(index) <= near_tie_margin for index in range(len(recorder.rankings))
            )
            for result in (each for each in results if not each.skip_reason):
                tokens = _generate(engine, result.variant, prompt, sampler, settings.max_tokens)
                result.add_answer(_difference(plain, tokens, recorder), near_tie_margin)
                work.add(f"{label}, {result.variant}", settings.max_tokens)
    return most_uncertain[1]


def _available_variants(engine: Engine) -> frozenset[str]:
    with engine.create_session() as session:
        return frozenset(session.drafters)


def _difference(plain: list[int], tokens: list[int], recorder: PlainRankingRecorder) -> Difference | None:
    for position, (expected, actual) in enumerate(zip(plain, tokens, strict=False)):
        if expected != actual:
            ranking = recorder.rankings[position]
            margin = ranking[expected] - ranking[actual] if actual in ranking else float("inf")
            return Difference(position, expected, actual, margin)
    if len(plain) == len(tokens):
        return None
    end = min(len(plain), len(tokens))
    return Difference(end, *((*plain, -1)[end], (*tokens, -1)[end]), float("inf"))


def _generate(
    engine: Engine, variant: str, prompt: list[int], sampler: Sampler, max_tokens: int, recorder: Drafter | None = None
) -> list[int]:
    with engine.create_session() as session:
        generation = _start_generation(session, variant, prompt)
        if recorder is not None:
            generation.add_drafter(recorder)
        config = GenerationConfig(
            session.drafters[variant], sampler, session.models.profile.speculation.budget,
            min(max_tokens, session.models.target.context_window - len(prompt)),
            session.models.tokenizer.stop_token_ids,
        )  # fmt: skip
        with session.models.target.pool.acquire_slot(generation.cache, generation.rows_needed(config.max_new_tokens)):
            for _progress in generation.prefill():
                pass
            if session.drafters[variant] is session.chooser:
                session.models.costs.calibrate(generation)
            for _step in generation.decode(config):
                pass
        return generation.tokens[len(prompt) :]


def _start_generation(session: Session, variant: str, prompt: list[int]) -> Generation:
    session.select_drafters(variant)
    session.generation.replace_tokens(prompt)
    return session.generation


def _test_distributions(
    engine: Engine, available: frozenset[str], prompt: list[int], draws: int, work: _Work
) -> Iterator[DistributionTest]:
    """Sample where the model is most uncertain, and compare with plain passes."""
    variant = next((name for name in DISTRIBUTION_DRAFTERS if name in available), "lookup")
    with engine.create_session() as session:
        generation = _start_generation(session, variant, prompt)
        vocab_size = min(session.models.target.vocab_size, session.models.tokenizer.vocab_size)
        samples = list[list[int]]()
        for seed in range(draws):
            sampler = Sampler(1.0, seed=seed, vocab_size=vocab_size)
            samples.append(_draw_tokens(session, variant, prompt, sampler))
            work.add(f"sample {seed + 1} of {draws}", DRAW_ANSWER_TOKENS)
        yield from _compare_distributions(
            samples, lambda text: _next_token_probabilities(generation, prompt + text, vocab_size)
        )


def _draw_tokens(session: Session, variant: str, prompt: list[int], sampler: Sampler) -> list[int]:
    generation = session.generation
    generation.replace_tokens(prompt)
    generation.generate(GenerationConfig(session.drafters[variant], sampler, DRAW_DRAFT_TOKENS, DRAW_ANSWER_TOKENS))
    return generation.tokens[len(prompt) :]


def _next_token_probabilities(generation: Generation, text: list[int], vocab_size: int) -> torch.Tensor:
    """Next-token probabilities of a plain pass. [V]"""
    generation.replace_tokens(text)
    with generation.target.pool.acquire_slot(generation.cache, generation.rows_needed(1)):
        for _progress in generation.prefill():
            pass
        logits = generation.target.forward(DraftTree(text[-1]), generation.cache).logits[0, :vocab_size]
    return logits.double().softmax(-1).cpu()


def _compare_distributions(
    drawn_tokens: list[list[int]], probabilities: Callable[[list[int]], torch.Tensor]
) -> Iterator[DistributionTest]:
    firsts = Counter(tokens[0] for tokens in drawn_tokens)
    yield DistributionTest("first token", len(drawn_tokens), chi_square_p_value(firsts, probabilities([])))
    seconds: Mapping[int, Counter[int]] = defaultdict(Counter)
    for tokens in drawn_tokens:
        seconds[tokens[0]][tokens[1]] += 1
    first, count = firsts.most_common(1)[0]
    if count >= MIN_SECOND_TOKEN_DRAWS:
        yield DistributionTest("second token", count, chi_square_p_value(seconds[first], probabilities([first])))


def chi_square_p_value(counts: Mapping[int, int], probabilities: torch.Tensor) -> float:
    """The p-value of Pearson's chi-square: how often samples of these probabilities are as far off. [V] -> 0 to 1"""
    total = sum(counts.values())
    observed_counts = torch.zeros(len(probabilities), dtype=torch.float64)
    for token, count in counts.items():
        observed_counts[token] = count
    common = probabilities * total >= MIN_EXPECTED_COUNT
    expected = torch.cat((probabilities[common] * total, (probabilities[~common].sum() * total)[None]))
    observed = torch.cat((observed_counts[common], observed_counts[~common].sum()[None]))
    if expected[-1] < MIN_EXPECTED_COUNT:  # too few for a cell
        expected[-2 % len(expected)] += expected[-1]
        observed[-2 % len(observed)] += observed[-1]
        expected, observed = expected[:-1], observed[:-1]
    freedom = len(expected) - 1
    if freedom < 1:
        return 1.0
    distance = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), distance / 2))
