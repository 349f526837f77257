"""What every bench is given to measure with: a file of prompts, or a folder of such files."""

from __future__ import annotations

from pathlib import Path

import click

from specchat.errors import InputError


class PromptsPath(click.Path):
    """A path that must be there; what is in it is read only when the models are loaded."""

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> Path:
        """The path; InputError when nothing is there."""
        path = Path(str(value))
        if not path.exists():
            raise InputError(f"{path}: no such file or folder")
        return path


PROMPTS = PromptsPath()
