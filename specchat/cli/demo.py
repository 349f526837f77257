"""`specchat demo`: the same question again and again, so that the answer is copied from the conversation."""

from __future__ import annotations

import sys
from typing import Any

import click

from specchat.chat.request import Request
from specchat.cli.conversation import answer, open_conversation
from specchat.cli.main import INTERRUPTED
from specchat.cli.options import chosen_profile, profile_options

QUESTION = "Write a function that adds the numbers of a list, with a docstring."
TURNS = (
    ("plain", "one token a pass, nobody guesses"),
    ("auto", "the same question: the answer above is copied, and checked token by token"),
    ("auto", "and once more"),
)


@click.command()
@click.argument("question", default=QUESTION)
@profile_options
@click.pass_context
def demo(context: click.Context, question: str, **options: Any) -> int:
    """See speculation at work: the same answer three times, at first without guesses and then with them."""
    profile = chosen_profile(options)
    with open_conversation(context.obj, profile) as session:
        for number, (variant, what) in enumerate(TURNS, start=1):
            print(f"\n[{number}/{len(TURNS)}] {variant}: {what}", file=sys.stderr)
            if answer(session, Request(question, variant=variant)) is None:
                return INTERRUPTED
    return 0
