"""`specchat demo`: the same paragraph three times, first plainly, then with somebody who guesses ahead."""

from __future__ import annotations

import sys
from typing import Any

import click

from specchat.chat.request import Request
from specchat.cli.options import profile_options
from specchat.cli.print_turn import print_answer
from specchat.cli.session_options import open_conversation

CODE_TO_COPY = '''
```python
def mean(numbers):
    """Return the mean of some numbers."""
    total = 0
    for number in numbers:
        total += number
    return total / len(numbers)
```'''
QUESTION = f"Copy the code exactly.\n{CODE_TO_COPY}"
DEMO_TURNS = (
    ("plain", "one token for each pass of the model; nobody guesses"),
    ("auto", "what repeats the text is guessed, many tokens at once, and checked in one pass"),
    ("auto", "and once more"),
)


@click.command()
@click.argument("question", default=QUESTION)
@profile_options
@click.pass_context
def demo(context: click.Context, question: str, **options: Any) -> int:
    """See speculation at work: the same paragraph three times, first without guesses and then with them.

    The embedded model is a small demo that copies well and knows little; QUESTION asks it something else.
    """
    with open_conversation(context.obj, options) as session:
        for number, (variant, what) in enumerate(DEMO_TURNS, start=1):
            print(f"\n[{number}/{len(DEMO_TURNS)}] {variant}: {what}", file=sys.stderr)
            if code := print_answer(session, Request(question, variant=variant)):
                return code
    return 0
