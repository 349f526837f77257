"""The target's own answers, written by the engine with guesses and kept in a file, so that none is written twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.train.own.progress import each
from specchat.train.own.target import Target


@dataclass(frozen=True)
class Answer:
    """A prompt with the target's greedy answer (its end token included), and where the answer starts."""

    tokens: list[int]
    start: int

    @property
    def key(self) -> str:
        """Tells it from all others."""
        return hashlib.sha256(json.dumps([self.start, self.tokens]).encode()).hexdigest()


def write_answers(target: Target, prompts: Sequence[list[int]], limit: int, kept: Path) -> list[Answer]:
    """An answer to every prompt, those in the file first of all; what is new is put there as soon as it is written."""
    known = _read(kept, limit)
    missing = [prompt for prompt in prompts if _key(prompt) not in known]
    kept.parent.mkdir(parents=True, exist_ok=True)
    with kept.open("a", encoding="utf-8") as out:
        for prompt in each("answers", missing):
            answer = target.write(prompt, limit).tokens
            known[_key(prompt)] = answer
            out.write(json.dumps({"prompt": _key(prompt), "limit": limit, "answer": answer}) + "\n")
            out.flush()
    return [Answer([*prompt, *known[_key(prompt)]], len(prompt)) for prompt in prompts]


def _key(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:32]


def _read(kept: Path, limit: int) -> dict[str, list[int]]:
    """The answers of a file that were written under this limit; a last line that was cut off is forgotten."""
    if not kept.is_file():
        return {}
    text = kept.read_text(encoding="utf-8")
    whole = text[: text.rfind("\n") + 1]
    if whole != text:
        kept.write_text(whole, encoding="utf-8")
    rows = [json.loads(line) for line in whole.splitlines()]
    return {row["prompt"]: row["answer"] for row in rows if row["limit"] == limit}
