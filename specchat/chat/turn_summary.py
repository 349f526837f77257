"""A turn in words, the same in every front end: one line of numbers, and a longer explanation of the drafter.

The status bar has the words of the line, in the same order (`speed_words`). All say what happened and was measured;
what was only assumed from the kind of the request is told apart.
"""

from specchat.chat.events import Routed, Speedup, Totals
from specchat.chat.router import COPYING_DRAFTERS, PINNED
from specchat.profile.drafter_names import PLAIN

SEPARATOR = " · "
SHORTEST_SHOWN_SECONDS, SECONDS_WITHOUT_TENTHS = 0.1, 2
MIN_SHOWN_WAIT = 0.5  # seconds; shorter ones are not named beside the speed
END_REASON_TEXTS = {
    "stop": "",
    "tool_calls": "calls tools",
    "length": "stopped at the length limit",
    "repetition": "stopped, it repeats itself",
    "cancelled": "stopped, the partial answer is kept",
    "interrupted": "interrupted, the partial answer is kept",
}


def summary_line(totals: Totals, routed: Routed | None = None, finish_reason: str = "") -> str:
    """One line about a finished turn, for the command line and the screen.

    "24 tokens · 200 tokens/s · 2.0x faster · accepted 50 % · suffix 9 of 12 steps"
    """
    speed = speed_words(totals.tokens_per_second, totals.speedup, totals.acceptance.rate)
    parts = [f"{totals.completion_tokens} token{'' if totals.completion_tokens == 1 else 's'}", *speed]
    parts += [*_speculation(totals, routed), thinking_text(totals.thinking_seconds), *waits(totals)]
    return SEPARATOR.join(filter(None, [*parts, END_REASON_TEXTS.get(finish_reason, finish_reason)]))


def speed_words(speed: float | None, speedup: Speedup | None, acceptance: float | None, mark: str = "") -> list[str]:
    """What is known: ["121 tokens/s", "1.6x faster", "accepted 62 %"]; the mark "~" stands before an estimate."""
    words = [] if speed is None else [f"{speed:.{int(speed < 10)}f} tokens/s"]
    words += [] if speedup is None else [f"{mark}{speedup.words}"]
    return words if acceptance is None else [*words, f"accepted {percent(acceptance)}"]


def percent(share: float) -> str:
    return f"{share * 100:.0f} %"


def explanation(routed: Routed, totals: Totals | None) -> str:
    """Several lines: what happened in the last answer, its measured speed, and what was assumed before it."""
    drafter = f"{routed.variant}, at most {routed.budget} draft tokens per step"
    lines = [f"{'no drafter (plain decoding)' if routed.variant == PLAIN else drafter}, seed {routed.seed}"]
    if totals is not None and totals.drafter_report:
        lines.append(f"what happened: {totals.drafter_report}")
    if totals is not None and totals.seconds:
        lines.append(f"time: {_time_text(totals)}")
    if totals is not None and totals.steps:
        lines.append(f"{totals.tokens_per_step:.1f} tokens/step; 1.0 without drafts")
    if totals is not None and (speedup := totals.speedup) is not None:
        low, high = speedup.interval
        lines.append(
            f"speed: {speedup.factor:.1f}x plain ({low:.1f} to {high:.1f} with 95 %): "
            f"{totals.decode_seconds:.2f} s for what takes plain decoding {totals.plain_decode_seconds:.2f} s"
        )
    if totals is not None and totals.estimates:
        lines.append(f"expected for the next steps: {totals.estimates}")
    lines.append(
        "chosen by name"
        if routed.reason == PINNED
        else f"assumed from the kind of request, not measured: {routed.reason}"
    )
    return "\n".join(lines)


def waits(totals: Totals) -> list[str]:
    """What the user waited for beside the decoding, as far as it was long: "queue 3.2 s"."""
    named = {**_waits(totals), "loading": totals.loading_seconds}
    return [f"{name} {seconds:.1f} s" for name, seconds in named.items() if seconds >= MIN_SHOWN_WAIT]


def _waits(totals: Totals) -> dict[str, float]:
    """The parts of the wait."""
    return {"queue": totals.queue_seconds, "prefill": totals.prefill_seconds, "other answers": totals.other_seconds}


def _time_text(totals: Totals) -> str:
    """All of it, as a stop watch shows it."""
    parts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in _waits(totals).items())
    loading = f"; models loaded for {totals.loading_seconds:.1f} s before" if totals.loading_seconds else ""
    return (
        f"{totals.seconds:.2f} s from the request to the end of the text, {totals.ttft_seconds:.2f} s to the first "
        f"token ({parts}, computing steps {totals.decode_seconds:.2f} s){loading}"
    )


def thinking_text(seconds: float) -> str:
    """How long the model thought before it answered: "thought for 3 s"; "" if it did not."""
    if not seconds:
        return ""
    if seconds < SHORTEST_SHOWN_SECONDS:
        return f"thought for under {SHORTEST_SHOWN_SECONDS} s"
    return f"thought for {seconds:.{int(seconds < SECONDS_WITHOUT_TENTHS)}f} s"


def speculation_to_json(totals: Totals) -> dict[str, float | list[float] | dict[str, int] | None]:
    """What speculation brought, for programs; None is unknown."""
    rate, speedup = totals.acceptance.rate, totals.speedup
    return {
        "draft_tokens": totals.draft_tokens,
        "accepted_tokens": sum(totals.accepted_by_drafter.values()),
        "accepted_by_drafter": dict(totals.accepted_by_drafter),
        "acceptance_rate": None if rate is None else round(rate, 3),
        "steps": totals.steps,
        "tokens_per_step": round(totals.tokens_per_step, 2),
        "speedup": speedup and round(speedup.factor, 2),
        "speedup_interval": speedup and [round(each, 2) for each in speedup.interval],
        **timing_to_json(totals),
    }


def timing_to_json(totals: Totals) -> dict[str, float | None]:
    """The speed and what was waited for, for programs; None where nothing was measured."""
    speed, total, first = totals.tokens_per_second, totals.total_seconds, totals.ttft_seconds
    parts = {**_waits(totals), "loading": totals.loading_seconds}
    return {
        "tokens_per_second": None if speed is None else round(speed, 1),
        "ttft_ms": round(1000 * first) if first else None,
        "total_ms": round(1000 * total) if total else None,
        **{f"{name.replace(' ', '_')}_ms": round(1000 * seconds) for name, seconds in parts.items()},
    }


def _speculation(totals: Totals, routed: Routed | None) -> list[str]:
    """Who drafted, or that none did."""
    if totals.completion_tokens and not totals.steps:
        return [f"{routed.variant} ({routed.reason})"] if routed else []  # a server that does not report its steps
    exactness = [] if totals.is_exact or not totals.draft_tokens else ["near ties may differ"]
    if not totals.draft_tokens and totals.acceptance.rate is None:
        is_copying = routed and routed.variant in COPYING_DRAFTERS and totals.completion_tokens > 1
        return [f"{routed.variant} found nothing to copy" if routed and is_copying else "no draft tokens"]
    counts = f"{sum(totals.accepted_by_drafter.values())} of {totals.draft_tokens} draft tokens accepted"
    unknown = [counts] if totals.acceptance.rate is None else []  # in answers of older versions, and on servers
    return [*unknown, *_steps_by_drafter(totals), *exactness]


def _steps_by_drafter(totals: Totals) -> list[str]:
    """The steps of each drafter in the order of their first ones, of all steps: "eagle3 1, suffix 13 of 15 steps"."""
    counts = ", ".join(f"{name} {count}" for name, count in totals.steps_by_drafter.items())
    return [f"{counts} of {totals.steps} step{'' if totals.steps == 1 else 's'}"] if counts else []
