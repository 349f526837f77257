"""How much to draft and with whom: the most tokens a second, nobody included, measured while the text is written.

The chooser is a drafter that asks other drafters, so the loop stays blind. For each it knows what its guesses cost
(`costs.py`) and how often they held, by depth, kept apart by kind of task and by cold or hot sampling; it takes the
tree with the most expected tokens for its expected seconds. Three things keep its own price small:

- The text is the same whoever drafts. So a guess need not be verified to be judged: it is compared with the text that
  came. Guesses that were cut off, and those of a drafter that was only tried, teach as much as verified ones.
- Drafters that answer in microseconds are asked first, and judged by the very tree they return.
- A drafter that must compute is tried only as far as an allowance of one percent of the time spent reaches, and the
  more rarely the more often it was not worth it.

Knows drafters by name only, and no text.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from time import perf_counter

from specchat.engine.costs import Costs
from specchat.engine.drafter import Context, Drafter, Outcome
from specchat.engine.tree import ROOT, DraftTree

PLAIN = "plain"
FORGETTING = 0.985  # of what was seen remains, with each new observation of the same depth
SURPRISE, SURPRISED = 8, 0.25  # first guesses in a row that fall where most had held; what is then still believed
TRUST, TRUST_BELOW = 2.0, 8.0  # observations that a first opinion counts for; those that the depth before counts for
LIKELY, POSSIBLE, UNLIKELY = 0.85, 0.4, 0.3  # first opinions: the first of the order, the others, those behind plain
SIBLING = 0.15  # first opinion of a second-best guess, its elder having failed or not
DEPTHS = 8  # deeper guesses are counted as so deep
LENGTHS = (4, 6, 10)  # deepest guesses of a tree: what promises more is counted apart
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
class Offer:
    """What somebody is expected to bring in one step, and what that costs."""

    name: str = PLAIN
    guesses: int = 0
    tokens: float = 1.0
    seconds: float = 1.0

    def worth(self, pace: float) -> float:
        """Tokens gained over a writer who makes `pace` tokens a second.

        Not tokens by seconds: where a copy of twenty tokens may be found in the next step, a slow draft of four now is
        a loss, though it beats a plain pass.
        """
        return self.tokens - pace * self.seconds


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


class Record:
    """How often the guesses of one drafter held, for one kind of task, by what a tree promised, depth and rank."""

    def __init__(self, opinion: float) -> None:
        self.opinion = opinion
        self.tried = [[0.0] * (2 * DEPTHS) for _ in range(len(LENGTHS) + 1)]
        self.held = [[0.0] * (2 * DEPTHS) for _ in range(len(LENGTHS) + 1)]
        self.shape: DraftTree | None = None  # the largest tree of late
        self.is_whole = False  # more was asked for than that
        self.falls = 0  # first guesses that fell, one after the other
        self.gain = 0.0  # seconds that asking brought lately, for each question
        self.question = 0.0  # seconds that a question takes
        self.silence = 1  # steps until the next question
        self.next_question = 0
        self.rest = SHORTEST_REST
        self.next_try = 0
        self._rates: dict[int, tuple[list[float], list[float]]] = {}

    def rates(self, promise: int) -> tuple[list[float], list[float]]:
        """How often a first guess at each depth holds when the one before it held; the same of its siblings.

        What was seldom seen is believed to be as the depth before it.
        """
        if promise not in self._rates:
            tried, held = self.tried[promise], self.held[promise]
            first, sibling = list[float](), list[float]()
            believed, beside = self.opinion, SIBLING
            for depth in range(DEPTHS):
                trust = TRUST_BELOW if depth else TRUST
                believed = (held[depth] + trust * believed) / (tried[depth] + trust)
                beside = (held[DEPTHS + depth] + trust * beside) / (tried[DEPTHS + depth] + trust)
                first.append(believed)
                sibling.append(beside)
            self._rates[promise] = first, sibling
        return self._rates[promise]

    def note(self, promise: int, slot: int, has_held: bool) -> None:
        """A guess was reached, and held or fell."""
        if slot == 0:
            self.falls = 0 if has_held else self.falls + 1
            if self.falls == SURPRISE and self.rates(promise)[0][0] > POSSIBLE:
                self.tried[promise] = [SURPRISED * count for count in self.tried[promise]]
                self.held[promise] = [SURPRISED * count for count in self.held[promise]]
        self.tried[promise][slot] = FORGETTING * self.tried[promise][slot] + 1
        self.held[promise][slot] = FORGETTING * self.held[promise][slot] + has_held
        self._rates.pop(promise, None)

    def chances(self, tree: DraftTree, promise: int) -> list[float]:
        """How likely each node is to be kept, the root being sure."""
        first, sibling = self.rates(promise)
        chances, parents, depths = [1.0], tree.parents, tree.depths
        if tree.is_chain:
            for depth in depths[1:]:
                chances.append(chances[-1] * first[min(depth, DEPTHS) - 1])
            return chances
        elders = set[int]()
        for node in range(1, len(tree)):
            parent, depth = parents[node], min(depths[node], DEPTHS) - 1
            chances.append(chances[parent] * (sibling if parent in elders else first)[depth])
            elders.add(parent)
        return chances


class Memory:
    """What was learnt of drafters, by kind of task and heat; it outlives conversations."""

    def __init__(self) -> None:
        self.records: dict[tuple[str, str, bool], Record] = {}
        self.steps = 0
        self.allowance: float | None = None  # seconds that tries may take now
        self.debt = 0.0  # seconds lost against plain and not won back
        self.spent = 0.0
        self.pace: dict[tuple[str, bool], float] = {}  # tokens a second of late
        self.plain_at = 0  # the step of the last plain pass
        self.reading: dict[str, float] = {}  # seconds for each token that a drafter has to catch up with

    def record(self, name: str, kind: str, is_hot: bool, opinion: float) -> Record:
        """What is known of a drafter; the opinion is all there is of a new one."""
        key = (name, kind, is_hot)
        if key not in self.records:
            self.records[key] = Record(opinion)
        return self.records[key]


@dataclass
class _Watched:
    """A tree whose guesses are compared with the text that comes."""

    record: Record
    tree: DraftTree
    promise: int
    node: int = ROOT  # the last one that held

    def hear(self, token: int) -> bool:
        """The next token of the text; returns whether there is more to compare."""
        tree, node = self.tree, self.node
        found = tree.child(node, token)
        depth = min(tree.depths[node] + 1, DEPTHS) - 1
        if tree.is_chain:
            if node + 1 < len(tree):
                self.record.note(self.promise, depth, found is not None)
        else:
            children = [child for child, parent in enumerate(tree.parents) if parent == node]
            for rank, child in enumerate(children):
                self.record.note(self.promise, depth + (DEPTHS if rank else 0), child == found)
        if found is not None:
            self.node = found
        return found is not None


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
        self._watched: dict[str, _Watched] = {}
        self._is_hot = False
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
        rows = self.costs.rows(len(context.tokens), budget + 1)
        if budget < 1 or rows is None:
            return self._chosen(PLAIN, root)
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
        return self._chosen(best.name, best_tree)

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
        self.costs.learn_pass(length, len(outcome.tree), outcome.verify_seconds)
        self._account(outcome, length, len(tokens))

    def forget(self, length: int) -> None:
        """The text was cut back to its first `length` tokens."""
        self._watched.clear()
        for name, drafter in self.drafters.items():
            drafter.forget(length)
            self._known[name] = min(self._known[name], length)

    def _record(self, name: str, context: Context) -> Record:
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
            self._watched[name] = _Watched(record, tree, promise)
        if not drafter.is_instant and len(tree) > 1:
            self._learn_price(name, length, behind, max(tree.depths), seconds)
            record.is_whole = len(tree) - 1 < guesses
            if record.shape is None or len(tree) >= len(record.shape) or record.is_whole:
                record.shape = tree
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
        self, name: str, record: Record, context: Context, budget: int, rows: list[float], pace: float
    ) -> tuple[Offer, DraftTree]:
        """The best part of what somebody guesses at once. Who is asked in vain too often is asked less often."""
        tree, seconds = self._ask(name, context, budget)
        record.question += LEARNING * (seconds - record.question)
        offer, kept = best_part(name, record, tree, rows, pace)
        gain = max(offer.tokens * rows[1] - offer.seconds, 0.0) if len(kept) > 1 else 0.0
        record.gain += LEARNING * (gain - record.gain)
        pays = record.gain > record.question or record.question < ALLOWANCE / 4 * rows[1]
        record.silence = 1 if pays or gain > 0 else min(record.silence + 1, LONGEST_SILENCE)
        record.next_question = self.memory.steps + record.silence
        if len(tree) > 1:
            self._tally.offers[name] = offer
        return offer, kept

    def _expected(
        self, name: str, record: Record, context: Context, budget: int, rows: list[float], pace: float
    ) -> Offer | None:
        """The best that somebody who has to compute is expected to bring; None when the price is not known yet."""
        length = len(context.tokens)
        curve = self.costs.draft(name, length)
        prices = curve.up_to(budget) if curve is not None else None
        if prices is None:
            return None
        chances, sizes = foreseen(record, budget)
        behind = length - self._known[name]
        late = behind * self.memory.reading.get(name, 0.0) / HORIZON * 2 if behind > CATCHING_UP else 0.0
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
            offer = next((each for each in dear if each.name == name), None)
            guesses = min((2 if self._is_hot else 1) if offer is None else offer.guesses, context.budget)
            gap = 0.0 if offer is None else max(best.worth(pace) - offer.worth(pace), 0.0)
            if not self._may_spend(gap / pace) or not self._can_pay(name, context, rows):
                continue
            tried, seconds = self._ask(name, context, guesses)
            if len(tried) > 1 and self.costs.draft(name, len(context.tokens)) is None:
                # once more, with nothing to catch up with: that is the price
                tried, seconds = self._ask(name, context, guesses)
            loss = min(seconds, FIRST_ALLOWANCE * rows[1]) if offer is None else max(gap, WORTH) / pace
            memory.allowance = (memory.allowance or 0.0) - loss
            if offer is not None or len(tried) == 1:
                limit = max(int(LONGEST_REST * min(gap / FAR, 1.0)), SHORTEST_REST)
                record.rest = min(record.rest * (2 if gap < FAR else 4), limit)
                record.next_try = memory.steps + record.rest
            found, part = best_part(name, record, tried, rows, pace, promise=0)
            return (found, part) if found.worth(pace) > best.worth(pace) and len(part) > 1 else (best, tree)
        return best, tree

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


def promised(tree: DraftTree) -> int:
    """Which class a tree belongs to, by how far its first chain reaches: a long match is trusted further."""
    depth, node = 0, ROOT
    while node + 1 < len(tree) and tree.parents[node + 1] == node:
        node += 1
        depth += 1
    return sum(depth > length for length in LENGTHS)


def foreseen(record: Record, budget: int) -> tuple[list[float], list[tuple[int, int]]]:
    """How likely each node of the next tree is to be kept, and its levels: how deep, and how many guesses so far.

    As the largest tree of late; where that was all that was asked for, with as many levels and two more like its last.
    """
    shape = record.shape
    if shape is None:
        shape = DraftTree(0)
        shape.add_chain(list(range(1, min(budget, 2) + 1)))
    chances, depths = record.chances(shape, 0)[: budget + 1], shape.depths[: budget + 1]
    sizes = [
        (depths[node], node)
        for node in range(1, len(depths))
        if node + 1 == len(depths) or depths[node + 1] > depths[node]
    ]
    if record.is_whole or not sizes:
        return chances, sizes
    first, sibling = record.rates(0)
    breadth = min(shape.depths.count(shape.depths[-1]), 2)
    leader = max(chances[-breadth:])
    for level in range(shape.depths[-1] + 1, 2 * shape.depths[-1] + 3):
        if len(chances) + breadth > budget + 1:
            break
        depth = min(level, DEPTHS) - 1
        chances += [leader * first[depth], leader * sibling[depth]][:breadth]
        leader *= first[depth]
        sizes.append((level, len(chances) - 1))
    return chances, sizes


def best_part(
    name: str, record: Record, tree: DraftTree, rows: list[float], pace: float, promise: int | None = None
) -> tuple[Offer, DraftTree]:
    """The guesses of a tree that are worth their rows, and what they promise; what they cost to make is spent."""
    if len(tree) == 1:
        return Offer(name, 0, 1.0, rows[1]), tree
    chances = record.chances(tree, promised(tree) if promise is None else promise)
    order = range(1, len(tree))
    if not tree.is_chain:
        order = sorted(order, key=lambda node: -chances[node])  # stable, so parents stay before their children
    tokens, kept, most, at = 1.0, 0, 1.0 - pace * rows[1], 1.0
    for count, node in enumerate(order[: len(rows) - 2], start=1):
        tokens += chances[node]
        if tokens - pace * rows[count + 1] > most:
            kept, most, at = count, tokens - pace * rows[count + 1], tokens
    return Offer(name, kept, at, rows[kept + 1]), tree if kept == len(tree) - 1 else tree.cut(sorted(order[:kept]))
