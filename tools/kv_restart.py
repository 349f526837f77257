"""The first token of a conversation that goes on after its engine has ended: with its KV cache on disk, and without.

    python -m tools.kv_restart --target starter --tokens 1000 --tokens 4000

Both ways alternate in one run. With its file, the conversation must say what it says in an engine that has not ended.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from threading import Event

from specchat.chat.events import Failed, TextDelta
from specchat.chat.request import Request
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.errors import SpecchatError
from specchat.loading.load_engine import Engine, load_engine
from specchat.paths import kv_folder, remove_kv_files
from specchat.profile.profile_files import load_profile

TEXT = Path(__file__).parent.parent / "docs" / "profiles.md"
QUESTION = "Which of these is the most important? Answer in one sentence."
KEPT = TextOwner("kv-restart", is_private=False)  # has a file
COLD, UNENDED = TextOwner("cold"), TextOwner("unended")
MIB = 2**20


@dataclass(frozen=True)
class FirstToken:
    """How long the first token took, and the answer."""

    seconds: float
    text: str
    turns: Sequence[Turn]


def ask(engine: Engine, owner: TextOwner, turns: Sequence[Turn], question: str) -> FirstToken:
    started_at, seconds, pieces = time.perf_counter(), 0.0, list[str]()
    asked = Question(Request(question, max_tokens=32, seed=1), tuple(turns), engine.models.profile, owner)
    answer = engine.answer(asked, Event())
    for event in answer.events():
        if isinstance(event, Failed):
            raise SpecchatError(event.message)
        if isinstance(event, TextDelta):
            seconds = seconds or time.perf_counter() - started_at
            pieces.append(event.text)
    return FirstToken(seconds, "".join(pieces), answer.turns)


def ask_after_restart(engine: Engine, turns: Sequence[Turn], owner: TextOwner) -> FirstToken:
    """The next question with nothing in memory; its own rows are not kept."""
    answer = ask(engine, owner, turns, QUESTION)
    engine.forget(owner.name)
    engine.drop_forgotten()
    return answer


def compare(engine: Engine, tokens: int, rounds: int) -> str:
    """One row of the table for a conversation of about so many tokens."""
    text = engine.models.tokenizer.decode(engine.models.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[:tokens])
    turns = ask(engine, KEPT, (), text).turns
    rows = len(turns[-1].token_ids) - 1
    engine.close()  # waits for the file
    expected = ask(engine, UNENDED, ask(engine, UNENDED, (), text).turns, QUESTION).text
    engine.forget(UNENDED.name)
    engine.drop_forgotten()
    size = sum(path.stat().st_size for path in kv_folder().glob(f"{KEPT.name}.*")) / MIB
    pairs = [[ask_after_restart(engine, turns, way) for way in (COLD, KEPT)] for _ in range(rounds)]
    cold, kept = (median(each.seconds for each in way) for way in zip(*pairs, strict=True))
    is_same = all(kept.text == expected for _cold, kept in pairs)
    values = (str(rows), f"{size:.0f}", f"{cold:.2f}", f"{kept:.2f}", f"{kept / cold:.1%}", "yes" if is_same else "no")
    return f"| {' | '.join(values)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--tokens", type=int, action="append")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    engine = load_engine(load_profile("chat").override({"models.target": arguments.target}))
    print("| tokens | file (MiB) | cold (s) | from disk (s) | share | same text |\n|---|---|---|---|---|---|")
    for tokens in arguments.tokens or [1000, 4000]:
        try:
            print(compare(engine, tokens, arguments.rounds), flush=True)
        finally:
            remove_kv_files(KEPT.name)


if __name__ == "__main__":
    main()
