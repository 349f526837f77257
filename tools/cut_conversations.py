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

from specchat.chat.request import Request
from specchat.chat.transcript import Question, TextOwner, Turn
from specchat.loading.load_engine import Engine, load_engine
from specchat.paths import remove_kv_files
from specchat.profile.profile_files import load_profile

DOCS = Path(__file__).parent.parent / "docs"
QUESTIONS = (
    "Summarize this in one sentence.",
    "What is this about?",
    "Name three things of it.",
    "Explain it to a child.",
)
CUT = TextOwner("cut-conversations", is_private=False)  # has a file
MAX_EVENTS_BEFORE_CANCEL = 16


class Conversation:
    def __init__(self, engine: Engine, seed: int, variants: Sequence[str], max_tokens: int) -> None:
        self.engine, self.random, self.variants, self.max_tokens = engine, Random(seed), variants, max_tokens
        self.turns: Sequence[Turn] = ()
        self.words = self.random.choice(sorted(DOCS.glob("*.md"))).read_text(encoding="utf-8").split(" ")

    def has_the_answer_of_a_fresh_one(self) -> bool:
        self.ask_disturbed()
        question, turns = self.ask_disturbed()
        with self.engine.create_session(turns) as fresh:
            for _event in fresh.ask(self.request(question, "plain")):
                pass
            expected = fresh.turns[-1].answer_ids
        self.engine.forget(CUT.name)
        self.engine.drop_forgotten()
        return self.turns[-1].answer_ids == expected

    def ask_disturbed(self) -> tuple[str, Sequence[Turn]]:
        """Ask the next question after other things; it and the turns before it."""
        for disturb in self.random.sample((self.cancel, self.branch, self.restart), k=2):
            disturb()
        question, turns = self.question(), self.turns
        self.turns = ask(self.engine, turns, self.request(question))
        return question, turns

    def cancel(self) -> None:
        events = self.random.randrange(MAX_EVENTS_BEFORE_CANCEL)
        ask(self.engine, self.turns, self.request(self.question()), events)

    def branch(self) -> None:
        ask(self.engine, self.turns, self.request(self.question()))

    def restart(self) -> None:
        self.engine.close()  # waits for the file

    def question(self) -> str:
        """With a passage of the documentation: the same question again would not need to be read."""
        first = self.random.randrange(len(self.words))
        passage = " ".join(self.words[first : first + self.random.randint(20, 250)])
        return f"{self.random.choice(QUESTIONS)}\n\n{passage}"

    def request(self, question: str, variant: str = "") -> Request:
        variant = variant or self.random.choice(self.variants)
        return Request(question, max_tokens=self.max_tokens, temperature=0.0, variant=variant)


def ask(engine: Engine, turns: Sequence[Turn], request: Request, max_events: int | None = None) -> Sequence[Turn]:
    """Answer, and cancel after so many events; the turns with that of the answer."""
    cancelled = Flag()
    answer = engine.answer(Question(request, tuple(turns), engine.models.profile, CUT), cancelled)
    for number, _event in enumerate(answer.events()):
        if number == max_events:
            cancelled.set()
    return answer.turns


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--target", default="starter")
    parser.add_argument("--weights", default="")
    parser.add_argument("--conversations", type=int, default=100)
    parser.add_argument("--max-tokens", type=int, default=32)
    parser.add_argument("--variants", default="plain,lookup,suffix")
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
        remove_kv_files(CUT.name)


if __name__ == "__main__":
    main()
