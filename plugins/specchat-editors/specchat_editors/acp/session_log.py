"""What an editor was shown and the history does not hold: JSON lines, a file for each conversation, beside the history.

Lines hold whole files, so only the last ones are kept. A full disk loses lines, never an answer.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from specchat.host.spawn import history_path

MAX_BYTES = 16 * 2**20  # of one conversation


@dataclass(frozen=True)
class SessionLog:
    """The lines of one kind."""

    folder: str
    max_lines: int

    def path_of(self, session: str) -> Path:
        return history_path().parent / self.folder / f"{session}.jsonl"

    def lines(self, session: str) -> Sequence[str]:
        """All lines of a conversation, in order; none when they cannot be read."""
        try:
            return self.path_of(session).read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError):
            return []

    def append(self, session: str, *lines: str) -> None:
        """Add lines, and drop the oldest above the limits."""
        path = self.path_of(session)
        with suppress(OSError):
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            new = path.with_suffix(f".{os.getpid()}")
            new.touch(mode=0o600)
            new.write_text(
                "".join(f"{each}\n" for each in self._kept([*self.lines(session), *lines])), encoding="utf-8"
            )
            new.replace(path)

    def _kept(self, lines: Sequence[str]) -> Sequence[str]:
        first, free_bytes = len(lines), MAX_BYTES
        while first > max(0, len(lines) - self.max_lines) and free_bytes >= len(lines[first - 1]):
            first -= 1
            free_bytes -= len(lines[first])
        return lines[first:]
