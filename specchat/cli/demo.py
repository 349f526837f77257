"""`specchat demo`: questions that are answered twice, by plain decoding and with drafts, and the difference."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import click

from specchat.app.ask import Answered
from specchat.chat.request import Attachment, Request
from specchat.cli.notes import print_wrapped
from specchat.cli.options import profile_options, resolve_profile
from specchat.cli.question_options import command_chat
from specchat.cli.session_options import open_host_conversation, session_request
from specchat.cli.starter_offer import offer_starter
from specchat.own_tables import own_tables
from specchat.profile.keys import AGENT_OFF, EMBEDDED, STARTER
from specchat.repl.answer_printer import print_answer
from specchat.repl.interrupt import interruptible

TABLES = own_tables(__file__)
VARIANTS: Mapping[str, str] = TABLES["variants"]
QUESTIONS, EMBEDDED_QUESTIONS = (
    tuple(
        Request(each["text"], files=tuple(Attachment(*file) for file in each.get("files", {}).items()))
        for each in TABLES[name]
    )
    for name in ("questions", "embedded_questions")
)
MAX_ANSWER_TOKENS = 120
NEXT = "\nnow: specchat"


@click.command()
@click.argument("question", required=False)
@profile_options
def demo(question: str | None, **options: Any) -> int:
    """Show speculative decoding: the same answer by plain decoding and with drafts, and what each cost.

    QUESTION replaces the questions of the demo. The first time, the starter model is downloaded.
    """
    offer_starter(options, downloads_unasked=True)
    target = resolve_profile(options).models.target
    if target == STARTER and options["exact"] is None:
        options["exact"] = True  # free where kernels are batch invariant; elsewhere near ties could round differently
    questions = (Request(question),) if question else EMBEDDED_QUESTIONS if target == EMBEDDED else QUESTIONS
    for number, request in enumerate(questions, start=1):
        names = "".join(f" ({file.name})" for file in request.files)
        print_wrapped(f"\nquestion {number} of {len(questions)}{names}: {request.text.splitlines()[0]}")
        answers = list[Answered]()
        for variant, description in VARIANTS.items():
            print_wrapped(f"\n{variant}: {description}")
            # A private conversation for each answer: it must not copy the other one, nor an earlier answer.
            with open_host_conversation(session_request({**options, "is_private": True})) as conversation:
                turn = replace(request, variant=variant, seed=1, temperature=0.0, max_tokens=MAX_ANSWER_TOKENS)
                with interruptible() as stopped:
                    answers.append(print_answer(command_chat(conversation, AGENT_OFF, ()), turn, stopped, wraps=True))
                answers[-1].raise_failure()
                if stopped.is_set():
                    return stopped.exit_code
        print_wrapped(comparison(*answers))
    print_wrapped(NEXT)
    return 0


def comparison(plain: Answered, drafted: Answered) -> str:
    """Two answers in one line: is the text the same, and what did it cost?"""
    if plain.text != drafted.text:
        return "the texts differ: a near tie of two tokens was rounded differently; --exact prevents that"
    steps = f"{drafted.totals.steps} passes of the model instead of {plain.totals.steps}"
    speedup = drafted.totals.speedup
    return f"the same text, {steps}" if speedup is None else f"the same text, {steps}: {speedup.words}"
