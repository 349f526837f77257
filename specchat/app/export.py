"""Export of a conversation to a file, as Markdown (requests as quotes, thinking folded, answers unchanged) or as
JSON (all stored fields).

An existing file is never overwritten.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from specchat.app.code_blocks import FENCED_BLOCK
from specchat.chat.turn_summary import thinking_text
from specchat.errors import InputError
from specchat.history.history_reader import StoredTurn
from specchat.host.protocol import totals_from_json

FENCE = re.compile(r"^ {0,3}(?P<marks>`{3,}|~{3,})", re.MULTILINE)


def export_conversation(path: Path, name: str, turns: Sequence[StoredTurn]) -> str:
    """As JSON for a file with this suffix, else as Markdown. Turns with the same turn before them are versions."""
    if path.suffix.lower() == ".json":
        return _as_json(name, turns)
    return "\n\n".join([f"# {' '.join(name.split()) or 'A conversation'}", *_markdown_blocks(turns)]) + "\n"


def write_conversation(path: Path, name: str, turns: Sequence[StoredTurn]) -> str:
    """Write a new file, and say what it has. InputError if it exists or cannot be created."""
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(export_conversation(path, name, turns))
    except FileExistsError:
        raise InputError(f"{path}: exists already; name another file") from None
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from None
    return f"{len(turns)} request{'' if len(turns) == 1 else 's'} and answers in {path}"


def _as_json(name: str, turns: Sequence[StoredTurn]) -> str:
    rows = [
        {
            "id": turn.id,
            "parent": turn.parent,
            "model": turn.answer.model,
            "question": turn.request.get("text", ""),
            "files": turn.request.get("files") or [],
            "thinking": turn.answer.thinking,
            "answer": turn.answer.text,
            "state": turn.state,
            "variant": turn.answer.variant,
            "seed": turn.answer.seed,
            "started": turn.started,
            "ended": turn.ended,
            "totals": turn.totals,
        }
        for turn in turns
    ]
    return json.dumps({"name": name, "turns": rows}, ensure_ascii=False, indent=1) + "\n"


def _markdown_blocks(turns: Sequence[StoredTurn]) -> Iterator[str]:
    versions: dict[str | None, list[str]] = {}
    for turn in turns:
        versions.setdefault(turn.parent, []).append(turn.id)
    for turn in turns:
        if len(same_place := versions[turn.parent]) > 1:
            yield f"**Version {same_place.index(turn.id) + 1} of {len(same_place)}**"
        lines = str(turn.request.get("text", "")).splitlines()
        if files := [f"@{file.get('name', '')}" for file in turn.request.get("files") or ()]:
            lines += ["", " ".join(files)]
        yield "\n".join(f"> {line}".rstrip() for line in lines)
        if thinking := turn.answer.thinking.strip("\n"):
            summary = thinking_text(totals_from_json(turn.totals).thinking_seconds) or "thinking"
            yield f"<details>\n<summary>{summary}</summary>\n\n{_close_fence(thinking)}\n\n</details>"
        if answer := turn.answer.text.strip("\n"):
            yield _close_fence(answer)


def _close_fence(answer: str) -> str:
    """Close a code block that a stopped answer left open, so that it does not swallow the rest of the file."""
    opened = FENCE.search(FENCED_BLOCK.sub("", answer))
    return f"{answer}\n{opened['marks']}" if opened else answer
