"""A row of the list of conversations: its values, its search, and how it is drawn."""

from __future__ import annotations

import time
from dataclasses import dataclass

from textual.content import Content

from specchat.tui.background_requests import Json
from specchat.tui.glyphs import printable


@dataclass(frozen=True)
class SessionRow:
    id: str
    name: str
    updated: float
    matched_text: str = ""

    def matches(self, typed: str) -> bool:
        return all(word in self.name.lower() for word in typed.lower().split())

    def to_content(self, *, is_current: bool) -> Content:
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.updated))
        name = printable(self.name or "(no name)") + ("  (open)" if is_current else "")
        found = f"  {printable(' '.join(self.matched_text.split()))}" if self.matched_text else ""
        return Content(f"{day}  ").stylize("$text-muted") + Content(name) + Content(found).stylize("$text-muted")


def session_row_from_json(row: Json) -> SessionRow:
    return SessionRow(str(row["id"]), str(row["name"]), float(row["updated"]), str(row.get("snippet", "")))
