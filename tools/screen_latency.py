"""How well the screen keeps up, what it costs, and how soon it is there: the real program on real terminals.

python -m tools.screen_latency --seconds 60

It is measured from outside, by what arrives at the terminal. Two parts: tokens at a fixed rate from `metronome.py`
(shown a second, the greatest lag of a token behind its time, the share of a core that the screen's process takes), and
the time from the start of the process to the first frame, beside a bare Textual application that shows the same words,
in turns. Needs Linux, for the CPU time of a process that still runs.
"""

from __future__ import annotations

import argparse
import os
import re
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median

from specchat.errors import InputError
from tools.pty_program import PtyProgram

GREETING = b"Ask something below"
START_TIME = re.compile(rb"t0:(\d+\.\d{6}):")
TOKEN = re.compile(rb"w(\d{6})")
TOKEN_BYTES = 64  # enough to find a token that two reads have torn apart
TIMEOUT_SECONDS = 60.0

SPECCHAT_PROGRAM = """if True:
    import sys
    from specchat.host import spawn
    spawn.HOST_COMMAND = (sys.executable, "-m", "tools.metronome_host")
    from specchat.cli.main import run
    sys.exit(run(["chat"]))
"""
BARE_TEXTUAL_PROGRAM = """if True:
    from textual.app import App
    from textual.widgets import Static
    class Bare(App):
        def compose(self):
            yield Static("Ask something below")
    Bare().run()
"""


@dataclass(frozen=True)
class StreamResult:
    """What a source of so many tokens a second came to."""

    tokens_per_second: float
    seconds: float
    shown_tokens_per_second: float
    max_lag_seconds: float  # seconds
    cpu_share: float  # of one core, while tokens came

    @property
    def row(self) -> str:
        """A line of the table."""
        return (
            f"| {self.tokens_per_second:.0f} tokens/s for {self.seconds:.0f} s "
            f"| {self.shown_tokens_per_second:.1f} tokens/s "
            f"| {self.max_lag_seconds * 1000:.0f} ms | {self.cpu_share:.1%} |"
        )


@dataclass(frozen=True)
class FirstFrames:
    """Seconds from the start of a process to its first frame; the n-th ones were measured one after the other."""

    specchat_seconds: tuple[float, ...]
    bare_textual_seconds: tuple[float, ...]

    @property
    def row(self) -> str:
        """A line of the table: medians, and the median of the ratios."""
        ratio = median(ours / bare for ours, bare in zip(self.specchat_seconds, self.bare_textual_seconds, strict=True))
        specchat, bare = (1000 * median(each) for each in (self.specchat_seconds, self.bare_textual_seconds))
        return f"| {specchat:.0f} ms | {bare:.0f} ms | {ratio:.2f} |"


def measure_stream(tokens_per_second: float, seconds: float) -> StreamResult:
    """Let tokens come at this rate, and watch them arrive on the terminal. InputError when the last one does not."""
    with PtyProgram([sys.executable, "-c", SPECCHAT_PROGRAM]) as terminal:
        terminal.wait_for(b"ready", TIMEOUT_SECONDS)
        terminal.type(f"{tokens_per_second} {seconds}\r")
        began, end = float(terminal.wait_for(START_TIME, TIMEOUT_SECONDS)[1]), time.monotonic() + seconds
        cpu, wall = terminal.cpu_seconds, time.monotonic()
        last, first_at, last_at, lag, kept = -1, 0.0, 0.0, 0.0, b""
        while last < round(tokens_per_second * seconds) - 1 and time.monotonic() < end + TIMEOUT_SECONDS:
            kept = kept[-TOKEN_BYTES:] + terminal.read(0.05)
            newest = max((int(found[1]) for found in TOKEN.finditer(kept)), default=-1)
            now = time.monotonic()
            if newest > last:
                first_at, last_at = first_at or now, now
                lag = max(
                    lag, now - began - (last + 1) / tokens_per_second
                )  # the oldest of those that were not shown before
                last = newest
        if last < round(tokens_per_second * seconds) - 1:
            raise InputError(f"token {last + 1} was not shown within {TIMEOUT_SECONDS:.0f} s after the last was due")
        share = (terminal.cpu_seconds - cpu) / (time.monotonic() - wall)
        return StreamResult(tokens_per_second, seconds, (last + 1) / (last_at - began), lag, share)


def measure_first_frames(count: int) -> FirstFrames:
    """Start both programs in turns; the first pair only warms the disk."""
    pairs = [(_time_first_frame(SPECCHAT_PROGRAM), _time_first_frame(BARE_TEXTUAL_PROGRAM)) for _ in range(count + 1)][
        1:
    ]
    ours, bare = zip(*pairs, strict=True)
    return FirstFrames(ours, bare)


def _time_first_frame(program: str) -> float:
    began = time.monotonic()
    with PtyProgram([sys.executable, "-c", program]) as terminal:
        terminal.wait_for(GREETING, TIMEOUT_SECONDS)
        return time.monotonic() - began


def main() -> None:
    """Measure, and print tables."""
    parser = argparse.ArgumentParser(prog="python -m tools.screen_latency", description="How well the screen keeps up.")
    parser.add_argument("--seconds", type=float, default=60.0, help="how long tokens come, at each rate")
    parser.add_argument("--rates", type=float, nargs="*", default=[300.0, 100.0], help="tokens a second")
    parser.add_argument("--starts", type=int, default=9, help="how often each program is started")
    chosen = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="spec-") as folder:
        os.environ |= {"SPECCHAT_RUNTIME": str(Path(folder)), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
        try:
            print("| source | shown | greatest lag | CPU of the screen, of one core |\n|---|---|---|---|")
            for rate in chosen.rates:
                print(measure_stream(rate, chosen.seconds).row, flush=True)
            if chosen.starts:
                print("\n| first frame, ours | bare Textual | ours / bare |\n|---|---|---|")
                print(measure_first_frames(chosen.starts).row)
        finally:
            _shut_down_host()


def _shut_down_host() -> None:
    from specchat.host.client import connect

    if line := connect("bench", starts_host=False):
        line.call("shutdown", {})
        line.close()


if __name__ == "__main__":
    main()
