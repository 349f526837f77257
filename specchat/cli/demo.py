"""`specchat demo`: the same paragraph three times, first plain, then with a drafter."""

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
    ("plain", "one token for each pass of the model, no drafter"),
    ("auto", "repeated text is drafted, many tokens at once, and verified in one pass"),
    ("auto", "and once more"),
)


@click.command()
@click.argument("question", default=QUESTION)
@profile_options
@click.pass_context
def demo(context: click.Context, question: str, **options: Any) -> int:
    """Show speculative decoding: the same paragraph three times, first plain and then with a drafter.

    The embedded model is a small demo that copies well and knows little; QUESTION replaces the paragraph.
    """
    with open_conversation(context.obj, options) as session:
        for number, (variant, description) in enumerate(DEMO_TURNS, start=1):
            print(f"\n[{number}/{len(DEMO_TURNS)}] {variant}: {description}", file=sys.stderr)
            if code := print_answer(session, Request(question, variant=variant)):
                return code
    return 0
