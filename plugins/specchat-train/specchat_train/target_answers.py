"""The target's own answers, generated with speculative decoding and stored in a file, each only once."""

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specchat_train.distributed import SINGLE_PROCESS, DistributedContext, shared_folder_error
from specchat_train.frozen_target import FrozenTarget
from specchat_train.progress_bar import with_progress_bar


@dataclass(frozen=True)
class TargetAnswer:
    """A prompt with the target's greedy answer (with its stop token), and the index where the answer starts."""

    tokens: list[int]
    answer_start: int

    @property
    def content_hash(self) -> str:
        return hashlib.sha256(json.dumps([self.answer_start, self.tokens]).encode()).hexdigest()


def generate_answers(
    target: FrozenTarget,
    prompts: Sequence[list[int]],
    max_tokens: int,
    answers_file: Path,
    distributed: DistributedContext = SINGLE_PROCESS,
) -> list[TargetAnswer]:
    """Answer every prompt that has no answer in the file, and append each answer to the file at once.

    With several processes, each writes its share to its own file, and rank 0 merges the files.
    """
    answers_file.parent.mkdir(parents=True, exist_ok=True)
    stored = _load_merged_answers(answers_file, max_tokens, distributed)
    missing = [prompt for prompt in prompts if _prompt_hash(prompt) not in stored]
    own_suffix = "" if distributed.is_single_process else f".{distributed.rank}"
    own_file = answers_file.with_suffix(own_suffix + answers_file.suffix)
    with own_file.open("a", encoding="utf-8") as out:
        for prompt in with_progress_bar("answers", distributed.shard(missing), is_shown=distributed.is_main_process):
            answer = target.generate(prompt, max_tokens).tokens
            out.write(json.dumps({"prompt": _prompt_hash(prompt), "max_tokens": max_tokens, "answer": answer}) + "\n")
            out.flush()
    stored = _load_merged_answers(answers_file, max_tokens, distributed)
    if any(_prompt_hash(prompt) not in stored for prompt in prompts):
        raise shared_folder_error(answers_file)
    return [TargetAnswer([*prompt, *stored[_prompt_hash(prompt)]], len(prompt)) for prompt in prompts]


def _prompt_hash(prompt: Sequence[int]) -> str:
    return hashlib.sha256(json.dumps(list(prompt)).encode()).hexdigest()[:32]


def _load_merged_answers(answers_file: Path, max_tokens: int, distributed: DistributedContext) -> dict[str, list[int]]:
    """The answers with this limit of all processes, by the hash of the prompt."""
    distributed.barrier()
    if distributed.is_main_process:
        _merge_answer_files(answers_file)
    distributed.barrier()
    lines = answers_file.read_text(encoding="utf-8").splitlines() if answers_file.is_file() else []
    rows = [json.loads(line) for line in lines]
    return {row["prompt"]: row["answer"] for row in rows if row.get("max_tokens") == max_tokens}


def _merge_answer_files(answers_file: Path) -> None:
    """Merge the files of all processes into one; a truncated last line is dropped."""
    parts = sorted(answers_file.parent.glob(f"{answers_file.stem}.*{answers_file.suffix}"))
    merged = "".join(_complete_lines(path) for path in (answers_file, *parts) if path.is_file())
    if merged != (answers_file.read_text(encoding="utf-8") if answers_file.is_file() else ""):
        partial = answers_file.with_suffix(".part")
        partial.write_text(merged, encoding="utf-8")
        partial.replace(answers_file)
    for part in parts:
        part.unlink()


def _complete_lines(path: Path) -> str:
    text = path.read_text(encoding="utf-8")
    return text[: text.rfind("\n") + 1]
