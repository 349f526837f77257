"""The last line of the screen."""

from __future__ import annotations

import re

from textual.content import Content
from textual.reactive import reactive
from textual.widget import Widget

from specchat.tui.glyphs import Glyphs
from specchat.tui.live_stats import StatsSnapshot
from specchat.tui.status_text import status_line

WARNING_PATTERN = re.compile(r"\S+ slow|ctx[^│|]*!|spec paused")


class StatusBar(Widget):
    """The numbers, as `bar.py` writes them. What alarms has a word or a mark, and a colour besides."""

    HELP = (
        "Who guesses, how many guesses a pass, how many of them held, tokens a pass, speed and gain, context, memory."
    )
    DEFAULT_CSS = "StatusBar { height: 1; width: 1fr; }"
    stats: reactive[StatsSnapshot] = reactive(StatsSnapshot())

    def __init__(self, glyphs: Glyphs) -> None:
        super().__init__(id="status")
        self._glyphs = glyphs

    @property
    def line(self) -> str:
        """What stands there."""
        return status_line(self.stats, self.size.width, self._glyphs, max_columns=max(1, self.size.width - 1))

    def render(self) -> Content:
        """The line, its alarming parts in a warning colour."""
        line = Content(f" {self.line}")
        for found in WARNING_PATTERN.finditer(line.plain):
            line = line.stylize("$text-warning", found.start(), found.end())
        return line

    def watch_stats(self, stats: StatsSnapshot) -> None:
        """The reason is told to whoever points at the line."""
        self.tooltip = stats.reason or None
