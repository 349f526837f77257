"""Reads the corpus; training documents and validation documents are separate.

A corpus folder holds `*.jsonl.gz`, one row a file: `src, path, licence, val, text`; rows with `val` true are for
validation. Without a folder, the Python files of the running interpreter take its place.
"""

from __future__ import annotations

import gzip
import hashlib
import json
import re
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

LICENCE_WORDS = re.compile(r"copyright|licen[cs]e|all rights reserved|spdx", re.IGNORECASE)
LEADING_COMMENTS = re.compile(r"\A(?:[ \t]*#[^\n]*\n|[ \t]*\n)+")
FILES = ("A", "B", "C")


@dataclass(frozen=True)
class Document:
    """One file of the corpus."""

    source: str
    path: str
    text: str
    is_validation: bool

    @property
    def is_python(self) -> bool:
        return self.path.endswith(".py")


def without_licence_header(text: str) -> str:
    """Drop the comment block that opens a file if it speaks of a licence, or the model recites it."""
    header = LEADING_COMMENTS.match(text)
    if header and LICENCE_WORDS.search(header.group()):
        return text[header.end() :]
    return text


def read_documents(corpus: Path | None, *, validation: bool, tiers: tuple[str, ...] = FILES) -> Iterator[Document]:
    """The files of one side of the split, licence headers stripped."""
    rows = read_corpus_rows(corpus, tiers) if corpus else read_interpreter_rows()
    for row in rows:
        if row["val"] == validation:
            yield Document(row["src"], row["path"], without_licence_header(row["text"]), row["val"])


def read_corpus_rows(corpus: Path, tiers: tuple[str, ...]) -> Iterator[dict[str, Any]]:
    for tier in tiers:
        path = corpus / f"{tier}.jsonl.gz"
        if path.exists():
            yield from read_json_lines(path)


def read_interpreter_rows() -> Iterator[dict[str, Any]]:
    """The standard library of the running interpreter; one file in twenty is for validation."""
    root = Path(sysconfig.get_paths()["stdlib"])
    for path in sorted(root.rglob("*.py")):
        name = str(path.relative_to(root))
        if "site-packages" in name or "bad" in name:
            continue
        try:
            text = path.read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
        is_validation = hashlib.sha256(name.encode()).digest()[0] < 13
        yield {"src": "interpreter", "path": name, "val": is_validation, "text": text}


def read_rows(corpus: Path | None, name: str, *, validation: bool) -> list[dict[str, Any]]:
    """One table of `rows/`, one side of a split by content: a row in twenty is for validation."""
    if corpus is None or not (corpus / "rows" / f"{name}.jsonl.gz").exists():
        return []
    return [
        row for row in read_json_lines(corpus / "rows" / f"{name}.jsonl.gz") if is_validation_row(row) == validation
    ]


def is_validation_row(row: dict[str, Any]) -> bool:
    if "val" in row:
        return bool(row["val"])
    return hashlib.sha256(json.dumps(row, sort_keys=True).encode()).digest()[0] < 13


def read_json_lines(path: Path) -> Iterator[dict[str, Any]]:
    """The rows of one file; a row that is no JSON is left out, since one of a hundred thousand must not stop a run."""
    with gzip.open(path, "rt", encoding="utf-8", newline="\n") as lines:
        for line in lines:
            try:
                yield json.loads(line)
            except json.JSONDecodeError:
                continue
