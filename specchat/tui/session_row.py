"""A conversation as a row of the list: what the host tells of it, what it is found by, and how it is drawn."""

from __future__ import annotations

import time
from dataclasses import dataclass

from textual.content import Content

from specchat.tui.background_requests import Json
from specchat.tui.glyphs import printable


@dataclass(frozen=True)
class SessionRow:
    """A conversation in the list."""

    id: str
    name: str
    updated: float
    matched_text: str = ""

    def matches(self, typed: str) -> bool:
        """Do all words occur in the name?"""
        return all(word in self.name.lower() for word in typed.lower().split())

    def to_content(self, *, is_current: bool) -> Content:
        """Day, name, and where the words were found that are looked for."""
        day = time.strftime("%Y-%m-%d %H:%M", time.localtime(self.updated))
        name = printable(self.name or "(no name)") + ("  (open)" if is_current else "")
        found = f"  {printable(' '.join(self.matched_text.split()))}" if self.matched_text else ""
        return Content(f"{day}  ").stylize("$text-muted") + Content(name) + Content(found).stylize("$text-muted")


def session_row_from_json(row: Json) -> SessionRow:
    """A row as the host answers `list` with."""
    return SessionRow(str(row["id"]), str(row["name"]), float(row["updated"]), str(row.get("found", "")))
