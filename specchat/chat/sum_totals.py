"""The sums of several answers: those that are one turn for the user (tries of an edit, rounds of an agent), and all.

Knows numbers; knows no text and no model.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields, replace
from functools import reduce

from specchat.chat.events import Finished, Totals

NUMBERS = tuple(each.name for each in fields(Totals) if each.type in ("int", "float"))


def sum_totals(finished_turns: Iterable[Finished]) -> Totals:
    """The sum of all answers; the time to the first token is that of the first."""
    return reduce(add_totals, (each.totals for each in finished_turns), Totals())


def add_totals(one: Totals, other: Totals) -> Totals:
    """The sum of two answers; `other` is the later one."""
    sums = {name: getattr(one, name) + getattr(other, name) for name in NUMBERS}
    sums["seconds"] = one.total_seconds + other.total_seconds
    sums["ttft_seconds"] = one.ttft_seconds or other.ttft_seconds
    sums["compared_seconds"] = one.compared_decode_seconds + other.compared_decode_seconds
    errors = (each.plain_decode_error * each.plain_decode_seconds for each in (one, other))
    sums["plain_decode_error"] = sum(errors) / sums["plain_decode_seconds"] if sums["plain_decode_seconds"] else 0.0
    return replace(
        one, **sums, acceptance=one.acceptance + other.acceptance,
        accepted_by_drafter=_sum_by_name(one.accepted_by_drafter, other.accepted_by_drafter),
        steps_by_drafter=_sum_by_name(one.steps_by_drafter, other.steps_by_drafter),
        is_exact=one.is_exact and other.is_exact, drafter_report="", estimates="",
    )  # fmt: skip


def _sum_by_name(one: dict[str, int], other: dict[str, int]) -> dict[str, int]:
    return dict(sorted((Counter(one) + Counter(other)).items()))
