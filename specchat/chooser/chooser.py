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

from specchat.chooser.acceptance import PLAIN, Offer, Record, Watched, best_part, promised
from specchat.chooser.costs import Costs
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import DraftTree

LIKELY, POSSIBLE, UNLIKELY = 0.85, 0.4, 0.3  # first opinions: the first of the order, the others, those behind plain
WORTH = 0.02  # tokens more than a plain pass that a tree must promise
CHANGING = 0.03  # tokens more than the one in use that another must promise
IN_DEBT = 0.15  # instead of WORTH, for those who compute, while more was lost against plain than is allowed
ALLOWANCE = 0.006  # share of the time that tries may take
FIRST_ALLOWANCE, LARGEST_ALLOWANCE = 1.2, 6.0  # plain passes
SHORTEST_REST, LONGEST_REST = 4, 128  # steps between two tries of somebody who was not worth it
FAR = 0.25  # tokens; who is expected to lose less than that rests less long
LONGEST_SILENCE = 8  # steps between two questions to somebody who answers in microseconds
STALE = 256  # steps after which a plain pass is run, to see what it costs now
CATCHING_UP = 32  # tokens; who has more to read first is no example of what guesses cost
CALM = 1.02  # plain paces; above, what does not pay yet may pay as the pace falls
HORIZON = 64.0  # tokens over which catching up must pay
PACING = 0.03  # weight of the newest token in the pace
LEARNING = 0.1  # weight of the newest observation in running means


@dataclass(frozen=True)
class Pressure:
    """Who else wants the device: sessions that wait for their step, and whether a completion is among them."""

    waiting: int = 0
    is_urgent: bool = False

    def share(self, budget: int) -> int:
        """Guesses that remain: a fair share, none while somebody waits for a completion."""
        return 0 if self.is_urgent else budget // (1 + self.waiting)


@dataclass(frozen=True)
class Why:
    """The reasons of an answer: how often each was chosen, what the others would bring, what a plain pass costs."""

    chosen: Mapping[str, int]
    offers: tuple[Offer, ...]
    plain_seconds: float

    def sentence(self) -> str:
        """In words.

        "draft guessed in 40 of 60 steps; expected now: draft 2.1 tokens in 4.0 ms, lookup 1.1 in 2.9 ms, nobody 1 in
        2.5 ms"
        """
        steps = sum(self.chosen.values())
        if not steps:
            return ""
        guessed = [f"{name} guessed in {count}" for name, count in sorted(self.chosen.items()) if name != PLAIN]
        who = f"{' and '.join(guessed) or 'nobody guessed'}{f' of {steps} steps' if guessed else ''}"
        if not self.plain_seconds:
            return who
        seen = [f"{each.name} {each.tokens:.1f} in {1000 * each.seconds:.1f} ms" for each in self.offers]
        return f"{who}; expected now: {', '.join([*seen, f'nobody 1 in {1000 * self.plain_seconds:.1f} ms'])}"


class Candidate(Record):
    """Somebody who may be asked, for one kind of task: how often he was right, and when it is his turn again."""

    def __init__(self, opinion: float) -> None:
        super().__init__(opinion)
        self.gain = 0.0  # seconds that asking brought lately, for each question
        self.question = 0.0  # seconds that a question takes
        self.silence = 1  # steps until the next question
        self.next_question = 0
        self.rest = SHORTEST_REST
        self.next_try = 0


class Memory:
    """What was learnt of drafters, by kind of task and heat; it outlives conversations."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str, bool], Candidate] = {}
        self.steps = 0
        self.allowance: float | None = None  # seconds that tries may take now
        self.debt = 0.0  # seconds lost against plain and not won back
        self.spent = 0.0
        self.pace: dict[tuple[str, bool], float] = {}  # tokens a second of late
        self.plain_at = 0  # the step of the last plain pass
        self.reading: dict[str, float] = {}  # seconds for each token that a drafter has to catch up with

    def record(self, name: str, kind: str, is_hot: bool, opinion: float) -> Candidate:
        """What is known of a drafter; the opinion is all there is of a new one."""
        key = (name, kind, is_hot)
        if key not in self.records:
            self.records[key] = Candidate(opinion)
        return self.records[key]


@dataclass
class _Tally:
    """What became of one answer, to explain it."""

    chosen: Counter[str] = field(default_factory=Counter[str])
    offers: dict[str, Offer] = field(default_factory=dict[str, Offer])
    plain_seconds: float = 0.0


class Chooser(Drafter):
    """Asks whoever pays most, or nobody. Everybody hears every outcome and forgets with the text."""

    name = "auto"

    def __init__(
        self,
        drafters: Mapping[str, Drafter],
        costs: Costs,
        memory: Memory | None = None,
        clock: Callable[[], float] = perf_counter,
    ) -> None:
        self.drafters = {name: drafter for name, drafter in drafters.items() if name != PLAIN}
        self.costs, self.memory, self.clock = costs, memory or Memory(), clock
        self.pressure = Pressure()
        self.taps = tuple(dict.fromkeys(tap for drafter in self.drafters.values() for tap in drafter.taps))
        self._known = dict.fromkeys(self.drafters, 0)  # tokens of the text that each has read
        self._watched: dict[str, Watched] = {}
        self._is_hot = False
        self._quiet_until = 0  # the step before which nobody is to be asked
        self.begin("", tuple(self.drafters))

    def begin(self, kind: str, order: tuple[str, ...]) -> None:
        """An answer of this kind begins; the likeliest drafters come first, and those behind `plain` seldom pay."""
        named = [name for name in order if name in self.drafters]
        rest = [name for name in self.drafters if name not in order]
        behind = set(order[order.index(PLAIN) :]) if PLAIN in order else set[str]()
        self.kind, self.order = kind, tuple(named + rest)
        self._opinions = {
            name: UNLIKELY if name in behind or name in rest else LIKELY if place == 0 else POSSIBLE
            for place, name in enumerate(self.order)
        }
        self._last, self._tally = PLAIN, _Tally()
        self._quiet_until = 0

    def why(self) -> Why:
        """The reasons of the answer so far."""
        tally = self._tally
        return Why(dict(tally.chosen), tuple(tally.offers.values()), tally.plain_seconds)

    def propose(self, context: Context) -> DraftTree:
        """The tree that promises most tokens a second, or a bare root."""
        memory, budget = self.memory, self.pressure.share(context.budget)
        memory.steps += 1
        self._is_hot = context.sampler.temperature > 0
        root = DraftTree(context.tokens[-1])
        if memory.steps < self._quiet_until:
            return self._chosen(PLAIN, root)
        rows = self.costs.believed(len(context.tokens), budget + 1)
        if rows is None or len(rows) < 3:
            return self._chosen(PLAIN, root)
        budget = len(rows) - 2
        context = replace(context, budget=budget)
        plain = Offer(seconds=rows[1])
        self._tally.plain_seconds = rows[1]
        if memory.allowance is None:
            memory.allowance = FIRST_ALLOWANCE * rows[1]
        pace = max(memory.pace.get((self.kind, self._is_hot), 0.0), 1 / rows[1])
        best, best_tree = self._best_instant(plain, root, context, rows, pace)
        dear = self._dear_offers(context, budget, rows, pace)
        is_in_debt = memory.debt > ALLOWANCE * memory.spent + 2 * rows[1]
        bar = plain.worth(pace) + (IN_DEBT if is_in_debt else WORTH)
        for offer in dear:
            if offer.worth(pace) > max(bar, best.worth(pace) + self._ease(best, offer)):
                best = offer
        if best is not plain and memory.steps - memory.plain_at > STALE and self._may_spend(rows[1]):
            memory.allowance -= rows[1]
            return self._chosen(PLAIN, root)
        if best.name != PLAIN and not self.drafters[best.name].is_instant:
            best_tree, _seconds = self._ask(best.name, context, best.guesses)
            self._record(best.name, context).rest = SHORTEST_REST
        else:
            best, best_tree = self._try_somebody(dear, best, best_tree, context, rows, pace)
        if best.name == PLAIN and pace <= CALM / rows[1]:
            self._rest(context)
        return self._chosen(best.name, best_tree)

    def _rest(self, context: Context) -> None:
        """Nobody pays: until somebody may be asked again there is nothing to learn, hence nothing to decide."""
        if not self._watched:
            records = ((self._record(name, context), self.drafters[name].is_instant) for name in self.order)
            wakes = [record.next_question if is_instant else record.next_try for record, is_instant in records]
            self._quiet_until = min(wakes, default=self.memory.steps)

    def _best_instant(
        self, plain: Offer, root: DraftTree, context: Context, rows: list[float], pace: float
    ) -> tuple[Offer, DraftTree]:
        """Ask those who answer in microseconds: the best of their trees, or nobody's."""
        best, best_tree, bar = plain, root, plain.worth(pace) + WORTH
        for name in self.order:
            record = self._record(name, context)
            if self.drafters[name].is_instant and self.memory.steps >= record.next_question:
                offer, tree = self._ask_instant(name, record, context, len(rows) - 2, rows, pace)
                if offer.worth(pace) > max(bar, best.worth(pace) + self._ease(best, offer)):
                    best, best_tree = offer, tree
        return best, best_tree

    def _dear_offers(self, context: Context, budget: int, rows: list[float], pace: float) -> list[Offer]:
        """What those are expected to bring who have to compute; not yet of those whose price is unknown."""
        offers = list[Offer]()
        for name in self.order:
            if not self.drafters[name].is_instant:
                offer = self._expected(name, self._record(name, context), context, budget, rows, pace)
                if offer is not None:
                    self._tally.offers[name] = offer
                    offers.append(offer)
        return offers

    def observe(self, outcome: Outcome) -> None:
        """Everybody hears; and the text that came judges what was guessed, verified or not."""
        for drafter in self.drafters.values():
            drafter.observe(outcome)
        if not outcome.verify_seconds:
            return
        tokens, length = outcome.tokens, outcome.position + 1
        for name, watched in list(self._watched.items()):
            if not all(watched.hear(token) for token in tokens):
                del self._watched[name]
        if self.memory.steps >= self._quiet_until:
            self.costs.learn_pass(length, len(outcome.tree), outcome.verify_seconds)
        self._account(outcome, length, len(tokens))

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self._watched.clear()
        for name, drafter in self.drafters.items():
            drafter.forget(length)
            self._known[name] = min(self._known[name], length)

    def _record(self, name: str, context: Context) -> Candidate:
        return self.memory.record(name, self.kind, context.sampler.temperature > 0, self._opinions[name])

    def _ease(self, best: Offer, offer: Offer) -> float:
        """What another must promise more than the best so far; the one in use is not left for nothing."""
        return 0.0 if best.name == PLAIN or offer.name == self._last else CHANGING

    def _chosen(self, name: str, tree: DraftTree) -> DraftTree:
        name = name if len(tree) > 1 else PLAIN
        if name == PLAIN:
            self.memory.plain_at = self.memory.steps
        self._tally.chosen[name] += 1
        self._last = name
        return tree

    def _ask(self, name: str, context: Context, guesses: int) -> tuple[DraftTree, float]:
        """Let somebody guess, and learn what that costs and how its trees look."""
        drafter, length = self.drafters[name], len(context.tokens)
        behind = max(length - self._known[name], 1)
        asked = Context(context.tokens, context.sampler, guesses, context.prefix, context.cache)
        begun = self.clock()
        tree = drafter.propose(asked)
        seconds = self.clock() - begun
        self._known[name] = length
        record = self._record(name, context)
        if name not in self._watched and len(tree) > 1:
            promise = promised(tree) if drafter.is_instant else 0
            self._watched[name] = Watched(record, tree, promise)
        if not drafter.is_instant and len(tree) > 1:
            self._learn_price(name, length, behind, max(tree.depths), seconds)
            record.look(tree, guesses)
        return tree, seconds

    def _learn_price(self, name: str, length: int, behind: int, depth: int, seconds: float) -> None:
        curve = self.costs.draft(name, length)
        known = curve.at(depth) if curve is not None else None
        if behind <= (CATCHING_UP if known is not None else 1):
            self.costs.learn_draft(name, length, depth, seconds)
        elif known is not None:
            each = max(seconds - known, 0.0) / behind
            before = self.memory.reading.get(name, each)
            self.memory.reading[name] = before + (each - before) / 2

    def _ask_instant(
        self, name: str, record: Candidate, context: Context, budget: int, rows: list[float], pace: float
    ) -> tuple[Offer, DraftTree]:
        """The best part of what somebody guesses at once. Who is asked in vain too often is asked less often."""
        tree, seconds = self._ask(name, context, budget)
        record.question += LEARNING * (seconds - record.question)
        offer, kept = best_part(name, record, tree, rows, pace)
        gain = max(offer.tokens * rows[1] - offer.seconds, 0.0) if len(kept) > 1 else 0.0
        record.gain += LEARNING * (gain - record.gain)
        pays = max(gain, record.gain) > record.question or record.question < ALLOWANCE / 4 * rows[1]
        too_dear = min(int(record.question / (ALLOWANCE * rows[1])), LONGEST_REST)  # it only says that it is instant
        record.silence = 1 if pays else max(min(record.silence + 1, LONGEST_SILENCE), too_dear)
        record.next_question = self.memory.steps + record.silence
        if len(tree) > 1:
            self._tally.offers[name] = offer
        return offer, kept

    def _expected(
        self, name: str, record: Candidate, context: Context, budget: int, rows: list[float], pace: float
    ) -> Offer | None:
        """The best that somebody who has to compute is expected to bring; None when the price is not known yet."""
        length = len(context.tokens)
        curve = self.costs.draft(name, length)
        prices = curve.up_to(budget) if curve is not None else None
        if prices is None:
            return None
        chances, sizes = record.foreseen(budget)
        late = self._catching_up(name, length - self._known[name]) / HORIZON * 2
        best, tokens, counted = None, 1.0, 1
        for depth, guesses in sizes:
            tokens += sum(chances[counted : guesses + 1])
            counted = guesses + 1
            offer = Offer(name, guesses, tokens, prices[depth] + rows[guesses + 1] + late)
            if best is None or offer.worth(pace) > best.worth(pace):
                best = offer
        return best

    def _try_somebody(
        self,
        dear: list[Offer],
        best: Offer,
        tree: DraftTree,
        context: Context,
        rows: list[float],
        pace: float,
    ) -> tuple[Offer, DraftTree]:
        """Ask one of those who were not chosen, if it is time and affordable; what it guesses is there to be taken."""
        memory = self.memory
        for name in self.order:
            record = self._record(name, context)
            if self.drafters[name].is_instant or memory.steps < record.next_try:
                continue
            is_hearsay = self.costs.is_hearsay(name, len(context.tokens))
            offer = None if is_hearsay else next((each for each in dear if each.name == name), None)
            guesses = min((2 if self._is_hot else 1) if offer is None else offer.guesses, context.budget)
            gap = 0.0 if offer is None else max(best.worth(pace) - offer.worth(pace), 0.0)
            behind = len(context.tokens) - self._known[name]
            loss = gap / pace + self._catching_up(name, behind)
            if not self._may_spend(loss) or not (is_hearsay or self._can_pay(name, context, rows)):
                missing = loss - (memory.allowance or 0.0)
                record.next_try = memory.steps + min(max(int(missing / (ALLOWANCE * rows[1])), 1), SHORTEST_REST)
                continue
            tried, seconds = self._ask(name, context, guesses)
            if len(tried) > 1 and self.costs.draft(name, len(context.tokens)) is None:
                # once more, with nothing to catch up with: that is the price
                tried, seconds = self._ask(name, context, guesses)
            loss = max(gap, WORTH) / pace + self._catching_up(name, behind)  # perhaps known only now
            if offer is None:
                loss = min(seconds, FIRST_ALLOWANCE * rows[1])
            memory.allowance = (memory.allowance or 0.0) - loss
            if offer is not None or len(tried) == 1:
                limit = max(int(LONGEST_REST * min(gap / FAR, 1.0)), SHORTEST_REST)
                record.rest = min(record.rest * (2 if gap < FAR else 4), limit)
                record.next_try = memory.steps + record.rest
            found, part = best_part(name, record, tried, rows, pace, promise=0)
            return (found, part) if found.worth(pace) > best.worth(pace) and len(part) > 1 else (best, tree)
        return best, tree

    def _catching_up(self, name: str, behind: int) -> float:
        """Seconds that somebody needs to read so many tokens first; of a few his price knows already."""
        return behind * self.memory.reading.get(name, 0.0) if behind > CATCHING_UP else 0.0

    def _can_pay(self, name: str, context: Context, rows: list[float]) -> bool:
        """Whether guesses that always held would be worth their price: each saves a plain pass at most."""
        curve = self.costs.draft(name, len(context.tokens))
        prices = curve.up_to(context.budget) if curve is not None else None
        return prices is None or any(prices[depth] < depth * rows[1] for depth in (1, context.budget))

    def _may_spend(self, seconds: float) -> bool:
        return self.memory.allowance is not None and self.memory.allowance >= seconds

    def _account(self, outcome: Outcome, length: int, tokens: int) -> None:
        memory, seconds = self.memory, outcome.draft_seconds + outcome.verify_seconds
        memory.spent += seconds
        plain = self.costs.at(length)
        if plain is None or memory.allowance is None:
            return
        place = (self.kind, self._is_hot)
        pace = memory.pace.get(place, 1 / plain)
        memory.pace[place] = 1 / ((1 - PACING * tokens) / pace + PACING * seconds) if tokens * PACING < 1 else pace
        memory.debt = max(memory.debt + seconds - tokens * plain, 0.0)
        memory.allowance = min(memory.allowance + ALLOWANCE * seconds, LARGEST_ALLOWANCE * plain)
