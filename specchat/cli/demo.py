"""`specchat demo`: questions that are answered twice, by plain decoding and with drafts, and the difference."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from threading import Event as Flag
from typing import Any

import click

from specchat.app.agent.agent_loop import AgentEvent
from specchat.chat.events import Event, Finished, TextDelta, Totals
from specchat.chat.request import Attachment, Request
from specchat.cli.notes import print_note
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.print_turn import Conversation, print_answer
from specchat.cli.session_options import open_conversation
from specchat.cli.starter_offer import offer_starter
from specchat.profile.keys import EMBEDDED, STARTER

TEXT = (
    "The lighthouse at Cape Rosa was built in 1871. In 1905, Ada Lind installed an electric light. The beam can be "
    "seen for thirty kilometres. Today, the tower is a museum, and the keeper's house is a small hotel with six rooms."
)
CODE = '''
```python
def mean(numbers):
    """Return the mean of some numbers."""
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)
```'''
# The embedded model can do little more than copy.
EMBEDDED_QUESTIONS = (Request(f"Copy the code exactly.\n{CODE}"),)
QUESTIONS = (
    Request("Write a Python function that reverses a string."),
    Request(
        "Replace the name Ada Lind with Marie Holm in this text. Return the whole text.",
        files=(Attachment("notes.txt", TEXT),),
    ),
)
VARIANTS = {
    "plain": "one token for each pass of the model, no drafter",
    "auto": "likely tokens are drafted, several at once, and verified in one pass",
}
MAX_ANSWER_TOKENS = 120


@dataclass
class RecordedTurn:
    """Passes the events of one answer on, and keeps its text and its totals."""

    conversation: Conversation
    text: str = ""
    totals: Totals = Totals()

    def ask(self, request: Request, cancelled: Flag) -> Iterator[Event | AgentEvent]:
        """Answer one request."""
        for event in self.conversation.ask(request, cancelled):
            if isinstance(event, TextDelta):
                self.text += event.text
            elif isinstance(event, Finished):
                self.totals = event.totals
            yield event

    def close(self) -> None:
        """Do nothing: who has opened the conversation closes it."""


@click.command()
@click.argument("question", required=False)
@profile_options
@click.pass_context
def demo(context: click.Context, question: str | None, **options: Any) -> int:
    """Show speculative decoding: the same answer by plain decoding and with drafts, and what each cost.

    QUESTION replaces the questions of the demo. The first time, the starter model is downloaded.
    """
    if context.obj is None:
        offer_starter(options, downloads_unasked=True)
    target = resolve_profile(options).models.target
    if target == STARTER and options["exact"] is None:
        options["exact"] = (
            True  # free where kernels are batch invariant; elsewhere a near tie could be rounded differently
        )
    questions = (Request(question),) if question else EMBEDDED_QUESTIONS if target == EMBEDDED else QUESTIONS
    for number, request in enumerate(questions, start=1):
        names = "".join(f" ({file.name})" for file in request.files)
        print_note(f"\nquestion {number} of {len(questions)}{names}: {request.text.splitlines()[0]}")
        turns: list[RecordedTurn] = []
        for variant, description in VARIANTS.items():
            print_note(f"\n{variant}: {description}")
            # A private conversation for each answer: it must not copy the other one, nor an earlier answer.
            with open_conversation(context.obj, {**options, "is_private": True}) as conversation:
                turns.append(RecordedTurn(conversation))
                turn = replace(request, variant=variant, seed=1, temperature=0.0, max_tokens=MAX_ANSWER_TOKENS)
                if code := print_answer(turns[-1], turn):
                    return code
        print_note(comparison(*turns))
    return 0


def comparison(plain: RecordedTurn, drafted: RecordedTurn) -> str:
    """Two answers in one line: is the text the same, and what did it cost?"""
    if plain.text != drafted.text:
        return "the texts differ: a near tie of two tokens was rounded differently; --exact prevents that"
    steps = f"{drafted.totals.steps} passes of the model instead of {plain.totals.steps}"
    if not plain.totals.tokens_per_second:
        return f"the same text, {steps}"
    ratio = drafted.totals.tokens_per_second / plain.totals.tokens_per_second
    return f"the same text, {steps}: {ratio:.1f} times the speed"
