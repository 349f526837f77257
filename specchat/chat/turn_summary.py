"""A turn in one line, the same in every front end: speed, acceptance, and the reason for the drafter."""

from specchat.chat.events import Routed, Totals
from specchat.chat.router import COPYING_DRAFTERS

SEPARATOR = " · "


def summary_line(routed: Routed, totals: Totals) -> str:
    """One line about a finished turn, with the mean accepted length in tokens/step.

    "24 tokens · 200.0 tokens/s · 2.0x plain · 50 % accepted · 2.0 tokens/step · auto (repeats are copied)"
    """
    measured = f"; {totals.choice_reason}" if totals.choice_reason else ""
    route = f"{routed.variant} ({routed.reason}{measured})"
    return SEPARATOR.join([*_speed(totals), *_speculation(routed, totals), route])


def _speed(totals: Totals) -> list[str]:
    parts = [
        f"{totals.completion_tokens} token{'' if totals.completion_tokens == 1 else 's'}",
        f"{totals.tokens_per_second:.1f} tokens/s",
    ]
    return parts if totals.speedup is None else [*parts, f"{totals.speedup.text}x plain"]


def speedup_to_json(totals: Totals) -> dict[str, float | list[float] | None]:
    """The speed relative to plain decoding and its 95 % interval, for programs; None when unknown."""
    speedup = totals.speedup
    if speedup is None:
        return {"speedup": None, "speedup_interval": None}
    return {"speedup": round(speedup.factor, 2), "speedup_interval": [round(each, 2) for each in speedup.interval]}


def _speculation(routed: Routed, totals: Totals) -> list[str]:
    if totals.completion_tokens and not totals.steps:
        return []  # a server that does not report its steps
    rate = totals.acceptance_rate
    accepted = _no_drafts_text(routed, totals) if rate is None else f"{rate:.0%} accepted".replace("%", " %")
    exactness = [] if totals.is_exact or rate is None else ["near ties may differ"]
    return [accepted, f"{totals.tokens_per_step:.1f} tokens/step", *exactness]


def _no_drafts_text(routed: Routed, totals: Totals) -> str:
    is_copying = routed.variant in COPYING_DRAFTERS and totals.completion_tokens > 1
    return f"{routed.variant} found nothing to copy" if is_copying else "no draft tokens"
