"""Replays recorded draft trees through the real chooser with a table of costs: simulated seconds, no clock.

A trace holds what each drafter proposed at every position of an answer, and which draft tokens were accepted. The text
is the same for every drafter, so a trace is valid for every choice. Loads no model.

`python -m tools.replay_chooser FOLDER` prints what the first answer of a process gains from what is stored of others,
with `--decisions` how long a decision takes, and with `--trees` which trees of the head it verifies.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

from specchat.chooser.chooser import Chooser
from specchat.chooser.costs import Costs
from specchat.chooser.curve import Curve
from specchat.chooser.learned_file import MAX_EARLIER_DRAFTS
from specchat.chooser.state import ChooserState
from specchat.engine.accept import accept
from specchat.engine.drafter import AnswerTask, DraftContext, Drafter, Outcome
from specchat.engine.sampling import Sampler
from specchat.engine.tree import DraftTree

MAX_ROWS = 128  # of a cost table
MAX_DRAFT_TOKENS = 16
DECISION_REPLAYS = 9
COMPARED_SIZES = (3, 4, 12)  # draft tokens of the head alone


@dataclass(frozen=True)
class RecordedTree:
    """One tree of a trace: the parent of each draft token, and the accepted path."""

    parents: tuple[int, ...] = ()
    accepted_path: tuple[int, ...] = ()  # nodes

    @classmethod
    def parse(cls, text: str) -> RecordedTree:
        """`8:3` is a chain of 8 with 3 accepted; `0,1,0|3` are parents and the accepted path; `-` is an empty tree."""
        if text == "-":
            return cls()
        if ":" in text:
            length, accepted = map(int, text.split(":"))
            return cls(tuple(range(length)), tuple(range(1, accepted + 1)))
        parents, _, path = text.partition("|")
        return cls(tuple(map(int, parents.split(","))), tuple(int(node) for node in path.split(",") if node))

    def to_text(self) -> str:
        """The text that `parse` reads."""
        if not self.parents:
            return "-"
        if self.parents == tuple(range(len(self.parents))):
            return f"{len(self.parents)}:{len(self.accepted_path)}"
        return f"{','.join(map(str, self.parents))}|{','.join(map(str, self.accepted_path))}"


@dataclass(frozen=True)
class Trace:
    """One answer: the tree of each drafter at every position."""

    kind: str
    temperature: float
    trees_by_drafter: Mapping[str, tuple[RecordedTree, ...]]  # one tree for each token of the answer

    @property
    def tokens(self) -> int:
        """Length of the answer."""
        return len(next(iter(self.trees_by_drafter.values())))


@dataclass(frozen=True)
class CostTable:
    """The costs of a machine: seconds of a pass by rows, and of a proposal: `once + depth * each`."""

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
    trees = {name: tuple(map(RecordedTree.parse, text.split())) for name, text in row["trees_by_drafter"].items()}
    return Trace(row["kind"], row["temperature"], trees)


def write_traces(file: Path, traces: Iterable[Trace]) -> None:
    """Write one row for each answer."""
    rows = [
        {
            "kind": trace.kind,
            "temperature": trace.temperature,
            "trees_by_drafter": {
                name: " ".join(shape.to_text() for shape in shapes) for name, shapes in trace.trees_by_drafter.items()
            },
        }
        for trace in traces
    ]
    file.write_text("[\n" + ",\n".join(json.dumps(row) for row in rows) + "\n]\n")


def read_cost_tables(file: Path) -> list[CostTable]:
    """Read the tables of a file."""
    return [
        CostTable(
            row["name"],
            {int(count): seconds for count, seconds in row["rows"].items()},
            {name: (once, each) for name, (once, each) in row["drafters"].items()},
        )
        for row in json.loads(file.read_text())
    ]


class SimulatedClock:
    """A clock that advances only when it is told to."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """Seconds since the start."""
        return self.now


class RecordedDrafter(Drafter):
    """A drafter that proposes the recorded trees at the cost of the table."""

    def __init__(self, name: str, cost: tuple[float, float], clock: SimulatedClock) -> None:
        self.name, self.cost, self.clock = name, cost, clock
        self.is_instant = name == "suffix"
        self.trees: Sequence[RecordedTree] = ()
        self.propose_count, self.real_seconds = 0, 0.0

    def propose(self, context: DraftContext) -> DraftTree:
        """The recorded tree within the budget."""
        started_at = perf_counter()
        position, tree = len(context.tokens) - 1, DraftTree(context.tokens[-1])
        shape = self.trees[position]
        for node, parent in enumerate(shape.parents[: context.max_draft_tokens], start=1):
            token = position + tree.depths[parent] + 1 if node in shape.accepted_path else -node
            tree.add(token, parent, self.name)
        once, each = self.cost
        self.clock.now += once + each * max(tree.depths)
        self.propose_count += 1
        self.real_seconds += perf_counter() - started_at
        return tree


@dataclass(frozen=True)
class ReplayedStep:
    """One replayed step."""

    seconds: float
    tokens: int
    depths: tuple[int, ...]  # of the draft tokens
    drafter: str

    @property
    def draft_tokens(self) -> int:
        return len(self.depths)


class Replayer:
    """Replays traces with one drafter, or with the chooser over all of them.

    The chooser knows the costs of passes, or starts with `initial_costs`.
    """

    def __init__(self, table: CostTable, budget: int = MAX_DRAFT_TOKENS, initial_costs: Costs | None = None) -> None:
        self.budget, self.clock = budget, SimulatedClock()
        self.drafters = {name: RecordedDrafter(name, cost, self.clock) for name, cost in table.draft_costs.items()}
        self.change_machine(table)
        costs = initial_costs or Costs({1024: Curve(dict(table.pass_seconds_by_rows))})
        self.chooser = Chooser(self.drafters, costs, clock=self.clock)

    def change_machine(self, table: CostTable) -> None:
        """Let passes and drafts cost what this table says from now on."""
        self.pass_seconds = table.pass_seconds()
        for name, drafter in self.drafters.items():
            drafter.cost = table.draft_costs[name]

    def replay(self, trace: Trace, drafter: Drafter | None = None, draft_tokens: int = 0) -> Iterator[ReplayedStep]:
        """Replay one answer. Without a drafter the chooser is used; `draft_tokens` 0 is the whole budget."""
        drafter = drafter or self.chooser
        for name, recorded in self.drafters.items():
            recorded.trees = trace.trees_by_drafter[name]
        text, sampler = [0], Sampler(trace.temperature)
        self.chooser.forget(0)
        while (left := trace.tokens + 1 - len(text)) > 0:
            started_at, budget = self.clock.now, min(draft_tokens or self.budget, left - 1)
            root = DraftTree(text[-1])
            tree = drafter.propose(DraftContext(text, sampler, budget)) if budget else root
            drafted_at = self.clock.now
            self.clock.now += self.pass_seconds[len(tree)]
            sampled_tokens = [
                len(text) + tree.depths[node] if token >= 0 else -1 for node, token in enumerate(tree.tokens)
            ]
            outcome = Outcome(
                tree, accept(tree, sampled_tokens), sampled_tokens, len(text) - 1,
                draft_seconds=drafted_at - started_at, verify_seconds=self.clock.now - drafted_at,
            )  # fmt: skip
            drafter.observe(outcome)
            text += outcome.committed_tokens
            source = tree.sources[1] if len(tree) > 1 else "plain"
            yield ReplayedStep(
                self.clock.now - started_at, len(outcome.committed_tokens), tuple(tree.depths[1:]), source
            )


def seconds_per_token(steps: Sequence[ReplayedStep]) -> float:
    """Mean time of a token."""
    return sum(step.seconds for step in steps) / sum(step.tokens for step in steps)


@dataclass(frozen=True)
class FixedSizeReplay:
    """The steps of one drafter with a fixed size; they do not depend on costs."""

    steps: Mapping[tuple[int, int], int]  # (draft tokens, depth) -> count
    propose_count: int
    tokens: int

    def seconds_per_token(self, pass_seconds: Sequence[float], cost: tuple[float, float]) -> float:
        """Mean time of a token with these costs."""
        once, each = cost
        spent = sum(
            times * (pass_seconds[draft_tokens + 1] + each * depth)
            for (draft_tokens, depth), times in self.steps.items()
        )
        return (spent + once * self.propose_count) / self.tokens


def replay_fixed_size(traces: Sequence[Trace], name: str, draft_tokens: int) -> FixedSizeReplay:
    """Replay one drafter alone; passes are free, so that the time of a step is its depth."""
    player = Replayer(CostTable("free", {1: 0.0}, {name: (0.0, 1.0)}))
    steps = [step for trace in traces for step in player.replay(trace, player.drafters[name], draft_tokens)]
    counts = Counter((step.draft_tokens, round(step.seconds)) for step in steps)
    return FixedSizeReplay(counts, player.drafters[name].propose_count, sum(step.tokens for step in steps))


def best_fixed_drafter(
    traces: Sequence[Trace], table: CostTable, sizes: Sequence[int] = range(1, MAX_DRAFT_TOKENS + 1)
) -> tuple[str, float]:
    """The best drafter and fixed size in hindsight, plain decoding included: name and seconds per token."""
    pass_seconds, seconds = table.pass_seconds(), {"plain": table.pass_seconds_by_rows[1]}
    for name, cost in table.draft_costs.items():
        for draft_tokens in sizes:
            seconds[f"{name} {draft_tokens}"] = replay_fixed_size(traces, name, draft_tokens).seconds_per_token(
                pass_seconds, cost
            )
    best = min(seconds, key=lambda each: seconds[each])
    return best, seconds[best]


def gpu_like_costs(name: str, pass_seconds: float, draft: float, lookup: float = 0.0002) -> CostTable:
    """A machine where a few more rows cost almost nothing, like a GPU. Costs are relative to a plain pass."""
    rows = {1: 1.0, 16: 1.06, 64: 1.3}
    return relative_cost_table(name, pass_seconds, rows, draft, lookup)


def cpu_like_costs(name: str, pass_seconds: float, draft: float, lookup: float = 0.005) -> CostTable:
    """A machine where every row costs, like a CPU."""
    return relative_cost_table(name, pass_seconds, {1: 1.0, 4: 1.6, 16: 4.0}, draft, lookup)


def relative_cost_table(
    name: str, pass_seconds: float, rows: Mapping[int, float], draft: float, lookup: float
) -> CostTable:
    """A table from costs relative to a plain pass."""
    return CostTable(
        name, {count: pass_seconds * share for count, share in rows.items()},
        {"suffix": (pass_seconds * lookup, 0.0), "eagle3": (0.0, pass_seconds * draft)},
    )  # fmt: skip


@dataclass(frozen=True)
class FirstAnswers:
    """The first answers of processes, relative to plain decoding: without stored acceptance, and with it."""

    table: str
    kind: str
    temperature: float
    fresh: float
    learned: float


def first_answers(tables: Sequence[CostTable], traces: Sequence[Trace]) -> Iterator[FirstAnswers]:
    """Each answer is the first of a process; the other ones of its kind were those of an earlier process."""
    groups = dict.fromkeys((trace.kind, trace.temperature) for trace in traces)
    for table in tables:
        for kind, temperature in groups:
            group = [trace for trace in traces if (trace.kind, trace.temperature) == (kind, temperature)]
            fresh, learned = list[ReplayedStep](), list[ReplayedStep]()
            for trace in group:
                earlier, first, later = Replayer(table), Replayer(table), Replayer(table)
                _answer(earlier, [other for other in group if other is not trace])
                counts = earlier.chooser.state.learned_counts()
                later.chooser.state = ChooserState(
                    {
                        key: each.scaled(min(MAX_EARLIER_DRAFTS / each.trials[0], 1.0)) for key, each in counts.items()
                    }
                )  # fmt: skip
                fresh += _answer(first, [trace])
                learned += _answer(later, [trace])
            plain = table.pass_seconds_by_rows[1]
            yield FirstAnswers(
                table.name, kind, temperature, plain / seconds_per_token(fresh), plain / seconds_per_token(learned)
            )


def _answer(player: Replayer, traces: Sequence[Trace]) -> list[ReplayedStep]:
    steps = list[ReplayedStep]()
    for trace in traces:
        copies = trace.kind in ("edit", "files")
        order = ("suffix", "eagle3", "plain") if copies else ("eagle3", "suffix", "plain")
        player.chooser.start_answer(AnswerTask(trace.kind, order, is_private=False))
        steps += player.replay(trace)
    return steps


@dataclass(frozen=True)
class ChosenTrees:
    """The mean of what the chooser verified of the head's trees."""

    table: str
    temperature: float
    steps: int
    draft_tokens: float
    depth: float
    first_tokens: float  # beside each other after the text
    widest: float  # most tokens of the same depth
    tokens_per_step: float
    speedup: float  # of the whole replay, with all drafters

    @classmethod
    def of(cls, table: CostTable, traces: Sequence[Trace]) -> ChosenTrees:
        """By a fresh engine that writes these answers one after another."""
        steps = _answer(Replayer(table), traces)
        drafted = [step for step in steps if step.drafter == "eagle3"]
        return cls(
            table.name, traces[0].temperature, len(drafted),
            fmean(step.draft_tokens for step in drafted),
            fmean(max(step.depths) for step in drafted),
            fmean(step.depths.count(1) for step in drafted),
            fmean(max(Counter(step.depths).values()) for step in drafted),
            fmean(step.tokens for step in drafted),
            table.pass_seconds_by_rows[1] / seconds_per_token(steps),
        )  # fmt: skip


def print_trees(tables: Sequence[CostTable], traces: Sequence[Trace]) -> None:
    """The trees that were chosen, and what the head earns alone with few and with many draft tokens."""
    names = ["costs", "T", "steps with the head", "draft tokens", "depth", "first tokens", "widest", "tokens"]
    names += ["auto / plain", *(f"head alone, {size}" for size in COMPARED_SIZES)]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")
    for temperature in sorted({trace.temperature for trace in traces}):
        same = [trace for trace in traces if trace.temperature == temperature]
        alone = [replay_fixed_size(same, "eagle3", size) for size in COMPARED_SIZES]
        for table in tables:
            row, costs = ChosenTrees.of(table, same), (table.pass_seconds(), table.draft_costs["eagle3"])
            means = (row.draft_tokens, row.depth, row.first_tokens, row.widest, row.tokens_per_step)
            speeds = [table.pass_seconds_by_rows[1] / each.seconds_per_token(*costs) for each in alone]
            cells = [row.table, f"{temperature:g}", f"{row.steps}", *(f"{mean:.1f}" for mean in means)]
            print(f"| {' | '.join([*cells, *(f'{speed:.2f}' for speed in (row.speedup, *speeds))])} |")


class TimedChooser(Chooser):
    """Notes the seconds of its decisions by the real clock, without those of the drafters."""

    def __init__(self, player: Replayer) -> None:
        super().__init__(player.drafters, player.chooser.costs, clock=player.clock)
        self.recorded, self.decisions = tuple(player.drafters.values()), list[float]()

    def propose(self, context: DraftContext) -> DraftTree:
        is_active = self.state.steps + 1 >= self._idle_until_step
        started_at = perf_counter() - self._drafting_seconds()
        tree = super().propose(context)
        if is_active:
            self.decisions.append(perf_counter() - self._drafting_seconds() - started_at)
        return tree

    def _drafting_seconds(self) -> float:
        return sum(drafter.real_seconds for drafter in self.recorded)


def decision_seconds(table: CostTable, traces: Sequence[Trace]) -> list[float]:
    """The time of each decision that is active: the least of nine replays, which are equal, as other load only adds."""
    replays = list[list[float]]()
    for _ in range(DECISION_REPLAYS):
        player = Replayer(table)
        player.chooser = chooser = TimedChooser(player)
        for trace in traces:
            for _step in player.replay(trace):
                pass
        replays.append(chooser.decisions)
    return [min(same) for same in zip(*replays, strict=True)]


def main() -> None:
    folder = Path(sys.argv[1])
    if "--decisions" in sys.argv:
        for table in read_cost_tables(folder / "costs-cpu.json"):
            seconds = decision_seconds(table, read_traces(folder))
            print(f"{table.name}: {len(seconds)} decisions, median {1e6 * median(seconds):.0f} us")
        return
    if "--trees" in sys.argv:
        tables = read_cost_tables(folder / "costs-cpu.json")
        tables += [cpu_like_costs("steep", 0.1, draft=0.15), gpu_like_costs("flat", 0.01, draft=0.15)]
        print_trees(tables, read_traces(folder))
        return
    tables = [*read_cost_tables(folder / "costs-cpu.json"), gpu_like_costs("flat", 0.01, draft=0.15)]
    tables += [cpu_like_costs("steep", 0.1, draft=0.15), cpu_like_costs("steep-slow-draft", 0.1, draft=0.6)]
    print("| costs | kind | T | first answer / plain | with stored acceptance |\n|---|---|---|---|---|")
    for row in first_answers(tables, read_traces(folder)):
        print(f"| {row.table} | {row.kind} | {row.temperature:g} | {row.fresh:.3f} | {row.learned:.3f} |")


if __name__ == "__main__":
    main()
