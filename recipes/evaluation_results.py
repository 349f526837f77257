"""Stores each figure of an evaluation in a file at once, so that an interrupted evaluation continues."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any


class ResultStore:
    """Figures by section and name. Those in the file count only while they were measured with the same settings."""

    def __init__(self, path: Path | None, settings: Mapping[str, Any]) -> None:
        """ValueError for a file that is no record: it is not overwritten."""
        self.path = path
        held = _read(path) if path is not None and path.is_file() else {}
        self.is_resumed = held.get("settings") == settings
        self.figures: dict[str, Any] = held if self.is_resumed else {"settings": dict(settings)}

    def get_or_measure(self, section: str, name: str, measure: Callable[[], Any]) -> Any:
        """The figure of this name, measured if it is not known yet; it must be what JSON can hold."""
        known = self.figures.setdefault(section, {})
        if name not in known:
            known[name] = measure()
            self._write()
        return known[name]

    def _write(self) -> None:
        if self.path is not None:
            fresh = self.path.with_suffix(".part")
            fresh.write_text(json.dumps(self.figures, indent=2) + "\n")
            fresh.replace(self.path)


def _read(path: Path) -> dict[str, Any]:
    try:
        held = json.loads(path.read_text())
    except (UnicodeDecodeError, json.JSONDecodeError) as error:
        raise ValueError(f"{path}: no record of an evaluation: {error}") from error
    if not isinstance(held, dict):
        raise ValueError(f"{path}: no record of an evaluation")
    return held
