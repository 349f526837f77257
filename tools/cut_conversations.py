"""Conversations that were cancelled, branched and resumed, beside fresh ones: are their greedy answers the same?

    python -m tools.cut_conversations --target starter --conversations 100

Each conversation reads passages of the documentation. Before each of its answers, other things happen to its KV cache:
an answer that is cancelled within its prompt or later, another question that is taken back, a restart from the files
on disk, another drafter. The last answer must have the tokens of a new session that reads the whole conversation as
one prompt, without drafts.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from random import Random
from threading import Event as Flag

from specchat.chat.events import Failed
from specchat.chat.request import Request
from specchat.chat.session import Session
from specchat.chat.transcript import Turn
from specchat.errors import SpecchatError
from specchat.loading.load_engine import Engine, load_engine
from specchat.paths import remove_kv_files
from specchat.profile import load_profile

DOCS = Path(__file__).parent.parent / "docs"
QUESTIONS = (
    "Summarize this in one sentence.",
    "What is this about?",
    "Name three things of it.",
    "Explain it to a child.",
)
KV_NAME = "cut-conversations"
MAX_EVENTS_BEFORE_CANCEL = 16


class Conversation:
    def __init__(self, engine: Engine, seed: int, variants: Sequence[str], max_tokens: int) -> None:
        self.engine, self.random, self.variants, self.max_tokens = engine, Random(seed), variants, max_tokens
        self.session = engine.create_session()
        self.words = self.random.choice(sorted(DOCS.glob("*.md"))).read_text(encoding="utf-8").split(" ")

    def has_the_answer_of_a_fresh_one(self) -> bool:
        for _answer in range(2):
            for disturb in self.random.sample((self.cancel, self.branch, self.restart), k=2):
                disturb()
            question, turns = self.question(), list(self.session.turns)
            ask(self.session, self.request(question))
        with self.engine.create_session(turns) as fresh:
            ask(fresh, self.request(question, "plain"))
        answers = [each.turns[-1].answer_ids for each in (self.session, fresh)]
        self.session.close()
        return answers[0] == answers[1]

    def cancel(self) -> None:
        ask(self.session, self.request(self.question()), self.random.randrange(MAX_EVENTS_BEFORE_CANCEL))
        self.session.rewind()

    def branch(self) -> None:
        ask(self.session, self.request(self.question()))
        self.session.rewind()

    def restart(self) -> None:
        turns: list[Turn] = list(self.session.turns)
        self.session.keep_kv_as(KV_NAME)
        self.session.close()
        self.session = self.engine.create_session(turns)
        self.session.keep_kv_as(KV_NAME)

    def question(self) -> str:
        """With a passage of the documentation: the same question again would not need to be read."""
        first = self.random.randrange(len(self.words))
        passage = " ".join(self.words[first : first + self.random.randint(20, 250)])
        return f"{self.random.choice(QUESTIONS)}\n\n{passage}"

    def request(self, question: str, variant: str = "") -> Request:
        variant = variant or self.random.choice(self.variants)
        return Request(question, max_tokens=self.max_tokens, temperature=0.0, variant=variant)


def ask(session: Session, request: Request, max_events: int | None = None) -> None:
    """Answer, and cancel after so many events."""
    cancelled = Flag()
    for number, event in enumerate(session.ask(request, cancelled)):
        if isinstance(event, Failed):
            raise SpecchatError(event.message)
        if number == max_events:
            cancelled.set()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--weights", default="")
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--variants", default="plain,lookup,suffix,recycling")
    arguments = parser.parse_args()
    weights = {"models.weights": arguments.weights} if arguments.weights else {}
    engine = load_engine(load_profile("chat").override({"models.target": arguments.target, **weights}))
    same = 0
    try:
        for seed in range(arguments.conversations):
            conversation = Conversation(engine, seed, arguments.variants.split(","), arguments.max_tokens)
            same += conversation.has_the_answer_of_a_fresh_one()
            print(f"\r{same} of {seed + 1} are the same", end="", flush=True)
    finally:
        print()
        engine.close()
        remove_kv_files(KV_NAME)


if __name__ == "__main__":
    main()
