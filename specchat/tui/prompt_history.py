"""The prompt history, in a file that the line mode shares: `# time`, then each line after a plus."""

from __future__ import annotations

import time
from pathlib import Path

MAX_QUESTIONS = 1000


def read_prompt_history(path: Path) -> list[str]:
    """The last prompts, the newest last, each once; empty when the file is missing."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
    except OSError:
        return []
    questions: list[str] = []
    question: list[str] = []
    for line in [*lines, ""]:
        if line.startswith("+"):
            question.append(line[1:])
        elif question:
            questions.append("\n".join(question))
            question = []
    return list(reversed(dict.fromkeys(reversed(questions))))[-MAX_QUESTIONS:]


def append_prompt_history(path: Path, question: str) -> None:
    """Append a prompt; write errors are ignored."""
    written = "".join(f"+{line}\n" for line in question.split("\n"))
    try:
        with path.open("a", encoding="utf-8") as file:
            file.write(f"\n# {time.strftime('%Y-%m-%d %H:%M:%S')}\n{written}")
    except OSError:
        return
