"""The target's own answers, written by the engine with guesses and kept in a file, so that none is written twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.train.distributed import ALONE, Ranks, unseen
from specchat.train.frozen_target import Target
from specchat.train.progress_bar import each


@dataclass(frozen=True)
class Answer:
    """A prompt with the target's greedy answer (its end token included), and where the answer starts."""

    tokens: list[int]
    start: int

    @property
    def key(self) -> str:
        """Tells it from all others."""
        return hashlib.sha256(json.dumps([self.start, self.tokens]).encode()).hexdigest()


def write_answers(
    target: Target, prompts: Sequence[list[int]], limit: int, kept: Path, ranks: Ranks = ALONE
) -> list[Answer]:
    """An answer to every prompt, those in the file first of all; what is new is put there as soon as it is written.

    Of several processes each writes its share into a file of its own, and the first puts them into the one that stays.
    """
    kept.parent.mkdir(parents=True, exist_ok=True)
    known = _gathered(kept, limit, ranks)
    missing = [prompt for prompt in prompts if _key(prompt) not in known]
    own = kept if ranks.is_alone else kept.with_suffix(f".{ranks.number}{kept.suffix}")
    with own.open("a", encoding="utf-8") as out:
        for prompt in each("answers", ranks.share(missing), is_shown=ranks.is_first):
            answer = target.write(prompt, limit).tokens
            out.write(json.dumps({"prompt": _key(prompt), "limit": limit, "answer": answer}) + "\n")
            out.flush()
    known = _gathered(kept, limit, ranks)
    if any(_key(prompt) not in known for prompt in prompts):
        raise unseen(kept)
    return [Answer([*prompt, *known[_key(prompt)]], len(prompt)) for prompt in prompts]


def _key(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:32]


def _gathered(kept: Path, limit: int, ranks: Ranks) -> dict[str, list[int]]:
    """The answers that were written under this limit, whoever wrote them: now, or before an interruption."""
    ranks.wait()
    if ranks.is_first:
        _put_together(kept)
    ranks.wait()
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.is_file() else []
    return {row["prompt"]: row["answer"] for row in rows if row["limit"] == limit}


def _put_together(kept: Path) -> None:
    """The whole lines of the file and of those that several processes wrote beside it, in the file; the others go."""
    parts = sorted(kept.parent.glob(f"{kept.stem}.*{kept.suffix}"))
    whole = "".join(_whole_lines(path) for path in (kept, *parts) if path.is_file())
    if whole != (kept.read_text(encoding="utf-8") if kept.is_file() else ""):
        partial = kept.with_suffix(".part")
        partial.write_text(whole, encoding="utf-8")
        partial.replace(kept)
    for part in parts:
        part.unlink()


def _whole_lines(path: Path) -> str:
    """What is there but for a last line that was cut off."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1]
