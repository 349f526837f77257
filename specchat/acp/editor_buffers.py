"""The texts of an editor as the tools of the agent see them during one prompt: what is in its buffers, saved or not."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from specchat.acp.client_requests import EditorClient, PromptTurn


@dataclass(frozen=True)
class EditorBuffers:
    client: EditorClient
    turn: PromptTurn

    @property
    def can_write(self) -> bool:
        return self.client.can_write_files

    def read(self, path: Path) -> str | None:
        return self.client.read_file(self.turn, path)

    def write(self, path: Path, text: str) -> None:
        self.client.write_file(self.turn, path, text)
