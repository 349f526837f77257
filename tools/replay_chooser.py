"""Recorded guesses, replayed through the real chooser against a table of costs: seconds without a clock.

A trace says what each drafter guessed at every place of an answer, and which guesses held; the text is the same whoever
drafts, so it holds for every choice. Loads no model.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specchat.chooser.chooser import Chooser
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.engine.accept import accept
from specchat.engine.drafter import DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

MAX_ROWS = 128  # rows of a table
MAX_DRAFT_TOKENS = 16  # guesses


@dataclass(frozen=True)
class RecordedTree:
    """One tree of a trace: the parent of each guess, and how many hold on which path."""

    parents: tuple[int, ...] = ()
    accepted_path: tuple[int, ...] = ()  # nodes that held

    @classmethod
    def parse(cls, text: str) -> RecordedTree:
        """`8:3` is a chain of 8 of which 3 held; `0,1,0|3` are the parents, and the path; `-` is no guess."""
        if text == "-":
            return cls()
        if ":" in text:
            length, held = map(int, text.split(":"))
            return cls(tuple(range(length)), tuple(range(1, held + 1)))
        parents, _, path = text.partition("|")
        return cls(tuple(map(int, parents.split(","))), tuple(int(node) for node in path.split(",") if node))

    def to_text(self) -> str:
        """The string that `read` reads."""
        if not self.parents:
            return "-"
        if self.parents == tuple(range(len(self.parents))):
            return f"{len(self.parents)}:{len(self.accepted_path)}"
        return f"{','.join(map(str, self.parents))}|{','.join(map(str, self.accepted_path))}"


@dataclass(frozen=True)
class Trace:
    """One answer: what each drafter would have guessed at every place of it."""

    kind: str
    temperature: float
    trees_by_drafter: Mapping[str, tuple[RecordedTree, ...]]  # by drafter, one for each token of the answer

    @property
    def tokens(self) -> int:
        """Length of the answer."""
        return len(next(iter(self.trees_by_drafter.values())))


@dataclass(frozen=True)
class CostTable:
    """What things cost on some machine: seconds of a pass by rows, and of a drafter: `once + depth * each`."""

    name: str
    pass_seconds_by_rows: Mapping[int, float]
    draft_costs: Mapping[str, tuple[float, float]]

    def pass_seconds(self) -> list[float]:
        """Seconds of a pass over 0, 1, 2, ... rows."""
        return Curve(dict(self.pass_seconds_by_rows)).seconds_up_to(MAX_ROWS) or []


def read_traces(folder: Path) -> list[Trace]:
    """Every `traces-*.json` of a folder."""
    return [_trace(row) for file in sorted(folder.glob("traces-*.json")) for row in json.loads(file.read_text())]


def _trace(row: Mapping[str, Any]) -> Trace:
    guessed = {name: tuple(map(RecordedTree.parse, spelled.split())) for name, spelled in row["guessed"].items()}
    return Trace(row["kind"], row["temperature"], guessed)


def write_traces(file: Path, traces: Iterable[Trace]) -> None:
    """One row for each answer."""
    rows = [
        {
            "kind": trace.kind,
            "temperature": trace.temperature,
            "guessed": {
                name: " ".join(shape.to_text() for shape in shapes) for name, shapes in trace.trees_by_drafter.items()
            },
        }
        for trace in traces
    ]
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def read_cost_tables(file: Path) -> list[CostTable]:
    """Tables of costs."""
    return [
        CostTable(
            row["name"],
            {int(count): seconds for count, seconds in row["rows"].items()},
            {name: (once, each) for name, (once, each) in row["drafters"].items()},
        )
        for row in json.loads(file.read_text())
    ]


class SimulatedClock:
    """Time that passes only when somebody says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds since the beginning."""
        return self.now


class RecordedDrafter(Drafter):
    """A drafter that guesses what was recorded, and takes as long as the table says."""

    def __init__(self, name: str, price: tuple[float, float], clock: SimulatedClock) -> None:
        self.name, self.cost, self.clock = name, price, clock
        self.is_instant = name in ("lookup", "suffix")
        self.trees: Sequence[RecordedTree] = ()
        self.propose_count = 0

    def propose(self, context: DraftContext) -> DraftTree:
        """The recorded tree, as far as the budget goes."""
        place, tree = len(context.tokens) - 1, DraftTree(context.tokens[-1])
        shape = self.trees[place]
        for node, parent in enumerate(shape.parents[: self._complete_levels(shape, context.max_draft_tokens)], start=1):
            token = place + tree.depths[parent] + 1 if node in shape.accepted_path else -node
            tree.add(token, parent, self.name)
        once, each = self.cost
        self.clock.now += once + each * max(tree.depths)
        self.propose_count += 1
        return tree

    def _complete_levels(self, shape: RecordedTree, budget: int) -> int:
        """Guesses within a budget; who computes level by level gives no part of one."""
        most = min(budget, len(shape.parents))
        if self.is_instant:
            return most
        while 0 < most < len(shape.parents) and shape.parents[most] == shape.parents[most - 1]:
            most -= 1
        return most


@dataclass(frozen=True)
class ReplayedStep:
    """One replayed step: what it took and what it brought."""

    seconds: float
    tokens: int
    draft_tokens: int
    drafter: str


class Replayer:
    """Replays traces with one drafter, or with the chooser over all of them.

    The chooser knows what passes cost, or begins with what `believed` says of them and of the drafters.
    """

    def __init__(self, table: CostTable, budget: int = MAX_DRAFT_TOKENS, initial_costs: Costs | None = None) -> None:
        self.table, self.budget, self.clock = table, budget, SimulatedClock()
        self.drafters = {name: RecordedDrafter(name, price, self.clock) for name, price in table.draft_costs.items()}
        self.pass_seconds = table.pass_seconds()
        costs = initial_costs or Costs({1024: Curve(dict(table.pass_seconds_by_rows))})
        self.chooser = Chooser(self.drafters, costs, clock=self.clock)

    def replay(self, trace: Trace, drafter: Drafter | None = None, draft_tokens: int = 0) -> Iterator[ReplayedStep]:
        """One answer. Without a drafter the chooser writes it; a `guesses` of 0 is the whole budget."""
        drafter = drafter or self.chooser
        for name, tape in self.drafters.items():
            tape.trees = trace.trees_by_drafter[name]
        text, sampler = [0], Sampler(trace.temperature)
        self.chooser.forget(0)
        while (left := trace.tokens + 1 - len(text)) > 0:
            begun, budget = self.clock.now, min(draft_tokens or self.budget, left - 1)
            root = DraftTree(text[-1])
            tree = drafter.propose(DraftContext(text, sampler, budget)) if budget else root
            drafted = self.clock.now
            self.clock.now += self.pass_seconds[len(tree)]
            picks = [len(text) + tree.depths[node] if token >= 0 else -1 for node, token in enumerate(tree.tokens)]
            outcome = Outcome(
                tree, accept(tree, picks), picks, len(text) - 1,
                draft_seconds=drafted - begun, verify_seconds=self.clock.now - drafted,
            )  # fmt: skip
            drafter.observe(outcome)
            text += outcome.committed_tokens
            source = tree.sources[1] if len(tree) > 1 else "plain"
            yield ReplayedStep(self.clock.now - begun, len(outcome.committed_tokens), len(tree) - 1, source)


def seconds_per_token(steps: Sequence[ReplayedStep]) -> float:
    """Mean time of a token."""
    return sum(step.seconds for step in steps) / sum(step.tokens for step in steps)


@dataclass(frozen=True)
class FixedSizeReplay:
    """How one drafter of a fixed size goes through answers. That does not hang on what things cost."""

    steps: Mapping[tuple[int, int], int]  # how often so many guesses came, so deep
    propose_count: int
    tokens: int

    def seconds_per_token(self, pass_seconds: Sequence[float], cost: tuple[float, float]) -> float:
        """Mean time of a token, where passes and this drafter cost so much."""
        once, each = cost
        spent = sum(
            times * (pass_seconds[guesses + 1] + each * depth) for (guesses, depth), times in self.steps.items()
        )
        return (spent + once * self.propose_count) / self.tokens


def replay_fixed_size(traces: Sequence[Trace], name: str, draft_tokens: int) -> FixedSizeReplay:
    """Answers by one drafter alone; passes are free, so that what a step takes is its depth."""
    player = Replayer(CostTable("free", {1: 0.0}, {name: (0.0, 1.0)}))
    steps = [step for trace in traces for step in player.replay(trace, player.drafters[name], draft_tokens)]
    found = Counter((step.draft_tokens, round(step.seconds)) for step in steps)
    return FixedSizeReplay(found, player.drafters[name].propose_count, sum(step.tokens for step in steps))


def best_fixed_drafter(
    traces: Sequence[Trace], table: CostTable, sizes: Sequence[int] = range(1, MAX_DRAFT_TOKENS + 1)
) -> tuple[str, float]:
    """The best of all drafters and fixed sizes in hindsight, nobody included: who, and seconds for each token."""
    passes, found = table.pass_seconds(), {"plain": table.pass_seconds_by_rows[1]}
    for name, price in table.draft_costs.items():
        for guesses in sizes:
            found[f"{name} {guesses}"] = replay_fixed_size(traces, name, guesses).seconds_per_token(passes, price)
    best = min(found, key=lambda each: found[each])
    return best, found[best]


def gpu_like_costs(name: str, pass_seconds: float, draft: float, lookup: float = 0.0002) -> CostTable:
    """A machine where rows cost nothing more, as a GPU does for a few rows. Prices as shares of a plain pass."""
    rows = {1: 1.0, 16: 1.06, 64: 1.3}
    return relative_cost_table(name, pass_seconds, rows, draft, lookup)


def cpu_like_costs(name: str, pass_seconds: float, draft: float, lookup: float = 0.005) -> CostTable:
    """A machine where each row costs, as a CPU does."""
    return relative_cost_table(name, pass_seconds, {1: 1.0, 4: 1.6, 16: 4.0}, draft, lookup)


def relative_cost_table(
    name: str, pass_seconds: float, rows: Mapping[int, float], draft: float, lookup: float
) -> CostTable:
    """A table from shares of a plain pass."""
    return CostTable(
        name, {count: pass_seconds * share for count, share in rows.items()},
        {"lookup": (pass_seconds * lookup, 0.0), "draft": (0.0, pass_seconds * draft)},
    )  # fmt: skip
