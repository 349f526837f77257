"""The argument of every bench: a file of prompts, or a folder of such files."""

from __future__ import annotations

from pathlib import Path

import click

from specchat.errors import InputError


class PromptsPath(click.Path):
    """A path that must exist; it is read only after the models are loaded."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path. InputError when it does not exist."""
        path = Path(str(value))
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        return path


PROMPTS = PromptsPath()
