"""Continue a sequence of numbers. Strings in, strings out; knows no model.

>>> continue_sequence("3, 5, 7,", max_numbers=2)
' 9, 11, '
>>> continue_sequence("1. wash\\n2. dry\\n", max_numbers=1)
'3. '
"""

from __future__ import annotations

import re
from itertools import count, islice

FIRST_NUMBERS = re.compile(r"(?<!\d)(?P<first>\d{1,9})(?P<separator>\D{1,3})(?P<second>\d{1,9})(?!\d)")
LIST_ITEM = re.compile(r"^(?P<indent>[ \t]*)(?P<number>\d{1,9})(?P<mark>[.):] ).*\n\Z", re.MULTILINE)


def continue_sequence(text: str, max_numbers: int = 8) -> str:
    """The continuation of the sequence of numbers at the end of a text; "" without one."""
    if item := LIST_ITEM.search(text):
        return f"{item['indent']}{int(item['number']) + 1}{item['mark']}"
    for start in FIRST_NUMBERS.finditer(text):
        if continuation := _continue_from(start, text[start.start() :], max_numbers):
            return continuation
    return ""


def _continue_from(start: re.Match[str], text: str, max_numbers: int) -> str:
    """The continuation of a text that starts with these two numbers; "" if the text is not their sequence."""
    first, second = int(start["first"]), int(start["second"])
    numbers, sequence = count(first, second - first), ""
    while len(sequence) < len(text):
        sequence += f"{next(numbers)}{start['separator']}"
    if not sequence.startswith(text):
        return ""
    return sequence[len(text) :] + "".join(f"{each}{start['separator']}" for each in islice(numbers, max_numbers))
