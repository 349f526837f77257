"""What each drafter brought, summed over the stored answers by drafter, task or day. Reads the history only."""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cache

from specchat.chat.events import Totals
from specchat.chat.request_kinds import first_matching_rule
from specchat.chat.sum_totals import add_totals
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader, StoredTurn
from specchat.host.protocol import request_from_json, totals_from_json
from specchat.profile.keys import RouteRule
from specchat.profile.profile_files import load_profile

ALL_ANSWERS = "all"


@dataclass
class AnswerTotals:
    name: str
    answers: int = 0
    totals: Totals = Totals()  # the sum
    tokens_with_steps: int = 0  # tokens of answers whose steps are known; a server may not report them

    def add(self, totals: Totals) -> None:
        self.answers += 1
        self.totals = add_totals(self.totals, totals)
        self.tokens_with_steps += totals.completion_tokens if totals.steps else 0

    def cells(self) -> list[str]:
        totals = self.totals
        accepted = sorted(totals.accepted_by_drafter.items(), key=lambda item: -item[1])
        speedup, rate, speed = totals.speedup, totals.acceptance.rate, totals.tokens_per_second
        return [
            self.name,
            str(self.answers),
            str(totals.completion_tokens),
            "" if speed is None else f"{speed:.0f}",
            f"{self.tokens_with_steps / totals.steps:.2f}" if totals.steps else "",
            "" if speedup is None else speedup.text,
            "" if rate is None else f"{rate:.0%}",
            totals.acceptance.by_depth,
            ", ".join(f"{name} {count}" for name, count in accepted if count),
        ]


def by_task(turn: StoredTurn) -> str:
    """The command that asked, or the kind of question by the shipped rules."""
    try:
        request = request_from_json(turn.request)
    except UsageError:
        return "unknown"  # written by another version, with other fields
    rule = first_matching_rule(_shipped_rules(), request, request.temperature or 0.0)
    return request.task or (rule.kind if rule else "chat")


GROUPINGS: dict[str, Callable[[StoredTurn], str]] = {
    "variant": lambda turn: turn.answer.variant,
    "task": by_task,
    "day": lambda turn: time.strftime("%Y-%m-%d", time.localtime(turn.started)),  # the local day of the question
}


def sum_by_group(turns: Iterable[StoredTurn], grouping: str = "variant") -> list[AnswerTotals]:
    """Sums by group, and of all answers; answers without a token are ignored.

    Days are in their order, other groups by their tokens, the most first.
    """
    sums, everything = dict[str, AnswerTotals](), AnswerTotals(ALL_ANSWERS)
    for turn in turns:
        totals = totals_from_json(turn.totals)
        if totals.completion_tokens:
            name = GROUPINGS[grouping](turn)
            sums.setdefault(name, AnswerTotals(name)).add(totals)
            everything.add(totals)
    ordered = sorted(sums.values(), key=lambda each: each.name if grouping == "day" else -each.totals.completion_tokens)
    return [*ordered, everything] if len(ordered) > 1 else ordered


def all_turns(reader: HistoryReader) -> Iterator[StoredTurn]:
    """Every turn once, however many conversations share it."""
    seen = set[str]()
    for thread in reader.threads():
        for turn in reader.turns(thread.tip):
            if turn.id not in seen:
                seen.add(turn.id)
                yield turn


@cache
def _shipped_rules() -> tuple[RouteRule, ...]:
    return load_profile("chat").routes
