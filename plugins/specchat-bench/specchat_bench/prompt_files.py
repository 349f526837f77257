"""Prompts in files: JSON lines with `turns`, or with `instruction` and the file `before` an edit."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from specchat.chat.request import Attachment, Request
from specchat.errors import InputError


def read_prompts(path: Path) -> Iterator[Request]:
    """The first question of every row of a file, or of every `*.jsonl` in a folder."""
    files = sorted(path.glob("*.jsonl")) if path.is_dir() else [path]
    if not files:
        raise InputError(f"{path}: no *.jsonl in this folder")
    for file in files:
        try:
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise InputError(f"{file}: cannot be read as JSON lines: {error}") from error
        for number, line in enumerate(lines, start=1):
            if line.strip():
                yield _request(line, f"{file}:{number}")


def _request(line: str, where: str) -> Request:
    try:
        row: dict[str, Any] = json.loads(line)
        if "before" in row:
            return Request(row["instruction"], files=(Attachment(row.get("path", "file.py"), row["before"]),))
        return Request(row["turns"][0])
    except (ValueError, KeyError, IndexError, TypeError) as error:
        raise InputError(f"{where}: neither `turns` nor `instruction` and `before` in this row") from error
