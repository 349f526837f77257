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

from specchat.chat.events import Failed, TextDelta
from specchat.chat.request import Request
from specchat.chat.session import Session
from specchat.chat.transcript import Turn
from specchat.errors import SpecchatError
from specchat.loading.load_engine import Engine, load_engine
from specchat.paths import kv_folder, remove_kv_files
from specchat.profile import load_profile

TEXT = Path(__file__).parent.parent / "docs" / "profiles.md"
QUESTION = "Which of these is the most important? Answer in one sentence."
KEPT, COLD = "kv-restart", ""  # the name of its file, or none
MIB = 2**20


@dataclass(frozen=True)
class FirstToken:
    """How long the first token took, and the answer."""

    seconds: float
    text: str


def ask(session: Session, question: str) -> FirstToken:
    started_at, seconds, pieces = time.perf_counter(), 0.0, list[str]()
    for event in session.ask(Request(question, max_tokens=32, seed=1)):
        if isinstance(event, Failed):
            raise SpecchatError(event.message)
        if isinstance(event, TextDelta):
            seconds = seconds or time.perf_counter() - started_at
            pieces.append(event.text)
    return FirstToken(seconds, "".join(pieces))


def ask_after_restart(engine: Engine, turns: Sequence[Turn], kv_name: str) -> FirstToken:
    """The next question in a new session, whose own rows are not kept."""
    with engine.create_session(turns) as session:
        session.keep_kv_as(kv_name)
        answer = ask(session, QUESTION)
        session.keep_kv_as("")
    return answer


def compare(engine: Engine, tokens: int, rounds: int) -> str:
    """One row of the table for a conversation of about so many tokens."""
    text = engine.models.tokenizer.decode(engine.models.tokenizer.encode(TEXT.read_text(encoding="utf-8"))[:tokens])
    with engine.create_session() as first:
        first.keep_kv_as(KEPT)
        ask(first, text)
        turns, rows = tuple(first.turns), first.generation.cache.length
    engine.close()  # waits for the file
    with engine.create_session() as unended:
        ask(unended, text)
        expected = ask(unended, QUESTION).text
    size = sum(path.stat().st_size for path in kv_folder().glob(f"{KEPT}.*")) / MIB
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
            remove_kv_files(KEPT)


if __name__ == "__main__":
    main()
