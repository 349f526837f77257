"""The status line as a string: numbers and a width in, one line out. The fields are explained in `gauge.py`.

Three widths (below 80 columns, below 120, above) and ASCII. What is not known is left out, and what does not fit
is cut off field by field from the right.
"""

from __future__ import annotations

from collections.abc import Sequence

from rich.cells import cell_len

from specchat.tui.glyphs import ASCII, UNICODE, Glyphs
from specchat.tui.live_stats import WINDOW_STEPS, Memory, Phase, Readings

NARROW, WIDE = 80, 120
FULL_CONTEXT = 0.8
LEAST_SPARK = 4
GIGABYTE, MEGABYTE = 2**30, 2**20


def bar(readings: Readings, columns: int, glyphs: Glyphs = UNICODE, room: int | None = None) -> str:
    """One line for a screen so many columns wide, of which it takes at most `room`; all of them when left out."""
    room = columns if room is None else room
    fields, separator = _fields(readings, columns, glyphs)
    line = _joined(fields, separator)
    while len(fields) > 1 and cell_len(line) > room:
        fields = fields[:-1]
        line = _joined(fields, separator)
    if cell_len(line) > room:
        return line[:room]
    return line + _last_steps(readings, room - cell_len(line), glyphs) if columns >= WIDE else line


def _last_steps(readings: Readings, room: int, glyphs: Glyphs) -> str:
    """As many of the last steps as there is room for."""
    before = f" {glyphs.bar} "
    is_shown = (
        readings.phase in (Phase.WRITING, Phase.IDLE) and readings.committed and room - len(before) >= LEAST_SPARK
    )
    return before + spark(readings.committed[len(before) - room :], glyphs) if is_shown else ""


def _fields(readings: Readings, columns: int, glyphs: Glyphs) -> tuple[list[str], str]:
    spaced = f" {glyphs.bar} "
    match readings.phase:
        case Phase.STARTING | Phase.LOADING:
            return _waiting(readings), spaced
        case Phase.PREFILL:
            return (_narrow_prefill(readings), " ") if columns < NARROW else (_prefill(readings), spaced)
        case Phase.WRITING | Phase.IDLE:
            pass
    if not readings.variant:
        return ["ready", *_place(readings, is_wide=columns >= WIDE)], spaced
    if readings.is_paused:
        return _paused(readings, glyphs), spaced
    if glyphs.ascii:
        return _ascii(readings), " "
    if columns < NARROW:
        return _narrow(readings, glyphs), " "
    return (_wide(readings, glyphs), spaced) if columns >= WIDE else (_normal(readings, glyphs), glyphs.bar)


def _joined(fields: Sequence[str], separator: str) -> str:
    if len(separator) == 1 and separator != " ":
        return separator.join([f"{fields[0]} ", *fields[1:]] if len(fields) > 1 else fields)
    return separator.join(fields)


def _wide(readings: Readings, glyphs: Glyphs) -> list[str]:
    accepted, session = readings.accepted, readings.accepted_session
    share = f"acc {_percent(accepted)}" + (f" (ses {_percent(session)})" if session is not None else "")
    first = readings.first_seconds
    return _known(
        _who(readings, glyphs),
        share if accepted is not None else "",
        f"{glyphs.per_pass} {readings.per_pass:.1f}" if readings.per_pass is not None else "",
        _speed(readings, glyphs, " t/s"),
        f"ttft {first:.1f}s" if first is not None else "",
        *_place(readings, is_wide=True),
    )


def _normal(readings: Readings, glyphs: Glyphs) -> list[str]:
    accepted, session = readings.accepted, readings.accepted_session
    both = f"acc {_number(accepted)}/{_percent(session)}" if session is not None else f"acc {_percent(accepted)}"
    return _known(
        _who(readings, glyphs),
        both if accepted is not None else "",
        f"{glyphs.per_pass} {readings.per_pass:.1f}" if readings.per_pass is not None else "",
        _speed(readings, glyphs, " t/s"),
        *_place(readings, is_wide=False),
    )


def _narrow(readings: Readings, glyphs: Glyphs) -> list[str]:
    guesses = "" if readings.guesses is None else str(readings.guesses)
    return _known(
        f"{readings.by or readings.variant}{guesses}",
        _percent(readings.accepted),
        f"{glyphs.per_pass}{readings.per_pass:.1f}" if readings.per_pass is not None else "",
        _speed(readings, glyphs, "t/s"),
        f"ctx{_percent(_filled(readings))}{_full(readings)}" if _filled(readings) is not None else "",
        f"{memory.label[:2].lower()}{_percent(memory.used / memory.total)}"
        if (memory := readings.memory) and memory.total
        else "",
    )


def _ascii(readings: Readings) -> list[str]:
    by = f">{readings.by}" if readings.by else ""
    guesses = "" if readings.guesses is None else f" K={readings.guesses}"
    named = {
        "acc": _percent(readings.accepted),
        "ses": _percent(readings.accepted_session),
        "len": f"{readings.per_pass:.1f}" if readings.per_pass is not None else "",
    }
    filled, memory = _filled(readings), readings.memory
    full = {
        "ctx": f"{_percent(filled)}{_full(readings)}" if filled is not None else "",
        memory.label.lower() if memory else "": _percent(memory.used / memory.total) if memory and memory.total else "",
    }
    return _known(
        f"{readings.variant}{by}{guesses}",
        *(f"{name}={value}" for name, value in named.items() if value),
        _speed(readings, ASCII, "t/s"),
        *(f"{name}={value}" for name, value in full.items() if value),
    )


def _waiting(readings: Readings) -> list[str]:
    progress = readings.progress
    share = f" {_percent(progress.done / progress.total)}" if progress.total else ""
    what = f"loading {progress.what}{share}" if readings.phase is Phase.LOADING else progress.what
    return [what, f"{progress.seconds:.0f}s"]


def _prefill(readings: Readings) -> list[str]:
    progress = readings.progress
    if not progress.total:
        return [f"waiting {progress.seconds:.0f}s", *_place(readings, is_wide=False), "Esc stop"]
    far = f"prefill {_tokens(progress.done)}/{_tokens(progress.total)} tok {_percent(progress.done / progress.total)}"
    speed = f"{progress.per_second:.0f} t/s" if progress.per_second else ""
    return _known(far, speed, *_place(readings, is_wide=False), "Esc stop")


def _narrow_prefill(readings: Readings) -> list[str]:
    progress = readings.progress
    if not progress.total:
        return [f"waiting {progress.seconds:.0f}s", "Esc stop"]
    return [f"prefill {_percent(progress.done / progress.total)}", "Esc stop"]


def _paused(readings: Readings, glyphs: Glyphs) -> list[str]:
    times = readings.times_plain
    gain = "nothing to guess" if times is None else f"{times:.1f}{glyphs.times}"
    speed = f"{_rate(readings.speed)} t/s" if readings.speed is not None else ""
    return _known(f"plain (spec paused: {gain} over {WINDOW_STEPS} steps)", speed, *_place(readings, is_wide=False))


def _who(readings: Readings, glyphs: Glyphs) -> str:
    by = f"{glyphs.by}{readings.by}" if readings.by else ""
    guesses = f" K{readings.guesses}" if readings.guesses is not None else ""
    return f"{readings.variant}{by}{guesses}"


def _speed(readings: Readings, glyphs: Glyphs, unit: str) -> str:
    if readings.speed is None:
        return ""
    times = readings.times_plain
    if times is None:
        return f"{_rate(readings.speed)}{unit}"
    sign = "~" if readings.is_estimate else ""
    slow = " slow" if round(times, 1) < 1 else ""
    return f"{_rate(readings.speed)}{unit} {sign}{glyphs.times}{times:.1f}{slow}"


def _place(readings: Readings, *, is_wide: bool) -> list[str]:
    """Context and memory."""
    filled = _filled(readings)
    context = ""
    if readings.window:
        context = f"ctx {_tokens(readings.context or 0)}/{_tokens(readings.window)}"
        context += f" {_percent(filled)}" if is_wide or _full(readings) else ""
        context += _full(readings)
    return _known(context, _memory(readings.memory, is_wide=is_wide))


def _memory(memory: Memory | None, *, is_wide: bool) -> str:
    if memory is None or not memory.used:
        return ""
    if not memory.total:
        return f"{memory.label} {sized(memory.used)}"
    digits = 1 if is_wide else 0
    return f"{memory.label} {memory.used / GIGABYTE:.{digits}f}/{memory.total / GIGABYTE:.{digits}f}G"


def sized(count: int) -> str:
    """Bytes: 1.2G, 92M."""
    return f"{count / GIGABYTE:.1f}G" if count >= GIGABYTE else f"{count / MEGABYTE:.0f}M"


def spark(committed: Sequence[int], glyphs: Glyphs = UNICODE) -> str:
    """Tokens of each step as a row of small columns; the highest is the most that a step brought."""
    top = max(committed, default=0)
    last = len(glyphs.levels) - 1
    return "".join(glyphs.levels[round(last * count / top)] for count in committed) if top else ""


def _filled(readings: Readings) -> float | None:
    return (readings.context or 0) / readings.window if readings.window else None


def _full(readings: Readings) -> str:
    """A mark when the context is nearly full; never by colour alone."""
    return "!" if (_filled(readings) or 0) >= FULL_CONTEXT else ""


def _tokens(count: int) -> str:
    """3100 is 3.1k, 32768 is 32k."""
    if count < 1000:
        return str(count)
    if count % 1024 == 0:
        return f"{count // 1024}k"
    return f"{count / 1000:.1f}k" if count < 10_000 else f"{count / 1000:.0f}k"


def _rate(speed: float | None) -> str:
    return "" if speed is None else f"{speed:.1f}" if speed < 10 else f"{speed:.0f}"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.0%}"


def _number(share: float | None) -> str:
    return _percent(share).removesuffix("%")


def _known(*fields: str) -> list[str]:
    return [field for field in fields if field]
