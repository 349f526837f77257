"""What each drafter brought, summed over the stored answers by drafter, task or day. Reads the history only."""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cache

from specchat.acceptance_counts import Acceptance
from specchat.chat.events import Speedup, Totals, speedup_of_sums
from specchat.chat.request_kinds import first_matching_rule
from specchat.errors import UsageError
from specchat.history.history_reader import HistoryReader, StoredTurn
from specchat.host.protocol import request_from_json, totals_from_json
from specchat.profile import RouteRule, load_profile

ALL_ANSWERS = "all"


@dataclass
class AnswerTotals:
    name: str
    answers: int = 0
    tokens: int = 0
    steps: int = 0
    tokens_with_steps: int = 0  # tokens of answers whose steps are known; a server may not report them
    draft_tokens: int = 0
    seconds: float = 0.0  # from the requests to the ends of the texts
    repeated_tokens: int = 0  # cut off, and in no other number
    compared_decode_seconds: float = 0.0  # of answers for which the time of plain decoding is known
    plain_seconds: float = 0.0  # of plain decoding for the same answers
    plain_error_seconds: float = 0.0  # half of its 95 % interval
    acceptance: Acceptance = Acceptance()
    accepted_by_drafter: Counter[str] = field(default_factory=Counter[str])

    def add(self, totals: Totals) -> None:
        self.answers += 1
        self.tokens += totals.completion_tokens
        self.steps += totals.steps
        self.tokens_with_steps += totals.completion_tokens if totals.steps else 0
        self.draft_tokens += totals.draft_tokens
        self.seconds += totals.total_seconds
        self.repeated_tokens += totals.repeated_tokens
        self.acceptance += totals.acceptance
        self.accepted_by_drafter.update(totals.accepted_by_drafter)
        if totals.plain_decode_seconds:
            self.compared_decode_seconds += totals.decode_seconds
            self.plain_seconds += totals.plain_decode_seconds
            self.plain_error_seconds += totals.plain_decode_error * totals.plain_decode_seconds

    @property
    def speedup(self) -> Speedup | None:
        """Speed relative to plain decoding; None without draft tokens, or when it is unknown."""
        if not self.draft_tokens:
            return None
        return speedup_of_sums(self.plain_seconds, self.plain_error_seconds, self.compared_decode_seconds)

    def cells(self) -> list[str]:
        accepted = ", ".join(f"{name} {count}" for name, count in self.accepted_by_drafter.most_common() if count)
        speedup, rate = self.speedup, self.acceptance.rate
        return [
            self.name,
            str(self.answers),
            str(self.tokens),
            f"{self.tokens / self.seconds:.0f}" if self.seconds else "",
            f"{self.tokens_with_steps / self.steps:.2f}" if self.steps else "",
            "" if speedup is None else speedup.text,
            "" if rate is None else f"{rate:.0%}",
            self.acceptance.by_depth,
            accepted,
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
    ordered = sorted(sums.values(), key=lambda each: each.name if grouping == "day" else -each.tokens)
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
