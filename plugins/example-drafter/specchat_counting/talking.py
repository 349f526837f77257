"""The command `/count N` and the loader behind `@numbers:FIRST-LAST`."""

from __future__ import annotations

import re

from specchat.errors import InputError, UsageError
from specchat.commands.command_registry import CommandResult, ChatState

MOST = 10_000
RANGE = re.compile(r"(\d{1,9})-(\d{1,9})")


def count(talk: ChatState, argument: str) -> CommandResult:
    """Ask the model to count."""
    if not argument.isdecimal():
        raise UsageError("/count needs a number, such as /count 20")
    return CommandResult(request=talk.make_request(f"Count from 1 to {int(argument)}, with commas between the numbers."))


def numbers(rest: str) -> str:
    """The numbers from the first to the last, one a line: "1-3" is "1\\n2\\n3\\n"."""
    found = RANGE.fullmatch(rest)
    if not found:
        raise InputError(f"@numbers:{rest}: give the first and the last number, as in @numbers:1-20")
    first, last = int(found[1]), int(found[2])
    if not 0 <= last - first < MOST:
        raise InputError(f"@numbers:{rest}: from 1 to {MOST} numbers can be attached")
    return "".join(f"{number}\n" for number in range(first, last + 1))
