"""A turn in one line, the same in every front end: what it cost, what speculation brought, and why this variant."""

from __future__ import annotations

from specchat.chat.events import Routed, Totals
from specchat.chat.router import COPIES

SEPARATOR = " · "


def summary_line(routed: Routed, totals: Totals) -> str:
    """One line about a finished turn.

    "24 tokens · 200.0 tokens/s · 2.00x plain · 50 % accepted · 2.0 tokens a pass · auto (repeats are copied)"
    """
    return SEPARATOR.join([*_speed(totals), *_speculation(routed, totals), _why(routed, totals)])


def _speed(totals: Totals) -> list[str]:
    parts = [f"{totals.tokens} token{'' if totals.tokens == 1 else 's'}", f"{totals.tokens_per_second:.1f} tokens/s"]
    return parts if totals.times_plain is None else [*parts, f"{totals.times_plain:.2f}x plain"]


def _speculation(routed: Routed, totals: Totals) -> list[str]:
    if totals.tokens and not totals.steps:
        return []  # a server wrote, and does not tell how
    share = totals.accepted_share
    accepted = _nothing(routed, totals) if share is None else f"{share:.0%} accepted".replace("%", " %")
    return [accepted, f"{totals.tokens_per_pass:.1f} tokens a pass"]


def _nothing(routed: Routed, totals: Totals) -> str:
    """Who only copies was asked, and a text without repeats is no fault of his."""
    was_asked = routed.variant in COPIES and totals.tokens > 1
    return f"{routed.variant} found nothing to copy" if was_asked else "nothing guessed"


def _why(routed: Routed, totals: Totals) -> str:
    measured = f"; {totals.why}" if totals.why else ""
    return f"{routed.variant} ({routed.reason}{measured})"
