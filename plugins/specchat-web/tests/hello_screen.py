"""The smallest screen there is, to be served: it greets, says back what is typed, and leaves at q."""

from __future__ import annotations

from pathlib import Path

from textual import events
from textual.app import App, ComposeResult
from textual.widgets import Static

COMMAND_FILE = str(Path(__file__))


class Hello(App[None]):
    def compose(self) -> ComposeResult:
        yield Static("hello from a tab")

    def on_key(self, event: events.Key) -> None:
        self.query_one(Static).update(f"you pressed {event.key}")
        if event.key == "q":
            self.exit()


if __name__ == "__main__":
    Hello().run()
