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

from tools.pty_program import Terminal

GREETING = b"Ask something below"
STARTED = re.compile(rb"t0:(\d+\.\d{6}):")
TOKEN = re.compile(rb"w(\d{6})")
TOKEN_BYTES = 64  # enough to find a token that two reads have torn apart
PATIENCE_SECONDS = 60.0

OURS = """if True:
    import sys
    from specchat.host import spawn
    spawn.HOST_COMMAND = (sys.executable, "-m", "tools.metronome_host")
    from specchat.cli.main import run
    sys.exit(run(["tui"]))
"""
BARE = """if True:
    from textual.app import App
    from textual.widgets import Static
    class Bare(App):
        def compose(self):
            yield Static("Ask something below")
    Bare().run()
"""


@dataclass(frozen=True)
class Streamed:
    """What a source of so many tokens a second came to."""

    rate: float
    seconds: float
    shown_rate: float
    greatest_lag: float  # seconds
    cpu_share: float  # of one core, while tokens came

    @property
    def row(self) -> str:
        """A line of the table."""
        return (
            f"| {self.rate:.0f} tokens/s for {self.seconds:.0f} s | {self.shown_rate:.1f} tokens/s "
            f"| {self.greatest_lag * 1000:.0f} ms | {self.cpu_share:.1%} |"
        )


@dataclass(frozen=True)
class FirstFrames:
    """Seconds from the start of a process to its first frame; the n-th ones were measured one after the other."""

    ours: tuple[float, ...]
    bare: tuple[float, ...]

    @property
    def row(self) -> str:
        """A line of the table: medians, and the median of the ratios."""
        ratio = median(ours / bare for ours, bare in zip(self.ours, self.bare, strict=True))
        return f"| {median(self.ours) * 1000:.0f} ms | {median(self.bare) * 1000:.0f} ms | {ratio:.2f} |"


def stream(rate: float, seconds: float) -> Streamed:
    """Let tokens come at this rate, and watch them arrive on the terminal."""
    with Terminal([sys.executable, "-c", OURS]) as terminal:
        terminal.wait_for(b"ready", PATIENCE_SECONDS)
        terminal.type(f"{rate} {seconds}\r")
        began, end = float(terminal.wait_for(STARTED, PATIENCE_SECONDS)[1]), time.monotonic() + seconds
        cpu, wall = terminal.cpu_seconds, time.monotonic()
        last, first_at, last_at, lag, kept = -1, 0.0, 0.0, 0.0, b""
        while last < round(rate * seconds) - 1 and time.monotonic() < end + PATIENCE_SECONDS:
            kept = kept[-TOKEN_BYTES:] + terminal.read(0.05)
            newest = max((int(found[1]) for found in TOKEN.finditer(kept)), default=-1)
            now = time.monotonic()
            if newest > last:
                first_at, last_at = first_at or now, now
                lag = max(lag, now - began - (last + 1) / rate)  # the oldest of those that were not shown before
                last = newest
        share = (terminal.cpu_seconds - cpu) / (time.monotonic() - wall)
        return Streamed(rate, seconds, (last + 1) / (last_at - began), lag, share)


def first_frames(count: int) -> FirstFrames:
    """Start both programs in turns; the first pair only warms the disk."""
    pairs = [(_first_frame(OURS), _first_frame(BARE)) for _ in range(count + 1)][1:]
    ours, bare = zip(*pairs, strict=True)
    return FirstFrames(ours, bare)


def _first_frame(program: str) -> float:
    began = time.monotonic()
    with Terminal([sys.executable, "-c", program]) as terminal:
        terminal.wait_for(GREETING, PATIENCE_SECONDS)
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
                print(stream(rate, chosen.seconds).row, flush=True)
            if chosen.starts:
                print("\n| first frame, ours | bare Textual | ours / bare |\n|---|---|---|")
                print(first_frames(chosen.starts).row)
        finally:
            _end_host()


def _end_host() -> None:
    from specchat.host.client import connect

    if line := connect("bench", start=False):
        line.call("shutdown", {})
        line.close()


if __name__ == "__main__":
    main()
