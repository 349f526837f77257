"""The slash command `/count N` and the loader of `@numbers:FIRST-LAST`."""

from __future__ import annotations

import re

from specchat.app.chat_state import ChatState, CommandResult
from specchat.app.question import Question
from specchat.errors import InputError, UsageError

MAX_NUMBERS = 10_000
RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def count(chat: ChatState, argument: str) -> CommandResult:
    """Ask the model to count."""
    if not argument.isdecimal():
        raise UsageError("/count needs a number, such as /count 20")
    prompt = f"Count from 1 to {int(argument)}, with commas between the numbers."
    return CommandResult(request=Question(prompt))


def numbers(text: str) -> str:
    """The numbers of a range, one per line: "1-3" is "1\\n2\\n3\\n"."""
    match = RANGE.fullmatch(text)
    if not match:
        raise InputError(f"@numbers:{text}: give the first and the last number, as in @numbers:1-20")
    first, last = int(match[1]), int(match[2])
    if not 0 <= last - first < MAX_NUMBERS:
        raise InputError(f"@numbers:{text}: from 1 to {MAX_NUMBERS} numbers can be attached")
    return "".join(f"{number}\n" for number in range(first, last + 1))
