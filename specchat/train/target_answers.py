"""The target's own answers, written by the engine with guesses and kept in a file, so that none is written twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat.train.distributed import SINGLE_PROCESS, DistributedContext, shared_folder_error
from specchat.train.frozen_target import FrozenTarget
from specchat.train.progress_bar import with_progress_bar


@dataclass(frozen=True)
class TargetAnswer:
    """A prompt with the target's greedy answer (its end token included), and where the answer starts."""

    tokens: list[int]
    answer_start: int

    @property
    def content_hash(self) -> str:
        """Tells it from all others."""
        return hashlib.sha256(json.dumps([self.answer_start, self.tokens]).encode()).hexdigest()


def generate_answers(
    target: FrozenTarget,
    prompts: Sequence[list[int]],
    max_tokens: int,
    answers_file: Path,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> list[TargetAnswer]:
    """An answer to every prompt, those in the file first of all; what is new is put there as soon as it is written.

    Of several processes each writes its share into a file of its own, and the first puts them into the one that stays.
    """
    answers_file.parent.mkdir(parents=True, exist_ok=True)
    known = _load_merged_answers(answers_file, max_tokens, distributed)
    missing = [prompt for prompt in prompts if _prompt_hash(prompt) not in known]
    own = (
        answers_file
        if distributed.is_single_process
        else answers_file.with_suffix(f".{distributed.rank}{answers_file.suffix}")
    )
    with own.open("a", encoding="utf-8") as out:
        for prompt in with_progress_bar("answers", distributed.shard(missing), is_shown=distributed.is_main_process):
            answer = target.generate(prompt, max_tokens).tokens
            out.write(json.dumps({"prompt": _prompt_hash(prompt), "limit": max_tokens, "answer": answer}) + "\n")
            out.flush()
    known = _load_merged_answers(answers_file, max_tokens, distributed)
    if any(_prompt_hash(prompt) not in known for prompt in prompts):
        raise shared_folder_error(answers_file)
    return [TargetAnswer([*prompt, *known[_prompt_hash(prompt)]], len(prompt)) for prompt in prompts]


def _prompt_hash(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:32]


def _load_merged_answers(kept: Path, limit: int, ranks: DistributedContext) -> dict[str, list[int]]:
    """The answers that were written under this limit, whoever wrote them: now, or before an interruption."""
    ranks.barrier()
    if ranks.is_main_process:
        _merge_answer_files(kept)
    ranks.barrier()
    rows = [json.loads(line) for line in kept.read_text(encoding="utf-8").splitlines()] if kept.is_file() else []
    return {row["prompt"]: row["answer"] for row in rows if row["limit"] == limit}


def _merge_answer_files(kept: Path) -> None:
    """The whole lines of the file and of those that several processes wrote beside it, in the file; the others go."""
    parts = sorted(kept.parent.glob(f"{kept.stem}.*{kept.suffix}"))
    whole = "".join(_complete_lines(path) for path in (kept, *parts) if path.is_file())
    if whole != (kept.read_text(encoding="utf-8") if kept.is_file() else ""):
        partial = kept.with_suffix(".part")
        partial.write_text(whole, encoding="utf-8")
        partial.replace(kept)
    for part in parts:
        part.unlink()


def _complete_lines(path: Path) -> str:
    """What is there but for a last line that was cut off."""
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1]
