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
from specchat.engine.decode import Plan, Writing
from specchat.engine.drafter import Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

SEED = 7
WARM = 0.8
REMEMBERED = 16  # likeliest tokens of a plain pass; one that is not among them is no near tie
ROUNDING = {torch.float32: 1e-3, torch.float16: 0.1, torch.bfloat16: 0.5}  # of logits, through a whole network
EXPECTED = 5  # of a cell of the chi-square test; rarer tokens are counted as one
FEWEST_DRAWN = 60  # after a first token, to judge the second
UNLIKELY = 1e-4  # a chance of this or less is a fault; several tests are made
DRAW_BUDGET, DRAW_TOKENS = 4, 3
DRAWERS = ("draft", "eagle3", "eagle", "mtp")  # who can say how likely their guesses are, the best first


@dataclass(frozen=True)
class Difference:
    """The first token that was not that of plain decoding."""

    place: int  # in the answer
    plain: int
    guessed: int
    margin: float  # by how much plain decoding preferred its own, in logits under the rules and the dice


@dataclass
class Verdict:
    """One variant at one temperature: answers, those that were equal, and what was not."""

    variant: str
    temperature: float
    answers: int = 0
    ties: list[Difference] = field(default_factory=list[Difference])
    faults: list[Difference] = field(default_factory=list[Difference])
    refused: str = ""  # why it could not run

    def judge(self, difference: Difference | None, rounding: float) -> None:
        """One more answer, and where it first differs from plain decoding."""
        self.answers += 1
        if difference is not None:
            (self.ties if difference.margin <= rounding else self.faults).append(difference)

    @property
    def same(self) -> int:
        """Answers that were equal to the last token."""
        return self.answers - len(self.ties) - len(self.faults)


@dataclass(frozen=True)
class Fit:
    """Whether tokens that were drawn fit the chances of a plain pass."""

    rule: str
    place: str
    draws: int
    chance: float  # of a distance at least as large, if all is well

    @property
    def is_fault(self) -> bool:
        """Whether chance alone hardly ever does that."""
        return self.chance < UNLIKELY


@dataclass
class Report:
    """All that was found."""

    model: str
    dtype: str
    exact: bool
    verdicts: list[Verdict] = field(default_factory=list[Verdict])
    fits: list[Fit] = field(default_factory=list[Fit])
    near: int = 0  # picks of plain decoding that lay within rounding of another token
    picks: int = 0

    @property
    def is_trusted(self) -> bool:
        """Whether nothing was found against the engine."""
        return not any(verdict.faults for verdict in self.verdicts) and not any(fit.is_fault for fit in self.fits)


@dataclass(frozen=True)
class Trial:
    """What is tried: prompts as tokens, variants, how long answers are, and how often dice are thrown."""

    prompts: Sequence[list[int]]
    variants: Sequence[str]
    limit: int = 64
    draws: int = 1000


class Liking(Drafter):
    """Remembers what plain decoding liked at every step, and how undecided it was; guesses nothing.

    Doubt is the chance that two draws differ, over the tokens that `draws` draws would show often enough to count.
    """

    def __init__(self, sampler: Sampler, draws: int) -> None:
        self.sampler, self.rarest = sampler, EXPECTED / max(draws, 1)
        self.rankings: list[dict[int, float]] = []
        self.doubts: list[float] = []

    def observe(self, outcome: Outcome) -> None:
        """Rank once more what the pass said."""
        if outcome.logits is not None:
            rows = self.sampler.rows(outcome.tree, outcome.position + 1)
            ranking = self.sampler.rank(outcome.logits[:1], rows, count=REMEMBERED)
            scores = ranking.scores[0].float().tolist()
            self.rankings.append(dict(zip(ranking.ids[0].tolist(), scores, strict=True)))
            chances = outcome.logits[0].float().softmax(-1)
            common = chances[chances >= self.rarest]
            self.doubts.append(float((common * (1 - common)).sum()))

    def margin(self, place: int) -> float:
        """How far ahead the token was that plain decoding picked."""
        first, second, *_rest = sorted(self.rankings[place].values(), reverse=True)
        return first - second


def examine(engine: Engine, trial: Trial, progress: Callable[[str], None] = lambda _what: None) -> Report:
    """Everything that a trial asks for; takes as long as it takes, and says what it is at."""
    voice = engine.voice
    dtype = voice.target.pool.layout.dtype
    speculation = voice.profile.speculation
    report = Report(voice.profile.models.target, str(dtype).removeprefix("torch."), speculation.exact)
    rounding = 0.0 if speculation.exact else ROUNDING.get(dtype, 0.0)
    here, undecided = _who_guesses(engine), (0.0, list[int]())
    for temperature in (0.0, WARM):
        sampler = Sampler(temperature, seed=SEED, vocabulary=min(voice.tokenizer.size, voice.target.vocabulary))
        found = [
            Verdict(variant, temperature, refused="" if variant in here else "not with these models")
            for variant in trial.variants
        ]
        for number, prompt in enumerate(trial.prompts, start=1):
            where = f"temperature {temperature:g}, prompt {number} of {len(trial.prompts)}"
            progress(f"{where}, plain")
            liking = Liking(sampler, trial.draws)
            plain = _answer(engine, "plain", prompt, sampler, trial.limit, liking)
            doubt, place = max((doubt, place) for place, doubt in enumerate(liking.doubts))
            undecided = max(undecided, (doubt, prompt + plain[:place]))
            report.picks += len(liking.rankings)
            report.near += sum(liking.margin(place) <= rounding for place in range(len(liking.rankings)))
            for verdict in found:
                if not verdict.refused:
                    progress(f"{where}, {verdict.variant}")
                    guessed = _answer(engine, verdict.variant, prompt, sampler, trial.limit)
                    verdict.judge(_difference(plain, guessed, liking), rounding)
        report.verdicts += found
    if trial.draws:
        report.fits += _fits(engine, here, undecided[1], trial.draws, progress)
    return report


def _who_guesses(engine: Engine) -> frozenset[str]:
    with engine.session() as session:
        return frozenset(session.drafters)


def _difference(plain: list[int], guessed: list[int], liking: Liking) -> Difference | None:
    for place, (ours, theirs) in enumerate(zip(plain, guessed, strict=False)):
        if ours != theirs:
            liked = liking.rankings[place]
            margin = liked[ours] - liked[theirs] if theirs in liked else float("inf")
            return Difference(place, ours, theirs, margin)
    if len(plain) == len(guessed):
        return None
    place = min(len(plain), len(guessed))
    return Difference(place, *((*plain, -1)[place], (*guessed, -1)[place]), float("inf"))


def _answer(
    engine: Engine, variant: str, prompt: list[int], sampler: Sampler, limit: int, listener: Drafter | None = None
) -> list[int]:
    """The tokens of an answer."""
    with engine.session() as session:
        writing = _reading(session, variant, prompt)
        if listener is not None:
            writing.listen(listener)
        plan = Plan(
            session.drafters[variant], sampler, session.voice.profile.speculation.budget,
            min(limit, session.voice.target.window - len(prompt)), session.voice.tokenizer.stop,
        )  # fmt: skip
        with session.voice.target.pool.seated(writing.cache, writing.rows_for(plan.limit)):
            for _known in writing.read():
                pass
            if session.drafters[variant] is session.chooser:
                session.voice.costs.calibrate(writing)
            for _step in writing.steps(plan):
                pass
        return writing.tokens[len(prompt) :]


def _reading(session: Session, variant: str, prompt: list[int]) -> Writing:
    session.listen_to(variant)
    session.writing.revise(prompt)
    return session.writing


def _fits(
    engine: Engine, here: frozenset[str], prompt: list[int], draws: int, progress: Callable[[str], None]
) -> Iterator[Fit]:
    """Tokens drawn by both rules where the model is most undecided, held against the chances of plain passes."""
    variant = next((name for name in DRAWERS if name in here), "lookup")
    with engine.session() as session:
        writing = _reading(session, variant, prompt)
        vocabulary = min(session.voice.target.vocabulary, session.voice.tokenizer.size)
        for rule in ("dice",) if session.voice.profile.speculation.exact else ("dice", "classic"):
            drawn = list[list[int]]()
            for seed in range(draws):
                if seed % 20 == 0:
                    progress(f"{rule}, draw {seed} of {draws}")
                sampler = Sampler(1.0, seed=seed, vocabulary=vocabulary, is_classic=rule == "classic")
                drawn.append(_drawn(session, variant, prompt, sampler))
            yield from _compared(rule, drawn, lambda text: _chances(writing, prompt + text, vocabulary))


def _drawn(session: Session, variant: str, prompt: list[int], sampler: Sampler) -> list[int]:
    writing = session.writing
    writing.revise(prompt)
    with session.voice.target.pool.seated(writing.cache, writing.rows_for(DRAW_TOKENS)):
        for _known in writing.read():
            pass
        for _step in writing.steps(Plan(session.drafters[variant], sampler, DRAW_BUDGET, DRAW_TOKENS)):
            pass
    return writing.tokens[len(prompt) :]


def _chances(writing: Writing, text: list[int], vocabulary: int) -> torch.Tensor:
    """What a plain pass says comes next. [V]"""
    writing.revise(text)
    with writing.target.pool.seated(writing.cache, writing.rows_for(1)):
        for _known in writing.read():
            pass
        logits = writing.target.forward(DraftTree(text[-1]), writing.cache).logits[0, :vocabulary]
    return logits.double().softmax(-1).cpu()


def _compared(rule: str, drawn: list[list[int]], chances: Callable[[list[int]], torch.Tensor]) -> Iterator[Fit]:
    firsts = Counter(tokens[0] for tokens in drawn)
    yield Fit(rule, "first token", len(drawn), chance_of(firsts, chances([])))
    seconds: Mapping[int, Counter[int]] = defaultdict(Counter)
    for tokens in drawn:
        seconds[tokens[0]][tokens[1]] += 1
    first, count = firsts.most_common(1)[0]
    if count >= FEWEST_DRAWN:
        yield Fit(rule, "second token", count, chance_of(seconds[first], chances([first])))


def chance_of(counts: Mapping[int, int], chances: torch.Tensor) -> float:
    """The p-value of Pearson's chi-square: how often true draws would lie as far from these chances. [V] -> 0 to 1"""
    total = sum(counts.values())
    seen = torch.zeros(len(chances), dtype=torch.float64)
    for token, count in counts.items():
        seen[token] = count
    common = chances * total >= EXPECTED
    expected = torch.cat((chances[common] * total, (chances[~common].sum() * total)[None]))
    observed = torch.cat((seen[common], seen[~common].sum()[None]))
    if expected[-1] < EXPECTED:  # too few to be a cell of their own
        expected[-2 % len(expected)] += expected[-1]
        observed[-2 % len(observed)] += observed[-1]
        expected, observed = expected[:-1], observed[:-1]
    freedom = len(expected) - 1
    if freedom < 1:
        return 1.0
    distance = ((observed - expected) ** 2 / expected).sum()
    return float(torch.special.gammaincc(torch.tensor(freedom / 2, dtype=torch.float64), distance / 2))
