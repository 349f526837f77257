"""The status line as a string: numbers and a width in, one line out. The fields are explained in `gauge.py`.

Three widths (below 80 columns, below 120, above) and ASCII. What is not known is left out, and what does not fit
is cut off field by field from the right.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from specchat.tui.glyphs import ASCII, UNICODE, Glyphs
from specchat.tui.live_stats import WINDOW_STEPS, MemoryUsage, Phase, StatsSnapshot

NARROW_COLUMNS, WIDE_COLUMNS = 80, 120
FULL_CONTEXT_SHARE = 0.8
MIN_SPARKLINE_COLUMNS = 4
GIGABYTE, MEGABYTE = 2**30, 2**20


def status_line(stats: StatsSnapshot, columns: int, glyphs: Glyphs = UNICODE, max_columns: int | None = None) -> str:
    """One line for a screen so many columns wide, of which it takes at most `room`; all of them when left out."""
    max_columns = columns if max_columns is None else max_columns
    fields, separator = _phase_fields(stats, columns, glyphs)
    line = _join_fields(fields, separator)
    while len(fields) > 1 and cell_len(line) > max_columns:
        fields = fields[:-1]
        line = _join_fields(fields, separator)
    if cell_len(line) > max_columns:
        return line[:max_columns]
    return line + _sparkline_field(stats, max_columns - cell_len(line), glyphs) if columns >= WIDE_COLUMNS else line


def _sparkline_field(readings: StatsSnapshot, room: int, glyphs: Glyphs) -> str:
    """As many of the last steps as there is room for."""
    before = f" {glyphs.separator} "
    is_shown = (
        readings.phase in (Phase.DECODE, Phase.IDLE)
        and readings.tokens_by_step
        and room - len(before) >= MIN_SPARKLINE_COLUMNS
    )
    return before + sparkline(readings.tokens_by_step[len(before) - room :], glyphs) if is_shown else ""


def _phase_fields(readings: StatsSnapshot, columns: int, glyphs: Glyphs) -> tuple[list[str], str]:
    spaced = f" {glyphs.separator} "
    match readings.phase:
        case Phase.STARTING | Phase.LOADING:
            return _waiting_fields(readings), spaced
        case Phase.PREFILL:
            return (
                (_narrow_prefill_fields(readings), " ")
                if columns < NARROW_COLUMNS
                else (_prefill_fields(readings), spaced)
            )
        case Phase.DECODE | Phase.IDLE:
            pass
    if not readings.variant:
        return ["ready", *_context_and_memory(readings, is_wide=columns >= WIDE_COLUMNS)], spaced
    if readings.is_speculation_paused:
        return _paused_fields(readings, glyphs), spaced
    if glyphs.is_ascii:
        return _ascii_fields(readings), " "
    if columns < NARROW_COLUMNS:
        return _narrow_fields(readings, glyphs), " "
    return (
        (_wide_fields(readings, glyphs), spaced)
        if columns >= WIDE_COLUMNS
        else (_normal_fields(readings, glyphs), glyphs.separator)
    )


def _join_fields(fields: Sequence[str], separator: str) -> str:
    if len(separator) == 1 and separator != " ":
        return separator.join([f"{fields[0]} ", *fields[1:]] if len(fields) > 1 else fields)
    return separator.join(fields)


def _wide_fields(readings: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    accepted, session = readings.acceptance_rate, readings.session_acceptance_rate
    share = f"acc {_format_percent(accepted)}" + (f" (ses {_format_percent(session)})" if session is not None else "")
    first = readings.ttft_seconds
    return _non_empty(
        _drafter_field(readings, glyphs),
        share if accepted is not None else "",
        f"{glyphs.tokens_per_step} {readings.tokens_per_step:.1f}" if readings.tokens_per_step is not None else "",
        _speed_field(readings, glyphs, " t/s"),
        f"ttft {first:.1f}s" if first is not None else "",
        *_context_and_memory(readings, is_wide=True),
    )


def _normal_fields(readings: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    accepted, session = readings.acceptance_rate, readings.session_acceptance_rate
    both = (
        f"acc {_percent_digits(accepted)}/{_format_percent(session)}"
        if session is not None
        else f"acc {_format_percent(accepted)}"
    )
    return _non_empty(
        _drafter_field(readings, glyphs),
        both if accepted is not None else "",
        f"{glyphs.tokens_per_step} {readings.tokens_per_step:.1f}" if readings.tokens_per_step is not None else "",
        _speed_field(readings, glyphs, " t/s"),
        *_context_and_memory(readings, is_wide=False),
    )


def _narrow_fields(readings: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    guesses = "" if readings.draft_tokens is None else str(readings.draft_tokens)
    return _non_empty(
        f"{readings.drafter or readings.variant}{guesses}",
        _format_percent(readings.acceptance_rate),
        f"{glyphs.tokens_per_step}{readings.tokens_per_step:.1f}" if readings.tokens_per_step is not None else "",
        _speed_field(readings, glyphs, "t/s"),
        f"ctx{_format_percent(_context_share(readings))}{_full_context_mark(readings)}"
        if _context_share(readings) is not None
        else "",
        f"{memory.label[:2].lower()}{_format_percent(memory.used_bytes / memory.total_bytes)}"
        if (memory := readings.memory) and memory.total_bytes
        else "",
    )


def _ascii_fields(readings: StatsSnapshot) -> list[str]:
    by = f">{readings.drafter}" if readings.drafter else ""
    guesses = "" if readings.draft_tokens is None else f" K={readings.draft_tokens}"
    named = {
        "acc": _format_percent(readings.acceptance_rate),
        "ses": _format_percent(readings.session_acceptance_rate),
        "len": f"{readings.tokens_per_step:.1f}" if readings.tokens_per_step is not None else "",
    }
    filled, memory = _context_share(readings), readings.memory
    full = {
        "ctx": f"{_format_percent(filled)}{_full_context_mark(readings)}" if filled is not None else "",
        memory.label.lower() if memory else "": _format_percent(memory.used_bytes / memory.total_bytes)
        if memory and memory.total_bytes
        else "",
    }
    return _non_empty(
        f"{readings.variant}{by}{guesses}",
        *(f"{name}={value}" for name, value in named.items() if value),
        _speed_field(readings, ASCII, "t/s"),
        *(f"{name}={value}" for name, value in full.items() if value),
    )


def _waiting_fields(readings: StatsSnapshot) -> list[str]:
    progress = readings.progress
    share = f" {_format_percent(progress.done / progress.total)}" if progress.total else ""
    what = f"loading {progress.label}{share}" if readings.phase is Phase.LOADING else progress.label
    return [what, f"{progress.elapsed_seconds:.0f}s"]


def _prefill_fields(readings: StatsSnapshot) -> list[str]:
    progress = readings.progress
    if not progress.total:
        return [f"waiting {progress.elapsed_seconds:.0f}s", *_context_and_memory(readings, is_wide=False), "Esc stop"]
    far = f"prefill {_format_tokens(progress.done)}/{_format_tokens(progress.total)} tok {_format_percent(progress.done / progress.total)}"
    speed = f"{progress.tokens_per_second:.0f} t/s" if progress.tokens_per_second else ""
    return _non_empty(far, speed, *_context_and_memory(readings, is_wide=False), "Esc stop")


def _narrow_prefill_fields(readings: StatsSnapshot) -> list[str]:
    progress = readings.progress
    if not progress.total:
        return [f"waiting {progress.elapsed_seconds:.0f}s", "Esc stop"]
    return [f"prefill {_format_percent(progress.done / progress.total)}", "Esc stop"]


def _paused_fields(readings: StatsSnapshot, glyphs: Glyphs) -> list[str]:
    times = readings.speedup
    gain = "nothing to guess" if times is None else f"{times:.1f}{glyphs.times}"
    speed = f"{_format_rate(readings.tokens_per_second)} t/s" if readings.tokens_per_second is not None else ""
    return _non_empty(
        f"plain (spec paused: {gain} over {WINDOW_STEPS} steps)", speed, *_context_and_memory(readings, is_wide=False)
    )


def _drafter_field(readings: StatsSnapshot, glyphs: Glyphs) -> str:
    by = f"{glyphs.drafter_mark}{readings.drafter}" if readings.drafter else ""
    guesses = f" K{readings.draft_tokens}" if readings.draft_tokens is not None else ""
    return f"{readings.variant}{by}{guesses}"


def _speed_field(readings: StatsSnapshot, glyphs: Glyphs, unit: str) -> str:
    if readings.tokens_per_second is None:
        return ""
    times = readings.speedup
    if times is None:
        return f"{_format_rate(readings.tokens_per_second)}{unit}"
    sign = "~" if readings.is_speedup_estimated else ""
    slow = " slow" if round(times, 1) < 1 else ""
    return f"{_format_rate(readings.tokens_per_second)}{unit} {sign}{glyphs.times}{times:.1f}{slow}"


def _context_and_memory(readings: StatsSnapshot, *, is_wide: bool) -> list[str]:
    """Context and memory."""
    filled = _context_share(readings)
    context = ""
    if readings.context_window:
        context = f"ctx {_format_tokens(readings.context_tokens or 0)}/{_format_tokens(readings.context_window)}"
        context += f" {_format_percent(filled)}" if is_wide or _full_context_mark(readings) else ""
        context += _full_context_mark(readings)
    return _non_empty(context, _memory_field(readings.memory, is_wide=is_wide))


def _memory_field(memory: MemoryUsage | None, *, is_wide: bool) -> str:
    if memory is None or not memory.used_bytes:
        return ""
    if not memory.total_bytes:
        return f"{memory.label} {format_bytes(memory.used_bytes)}"
    digits = 1 if is_wide else 0
    return f"{memory.label} {memory.used_bytes / GIGABYTE:.{digits}f}/{memory.total_bytes / GIGABYTE:.{digits}f}G"


def format_bytes(byte_count: int) -> str:
    """Bytes: 1.2G, 92M."""
    return f"{byte_count / GIGABYTE:.1f}G" if byte_count >= GIGABYTE else f"{byte_count / MEGABYTE:.0f}M"


def sparkline(values: Sequence[int], glyphs: Glyphs = UNICODE) -> str:
    """Tokens of each step as a row of small columns; the highest is the most that a step brought."""
    top = max(values, default=0)
    last = len(glyphs.sparkline_levels) - 1
    return "".join(glyphs.sparkline_levels[round(last * count / top)] for count in values) if top else ""


def _context_share(readings: StatsSnapshot) -> float | None:
    return (readings.context_tokens or 0) / readings.context_window if readings.context_window else None


def _full_context_mark(readings: StatsSnapshot) -> str:
    """A mark when the context is nearly full; never by colour alone."""
    return "!" if (_context_share(readings) or 0) >= FULL_CONTEXT_SHARE else ""


def _format_tokens(count: int) -> str:
    """3100 is 3.1k, 32768 is 32k."""
    if count < 1000:
        return str(count)
    if count % 1024 == 0:
        return f"{count // 1024}k"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count / 1000:.0f}k"


def _format_rate(speed: float | None) -> str:
    return "" if speed is None else f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _format_percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _percent_digits(share: float | None) -> str:
    return _format_percent(share).removesuffix("%")


def _non_empty(*fields: str) -> list[str]:
    return [field for field in fields if field]
